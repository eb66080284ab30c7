"""Switches that sum, as processes: a transfer from several sources in steps, and its bytes."""

from __future__ import annotations

import numpy as np
import pytest

from joins import in_one_pass, in_two_steps, two_levels
from stretto.lower import lower, played
from stretto.model.collective import Workload, make_collective
from stretto.model.plan import COPY, REDUCE
from stretto.planners import run_planner
from stretto.runtime.local import run_local
from stretto.topologies import load_topology


def test_a_plan_without_sums_in_switches_is_played_as_it_is():
    net = load_topology("ring:4")
    plan = run_planner("ring", net, Workload((make_collective("allreduce", net, 1000),)))
    assert played(plan).plan is plan


def test_what_meets_at_a_switch_is_received_there_added_up_and_sent_on():
    plan = in_one_pass(two_levels(), parts=2)
    steps = played(plan)
    first = steps.plan
    sent = [(int(first.src[k]), first.dst[k].tolist(), int(first.op[k])) for k in range(7)]
    assert sorted(sent[:6]) == [(v, [leaf], REDUCE) for v, leaf in ((0, 4), (1, 4), (2, 5), (3, 5), (4, 6), (5, 6))]
    assert sent[6] == (6, [0, 1, 2, 3], COPY)
    assert steps.first.tolist() == [0, 7]
    assert steps.last.tolist() == [6, 13]
    assert set(lower(plan)) == set(range(7))


def test_a_step_waits_for_what_comes_to_its_source():
    steps = played(in_two_steps())
    # node 1 waits for what node 0 adds to it; nodes 2 and 3 wait for nothing
    waits = {int(steps.plan.src[k]): steps.plan.depends[k].tolist() for k in range(1, 4)}
    assert waits[1] == [0]
    assert waits[2] == waits[3] == []


@pytest.mark.parametrize("pace", [None, 1.0])
@pytest.mark.parametrize("plan", [in_one_pass(two_levels()), in_two_steps()], ids=["one pass", "two steps"])
def test_every_byte_is_right_where_switches_sum(plan, pace):
    outcome = run_local(plan, pace=pace)
    assert outcome.wrong == []
    assert len(outcome.traces) >= 6


def test_the_bytes_of_a_forest_through_switches_that_sum_are_right():
    net = load_topology("dgx2:2?sharp=true")
    ranks = net.accelerators[np.r_[0:4, 16:20]].tolist()
    workload = Workload((make_collective("allreduce", net, 8000, ranks=ranks),))
    plan = run_planner("forest", net, workload, effort="quick")
    assert plan.other_src is not None
    assert run_local(plan).wrong == []
