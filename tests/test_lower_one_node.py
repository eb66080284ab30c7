"""The program of one node is the one that the whole plan gives it, also where a plan by symmetry is not expanded."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from stretto.lower import Program, lower, lower_for
from stretto.model.collective import Workload, make_collective
from stretto.model.symmetric import SymmetricPlan
from stretto.planners import run_planner
from stretto.runtime.local import run_local
from stretto.topologies import load_topology
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
