"""Automorphisms of a network: ways to rename its nodes that change nothing.

Where a bound puts prices on links, links that can become each other may have the same price.

Automorphisms are found by renaming one node after another, each time narrowing down who may still become whom. A few
generate all others (Schreier and Sims' chain of stabilisers): nodes are held in place one after another, and at each
level there are some automorphisms that hold the earlier nodes and take the next one wherever it can go. Products of one
automorphism from each level are all that there are.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..model.arrays import Bool, Int32, Int64
from ..model.topology import Topology
from .latency import distances

MOST_NODES = 160
"""Larger networks are not looked at: the work grows with the cube of the nodes."""

MOST = 2_000
"""The most automorphisms that :func:`symmetries` lists."""


def symmetries(topology: Topology, ranks: Int32) -> Int64:
    """All automorphisms (a group); where there are more than ``MOST``, only the one that changes nothing."""
    group = np.arange(topology.node_count)[None]
    images: list[Int64] = []
    many = 1
    for v, level in _levels(topology, ranks):
        images.append(np.array(list(_orbit(v, level, topology.node_count).values())))
        many *= len(images[-1])
        if many > MOST:
            return group
    for image in reversed(images):
        group = image[:, group].reshape(-1, topology.node_count)
    return group


def _levels(topology: Topology, ranks: Int32) -> Iterator[tuple[int, list[Int64]]]:
    """One node after another, with automorphisms that hold the nodes before it and take it wherever it can go."""
    if topology.node_count > MOST_NODES or topology.planes:
        return
    relation = _relations(topology, ranks)
    order = _outward(topology)
    may = relation.diagonal()[:, None] == relation.diagonal()[None, :]
    for v in order.tolist():
        level: list[Int64] = []
        for image in np.flatnonzero(may[v]).tolist():
            if image not in _orbit(v, level, topology.node_count):
                found = _extended(relation, order, _renamed(relation, may, v, image))
                level += [] if found is None else [found]
        yield v, level
        may = _renamed(relation, may, v, v)


def _relations(topology: Topology, ranks: Int32) -> Int64:
    """int64[nodes, nodes]: equal numbers where pairs of nodes are joined alike; on the diagonal, what a node is."""
    n = topology.node_count
    table = np.zeros((4, n, n))
    table[0, topology.src, topology.dst] = topology.bandwidth
    table[1, topology.src, topology.dst] = topology.latency_s
    far = distances(topology, 0.0)
    rounded = np.round(far / max(float(far[np.isfinite(far)].max()), np.finfo(float).tiny), 9)
    table[2] = np.unique(rounded, return_inverse=True)[1].reshape(n, n)
    kind = 1.0 + topology.forwarding + 4.0 * topology.transit + 8.0 * topology.replicates
    kind[ranks] += 16.0
    np.fill_diagonal(table[3], kind)
    found: Int64 = np.unique(table.reshape(4, -1), axis=1, return_inverse=True)[1].reshape(n, n)
    return found


def _outward(topology: Topology) -> Int64:
    """int64[nodes]: the nodes in an order in which each, but the first of a component, comes after a neighbour."""
    order: dict[int, None] = {}
    for first in range(topology.node_count):
        left = [first]
        for v in left:
            if v not in order:
                order[v] = None
                left += topology.dst[topology.out_links[v]].tolist()
    return np.array(list(order))


def _renamed(relation: Int64, may: Bool, v: int, image: int) -> Bool:
    """bool[nodes, nodes]: who may still become whom once ``v`` has become ``image``."""
    left: Bool = may & (relation[v][:, None] == relation[image][None, :])
    left &= relation[:, v][:, None] == relation[:, image][None, :]
    left[v] = False
    left[:, image] = False
    left[v, image] = True
    return left


def _extended(relation: Int64, order: Int64, may: Bool) -> Int64 | None:
    """One automorphism that ``may`` still allows; None if there is none."""
    # each entry renames one node, but the first, which renames none
    stack = [(-1, -1, may)]
    while stack:
        depth, image, may = stack.pop()
        if image >= 0:
            may = _renamed(relation, may, int(order[depth]), image)
        depth += 1
        if depth == len(order):
            found: Int64 = may.argmax(axis=1)
            return found
        if may.any(axis=1).all():
            stack += [(depth, w, may) for w in np.flatnonzero(may[order[depth]])[::-1].tolist()]
    return None


def _orbit(v: int, generators: list[Int64], nodes: int) -> dict[int, Int64]:
    """All that ``v`` can become by products of some automorphisms, and for each a product that does it."""
    found = {v: np.arange(nodes)}
    left = [v]
    for u in left:
        for g in generators:
            image = int(g[u])
            if image not in found:
                found[image] = g[found[u]]
                left.append(image)
    return found
