"""Trees of least price among ranks, one after another, each making dearer what it uses.

Edmonds, "Optimum branchings" (J. Res. NBS 1967; Chu and Liu 1965), over the cheapest ways through nodes that only
pass on (Floyd 1962, over these nodes alone). Where a tree may have other nodes than ranks, it first grows by the
cheapest way to the next rank (Takahashi and Matsuyama, Math. Japonica 1980), and then such nodes come in and go one by
one while that makes the spanning tree of all its nodes cheaper.
"""

import numpy as np

ROUND, FIRST, DEAR = 16, 8, 1.5
"""After so many trees all roots are compared again, and so many of the cheapest take turns, if they cost at most so
many times as much as the cheapest."""


def priced(src, dst, seconds, near, inner, nodes, wanted, roots, both, far, steep):
    """Out-trees of some roots, or in-trees and out-trees.

    A link costs the seconds for which a tree keeps it busy, over the fourth power of 1 + ``steep`` times the seconds by
    which it is less busy than the busiest so far. (Python and compiled code round an exponential otherwise.)
    Of ways that cost alike the one is taken that is shorter, and of nodes to hang on to, the one nearer to the root.

    Args:
        seconds: float64[links], for which a tree keeps each busy.
        near: float64[links], how long each is, as what that costs relative to the cheapest link.
        inner, nodes: int64[...], nodes that pass on, and those that trees are made of.
        wanted: how many of these, the first ones, are ranks, which every tree reaches.
        roots: int64[trees], as places among the nodes; -1 for one of the cheapest, which take turns.
        both: whether there is an in-tree of each root, too.
        far: float64[nodes, nodes], how far they are from each other, likewise.
    Returns:
        int64[trees, 1 or 2, nodes], for copies and for sums the place of each node's parent, -1 at the root, -2 where
        the tree does not lead; and as lists of links, in the order in which bytes take them, the ways between the two:
        offsets, links.
    """
    n, trees, kinds = len(nodes), len(roots), 2 if both else 1
    busy = np.zeros(len(src))
    cost, parent = np.empty((n, n)), np.empty((trees, kinds, n), dtype=np.int64)
    ways = np.empty((kinds, max(src.max(), dst.max()) + 1, max(src.max(), dst.max()) + 1))
    first = np.empty(ways.shape, dtype=np.int64)
    offsets = np.zeros(trees * kinds * n + 1, dtype=np.int64)
    links = np.empty(trees * kinds * n * (len(inner) + 1), dtype=np.int64)
    turns = np.arange(n)
    place, count = 0, 0
    for k in range(trees):
        if roots[k] < 0 and k % ROUND == 0:
            for way in range(kinds):
                least = _prices(src, dst, seconds, near, busy, steep, way, inner, ways[way], first[way])
            turns = _cheapest_roots(ways, nodes, wanted, least, far, cost)
        root = roots[k] if roots[k] >= 0 else turns[k % len(turns)]
        for way in range(kinds):
            least = _prices(src, dst, seconds, near, busy, steep, way, inner, ways[way], first[way])
            _between(ways[way], nodes, least, far, root, cost)
            if wanted < n:
                _steiner(cost, root, wanted, parent[k, way])
            else:
                _least(cost, root, parent[k, way])
            head = dst if way == 0 else src
            for j in range(n):
                begin = count
                i = parent[k, way, j]
                v = nodes[max(i, 0)]
                while i >= 0 and v != nodes[j]:
                    e = first[way, v, nodes[j]]
                    links[count], v = e, head[e]
                    busy[e] += seconds[e]
                    count += 1
                if way == 1:
                    links[begin:count] = links[begin:count][::-1].copy()
                place += 1
                offsets[place] = count
    return parent, offsets, links[:count]


def _prices(src, dst, seconds, near, busy, steep, way, inner, ways, first):
    """What the cheapest ways cost now, away from the root or toward it; and the cheapest link of all."""
    idle = 1.0 + steep * (busy.max() - busy)
    price = seconds / (idle * idle * idle * idle)
    least = price.min()
    _cheapest(price + least * near, src if way == 0 else dst, dst if way == 0 else src, inner, ways, first)
    return least


def _between(ways, nodes, least, far, root, cost):
    """What it costs to hang one node on another, in a tree of this root: more than any tree where there is no way."""
    n, dearest = len(nodes), 0.0
    for i in range(n):
        for j in range(n):
            cost[i, j] = ways[nodes[i], nodes[j]] + least * far[root, i]
            if cost[i, j] < np.inf:
                dearest = max(dearest, cost[i, j])
    for i in range(n):
        for j in range(n):
            if cost[i, j] == np.inf:
                cost[i, j] = (n + 1) * dearest


def _cheapest_roots(ways, nodes, wanted, least, far, cost):
    """The places from where trees cost least, the cheapest first."""
    n = len(nodes)
    total, within = np.zeros(n), np.empty(n, dtype=np.bool_)
    for root in range(n):
        for way in range(len(ways)):
            _between(ways[way], nodes, least, far, root, cost)
            total[root] += _grown(cost, root, wanted, within)
    order = np.argsort(total, kind="mergesort")
    return order[: min(FIRST, (total <= DEAR * total.min()).sum())]


def _steiner(cost, root, wanted, parent):
    """A tree of little cost to the first ``wanted`` nodes, over others where that is cheaper.

    Args:
        parent: int64[nodes], changed in place: -1 at the root, -2 where the tree does not lead.
    """
    n = len(cost)
    within, trial, other = np.empty(n, dtype=np.bool_), np.empty(n, dtype=np.bool_), np.empty(n, dtype=np.int64)
    _grown(cost, root, wanted, within)
    best, gains = _spanned(cost, root, wanted, within, parent), True
    while gains:
        gains = False
        for w in range(wanted, n):
            if w != root:
                trial[:] = within
                trial[w] = not within[w]
                now = _spanned(cost, root, wanted, trial, other)
                if now < best * (1 - 1e-9):
                    best, gains, within[:], parent[:] = now, True, trial, other


def _grown(cost, root, wanted, within):
    """Which nodes a tree has that grows by the cheapest way to the next node wanted, and what all these ways cost."""
    n = len(cost)
    within[:] = False
    within[root] = True
    price, before, done = np.empty(n), np.empty(n, dtype=np.int64), np.empty(n, dtype=np.bool_)
    total = 0.0
    while not within[:wanted].all():
        for v in range(n):
            price[v], done[v] = 0.0 if within[v] else np.inf, False
        while True:
            u = -1
            for v in range(n):
                if not done[v] and (u < 0 or price[v] < price[u]):
                    u = v
            if u < wanted and not within[u]:
                break
            done[u] = True
            for v in range(n):
                if price[u] + cost[u, v] < price[v]:
                    price[v], before[v] = price[u] + cost[u, v], u
        total += price[u]
        while not within[u]:
            within[u] = True
            u = before[u]
    return total


def _spanned(cost, root, wanted, within, parent):
    """The tree of least cost of all nodes ``within``, but for ends that are not wanted; and what it costs."""
    n = len(cost)
    at = np.flatnonzero(within)
    among, tree = np.empty((len(at), len(at))), np.empty(len(at), dtype=np.int64)
    for a in range(len(at)):
        for b in range(len(at)):
            among[a, b] = cost[at[a], at[b]]
    _least(among, np.searchsorted(at, root), tree)
    children = np.zeros(n, dtype=np.int64)
    parent[:] = -2
    total = 0.0
    for a in range(len(at)):
        parent[at[a]] = -1 if tree[a] < 0 else at[tree[a]]
        if tree[a] >= 0:
            children[at[tree[a]]] += 1
            total += among[tree[a], a]
    for v in at:
        while v >= wanted and parent[v] >= 0 and children[v] == 0:
            within[v] = False
            above = parent[v]
            total -= cost[above, v]
            children[above] -= 1
            parent[v], v = -2, above
    return total


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
