"""Automorphisms of a network: ways to rename its nodes that change nothing.

A plan for one part of the data, renamed, is as good a plan for another part, and burdens other links. Automorphisms are
found by renaming one node after another and refining who may become whom; a few that generate the others are enough
(as in Schreier and Sims' chains of stabilisers, of which two levels are taken here), and products of these are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..bounds import distances
from ..collective import Ragged
from ..topology import Topology

Bool = NDArray[np.bool_]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

MOST_NODES = 160
"""Of networks that are looked at: the work grows with the cube of the nodes."""

MOST_STEPS = 2
"""Times the nodes, how many steps the search for one automorphism takes at most."""

WALK = 20
"""Times as many products are taken as automorphisms are wanted."""

LEVELS = 2
"""How many nodes are moved, the earlier ones held, to find generators."""


def automorphisms(topology: Topology, ranks: NDArray[np.int32], most: int, seed: int) -> Int64:
    """int64[found, nodes], what becomes of each node; the first changes nothing.

    Args:
        ranks: which become each other.
        most: how many at most; of more, some at random.
    """
    if topology.node_count > MOST_NODES or topology.planes:
        return np.arange(topology.node_count)[None]
    relation = _relations(topology, ranks)
    order = _outward(topology)
    may = relation.diagonal()[:, None] == relation.diagonal()[None, :]
    generators: list[Int64] = []
    for v in order[:LEVELS].tolist():
        level: list[Int64] = []
        for image in np.flatnonzero(may[v]).tolist():
            if image not in _orbit(v, level):
                found = _extended(relation, order, _renamed(relation, may, v, image))
                level += [] if found is None else [found]
        generators += level
        may = _renamed(relation, may, v, v)
    return _products(generators, topology.node_count, most, np.random.default_rng(seed))


def _relations(topology: Topology, ranks: NDArray[np.int32]) -> Int64:
    """int64[nodes, nodes], equal where pairs of nodes are joined alike; on the diagonal, what a node is."""
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
    """int64[nodes], so that each node but the first of a component comes after one that it is joined to."""
    order: dict[int, None] = {}
    offsets, out = topology.out_links
    for first in range(topology.node_count):
        left = [first]
        for v in left:
            if v not in order:
                order[v] = None
                left += topology.dst[out[offsets[v] : offsets[v + 1]]].tolist()
    return np.array(list(order))


def _renamed(relation: Int64, may: Bool, v: int, image: int) -> Bool:
    """bool[nodes, nodes], who may become whom once ``v`` has become ``image``."""
    left: Bool = may & (relation[v][:, None] == relation[image][None, :])
    left &= relation[:, v][:, None] == relation[:, image][None, :]
    left[v] = False
    left[:, image] = False
    left[v, image] = True
    return left


def _extended(relation: Int64, order: Int64, may: Bool) -> Int64 | None:
    """One automorphism among those that are left, None if there is none, or none soon."""
    stack = [(0, may)]
    for _ in range(MOST_STEPS * len(order)):
        if not stack:
            break
        depth, may = stack.pop()
        if depth == len(order):
            found: Int64 = may.argmax(axis=1)
            return found
        if may.any(axis=1).all():
            v = int(order[depth])
            stack += [(depth + 1, _renamed(relation, may, v, w)) for w in np.flatnonzero(may[v])[::-1].tolist()]
    return None


def _orbit(v: int, generators: list[Int64]) -> set[int]:
    """What ``v`` can become by some automorphisms, one after another."""
    found, left = {v}, [v]
    while left:
        u = left.pop()
        new = {int(g[u]) for g in generators} - found
        found |= new
        left += new
    return found


def _products(generators: list[Int64], nodes: int, most: int, rng: np.random.Generator) -> Int64:
    """Automorphisms come to by a walk along generators, each once."""
    at = np.arange(nodes)
    found = {at.tobytes(): at}
    if generators:
        for k in rng.integers(len(generators), size=WALK * most).tolist():
            at = generators[k][at]
            if len(found) < most:
                found.setdefault(at.tobytes(), at)
    return np.array(list(found.values()))


@dataclass(frozen=True)
class Renaming:
    """What automorphisms make of a network's nodes, links and pipes.

    Attributes:
        node, link, pipe: int64[automorphisms, nodes (links, pipes)], which one each becomes.
        orbit: int64[links], equal for those that become each other.
    """

    node: Int64
    link: Int64
    pipe: Int64
    orbit: Int64

    @classmethod
    def of(cls, topology: Topology, hops: Ragged, node: Int64) -> Renaming | None:
        """Of automorphisms of the nodes; None if there is but one, or two pipes have the same first and last link.

        Args:
            hops: the links of each pipe.
        """
        count = topology.link_count
        by_ends = np.full((topology.node_count, topology.node_count), -1, dtype=np.int64)
        by_ends[topology.src, topology.dst] = np.arange(count)
        link = by_ends[node[:, topology.src], node[:, topology.dst]]
        first, last = hops.values[hops.offsets[:-1]], hops.values[hops.offsets[1:] - 1]
        own = first.astype(np.int64) * count + last
        order = np.argsort(own, kind="stable")
        if len(node) == 1 or (np.diff(own[order]) == 0).any():
            return None
        pipe = order[np.searchsorted(own[order], link[:, first] * count + link[:, last])]
        orbit, before = link.min(axis=0), np.arange(count)
        while (orbit != before).any():
            orbit, before = orbit[link].min(axis=0), orbit
        return cls(node, link, pipe, orbit)

    def busy_s(self, topology: Topology, links: NDArray[np.int32], step: Int64, size: float) -> Float64:
        """float64[orbits, steps], how long links are busy where those that become each other share what crosses them.

        Args:
            links, step: int64[any], those over which so many bytes go, and when.
        """
        steps, count = int(step.max()) + 1, topology.link_count
        load = np.bincount(self.orbit[links] * steps + step, minlength=count * steps).reshape(count, steps) * size
        width = np.bincount(self.orbit, topology.bandwidth, count)
        found: Float64 = load[width > 0] / width[width > 0][:, None]
        return found

    def spread(self, pipe: Int64, steps: Int64, count: int) -> list[int]:
        """Which automorphisms to take, one after another, so that at no step a pipe is used much more than others.

        Args:
            pipe, steps: int64[transfers], what each uses, and when.
        """
        used = np.zeros((self.pipe.shape[1], int(steps.max()) + 1))
        images = self.pipe[:, pipe]
        chosen: list[int] = []
        free = np.ones(len(images), dtype=np.bool_)
        for _ in range(count):
            best = int(np.where(free, used[images, steps].sum(axis=1), np.inf).argmin())
            np.add.at(used, (images[best], steps), 1.0)
            free[best] = False
            chosen.append(best)
        return chosen
