"""Spanning trees of least price among ranks, one after another, each making dearer what it uses.

Edmonds, "Optimum branchings" (J. Res. NBS 1967; Chu and Liu 1965), over the cheapest ways through nodes that only
pass on (Floyd 1962, over these nodes alone).
"""

import numpy as np


def priced(src, dst, seconds, near, inner, ranks, roots, far, steep):
    """In-trees and out-trees of some roots in turn.

    A link costs the seconds for which a tree keeps it busy, over the fourth power of 1 + ``steep`` times the seconds by
    which it is less busy than the busiest so far. (Python and compiled code round an exponential otherwise.)
    Of ways that cost alike the one is taken that is shorter, and of nodes to hang on to, the one nearer to the root.

    Args:
        seconds: float64[links], for which a tree keeps each busy.
        near: float64[links], how long each is, as what that costs relative to the cheapest link.
        inner, ranks: int64[...], nodes that pass on, and those that the trees span.
        roots: int64[trees], as places among the ranks.
        far: float64[ranks, ranks], how far they are from each other, likewise.
    Returns:
        int64[trees, 2, ranks], for copies and for sums the place of each rank's parent, -1 at the root; and as lists
        of links, in the order in which bytes take them, the ways between the two: offsets, links.
    """
    nodes, n, trees = max(src.max(), dst.max()) + 1, len(ranks), len(roots)
    busy = np.zeros(len(src))
    cost, ways, parent = np.empty((n, n)), np.empty((nodes, nodes)), np.empty((trees, 2, n), dtype=np.int64)
    first = np.empty((nodes, nodes), dtype=np.int64)
    offsets = np.zeros(trees * 2 * n + 1, dtype=np.int64)
    links = np.empty(trees * 2 * n * (len(inner) + 1), dtype=np.int64)
    place, count = 0, 0
    for k in range(trees):
        for way in range(2):
            tail, head = (src, dst) if way == 0 else (dst, src)
            idle = 1.0 + steep * (busy.max() - busy)
            price = seconds / (idle * idle * idle * idle)
            least = price.min()
            _cheapest(price + least * near, tail, head, inner, ways, first)
            for i in range(n):
                for j in range(n):
                    cost[i, j] = ways[ranks[i], ranks[j]] + least * far[roots[k], i]
            _least(cost, roots[k], parent[k, way])
            for j in range(n):
                begin = count
                i = parent[k, way, j]
                v = ranks[max(i, 0)]
                while i >= 0 and v != ranks[j]:
                    e = first[v, ranks[j]]
                    links[count], v = e, head[e]
                    busy[e] += seconds[e]
                    count += 1
                if way == 1:
                    links[begin:count] = links[begin:count][::-1].copy()
                place += 1
                offsets[place] = count
    return parent, offsets, links[:count]


def _cheapest(price, tail, head, inner, ways, first):
    """What the cheapest way from node to node costs, and the first link of it."""
    ways[:], first[:] = np.inf, -1
    for e in range(len(tail)):
        if price[e] < ways[tail[e], head[e]]:
            ways[tail[e], head[e]], first[tail[e], head[e]] = price[e], e
    for w in inner:
        for a in range(len(ways)):
            if a == w or ways[a, w] == np.inf:
                continue
            for b in range(len(ways)):
                if b != a and b != w and ways[a, w] + ways[w, b] < ways[a, b]:
                    ways[a, b], first[a, b] = ways[a, w] + ways[w, b], first[a, w]


def _least(cost, root, parent):
    """The out-tree of least cost: every node takes its cheapest edge, and a cycle of these becomes a node.

    Args:
        cost: float64[nodes, nodes], inf where there is no edge; all can be reached from the root.
        parent: int64[nodes], changed in place, -1 at the root.
    """
    n = len(cost)
    most = 2 * n
    price = np.full((most, most), np.inf)
    # the edge that one between contracted nodes stands for
    tail, head = np.empty((most, most), dtype=np.int64), np.empty((most, most), dtype=np.int64)
    for i in range(n):
        for j in range(n):
            tail[i, j], head[i, j] = i, j
            if i != j and j != root:
                price[i, j] = cost[i, j]
    cheapest, within = np.full(most, -1, dtype=np.int64), np.full(most, -1, dtype=np.int64)
    chosen_tail, chosen_head = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    walk = np.full(most, -1, dtype=np.int64)
    nodes = n
    for v in range(n):
        x = v
        while x != root and within[x] < 0 and walk[x] < 0:
            walk[x] = v
            best = -1
            for i in range(nodes):
                if within[i] < 0 and i != x and (best < 0 or price[i, x] < price[best, x]):
                    best = i
            cheapest[x], chosen_tail[x], chosen_head[x] = best, tail[best, x], head[best, x]
            x = best
            if x != root and walk[x] == v:
                _contract(x, nodes, price, tail, head, cheapest, within)
                x = nodes
                nodes += 1
    for x in range(nodes - 1, n - 1, -1):
        # what comes into a cycle replaces the edge of the cycle that ends there
        y = chosen_head[x]
        while within[y] != x:
            y = within[y]
        chosen_tail[y], chosen_head[y] = chosen_tail[x], chosen_head[x]
    for v in range(n):
        parent[v] = -1 if v == root else chosen_tail[v]


def _contract(start, new, price, tail, head, cheapest, within):
    """Make a node of the cycle of cheapest edges through ``start``; coming in costs what it costs more than these."""
    x = start
    while within[x] < 0:
        within[x] = new
        x = cheapest[x]
    for i in range(new):
        if within[i] >= 0:
            continue
        for _ in range(2 * len(price)):
            more = price[i, x] - price[cheapest[x], x]
            if more < price[i, new]:
                price[i, new], tail[i, new], head[i, new] = more, tail[i, x], head[i, x]
            if price[x, i] < price[new, i]:
                price[new, i], tail[new, i], head[new, i] = price[x, i], tail[x, i], head[x, i]
            x = cheapest[x]
            if x == start:
                break
        if cheapest[i] >= 0 and within[cheapest[i]] == new:
            cheapest[i] = new
