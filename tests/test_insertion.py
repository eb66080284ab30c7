"""A single plan whose transfers are moved into gaps of the links that they share."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.plan import make_plan
from stretto.schedule.effort import Budget
from stretto.schedule.insertion import in_gaps
from stretto.topologies import load_topology
from stretto.verify import verify


def two_sends(second_start_s):
    """Rank 0 of a star sends two chunks of a second each to rank 1, the second one from a given moment on."""
    net = load_topology("star:2?bandwidth=1KB/s&latency=0us&message=0us")
    work = Workload((make_collective("broadcast", net, 2_000, chunks=2),))
    start = np.array([0.0, second_start_s])
    return make_plan(
        net, work, "timed", chunk=[0, 1], src=[0, 0], dst=Ragged.of([[1], [1]]), route=Ragged.of([[0, 3]] * 2),
        depends=Ragged.empty(2), start_s=start, finish_s=start + 1.0,
    )  # fmt: skip


def test_a_transfer_moves_into_the_first_gap():
    plan = in_gaps(two_sends(3.0), Budget())
    assert verify(plan).ok
    assert plan.start_s.tolist() == pytest.approx([0.0, 1.0])


def test_a_plan_without_gaps_and_one_without_effort_stay():
    tight, loose = two_sends(1.0), two_sends(3.0)
    assert in_gaps(tight, Budget()) is tight
    assert in_gaps(loose, Budget(steps=1.0)) is loose
