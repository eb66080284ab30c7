"""Collectives one after another on optical planes: turns between them, and the bytes of all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.planners import run_planner
from stretto.schedule.successive import one_after_another
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

KINDS = ("allreduce", "alltoall", "allgather")


def planned(spec, *sizes, starts=(0.0, 0.0, 0.0)):
    """(the collectives, their plans alone, these in turn)."""
    topology = load_topology(spec)
    work = Workload(tuple(
        make_collective(kind, topology, size, start_s=at) for kind, size, at in zip(KINDS, sizes, starts, strict=False)
    ))  # fmt: skip
    alone = [run_planner("auto", topology, Workload((replace(c, start_s=0.0),))) for c in work.collectives]
    return topology, alone, one_after_another(topology, work, alone)


@pytest.mark.parametrize(
    "spec",
    [
        "optical:4,2",  # joins nothing at first
        "optical:4,2?initial=shift1&reconfiguration=100us",
        "optical:4,1?reconfiguration=1ms",
        "optical:6,2?initial=shift1",
    ],
)
def test_plans_in_turn_are_correct_and_each_takes_what_it_takes_alone(spec):
    topology, alone, plan = planned(spec, 4_000_000, 600_000, 600_000)
    assert verify(plan).ok
    line = simulate(plan)
    assert line.start_s == pytest.approx(plan.start_s) and line.finish_s == pytest.approx(plan.finish_s)
    alone_s = [float(simulate(each).completions_s[0]) for each in alone]
    ends_s = np.sort(line.completions_s)
    spans_s = np.diff(ends_s, prepend=0.0) - np.sort(alone_s)
    longest_s = max(plane.reconfiguration_s for plane in topology.planes)
    assert (spans_s > -1e-12).all() and (spans_s < longest_s + 1e-12).all()
    assert np.argsort(line.completions_s).tolist() == np.argsort(alone_s, kind="stable").tolist()  # the shortest first


def test_a_plane_that_is_left_as_the_next_plan_wants_it_does_not_turn():
    topology = load_topology("optical:4,2")
    work = Workload((make_collective("allgather", topology, 600_000),) * 2)
    alone = run_planner("auto", topology, Workload(work.collectives[:1]))
    assert alone.turns.count
    plan = one_after_another(topology, work, [alone, alone])
    assert verify(plan).ok
    firsts = [int(np.flatnonzero(plan.turns.plane == p)[0]) for p in np.unique(plan.turns.plane)]
    assert plan.turns.count <= 2 * alone.turns.count
    assert all((plan.turns.start_s[t] == 0.0) for t in firsts)


def test_plans_of_which_one_alone_has_barriers_are_correct_in_turn():
    _, alone, plan = planned("optical:4,4", 4_000_000, 1_000_000)
    assert {each.barriers for each in alone} == {True, False}
    assert verify(plan).ok


def test_a_collective_that_starts_later_is_waited_for():
    _, _, plan = planned("optical:4,2", 4_000_000, 600_000, 600_000, starts=(0.5, 0.0, 0.0))
    assert verify(plan).ok and plan.start_s[plan.workload.chunk_collective[plan.chunk] == 0].min() >= 0.5


def test_plans_that_are_not_timed_are_refused():
    topology, alone, _ = planned("optical:4,2", 600_000, 600_000)
    steps = run_planner("ring", topology, alone[0].workload)
    with pytest.raises(Unsupported, match="follow one another where all are timed"):
        one_after_another(topology, Workload(alone[0].workload.collectives * 2), [alone[0], steps])
