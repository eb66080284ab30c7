"""List schedules: of the flows that are ready and whose links are idle, the most urgent starts.

A flow has its route for itself until it ends (the non-concurrent model of the WAN paper, section
III-C2). No link stays idle while a ready flow could have its whole route.
"""

from heapq import heappop, heappush

import numpy as np


def schedule(
    urgency, seconds, lag, asked, route_offsets, route_links, next_offsets, dependents, dep_count, links,
):  # fmt: skip
    """Starts of all flows.

    Args:
        urgency: float64[flows], the highest goes first.
        seconds: float64[flows], on its route.
        lag: float64[flows], latency from source to receiver.
        asked: float64[flows], none starts before.
        next_offsets, dependents: for each flow those that wait for it.
        dep_count: int64[flows], how many each waits for.
    """
    n = len(seconds)
    start = np.zeros(n)
    ready = asked.copy()
    missing = dep_count.copy()
    free = np.zeros(links)
    waiting = np.empty(n, dtype=np.int64)  # ready flows, the most urgent first
    count = 0
    events = [(0.0, 0)]
    events.clear()
    for k in range(n):
        if missing[k] == 0:
            heappush(events, (ready[k], k))
    while len(events) > 0:
        now, k = heappop(events)
        slack = 1e-12 * now
        while True:
            # k < n: flow k becomes ready; else flow k - n leaves its links
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
                if free[route_links[i]] > now + slack:
                    idle = False
                    break
            if not idle:
                waiting[kept] = k
                kept += 1
                continue
            start[k] = now
            end = now + seconds[k]
            for i in range(route_offsets[k], route_offsets[k + 1]):
                free[route_links[i]] = end
            heappush(events, (end, n + k))
            for i in range(next_offsets[k], next_offsets[k + 1]):
                m = dependents[i]
                ready[m] = max(ready[m], end + lag[k])
                missing[m] -= 1
                if missing[m] == 0:
                    heappush(events, (ready[m], m))
        count = kept
    return start
