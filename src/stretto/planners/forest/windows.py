"""How much of the data each of many trees carries where latency counts beside bandwidth.

A link of a tree has nothing to carry before the data behind it has come, and nothing at the end, for as long as
what it brought must travel on: each use of a link by a tree has a window. So links far from the middle of a tree can
carry less than their bandwidth allows, links near it more, and a few trees with another middle use what would be idle.
Uses whose windows open s or more after the start and close f or more before the end must fit into the time between.
So there is a linear program over the shares of many trees,

    minimise T + DEPTH x the mean time through a tree, where for each link, s and f
    s + f + seconds of all trees whose windows there open no sooner than s and close no later than T - f <= T.

T is the least time in which every link, considered alone, could carry its data. Few of these rows bind, so rows are
added where a solution breaks them. A row stays even if later shares leave its window empty, so trees that take longer
than T are left out before (:meth:`.latency.Pool.by_windows`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...model.arrays import Bool, Float64, Int64
from ...model.topology import Topology
from ...schedule.trees import Trees, depths
from .division import largest
from .forest import Forest
from .meeting import UndirectedEdges

SHARE_UNITS = 1 << 12
"""Units of the whole in which shares are counted."""

DEPTH = 1.0
"""Weight of the mean time through a tree beside T: links also wait for each other."""

GRAIN = 1e-6
"""Windows that differ by less are one, as a share of the latest opening or closing."""

TOLERANCE = 1e-3
"""A row is broken where it asks for a T that is later by more than this share."""


MOST_LINKS, LEAST_LOAD, MOST_OPENINGS = 64, 0.5, 16
"""Where time is only estimated: links that are looked at, the busiest ones; their least load, as a share of the highest
one; and openings of windows of one link."""


class Shares(NamedTuple):
    """How much each tree should carry, in about ``SHARE_UNITS`` units.

    Attributes:
        end_s: when all is there, seconds.
        price: float64[links], by how much of ``unit_s`` that would be later at most if each link carried the whole once
            more.
        unit_s: seconds.
        idle: int64[any], trees that carry nothing and make ``end_s`` late by the rows of their windows.
    """

    counts: list[int]
    end_s: float
    price: Float64
    unit_s: float
    idle: Int64


class LinkUses(NamedTuple):
    """Uses of links by trees, and their windows.

    Attributes:
        tree, link: int64[uses].
        opens_s: float64[uses], how long after the start it can begin.
        closes_s: float64[uses], how long before the end it must be over.
    """

    tree: Int64
    link: Int64
    opens_s: Float64
    closes_s: Float64

    @classmethod
    def of(cls, topology: Topology, forest: Forest, part_bytes: Float64 | float) -> LinkUses:
        """When the trees of a forest use their links, if data travels in parts of ``part_bytes``, or of as many as
        each tree has there."""
        up, down = (_Ways.of(topology, trees, part_bytes) for trees in (forest.up, forest.down))
        into, out = up.uses(topology, down, sums=True), down.uses(topology, up, sums=False)
        tree, link, opens_s, closes_s = (np.concatenate(columns) for columns in zip(into, out, strict=True))
        order = np.argsort(tree, kind="stable")
        return cls(tree[order], link[order], opens_s[order], closes_s[order])

    def needed_s(self, busy_s: Float64) -> float:
        """How long the links need that are busiest, by the windows of their uses, seconds; a little less is possible.

        Args:
            busy_s: float64[uses], how long each use keeps its link busy.
        """
        load_s = np.bincount(self.link, busy_s)
        busiest = np.argsort(-load_s, kind="stable")[:MOST_LINKS]
        needed_s = 0.0
        for link in busiest[load_s[busiest] > LEAST_LOAD * load_s.max()].tolist():
            of_link = np.flatnonzero(self.link == link)
            of_link = of_link[np.argsort(-self.closes_s[of_link], kind="stable")]
            opens = self.opens_s[of_link]
            some = ((len(opens) - 1) * np.linspace(0, 1, MOST_OPENINGS)).astype(np.int64)
            after = np.unique(np.sort(opens)[some])[:, None]
            inside_s = np.cumsum(np.where(opens >= after, busy_s[of_link], 0.0), axis=1)
            windows_s = np.where(inside_s > 0, after + self.closes_s[of_link] + inside_s, 0.0)
            needed_s = max(needed_s, float(windows_s.max()))
        return needed_s

    @property
    def through_s(self) -> Float64:
        """float64[trees], how long a part travels through each tree."""
        through_s = np.zeros(int(self.tree.max()) + 1)
        np.maximum.at(through_s, self.tree, self.opens_s + self.closes_s)
        return through_s

    def among(self, trees: Int64) -> LinkUses:
        """The uses by some trees, given in ascending order and numbered from 0."""
        used = np.isin(self.tree, trees)
        tree = np.searchsorted(trees, self.tree[used])
        return LinkUses(tree, self.link[used], self.opens_s[used], self.closes_s[used])


def counts_by_windows(
    uses: LinkUses, seconds: Float64, root: Int64 | int = 0, share: Float64 | float = 1.0
) -> Shares | None:
    """How much each tree should carry; None where numbers are too far apart to solve.

    Args:
        seconds: float64[links], for which each link would carry the whole.
        root: int64[trees], the place of each tree's root in ``share``.
        share: float64[roots], the part of the whole that the trees of each root carry.
    """
    from ...solvers import INFINITY, Model
    from ...solvers.highs import Growing

    grain = GRAIN * float(max(uses.opens_s.max(), uses.closes_s.max()))
    opens_s, closes_s = (np.round(at / grain) * grain for at in (uses.opens_s, uses.closes_s))
    uses = uses._replace(opens_s=opens_s, closes_s=closes_s)
    order = np.argsort(uses.link, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(uses.link[order])) + 1)
    through = uses.through_s
    alone = np.zeros(len(through))
    np.maximum.at(alone, uses.tree, seconds[uses.link])
    # T is about this long
    unit = float((through + alone).min())
    model = Model()
    carried_by = model.columns(len(through), 0.0, INFINITY, DEPTH * through / unit)
    (end,) = model.columns(1, 0.0, INFINITY, 1.0)
    model.rows(np.size(share), share, share, (root, carried_by, 1.0))
    program = Growing(model)
    windows = [(of_link, float(uses.opens_s[of_link].min()), float(uses.closes_s[of_link].min())) for of_link in groups]
    asked = list[tuple[Int64, float, float]]()
    while windows:
        asked += windows
        rows = Model(model.column_count)
        for of_link, after, before in windows:
            inside = of_link[(uses.opens_s[of_link] >= after) & (uses.closes_s[of_link] >= before)]
            load = -seconds[uses.link[inside]] / unit
            rows.rows(1, (after + before) / unit, INFINITY, (0, end, 1.0), (0, carried_by[uses.tree[inside]], load))
        program.add(rows)
        solution = program.solve()
        if solution is None:
            return None
        x = np.maximum(solution, 0.0)
        busy_s = x[carried_by[uses.tree]] * seconds[uses.link]
        windows = list(_broken(uses, groups, busy_s, float(x[end]) * unit * (1 + TOLERANCE)))
    counts = np.floor(x[carried_by] / x[carried_by].sum() * SHARE_UNITS + 1e-6).astype(np.int64)
    roots = np.broadcast_to(root, len(through)).tolist()
    most = largest(x[carried_by].tolist(), roots, 1)
    counts[most] = np.maximum(counts[most], 1)  # roots with little data have a tree, too
    price, idle = np.zeros(len(seconds)), list[Int64]()
    binds = np.maximum(program.duals[np.size(share) :], 0.0)
    for k in np.flatnonzero(binds > 0).tolist():
        of_link, after, before = asked[k]
        inside = of_link[(uses.opens_s[of_link] >= after) & (uses.closes_s[of_link] >= before)]
        if busy_s[inside].any():
            price[uses.link[of_link[0]]] += binds[k]
        else:
            idle.append(uses.tree[inside])
    empty = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *idle]))
    return Shares(counts.tolist(), float(x[end]) * unit, price * seconds / unit, unit, empty)


def _broken(uses: LinkUses, groups: list[Int64], busy_s: Float64, end_s: float) -> Iterator[tuple[Int64, float, float]]:
    """For each link with a window that does not hold its uses: all uses of the link, and the most overfull window.

    Args:
        groups: the uses of each link.
        busy_s: float64[uses], how long each use keeps its link busy.
    """
    for group in groups:
        used = group[busy_s[group] > 0]
        used = used[np.argsort(-uses.closes_s[used], kind="stable")]
        opens, closes = uses.opens_s[used], uses.closes_s[used]
        after = opens[np.sort(np.unique(opens, return_index=True)[1])][:, None]
        inside_s = np.cumsum(np.where(opens >= after, busy_s[used], 0.0), axis=1)
        needed_s = np.where(inside_s > 0, after + closes + inside_s, 0.0)
        if needed_s.size and needed_s.max() > end_s:
            first, last = divmod(int(needed_s.argmax()), len(used))
            yield group, float(after[first, 0]), float(closes[last])


def shares_by_windows(
    topology: Topology, edges: UndirectedEdges, forest: Forest, part_bytes: float, size_bytes: int
) -> Forest | None:
    """The trees over these edges that should carry something, with shares by latency; None where these are not found.

    Args:
        size_bytes: of the buffer.
    """
    links = np.column_stack((edges.forth, edges.back)).ravel()
    uses = LinkUses.of(topology, forest, part_bytes)
    uses = uses._replace(link=np.argsort(links)[uses.link])
    found = counts_by_windows(uses, size_bytes / topology.bandwidth[links])
    return None if found is None else forest.divided(found.counts)


@dataclass(frozen=True)
class _Ways:
    """How long parts travel within trees.

    Attributes:
        tree, node: int64[edges], between ``node`` and its parent; edges near the root first.
        is_twin: bool[edges], whether the node swaps sums with its parent.
        levels: the edges of each depth.
        seconds: float64[edges].
        below_s: float64[trees, nodes], how long parts travel between a node and the farthest node below it.
        beside_s: float64[trees], the same for the root, without what is below a twin.
    """

    trees: Trees
    tree: Int64
    node: Int64
    is_twin: Bool
    levels: list[slice]
    seconds: Float64
    below_s: Float64
    beside_s: Float64

    @classmethod
    def of(cls, topology: Topology, trees: Trees, part_bytes: Float64 | float) -> _Ways:
        depth, below_s = depths(trees), np.zeros(trees.toward.shape)
        tree, node = np.nonzero(depth)
        order = np.argsort(depth[tree, node], kind="stable")
        tree, node = tree[order], node[order]
        ends = np.cumsum(np.bincount(depth[tree, node])).tolist()
        levels = [slice(*edges) for edges in pairwise(ends)]
        routes = trees.routes.take(trees.hop[tree, node])
        size = np.broadcast_to(part_bytes, len(trees.root))[tree]
        seconds = topology.route_latency_s(routes) + size / topology.route_bandwidth(routes)
        for level in levels[::-1]:
            at, v = tree[level], node[level]
            np.maximum.at(below_s, (at, trees.toward[at, v]), below_s[at, v] + seconds[level])
        is_twin = node == (-1 if trees.twin is None else trees.twin[tree])
        beside = np.flatnonzero((trees.toward[tree, node] == trees.root[tree]) & ~is_twin)
        beside_s = np.zeros(len(trees.root))
        np.maximum.at(beside_s, tree[beside], below_s[tree, node][beside] + seconds[beside])
        return cls(trees, tree, node, is_twin, levels, seconds, below_s, beside_s)

    def uses(self, topology: Topology, other: _Ways, sums: bool) -> LinkUses:
        """The uses of links, and their windows.

        Args:
            other: the trees of the same roots for copies, if these are for ``sums``, and the other way round.
        """
        tree, node, seconds, below_s = self.tree, self.node, self.seconds, self.below_s
        parent = self.trees.toward[tree, node]
        # a part comes from above at these times after the start, or must be there before the end
        above_s, from_s = other.below_s.copy(), np.zeros(len(tree))
        for level in self.levels:
            at, v = tree[level], node[level]
            # a twin gets the sum of the root's other branches, and has the whole when its own has come too
            from_s[level] = np.where(self.is_twin[level], other.beside_s[at], above_s[at, parent[level]])
            above_s[at, v] = np.maximum(above_s[at, v], from_s[level] + seconds[level])
        routes = self.trees.routes.take(self.trees.hop[tree, node])
        link, ahead_s = routes.values.astype(np.int64), seconds[routes.owners]
        behind_s = np.zeros(len(link))
        for k in range(1, int(routes.lengths.max(initial=0))):
            here = routes.offsets[:-1][routes.lengths > k] + k
            behind_s[here] = behind_s[here - 1] + topology.latency_s[link[here - 1]]
            ahead_s[here] = ahead_s[here - 1] - topology.latency_s[link[here - 1]]
        near_s, far_s = from_s[routes.owners], below_s[tree, node][routes.owners]
        opens_s, closes_s = (far_s, near_s) if sums else (near_s, far_s)
        return LinkUses(tree[routes.owners], link, opens_s + behind_s, closes_s + ahead_s)
