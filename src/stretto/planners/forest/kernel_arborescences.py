"""Trees of least price among ranks, one after another, each raising the prices of the links that it uses.

Edmonds, "Optimum branchings" (J. Res. NBS 1967; Chu and Liu 1965), over the cheapest paths through nodes that only
pass bytes on (Floyd 1962, over these nodes alone). Where a tree may have relays, nodes that are not ranks, it first
grows by the cheapest path to the next rank (Takahashi and Matsuyama, Math. Japonica 1980). Then relays join and leave
one by one, as long as that makes the arborescence of all nodes of the tree cheaper.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]

ROUND = 16
"""Trees after which all roots are compared again, where roots may be chosen."""

ROOTS = 8
"""Roots that take turns at most, the cheapest ones,"""

DEAREST_ROOT = 1.5
"""if their trees cost at most this many times as much as the cheapest root's."""


class Links(NamedTuple):
    """Links that trees may use.

    Attributes:
        src, dst: int64[links].
        seconds: float64[links], for which a tree keeps each link busy.
        length: float64[links], what the length of each link costs, relative to the price of the cheapest link.
    """

    src: Int64
    dst: Int64
    seconds: Float64
    length: Float64


class Nodes(NamedTuple):
    """Nodes of trees."""

    nodes: Int64  # int64[places], the nodes that trees are made of: the ranks, then the relays
    ranks: int  # how many of these are ranks, which every tree reaches
    inner: Int64  # int64[...], nodes that only pass bytes on
    distance: Float64  # float64[places, places], what the distance between nodes costs, as ``Links.length``


def priced_trees(
    links: Links, tree_nodes: Nodes, roots: Int64, kinds: Int64, steepness: float
) -> tuple[NDArray[np.int64], Int64, Int64]:
    """Grow out-trees, or in-trees and out-trees, each of least price.

    A link costs the seconds for which a tree keeps it busy, over the fourth power of 1 + ``steepness`` times the
    seconds by which it is less busy than the busiest link so far. (Python and compiled code would round an exponential
    differently.) Of paths that cost the same the shorter one is taken, and of parents the one nearer to the root.

    Args:
        roots: int64[trees], as places among the nodes; -1 for one of the cheapest roots, which take turns.
        kinds: int64[1 or 2], the trees of each root: an out-tree (0), an in-tree (1), or both.
    Returns:
        int64[trees, kinds, places], the place of each node's parent, -1 at the root, -2 for nodes outside the tree.
        The routes between each node and its parent, as CSR: int64[trees x kinds x places + 1] offsets, and int64[...]
        links in the order in which bytes take them.
    """
    src, dst, seconds, _ = links
    nodes, ranks, inner, distance = tree_nodes
    n, trees = len(nodes), len(roots)
    busy = np.zeros(len(src))
    cost, parent = np.empty((n, n)), np.empty((trees, len(kinds), n), dtype=np.int64)
    most = max(src.max(), dst.max(), nodes.max()) + 1  # a node may have no link
    if len(inner) > 0:
        most = max(most, inner.max() + 1)
    path_cost = np.empty((len(kinds), most, most))
    first = np.empty(path_cost.shape, dtype=np.int64)
    offsets = np.zeros(parent.size + 1, dtype=np.int64)
    routes = np.empty(parent.size * (len(inner) + 1), dtype=np.int64)
    turns = np.arange(n)
    row, count = 0, 0
    least = 0.0
    for k in range(trees):
        if roots[k] < 0 and k % ROUND == 0:
            for way, kind in enumerate(kinds):
                least = _price_paths(links, busy, steepness, kind, inner, path_cost[way], first[way])
            turns = _cheapest_roots(path_cost, nodes, ranks, least, distance, cost)
        root = roots[k] if roots[k] >= 0 else turns[k % len(turns)]
        for way, kind in enumerate(kinds):
            least = _price_paths(links, busy, steepness, kind, inner, path_cost[way], first[way])
            _price_edges(path_cost[way], nodes, least, distance, root, cost)
            if ranks < n:
                steiner_arborescence(cost, root, ranks, parent[k, way])
            else:
                arborescence(cost, root, parent[k, way])
            head = dst if kind == 0 else src
            for j in range(n):
                begin = count
                i = parent[k, way, j]
                v = nodes[max(i, 0)]
                while i >= 0 and v != nodes[j]:
                    e = first[way, v, nodes[j]]
                    routes[count], v = e, head[e]
                    busy[e] += seconds[e]
                    count += 1
                if kind == 1:
                    routes[begin:count] = routes[begin:count][::-1].copy()
                row += 1
                offsets[row] = count
    return parent, offsets, routes[:count]


def _price_paths(
    links: Links, busy: Float64, steepness: float, kind: int, inner: Int64, path_cost: Float64, first: Int64
) -> float:
    """Price the cheapest paths away from the root (kind 0) or toward it (kind 1); return the least price of a link."""
    src, dst, seconds, length = links
    idle = 1.0 + steepness * (busy.max() - busy)
    price = seconds / (idle * idle * idle * idle)
    least: float = price.min()
    tail, head = (src, dst) if kind == 0 else (dst, src)
    _cheapest_paths(price + least * length, tail, head, inner, path_cost, first)
    return least


def _price_edges(path_cost: Float64, nodes: Int64, least: float, distance: Float64, root: int, cost: Float64) -> None:
    """Write the cost of hanging node j on node i in a tree of this root; without a path it is more than any tree's."""
    n, dearest = len(nodes), 0.0
    for i in range(n):
        for j in range(n):
            cost[i, j] = path_cost[nodes[i], nodes[j]] + least * distance[root, i]
            if cost[i, j] < np.inf:
                dearest = max(dearest, cost[i, j])
    for i in range(n):
        for j in range(n):
            if cost[i, j] == np.inf:
                cost[i, j] = (n + 1) * dearest


def _cheapest_roots(
    path_cost: Float64, nodes: Int64, ranks: int, least: float, distance: Float64, cost: Float64
) -> Int64:
    """The places from which trees cost least, the cheapest first."""
    n = len(nodes)
    total, within = np.zeros(n), np.empty(n, dtype=np.bool_)
    for root in range(n):
        for kind in range(len(path_cost)):
            _price_edges(path_cost[kind], nodes, least, distance, root, cost)
            total[root] += _grow(cost, root, ranks, within)
    order = np.argsort(total, kind="mergesort")
    return order[: min(ROOTS, (total <= DEAREST_ROOT * total.min()).sum())]


def steiner_arborescence(cost: Float64, root: int, ranks: int, parent: Int64) -> None:
    """Write an out-tree of little cost to the first ``ranks`` nodes, over other nodes where that is cheaper.

    Args:
        cost: float64[nodes, nodes], of hanging a node (column) on another one (row).
        parent: int64[nodes], changed in place: -1 at the root, -2 outside the tree.
    """
    n = len(cost)
    within, trial, other = np.empty(n, dtype=np.bool_), np.empty(n, dtype=np.bool_), np.empty(n, dtype=np.int64)
    _grow(cost, root, ranks, within)
    best, gains = _span(cost, root, ranks, within, parent), True
    while gains:
        gains = False
        for w in range(ranks, n):
            if w != root:
                trial[:] = within
                trial[w] = not within[w]
                trial_cost = _span(cost, root, ranks, trial, other)
                if trial_cost < best * (1 - 1e-9):
                    best, gains, within[:], parent[:] = trial_cost, True, trial, other


def _grow(cost: Float64, root: int, ranks: int, within: Bool) -> float:
    """Mark the nodes of a tree that grows by the cheapest path to the next rank, and return the cost of these paths."""
    n = len(cost)
    within[:] = False
    within[root] = True
    price, before, done = np.empty(n), np.empty(n, dtype=np.int64), np.empty(n, dtype=np.bool_)
    total = 0.0
    while not within[:ranks].all():
        for v in range(n):
            price[v], done[v] = 0.0 if within[v] else np.inf, False
        while True:
            u = -1
            for v in range(n):
                if not done[v] and (u < 0 or price[v] < price[u]):
                    u = v
            if u < ranks and not within[u]:
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


def _span(cost: Float64, root: int, ranks: int, within: Bool, parent: Int64) -> float:
    """Write the cheapest out-tree of all nodes ``within``, without leaves that are not ranks, and return its cost."""
    n = len(cost)
    places = np.flatnonzero(within)
    among, tree = cost[places][:, places], np.empty(len(places), dtype=np.int64)
    arborescence(among, int(np.searchsorted(places, root)), tree)
    children = np.zeros(n, dtype=np.int64)
    parent[:] = -2
    total = 0.0
    for a in range(len(places)):
        parent[places[a]] = -1 if tree[a] < 0 else places[tree[a]]
        if tree[a] >= 0:
            children[places[tree[a]]] += 1
            total += among[tree[a], a]
    for v in places:
        while v >= ranks and parent[v] >= 0 and children[v] == 0:
            within[v] = False
            above = parent[v]
            total -= cost[above, v]
            children[above] -= 1
            parent[v], v = -2, above
    return total


def _cheapest_paths(price: Float64, tail: Int64, head: Int64, inner: Int64, path_cost: Float64, first: Int64) -> None:
    """Write the cost of the cheapest path from node to node, and the first link of that path."""
    path_cost[:], first[:] = np.inf, -1
    for e in range(len(tail)):
        if price[e] < path_cost[tail[e], head[e]]:
            path_cost[tail[e], head[e]], first[tail[e], head[e]] = price[e], e
    for w in inner:
        for a in range(len(path_cost)):
            if a == w or path_cost[a, w] == np.inf:
                continue
            for b in range(len(path_cost)):
                if b != a and b != w and path_cost[a, w] + path_cost[w, b] < path_cost[a, b]:
                    path_cost[a, b], first[a, b] = path_cost[a, w] + path_cost[w, b], first[a, w]


def arborescence(cost: Float64, root: int, parent: Int64) -> None:
    """Write the out-tree of least cost: every node takes its cheapest edge, and a cycle of these becomes a node.

    Args:
        cost: float64[nodes, nodes], inf where there is no edge; all nodes can be reached from the root.
        parent: int64[nodes], changed in place, -1 at the root.
    """
    n = len(cost)
    most = 2 * n
    price = np.full((most, most), np.inf)
    # the edge between nodes that an edge between contracted nodes stands for
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
        # the edge into a cycle replaces the edge of the cycle that ends at the same node
        y = chosen_head[x]
        while within[y] != x:
            y = within[y]
        chosen_tail[y], chosen_head[y] = chosen_tail[x], chosen_head[x]
    for v in range(n):
        parent[v] = -1 if v == root else chosen_tail[v]


def _contract(start: int, new: int, price: Float64, tail: Int64, head: Int64, cheapest: Int64, within: Int64) -> None:
    """Contract the cycle of cheapest edges through ``start`` to a new node.

    The cost of an edge into the cycle becomes its cost less that of the edge of the cycle that it would replace.
    """
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
