"""Which trees a collective's data follows, and how much of it each."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ...bounds import best_parts, bottleneck, distances, tree_rates
from ...model.collective import Collective
from ...model.topology import Topology, opposite
from .meeting import Edges, Meeting, meeting_trees, more_trees
from .pack import Batch, pack, shortened
from .rates import Counted, counted, spreading
from .relays import find_relays, through_relays
from .shares import balanced
from .split import Direct, without_switches

Int64 = NDArray[np.int64]

ENOUGH = 1.001
"""How many times faster AllReduce must be by unequal roots to be worth the search for them."""

LONG = 0.02
"""Of the time that bandwidth alone takes the part from which on the longest way has a say in the shares of trees."""

BALANCED_UP_TO = 128
"""Edges up to which it has."""


@dataclass(frozen=True)
class Segment:
    """A share of a root's data and the trees that it follows; one is None where nothing is to be summed or copied.

    Attributes:
        twin: where both trees are one and their middle is inside an edge of the root, the other end of that.
    """

    share: Fraction
    up: Routed | None
    down: Routed | None
    twin: int = -1


@dataclass(frozen=True)
class Routed:
    """A tree whose edges have their links: for each node but the root its parent and the way between."""

    parent: dict[int, int]
    links: dict[int, tuple[int, ...]]


@dataclass(frozen=True)
class Forest:
    """For each root its segments, which make up all of its data, and the share of the whole that it has."""

    segments: dict[int, list[Segment]]
    share: dict[int, Fraction]

    @property
    def summed(self) -> bool:
        """Whether sums are copied again, so that roots may have any share."""
        return any(s.up is not None and s.down is not None for some in self.segments.values() for s in some)

    @property
    def edges(self) -> int:
        """Of all trees."""
        trees = (t for some in self.segments.values() for s in some for t in (s.up, s.down) if t is not None)
        return sum(len(t.parent) for t in trees)

    @cached_property
    def weight(self) -> dict[int, list[float]]:
        """For each segment how many times the average one's data it has."""
        count, whole = sum(map(len, self.segments.values())), sum(self.share.values())
        return {
            root: [float(self.share[root] * s.share / whole) * count for s in some]
            for root, some in self.segments.items()
        }


def forests_of(topology: Topology, c: Collective, transfers: int) -> list[Forest]:
    """Forests for a collective, to choose from.

    Args:
        transfers: into about how many it may be cut: the time of one is a length to be kept short, as latency is.
    """
    ranks = c.ranks
    shares = np.zeros(len(ranks))
    if c.kind == "allreduce":
        return _allreduce(topology, c, 2 * (len(ranks) - 1) * c.size_bytes / transfers)
    if c.root >= 0:
        shares[c.root] = 1.0
    else:
        shares[:] = 1.0
    net = _reversed(topology) if c.reduces else topology
    part = (len(ranks) - 1) * c.size_bytes / transfers
    share = {int(v): Fraction(int(s)) for v, s in zip(ranks, shares, strict=True)}
    return [
        Forest(
            {
                root: [Segment(share, tree, None) if c.reduces else Segment(share, None, tree) for share, tree in some]
                for root, some in trees.items()
            },
            share,
        )
        for trees in _packed(net, ranks, spreading(net, ranks, shares), part, backward=c.reduces)
    ]


def _allreduce(topology: Topology, c: Collective, part: float) -> list[Forest]:
    """In-trees and out-trees of the same roots at once; equal roots where unequal ones gain nothing.

    Where links are alike both ways, trees that meet in their middle; they reach what unequal roots do.
    """
    ranks = c.ranks
    back = _reversed(topology)
    copies = spreading(topology, ranks, np.ones(len(ranks)))
    sums = spreading(back, ranks, np.ones(len(ranks)))
    # of a link's time, copies take one part in proportion, sums the other
    composed = len(ranks) / (1 / _each(copies) + 1 / _each(sums))
    enough = composed * ENOUGH >= _limit(topology, c)
    met = _meeting(topology, c, part)
    if met and not enough:
        return met
    best = None if enough else tree_rates(topology, ranks)
    if best is not None and best.rate > composed * ENOUGH:
        copies = counted(topology, ranks, best.copies, best.root)
        sums = counted(back, ranks, best.sums, best.root)
    down = _packed(topology, ranks, copies, part, backward=False)
    other = opposite(topology) if enough else None
    up = _packed(back, ranks, sums, part, backward=True) if other is None else [_mirrored(d, other) for d in down]
    total = sum(copies.roots.values())
    share = {v: Fraction(k, total) for v, k in copies.roots.items() if v in down[0] and v in up[0]}
    whole = sum(share.values(), Fraction(0))
    found = [
        Forest({v: _paired(u[v], d[v]) for v in share}, {v: s / whole for v, s in share.items()})
        for u, d in zip(up, down, strict=True)
    ]
    return [*found, *met]


def _meeting(topology: Topology, c: Collective, part: float) -> list[Forest]:
    """Trees that are walked in and out from their middle, none where links are not alike both ways or far too many.

    Where latency is much beside bandwidth, a second choice of other shares.
    """
    edges, bound = Edges.of(topology, c.ranks), best_parts(topology, c)
    if edges is None or bound is None:
        return []
    rate, far = c.size_bytes / float(bound.seconds), distances(topology, part)
    trees = meeting_trees(edges, bound, rate, far, part)
    if not trees:
        return []
    found = [_walked(edges, trees)]
    if far.max() > LONG * float(bound.seconds) and len(edges.tail) <= BALANCED_UP_TO:
        length = edges.latency_s + part / edges.bandwidth
        found.append(_walked(edges, balanced(edges, trees + more_trees(edges, rate, far, part), length, c.size_bytes)))
    return found


def _walked(edges: Edges, trees: list[Meeting]) -> Forest:
    segments: dict[int, list[Segment]] = {}
    for tree in trees:
        out, into = edges.links(tree)
        segments.setdefault(tree.root, []).append(
            Segment(tree.share, Routed(tree.parent, into), Routed(tree.parent, out), tree.twin)
        )
    share = {root: sum((s.share for s in some), Fraction(0)) for root, some in segments.items()}
    return Forest({v: [replace(s, share=s.share / share[v]) for s in some] for v, some in segments.items()}, share)


def _mirrored(trees: dict[int, list[tuple[Fraction, Routed]]], back: Int64) -> dict[int, list[tuple[Fraction, Routed]]]:
    """Trees walked the other way."""
    return {
        root: [
            (share, Routed(t.parent, {v: tuple(back[list(way[::-1])].tolist()) for v, way in t.links.items()}))
            for share, t in some
        ]
        for root, some in trees.items()
    }


def _limit(topology: Topology, c: Collective) -> float:
    """Bytes/s of AllReduce that no plan can beat."""
    found = (bottleneck(topology, c), best_parts(topology, c))
    return float(min(c.size_bytes / bound.seconds for bound in found if bound is not None))


def _each(trees: Counted) -> float:
    """Bytes/s of every root, all sending alike."""
    return max(trees.roots.values()) * trees.rate


def _paired(up: list[tuple[Fraction, Routed]], down: list[tuple[Fraction, Routed]]) -> list[Segment]:
    """Segments along both divisions of a root's data."""
    segments, i, j = [], 0, 0
    left_up, left_down = up[0][0], down[0][0]
    while True:
        share = min(left_up, left_down)
        segments.append(Segment(share, up[i][1], down[j][1]))
        left_up, left_down = left_up - share, left_down - share
        i, j = i + (not left_up), j + (not left_down)
        if i == len(up) or j == len(down):
            return segments
        left_up, left_down = left_up or up[i][0], left_down or down[j][0]


def _reversed(topology: Topology) -> Topology:
    return replace(topology, src=topology.dst, dst=topology.src)


def _packed(
    topology: Topology, ranks: NDArray[np.int32], trees: Counted, part: float, backward: bool
) -> list[dict[int, list[tuple[Fraction, Routed]]]]:
    """For each root its trees with their shares of its data, as they are packed and then made shallower."""
    nodes = ranks.tolist()
    direct = without_switches(topology.src, topology.dst, trees.capacity, trees.roots, nodes, topology.node_count)
    capacity = {edge: direct.capacity(edge) for edge in direct.paths if direct.capacity(edge)}
    ways = {edge: [list(path) for _, path in direct.paths[edge]] for edge in capacity}
    latency, width = topology.latency_s, topology.bandwidth
    batches = pack(
        capacity, trees.roots, nodes,
        {edge: min(float(latency[way].sum()) for way in some) for edge, some in ways.items()},
    )  # fmt: skip
    shallow = shortened(
        batches, capacity, nodes,
        {edge: min(float(latency[w].sum() + part / width[w].min()) for w in some) for edge, some in ways.items()},
    )  # fmt: skip
    relays = find_relays(topology, ranks)
    found = []
    for some, edges in ((batches, deepcopy(direct)), (shallow, direct)):
        routed: dict[int, list[tuple[Fraction, Routed]]] = {}
        for batch in some:
            for count, paths in _routed(edges, batch):
                hops = through_relays(batch.root, paths, topology, relays)
                links = {y: way[::-1] if backward else way for y, (_, way) in hops.items()}
                tree = Routed({y: x for y, (x, _) in hops.items()}, links)
                routed.setdefault(batch.root, []).append((Fraction(count, trees.roots[batch.root]), tree))
        found.append(routed)
    return found


def _routed(direct: Direct, batch: Batch) -> list[tuple[int, dict[tuple[int, int], tuple[int, ...]]]]:
    """How many trees of a batch have which links along each edge: several where an edge is made up of several paths."""
    ways = {edge: direct.take(edge, batch.count) for edge in batch.edges}
    ends = {end for way in ways.values() for end in accumulate(amount for amount, _ in way)}
    found, low = [], 0
    for high in sorted(ends | {batch.count}):
        links = {}
        for edge, way in ways.items():
            at = 0
            for amount, path in way:
                at += amount
                if low < at:
                    links[edge] = path
                    break
        found.append((high - low, links))
        low = high
    return found
