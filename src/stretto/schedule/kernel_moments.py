"""Starts of a timed plan made exact: see :mod:`stretto.schedule.moments`."""

import numpy as np

KEPT = 5e-13
"""Moments that agree to this part of themselves are left as they are."""

PASSES = 16
"""How often at most all transfers are looked at; mostly twice is enough, as the second time nothing moves."""


def settle(
    start, seconds, lag, asked, chunk, relays, route_offsets, route_links, hop, dep_offsets, dep_values,
    by_end, link_offsets, near,
):  # fmt: skip
    """Starts not before what each transfer waits for, nor before what was to end on its links as it begins has ended.

    Args:
        start: float64[transfers], right but for rounding; not changed.
        seconds, lag: float64[transfers], on every link of a route, and the latency from source to receiver.
        asked: float64[transfers], none starts before.
        chunk: int32[transfers]. relays: bool[transfers], whether the source sends on what it has not whole.
        hop: float64[route], how much later than it starts its links carry a transfer.
        dep_offsets, dep_values: for each transfer those that it waits for, which come before it.
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


def _moments(begin, seconds, route_offsets, route_links, by_end, link_offsets, near):
    """Ends on a link that are near each other are a group: that of each hop, and those that are near its beginning."""
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
