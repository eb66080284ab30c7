"""The fluid part of the simulator: rates that change whenever a transfer becomes ready or ends.

A transfer is one pipe with the same rate on each link of its route. Links are shared by classes,
the highest first: inside a class by progressive filling (weighted max-min), and a lower class
gets what the higher ones leave.
"""

from heapq import heappop, heappush

import numpy as np

DONE = 1e-11


def delays(src, dst_offsets, dst_nodes, route_offsets, route_links, link_src, link_dst, latency, nodes):
    """How much later than at its source each link of a route, and each receiver, sees the bytes."""
    hop = np.zeros(len(route_links))
    delay = np.zeros(len(dst_nodes))
    at = np.zeros(nodes)
    for k in range(len(src)):
        at[src[k]] = 0.0
        for i in range(route_offsets[k], route_offsets[k + 1]):
            link = route_links[i]
            hop[i] = at[link_src[link]]
            at[link_dst[link]] = hop[i] + latency[link]
        for i in range(dst_offsets[k], dst_offsets[k + 1]):
            delay[i] = at[dst_nodes[i]]
    return hop, delay


def reserved(src, dst_offsets, dst_nodes, delay, dep_offsets, dep_values, asked, size, change_at, rate):
    """Runs where every transfer has its own rate, whoever else is active.

    Args:
        asked: float64[transfers], no transfer starts before.
        change_at: float64[changes], when rates change.
        rate: float64[changes + 1, transfers], bytes/s before the first change, after it, ...
    Returns:
        start, finish: float64[transfers].
    """
    start, finish = asked.copy(), np.empty(len(src))
    changes = len(change_at)
    for k in range(len(src)):
        for e in range(dep_offsets[k], dep_offsets[k + 1]):
            d = dep_values[e]
            start[k] = max(start[k], finish[d] + _delay_to(d, src[k], dst_offsets, dst_nodes, delay))
        at, left = start[k], size[k]
        c = np.searchsorted(change_at, at, side="right")
        while c < changes and left > rate[c, k] * (change_at[c] - at):
            left -= rate[c, k] * (change_at[c] - at)
            at = change_at[c]
            c += 1
        finish[k] = at + left / rate[c, k]
    return start, finish


def _delay_to(d, node, dst_offsets, dst_nodes, delay):
    """From the end of transfer ``d`` until ``node`` has its bytes, or everyone if it does not go there."""
    longest = 0.0
    for i in range(dst_offsets[d], dst_offsets[d + 1]):
        if dst_nodes[i] == node:
            return delay[i]
        longest = max(longest, delay[i])
    return longest


def _fill(members, count, weight, rate, left, route_offsets, route_links, base, on, used, room):
    """Weighted max-min rates of ``members[:count]`` out of what is ``left`` of each link.

    Args:
        rate: float64[transfers], -1 for each member; set here.
        left: float64[links], bytes/s; reduced by what is given away.
        base, on, used: the active transfers (of any class) of link e are on[base[e]:base[e] + used[e]].
        room: scratch, (float64[links] of zeros, float64[links], int64[links]).
    """
    heavy, first, live = room
    lives = 0
    for j in range(count):
        k = members[j]
        for i in range(route_offsets[k], route_offsets[k + 1]):
            link = route_links[i]
            if heavy[link] == 0.0:
                live[lives] = link
                lives += 1
            heavy[link] += weight[k]
    for j in range(lives):
        first[live[j]] = heavy[live[j]]
    while True:
        # the link that is full first as all rise together; what rounding leaves of a weight is none
        tightest, level = -1, np.inf
        kept = 0
        for j in range(lives):
            link = live[j]
            if heavy[link] > 1e-12 * first[link]:
                live[kept] = link
                kept += 1
                if left[link] < level * heavy[link]:
                    tightest, level = link, left[link] / heavy[link]
            else:
                heavy[link] = 0.0
        lives = kept
        if tightest < 0:
            break
        level = max(level, 0.0)
        for i in range(base[tightest], base[tightest] + used[tightest]):
            k = on[i]
            if rate[k] < 0.0:
                given = level * weight[k]
                rate[k] = given
                for e in range(route_offsets[k], route_offsets[k + 1]):
                    left[route_links[e]] -= given
                    heavy[route_links[e]] -= weight[k]
        left[tightest] = 0.0
        heavy[tightest] = 0.0


def _share(active, count, rank, weight, rate, left, route_offsets, route_links, base, on, used, room, members):
    """Rates of ``active[:count]``, which are sorted by ``rank``: class after class."""
    a = 0
    while a < count:
        b = a + 1
        while b < count and rank[active[b]] == rank[active[a]]:
            b += 1
        if b == a + 1:
            k = active[a]
            most = np.inf
            for i in range(route_offsets[k], route_offsets[k + 1]):
                most = min(most, left[route_links[i]])
            most = max(most, 0.0)
            rate[k] = most
            for i in range(route_offsets[k], route_offsets[k + 1]):
                left[route_links[i]] -= most
        else:
            for j in range(a, b):
                members[j - a] = active[j]
                rate[active[j]] = -1.0
            _fill(
                members, b - a, weight, rate, left, route_offsets, route_links, base, on, used, room,
            )  # fmt: skip
        a = b


def run(
    src, dst_offsets, dst_nodes, route_offsets, route_links, delay, dep_offsets, dep_values,
    size, asked, rank, weight, bandwidth, change_at, change_to,
):  # fmt: skip
    """Run every transfer when it is ready, at the rate that sharing leaves it.

    Args:
        delay: float64[receivers], latency from source to receiver.
        asked: float64[transfers], no transfer starts before.
        rank: int64[transfers], the class, lowest number served first.
        weight: float64[transfers], of a transfer inside its class.
        change_at, change_to: float64[changes] and float64[changes, links]: from when links have
            other bandwidths; of length 0 for constant ones.
    Returns:
        start, finish: float64[transfers], inf for one that never ran.
    """
    n = len(src)
    links = len(bandwidth)
    start, finish = np.full(n, np.inf), np.full(n, np.inf)

    next_offsets = np.zeros(n + 1, dtype=np.int64)
    for i in range(len(dep_values)):
        next_offsets[dep_values[i] + 1] += 1
    for k in range(n):
        next_offsets[k + 1] += next_offsets[k]
    place = next_offsets[:n].copy()
    dependents = np.empty(len(dep_values), dtype=np.int64)
    missing = np.empty(n, dtype=np.int64)
    for k in range(n):
        missing[k] = dep_offsets[k + 1] - dep_offsets[k]
        for i in range(dep_offsets[k], dep_offsets[k + 1]):
            dependents[place[dep_values[i]]] = k
            place[dep_values[i]] += 1

    # the active transfers of each link, side by side; which hop each is there for, and where each hop is
    base = np.zeros(links + 1, dtype=np.int64)
    for link in route_links:
        base[link + 1] += 1
    for link in range(links):
        base[link + 1] += base[link]
    used = np.zeros(links, dtype=np.int64)
    on = np.empty(len(route_links), dtype=np.int64)
    on_hop = np.empty(len(route_links), dtype=np.int64)
    where = np.empty(len(route_links), dtype=np.int64)
    room = (np.zeros(links), np.zeros(links), np.zeros(links, dtype=np.int64))
    active = np.empty(n, dtype=np.int64)
    members = np.empty(n, dtype=np.int64)
    count = 0
    rate, remaining = np.zeros(n), size.copy()
    width = bandwidth.copy()
    change = 0

    ready = asked.copy()
    heap = [(0.0, 0)]
    heap.clear()
    for k in range(n):
        if missing[k] == 0:
            heappush(heap, (ready[k], k))
    now = 0.0
    while count > 0 or len(heap) > 0:
        first = np.inf
        for j in range(count):
            k = active[j]
            if rate[k] > 0.0:
                first = min(first, remaining[k] / rate[k])
        until = now + first
        if len(heap) > 0:
            until = min(until, heap[0][0])
        if change < len(change_at):
            until = min(until, change_at[change])
        if until == np.inf:
            break
        slack = DONE * until
        passed = max(until - now, 0.0)
        # those that end now, or within rounding of it, end together
        kept = 0
        for j in range(count):
            k = active[j]
            remaining[k] -= rate[k] * passed
            if remaining[k] <= rate[k] * slack:
                finish[k] = until
                for i in range(route_offsets[k], route_offsets[k + 1]):
                    link = route_links[i]
                    used[link] -= 1
                    last = base[link] + used[link]
                    on[where[i]], on_hop[where[i]] = on[last], on_hop[last]
                    where[on_hop[last]] = where[i]
                for i in range(next_offsets[k], next_offsets[k + 1]):
                    m = dependents[i]
                    when = until + _delay_to(k, src[m], dst_offsets, dst_nodes, delay)
                    ready[m] = max(ready[m], when)
                    missing[m] -= 1
                    if missing[m] == 0:
                        heappush(heap, (ready[m], m))
            else:
                active[kept] = k
                kept += 1
        count = kept
        now = until
        while len(heap) > 0 and heap[0][0] <= now + slack:
            _, k = heappop(heap)
            start[k] = max(now, ready[k])
            j = count
            while j > 0 and (rank[active[j - 1]] > rank[k]):
                active[j] = active[j - 1]
                j -= 1
            active[j] = k
            count += 1
            for i in range(route_offsets[k], route_offsets[k + 1]):
                link = route_links[i]
                where[i] = base[link] + used[link]
                on[where[i]], on_hop[where[i]] = k, i
                used[link] += 1
        while change < len(change_at) and change_at[change] <= now:
            for link in range(links):
                width[link] = change_to[change, link]
            change += 1
        left = width.copy()
        _share(
            active, count, rank, weight, rate, left, route_offsets, route_links, base, on, used, room, members,
        )  # fmt: skip
    return start, finish
