"""A paced transfer keeps its rate by a token bucket, and makes up for what it is late."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from networks import ring
from stretto.lower import lower
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload
from stretto.model.demand import alltoallv
from stretto.model.plan import make_plan
from stretto.runtime.pacing import CATCH_UP, HEADERS, LEAST_SEGMENT, SEGMENT_S, Outgoing, Queue, largest_rate
from stretto.runtime.wire import SEGMENT_BYTES

RATE = 1_000_000.0


def transfer(row: int, size: int = 1 << 20, start: float = 0.0, priority: float = 0.0, rate: float = RATE) -> Outgoing:
    return Outgoing(row, memoryview(bytes(size)), rate, priority, start)


def queue_of(*transfers: Outgoing, take_turns: bool = False) -> Queue:
    queue = Queue(take_turns)
    for out in transfers:
        queue.add(out)
    return queue


def rows(queue: Queue, now: float = 0.0) -> list[int]:
    """The rows whose segments may go now, in order."""
    return [found[0].row for found in iter(lambda: queue.next(now), None)]


def test_a_bucket_says_when_the_next_piece_may_go():
    queue = queue_of(transfer(0, 300_000))
    now, sent, gaps = 0.0, 0, 0
    while True:
        while found := queue.next(now):
            sent += len(found[1])
            assert sent <= RATE * (now + SEGMENT_S)
        if queue.wake_at == math.inf:
            break
        now, gaps = queue.wake_at, gaps + 1
    assert sent == 300_000 and 29 <= gaps <= 31


@pytest.mark.parametrize("late_s", [0.0, 0.05, 0.2])
def test_a_late_transfer_sends_at_once_what_it_should_have_sent_by_now(late_s):
    queue = queue_of(transfer(0, 150_000, start=1.0))
    sent = sum(len(found[1]) for found in iter(lambda: queue.next(1.0 + late_s), None))
    assert min(150_000, RATE * late_s) <= sent <= min(150_000, RATE * (late_s + SEGMENT_S))


def test_of_two_transfers_the_one_that_is_more_behind_goes_first():
    queue = queue_of(transfer(0, 30_000, start=0.04), transfer(1, 30_000, start=0.0))
    assert rows(queue, 1.0) == [1, 1, 1, 1, 0, 0, 0, 0]


def test_a_slow_transfer_does_not_send_crumbs():
    found = queue_of(transfer(0, rate=1000.0)).next(0.0)
    assert found is not None and len(found[1]) == LEAST_SEGMENT


def test_an_unpaced_transfer_goes_as_fast_as_it_can_before_those_that_came_later():
    queue = queue_of(*(transfer(row, 2 * SEGMENT_BYTES, rate=math.inf) for row in (3, 1)))
    assert rows(queue) == [3, 3, 1, 1]


def test_transfers_take_turns_where_links_are_shared_fairly():
    queue = queue_of(*(transfer(row, 2 * SEGMENT_BYTES, rate=math.inf) for row in (3, 1)), take_turns=True)
    assert rows(queue) == [3, 1, 3, 1]


def test_the_highest_priority_goes_first():
    low, high = transfer(0, 4, priority=1.0, rate=math.inf), transfer(1, 4, priority=2.0, rate=math.inf)
    assert rows(queue_of(low, high)) == [1, 0]


def test_an_empty_transfer_goes_once():
    assert rows(queue_of(transfer(0, 0), transfer(1, 0, rate=math.inf))) == [0, 1]


@pytest.mark.parametrize(
    ("starts", "ends", "limit"),
    [
        ([0, 1], [4, 5], CATCH_UP * 0.5),  # two at a quarter of the link, which overlap
        ([0, 4], [4, 8], CATCH_UP * 0.25),  # one after the other
        ([0, 0], [1, 4], HEADERS),  # together more than the link, for a moment
    ],
)
def test_the_kernel_lets_a_connection_send_little_more_than_the_plan_asks_for(starts, ends, limit):
    net = ring(2, bandwidth=RATE)
    work = Workload((alltoallv(net, [[0, 2_000_000], [0, 0]], chunks=2),))
    plan = make_plan(
        net, work, "timed", chunk=[0, 1], src=[0, 0], op=[0, 0], dst=Ragged.single([1, 1]), route=Ragged.of([[0], [0]]),
        depends=Ragged.of([[], []]), start_s=starts, finish_s=ends,
    )  # fmt: skip
    assert largest_rate([*lower(plan)[0].steps.sends.values()], timed=True) == pytest.approx(limit * RATE)
    assert largest_rate([], timed=True) == math.inf
    untimed = replace(plan, sharing="ready-order", start_s=None, finish_s=None)
    assert largest_rate([*lower(untimed)[0].steps.sends.values()], timed=False) == math.inf
