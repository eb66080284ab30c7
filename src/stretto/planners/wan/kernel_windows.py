"""The loops of the bound on completions over fixed routes (:mod:`stretto.planners.wan.bound`)."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


class Hops(NamedTuple):
    """Flows on links, sorted by link and then by head.

    Attributes:
        offsets: int64[links + 1], where the hops of each link begin.
        head, seconds, tail: float64[hops], the least seconds before, on and after the link.
        collective: int64[hops].
    """

    offsets: Int64
    head: Float64
    seconds: Float64
    tail: Float64
    collective: Int64


def ends_of_sets(hops: Hops, longest: Float64) -> Float64:
    """For each set of collectives a time before which not all of them have ended.

    The bytes of a flow cross a link between its head and its tail. A machine that may interrupt one flow for another
    ends soonest if it serves the longest tail first (Jackson's preemptive schedule), and a link does no better.

    Args:
        longest: float64[collectives], the time of the longest chain.
    Returns:
        float64[2 ** collectives], by the set as bits.
    """
    link_offsets, head, seconds, tail, owner = hops
    collectives = len(longest)
    least = np.zeros(1 << collectives)
    heap = [(0.0, 0.0)]
    for members in range(1, 1 << collectives):
        bound = 0.0
        for k in range(collectives):
            if members >> k & 1:
                bound = max(bound, longest[k])
        for link in range(len(link_offsets) - 1):
            low, high = link_offsets[link], link_offsets[link + 1]
            heap.clear()
            now = 0.0
            i = low
            while i < high or len(heap) > 0:
                if len(heap) == 0:
                    while i < high and not members >> owner[i] & 1:
                        i += 1
                    if i == high:
                        break
                    now = max(now, head[i])
                while i < high and head[i] <= now:
                    if members >> owner[i] & 1:
                        heappush(heap, (-tail[i], seconds[i]))
                    i += 1
                first, left = heappop(heap)
                if i < high and head[i] < now + left:
                    # the next flow may interrupt it
                    heappush(heap, (first, left - (head[i] - now)))
                    now = head[i]
                else:
                    now += left
                    bound = max(bound, now - first)
        least[members] = bound
    return least


def least_sum_of_ends(least: Float64, weight: Float64) -> float:
    """The least weighted sum of ends over all orders in which collectives may end, by a recursion over sets.

    Args:
        least: float64[2 ** collectives], see :func:`ends_of_sets`: the j-th end is no earlier than that of the first j.
        weight: float64[collectives].
    """
    collectives = len(weight)
    total = np.zeros(len(least))
    for members in range(1, len(least)):
        best = np.inf
        for k in range(collectives):
            if members >> k & 1:
                best = min(best, total[members ^ (1 << k)] + weight[k] * least[members])
        total[members] = best
    return float(total[-1])
