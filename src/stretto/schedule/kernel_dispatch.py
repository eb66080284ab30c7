"""List schedules: a link that falls free carries the most urgent of the transfers that wait for it.

Each waiting transfer is in the heap of one busy link of its route, so that an event looks at few transfers.
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


def schedule(rank: Int64, jobs: Jobs, routes: Routes, link_count: int) -> Float64:
    """Start of each transfer where transfers have their links for themselves.

    A transfer takes the later links of its route from when its bytes come there; others may use these links before.

    Args:
        rank: int64[transfers], a permutation; of the transfers that wait for a link the lowest rank goes first.
    """
    seconds, latency_s, release_s, successor_offsets, successors, predecessor_count = jobs
    offsets, links, delay_s = routes
    n = len(rank)
    start = np.zeros(n)
    ready = release_s.copy()
    missing = predecessor_count.copy()
    by_rank, base = np.empty_like(rank), np.zeros(link_count + 1, dtype=np.int64)
    by_rank[rank] = np.arange(n)
    base[1:] = np.cumsum(np.bincount(links, minlength=link_count))  # where the heap of each link begins
    heap = np.empty(len(links), dtype=np.int64)
    size = np.zeros(link_count, dtype=np.int64)
    # the reserved intervals of each link, a list in the order of time: an entry for each hop of each route
    first = np.full(link_count, -1, dtype=np.int64)
    after = np.full(len(links), -1, dtype=np.int64)
    begin, end = np.zeros(len(links)), np.zeros(len(links))
    # events: transfer k is ready (k < n), or link e is to be looked at (n + e), once for each link
    wake = np.full(link_count, np.inf)
    events = [(0.0, 0)]
    events.clear()
    for k in range(n):
        if missing[k] == 0:
            heappush(events, (ready[k], k))
    while len(events) > 0:
        now, event = heappop(events)
        slack = 1e-12 * now
        if event < n:
            i = offsets[event]
            link = links[i]
            _add(heap, base[link], size[link], rank[event])
            size[link] += 1
            _forget(link, now, first, after, end)
            later = _fit(now + delay_s[i], seconds[event], slack, first[link], after, begin, end) - delay_s[i]
            _wake(link, max(now, later), wake, events, n)
            continue
        link = event - n
        if now < wake[link]:
            continue
        wake[link] = np.inf
        _forget(link, now, first, after, end)
        while size[link] > 0:
            k = by_rank[heap[base[link]]]
            later = now
            for i in range(offsets[k], offsets[k + 1]):
                if links[i] == link:
                    later = _fit(now + delay_s[i], seconds[k], slack, first[link], after, begin, end) - delay_s[i]
            if later > now + slack:
                _wake(link, later, wake, events, n)
                break
            _take(heap, base[link], size[link])
            size[link] -= 1
            blocked = -1
            for i in range(offsets[k], offsets[k + 1]):
                other = links[i]
                _forget(other, now, first, after, end)
                later = _fit(now + delay_s[i], seconds[k], slack, first[other], after, begin, end) - delay_s[i]
                if later > now + slack:
                    blocked = other
                    break
            if blocked >= 0:
                _add(heap, base[blocked], size[blocked], rank[k])
                size[blocked] += 1
                _wake(blocked, later, wake, events, n)
                continue
            start[k] = now
            for i in range(offsets[k], offsets[k + 1]):
                other = links[i]
                begin[i], end[i] = now + delay_s[i], now + delay_s[i] + seconds[k]
                _reserve(i, other, first, after, begin, end)
                if other != link and size[other] > 0:
                    _wake(other, now if delay_s[i] > 0.0 else now + seconds[k], wake, events, n)
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


def _wake(link: int, at: float, wake: Float64, events: list[tuple[float, int]], n: int) -> None:
    """Look at a link at this time, unless it is looked at earlier."""
    if at < wake[link]:
        wake[link] = at
        heappush(events, (at, n + link))


def _forget(link: int, now: float, first: Int64, after: Int64, end: Float64) -> None:
    """Drop the intervals that have ended from a link's list, which would else grow with all that was ever sent."""
    while first[link] >= 0 and end[first[link]] <= now:
        first[link] = after[first[link]]


def _fit(
    at: float, seconds: float, slack: float, entry: int, after: Int64, begin: Float64, end: Float64
) -> float:  # fmt: skip
    """The first moment from ``at`` on from which a link is free for ``seconds``; ``entry`` is its first interval."""
    while entry >= 0 and begin[entry] < at + seconds - slack:
        if end[entry] > at + slack:
            at = end[entry]
        entry = after[entry]
    return at


def _reserve(i: int, link: int, first: Int64, after: Int64, begin: Float64, end: Float64) -> None:
    """Put an interval into its link's list and join it with those that it touches, to keep the list short."""
    before, entry = -1, first[link]
    while entry >= 0 and begin[entry] < begin[i]:
        before, entry = entry, after[entry]
    touch = 1e-12 * begin[i]
    if entry >= 0 and begin[entry] <= end[i] + touch:
        end[i] = max(end[i], end[entry])
        entry = after[entry]
    if before >= 0 and begin[i] <= end[before] + touch:
        end[before] = max(end[before], end[i])
        after[before] = entry
        return
    after[i] = entry
    if before < 0:
        first[link] = i
    else:
        after[before] = i


def _add(heap: Int64, base: int, size: int, value: int) -> None:
    """Put a rank into the heap of a link, which begins at ``base``."""
    i = size
    while i > 0 and heap[base + (i - 1) // 2] > value:
        heap[base + i] = heap[base + (i - 1) // 2]
        i = (i - 1) // 2
    heap[base + i] = value


def _take(heap: Int64, base: int, size: int) -> None:
    """Take the lowest rank out of the heap of a link."""
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
