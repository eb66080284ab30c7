"""List schedules: of the flows that are ready and whose links are idle, the most urgent starts.

A flow has each link of its route for itself from when its first byte comes there until its last byte has left (the
non-concurrent model of the WAN paper, section III-C2). Where links have no latency, as in the paper, none stays idle
while a ready flow could have its whole route.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

TIME_TOLERANCE = 1e-12
"""Part of a moment within which a link counts as idle."""


class Flows(NamedTuple):
    """Flows to schedule.

    Attributes:
        seconds: float64[flows], on the whole route.
        release_s: float64[flows], no flow starts before.
        route_offsets, route_links: CSR, the links of each flow.
        route_lag: float64[links of routes], how much later than its source each link carries a flow.
        next_offsets, dependents: CSR, for each flow those that wait for it.
        next_lag: float64[dependents], the latency until the source of each knows that the flow has ended.
        dependency_count: int64[flows], how many flows each waits for.
        guard_s: seconds for which a link rests after each flow.
    """

    seconds: Float64
    release_s: Float64
    route_offsets: Int64
    route_links: Int64
    route_lag: Float64
    next_offsets: Int64
    dependents: Int64
    next_lag: Float64
    dependency_count: Int64
    guard_s: float


def schedule(urgency: Float64, flows: Flows, link_count: int) -> Float64:
    """float64[flows], the starts of all flows.

    Args:
        urgency: float64[flows], the highest goes first.
    """
    seconds, release_s, route_offsets, route_links, route_lag = flows[:5]
    next_offsets, dependents, next_lag, dependency_count, guard_s = flows[5:]
    n = len(seconds)
    start = np.zeros(n)
    ready = release_s.copy()
    missing = dependency_count.copy()
    free = np.zeros(link_count)
    waiting = np.empty(n, dtype=np.int64)  # ready flows, the most urgent first
    count = 0
    events = [(0.0, 0)]
    events.clear()
    for k in range(n):
        if missing[k] == 0:
            heappush(events, (ready[k], k))
    while len(events) > 0:
        now, k = heappop(events)
        slack = TIME_TOLERANCE * now
        while True:
            # k < n: flow k becomes ready; else the first link of flow k - n is free again, or its last one
            if k < n:
                j = count
                while j > 0 and urgency[waiting[j - 1]] < urgency[k]:
                    waiting[j] = waiting[j - 1]
                    j -= 1
                waiting[j] = k
                count += 1
            if len(events) == 0 or events[0][0] > now + slack:
                break
            _, k = heappop(events)
        kept = 0
        for j in range(count):
            k = waiting[j]
            idle = True
            for i in range(route_offsets[k], route_offsets[k + 1]):
                if free[route_links[i]] > now + route_lag[i] + slack:
                    idle = False
                    break
            if not idle:
                waiting[kept] = k
                kept += 1
                continue
            start[k] = now
            end = now + seconds[k]
            rested = end + guard_s
            last = rested
            for i in range(route_offsets[k], route_offsets[k + 1]):
                free[route_links[i]] = rested + route_lag[i]
                last = max(last, rested + route_lag[i])
            heappush(events, (rested, n + k))
            if last > rested:
                heappush(events, (last, n + k))
            for i in range(next_offsets[k], next_offsets[k + 1]):
                m = dependents[i]
                ready[m] = max(ready[m], end + next_lag[i])
                missing[m] -= 1
                if missing[m] == 0:
                    heappush(events, (ready[m], m))
        count = kept
    return start
