"""Undirected spanning trees for AllReduce where all links are alike both ways and every node is a rank.

A tree that is walked in and out carries each byte once over each of its edges either way, wherever its root is. So
undirected trees are packed (:mod:`.kernel_spanning`), as many as the best partition allows (Tutte and
Nash-Williams 1961: the bound of :mod:`stretto.bounds.parts` is met), and made shallow by swapping edges. Each tree
is walked from its middle: where the middle is inside an edge, the two ends of the edge swap their sums and then both
copy down, so that a byte takes no longer than the longest path in the tree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ...bounds import Parts
from ...kernels import at_speed
from ...model.arrays import Bool, Float64, Int32, Int64, Ragged
from ...model.topology import Topology
from ...model.variants import opposite
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


WALK_STEPS = 0.001
"""Microseconds of CPU of a walk through a tree, for each edge of the network."""


@dataclass(frozen=True)
class UndirectedEdges:
    """Pairs of links that are alike both ways, as edges.

    Attributes:
        forth, back: int64[edges], the link from tail to head, and the opposite link.
        bandwidth: float64[edges].
        network: the edges as kernels take them; the length of an edge is the seconds that a part takes over it.
    """

    forth: Int64
    back: Int64
    bandwidth: Float64
    network: Network

    @classmethod
    def of(cls, topology: Topology, ranks: Int32, part_bytes: float) -> UndirectedEdges | None:
        """None where some node is not a rank, or the bandwidth of some link is not alike both ways.

        Args:
            part_bytes: what a tree carries at a time.
        """
        other = opposite(topology) if len(ranks) == topology.node_count else None
        if other is None:
            return None
        forth = np.flatnonzero(topology.src < topology.dst)
        back, bandwidth = other[forth], topology.bandwidth[forth]
        tail, head = topology.src[forth].astype(np.int64), topology.dst[forth].astype(np.int64)
        around = Ragged.grouped(np.concatenate((tail, head)), np.tile(np.arange(len(tail)), 2), topology.node_count)
        length = np.maximum(topology.latency_s[forth], topology.latency_s[back]) + part_bytes / bandwidth
        network = Network(tail, head, length, around.offsets, around.values.astype(np.int64))
        return cls(forth, back, bandwidth, network)

    @property
    def node_count(self) -> int:
        return len(self.network.offsets) - 1


def meeting_trees(
    edges: UndirectedEdges, parts: Parts, rate: float, far: Float64, steps: float = math.inf
) -> Forest | None:
    """Trees that share the buffer and together come near the bound by parts; None where too many would have to, or
    where they are not found within some steps.

    Args:
        rate: bytes/s of the buffer that no plan can beat.
        far: float64[nodes, nodes], seconds that a part is on its way.
        steps: about microseconds of CPU.
    """
    walks = _walks(edges, steps)
    central = _central(far, CENTRAL)
    for count, loss in [(n, 0.0) for n in range(1, MOST_TREES + 1)] + [(MOST_TREES, loss) for loss in LOSSES]:
        copies = np.floor(edges.bandwidth * (count / rate * (1 + loss) * (1 + 1e-9))).astype(np.int64)
        times = -(-FEWEST_TREES // count)
        if not _plausible(edges, parts, copies, count):
            continue
        copies = np.minimum(copies, count) * times
        roots = np.resize(central, count * times)
        within = _pack(edges, copies, roots, walks)
        if int(within.sum()) == len(roots) * (edges.node_count - 1):
            break
    else:
        return None
    _shorten(edges, copies, within)
    shares = _solve_shares(edges, within) if loss else [Fraction(1, len(roots))] * len(roots)
    return _from_the_middle(edges, within, shares)


def more_trees(edges: UndirectedEdges, rate: float, far: Float64, steps: float = math.inf) -> Forest:
    """Further trees, without a share yet, packed with room to spare: a choice where not bandwidth alone decides."""
    walks = _walks(edges, steps)
    central = _central(far, CENTRAL_FOR_CHOICE)
    packed = []
    for room in ROOM_FOR_CHOICE:
        copies = np.floor(edges.bandwidth * (TREES_FOR_CHOICE / rate * room)).astype(np.int64)
        copies, roots = np.minimum(copies, TREES_FOR_CHOICE), np.resize(central, TREES_FOR_CHOICE)
        within = _pack(edges, copies, roots, walks)
        _shorten(edges, copies, within)
        packed.append(within[within.sum(axis=1) == edges.node_count - 1])
    every = np.concatenate(packed)
    _, first = np.unique(every, axis=0, return_index=True)
    return _from_the_middle(edges, every[np.sort(first)], [Fraction(0)] * len(first))


def _central(far: Float64, near: float) -> Int64:
    """The central nodes, from which trees grow, the most central one first."""
    reach = far.max(axis=1)
    return np.argsort(reach, kind="stable")[: int((reach <= near * reach.min()).sum())]


def _walks(edges: UndirectedEdges, steps: float) -> Int64:
    """int64[1], the walks through trees that fit into some steps."""
    return np.array([min(steps / (WALK_STEPS * len(edges.forth)), 1e18)], dtype=np.int64)


def _pack(edges: UndirectedEdges, copies: Int64, roots: Int64, walks: Int64) -> Bool:
    return at_speed(kernel_spanning.pack, _work(edges))(edges.network, copies, roots, walks)


def _shorten(edges: UndirectedEdges, copies: Int64, within: Bool) -> None:
    at_speed(kernel_spanning.shorten, _work(edges))(edges.network, within, copies, MOST_WALKS)


def _work(edges: UndirectedEdges) -> float:
    return 10.0 * edges.node_count**2 * len(edges.forth)


def _plausible(edges: UndirectedEdges, parts: Parts, copies: Int64, count: int) -> bool:
    """Whether there are edges enough for ``count`` trees, in all and between the parts."""
    crossing = (parts.inside[:, edges.network.tail] != parts.inside[:, edges.network.head]).any(axis=0)
    copies = np.minimum(copies, count)
    enough = copies.sum() >= count * (edges.node_count - 1)
    return bool(enough and copies[crossing].sum() >= count * (len(parts.inside) - 1))


def _solve_shares(edges: UndirectedEdges, within: Bool) -> list[Fraction]:
    """The shares with which trees are fastest together."""
    tree, edge = np.nonzero(within)
    rates = fastest_rates(len(within), tree, edge, edges.bandwidth)
    counts = np.floor(rates * SHARE_UNITS).astype(np.int64)
    return [Fraction(n, int(counts.sum())) for n in counts.tolist()]


def _from_the_middle(edges: UndirectedEdges, within: Bool, share: list[Fraction]) -> Forest:
    """Trees walked from the middles of their longest paths: sums go there, and copies go out from there."""
    via = np.full((len(within), edges.node_count), -1, dtype=np.int64)
    root, twin = np.empty(len(within), dtype=np.int64), np.empty(len(within), dtype=np.int64)
    at_speed(kernel_spanning.walk_from_the_middle, _work(edges))(edges.network, within, root, twin, via)
    node, (tail, head, *_) = np.arange(edges.node_count), edges.network
    toward = np.where(via >= 0, tail[via] + head[via] - node, -1)
    outward = head[via] == node
    every_link = Ragged.single(np.arange(2 * len(tail)))
    down = Trees(root, toward, np.where(outward, edges.forth[via], edges.back[via]), every_link, twin)
    up = replace(down, hop=np.where(outward, edges.back[via], edges.forth[via]))
    return Forest(up, down, share)
