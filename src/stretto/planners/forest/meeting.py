"""Undirected spanning trees for AllReduce where all links are alike both ways and there is nothing but ranks.

A tree that is walked in and out carries each byte once over each of its edges either way, wherever its root is. So
undirected trees are packed (:mod:`.kernel_spanning`), as many as the best partition allows (Tutte and
Nash-Williams 1961: the bound of :mod:`stretto.bounds.parts` is met), kept shallow by exchanging edges among them; and
each is walked from its middle: where that is inside an edge, its two ends give each other their sums and then both
copy down, so that a byte takes no longer than the longest way in the tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ...bounds import Parts
from ...kernels import at_speed
from ...model.topology import Topology, opposite
from . import kernel_spanning

Bool = NDArray[np.bool_]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

MOST_TREES = 64
"""How many trees are packed at most."""

FEW_TREES = 8
"""Where fewer reach the rate, several times as many are packed, to have ways to choose from."""

LOSSES = (0.01, 0.02, 0.05, 0.2, 0.5)
"""How much slower than the bound the most trees may be where no number of equal ones reaches it."""

SHARES = 1 << 12
"""Parts of the whole in which unequal shares are counted."""

CENTRAL, VARIED = 1.1, 1.3
"""Trees grow from nodes whose farthest node is at most so many times as far as that of the most central one; those to
choose from, from more of them."""

MORE_TREES = 16
"""How many are packed at a time to choose from,"""

ROOM = (1.0, 1.15, 1.3, 1.6)
"""with so many times the room that they need."""

WORK = 20_000
"""How many walks through trees may be spent to make them shallow."""


@dataclass(frozen=True)
class Meeting:
    """A tree and where its sums meet.

    Attributes:
        share: of the buffer.
        root, twin: its middle; the twin is a node below the root, or -1 where the root alone is in the middle.
        parent: for each node but the root the next on the way to it.
        edge: for each of these the edge between the two.
    """

    share: Fraction
    root: int
    twin: int
    parent: dict[int, int]
    edge: dict[int, int]


@dataclass(frozen=True)
class Edges:
    """Pairs of links that are alike both ways, as edges.

    Attributes:
        tail, head: int64[edges].
        forth, back: int64[edges], the link from tail to head, and the other.
        bandwidth, latency_s: float64[edges].
        offsets, around: the edges of each node.
    """

    tail: Int64
    head: Int64
    forth: Int64
    back: Int64
    bandwidth: Float64
    latency_s: Float64
    offsets: Int64
    around: Int64

    @classmethod
    def of(cls, topology: Topology, ranks: NDArray[np.int32]) -> Edges | None:
        """None where there are other nodes than ranks, or links whose bandwidth is not alike both ways."""
        if len(ranks) < topology.node_count:
            return None
        other = opposite(topology)
        if other is None:
            return None
        forth = np.flatnonzero(topology.src < topology.dst)
        back = other[forth]
        tail, head = topology.src[forth].astype(np.int64), topology.dst[forth].astype(np.int64)
        ends = np.concatenate((tail, head))
        offsets = np.zeros(topology.node_count + 1, dtype=np.int64)
        np.cumsum(np.bincount(ends, minlength=topology.node_count), out=offsets[1:])
        around = np.tile(np.arange(len(tail)), 2)[np.argsort(ends, kind="stable")]
        latency = np.maximum(topology.latency_s[forth], topology.latency_s[back])
        return cls(tail, head, forth, back, topology.bandwidth[forth], latency, offsets, around)

    @property
    def nodes(self) -> int:
        return len(self.offsets) - 1

    def links(self, tree: Meeting) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
        """For each node of a tree the link that comes to it from its parent, and the one that leads there."""
        out: dict[int, tuple[int, ...]] = {}
        into: dict[int, tuple[int, ...]] = {}
        forth, back, head = self.forth.tolist(), self.back.tolist(), self.head.tolist()
        for v, e in tree.edge.items():
            one, other = (forth[e],), (back[e],)
            out[v], into[v] = (one, other) if head[e] == v else (other, one)
        return out, into


def meeting_trees(edges: Edges, parts: Parts, rate: float, far: Float64, part_bytes: float) -> list[Meeting]:
    """Trees that share the buffer and together come near the bound by parts; none where too many would have to.

    Args:
        rate: bytes/s of the buffer that ``parts`` allow.
        far: float64[nodes, nodes], how long a part is on the way.
        part_bytes: what a tree carries at a time; this takes time on each edge, as latency does.
    """
    length, central = _grounds(edges, far, part_bytes, CENTRAL)
    kernel_steps = 10.0 * edges.nodes**2 * len(edges.tail)
    for count, loss in [(n, 0.0) for n in range(1, MOST_TREES + 1)] + [(MOST_TREES, loss) for loss in LOSSES]:
        copies = np.floor(edges.bandwidth * (count / rate * (1 + loss) * (1 + 1e-9))).astype(np.int64)
        times = -(-FEW_TREES // count)
        if not _plausible(edges, parts, copies, count):
            continue
        copies = np.minimum(copies, count) * times
        roots = np.resize(central, count * times)
        within = at_speed(kernel_spanning.pack, kernel_steps)(
            edges.tail, edges.head, length, copies, edges.offsets, edges.around, roots
        )
        if int(within.sum()) == len(roots) * (edges.nodes - 1):
            break
    else:
        return []
    at_speed(kernel_spanning.shorten, kernel_steps)(
        within, edges.tail, edges.head, length, copies, edges.offsets, edges.around, WORK
    )
    shares = _shares(edges, within) if loss else [Fraction(1, len(roots))] * len(roots)
    return [_from_the_middle(edges, tree, length, share) for tree, share in zip(within, shares, strict=True) if share]


def more_trees(edges: Edges, rate: float, far: Float64, part_bytes: float) -> list[Meeting]:
    """Other trees, of no share yet, to choose from where not bandwidth alone decides: packed with room to spare."""
    length, central = _grounds(edges, far, part_bytes, VARIED)
    kernel_steps = 10.0 * edges.nodes**2 * len(edges.tail)
    found: dict[bytes, Bool] = {}
    for room in ROOM:
        copies = np.floor(edges.bandwidth * (MORE_TREES / rate * room)).astype(np.int64)
        copies, roots = np.minimum(copies, MORE_TREES), np.resize(central, MORE_TREES)
        within = at_speed(kernel_spanning.pack, kernel_steps)(
            edges.tail, edges.head, length, copies, edges.offsets, edges.around, roots
        )
        at_speed(kernel_spanning.shorten, kernel_steps)(
            within, edges.tail, edges.head, length, copies, edges.offsets, edges.around, WORK
        )
        found |= {tree.tobytes(): tree for tree in within if int(tree.sum()) == edges.nodes - 1}
    return [_from_the_middle(edges, tree, length, Fraction(0)) for tree in found.values()]


def _grounds(edges: Edges, far: Float64, part_bytes: float, near: float) -> tuple[Float64, Int64]:
    """The lengths of edges for a part, and the nodes that trees grow from."""
    reach = far.max(axis=1)
    central = np.argsort(reach, kind="stable")[: int((reach <= near * reach.min()).sum())]
    return edges.latency_s + part_bytes / edges.bandwidth, central


def _plausible(edges: Edges, parts: Parts, copies: Int64, count: int) -> bool:
    """Whether there are edges enough for so many trees, in all and between the parts."""
    crossing = (parts.inside[:, edges.tail] != parts.inside[:, edges.head]).any(axis=0)
    copies = np.minimum(copies, count)
    enough = copies.sum() >= count * (edges.nodes - 1)
    return bool(enough and copies[crossing].sum() >= count * (len(parts.inside) - 1))


def _shares(edges: Edges, within: Bool) -> list[Fraction]:
    """How much trees carry that together are as fast as they can be, by a linear program."""
    from ...solvers import INFINITY, Model, solve

    model = Model()
    rates = model.columns(len(within), 0.0, INFINITY, -1.0)
    tree, edge = np.nonzero(within)
    model.rows(len(edges.tail), -INFINITY, edges.bandwidth / edges.bandwidth.max(), (edge, rates[tree], 1.0))
    found = solve(model)
    assert found.x is not None, "nothing at all is a solution"
    counted = np.floor(found.x / found.x.sum() * SHARES).astype(np.int64)
    return [Fraction(n, int(counted.sum())) for n in counted.tolist()]


def _from_the_middle(edges: Edges, tree: Bool, length: Float64, share: Fraction) -> Meeting:
    """A tree walked from the middle of its longest way."""
    start = _walked(edges, tree, length, 0)
    begin = max(start.far, key=lambda v: start.far[v])
    whole = _walked(edges, tree, length, begin)
    end = max(whole.far, key=lambda v: whole.far[v])
    half = whole.far[end] / 2
    node = end
    while whole.far[whole.parent[node]] > half:
        node = whole.parent[node]
    above = whole.parent[node]
    # the middle is between node and above, or at above
    if whole.far[above] >= half * (1 - 1e-9):
        return _walked(edges, tree, length, above).meeting(share, -1)
    if whole.far[node] <= half * (1 + 1e-9):
        return _walked(edges, tree, length, node).meeting(share, -1)
    return _walked(edges, tree, length, above).meeting(share, node)


@dataclass(frozen=True)
class _Walk:
    """A tree from one of its nodes: how far the others are, and their ways back."""

    root: int
    far: dict[int, float]
    parent: dict[int, int]
    edge: dict[int, int]

    def meeting(self, share: Fraction, twin: int) -> Meeting:
        return Meeting(share, self.root, twin, self.parent, self.edge)


def _walked(edges: Edges, tree: Bool, length: Float64, root: int) -> _Walk:
    walk = _Walk(root, {root: 0.0}, {}, {})
    queue = [root]
    for v in queue:
        for e in edges.around[edges.offsets[v] : edges.offsets[v + 1]].tolist():
            w = int(edges.tail[e] + edges.head[e]) - v
            if tree[e] and w not in walk.far:
                walk.far[w], walk.parent[w], walk.edge[w] = walk.far[v] + float(length[e]), v, e
                queue.append(w)
    return walk
