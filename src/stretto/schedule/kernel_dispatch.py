"""List schedules: a link that falls free carries the most urgent of the transfers that wait for it.

A transfer is as fast as the slowest link of its route. Of a faster link it takes a share, and others take the rest.
Transfers that are alike, over the same route and as long, wait for the same: of each such kind only the first one is
looked at. A kind waits for one busy link of its route, so that an event looks at few kinds. A link has a heap for each
delay after which transfers would use it: what cannot use it in a second may do so at once.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


class Jobs(NamedTuple):
    """Transfers to be scheduled, and which of them wait for which."""

    seconds: Float64  # float64[transfers], how long a transfer keeps each link of its route
    latency_s: Float64  # float64[transfers], from source to receiver
    release_s: Float64  # float64[transfers], before which none starts
    successor_offsets: Int64  # CSR, for each transfer those that wait for it
    successors: Int64
    predecessor_count: Int64  # int64[transfers], how many others each waits for


class Routes(NamedTuple):
    """The links of each transfer."""

    offsets: Int64  # CSR, in the order of the route
    links: Int64
    delay_s: Float64  # float64[links], how much later than the transfer starts each link carries its first byte
    share: Float64  # float64[links], the part of the link that the transfer takes, at most 1
    queue: Int64  # int64[links], a number for each link and delay
    alike: Int64  # int64[transfers], a number for each route and time that a transfer takes


FULL = 1 + 1e-12
"""The sum of shares up to which a link is not overfull: 1 but for rounding."""


def schedule(rank: Int64, jobs: Jobs, routes: Routes, link_count: int) -> Float64:
    """Start of each transfer where transfers share their links.

    A transfer takes the later links of its route from when its bytes come there; others may use these links before.

    Args:
        rank: int64[transfers], a permutation; of the transfers that wait for a link the lowest rank goes first.
    """
    seconds, latency_s, release_s, successor_offsets, successors, predecessor_count = jobs
    offsets, links, delay_s, share, queue, alike = routes
    n, queues, kinds = len(rank), int(queue.max()) + 1, int(alike.max()) + 1
    start = np.zeros(n)
    ready = release_s.copy()
    missing = predecessor_count.copy()
    by_rank = np.empty_like(rank)
    by_rank[rank] = np.arange(n)
    # the ranks of each kind that wait, a heap
    first_rank = np.zeros(kinds + 1, dtype=np.int64)
    first_rank[1:] = np.cumsum(np.bincount(alike, minlength=kinds))
    waiting, count = np.empty(n, dtype=np.int64), np.zeros(kinds, dtype=np.int64)
    # the kinds that wait for each link, a heap by their lowest rank; where each kind waits, and its place there
    base = np.zeros(queues + 1, dtype=np.int64)
    some = np.empty(kinds, dtype=np.int64)
    some[alike] = np.arange(n)
    for kind in range(kinds):
        for i in range(offsets[some[kind]], offsets[some[kind] + 1]):
            base[queue[i] + 1] += 1
    base = np.cumsum(base)
    heap, size = np.empty(base[queues], dtype=np.int64), np.zeros(queues, dtype=np.int64)
    waits_for, place, lowest = np.full(kinds, -1, dtype=np.int64), np.zeros(kinds, dtype=np.int64), np.zeros_like(count)
    # how full each link is, a list of steps in the order of time: two entries for each hop of each route
    first, step_of = np.full(link_count, -1, dtype=np.int64), np.full(queues, -1, dtype=np.int64)
    after = np.full(2 * len(links), -1, dtype=np.int64)
    at, level = np.zeros(2 * len(links)), np.zeros(2 * len(links))
    # events: transfer k is ready (k < n), or heap q is to be looked at (n + q), once for each heap
    wake = np.full(queues, np.inf)
    events = [(0.0, 0)]
    events.clear()
    for k in range(n):
        if missing[k] == 0:
            heappush(events, (ready[k], k))
    while len(events) > 0:
        now, event = heappop(events)
        slack = 1e-12 * now
        if event < n:
            kind, i = alike[event], offsets[event]
            _add(waiting, first_rank[kind], count[kind], rank[event])
            count[kind] += 1
            lowest[kind] = waiting[first_rank[kind]]
            q = waits_for[kind]
            if q >= 0:
                _rise(heap, base[q], place[kind], lowest, place)
                continue
            q, link = queue[i], links[i]
            waits_for[kind] = q
            heap[base[q] + size[q]], place[kind] = kind, size[q]
            size[q] += 1
            _rise(heap, base[q], place[kind], lowest, place)
            step = _advance(step_of, q, now + delay_s[i], first[link], after, at)
            later = _fit(now + delay_s[i], seconds[event], share[i], slack, step, after, at, level) - delay_s[i]
            _wake(q, max(now, later), wake, events, n)
            continue
        q = event - n
        if now < wake[q]:
            continue
        wake[q] = np.inf
        while size[q] > 0:
            kind = heap[base[q]]
            k = by_rank[lowest[kind]]
            blocked, until = -1, now
            for i in range(offsets[k], offsets[k + 1]):
                link = links[i]
                step = _advance(step_of, queue[i], now + delay_s[i], first[link], after, at)
                later = _fit(now + delay_s[i], seconds[k], share[i], slack, step, after, at, level) - delay_s[i]
                if later > now + slack and (blocked < 0 or queue[i] == q):
                    blocked, until = queue[i], later
            if blocked == q:
                _wake(q, until, wake, events, n)
                break
            if blocked < 0:
                start[k] = now
                _take(waiting, first_rank[kind], count[kind])
                count[kind] -= 1
                lowest[kind] = waiting[first_rank[kind]]
            if blocked >= 0 or count[kind] == 0:
                size[q] -= 1
                heap[base[q]] = heap[base[q] + size[q]]
                place[heap[base[q]]] = 0
                waits_for[kind] = blocked
            if size[q] > 0:
                _sink(heap, base[q], size[q], lowest, place)
            if blocked >= 0:
                heap[base[blocked] + size[blocked]], place[kind] = kind, size[blocked]
                size[blocked] += 1
                _rise(heap, base[blocked], place[kind], lowest, place)
                _wake(blocked, until, wake, events, n)
                continue
            for i in range(offsets[k], offsets[k + 1]):
                _reserve(
                    i, links[i], step_of[queue[i]], now + delay_s[i], seconds[k], share[i], first, after, at, level
                )
            for i in range(successor_offsets[k], successor_offsets[k + 1]):
                m = successors[i]
                ready[m] = max(ready[m], now + seconds[k] + latency_s[k])
                missing[m] -= 1
                if missing[m] == 0:
                    heappush(events, (ready[m], m))
    return start


def schedule_single_links(rank: Int64, jobs: Jobs, links: Int64, link_count: int) -> Float64:
    """The same as :func:`schedule` for routes of one link each: a link carries one transfer after the other.

    Args:
        links: int64[transfers].
    """
    seconds, latency_s, release_s, successor_offsets, successors, predecessor_count = jobs
    n = len(rank)
    start = np.zeros(n)
    ready = release_s.copy()
    missing = predecessor_count.copy()
    by_rank, base = np.empty_like(rank), np.zeros(link_count + 1, dtype=np.int64)
    by_rank[rank] = np.arange(n)
    base[1:] = np.cumsum(np.bincount(links, minlength=link_count))  # where the heap of each link begins
    heap = np.empty(n, dtype=np.int64)
    size = np.zeros(link_count, dtype=np.int64)
    free = np.zeros(link_count)
    queued = np.zeros(link_count, dtype=np.bool_)
    # events: transfer k is ready (k < n), or link e, for which transfers wait, is free (n + e)
    events = [(0.0, 0)]
    events.clear()
    for k in range(n):
        if missing[k] == 0:
            heappush(events, (ready[k], k))
    while len(events) > 0:
        now, what = heappop(events)
        if what < n:
            e = links[what]
            _add(heap, base[e], size[e], rank[what])
            size[e] += 1
            if not queued[e]:
                queued[e] = True
                heappush(events, (max(now, free[e]), n + e))
            continue
        e = what - n
        k = by_rank[heap[base[e]]]
        _take(heap, base[e], size[e])
        size[e] -= 1
        start[k] = now
        free[e] = now + seconds[k]
        queued[e] = size[e] > 0
        if queued[e]:
            heappush(events, (free[e], what))
        for i in range(successor_offsets[k], successor_offsets[k + 1]):
            m = successors[i]
            ready[m] = max(ready[m], free[e] + latency_s[k])
            missing[m] -= 1
            if missing[m] == 0:
                heappush(events, (ready[m], m))
    return start


def longest_chains(seconds: Float64, successor_offsets: Int64, successors: Int64) -> Float64:
    """float64[transfers], seconds of the longest chain that begins with each; successors have larger numbers."""
    longest = np.zeros(len(seconds))
    for k in range(len(seconds) - 1, -1, -1):
        for i in range(successor_offsets[k], successor_offsets[k + 1]):
            longest[k] = max(longest[k], longest[successors[i]])
        longest[k] += seconds[k]
    return longest


def _wake(queue: int, at: float, wake: Float64, events: list[tuple[float, int]], n: int) -> None:
    """Look at a heap at this time, unless it is looked at earlier."""
    if at < wake[queue]:
        wake[queue] = at
        heappush(events, (at, n + queue))


def _advance(step_of: Int64, queue: int, now: float, entry: int, after: Int64, at: Float64) -> int:
    """Note the last step of a link before ``now``, as a heap sees it; the first step, ``entry``, if all are later."""
    if step_of[queue] >= 0:
        entry = step_of[queue]
    while entry >= 0 and at[entry] <= now:
        step_of[queue], entry = entry, after[entry]
    return step_of[queue] if step_of[queue] >= 0 else entry


def _fit(
    begin: float, seconds: float, share: float, slack: float, entry: int, after: Int64, at: Float64, level: Float64
) -> float:
    """The first moment from ``begin`` on from which a share of a link is free for ``seconds``.

    Args:
        entry: the last step before ``begin``, or the first one of the link, which is empty before it and at its last.
    """
    while entry >= 0 and at[entry] < begin + seconds - slack:
        step, entry = entry, after[entry]
        if level[step] + share > FULL and at[entry] > begin + slack:
            begin = at[entry]
    return begin


def _reserve(
    i: int, link: int, step: int, begin: float, seconds: float, share: float, first: Int64, after: Int64, at: Float64,
    level: Float64,
) -> None:  # fmt: skip
    """Raise the level of a link for ``seconds``.

    Args:
        i: entries ``2 i`` and ``2 i + 1`` are free for new steps.
        step: a step before ``begin``, or -1.
    """
    touch, end = 1e-12 * begin, begin + seconds
    entry = after[step] if step >= 0 else first[link]
    while entry >= 0 and at[entry] <= begin + touch:
        step, entry = entry, after[entry]
    if step < 0 or at[step] < begin - touch:
        at[2 * i], level[2 * i] = begin, level[step] if step >= 0 else 0.0
        _insert(2 * i, step, link, first, after)
        step = 2 * i
    old = level[step]
    level[step] += share
    while after[step] >= 0 and at[after[step]] < end - touch:
        step = after[step]
        old = level[step]
        level[step] += share
    if after[step] < 0 or at[after[step]] > end + touch:
        at[2 * i + 1], level[2 * i + 1] = end, old
        _insert(2 * i + 1, step, link, first, after)


def _insert(step: int, before: int, link: int, first: Int64, after: Int64) -> None:
    """Put a step into the list of a link, after another one; -1 to put it first."""
    if before < 0:
        after[step], first[link] = first[link], step
    else:
        after[step], after[before] = after[before], step


def _rise(heap: Int64, base: int, i: int, key: Int64, place: Int64) -> None:
    """Move the entry at place ``i`` of a heap, which begins at ``base``, up to where its key belongs."""
    own = heap[base + i]
    while i > 0 and key[heap[base + (i - 1) // 2]] > key[own]:
        heap[base + i] = heap[base + (i - 1) // 2]
        place[heap[base + i]] = i
        i = (i - 1) // 2
    heap[base + i], place[own] = own, i


def _sink(heap: Int64, base: int, size: int, key: Int64, place: Int64) -> None:
    """Move the first entry of a heap down to where its key belongs."""
    own, i = heap[base], 0
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and key[heap[base + child + 1]] < key[heap[base + child]]:
            child += 1
        if key[heap[base + child]] >= key[own]:
            break
        heap[base + i] = heap[base + child]
        place[heap[base + i]] = i
        i = child
    heap[base + i], place[own] = own, i


def _add(heap: Int64, base: int, size: int, value: int) -> None:
    """Put a rank into a heap, which begins at ``base``."""
    i = size
    while i > 0 and heap[base + (i - 1) // 2] > value:
        heap[base + i] = heap[base + (i - 1) // 2]
        i = (i - 1) // 2
    heap[base + i] = value


def _take(heap: Int64, base: int, size: int) -> None:
    """Take the lowest rank out of a heap."""
    value = heap[base + size - 1]
    last = size - 1
    i = 0
    while 2 * i + 1 < last:
        child = 2 * i + 1
        if child + 1 < last and heap[base + child + 1] < heap[base + child]:
            child += 1
        if heap[base + child] >= value:
            break
        heap[base + i] = heap[base + child]
        i = child
    heap[base + i] = value
