"""Undirected spanning trees for AllReduce where all links are alike both ways and every node is a rank.

A tree that is walked in and out carries each byte once over each of its edges either way, wherever its root is. So
undirected trees are packed (:mod:`.kernel_spanning`), as many as the best partition allows (Tutte and
Nash-Williams 1961: the bound of :mod:`stretto.bounds.parts` is met), and made shallow by swapping edges. Each tree
is walked from its middle: where the middle is inside an edge, the two ends of the edge swap their sums and then both
copy down, so that a byte takes no longer than the longest path in the tree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ...bounds import Parts
from ...kernels import at_speed
from ...model.arrays import Bool, Float64, Int32, Int64, Ragged
from ...model.topology import Topology, opposite
from ...schedule.trees import Trees
from . import kernel_spanning
from .division import fastest_rates
from .forest import Forest
from .kernel_spanning import Network

MOST_TREES = 64
"""Trees that are packed at most."""

FEWEST_TREES = 8
"""Where fewer trees reach the rate, several times as many are packed, for a choice of paths."""

LOSSES = (0.01, 0.02, 0.05, 0.2, 0.5)
"""Shares of the rate that ``MOST_TREES`` trees may lose, tried in turn where no number of equal trees reaches it."""

SHARE_UNITS = 1 << 12
"""Units of the whole in which unequal shares are counted."""

CENTRAL = 1.1
"""Trees grow from nodes whose farthest node is at most this many times as far as that of the most central node."""

CENTRAL_FOR_CHOICE = 1.3
"""The same for further trees, which are to be unlike the first."""

TREES_FOR_CHOICE = 16
"""Further trees that are packed at a time,"""

ROOM_FOR_CHOICE = (1.0, 1.15, 1.3, 1.6)
"""each time with this many times the room that they need."""

MOST_WALKS = 20_000
"""Walks through trees that may be made, at most, to make them shallow."""


@dataclass(frozen=True)
class UndirectedEdges:
    """Pairs of links that are alike both ways, as edges.

    Attributes:
        tail, head: int64[edges].
        forth, back: int64[edges], the link from tail to head, and the opposite link.
        bandwidth, latency_s: float64[edges].
        around: the edges at each node.
    """

    tail: Int64
    head: Int64
    forth: Int64
    back: Int64
    bandwidth: Float64
    latency_s: Float64
    around: Ragged

    @classmethod
    def of(cls, topology: Topology, ranks: Int32) -> UndirectedEdges | None:
        """None where some node is not a rank, or the bandwidth of some link is not alike both ways."""
        if len(ranks) < topology.node_count:
            return None
        other = opposite(topology)
        if other is None:
            return None
        forth = np.flatnonzero(topology.src < topology.dst)
        back = other[forth]
        tail, head = topology.src[forth].astype(np.int64), topology.dst[forth].astype(np.int64)
        around = Ragged.grouped(np.concatenate((tail, head)), np.tile(np.arange(len(tail)), 2), topology.node_count)
        latency = np.maximum(topology.latency_s[forth], topology.latency_s[back])
        return cls(tail, head, forth, back, topology.bandwidth[forth], latency, around)

    @property
    def node_count(self) -> int:
        return self.around.rows

    def network(self, length: Float64) -> Network:
        """The edges as the kernels take them."""
        return Network(self.tail, self.head, length, self.around.offsets, self.around.values.astype(np.int64))


def meeting_trees(edges: UndirectedEdges, parts: Parts, rate: float, far: Float64, part_bytes: float) -> Forest | None:
    """Trees that share the buffer and together come near the bound by parts; None where too many would have to.

    Args:
        rate: bytes/s of the buffer that ``parts`` allow.
        far: float64[nodes, nodes], seconds that a part is on its way.
        part_bytes: what a tree carries at a time; the time that this takes on an edge counts as length, as latency
            does.
    """
    length, central = _lengths_and_center(edges, far, part_bytes, CENTRAL)
    for count, loss in [(n, 0.0) for n in range(1, MOST_TREES + 1)] + [(MOST_TREES, loss) for loss in LOSSES]:
        copies = np.floor(edges.bandwidth * (count / rate * (1 + loss) * (1 + 1e-9))).astype(np.int64)
        times = -(-FEWEST_TREES // count)
        if not _plausible(edges, parts, copies, count):
            continue
        copies = np.minimum(copies, count) * times
        roots = np.resize(central, count * times)
        within = _pack(edges, length, copies, roots)
        if int(within.sum()) == len(roots) * (edges.node_count - 1):
            break
    else:
        return None
    _shorten(edges, length, copies, within)
    shares = _solve_shares(edges, within) if loss else [Fraction(1, len(roots))] * len(roots)
    return _from_the_middle(edges, within, length, shares)


def more_trees(edges: UndirectedEdges, rate: float, far: Float64, part_bytes: float) -> Forest:
    """Further trees, without a share yet, packed with room to spare: a choice where not bandwidth alone decides."""
    length, central = _lengths_and_center(edges, far, part_bytes, CENTRAL_FOR_CHOICE)
    packed = []
    for room in ROOM_FOR_CHOICE:
        copies = np.floor(edges.bandwidth * (TREES_FOR_CHOICE / rate * room)).astype(np.int64)
        copies, roots = np.minimum(copies, TREES_FOR_CHOICE), np.resize(central, TREES_FOR_CHOICE)
        within = _pack(edges, length, copies, roots)
        _shorten(edges, length, copies, within)
        packed.append(within[within.sum(axis=1) == edges.node_count - 1])
    every = np.concatenate(packed)
    _, first = np.unique(every, axis=0, return_index=True)
    return _from_the_middle(edges, every[np.sort(first)], length, [Fraction(0)] * len(first))


def _lengths_and_center(edges: UndirectedEdges, far: Float64, part_bytes: float, near: float) -> tuple[Float64, Int64]:
    """The lengths of edges for a part, and the central nodes, from which trees grow, the most central one first."""
    reach = far.max(axis=1)
    central = np.argsort(reach, kind="stable")[: int((reach <= near * reach.min()).sum())]
    return edges.latency_s + part_bytes / edges.bandwidth, central


def _pack(edges: UndirectedEdges, length: Float64, copies: Int64, roots: Int64) -> Bool:
    return at_speed(kernel_spanning.pack, _work(edges))(edges.network(length), copies, roots)


def _shorten(edges: UndirectedEdges, length: Float64, copies: Int64, within: Bool) -> None:
    at_speed(kernel_spanning.shorten, _work(edges))(edges.network(length), within, copies, MOST_WALKS)


def _work(edges: UndirectedEdges) -> float:
    return 10.0 * edges.node_count**2 * len(edges.tail)


def _plausible(edges: UndirectedEdges, parts: Parts, copies: Int64, count: int) -> bool:
    """Whether there are edges enough for ``count`` trees, in all and between the parts."""
    crossing = (parts.inside[:, edges.tail] != parts.inside[:, edges.head]).any(axis=0)
    copies = np.minimum(copies, count)
    enough = copies.sum() >= count * (edges.node_count - 1)
    return bool(enough and copies[crossing].sum() >= count * (len(parts.inside) - 1))


def _solve_shares(edges: UndirectedEdges, within: Bool) -> list[Fraction]:
    """The shares with which trees are fastest together."""
    tree, edge = np.nonzero(within)
    rates = fastest_rates(len(within), tree, edge, edges.bandwidth)
    counts = np.floor(rates * SHARE_UNITS).astype(np.int64)
    return [Fraction(n, int(counts.sum())) for n in counts.tolist()]


def _from_the_middle(edges: UndirectedEdges, within: Bool, length: Float64, share: list[Fraction]) -> Forest:
    """Trees walked from the middles of their longest paths: sums go there, and copies go out from there."""
    via = np.full((len(within), edges.node_count), -1, dtype=np.int64)
    root, twin = np.empty(len(within), dtype=np.int64), np.empty(len(within), dtype=np.int64)
    at_speed(kernel_spanning.walk_from_the_middle, _work(edges))(edges.network(length), within, root, twin, via)
    node = np.arange(edges.node_count)
    toward = np.where(via >= 0, edges.tail[via] + edges.head[via] - node, -1)
    outward = edges.head[via] == node
    every_link = Ragged.single(np.arange(2 * len(edges.tail)))
    down = Trees(root, toward, np.where(outward, edges.forth[via], edges.back[via]), every_link, twin)
    up = replace(down, hop=np.where(outward, edges.back[via], edges.forth[via]))
    return Forest(up, down, share)
