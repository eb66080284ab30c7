"""Trees over all ranks at the prices of links.

A tree grows from its root: next joins the rank that is reached from a rank in it at the lowest price, of equal ones the
one over the fewest ranks. A part of what the way from the root to that rank costs counts too, which makes trees
shallow; if all of it counts, each way is a cheapest one. A route leads through nodes that pass on what comes. Where a
way leads through a relay, which stores what comes, the relay joins the tree, and others may be reached from it.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]


class Ways(NamedTuple):
    """The links that leave each node; of trees that lead to their root those that enter it, turned round."""

    offsets: Int64  # CSR, for each node its links
    links: Int64
    tail: Int64  # int64[links], by link
    head: Int64
    joins: Bool  # bool[nodes], whether a node is a rank
    passes: Bool  # bool[nodes], whether it passes on what comes
    relays: Bool  # bool[nodes], whether it stores and sends on what comes, though it is no rank


def grow(root: int, price: Int64, away: int, ways: Ways) -> tuple[Int64, Int64, Int64, Int64]:
    """A tree from ``root``.

    Args:
        price: int64[links], at least 1.
        away: the price of a way from the root is divided by this where a rank at its end sends on.
    Returns:
        int64[nodes of the tree - 1], the ranks and relays that it reaches in the order in which they join it, and the
        one before each; and the routes to them, as offsets and links.
    """
    offsets, links, tail, head, joins, passes, relays = ways
    n = len(joins)
    far = np.iinfo(np.int64).max
    cost, depth = np.full(n, far), np.full(n, far)
    by = np.full(n, -1, dtype=np.int64)
    joined = np.zeros(n, dtype=np.bool_)
    order, before = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    ends = np.zeros(n + 1, dtype=np.int64)
    route, passed = [0], [0]
    route.clear()
    heap = [(0, 0, root)]
    cost[root], depth[root], joined[root] = 0, 0, True
    way, start = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    count = 0
    while len(heap) > 0:
        paid, deep, v = heappop(heap)
        if (joined[v] and not relays[v] and v != root) or paid != cost[v] or deep != depth[v]:
            continue
        if joins[v]:
            joined[v] = True
            if v != root:
                u = v
                passed.clear()
                while u == v or not joined[u]:
                    passed.append(by[u])
                    u = tail[by[u]]
                way[v] = way[u] + paid - start[u]
                last = u
                for i in range(len(passed) - 1, -1, -1):
                    w = head[passed[i]]
                    route.append(passed[i])
                    if w == v or relays[w]:
                        order[count], before[count], ends[count + 1] = w, last, len(route)
                        count, last = count + 1, w
                    if w != v and relays[w]:
                        joined[w] = True
                        way[w] = way[u] + cost[w] - start[u]
                        start[w] = way[w] // away
                        cost[w], depth[w] = start[w], depth[w] + 1
                        heappush(heap, (start[w], depth[w], w))
                start[v] = way[v] // away
            paid, deep = start[v], deep + 1
        elif not passes[v] and not relays[v]:
            continue
        for i in range(offsets[v], offsets[v + 1]):
            link = links[i]
            w = head[link]
            total = paid + price[link]
            if not joined[w] and (total < cost[w] or (total == cost[w] and deep < depth[w])):
                cost[w], depth[w], by[w] = total, deep, link
                heappush(heap, (total, deep, w))
    return order[:count], before[:count], ends[: count + 1], np.array(route, dtype=np.int64)


def longest_way(node: Int64, before: Int64, hop: NDArray[np.float64], nodes: int) -> float:
    """The longest way from the root of a tree: the sum of its hops.

    Args:
        node, before: as :func:`grow` returns them.
        hop: float64[ranks - 1], the length of the last hop to each.
        nodes: the number of nodes.
    """
    length, longest = np.zeros(nodes), 0.0
    for i in range(len(node)):
        length[node[i]] = length[before[i]] + hop[i]
        longest = max(longest, length[node[i]])
    return longest
