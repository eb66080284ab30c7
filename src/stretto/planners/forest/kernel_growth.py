"""Trees of little price among ranks, one after another; each use of a link raises its price at once.

A tree grows by the cheapest path from any of its nodes to the next rank, over relays where that is cheaper (Takahashi
and Matsuyama, Math. Japonica 1980). Paths are kept as Dijkstra's are, all in one heap: what joins the tree becomes a
start of paths, and where a price has risen a path is sought anew when it comes to its turn. Since prices also rise
within a tree, no node sends to all others as long as others cost little more, and few trees fill many links.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]

DEARER = 1 + 1e-12
"""Times by which a path must cost more than it did for its price to have risen, and not to have been rounded."""


class Links(NamedTuple):
    """Links that trees may use, as they lead away from the root."""

    tail: Int64  # int64[links]
    head: Int64
    out_offsets: Int64  # CSR, the links out of each node
    out: Int64
    into_offsets: Int64  # CSR, the links into each node
    into: Int64


class Costs(NamedTuple):
    """What links cost."""

    seconds: Float64  # float64[links], for which a tree keeps each busy whenever it uses it
    length: Float64  # float64[links], of its length, as a multiple of the price of the cheapest link
    steepness: float  # how prices rise, see :func:`price_of`


class Growth(NamedTuple):
    """A tree that grows, and the cheapest path to every node that is not in it."""

    label: Float64  # float64[nodes], what the path to each costs; of nodes of the tree how far the root is
    last: Int64  # int64[nodes], the last link of the path
    within: Bool  # bool[nodes], which nodes the tree has
    price: Float64  # float64[links]
    cost: Float64  # float64[links], the price and what length costs
    path: Int64  # int64[nodes], space for the links of a path


def grow(
    ways: tuple[Links, Links], nodes: Int64, ranks: int, roots: Int64, kinds: Int64, costs: Costs
) -> tuple[NDArray[np.int64], NDArray[np.int64], Int64, Int64]:
    """Grow out-trees, or in-trees and out-trees.

    Args:
        ways: links as they lead away from the root in an out-tree, and in an in-tree.
        nodes: int64[places], the nodes that trees are made of: the ranks, then the relays.
        ranks: how many of these are ranks, which every tree reaches.
        roots: int64[trees], as places among the nodes.
        kinds: int64[1 or 2], the trees of each root: an out-tree (0), an in-tree (1), or both.
    Returns:
        Two int64[trees, kinds, places]: the place of each node's parent, -1 at the root, -2 for nodes outside the tree;
        and the number of the route between them. The routes as CSR, their links in the order in which bytes take them.
        What cannot reach a rank ends there.
    """
    n = len(ways[0].out_offsets) - 1
    seconds, length, steepness = costs
    place = np.full(n, -1, dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    shape = (len(roots), len(kinds), len(nodes))
    parent, hop = np.full(shape, -2, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    offsets, routes = np.zeros(parent.size + 1, dtype=np.int64), np.empty(4 * parent.size, dtype=np.int64)
    tree = Growth(
        np.empty(n), np.empty(n, dtype=np.int64), np.empty(n, dtype=np.bool_), np.empty(len(seconds)),
        np.empty(len(seconds)), np.empty(n, dtype=np.int64),
    )  # fmt: skip
    label, last, within, price, cost, path = tree
    busy, count = np.zeros(len(seconds)), 0
    for k, root in enumerate(roots):
        for way, kind in enumerate(kinds):
            links, busiest = ways[kind], busy.max()
            for e in range(len(seconds)):
                price[e] = price_of(seconds[e], busy[e] - busiest, steepness)
            least = price.min()
            cost[:] = price + least * length
            label[:], last[:], within[:] = np.inf, -1, False
            label[nodes[root]], within[nodes[root]], parent[k, way, root] = 0.0, True, -1
            missing = ranks - 1 if root < ranks else ranks
            heap = [(0.0, nodes[root])]
            while missing > 0 and len(heap) > 0:
                at, v = heappop(heap)
                if at != label[v]:
                    continue
                if not within[v]:
                    hops = _path_to(v, links, tree)
                    if _has_risen(hops, links, tree, heap):
                        if label[v] == at:
                            heappush(heap, (at, v))
                        continue
                    if 0 <= place[v] < ranks:
                        # the path joins the tree, each of its links at the price that it has now
                        above, first = links.tail[path[hops - 1]], hops - 1
                        away = label[above]
                        for i in range(hops - 1, -1, -1):
                            e, w = path[i], links.head[path[i]]
                            away += least * length[e]
                            busy[e] += seconds[e]
                            price[e] = price_of(seconds[e], busy[e] - busiest, steepness)
                            cost[e] = price[e] + least * length[e]
                            if place[w] >= 0:
                                parent[k, way, place[w]], hop[k, way, place[w]] = place[above], count
                                begin = offsets[count]
                                count += 1
                                end = begin + first - i + 1
                                offsets[count] = end
                                while end > len(routes):
                                    routes = np.concatenate((routes, routes))
                                if kind == 0:
                                    routes[begin:end] = path[i : first + 1][::-1]
                                else:
                                    routes[begin:end] = path[i : first + 1]
                                within[w], label[w] = True, away
                                missing -= 1 if place[w] < ranks else 0
                                heappush(heap, (away, w))
                                above, first = w, i - 1
                        continue
                for i in range(links.out_offsets[v], links.out_offsets[v + 1]):
                    e = links.out[i]
                    w = links.head[e]
                    if not within[w] and label[v] + cost[e] < label[w]:
                        label[w], last[w] = label[v] + cost[e], e
                        heappush(heap, (label[w], w))
    return parent, hop, offsets[: count + 1], routes[: offsets[count]]


def price_of(seconds: float, above: float, steepness: float) -> float:
    """The price of a link, which rises with the fourth power of how busy it is.

    Python and compiled code would round an exponential differently.

    Args:
        seconds: for which a tree keeps it busy.
        above: by how many seconds it is busier than the busiest link was when the tree began; mostly negative.
    """
    times = 1.0 + steepness * abs(above)
    times *= times
    price: float = seconds * times * times if above > 0 else seconds / (times * times)
    return price


def _path_to(v: int, links: Links, tree: Growth) -> int:
    """Write the links of the path from the tree to a node, the last one first, and return how many they are."""
    hops = 0
    while not tree.within[v] and hops < len(tree.path):
        tree.path[hops] = tree.last[v]
        v = links.tail[tree.last[v]]
        hops += 1
    return hops


def _has_risen(hops: int, links: Links, tree: Growth, heap: list[tuple[float, int]]) -> bool:
    """Whether a link of the path costs more than it did. Then the path to where it leads is sought anew."""
    for i in range(hops - 1, -1, -1):
        e = tree.path[i]
        w = links.head[e]
        if tree.label[links.tail[e]] + tree.cost[e] > DEARER * tree.label[w]:
            best, through = np.inf, e
            for j in range(links.into_offsets[w], links.into_offsets[w + 1]):
                other = links.into[j]
                u = links.tail[other]
                if tree.label[u] + tree.cost[other] < best and not _is_behind(u, w, links, tree):
                    best, through = tree.label[u] + tree.cost[other], other
            tree.label[w], tree.last[w] = best, through
            heappush(heap, (best, w))
            return True
    return False


def _is_behind(u: int, w: int, links: Links, tree: Growth) -> bool:
    """Whether the path to ``u`` leads through ``w``."""
    while not tree.within[u] and u != w:
        u = links.tail[tree.last[u]]
    return u == w
