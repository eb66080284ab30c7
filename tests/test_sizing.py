"""Sizes of chunks by a linear program."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.schedule.best import completion_s
from stretto.schedule.effort import Budget
from stretto.schedule.sizing import sized
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


@pytest.fixture(scope="module")
def two_hops():
    """Broadcast of two equal chunks over a slow link and then one that is four times as fast."""
    net = load_topology("line:3?latency=0us&bandwidth=1GB/s")
    fast = (np.minimum(net.src, net.dst) == 1) & (np.maximum(net.src, net.dst) == 2)
    net = replace(net, bandwidth=np.where(fast, 4e9, 1e9))
    work = Workload((make_collective("broadcast", net, 1_000_000),))
    return run_planner("greedy", net, work, options={"parts": 2})


def test_the_last_chunk_is_a_quarter_of_the_first_where_the_next_hop_is_four_times_as_fast(two_hops):
    # with x of 1 ms over the slow link first, x/4 is passed on while 1 - x follows, and (1 - x)/4 behind that
    plan = sized(two_hops, Budget())
    sizes = plan.workload.collectives[0].chunk_bytes
    assert sorted(sizes.tolist()) == pytest.approx([200_000, 800_000], rel=1e-4)
    assert completion_s(two_hops) == pytest.approx(1.125e-3)
    assert completion_s(plan) == pytest.approx(1.05e-3, rel=1e-4)
    assert simulate(plan).completion_s == completion_s(plan)
    assert verify(plan).ok


def test_no_chunk_gets_sizes_where_no_effort_is_left(two_hops):
    assert sized(two_hops, Budget(0.0)) is two_hops
