"""The verifier's loops over routes that join several sources: an in-tree to where all have met, then an out-tree."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bool = NDArray[np.bool_]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


def joined(
    sources: Int32, route: Int32, link_src: Int32, link_dst: Int32, transit: Bool, reduces: Bool, stage: Int64,
    weight: Int64, stamp: int,
) -> tuple[int, int, int, int, int]:  # fmt: skip
    """Follow the sums of one transfer to the node where all of its sources have met.

    Args:
        stage, weight: int64[nodes], room; marks of earlier calls are below twice ``stamp``.
    Returns:
        The code of a violation (0 for none) with a node and a link; the node where all have met; the number of links
        that lead there.
    """
    holds, sent = 2 * stamp, 2 * stamp + 1
    for s in sources:
        if stage[s] >= holds:
            return 28, s, -1, -1, 0
        stage[s] = holds
        # a negative weight is that of a source which nothing has come to
        weight[s] = -1
    if len(sources) == 1:
        return 0, -1, -1, sources[0], 0
    for i in range(len(route)):
        a, b = link_src[route[i]], link_dst[route[i]]
        if stage[a] != holds:
            return 3, -1, route[i], -1, 0
        if weight[a] > 0 and not transit[a]:
            return 5, a, route[i], -1, 0
        if stage[b] == sent:
            return 4, b, route[i], -1, 0
        if stage[b] == holds and not reduces[b]:
            return 29, b, route[i], -1, 0
        weight[b] = abs(weight[a]) + (abs(weight[b]) if stage[b] == holds else 0)
        stage[a], stage[b] = sent, holds
        if weight[b] == len(sources):
            return 0, -1, -1, b, i + 1
    return 30, -1, -1, -1, 0


def meets_after(sources: Int32, route: Int32, link_src: Int32, link_dst: Int32, head: Int64, stamp: int) -> int:
    """How many links of a route lead to the node where all sources have met.

    Args:
        head: int64[nodes], room; marks of earlier calls are not ``stamp``.
    """
    apart = len(sources)
    for s in sources:
        head[s] = stamp
    for i in range(len(route)):
        if apart == 1:
            return i
        a, b = link_src[route[i]], link_dst[route[i]]
        head[a] = -1
        if head[b] == stamp:
            apart -= 1
        head[b] = stamp
    return len(route)


def aligned(
    route: Int32, hop: Float64, link_src: Int32, link_dst: Int32, latency: Float64, before: Float64
) -> float:  # fmt: skip
    """When the links of an in-tree carry the bytes, so that these come to each sum from all sides at one moment.

    Args:
        route: the links of the in-tree. hop: float64[links of it], set here: seconds after the first source.
        before: float64[nodes], room.
    Returns:
        Seconds from the first source to the end of the in-tree.
    """
    before[link_dst[route[len(route) - 1]]] = 0.0
    longest = 0.0
    for i in range(len(route) - 1, -1, -1):
        a = link_src[route[i]]
        before[a] = before[link_dst[route[i]]] + latency[route[i]]
        longest = max(longest, before[a])
    for i in range(len(route)):
        hop[i] = longest - before[link_src[route[i]]]
    return longest
