"""Spanning trees that share the edges of an undirected network, each edge in at most so many of them.

Trees are the bases of a matroid, and packing them is matroid union (Edmonds 1965; Roskind and Tarjan, "A note on
finding minimum-cost edge-disjoint spanning trees", Math. Oper. Res. 1985): an edge that would close a cycle in one
forest pushes an edge of that cycle on to the next, until one falls between two parts of a forest. Edges are given by
their ends; those of node v are ``around[offsets[v]:offsets[v + 1]]``.
"""

from heapq import heappop, heappush

import numpy as np


def pack(tail, head, length, copies, offsets, around, roots):
    """As many trees as roots, near ones first, or as much of them as there can be.

    Args:
        length: float64[edges]; each forest first grows from its root along the shortest ways that are left.
        copies: int64[edges], how many trees may have each edge; what they do not use is left there.
    Returns:
        bool[trees, edges].
    """
    trees, nodes, edges = len(roots), len(offsets) - 1, len(tail)
    within = np.zeros((trees, edges), dtype=np.bool_)
    reached = np.zeros((trees, nodes), dtype=np.bool_)
    missing = trees * (nodes - 1)
    heap = [(0.0, 0, 0, 0)]
    heap.clear()
    for i in range(trees):
        reached[i, roots[i]] = True
        for k in range(offsets[roots[i]], offsets[roots[i] + 1]):
            heappush(heap, (length[around[k]], i, around[k], roots[i]))
    while len(heap) > 0:
        far, i, e, v = heappop(heap)
        w = head[e] if tail[e] == v else tail[e]
        if reached[i, w] or copies[e] == 0:
            continue
        reached[i, w] = True
        within[i, e] = True
        copies[e] -= 1
        missing -= 1
        for k in range(offsets[w], offsets[w + 1]):
            heappush(heap, (far + length[around[k]], i, around[k], w))

    # an element is an edge in a forest (or in none: number ``trees``); who pushes it, and those to be looked at
    pusher = np.full((trees + 1) * edges, -1, dtype=np.int64)
    queue = np.empty((trees + 1) * edges, dtype=np.int64)
    path = np.empty(nodes, dtype=np.int64)
    for edge in range(edges):
        while copies[edge] > 0 and missing > 0:
            pusher[:] = -1
            queue[0] = trees * edges + edge
            first, last = 0, 1
            found = False
            while first < last and not found:
                element = queue[first]
                first += 1
                i, e = element // edges, element % edges
                i = (i + 1) % trees if i < trees else 0
                hops = _path(within[i], tail, head, offsets, around, tail[e], head[e], path)
                found = hops < 0
                for k in range(hops):
                    pushed = i * edges + path[k]
                    if pusher[pushed] < 0:
                        pusher[pushed] = element
                        queue[last] = pushed
                        last += 1
            if not found:
                break
            while element >= 0:
                old, e = element // edges, element % edges
                if old < trees:
                    within[old, e] = False
                within[i, e] = True
                i, element = old, pusher[element]
            copies[edge] -= 1
            missing -= 1
    return within


def _path(tree, tail, head, offsets, around, source, target, path):
    """The edges of a forest between two nodes, in ``path``; how many, -1 if they are not joined."""
    nodes = len(offsets) - 1
    via = np.full(nodes, -1, dtype=np.int64)
    queue = np.empty(nodes, dtype=np.int64)
    via[source] = len(tail)
    queue[0] = source
    first, last = 0, 1
    while first < last and via[target] < 0:
        v = queue[first]
        first += 1
        for k in range(offsets[v], offsets[v + 1]):
            e = around[k]
            if tree[e]:
                w = tail[e] + head[e] - v
                if via[w] < 0:
                    via[w] = e
                    queue[last] = w
                    last += 1
    if via[target] < 0:
        return -1
    hops, v = 0, target
    while v != source:
        path[hops] = via[v]
        v = tail[via[v]] + head[via[v]] - v
        hops += 1
    return hops


def _distances(tree, tail, head, length, offsets, around, source, without, far):
    """How far nodes are from ``source`` in a tree, an edge left out; -1 where that parts them. The farthest of them."""
    nodes = len(offsets) - 1
    queue = np.empty(nodes, dtype=np.int64)
    far[:] = -1.0
    far[source] = 0.0
    queue[0] = source
    first, last, farthest = 0, 1, source
    while first < last:
        v = queue[first]
        first += 1
        if far[v] > far[farthest]:
            farthest = v
        for k in range(offsets[v], offsets[v + 1]):
            e = around[k]
            if tree[e] and e != without:
                w = tail[e] + head[e] - v
                if far[w] < 0:
                    far[w] = far[v] + length[e]
                    queue[last] = w
                    last += 1
    return farthest


def _diameter(tree, tail, head, length, offsets, around, source, without, one, other):
    """The length of the longest way in the part of a tree where ``source`` is, and how far all are from its ends."""
    end = _distances(tree, tail, head, length, offsets, around, source, without, other)
    begin = _distances(tree, tail, head, length, offsets, around, end, without, one)
    _distances(tree, tail, head, length, offsets, around, begin, without, other)
    return one[begin]


def shorten(within, tail, head, length, copies, offsets, around, work):
    """Exchange edges between trees, and with those left over, while the sum of the squares of their diameters falls.

    Args:
        within: bool[trees, edges], changed in place, as ``copies`` is.
        work: how many trees may be walked through.
    """
    trees, nodes = len(within), len(offsets) - 1
    one, other = np.empty(nodes), np.empty(nodes)
    a_one, a_other, b_one, b_other = np.empty(nodes), np.empty(nodes), np.empty(nodes), np.empty(nodes)
    path, through = np.empty(nodes, dtype=np.int64), np.empty(nodes, dtype=np.int64)
    wide = np.empty(trees)
    for i in range(trees):
        wide[i] = _diameter(within[i], tail, head, length, offsets, around, 0, -1, one, other)
    still, i = 0, 0
    while still < trees and work > 0:
        moved = False
        _diameter(within[i], tail, head, length, offsets, around, 0, -1, one, other)
        hops = _path(within[i], tail, head, offsets, around, np.argmax(other), np.argmax(one), path)
        work -= 4
        for p in range(hops):
            out = path[p]
            a = _diameter(within[i], tail, head, length, offsets, around, tail[out], out, a_one, a_other)
            b = _diameter(within[i], tail, head, length, offsets, around, head[out], out, b_one, b_other)
            work -= 6
            for e in range(len(tail)):
                u, v = tail[e], head[e]
                if within[i, e] or (a_one[u] < 0) == (a_one[v] < 0):
                    continue
                if a_one[u] < 0:
                    u, v = v, u
                joined = max(max(a_one[u], a_other[u]) + length[e] + max(b_one[v], b_other[v]), max(a, b))
                gain = wide[i] * wide[i] - joined * joined
                if gain <= 1e-9 * wide[i] * wide[i]:
                    continue
                if copies[e] > 0:
                    copies[e] -= 1
                    copies[out] += 1
                    moved = True
                for j in range(trees):
                    if moved:
                        break
                    if not within[j, e] or within[j, out]:
                        continue
                    on = _path(within[j], tail, head, offsets, around, tail[out], head[out], through)
                    work -= 1
                    crossed = False
                    for k in range(on):
                        crossed |= through[k] == e
                    if not crossed:
                        continue
                    within[j, e], within[j, out] = False, True
                    theirs = _diameter(within[j], tail, head, length, offsets, around, 0, -1, one, other)
                    work -= 3
                    if theirs * theirs - wide[j] * wide[j] < gain * (1 - 1e-9):
                        wide[j] = theirs
                        moved = True
                    else:
                        within[j, e], within[j, out] = True, False
                if moved:
                    within[i, e], within[i, out] = True, False
                    wide[i] = joined
                    break
            if moved:
                break
        still = 0 if moved else still + 1
        i = i if moved else (i + 1) % trees
    return wide
