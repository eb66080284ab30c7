"""Counted work: what a budget allows, and that its parts spend on it."""

from __future__ import annotations

import math

import pytest

from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, Unsupported
from stretto.model.stop import Stop
from stretto.planners import run_planner
from stretto.schedule.effort import EFFORTS, Budget, steps_of
from stretto.topologies import load_topology


def test_a_budget_allows_work_until_it_is_spent():
    budget = Budget(100.0, {"match": 10.0, "order": 1.0})
    assert budget.allows(match=10)
    assert not budget.allows(match=10, order=1)
    budget.spend(match=9)
    assert (budget.left, budget.units("order")) == (10.0, 10.0)
    assert not budget.exhausted
    budget.spend(order=11)
    assert budget.exhausted


def test_a_part_of_a_budget_spends_on_the_whole():
    whole = Budget(100.0)
    half = whole.share(0.5)
    work = half.with_costs({"match": 10.0})
    work.spend(match=3)
    assert (work.left, half.left, whole.left) == (20.0, 20.0, 70.0)


def test_work_that_is_done_all_the_same_may_take_more_than_is_left():
    whole = Budget(100.0)
    whole.charge(90.0)
    part = whole.at_least(50.0)
    part.charge(30.0)
    assert (part.left, whole.left, whole.spent, part.most) == (20.0, 0.0, 120.0, 100.0)


def test_nothing_is_left_once_the_net_has_fired():
    budget = Budget(100.0, {"match": 1.0}, Stop(0.0))
    assert budget.left == budget.at_least(50.0).left == 0.0
    assert not budget.allows(match=1)
    assert budget.stop.used


def test_thorough_has_no_end():
    budget = Budget(steps_of("thorough"), {"match": 1.0})
    assert budget.allows(match=1e300)
    assert math.isinf(budget.share(0.1).left)


def test_an_unknown_effort_names_the_levels():
    with pytest.raises(InputError, match=", ".join(EFFORTS)):
        steps_of("hard")


def test_a_number_is_an_effort_of_about_so_many_seconds():
    assert steps_of("0.2") == EFFORTS["quick"]
    assert steps_of("15", collectives=2) == 30e6


@pytest.mark.parametrize("effort", ["0", "-1", "inf", "nan", "1 s"])
def test_an_effort_that_is_no_positive_number_is_refused(effort):
    with pytest.raises(InputError, match="numbers above 0"):
        steps_of(effort)


def test_a_limit_that_a_solver_took_counts_as_used_once_it_is_over():
    stop = Stop(0.0)
    assert not stop.used
    assert stop.limit_s == 0.0
    assert stop.used


@pytest.mark.parametrize("planner", ["greedy", "scale-ccl", "taccl", "teccl"])
def test_a_plan_is_refused_before_the_work_if_the_least_work_is_far_above_the_effort(planner, monkeypatch):
    monkeypatch.setattr("stretto.schedule.effort.REQUIRED_TIMES", 1e-6)
    net = load_topology("torus:3x3")
    kind = "allgather" if planner == "teccl" else "alltoall"
    work = Workload((make_collective(kind, net, 9 * 10**6),))
    with pytest.raises(Unsupported, match=r"on torus:3x3 would take about .* s of CPU, and this effort is for 0 s"):
        run_planner(planner, net, work, effort="normal")
