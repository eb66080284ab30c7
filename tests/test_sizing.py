"""Sizes of chunks by a linear program."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stretto.model.arrays import Ragged
from stretto.model.chunks import cut
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.plan import make_plan
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.planners import run_planner
from stretto.schedule.best import completion_s
from stretto.schedule.effort import Budget
from stretto.schedule.insertion import timed_plan
from stretto.schedule.moments import ends
from stretto.schedule.sizing import _Course, _on_link, sized
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


def in_messages(message):
    """Broadcast of three equal chunks over two hops, of which the second is four times as fast, in some messages."""
    links = [(0, 1, 1e9, 0.0), (1, 2, 4e9, 0.0)]
    net = make_topology("two hops", [ACCELERATOR] * 3, links, message_s=[0.0] * 2)
    return make_plan(
        net, Workload((cut(make_collective("broadcast", net, 900_000), 3),)), "ready-order",
        chunk=[0, 1, 2, 0, 1, 2], src=[0, 0, 0, 1, 1, 1], dst=Ragged.single([1, 1, 1, 2, 2, 2]),
        route=Ragged.single([0, 0, 0, 1, 1, 1]), depends=Ragged.of([[], [], [], [0], [1], [2]]), message=message,
    )  # fmt: skip


def test_chunks_of_a_message_get_bytes_together():
    plan = in_messages([0, 0, 1, 2, 2, 3])
    new = sized(plan, Budget())
    sizes = new.workload.collectives[0].chunk_bytes
    # the first message is four times as large as the second one, however its bytes are divided among its chunks
    assert sizes[0] + sizes[1] == pytest.approx(720_000, rel=1e-4)
    assert completion_s(plan) == pytest.approx(0.975e-3)
    assert completion_s(new) == simulate(new).completion_s == pytest.approx(0.945e-3, rel=1e-4)
    assert verify(new).ok
    alone = sized(in_messages(None), Budget())
    assert completion_s(alone) < completion_s(new), "a third message leaves less to pass on"


def test_messages_follow_each_other_on_a_link_exactly_as_before():
    rng = np.random.default_rng(7)
    for _ in range(200):
        count = int(rng.integers(2, 12))
        begin_s = np.sort(rng.integers(0, 12, count)).astype(np.float64)
        end_s = begin_s + rng.integers(1, 6, count)
        used = np.ones(count)
        most = max(int(((begin_s <= at) & (end_s > at)).sum()) for at in begin_s)
        share, (before, after) = _on_link(begin_s, end_s, used / most, 1e-9)
        follows = np.eye(max(count, int(after.max(initial=0)) + 1), dtype=bool)
        follows[before, after] = True
        for k in range(len(follows)):  # what follows what, through others and through moments
            follows |= follows[:, [k]] & follows[[k], :]
        np.fill_diagonal(follows, False)
        assert (follows[:count, :count] == (end_s[:, None] <= begin_s)).all()
        # no more than the link is used by any that may meet: such intervals have a moment in common
        for at in begin_s:
            assert share[(begin_s <= at) & (end_s > at)].sum() <= 1 + 1e-12


def test_what_comes_to_a_link_late_is_followed_late():
    """Chunk 0 goes by a long link and a short one to node 3, and chunk 1 by node 1 and behind it over that short one."""
    links = [(0, 1, 4e9, 0.0), (0, 2, 1e9, 1e-3), (1, 2, 1e9, 0.0), (2, 3, 1e9, 0.0)]
    kinds = [ACCELERATOR, ACCELERATOR, SWITCH, ACCELERATOR]
    net = make_topology("late", kinds, links, replicates=[False] * 4, message_s=[0.0] * 4)
    plan = make_plan(
        net, Workload((cut(make_collective("broadcast", net, 1_000_000), 2),)), "ready-order",
        chunk=[1, 0, 0, 1], src=[0, 0, 0, 1], dst=Ragged.single([1, 1, 3, 3]),
        route=Ragged.of([[0], [0], [1, 3], [2, 3]]), depends=Ragged.of([[], [], [], [0]]),
    )  # fmt: skip
    plan = timed_plan(plan)
    start_s = plan.start_s.copy()
    start_s[3] = plan.finish_s[2] + 1e-3  # behind chunk 0
    plan = replace(plan, start_s=start_s, finish_s=ends(start_s, plan.finish_s - plan.start_s))
    assert verify(plan).ok
    new = sized(plan, Budget(), 1.1)
    # whichever is sent first, a megabyte enters node 3, a millisecond late
    assert completion_s(new) == pytest.approx(2e-3, rel=1e-4)
    course = _Course.of(new)
    assert course.starts(new.finish_s - new.start_s) == pytest.approx(new.start_s, rel=1e-6)
    assert new.start_s[3] == pytest.approx(new.finish_s[2] + 1e-3, rel=1e-6)


@pytest.mark.parametrize("spec", ["dgx1?message=20us", "hypercube:3?message=2us", "sites:2,4?message=20us"])
@pytest.mark.parametrize("kind", ["allreduce", "allgather", "alltoall", "broadcast"])
@pytest.mark.parametrize("planner", ["rounds", "forest", "hierarchical", "greedy"])
def test_plans_stay_right_and_end_no_later(spec, kind, planner):
    net = load_topology(spec)
    work = Workload((make_collective(kind, net, 16_000_000),))
    try:
        plan = run_planner(planner, net, work, effort="quick")
    except Unsupported:
        pytest.skip("not served")
    new = sized(plan, Budget(1e6))
    assert verify(new).ok
    if new is not plan:  # it is known when messages start
        course = _Course.of(new)
        seconds = (new.finish_s - new.start_s)[np.unique(course.message, return_index=True)[1]]
        assert new.start_s == pytest.approx(course.starts(seconds)[course.message], abs=1e-9 * completion_s(new))
    assert completion_s(new) == pytest.approx(simulate(new).completion_s, rel=1e-12)
    assert completion_s(new) <= completion_s(plan)


def test_plans_that_begin_late_or_have_barriers_or_too_little_effort_stay_as_they_are(two_hops):
    (c,) = two_hops.workload.collectives
    late = replace(
        two_hops, workload=Workload((replace(c, start_s=1e-3),)), start_s=two_hops.start_s + 1e-3,
        finish_s=two_hops.finish_s + 1e-3,
    )  # fmt: skip
    assert sized(late, Budget()) is late
    barred = replace(two_hops, barriers=True)
    assert sized(barred, Budget()) is barred
    assert sized(two_hops, Budget(100.0)) is two_hops
