"""Starts of a timed plan made exact, one pass in causal order: see :mod:`stretto.planners.moments`."""

import numpy as np

KEPT = 5e-13
"""Moments that agree to this part of themselves are left as they are."""


def settle(
    start, seconds, lag, asked, chunk, relays, route_offsets, route_links, hop, dep_offsets, dep_values,
    links, tolerance,
):  # fmt: skip
    """Starts not before what each transfer waits for, and not before its links are free of what ended as it began.

    Args:
        start: float64[transfers], right but for rounding; not changed.
        seconds, lag: float64[transfers], on every link of a route, and the latency from source to receiver.
        asked: float64[transfers], none starts before.
        chunk: int32[transfers]. relays: bool[transfers], whether the source sends on what it has not whole.
        hop: float64[route], how much later than it starts its links carry a transfer.
        dep_offsets, dep_values: for each transfer those that it waits for, which come before it.
        tolerance: what ends so many seconds after another begins was meant to end before.
    Returns:
        float64[transfers].
    """
    n = len(start)
    place = np.empty(n)
    for k in range(n):
        place[k] = start[k]
        for i in range(dep_offsets[k], dep_offsets[k + 1]):
            place[k] = max(place[k], place[dep_values[i]])
    exact = np.empty(n)
    free = np.zeros(links)
    # what each link carries still: lists of hops, by when they were to end and when they do
    first = np.full(links, -1, dtype=np.int64)
    after = np.empty(len(route_links), dtype=np.int64)
    was, end = np.empty(len(route_links)), np.empty(len(route_links))
    for k in np.argsort(place, kind="mergesort"):
        need = asked[k]
        for i in range(dep_offsets[k], dep_offsets[k + 1]):
            d = dep_values[i]
            came = exact[d] + lag[d] + seconds[d]
            if relays[k] and chunk[d] == chunk[k]:
                came = max(exact[d] + lag[d], came - seconds[k])
            need = max(need, came)
        for i in range(route_offsets[k], route_offsets[k + 1]):
            link = route_links[i]
            before, use = -1, first[link]
            while use >= 0:
                if was[use] > start[k] + hop[i] + tolerance:
                    before = use
                else:
                    free[link] = max(free[link], end[use])
                    if before < 0:
                        first[link] = after[use]
                    else:
                        after[before] = after[use]
                use = after[use]
            need = max(need, free[link] - hop[i])
        exact[k] = need if start[k] < need - KEPT * need else start[k]
        for i in range(route_offsets[k], route_offsets[k + 1]):
            link = route_links[i]
            was[i], end[i] = start[k] + hop[i] + seconds[k], exact[k] + hop[i] + seconds[k]
            after[i], first[link] = first[link], i
    return exact
