"""Make the starts of a timed plan exact, see :mod:`stretto.schedule.moments`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bool = NDArray[np.bool_]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

KEPT = 5e-13
"""Share of a moment by which it may be too early and is left as it is."""

PASSES = 16
"""Passes over all transfers at most; two are mostly enough, since nothing moves in the second."""


def settle(
    start: Float64, seconds: Float64, lag: Float64, asked: Float64, chunk: Int32, relays: Bool, route_offsets: Int64,
    route_links: Int32, hop: Float64, dep_offsets: Int64, dep_values: Int32, by_end: Int64, link_offsets: Int64,
    near: float,
) -> Float64:  # fmt: skip
    """Let no transfer start before what it waits for, nor before the transfers that end on its links as it begins.

    Args:
        start: float64[transfers], right but for rounding; not changed.
        seconds, lag: float64[transfers], on every link of a route, and the latency from source to receiver.
        asked: float64[transfers], the moments before which none starts.
        chunk: int32[transfers]. relays: bool[transfers], whether the source sends on what has not arrived whole.
        hop: float64[route], how much later than it starts its links carry a transfer.
        dep_offsets, dep_values: CSR, for each transfer the earlier ones that it waits for.
        by_end, link_offsets: the hops of each link by when they end.
        near: seconds between two moments that are one; less than a quarter of each of ``seconds``.
    Returns:
        float64[transfers].
    """
    n, hops = len(start), len(route_links)
    place, begin = np.empty(n), np.empty(hops)
    for k in range(n):
        place[k] = start[k]
        for i in range(dep_offsets[k], dep_offsets[k + 1]):
            place[k] = max(place[k], place[dep_values[i]])
        for i in range(route_offsets[k], route_offsets[k + 1]):
            begin[i] = start[k] + hop[i]
    group, awaited = _moments(begin, seconds, route_offsets, route_links, by_end, link_offsets, near)
    order = np.argsort(place, kind="mergesort")
    exact, ended = start.copy(), np.full(hops, -np.inf)
    for _ in range(PASSES):
        moved = False
        for k in order:
            need = asked[k]
            for i in range(dep_offsets[k], dep_offsets[k + 1]):
                d = dep_values[i]
                came = exact[d] + lag[d] + seconds[d]
                if relays[k] and chunk[d] == chunk[k]:
                    came = max(exact[d] + lag[d], came - seconds[k])
                need = max(need, came)
            for i in range(route_offsets[k], route_offsets[k + 1]):
                for g in range(awaited[i, 0], awaited[i, 1]):
                    need = max(need, ended[g] - hop[i])
            if exact[k] < need - KEPT * need:
                exact[k] = need
            for i in range(route_offsets[k], route_offsets[k + 1]):
                end = exact[k] + hop[i] + seconds[k]
                if end > ended[group[i]]:
                    ended[group[i]] = end
                    moved = True
        if not moved:
            break
    return exact


def _moments(
    begin: Float64, seconds: Float64, route_offsets: Int64, route_links: Int32, by_end: Int64, link_offsets: Int64,
    near: float,
) -> tuple[Int64, Int64]:  # fmt: skip
    """Group the ends on each link that are near each other.

    Returns:
        int64[hops], the group of the end of each hop; int64[hops, 2], the groups that are near its beginning.
    """
    hops = len(begin)
    end = np.empty(hops)
    for k in range(len(seconds)):
        for i in range(route_offsets[k], route_offsets[k + 1]):
            end[i] = begin[i] + seconds[k]
    group, first, groups = np.empty(hops, dtype=np.int64), np.empty(hops), 0
    group_offsets = np.zeros(len(link_offsets), dtype=np.int64)
    for link in range(len(link_offsets) - 1):
        group_offsets[link] = groups
        for j in range(link_offsets[link], link_offsets[link + 1]):
            i = by_end[j]
            if groups == group_offsets[link] or end[i] > first[groups - 1] + near:
                first[groups] = end[i]
                groups += 1
            group[i] = groups - 1
    group_offsets[-1] = groups
    awaited = np.empty((hops, 2), dtype=np.int64)
    for i in range(hops):
        low, high = group_offsets[route_links[i]], group_offsets[route_links[i] + 1]
        awaited[i, 0] = low + np.searchsorted(first[low:high], begin[i] - 2 * near)
        awaited[i, 1] = low + np.searchsorted(first[low:high], begin[i] + near)
    return group, awaited
