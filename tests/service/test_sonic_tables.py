"""SONiC's tables of optical circuit switches: keys, states, what is in the way, and changes as JSON patches."""

from __future__ import annotations

import json

import numpy as np
import pytest

from stretto.formats import exporters
from stretto.formats.sonic_patches import json_patch, key_of, row_of
from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.service.optical.sonic_tables import ends_of, in_the_way, state_of
from stretto.simulate import simulate
from stretto.topologies import load_topology


def rows(*keys):
    return {key: dict(zip(("a_side", "b_side"), key.split("-"), strict=True)) for key in keys}


def test_a_circuit_is_named_by_its_ends_and_has_them_in_its_row():
    assert key_of(("1A", "2B")) == "1A-2B"
    assert row_of(("1A", "2B")) == {"a_side": "1A", "b_side": "2B"}
    assert ends_of("1A-2B", row_of(("1A", "2B"))) == ("1A", "2B")


def test_a_row_without_ends_has_those_of_its_key_and_ports_of_modules_keep_their_names():
    assert ends_of("1A-2B", {}) == ("1A", "2B")
    assert ends_of("1-1A-3-20B", {"a_side": "1-1A", "b_side": "3-20B"}) == ("1-1A", "3-20B")


def test_circuits_are_in_the_way_if_they_hold_a_wanted_end():
    table = rows("1A-2B", "2A-1B", "3A-4B", "4A-3B")
    assert in_the_way(table, [("1A", "3B"), ("2A", "1B")]) == ["1A-2B", "4A-3B"]


@pytest.mark.parametrize(
    ("sides", "targets", "state"),
    [
        (("tuned", "tuned"), ("2B", "1A"), "tuned"),
        (("tuned", "tuned"), (None, None), "tuned"),
        (("tuned", "tuning"), ("2B", "1A"), "tuning"),
        (("blocked", "blocked"), (None, None), "tuning"),
        (("tuned", "failed"), ("2B", "1A"), "failed"),
        (("tuned", "tuned"), ("3B", "1A"), "tuning"),  # the row of a circuit that has ended
    ],
)
def test_a_circuit_is_tuned_when_both_sides_are_and_name_each_other(sides, targets, state):
    circuits = {"1A-2B": {"a_side_status": sides[0], "b_side_status": sides[1]}}
    ports = {end: {"target_simplex_port_id": t} if t else {} for end, t in zip(("1A", "2B"), targets, strict=True)}
    assert state_of(("1A", "2B"), circuits, ports) == state


@pytest.mark.parametrize(
    ("status", "ports", "state"),
    [
        ("enabled", ("connected", "connected"), "tuned"),
        ("disabled", ("connected", "connected"), "tuning"),
        ("disabled", ("tuning", "connected"), "tuning"),
        ("enabled", ("connected", "failed"), "failed"),
        ("invalid", ("blocked", "blocked"), "failed"),
    ],
)
def test_a_circuit_of_newer_images_is_tuned_when_it_is_enabled_and_its_ports_are_connected(status, ports, state):
    rows = {end: {"oper_status": said} for end, said in zip(("1A", "2B"), ports, strict=True)}
    assert state_of(("1A", "2B"), {"1A-2B": {"status": status}}, rows) == state


def test_a_circuit_of_which_nothing_is_said_is_not_tuned():
    assert state_of(("1A", "2B"), {}, {}) == "tuning"


def apply(document, patch):
    """RFC 6902 for the operations and paths that are used."""
    for step in patch:
        *parents, last = step["path"].strip("/").split("/")
        place = document
        for name in parents:
            place = place[name]  # KeyError: a parent must be there
        if step["op"] == "remove":
            del place[last]
        else:
            assert step["op"] == "add"
            place[last] = step["value"]
    return document


def test_a_patch_removes_before_it_adds_and_makes_the_table_it_needs():
    table = rows("1A-2B", "5A-6B")
    patch = json_patch([("1A", "2B")], [("1A", "3B")], empty=False)
    assert [step["op"] for step in patch] == ["remove", "add"]
    assert apply({"OCS_CROSS_CONNECT": table}, patch) == {"OCS_CROSS_CONNECT": rows("5A-6B", "1A-3B")}
    assert apply({}, json_patch([], [("1A", "3B")], empty=True)) == {"OCS_CROSS_CONNECT": rows("1A-3B")}


def patched(spec, path):
    """CONFIG_DB after each turn of a plan, as its patches make it, beside the matching that the plan turns to."""
    topology = load_topology(spec)
    plan = run_planner("rabenseifner+swot", topology, Workload((make_collective("allreduce", topology, 4_000_000),)))
    exporters()["sonic-patches"].write(simulate(plan), str(path))
    for switch in json.loads(path.read_text())["switches"]:
        config = apply({}, switch["initial"])
        for number, turn in zip(np.flatnonzero(plan.turns.plane == switch["switch"]), switch["turns"], strict=True):
            apply(config, turn["patch"])
            yield config, plan.turns.matching[int(number)].tolist()


SPECS = pytest.mark.parametrize("spec", ["optical:4,1", "optical:8,2?initial=xor1&reconfiguration=1us"])


@SPECS
def test_the_patches_of_a_plan_lead_from_matching_to_matching(spec, tmp_path):
    turns = 0
    for config, to in patched(spec, tmp_path / "p.json"):
        assert config["OCS_CROSS_CONNECT"] == rows(*(f"{a + 1}A-{b + 1}B" for a, b in enumerate(to)))
        turns += 1
    assert turns > 1


@SPECS
def test_the_models_know_the_tables_that_the_patches_of_a_plan_make(spec, tmp_path):
    from ocs_device import check  # needs yangson

    for config, _ in patched(spec, tmp_path / "p.json"):
        for is_newer in (False, True):
            check("CONFIG_DB", config, is_newer)
