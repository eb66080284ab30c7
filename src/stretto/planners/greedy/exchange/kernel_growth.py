"""A tree that grows by the earliest arrival where its own transfers hold each other up on the links."""

from heapq import heappop, heappush

import numpy as np


def grow(out_offsets, out_pipes, src, dst, cost, seconds, hop_offsets, hop_links, links, came, wanted):
    """The pipes over which nodes are reached, in the order of arrival.

    Args:
        out_offsets, out_pipes: the pipes from each node.
        src, dst: int64[pipes].
        cost: float64[pipes], from when a pipe is free to when a message has arrived.
        seconds: float64[pipes], for how long a message holds its links.
        hop_offsets, hop_links: the links of each pipe.
        links: how many there are.
        came: float64[nodes], when those that have it are ready, infinite elsewhere; changed.
        wanted: bool[nodes], whom to reach; changed.
    """
    free = np.zeros(links)
    found = np.empty(len(came), dtype=np.int64)
    count, left = 0, 0
    heap = [(0.0, 0)]
    heap.clear()
    for v in range(len(came)):
        left += wanted[v]
        if came[v] < np.inf:
            for i in range(out_offsets[v], out_offsets[v + 1]):
                heappush(heap, (came[v] + cost[out_pipes[i]], out_pipes[i]))
    while left > 0 and len(heap) > 0:
        key, p = heappop(heap)
        v = dst[p]
        if not wanted[v]:
            continue
        start = came[src[p]]
        for i in range(hop_offsets[p], hop_offsets[p + 1]):
            start = max(start, free[hop_links[i]])
        again = start + cost[p]
        if again > key * (1 + 1e-12):
            heappush(heap, (again, p))
            continue
        for i in range(hop_offsets[p], hop_offsets[p + 1]):
            free[hop_links[i]] = start + seconds[p]
        came[v] = again
        wanted[v] = False
        left -= 1
        found[count] = p
        count += 1
        for i in range(out_offsets[v], out_offsets[v + 1]):
            if wanted[dst[out_pipes[i]]]:
                heappush(heap, (again + cost[out_pipes[i]], out_pipes[i]))
    return found[:count]
