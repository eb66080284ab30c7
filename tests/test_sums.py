"""Switches that sum: transfers from several sources, in the verifier, the simulator, plan files and topologies."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from joins import in_one_pass, in_two_steps, two_levels
from stretto.bounds import bounds
from stretto.formats import exporters, table, trace
from stretto.formats.native import read_plan, write_plan
from stretto.model.arrays import Ragged
from stretto.model.errors import InputError, Unsupported
from stretto.model.plan import Plan, make_plan
from stretto.model.topology import ACCELERATOR, ROUTER, make_topology
from stretto.report.columns import unpack_columns
from stretto.report.critical import critical_path
from stretto.report.data import page_data
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.topologies.files import topology_from_json
from stretto.verify import verify

SHARINGS = {
    "timed": {}, "ready-order": {}, "rates": {"rate": 1e9 / 4}, "weights": {"weight": 1.0}, "fair": {"weight": 1.0},
    "priorities": {"weight": 1.0},
}  # fmt: skip


def code(plan: Plan) -> str:
    finding = verify(plan).finding
    return finding.code if finding else "ok"


def test_an_allreduce_in_one_pass_takes_the_buffer_once():
    net = load_topology("star:8?bandwidth=450GB/s&sharp=true")
    plan = in_one_pass(net, parts=1, size=10**9)
    assert verify(plan).ok
    assert simulate(plan).completion_s == pytest.approx(1e9 / 450e9 + 1.4e-6, rel=1e-9)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_a_sum_arrives_after_the_longest_way_in_every_sharing(sharing):
    net, columns = two_levels(), {name: np.full(4, value) for name, value in SHARINGS[sharing].items()}
    plan = in_one_pass(net, sharing=sharing, **columns)
    assert verify(plan).ok
    line = simulate(plan)
    # 4 us up to a leaf, 10 us to the root and back, and down to each receiver
    assert line.arrival_s - line.finish_s[plan.dst.owners] == pytest.approx(np.tile([25e-6, 26e-6, 27e-6, 28e-6], 4))
    assert line.finish_s.max() == pytest.approx(1e-3)


@pytest.mark.parametrize("sharing", ["timed", "fair"])
def test_bytes_come_to_each_sum_from_all_sides_at_one_moment(sharing):
    net = two_levels()
    plan = in_one_pass(net, sharing=sharing, **({} if sharing == "timed" else {"weight": np.ones(4)}))
    offset = simulate(plan).hop_offset_s[: len(plan.route[0])]
    for v in (4, 5, 6):
        into = [i for i, link in enumerate(plan.route[0][:6]) if net.dst[link] == v]
        there = offset[into] + net.latency_s[plan.route[0][into]]
        assert there == pytest.approx(np.full(len(into), there[0]))
    assert offset.min() == 0.0


def test_a_sum_waits_for_the_last_of_its_sources():
    plan = in_two_steps()
    assert code(plan) == "ok"
    line = simulate(replace(plan, start_s=np.zeros(2), finish_s=np.full(2, 1e-3)))
    assert line.start_s[1] == pytest.approx(line.arrival_s[0])
    for sharing, columns in SHARINGS.items():
        given = {name: np.full(2, 1e9) for name in columns}
        line = simulate(replace(plan, sharing=sharing, **given))
        assert line.start_s[1] == pytest.approx(line.arrival_s[0])


def test_each_message_of_several_sources_costs_once():
    net = load_topology("star:4?bandwidth=1GB/s&latency=0s&sharp=true&message=5us")
    assert simulate(in_one_pass(net, sharing="ready-order", size=4000)).completion_s == pytest.approx(4 * 6e-6)
    assert verify(in_one_pass(net, size=4000)).ok


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_a_plan_file_keeps_all_sources(ending, tmp_path):
    path, plan = str(tmp_path / f"plan.{ending}"), in_one_pass(two_levels())
    write_plan(plan, path)
    again = read_plan(path)
    assert again.digest() == plan.digest()
    assert again.sources[1].tolist() == [0, 1, 2, 3]
    assert again.topology.reduces.tolist() == [False] * 4 + [True] * 3


def test_only_plans_with_several_sources_need_a_new_version(tmp_path):
    path, plan = str(tmp_path / "plan.json"), in_one_pass(two_levels())
    write_plan(plan, path)
    with open(path) as file:
        assert json.load(file)["version"] == 3
    write_plan(replace(plan, other_src=None), path)
    with open(path) as file:
        head = json.load(file)
    assert head["version"] == 1
    assert "other_src" not in head["transfers"][0]


def test_all_sources_are_part_of_the_digest_and_of_names():
    plan = in_one_pass(two_levels())
    assert replace(plan, other_src=None).digest() != plan.digest()
    assert plan.describe(0) == "transfer 0 (chunk 0: gpu0,gpu1,gpu2,gpu3→gpu0,gpu1,gpu2,gpu3)"


def test_a_transfer_on_a_plane_has_one_source():
    net = load_topology("optical:4,1")
    plan = in_one_pass(two_levels())
    with pytest.raises(InputError, match="a plane has no switch that sums"):
        make_plan(
            net, replace(plan.workload), "ready-order", chunk=[0], src=[0], other_src=Ragged.of([[1]]),
            dst=Ragged.of([[2]]), route=Ragged.empty(1), depends=Ragged.empty(1), plane=[0],
        )  # fmt: skip


def test_only_a_switch_can_reduce():
    for kind in (ACCELERATOR, ROUTER):
        with pytest.raises(InputError, match="cannot reduce: only a switch"):
            make_topology("t", [ACCELERATOR, ACCELERATOR, kind], [(0, 1, 1e9, 0)], reduces=[False, False, True])
    data = two_levels().to_json()
    data["nodes"][0]["reduces"] = True
    with pytest.raises(InputError, match="'gpu0' cannot reduce"):
        topology_from_json(data, "a file")


def test_a_topology_file_keeps_who_reduces():
    net = two_levels(reduces=[False] * 5 + [True, False])
    assert topology_from_json(net.to_json(), None).reduces.tolist() == net.reduces.tolist()


@pytest.mark.parametrize(
    ("spec", "summing"),
    [("star:4?sharp=true", 1), ("fattree:4?sharp=true", 20), ("fattree:4?sharp=sites", 16), ("dgx2:4?sharp=sites", 4),
     ("dgx2:4?sharp=true", 12), ("dgx2:4?sharp=false", 0), ("dgx2:4", 0)],
)  # fmt: skip
def test_a_spec_says_which_switches_sum(spec, summing):
    assert load_topology(spec).reduces.sum() == summing


@pytest.mark.parametrize("spec", ["ring:4?sharp=true", "star:4?sharp=sites", "star:4?sharp=true&switches=store"])
def test_a_spec_without_a_switch_that_could_sum_is_refused(spec):
    with pytest.raises(InputError, match="that could sum"):
        load_topology(spec)


def test_what_several_ranks_send_is_listed_in_tables_and_traces(tmp_path):
    line = simulate(in_one_pass(two_levels()))
    table.write(line, str(tmp_path / "plan.csv"))
    with open(tmp_path / "plan.csv", newline="") as file:
        assert next(csv.DictReader(file))["src"] == "gpu0 gpu1 gpu2 gpu3"
    path = tmp_path / "trace.json"
    trace.write(line, str(path))
    events = json.loads(path.read_text())["traceEvents"]
    assert any(event.get("args", {}).get("sources") == ["gpu0", "gpu1", "gpu2", "gpu3"] for event in events)


@pytest.mark.parametrize("name", ["msccl", "mscclpp", "chakra"])
def test_a_format_of_steps_of_ranks_refuses_sums_in_switches_by_name(name, tmp_path):
    with pytest.raises(Unsupported, match="has switches that sum, which steps cannot say"):
        exporters()[name].write(simulate(in_one_pass(two_levels())), str(tmp_path / "x"))
    assert not list(tmp_path.iterdir())


def test_the_chain_of_causes_passes_through_every_source():
    spent = critical_path(simulate(in_two_steps()))
    assert spent["complete"]
    assert spent["idle"] == pytest.approx(0.0)


def test_the_page_shows_all_sources_and_which_switches_sum():
    line = simulate(in_one_pass(two_levels(), parts=1))
    data = page_data(line, bounds(line.plan.topology, line.plan.workload))
    assert data["sums"] == line.plan.topology.reduces.tolist()
    hops = unpack_columns(data["hops"])
    assert hops["source"].tolist() == [0, 1, 2, 3]
    assert len(hops["link"]) == len(line.plan.route.values)
