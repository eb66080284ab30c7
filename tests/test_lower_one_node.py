"""The program of one node is the one that the whole plan gives it, also where a plan by symmetry is not expanded."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from stretto.lower import Program, lower, lower_for
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.plan import COPY
from stretto.model.symmetric import SymmetricPlan, make_symmetric_plan
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.planners import run_planner
from stretto.runtime.local import run_local
from stretto.topologies import load_topology
from symmetric_networks import group
from symmetric_plans import examples

EXAMPLES = examples(0) | {f"{name}, again": plan for name, plan in examples(1).items()}


def differences(a, b, where: str = "") -> list[str]:
    """The columns in which two programs, or parts of programs, differ."""
    found = []
    for f in fields(a):
        x, y = getattr(a, f.name), getattr(b, f.name)
        if hasattr(x, "__dataclass_fields__"):
            found += [] if f.name == "plan" else differences(x, y, f"{where}{f.name}.")
        elif f.name != "plan":
            pairs = zip(x, y, strict=True) if isinstance(x, tuple) else [(x, y)]
            if not all(np.array_equal(p, q) for p, q in pairs):
                found.append(where + f.name)
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_as_in_the_expanded_plan(name):
    plan = EXAMPLES[name]
    programs = lower(plan.expand())
    for node, program in programs.items():
        ours = lower_for(plan, node)
        assert differences(ours, program) == []
        for k in program.sends.row.tolist():
            assert ours.describe(k) == program.describe(k)


@pytest.mark.parametrize("name", EXAMPLES)
def test_all_programs_of_a_plan_by_symmetry_are_those_of_the_expanded_plan(name):
    plan = EXAMPLES[name]
    ours, expanded = lower(plan), lower(plan.expand())
    assert list(ours) == list(expanded)
    assert [differences(ours[v], expanded[v]) for v in ours] == [[]] * len(ours)


@pytest.mark.parametrize(
    ("spec", "kind", "planner"),
    [
        ("torus:3x3", "allreduce", "ring"),
        ("ndv2:2", "allgather", "forest"),
        ("optical:4,2", "allreduce", "swot"),
        ("zoo:Abilene", "allreduce", "tcp-fair"),
        ("zoo:Abilene", "allreduce", "ring+barrier-aware"),
        ("zoo:Abilene", "allreduce", "ring+weight-alloc"),
        ("star:4?sharp=true", "allreduce", "forest"),
    ],
)
def test_the_program_of_one_node_is_that_of_all_programs(spec, kind, planner):
    net = load_topology(spec)
    plan = run_planner(planner, net, Workload((make_collective(kind, net, 72_000),)), effort="quick")
    programs = lower(plan)
    assert [differences(lower_for(plan, v), programs[v]) for v in programs] == [[]] * len(programs)


@pytest.mark.parametrize("name", ["allreduce on rails", "alltoall on mesh", "allgather with a rank that stays"])
def test_interpreted_and_compiled_kernels_give_one_program(name, monkeypatch):
    found = []
    for mode in ("python", "compiled"):
        monkeypatch.setenv("STRETTO_KERNELS", mode)
        found.append(lower(EXAMPLES[name].expand()))
    assert [differences(found[0][v], found[1][v]) for v in found[0]] == [[]] * len(found[0])


def test_a_node_that_takes_no_part():
    plan = EXAMPLES["allgather on rails"]
    for each in (plan, plan.expand()):
        with pytest.raises(KeyError):
            lower_for(each, plan.topology.node_count - 1)


def test_a_plan_by_symmetry_is_not_expanded(monkeypatch):
    plan = EXAMPLES["allreduce on rails"]
    expected = lower(plan.expand())[1]

    def expand(plan):
        raise AssertionError("the plan is expanded")

    monkeypatch.setattr(SymmetricPlan, "expand", expand)
    fresh = SymmetricPlan(plan.part, plan.orbits, plan.meta)
    ours = lower_for(fresh, 1)
    assert differences(ours, expected) == []
    assert ours.steps.sends.keys() == set(ours.sends.row.tolist())
    assert isinstance(ours, Program)


def test_a_plan_by_symmetry_is_run_without_being_expanded():
    plan = EXAMPLES["allreduce on rails"]
    fresh = SymmetricPlan(plan.part, plan.orbits, plan.meta)
    outcome = run_local(fresh)
    assert (len(outcome.traces), outcome.wrong) == (6, [])
    assert "expanded" not in vars(fresh)


def two_switches(start_s: float) -> SymmetricPlan:
    """An AllGather among four accelerators under two switches.

    The first chunk of each rank goes to the next rank over both switches in turn; the second goes to all over one
    switch at once, after the first has come elsewhere, and once more.
    """
    links = [(a, b, 1e9, 1e-6) for v in range(4) for s in (4, 5) for a, b in ((v, s), (s, v))]
    topology = make_topology("two switches", [ACCELERATOR] * 4 + [SWITCH] * 2, links)
    symmetry = group(topology, lambda v: v if v > 3 else (v + 1) % 4, orders=[4])
    collective = replace(make_collective("allgather", topology, 8000, chunks=2), start_s=start_s)
    paths = [[0, 4, 1], [0, 5, 1], [0, 4, 1], [0, 5, 1, 2, 3], [1, 5, 2], [1, 4, 2], [1, 4, 3]]
    routes = []
    for first, switch, *ends in paths:
        routes.append([*symmetry.links_between([first], [switch]), *symmetry.links_between([switch] * len(ends), ends)])
    start = np.arange(len(paths)) * 1e-5
    return make_symmetric_plan(
        symmetry, Workload((collective,)), owner=[[0], [0]], position=[0, 1], meta={"planner": "test"},
        chunk=[0, 0, 0, 1, 0, 0, 1], src=[path[0] for path in paths], op=[COPY] * len(paths),
        dst=Ragged.of([path[2:] for path in paths]), route=Ragged.of(routes),
        depends=Ragged.of([[], [], [0], [1], [0], [1, 2, 4], [3, 5]]), start_s=start, finish_s=start + 1e-6,
    )  # fmt: skip


@pytest.mark.parametrize("start_s", [0.0, 2.5e-5])
def test_routes_between_two_nodes_are_numbered_and_multicasts_and_waits_elsewhere_kept(start_s):
    plan = two_switches(start_s)
    programs = lower(plan.expand())
    flows = {flow for program in programs.values() for flow in program.sends.subflow.tolist()}
    assert flows == {0, 1}
    assert [differences(lower_for(plan, v), programs[v]) for v in programs] == [[]] * len(programs)
    assert [differences(program, programs[v]) for v, program in lower(plan).items()] == [[]] * len(programs)
