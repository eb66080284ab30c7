"""Reroute chunk after chunk over messages that leave anyway, see :mod:`stretto.schedule.rerouting`.

What messages and transfers are: :mod:`stretto.schedule.kernel_courses`. Sums stay in their messages; copies are
rerouted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kernel_courses import (
    NEVER,
    Case,
    Course,
    Slots,
    Ways,
    duration_s,
    gap_s,
    list_by_links,
    next_message,
    put,
    ready_s,
    run,
    sort_by_start,
    take_out,
)

Bool = NDArray[np.bool_]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

AS_GOOD, BETTER = 1 + 1e-12, 1 - 1e-9
"""Times the least lateness, or the completion, up to which another one is as good, and up to which it is better."""

SLACK = 0.03
"""Share of the least lateness by which routes that are kept may make it worse, so that others find room."""

TOGETHER = 8
"""Chunks of a message that are taken out at once, at most."""

STALE = 2
"""Rounds in a row in which nothing gains, after which the search ends."""

PROBED = 0.3
"""Share of the steps after which the search ends if nothing has gained."""


class Labels(NamedTuple):
    """For each node, how a chunk comes to it first."""

    came_s: Float64
    cost_s: Float64
    message: Int64  # -1: a new one
    way: Int64
    start_s: Float64
    parent: Int64
    settled: Bool


class Kept(NamedTuple):
    """What a course was like, to return to it."""

    via: Int64
    way: Int64
    start_s: Float64
    order: Int64
    end_s: Float64
    came_s: Float64
    missing: Int64


def reroute(
    ways: Ways, case: Case, course: Course, count: int, waits: Float64, prices: Float64, rooms: Float64, rounds: int,
    work: float, enough_s: float,
) -> tuple[int, float, float]:  # fmt: skip
    """Reroute the copies of every chunk, round after round.

    Args:
        course: changed.
        count: messages at first.
        waits, prices: of the k-th kind of search, how long a message may wait for a chunk, and what a new message
            counts besides its time; both as multiples of what a message costs.
        rooms: for which share of its time a new message needs idle links; it puts off the messages after it.
        rounds: over all chunks, at most.
        work: steps of inner loops, about, after which the search ends.
        enough_s: a completion that is good enough.
    Returns:
        The messages at the end, the completion in seconds, and the steps taken.
    """
    chunks, nodes, most = len(case.size), len(ways.out_offsets) - 1, len(course.head)
    hops = 0
    for p in range(len(ways.src)):
        hops = max(hops, ways.offsets[p + 1] - ways.offsets[p])
    links = len(ways.per_byte)
    slots = Slots(
        np.zeros(len(ways.src) + 1, dtype=np.int64), np.zeros(most, dtype=np.int64),
        np.zeros(links + 1, dtype=np.int64), np.zeros(most * hops, dtype=np.int64),
        np.zeros(most * hops, dtype=np.int64), np.zeros(links),
    )  # fmt: skip
    # two sets of labels: the second one by ways to one receiver alone
    best, single = _labels(nodes), _labels(nodes)
    unused, spare = np.zeros(most, dtype=np.int64), 0
    for m in range(most - 1, -1, -1):
        if course.head[m] < 0:
            unused[spare] = m
            spare += 1
    scale_s = run(count, ways, case, course, slots.free_s, 1.0)[1]
    late, end_s = run(count, ways, case, course, slots.free_s, scale_s)
    least, first, best_count = late, late, count
    kept, before = _copied(course), _copied(course)
    turn, together = np.arange(chunks), np.zeros(TOGETHER, dtype=np.int64)
    drawn, spent, stale = 1, 0.0, 0
    for _ in range(rounds):
        drawn = _shuffle(turn, drawn)
        better = False
        for number in range(chunks + count):
            if spent > work or end_s <= enough_s or (spent > PROBED * work and least == first):
                break
            drawn = _next(drawn)
            if number < chunks:
                together[0], size = turn[number], 1
            else:
                size = _carried(course.order[(drawn >> 8) % count], nodes, case, course, together)
                if size < 2:
                    continue
            before_count = count
            _note(course, before)
            count = _take_chunks(together[:size], nodes, course, count, before.via)
            run(count, ways, case, course, slots.free_s, scale_s)
            drawn = _next(drawn)
            kind = (drawn >> 8) % len(waits)
            left, new, new_end_s = spare, NEVER, NEVER
            for c in together[:size]:
                list_by_links(count, ways, course, slots)
                spent += _spread(c, ways, case, course, slots, best, single, waits[kind], prices[kind], rooms[kind])
                left, count = _put_tree(c, nodes, ways, case, course, best, single, unused, left, count)
                if left < 0:
                    break
                sort_by_start(count, course)
                new, new_end_s = run(count, ways, case, course, slots.free_s, scale_s)
                spent += 6.0 * count + len(ways.src)
                if new >= NEVER:
                    break
            if left >= 0 and new <= least * (1 + SLACK):
                end_s, spare = new_end_s, left
                for m in before.order[:before_count]:
                    if course.head[m] < 0:
                        unused[spare] = m
                        spare += 1
                if new <= least * AS_GOOD:
                    better = better or new < least * BETTER
                    least, best_count = min(least, new), count
                    _keep(course, kept)
                continue
            count = before_count
            _put_back(together[:size], nodes, course, before)
        stale = 0 if better else stale + 1
        if stale == STALE or spent > work or end_s <= enough_s or (spent > PROBED * work and least == first):
            break
    _return_to(kept, course)
    return best_count, run(best_count, ways, case, course, slots.free_s, scale_s)[1], spent


def _next(drawn: int) -> int:
    """The number that is drawn after another one."""
    return (drawn * 1103515245 + 12345) % 2147483648


def _shuffle(turn: Int64, drawn: int) -> int:
    for i in range(len(turn) - 1, 0, -1):
        drawn = _next(drawn)
        j = (drawn >> 8) % (i + 1)
        turn[i], turn[j] = turn[j], turn[i]
    return drawn


def _take_chunks(chunks: Int64, nodes: int, course: Course, count: int, via: Int64) -> int:
    """Take all copies of some chunks out of their messages, and keep in ``via`` which these were.

    Returns:
        The messages that are left.
    """
    for c in chunks:
        for t in range(c * nodes, (c + 1) * nodes):
            via[t] = course.via[t]
            if via[t] >= 0:
                take_out(course, t)
    left = 0
    for k in range(count):
        if course.head[course.order[k]] >= 0:
            course.order[left] = course.order[k]
            left += 1
    return left


def _put_back(chunks: Int64, nodes: int, course: Course, before: Kept) -> None:
    """Put the copies of some chunks back into the messages in which they were, and these to where they were."""
    for c in chunks:
        for t in range(c * nodes, (c + 1) * nodes):
            if course.via[t] >= 0:
                take_out(course, t)
    for c in chunks:
        for t in range(c * nodes, (c + 1) * nodes):
            if before.via[t] >= 0:
                put(course, t, before.via[t])
    course.start_s[:], course.end_s[:], course.order[:] = before.start_s, before.end_s, before.order
    course.came_s[:], course.missing[:] = before.came_s, before.missing


def _copied(course: Course) -> Kept:
    return Kept(
        course.via.copy(), course.way.copy(), course.start_s.copy(), course.order.copy(), course.end_s.copy(),
        course.came_s.copy(), course.missing.copy(),
    )  # fmt: skip


def _note(course: Course, before: Kept) -> None:
    """Note when messages start and end, and when what they carry comes."""
    before.start_s[:], before.end_s[:], before.order[:] = course.start_s, course.end_s, course.order
    before.came_s[:], before.missing[:] = course.came_s, course.missing


def _keep(course: Course, kept: Kept) -> None:
    kept.via[:], kept.way[:], kept.start_s[:], kept.order[:] = course.via, course.way, course.start_s, course.order


def _return_to(kept: Kept, course: Course) -> None:
    course.via[:], course.way[:], course.start_s[:], course.order[:] = kept.via, kept.way, kept.start_s, kept.order
    course.head[:] = -1
    for t in range(len(course.via)):
        if course.via[t] >= 0:
            put(course, t, course.via[t])


def _carried(m: int, nodes: int, case: Case, course: Course, together: Int64) -> int:
    """The chunks of which a message carries copies, as many as there is room for."""
    count, t = 0, course.head[m]
    while t >= 0 and count < len(together):
        if t < len(case.source):
            c = t // nodes
            known = False
            for k in range(count):
                known = known or together[k] == c
            if not known:
                together[count] = c
                count += 1
        t = course.next[t]
    return count


def _labels(nodes: int) -> Labels:
    return Labels(
        np.zeros(nodes), np.zeros(nodes), np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64),
        np.zeros(nodes), np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.bool_),
    )  # fmt: skip


def _spread(
    c: int, ways: Ways, case: Case, course: Course, slots: Slots, best: Labels, single: Labels, wait: float,
    price: float, room: float,
) -> float:  # fmt: skip
    """Find how a chunk comes to all nodes that want it as early as possible, as the messages are.

    Returns:
        The steps taken, about.
    """
    nodes, steps, left = len(ways.out_offsets) - 1, 0.0, 0
    for v in range(nodes):
        best.settled[v], best.parent[v], single.parent[v] = False, -1, -1
        best.cost_s[v], single.cost_s[v] = NEVER, NEVER
        if case.source[c * nodes + v]:
            best.came_s[v] = best.cost_s[v] = ready_s(c * nodes + v, case, course)
        left += case.wanted[c * nodes + v]
    while left:
        u = -1
        for v in range(nodes):
            if not best.settled[v] and best.cost_s[v] < NEVER and (u < 0 or best.cost_s[v] < best.cost_s[u]):
                u = v
        if u < 0:
            break
        best.settled[u] = True
        left -= case.wanted[c * nodes + u]
        has_s = best.came_s[u]
        steps += nodes
        for i in range(ways.out_offsets[u], ways.out_offsets[u + 1]):
            p = ways.out[i]
            first, last = ways.goal_offsets[p], ways.goal_offsets[p + 1]
            lacking = True
            for g in range(first, last):
                v = ways.goals[g]
                lacking = lacking and not best.settled[v] and not case.source[c * nodes + v]
            if not lacking:
                continue
            steps += 10.0
            cost_s = ways.message_s[ways.links[ways.offsets[p]]]
            takes_s = duration_s(p, case.size[c], ways)
            m, start_s, came_s = next_message(p, has_s - wait * cost_s, course, slots), 0.0, NEVER
            if m >= 0:
                start_s = max(course.start_s[m], has_s)
                came_s = start_s + course.end_s[m] - course.start_s[m] + takes_s - cost_s + ways.latency_s[p]
            new_s = gap_s(p, has_s, room * takes_s, ways, course, slots)
            if came_s > new_s + takes_s + ways.latency_s[p] + price * cost_s:
                m, start_s, came_s = -1, new_s, new_s + takes_s + ways.latency_s[p]
            total_s = best.cost_s[u] + came_s - has_s + (price * cost_s if m < 0 else 0.0)
            for g in range(first, last):
                v = ways.goals[g]
                if total_s < best.cost_s[v]:
                    _label(best, v, came_s, total_s, m, p, start_s, u)
                if last - first == 1 and total_s < single.cost_s[v]:
                    _label(single, v, came_s, total_s, m, p, start_s, u)
    return steps


def _label(
    labels: Labels, v: int, came_s: float, cost_s: float, m: int, p: int, start_s: float, u: int
) -> None:  # fmt: skip
    labels.came_s[v], labels.cost_s[v], labels.message[v] = came_s, cost_s, m
    labels.way[v], labels.start_s[v], labels.parent[v] = p, start_s, u


def _put_tree(
    c: int, nodes: int, ways: Ways, case: Case, course: Course, best: Labels, single: Labels, unused: Int64, spare: int,
    count: int,
) -> tuple[int, int]:  # fmt: skip
    """Put the copies of a chunk into messages, as the labels say.

    Returns:
        The unused messages that are left, -1 where the labels lead nowhere; and the messages.
    """
    for goal in range(nodes):
        if not case.wanted[c * nodes + goal]:
            continue
        v = goal
        while not case.source[c * nodes + v] and course.via[c * nodes + v] < 0:
            p = best.way[v]
            alone = best.parent[v] < 0
            if not alone:
                for g in range(ways.goal_offsets[p], ways.goal_offsets[p + 1]):
                    alone = alone or course.via[c * nodes + ways.goals[g]] >= 0
            labels = single if alone else best
            if labels.parent[v] < 0:
                return -1, count
            m, p = labels.message[v], labels.way[v]
            if m < 0:
                if not spare:
                    return -1, count
                spare -= 1
                m = unused[spare]
                course.way[m], course.start_s[m], course.order[count] = p, labels.start_s[v], m
                count += 1
            course.start_s[m] = max(course.start_s[m], labels.start_s[v])
            for g in range(ways.goal_offsets[p], ways.goal_offsets[p + 1]):
                put(course, c * nodes + ways.goals[g], m)
            v = labels.parent[v]
    return spare, count
