"""Concurrent flow: paths for data that is not copied, such that no link has much more to carry than another.

Selfish rerouting. Let link e be busy for a share y_e of the time for which the busiest link is. Its price for a byte is
y_e^(power - 1) / bandwidth_e. Unit after unit moves to a cheaper way while there is one, and each move lessens the sum
over links of bandwidth_e y_e^power (Fleischer, SIAM J. Discrete Math. 2000, and Young, FOCS 1995, have such prices;
Rosenthal 1973 says why this ends). As the power grows, the largest y_e alone decides that sum, and the prices become
the lengths of the dual program.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

Bool = NDArray[np.bool_]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


def spread(
    offsets: Int64, links: Int64, src: Int64, dst: Int64, bandwidth: Float64, tie: Float64, through: Bool,
    first: Int64, source: Int64, goal: Int64, size: Float64, power: Float64, path: Int32, hops: Int64,
) -> Float64:  # fmt: skip
    """float64[links]: lengths, the sums of the prices in the last rounds. The ways are written to ``path``.

    A unit has no way, 0 hops, if in every round the cheapest one had no room.

    Args:
        offsets, links: the links that leave each node.
        tie: float64[links], what a link costs besides its price; the price is at most 1, that of the busiest link.
        through: bool[nodes], whether data may go on from there.
        first: int64[sources + 1], the first unit of each source.
        source: int64[sources], its node.
        goal, size: the node that each unit goes to, which is not its source, and its bytes.
        power: float64[rounds].
        path: int32[units, most], the links of each unit's way, then -1.
        hops: int64[units], how many; 0 at first.
    """
    nodes, sources = len(offsets) - 1, len(source)
    load = np.zeros(len(bandwidth))
    length = np.zeros(len(bandwidth))
    widest = bandwidth.max()
    cost = np.empty(len(bandwidth))
    distance = np.empty(nodes)
    by = np.empty(nodes, dtype=np.int64)
    old = np.zeros(len(bandwidth), dtype=np.bool_)
    way = np.empty(nodes, dtype=np.int64)
    heap = [(0.0, 0)]
    scale = 0.0
    for i in range(len(size)):
        scale += size[i]
    scale /= bandwidth.sum()
    for r in range(len(power)):
        p = power[r] - 1.0
        for turn in range(sources):
            s = (turn * 7 + r) % sources if sources % 7 != 0 else (turn + r) % sources
            low, high = first[s], first[s + 1]
            unit = size[low]
            for e in range(len(bandwidth)):
                y = (load[e] + unit) / bandwidth[e] / scale
                cost[e] = widest / bandwidth[e] * y**p + tie[e]
            _search(offsets, links, dst, cost, through, source[s], distance, by, heap)
            for i in range(low, high):
                count, v = 0, goal[i]
                while v != source[s]:
                    way[count] = by[v]
                    count += 1
                    v = src[by[v]]
                if count > path.shape[1]:
                    continue
                before, after = 0.0, 0.0
                for k in range(hops[i]):
                    e = path[i, k]
                    old[e] = True
                    before += widest / bandwidth[e] * (load[e] / bandwidth[e] / scale) ** p + tie[e]
                for k in range(count):
                    e = way[k]
                    full = load[e] if old[e] else load[e] + size[i]
                    after += widest / bandwidth[e] * (full / bandwidth[e] / scale) ** p + tie[e]
                for k in range(hops[i]):
                    old[path[i, k]] = False
                if hops[i] > 0 and after >= before * (1.0 - 1e-9):
                    continue
                for k in range(hops[i]):
                    # rounding must not leave less than nothing
                    load[path[i, k]] = max(load[path[i, k]] - size[i], 0.0)
                    path[i, k] = -1
                hops[i] = count
                for k in range(count):
                    path[i, k] = way[count - 1 - k]
                    load[way[k]] += size[i]
        scale = 0.0
        for e in range(len(bandwidth)):
            scale = max(scale, load[e] / bandwidth[e])
        if 2 * r >= len(power):
            for e in range(len(bandwidth)):
                length[e] += (load[e] / bandwidth[e] / scale) ** p / bandwidth[e]
    return length


def _search(
    offsets: Int64, links: Int64, dst: Int64, cost: Float64, through: Bool, root: int, distance: Float64, by: Int64,
    heap: list[tuple[float, int]],
) -> None:  # fmt: skip
    """Fill ``by`` with the link by which the cheapest way from ``root`` comes to each node (Dijkstra)."""
    distance[:] = np.inf
    distance[root] = 0.0
    heap.clear()
    heappush(heap, (0.0, root))
    while len(heap) > 0:
        d, v = heappop(heap)
        if d > distance[v] or (v != root and not through[v]):
            continue
        for a in range(offsets[v], offsets[v + 1]):
            e = links[a]
            far = d + cost[e]
            if far < distance[dst[e]]:
                distance[dst[e]] = far
                by[dst[e]] = e
                heappush(heap, (far, dst[e]))
