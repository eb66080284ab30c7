"""The event loop of the simulator: transfers ask for their links in the order they become ready."""

from heapq import heappop, heappush

import numpy as np

ROUTER = 1
EPS = 1e-12


def _fits(t, seconds, rate, link, bandwidth, use_head, use_next, use_start, use_end, use_rate):
    """``t``, or a later time at which to try again: has the link ``rate`` to spare from ``t``?

    Only ends of reservations are looked at; between them the load does not fall.
    """
    end = t + seconds
    slack = EPS * max(abs(end), seconds)
    peak = 0.0
    again = np.inf
    counted = False
    i = use_head[link]
    while i >= 0:
        if use_start[i] < end - slack and use_end[i] > t + slack:
            # the load at the start of this reservation (or, once, at t), which is where it can peak
            at = max(use_start[i], t)
            load = 0.0
            j = -1 if counted and at == t else use_head[link]
            counted = counted or at == t
            while j >= 0:
                if use_start[j] <= at + slack and use_end[j] > at + slack:
                    load += use_rate[j]
                j = use_next[j]
            peak = max(peak, load)
            again = min(again, use_end[i])
        i = use_next[i]
    if peak + rate <= bandwidth * (1 + 1e-9):
        return t
    return again


def run(
    src, dst_offsets, dst_nodes, route_offsets, route_links, dep_offsets, dep_values,
    chunk, asked, seconds, rate, exclusive,
    link_src, link_dst, latency, bandwidth, kind, nodes,
):  # fmt: skip
    """Run every transfer when its dependencies and its links let it.

    Args:
        src: a transfer that goes nowhere (an event) has a node of its own, the last one.
        asked: float64[transfers], no transfer starts before.
        seconds: float64[transfers], how long each occupies a link.
        rate: float64[transfers], bytes/s while it does.
        exclusive: a link serves one transfer at a time, whatever its rate.
    Returns:
        start: float64[transfers]; arrival: float64[receivers]; hop: float64[hops], the delay of
        each link of a route against its source; done: the number of transfers that ran.
    """
    n = len(src)
    links = len(link_src)
    start = np.full(n, np.inf)
    arrival = np.zeros(len(dst_nodes))
    hop = np.zeros(len(route_links))
    delay = np.zeros(len(dst_nodes))
    node_delay = np.zeros(nodes)

    # how much later each link of a route, and each receiver, sees the bytes
    for k in range(n):
        node_delay[src[k]] = 0.0
        for i in range(route_offsets[k], route_offsets[k + 1]):
            link = route_links[i]
            hop[i] = node_delay[link_src[link]]
            node_delay[link_dst[link]] = hop[i] + latency[link]
        for i in range(dst_offsets[k], dst_offsets[k + 1]):
            delay[i] = node_delay[dst_nodes[i]]

    # dependents, as CSR
    next_offsets = np.zeros(n + 1, dtype=np.int64)
    for i in range(len(dep_values)):
        next_offsets[dep_values[i] + 1] += 1
    for k in range(n):
        next_offsets[k + 1] += next_offsets[k]
    fill = next_offsets[:n].copy()
    dependents = np.empty(len(dep_values), dtype=np.int64)
    missing = np.empty(n, dtype=np.int64)
    for k in range(n):
        missing[k] = dep_offsets[k + 1] - dep_offsets[k]
        for i in range(dep_offsets[k], dep_offsets[k + 1]):
            d = dep_values[i]
            dependents[fill[d]] = k
            fill[d] += 1

    free = np.zeros(links)
    use_head = np.full(links, -1, dtype=np.int64)
    room = 1 if exclusive else len(route_links) + 1
    use_next = np.empty(room, dtype=np.int64)
    use_start, use_end, use_rate = np.empty(room), np.empty(room), np.empty(room)
    uses = 0

    ready = asked.copy()
    heap = [(0.0, 0)]
    heap.clear()
    for k in range(n):
        if missing[k] == 0:
            heappush(heap, (ready[k], k))
    done = 0
    while len(heap) > 0:
        t, k = heappop(heap)
        now = t
        if exclusive:
            for i in range(route_offsets[k], route_offsets[k + 1]):
                t = max(t, free[route_links[i]] - hop[i])
            for i in range(route_offsets[k], route_offsets[k + 1]):
                free[route_links[i]] = t + hop[i] + seconds[k]
        else:
            moved = True
            while moved:
                moved = False
                for i in range(route_offsets[k], route_offsets[k + 1]):
                    link = route_links[i]
                    # what ended before this moment never matters again
                    j = use_head[link]
                    before = -1
                    while j >= 0:
                        if use_end[j] <= now:
                            if before < 0:
                                use_head[link] = use_next[j]
                            else:
                                use_next[before] = use_next[j]
                        else:
                            before = j
                        j = use_next[j]
                    s = _fits(
                        t + hop[i], seconds[k], rate[k], link, bandwidth[link],
                        use_head, use_next, use_start, use_end, use_rate,
                    )  # fmt: skip
                    if s > t + hop[i]:
                        t = s - hop[i]
                        moved = True
            for i in range(route_offsets[k], route_offsets[k + 1]):
                link = route_links[i]
                use_start[uses], use_end[uses] = t + hop[i], t + hop[i] + seconds[k]
                use_rate[uses], use_next[uses] = rate[k], use_head[link]
                use_head[link] = uses
                uses += 1
        start[k] = t
        done += 1
        everywhere = t + seconds[k]
        for i in range(dst_offsets[k], dst_offsets[k + 1]):
            arrival[i] = t + delay[i] + seconds[k]
            everywhere = max(everywhere, arrival[i])
        for i in range(next_offsets[k], next_offsets[k + 1]):
            m = dependents[i]
            # a dependency at another node is known there when it has arrived everywhere
            when = everywhere
            for j in range(dst_offsets[k], dst_offsets[k + 1]):
                if dst_nodes[j] == src[m]:
                    when = arrival[j]
                    if kind[src[m]] == ROUTER and chunk[k] == chunk[m]:
                        # cut-through: not before the first byte, no byte before it came
                        when = max(t + delay[j], arrival[j] - seconds[m])
            ready[m] = max(ready[m], when)
            missing[m] -= 1
            if missing[m] == 0:
                heappush(heap, (ready[m], m))
    return start, arrival, hop, done
