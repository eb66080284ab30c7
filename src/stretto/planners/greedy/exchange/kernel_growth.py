"""A tree that grows by the earliest arrival, where its own transfers hold each other up on the links."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from ....kernels.pipes import Pipes

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]


def grow(pipes: Pipes, link_count: int, cost_s: Float64, busy_s: Float64, ready_s: Float64, wanted: Bool) -> Int64:
    """The pipes over which nodes are reached, in the order of arrival.

    Args:
        cost_s: float64[pipes], from when a pipe is free to when a message has arrived.
        busy_s: float64[pipes], for how long a message holds the links of the pipe.
        ready_s: float64[nodes], when nodes that have the message are ready, infinite elsewhere; changed.
        wanted: bool[nodes], the nodes to be reached; changed.
    """
    src, dst, hop_offsets, hop_links, _, _, _, out_offsets, out_pipes, _ = pipes
    free = np.zeros(link_count)
    taken = np.empty(len(ready_s), dtype=np.int64)
    count, left = 0, 0
    heap = [(0.0, 0)]
    heap.clear()
    for v in range(len(ready_s)):
        left += wanted[v]
        if ready_s[v] < np.inf:
            for i in range(out_offsets[v], out_offsets[v + 1]):
                heappush(heap, (ready_s[v] + cost_s[out_pipes[i]], out_pipes[i]))
    while left > 0 and len(heap) > 0:
        key, p = heappop(heap)
        v = dst[p]
        if not wanted[v]:
            continue
        start = ready_s[src[p]]
        for i in range(hop_offsets[p], hop_offsets[p + 1]):
            start = max(start, free[hop_links[i]])
        arrival = start + cost_s[p]
        if arrival > key * (1 + 1e-12):
            heappush(heap, (arrival, p))
            continue
        for i in range(hop_offsets[p], hop_offsets[p + 1]):
            free[hop_links[i]] = start + busy_s[p]
        ready_s[v] = arrival
        wanted[v] = False
        left -= 1
        taken[count] = p
        count += 1
        for i in range(out_offsets[v], out_offsets[v + 1]):
            if wanted[dst[out_pipes[i]]]:
                heappush(heap, (arrival + cost_s[out_pipes[i]], out_pipes[i]))
    return taken[:count]
