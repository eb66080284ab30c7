"""Plans on optical planes of their own in one plan, and the part of each of them."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.part_plans import part_of
from stretto.planners import run_planner
from stretto.schedule.joining import on_all_planes, on_planes
from stretto.schedule.side_by_side import side_by_side
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

OWN = {"allreduce": [0, 2], "alltoall": [1]}


def joined(spec):
    """(network, the plan of each kind on its planes, all in one)."""
    topology = load_topology(spec)
    plans = []
    for kind, planes in OWN.items():
        numbers = np.array(planes, dtype=np.int32)
        part = on_planes(topology, numbers)
        plan = run_planner("swot", part, Workload((make_collective(kind, part, 600_000),)))
        plans.append(on_all_planes(plan, topology, numbers))
    return topology, plans, side_by_side(topology, plans)


@pytest.mark.parametrize("spec", ["optical:4,3", "optical:4,3?initial=shift1&reconfiguration=100us"])
def test_each_takes_what_it_takes_alone_and_its_part_is_the_plan_that_it_was(spec):
    _, plans, plan = joined(spec)
    assert verify(plan).ok and plan.turns.count == sum(each.turns.count for each in plans) > 0
    assert simulate(plan).completions_s == pytest.approx([simulate(each).completion_s for each in plans])
    for number, alone in enumerate(plans):
        part = part_of(plan, [number])
        assert verify(part).ok and {*part.plane.tolist()} == {*alone.plane.tolist()}
        assert simulate(part).completion_s == pytest.approx(simulate(alone).completion_s)
        for name in ("chunk", "src", "op", "plane", "start_s", "finish_s"):
            assert np.array_equal(getattr(part, name), getattr(alone, name)), name
        for name in ("plane", "before", "start_s"):
            assert np.array_equal(getattr(part.turns, name), getattr(alone.turns, name)), name
        assert np.array_equal(part.turns.matching.values, alone.turns.matching.values)


def test_plans_that_share_a_plane_are_found_by_the_verifier_and_cannot_be_parted():
    topology, plans, _ = joined("optical:4,3")
    plan = side_by_side(topology, [plans[0], plans[0]])
    assert not verify(plan).ok
    with pytest.raises(Unsupported, match="serve all collectives on it, which cannot be parted"):
        part_of(plan, [0])


def test_plans_that_are_not_timed_are_refused():
    topology, plans, _ = joined("optical:4,3")
    steps = run_planner("ring", topology, plans[0].workload)
    with pytest.raises(Unsupported, match="joined where all are timed"):
        side_by_side(topology, [plans[0], steps])
