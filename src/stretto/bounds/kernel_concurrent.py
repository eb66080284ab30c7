"""Concurrent flow: paths for data that is not copied, such that no link has much more to carry than another.

Selfish rerouting. All data is to be there by a time T. What takes a path of latency L is sent within T - L, so it needs
a rate of its size / (T - L) on each link of the path. Let y_e be the sum of these rates on link e, over its bandwidth;
T is the least time for which no y_e is above 1. A rate costs y_e^(power - 1) / bandwidth_e on link e. Unit after unit
moves to a cheaper path while there is one, and each move lessens the sum over links of bandwidth_e y_e^power
(Fleischer, SIAM J. Discrete Math. 2000, and Young, FOCS 1995, have such prices; Rosenthal 1973 says why this ends).
Between rounds T falls. As the power grows, the largest y_e alone decides that sum, and without latency the prices
become the lengths of the dual program.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

Bool = NDArray[np.bool_]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

SLOPES = (1.0, 0.3, 3.0)
"""Prices of latency in turn, relative to the one that suits a source's units on average."""

NEAR = 1e-3
"""How near the least T is found, as a share of it."""


def spread(
    offsets: Int64, links: Int64, src: Int64, dst: Int64, bandwidth: Float64, latency_s: Float64, hop: float,
    through: Bool, first: Int64, source: Int64, goal: Int64, size: Float64, power: Float64, path: Int32, hops: Int64,
) -> Float64:  # fmt: skip
    """float64[links]: lengths, the sums of the prices in the last rounds. The paths are written to ``path``.

    A unit has no path, 0 hops, if in every round the cheapest one had no room.

    Args:
        offsets, links: the links that leave each node.
        hop: what each link costs besides its price; the price is 1 on the widest link if that is full.
        through: bool[nodes], whether data may go on from there.
        first: int64[sources + 1], the first unit of each source.
        source: int64[sources], its node.
        goal, size: the node that each unit goes to, which is not its source, and its bytes.
        power: float64[rounds].
        path: int32[units, most], the links of each unit's path, then -1.
        hops: int64[units], how many; 0 at first.
    """
    nodes, sources = len(offsets) - 1, len(source)
    rate = np.zeros(len(bandwidth))
    length = np.zeros(len(bandwidth))
    widest = bandwidth.max()
    cost = np.empty(len(bandwidth))
    distance = np.empty(nodes)
    by = np.empty(nodes, dtype=np.int64)
    old = np.zeros(len(bandwidth), dtype=np.bool_)
    way = np.empty(nodes, dtype=np.int64)
    late = np.zeros(len(size))
    heap = [(0.0, 0)]
    for s in range(sources):
        for e in range(len(bandwidth)):
            cost[e] = latency_s[e] + size[first[s]] / bandwidth[e]
        _search(offsets, links, dst, cost, through, source[s], distance, by, heap)
        for i in range(first[s], first[s + 1]):
            count, v = 0, goal[i]
            while v != source[s]:
                way[count] = by[v]
                count += 1
                v = src[by[v]]
            if count <= path.shape[1]:
                hops[i] = count
            for k in range(hops[i]):
                path[i, k] = way[count - 1 - k]
                late[i] += latency_s[path[i, k]]
    if hops.max() == 0:
        return length
    end = _fit(bandwidth, path, hops, size, late, rate)
    for r in range(len(power)):
        p = power[r] - 1.0
        for turn in range(sources):
            s = (turn * 7 + r) % sources if sources % 7 != 0 else (turn + r) % sources
            low, high = first[s], first[s + 1]
            price, spare, slope = 0.0, 0.0, SLOPES[r % len(SLOPES)]
            for i in range(low, high):
                spare += end - late[i]
                for k in range(hops[i]):
                    e = path[i, k]
                    price += widest / bandwidth[e] * (rate[e] / bandwidth[e]) ** p
            for e in range(len(bandwidth)):
                y = (rate[e] + size[low] / end) / bandwidth[e]
                cost[e] = widest / bandwidth[e] * y**p + hop + slope * price / spare * latency_s[e]
            _search(offsets, links, dst, cost, through, source[s], distance, by, heap)
            for i in range(low, high):
                count, v, far = 0, goal[i], 0.0
                while v != source[s]:
                    way[count] = by[v]
                    far += latency_s[by[v]]
                    count += 1
                    v = src[by[v]]
                if count > path.shape[1] or far >= end:
                    continue
                mine, other = size[i] / (end - late[i]), size[i] / (end - far)
                before, after = 0.0, 0.0
                for k in range(hops[i]):
                    e = path[i, k]
                    old[e] = True
                    before += mine * (widest / bandwidth[e] * (rate[e] / bandwidth[e]) ** p + hop)
                for k in range(count):
                    e = way[k]
                    full = rate[e] + other - (mine if old[e] else 0.0)
                    after += other * (widest / bandwidth[e] * (full / bandwidth[e]) ** p + hop)
                for k in range(hops[i]):
                    old[path[i, k]] = False
                if hops[i] > 0 and after >= before * (1.0 - 1e-9):
                    continue
                for k in range(hops[i]):
                    # rounding must not leave less than nothing
                    rate[path[i, k]] = max(rate[path[i, k]] - mine, 0.0)
                    path[i, k] = -1
                hops[i], late[i] = count, far
                for k in range(count):
                    path[i, k] = way[count - 1 - k]
                    rate[way[k]] += other
        end = _fit(bandwidth, path, hops, size, late, rate)
        if 2 * r >= len(power):
            for e in range(len(bandwidth)):
                length[e] += (rate[e] / bandwidth[e]) ** p / bandwidth[e]
    return length


def _fit(bandwidth: Float64, path: Int32, hops: Int64, size: Float64, late: Float64, rate: Float64) -> float:
    """The least T, and into ``rate`` what each link carries then."""
    rate[:] = 0.0
    for i in range(len(size)):
        for k in range(hops[i]):
            rate[path[i, k]] += size[i]
    busy, latest = float((rate / bandwidth).max()), float(late.max())
    low, high = max(busy, latest), busy + latest
    if latest <= 0.0:
        rate /= busy
        return busy
    while True:
        end = 0.5 * (low + high) if high - low > NEAR * high else high
        rate[:] = 0.0
        for i in range(len(size)):
            for k in range(hops[i]):
                rate[path[i, k]] += size[i] / (end - late[i])
        if end == high:
            return high
        if (rate / bandwidth).max() > 1.0:
            low = end
        else:
            high = end


def _search(
    offsets: Int64, links: Int64, dst: Int64, cost: Float64, through: Bool, root: int, distance: Float64, by: Int64,
    heap: list[tuple[float, int]],
) -> None:  # fmt: skip
    """Fill ``by`` with the link by which the cheapest path from ``root`` comes to each node (Dijkstra)."""
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
