"""Routes through switches between one rank and all others, from which the group makes all other routes.

A route has the fewest hops, and of these ways the widest bottleneck, where a link counts as wide as the part of it that
each of its images has. Where several links lead on equally well, routes take turns, so that those to all ranks, and to
the ranks of a coset, are spread evenly over equal switches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...model.arrays import Bool, Float64, Int32, Int64, Ragged
from ...model.symmetry import Symmetry

ALIKE = 1e-9
"""Share by which two bottlenecks may differ and count as equally wide."""


@dataclass(frozen=True, eq=False)
class Routes:
    """Routes between the rank of element 0 and the rank of each element.

    Attributes:
        symmetry: the group.
        links: ragged, for each element its route, in the order in which bytes pass it; empty where there is none.
        into: whether routes lead to element 0, not from it.
    """

    symmetry: Symmetry
    links: Ragged
    into: bool

    @cached_property
    def reached(self) -> Bool:
        """bool[elements], whether there is a route."""
        reached: Bool = self.links.lengths > 0
        return reached

    @cached_property
    def orbits(self) -> Int32:
        """int32[links of routes], the orbit of each link, by its first link."""
        return self.symmetry.link_orbits[self.links.values]

    @cached_property
    def latency_s(self) -> Float64:
        """float64[elements], from source to receiver."""
        passed_s = self.symmetry.topology.latency_s[self.links.values]
        return np.bincount(self.links.owners, passed_s, self.links.rows).astype(np.float64)

    def busy_s(self, size_bytes: float) -> Float64:
        """float64[links of routes], for how long the images of a message keep each link."""
        t, links = self.symmetry.topology, self.links.values
        each: Float64 = self.symmetry.copies[links] * (size_bytes / t.bandwidth[links] + t.message_s[links])
        return each

    def seconds(self, size_bytes: float) -> Float64:
        """float64[elements], for how long a message keeps its route."""
        out = np.zeros(self.links.rows)
        np.maximum.at(out, self.links.owners, self.busy_s(size_bytes))
        return out

    def load_s(self, elements: Int64, number: Int64, size_bytes: float) -> Float64:
        """float64[links], for how long messages keep the links of each orbit, at the orbit's first link.

        Args:
            elements, number: int64[...], how many messages go over the route of each element.
        """
        count = np.bincount(elements, number, self.links.rows)
        work_s = self.busy_s(size_bytes) * count[self.links.owners]
        return np.bincount(self.orbits, work_s, self.symmetry.topology.link_count).astype(np.float64)


def find_routes(symmetry: Symmetry, at: Int32, into: bool) -> Routes:
    """The routes between ``at[0]`` and each of ``at``, int32[elements], through nodes that pass on what comes."""
    t = symmetry.topology
    tail, head, out = (t.dst, t.src, t.in_links) if into else (t.src, t.dst, t.out_links)
    share = t.bandwidth / symmetry.copies
    level = np.full(t.node_count, -1)
    width = np.zeros(t.node_count)
    level[at[0]], width[at[0]] = 0, np.inf
    frontier, depth = at[:1], 0
    ways: list[Int32] = []
    while len(frontier):
        depth += 1
        links = out.take(frontier).values
        links = links[level[head[links]] < 0]
        wide = np.minimum(width[tail[links]], share[links])
        np.maximum.at(width, head[links], wide)
        ways.append(links[wide >= width[head[links]] * (1 - ALIKE)])
        nodes = np.unique(head[links])
        level[nodes] = depth
        frontier = nodes[t.transit[nodes]]
    links = np.concatenate(ways)
    before = Ragged.grouped(head[links], links, t.node_count)
    spread = symmetry.exponents(np.arange(len(at))).sum(axis=1)
    chosen = np.full((len(at), depth), -1)
    node = at.astype(np.int64)
    for place in range(depth - 1, -1, -1):
        rows = np.flatnonzero(level[node] == place + 1)
        if len(rows):
            v = node[rows]
            number = before.lengths[v]
            chosen[rows, place] = before.values[before.offsets[v] + _turns(v, spread[rows]) % number]
            # the next choice on the way is made by what this one leaves of the number
            spread[rows] //= number
            node[rows] = tail[chosen[rows, place]]
    passed = chosen[:, ::-1] if into else chosen
    return Routes(symmetry, Ragged.from_lengths((passed >= 0).sum(axis=1), passed[passed >= 0]), into)


def _turns(node: Int64, spread: Int64) -> Int64:
    """int64[rows], a number for each row: the rows of a node count up from the ``spread`` of the first one."""
    order = np.argsort(node, kind="stable")
    first = np.diff(node[order], prepend=-1) != 0
    begin = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    turns = np.empty(len(node), dtype=np.int64)
    turns[order] = spread[order][begin] + np.arange(len(order)) - begin
    return turns
