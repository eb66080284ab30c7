"""Sizes of chunks by a linear program."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stretto.model.arrays import Ragged
from stretto.model.chunks import cut
from stretto.model.collective import Workload, make_collective
from stretto.model.plan import make_plan
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.planners import run_planner
from stretto.schedule.best import completion_s
from stretto.schedule.effort import Budget
from stretto.schedule.moments import ends
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


def test_routes_keep_their_shares_of_a_link():
    """The halves of a piece go side by side to two nodes, which pass them on to each other: one slowly, one fast."""
    links = [(0, 1, 1e9, 0.0), (1, 2, 1e9, 0.0), (1, 3, 1e9, 0.0), (2, 3, 1e9, 0.0), (3, 2, 8e9, 0.0)]
    kinds = [ACCELERATOR, SWITCH, ACCELERATOR, ACCELERATOR]
    net = make_topology("fork", kinds, links, replicates=[False] * 4, message_s=[0.0] * 5)
    start_s, seconds = np.array([0.0, 0.0, 1e-3, 1e-3]), np.array([1e-3, 1e-3, 0.5e-3, 0.5e-3 / 8])
    plan = make_plan(
        net, Workload((cut(make_collective("broadcast", net, 1_000_000), 2),)), "timed",
        chunk=[0, 1, 0, 1], src=[0, 0, 2, 3], dst=Ragged.of([[2], [3], [3], [2]]),
        route=Ragged.of([[0, 1], [0, 2], [3], [4]]), depends=Ragged.of([[], [], [0], [1]]),
        start_s=start_s, finish_s=ends(start_s, seconds),
    )  # fmt: skip
    assert verify(plan).ok
    new = sized(plan, Budget())
    # with half of the link each, a of the piece takes 2 a and a ms, b takes 2 b and b / 8
    assert new.workload.collectives[0].chunk_bytes[0] == pytest.approx(1e6 * 2.125 / 5.125, rel=1e-4)
    assert completion_s(plan) == pytest.approx(1.5e-3)
    assert completion_s(new) == simulate(new).completion_s == pytest.approx(3e-3 * 2.125 / 5.125, rel=1e-4)
    assert verify(new).ok
