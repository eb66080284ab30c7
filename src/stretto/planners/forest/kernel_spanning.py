"""Spanning trees that share the edges of an undirected network.

Trees are the bases of a matroid, and packing them is matroid union (Edmonds 1965; Roskind and Tarjan, "A note on
finding minimum-cost edge-disjoint spanning trees", Math. Oper. Res. 1985): an edge that would close a cycle in one
forest pushes an edge of that cycle on to the next forest, until one falls between two parts of a forest.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]


class Network(NamedTuple):
    """An undirected network.

    Attributes:
        tail, head: int64[edges], the two ends of each edge.
        length: float64[edges].
        offsets, around: int64[nodes + 1], int64[2 x edges], the edges at each node, as CSR.
    """

    tail: Int64
    head: Int64
    length: Float64
    offsets: Int64
    around: Int64


def pack(network: Network, copies: Int64, roots: Int64, walks: Int64) -> Bool:
    """Pack as many trees as there are roots, or as much of them as there can be, or as is found in some walks.

    Each forest first grows from its root along the shortest paths that are left.

    Args:
        copies: int64[edges], how many trees may have each edge; changed in place to what is left.
        roots: int64[trees].
        walks: int64[1], how many walks through a tree may be made; changed in place to what is left.
    Returns:
        bool[trees, edges].
    """
    tail, head, length, offsets, around = network
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
        distance, i, e, v = heappop(heap)
        w = head[e] if tail[e] == v else tail[e]
        if reached[i, w] or copies[e] == 0:
            continue
        reached[i, w] = True
        within[i, e] = True
        copies[e] -= 1
        missing -= 1
        for k in range(offsets[w], offsets[w + 1]):
            heappush(heap, (distance + length[around[k]], i, around[k], w))

    # an element is an edge in a forest, or in none (forest number ``trees``); ``pusher`` is the element that pushes it
    pusher = np.full((trees + 1) * edges, -1, dtype=np.int64)
    queue = np.empty((trees + 1) * edges, dtype=np.int64)
    path = np.empty(nodes, dtype=np.int64)
    for edge in range(edges):
        while copies[edge] > 0 and missing > 0 and walks[0] > 0:
            pusher[:] = -1
            queue[0] = trees * edges + edge
            first, last = 0, 1
            placed = False
            while first < last and not placed and walks[0] > 0:
                walks[0] -= 1
                element = queue[first]
                first += 1
                i, e = element // edges, element % edges
                i = (i + 1) % trees if i < trees else 0
                hops = _path(network, within[i], tail[e], head[e], path)
                placed = hops < 0
                for k in range(hops):
                    pushed = i * edges + path[k]
                    if pusher[pushed] < 0:
                        pusher[pushed] = element
                        queue[last] = pushed
                        last += 1
            if not placed:
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


def shorten(network: Network, within: Bool, copies: Int64, most_walks: int) -> None:
    """Swap edges between trees, and for edges left over, as long as the sum of the squares of their diameters falls.

    Args:
        within: bool[trees, edges], changed in place, as ``copies`` is.
        most_walks: how many walks through a tree may be made, about.
    """
    tail, head, length, offsets, _ = network
    trees, nodes = len(within), len(offsets) - 1
    one, other = np.empty(nodes), np.empty(nodes)
    a_one, a_other, b_one, b_other = np.empty(nodes), np.empty(nodes), np.empty(nodes), np.empty(nodes)
    path, through = np.empty(nodes, dtype=np.int64), np.empty(nodes, dtype=np.int64)
    diameter = np.empty(trees)
    for i in range(trees):
        diameter[i] = _diameter(network, within[i], 0, -1, one, other)
    still, i = 0, 0
    while still < trees and most_walks > 0:
        moved = False
        _diameter(network, within[i], 0, -1, one, other)
        hops = _path(network, within[i], int(np.argmax(other)), int(np.argmax(one)), path)
        most_walks -= 4
        for p in range(hops):
            out = path[p]
            # the two parts that the tree falls into without the edge
            a = _diameter(network, within[i], tail[out], out, a_one, a_other)
            b = _diameter(network, within[i], head[out], out, b_one, b_other)
            most_walks -= 6
            for e in range(len(tail)):
                u, v = tail[e], head[e]
                if within[i, e] or (a_one[u] < 0) == (a_one[v] < 0):
                    continue
                if a_one[u] < 0:
                    u, v = v, u
                joined = max(max(a_one[u], a_other[u]) + length[e] + max(b_one[v], b_other[v]), max(a, b))
                gain = diameter[i] * diameter[i] - joined * joined
                if gain <= 1e-9 * diameter[i] * diameter[i]:
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
                    other_hops = _path(network, within[j], tail[out], head[out], through)
                    most_walks -= 1
                    crossed = False
                    for k in range(other_hops):
                        crossed |= through[k] == e
                    if not crossed:
                        continue
                    within[j, e], within[j, out] = False, True
                    swapped = _diameter(network, within[j], 0, -1, one, other)
                    most_walks -= 3
                    if swapped * swapped - diameter[j] * diameter[j] < gain * (1 - 1e-9):
                        diameter[j] = swapped
                        moved = True
                    else:
                        within[j, e], within[j, out] = True, False
                if moved:
                    within[i, e], within[i, out] = True, False
                    diameter[i] = joined
                    break
            if moved:
                break
        still = 0 if moved else still + 1
        i = i if moved else (i + 1) % trees


def walk_from_the_middle(network: Network, within: Bool, root: Int64, twin: Int64, via: Int64) -> None:
    """Walk through each tree from the middle of its longest path.

    Args:
        within: bool[trees, edges].
        root: int64[trees], gets the middle, or an end of the edge that the middle is inside.
        twin: int64[trees], gets the other end of that edge, or -1.
        via: int64[trees, nodes], gets the edge between each node and its parent, -1 at the root.
    """
    tail, head, _, offsets, _ = network
    far, back = np.empty(len(offsets) - 1), np.empty(len(offsets) - 1, dtype=np.int64)
    for k in range(len(within)):
        begin = _walk(network, within[k], 0, -1, -1, far, back)
        end = _walk(network, within[k], begin, -1, -1, far, back)
        half, node = far[end] / 2, end
        above = tail[back[node]] + head[back[node]] - node
        while far[above] > half:
            node = above
            above = tail[back[node]] + head[back[node]] - node
        # the middle is between node and above, or at one of them
        root[k], twin[k] = above, -1
        if far[above] < half * (1 - 1e-9):
            if far[node] <= half * (1 + 1e-9):
                root[k] = node
            else:
                twin[k] = node
        _walk(network, within[k], root[k], -1, -1, far, via[k])
        via[k, root[k]] = -1


def _path(network: Network, tree: Bool, source: int, target: int, path: Int64) -> int:
    """Write the edges of a forest between two nodes to ``path``; how many there are, -1 if there is no path."""
    tail, head, _, offsets, _ = network
    distance, via = np.empty(len(offsets) - 1), np.empty(len(offsets) - 1, dtype=np.int64)
    _walk(network, tree, source, target, -1, distance, via)
    if distance[target] < 0:
        return -1
    hops, v = 0, target
    while v != source:
        path[hops] = via[v]
        v = tail[via[v]] + head[via[v]] - v
        hops += 1
    return hops


def _walk(network: Network, tree: Bool, source: int, target: int, without: int, distance: Float64, via: Int64) -> int:
    """Walk through a tree without one edge, until a target is reached.

    Args:
        target: -1 to reach all nodes.
        without: the edge left out, or -1.
        distance: float64[nodes], gets how far each node is from ``source``, -1 where it is not reached.
        via: int64[nodes], gets the edge by which each node is reached.
    Returns:
        The farthest node.
    """
    tail, head, length, offsets, around = network
    queue = np.empty(len(distance), dtype=np.int64)
    distance[:] = -1.0
    distance[source] = 0.0
    queue[0] = source
    first, last, farthest = 0, 1, source
    while first < last and (target < 0 or distance[target] < 0):
        v = queue[first]
        first += 1
        if distance[v] > distance[farthest]:
            farthest = v
        for k in range(offsets[v], offsets[v + 1]):
            e = around[k]
            w = tail[e] + head[e] - v
            if tree[e] and e != without and distance[w] < 0:
                distance[w] = distance[v] + length[e]
                via[w] = e
                queue[last] = w
                last += 1
    return farthest


def _diameter(network: Network, tree: Bool, source: int, without: int, one: Float64, other: Float64) -> float:
    """The length of the longest path in the part of a tree where ``source`` is; how far all nodes are from its ends."""
    via = np.empty(len(one), dtype=np.int64)
    end = _walk(network, tree, source, -1, without, other, via)
    begin = _walk(network, tree, end, -1, without, one, via)
    _walk(network, tree, begin, -1, without, other, via)
    longest: float = one[begin]
    return longest
