"""The loops of the lower bound on completions over fixed routes (:mod:`stretto.planners.wan.bound`)."""

from heapq import heappop, heappush

import numpy as np


def subsets(link_offsets, head, work, tail, owner, longest, collectives):
    """For each set of collectives a time before which not all of them can have ended.

    On one link a flow's bytes cross between its head and its tail before the end. Were the link
    a machine that may turn from one flow to another at any time, the longest tail first would
    end soonest (Jackson's preemptive schedule), and links do no better.

    Args:
        link_offsets: int64[links + 1], which rows of the next four are of each link, rows by head.
        head, work, tail: float64[rows], seconds before, on and after the link, at the least.
        owner: int64[rows], the collective.
        longest: float64[collectives], its longest chain.
    Returns:
        float64[2 ** collectives], by the set as bits.
    """
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
                        heappush(heap, (-tail[i], work[i]))
                    i += 1
                first, left = heappop(heap)
                if i < high and head[i] < now + left:
                    # it may be put aside when the next flow comes
                    heappush(heap, (first, left - (head[i] - now)))
                    now = head[i]
                else:
                    now += left
                    bound = max(bound, now - first)
        least[members] = bound
    return least


def orders(least, weight):
    """The least weighted sum of ends over all orders in which collectives may end.

    The j-th to end does so no earlier than the first j can all have: a recursion over sets.
    """
    collectives = len(weight)
    total = np.zeros(len(least))
    for members in range(1, len(least)):
        best = np.inf
        for k in range(collectives):
            if members >> k & 1:
                best = min(best, total[members ^ (1 << k)] + weight[k] * least[members])
        total[members] = best
    return total[-1]
