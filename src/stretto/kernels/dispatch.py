"""Starts by urgency: a link that falls free takes the most urgent of the transfers that wait for it.

Each waiting transfer is in the heap of one busy link of its route, so that an event looks at few.
"""

from heapq import heappop, heappush

import numpy as np


def schedule(
    rank, seconds, lag, asked, route_offsets, route_links, hop, next_offsets, dependents, dep_count, links,
):  # fmt: skip
    """Starts of all transfers, each of which has its links for itself.

    Args:
        rank: int64[transfers], each number once, the lowest goes first.
        seconds: float64[transfers], on every link of the route.
        lag: float64[transfers], latency from source to receiver.
        asked: float64[transfers], none starts before.
        hop: float64[route], how much later than the first its links carry a transfer.
        next_offsets, dependents: for each transfer those that wait for it.
        dep_count: int64[transfers], how many each waits for.
    """
    n = len(rank)
    start = np.zeros(n)
    ready = asked.copy()
    missing = dep_count.copy()
    free = np.zeros(links)
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
    events = [(0.0, 0)]
    events.clear()
    for k in range(n):
        if missing[k] == 0:
            heappush(events, (ready[k], k))
    while len(events) > 0:
        now, event = heappop(events)
        slack = 1e-12 * now
        if event < n:
            first = route_links[route_offsets[event]]
            _add(heap, room[first], size[first], rank[event])
            size[first] += 1
            if free[first] <= now + slack:
                heappush(events, (now, n + first))
            continue
        link = event - n
        while size[link] > 0:
            k = by_rank[heap[room[link]]]
            later = free[link] - _hop_on(link, k, route_offsets, route_links, hop)
            if later > now + slack:
                heappush(events, (later, event))
                break
            _take(heap, room[link], size[link])
            size[link] -= 1
            blocked = -1
            for i in range(route_offsets[k], route_offsets[k + 1]):
                if free[route_links[i]] - hop[i] > now + slack:
                    blocked = i
                    break
            if blocked >= 0:
                other = route_links[blocked]
                _add(heap, room[other], size[other], rank[k])
                size[other] += 1
                heappush(events, (free[other] - hop[blocked], n + other))
                continue
            start[k] = now
            for i in range(route_offsets[k], route_offsets[k + 1]):
                free[route_links[i]] = now + hop[i] + seconds[k]
                heappush(events, (now + seconds[k], n + route_links[i]))
            for i in range(next_offsets[k], next_offsets[k + 1]):
                m = dependents[i]
                ready[m] = max(ready[m], now + seconds[k] + lag[k])
                missing[m] -= 1
                if missing[m] == 0:
                    heappush(events, (ready[m], m))
    return start


def _hop_on(link, k, route_offsets, route_links, hop):
    for i in range(route_offsets[k], route_offsets[k + 1]):
        if route_links[i] == link:
            return hop[i]
    return 0.0


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
