"""Starts by urgency: a link that falls free takes the most urgent of the transfers that wait for it.

Each waiting transfer is in the heap of one link of its route, one that is busy, so that an event looks at few.
"""

from heapq import heappop, heappush

import numpy as np


def schedule(
    rank, seconds, lag, asked, route_offsets, route_links, hop, next_offsets, dependents, dep_count, links,
):  # fmt: skip
    """Starts of all transfers, each of which has its links for itself.

    A route's later links are taken for the time when its bytes come there; what passes before may still use them.

    Args:
        rank: int64[transfers], each number once, the lowest goes first.
        seconds: float64[transfers], on every link of the route.
        lag: float64[transfers], latency from source to receiver.
        asked: float64[transfers], none starts before.
        hop: float64[route], how much later than it starts its links carry a transfer.
        next_offsets, dependents: for each transfer those that wait for it.
        dep_count: int64[transfers], how many each waits for.
    """
    n = len(rank)
    start = np.zeros(n)
    ready = asked.copy()
    missing = dep_count.copy()
    by_rank = np.empty(n, dtype=np.int64)
    for k in range(n):
        by_rank[rank[k]] = k
    room = np.zeros(links + 1, dtype=np.int64)
    for i in range(len(route_links)):
        room[route_links[i] + 1] += 1
    for link in range(links):
        room[link + 1] += room[link]
    heap = np.empty(len(route_links), dtype=np.int64)
    size = np.zeros(links, dtype=np.int64)
    # when each link is taken: lists in the order of time, an entry for each stretch
    first = np.full(links, -1, dtype=np.int64)
    after = np.full(len(route_links), -1, dtype=np.int64)
    begin, end = np.zeros(len(route_links)), np.zeros(len(route_links))
    # transfers that are ready, and (after them) links to be looked at, each once
    wake = np.full(links, np.inf)
    events = [(0.0, 0)]
    events.clear()
    for k in range(n):
        if missing[k] == 0:
            heappush(events, (ready[k], k))
    while len(events) > 0:
        now, event = heappop(events)
        slack = 1e-12 * now
        if event < n:
            i = route_offsets[event]
            link = route_links[i]
            _add(heap, room[link], size[link], rank[event])
            size[link] += 1
            _forget(link, now, first, after, end)
            later = _fit(now + hop[i], seconds[event], slack, first[link], after, begin, end) - hop[i]
            _wake(link, max(now, later), wake, events, n)
            continue
        link = event - n
        if now < wake[link]:
            continue
        wake[link] = np.inf
        _forget(link, now, first, after, end)
        while size[link] > 0:
            k = by_rank[heap[room[link]]]
            later = now
            for i in range(route_offsets[k], route_offsets[k + 1]):
                if route_links[i] == link:
                    later = _fit(now + hop[i], seconds[k], slack, first[link], after, begin, end) - hop[i]
            if later > now + slack:
                _wake(link, later, wake, events, n)
                break
            _take(heap, room[link], size[link])
            size[link] -= 1
            blocked = -1
            for i in range(route_offsets[k], route_offsets[k + 1]):
                other = route_links[i]
                _forget(other, now, first, after, end)
                later = _fit(now + hop[i], seconds[k], slack, first[other], after, begin, end) - hop[i]
                if later > now + slack:
                    blocked = other
                    break
            if blocked >= 0:
                _add(heap, room[blocked], size[blocked], rank[k])
                size[blocked] += 1
                _wake(blocked, later, wake, events, n)
                continue
            start[k] = now
            for i in range(route_offsets[k], route_offsets[k + 1]):
                other = route_links[i]
                begin[i], end[i] = now + hop[i], now + hop[i] + seconds[k]
                _insert(i, other, first, after, begin, end)
                if other != link and size[other] > 0:
                    _wake(other, now if hop[i] > 0.0 else now + seconds[k], wake, events, n)
            for i in range(next_offsets[k], next_offsets[k + 1]):
                m = dependents[i]
                ready[m] = max(ready[m], now + seconds[k] + lag[k])
                missing[m] -= 1
                if missing[m] == 0:
                    heappush(events, (ready[m], m))
    return start


def serve(rank, seconds, lag, asked, link, next_offsets, dependents, dep_count, links):
    """The same where each transfer has one link: every link serves what waits for it, one after the other.

    Args:
        link: int64[transfers].
    """
    n = len(rank)
    start = np.zeros(n)
    ready = asked.copy()
    missing = dep_count.copy()
    by_rank = np.empty(n, dtype=np.int64)
    room = np.zeros(links + 1, dtype=np.int64)
    for k in range(n):
        by_rank[rank[k]] = k
        room[link[k] + 1] += 1
    for e in range(links):
        room[e + 1] += room[e]
    heap = np.empty(n, dtype=np.int64)
    size = np.zeros(links, dtype=np.int64)
    free = np.zeros(links)
    looked = np.zeros(links, dtype=np.bool_)
    # transfers that are ready, and (after them) links for which some wait, when they are free
    time, event = np.empty(n + links), np.empty(n + links, dtype=np.int64)
    events = 0
    for k in range(n):
        if missing[k] == 0:
            events = _enter(time, event, events, ready[k], k)
    while events > 0:
        now, what = time[0], event[0]
        events = _leave(time, event, events)
        if what < n:
            e = link[what]
            _add(heap, room[e], size[e], rank[what])
            size[e] += 1
            if not looked[e]:
                looked[e] = True
                events = _enter(time, event, events, max(now, free[e]), n + e)
            continue
        e = what - n
        k = by_rank[heap[room[e]]]
        _take(heap, room[e], size[e])
        size[e] -= 1
        start[k] = now
        free[e] = now + seconds[k]
        looked[e] = size[e] > 0
        if looked[e]:
            events = _enter(time, event, events, free[e], what)
        for i in range(next_offsets[k], next_offsets[k + 1]):
            m = dependents[i]
            ready[m] = max(ready[m], free[e] + lag[k])
            missing[m] -= 1
            if missing[m] == 0:
                events = _enter(time, event, events, ready[m], m)
    return start


def _enter(time, event, size, t, e):
    """Put an event into a heap by time, then number; how many there are now."""
    i = size
    while i > 0:
        up = (i - 1) // 2
        if time[up] < t or (time[up] == t and event[up] < e):
            break
        time[i], event[i] = time[up], event[up]
        i = up
    time[i], event[i] = t, e
    return size + 1


def _leave(time, event, size):
    """Take the first event out of the heap; how many there are now."""
    last = size - 1
    t, e = time[last], event[last]
    i = 0
    while 2 * i + 1 < last:
        child = 2 * i + 1
        if child + 1 < last and (
            time[child + 1] < time[child] or (time[child + 1] == time[child] and event[child + 1] < event[child])
        ):
            child += 1
        if t < time[child] or (t == time[child] and e < event[child]):
            break
        time[i], event[i] = time[child], event[child]
        i = child
    time[i], event[i] = t, e
    return last


def _wake(link, at, wake, events, n):
    """Look at a link then, if it is not looked at before."""
    if at < wake[link]:
        wake[link] = at
        heappush(events, (at, n + link))


def _forget(link, now, first, after, end):
    """Drop what is over from a link's list: else each look at it walks past all that was ever sent."""
    while first[link] >= 0 and end[first[link]] <= now:
        first[link] = after[first[link]]


def _fit(at, seconds, slack, entry, after, begin, end):
    """From ``at``, the first moment from which a link is free for so long."""
    while entry >= 0 and begin[entry] < at + seconds - slack:
        if end[entry] > at + slack:
            at = end[entry]
        entry = after[entry]
    return at


def _insert(i, link, first, after, begin, end):
    """Put an entry into its link's list, as one with those that it touches: else a busy link's list is long."""
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


def _add(heap, base, size, value):
    i = size
    while i > 0 and heap[base + (i - 1) // 2] > value:
        heap[base + i] = heap[base + (i - 1) // 2]
        i = (i - 1) // 2
    heap[base + i] = value


def _take(heap, base, size):
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


def longest(seconds, next_offsets, dependents):
    """float64[transfers], the longest chain from each one's start; those that wait for it come after it."""
    ahead = np.zeros(len(seconds))
    for k in range(len(seconds) - 1, -1, -1):
        for i in range(next_offsets[k], next_offsets[k + 1]):
            ahead[k] = max(ahead[k], ahead[dependents[i]])
        ahead[k] += seconds[k]
    return ahead
