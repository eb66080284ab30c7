"""Routes that a network itself takes: the same for all traffic to a node, as static routing has them."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

Bool = NDArray[np.bool_]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

EQUAL_LATENCY = 1e-9
"""Part of a route's latency within which two routes are equally long."""


def next_links(
    targets: Int64, key: Int64, in_offsets: Int64, in_links: Int64, out_offsets: Int64, out_links: Int64,
    src: Int64, dst: Int64, latency_s: Float64, transit: Bool, ends: Bool,
) -> Int32:  # fmt: skip
    """The link by which each node sends on what is for each target.

    Of the routes to a target the one through the fewest nodes that do not forward at no charge (``transit``) is taken;
    of these the one with the fewest links, then the one of least latency. Where several next links are equally good,
    the target decides: number ``key`` of them, counted round.

    Args:
        targets, key: int64[targets], a node, and the number that spreads targets over equal links.
        in_offsets, in_links, out_offsets, out_links: the links into and out of each node, in link order.
        transit: bool[nodes], what routes pass through at no charge.
        ends: bool[nodes], the nodes that must have a route; once they do, no further ones are looked for.
    Returns:
        int32[targets, nodes], -1 at the target itself and where no route leads to it, or none was looked for.
    """
    nodes = len(transit)
    table = np.full((len(targets), nodes), -1, dtype=np.int32)
    hops = np.zeros(nodes)
    far_s = np.zeros(nodes)
    ways = np.zeros(nodes, dtype=np.int64)
    queue = [(0.0, 0)]
    for row in range(len(targets)):
        target = targets[row]
        hops[:] = np.inf
        far_s[:] = np.inf
        hops[target], far_s[target] = 0.0, 0.0
        queue.clear()
        heappush(queue, (0.0, target))
        level = -1.0
        while len(queue) > 0:
            length, v = heappop(queue)
            if length > level:
                # from here on nothing gets a route that is shorter than one link more
                level = length
                if _all_within(hops, ends, level + 1.0):
                    break
            if length > hops[v]:
                continue
            through = 1.0 if transit[v] or v == target else 1.0 + nodes
            for i in range(in_offsets[v], in_offsets[v + 1]):
                u = src[in_links[i]]
                if length + through < hops[u]:
                    hops[u] = length + through
                    heappush(queue, (hops[u], u))
        _choose(
            row, target, key[row], in_offsets, in_links, out_offsets, out_links, src, dst, latency_s, transit, hops,
            far_s, ways, table,
        )  # fmt: skip
    return table


def _all_within(hops: Float64, ends: Bool, most: float) -> bool:
    """Whether each node of ``ends`` has a route of at most that length."""
    for v in range(len(ends)):
        if ends[v] and hops[v] > most:
            return False
    return True


def _choose(
    row: int, target: int, key: int, in_offsets: Int64, in_links: Int64, out_offsets: Int64, out_links: Int64,
    src: Int64, dst: Int64, latency_s: Float64, transit: Bool, hops: Float64, far_s: Float64, ways: Int64,
    table: Int32,
) -> None:  # fmt: skip
    """Fill in a row of the table: the nearest nodes first, so that latencies further on are known.

    Args:
        ways: int64[nodes], room.
    """
    nodes = len(transit)
    ways[:] = 0
    farthest = 0.0
    for v in range(nodes):
        if hops[v] != np.inf:
            farthest = max(farthest, hops[v])
    for w in np.argsort(hops):
        through = 1.0 if transit[w] or w == target else 1.0 + nodes
        if w != target and ways[w] > 1:
            _choose_way(w, row, target, key, out_offsets, out_links, dst, latency_s, transit, hops, far_s, table)
        if hops[w] + through > farthest:
            # nothing has a route through this node; where all are joined directly, that leaves the target's links
            continue
        for i in range(in_offsets[w], in_offsets[w + 1]):
            v = src[in_links[i]]
            if hops[w] + through == hops[v] and v != target:
                ways[v] += 1
                table[row, v] = in_links[i]
                far_s[v] = latency_s[in_links[i]] + far_s[w]


def _choose_way(
    v: int, row: int, target: int, key: int, out_offsets: Int64, out_links: Int64, dst: Int64, latency_s: Float64,
    transit: Bool, hops: Float64, far_s: Float64, table: Int32,
) -> None:  # fmt: skip
    """Of several links on shortest routes choose one of least latency, by the target where some are equal."""
    nodes = len(transit)
    least_s, equal = np.inf, 0
    for i in range(out_offsets[v], out_offsets[v + 1]):
        w = dst[out_links[i]]
        through = 1.0 if transit[w] or w == target else 1.0 + nodes
        if hops[w] + through == hops[v]:
            there_s = latency_s[out_links[i]] + far_s[w]
            if there_s < least_s * (1.0 - EQUAL_LATENCY):
                least_s, equal = there_s, 0
            if there_s <= least_s * (1.0 + EQUAL_LATENCY):
                equal += 1
    far_s[v] = least_s
    turn = key % max(equal, 1)
    for i in range(out_offsets[v], out_offsets[v + 1]):
        w = dst[out_links[i]]
        through = 1.0 if transit[w] or w == target else 1.0 + nodes
        if hops[w] + through == hops[v] and latency_s[out_links[i]] + far_s[w] <= least_s * (1.0 + EQUAL_LATENCY):
            if turn == 0:
                table[row, v] = out_links[i]
                break
            turn -= 1


def pairs(
    src_node: Int64, dst_row: Int64, dst_node: Int64, size_bytes: Float64, table: Int32, link_dst: Int64,
    latency_s: Float64, bandwidth: Float64, message_s: Float64,
) -> tuple[Float64, Float64, Int64]:  # fmt: skip
    """How long a message of each pair takes by itself, its latency, and how many links it passes.

    Args:
        src_node, dst_row, dst_node: int64[pairs], the sender, and the receiver by its row in ``table`` and as a node.
        size_bytes: float64[pairs].
    Returns:
        seconds: float64[pairs], for which the slowest link is busy. latency: float64[pairs]. hops: int64[pairs], 0
        where there is no route.
    """
    count = len(src_node)
    seconds, latency, hops = np.zeros(count), np.zeros(count), np.zeros(count, dtype=np.int64)
    for k in range(count):
        v, row = src_node[k], dst_row[k]
        while v != dst_node[k]:
            link = table[row, v]
            if link < 0:
                hops[k] = 0
                break
            seconds[k] = max(seconds[k], size_bytes[k] / bandwidth[link] + message_s[link])
            latency[k] += latency_s[link]
            hops[k] += 1
            v = link_dst[link]
    return seconds, latency, hops


def routes(src_node: Int64, dst_row: Int64, dst_node: Int64, table: Int32, link_dst: Int64, hops: Int64) -> Int32:
    """int32[sum of hops], the links from each sender to its receiver, one pair after the other."""
    links = np.zeros(hops.sum(), dtype=np.int32)
    at = 0
    for k in range(len(src_node)):
        v = src_node[k]
        for _ in range(hops[k]):
            links[at] = table[dst_row[k], v]
            v = link_dst[links[at]]
            at += 1
    return links
