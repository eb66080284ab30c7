"""Trees that fill the network: AllGather, ReduceScatter, AllReduce, Broadcast and Reduce near the bandwidth bound.

Zhao et al., "ForestColl: Throughput-optimal collective communications on heterogeneous network fabrics" (arXiv
2402.06787): the rates of the bottleneck cut (:mod:`stretto.bounds.exact`), switches split off
(:mod:`.forest_split`), trees packed (:mod:`.forest_pack`). Ours beyond it: trees of unequal counts, so that few
chunks do where equal trees need thousands; switches that get more than they send; and AllReduce by in-trees and
out-trees of unequal roots at once (:mod:`stretto.bounds.trees`) instead of ReduceScatter and then AllGather.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..bounds import best_parts, bottleneck, distances, tree_rates
from ..collective import Collective, Ragged, Workload, make_collective, split_chunks
from ..plan import Plan
from ..topology import Topology
from . import Option, Progress, register
from .dispatch import busy, completion, dispatched
from .forest_meeting import Edges, meeting_trees, opposite
from .forest_pack import Batch, pack
from .forest_rates import Counted, counted, spreading
from .forest_split import Direct, without_switches
from .lowering import Trees, lower

Int64 = NDArray[np.int64]

KINDS = ("allgather", "reducescatter", "allreduce", "broadcast", "reduce")

TRANSFERS = (3_000, 12_000, 60_000, 120_000)
"""Parts are cut so small that a plan has about so many: smaller ones where larger are not ``NEAR`` and still gain."""

SMALLEST_BYTES = 4096
"""Parts are not cut smaller than this, on average."""

NEAR = 1.003
"""Times the busiest link's work that are near enough, or times which a finer plan must gain."""

HOPED = 2.0
"""How many times less late than in proportion to their parts finer plans may be hoped to be."""

ENOUGH = 1.001
"""How many times faster AllReduce must be by unequal roots to be worth the search for them."""

OPTIONS = (
    Option("parts", int, 0, "into how many parts a tree's share is cut, on average; 0: by the number of transfers"),
)


def _serves(topology: Topology, workload: Workload) -> str | None:
    if topology.planes:
        return "its trees are of links, not of optical planes"
    if (topology.forwarding != topology.kind).any():
        return "its trees are pipes, and routers that store end them"
    for c in workload.collectives:
        others = np.setdiff1d(topology.accelerators, c.ranks)
        if np.isin(topology.src, others).any():
            return "accelerators that are no ranks would have to pass data on"
    return None


@register(
    "forest",
    collectives=KINDS,
    topologies="any without planes",
    paper="Zhao et al., arXiv 2402.06787; AllReduce our own",
    options=OPTIONS,
    serves=_serves,
)
def forest(
    topology: Topology,
    workload: Workload,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
    parts: int = 0,
) -> Plan:
    """Trees packed to fill every link of the bottleneck, their chunks pipelined."""
    forests = [_forest_of(topology, c) for c in workload.collectives]
    # each part is sent once along each edge of its trees, and each chunk of an AllReduce is cut along all trees
    cuts = [c.chunk_count if c.kind == "allreduce" else 1 for c in workload.collectives]
    edges = sum(f.edges * many for f, many in zip(forests, cuts, strict=True))
    trees = sum(len(some) * many for f, many in zip(forests, cuts, strict=True) for some in f.segments.values())
    most = sum(c.size_bytes for c in workload.collectives) / (SMALLEST_BYTES * trees)
    counts = [float(parts)] if parts else sorted({max(min(count / edges, most), 1.0) for count in TRANSFERS})
    plans: list[Plan] = []
    while counts:
        plans.append(_planned(topology, workload, forests, counts.pop(0)))
        late = (completion(plans[-1]) / busy(plans[-1]) - 1) * _filling(plans[-1])
        finer = len(plans) > 1 and plans[-1].transfer_count > plans[-2].transfer_count
        if late <= NEAR - 1 or (finer and completion(plans[-2]) <= NEAR * completion(plans[-1])):
            break
        # this falls as parts do: no use for plans that it leaves too late
        while len(counts) > 1 and late * plans[-1].meta["parts"] > HOPED * (NEAR - 1) * counts[0]:
            counts.pop(0)
    return min(plans, key=completion)


def _filling(plan: Plan) -> float:
    """Of the time that passes until pipelines are full the share that finer parts make less; latency is the other."""
    assert plan.start_s is not None and plan.finish_s is not None, "dispatched"
    sending = float((plan.finish_s - plan.start_s).mean())
    return sending / (sending + float(plan.topology.latency_s[plan.route.values].sum()) / plan.transfer_count)


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


def _forest_of(topology: Topology, c: Collective) -> Forest:
    ranks = c.ranks
    shares = np.zeros(len(ranks))
    if c.kind == "allreduce":
        return _allreduce(topology, c)
    if c.root >= 0:
        shares[c.root] = 1.0
    else:
        shares[:] = 1.0
    net = _reversed(topology) if c.reduces else topology
    trees = _packed(net, ranks, spreading(net, ranks, shares), backward=c.reduces)
    segments = {
        root: [Segment(share, tree, None) if c.reduces else Segment(share, None, tree) for share, tree in some]
        for root, some in trees.items()
    }
    return Forest(segments, {int(v): Fraction(int(s)) for v, s in zip(ranks, shares, strict=True)})


def _allreduce(topology: Topology, c: Collective) -> Forest:
    """In-trees and out-trees of the same roots at once; equal roots where unequal ones gain nothing."""
    ranks = c.ranks
    back = _reversed(topology)
    copies = spreading(topology, ranks, np.ones(len(ranks)))
    sums = spreading(back, ranks, np.ones(len(ranks)))
    # of a link's time, copies take one part in proportion, sums the other
    composed = len(ranks) / (1 / _each(copies) + 1 / _each(sums))
    enough = composed * ENOUGH >= _limit(topology, ranks)
    met = None if enough else _meeting(topology, c)
    if met is not None:
        return met
    best = None if enough else tree_rates(topology, ranks)
    if best is not None and best.rate > composed * ENOUGH:
        copies = counted(topology, ranks, best.copies, best.root)
        sums = counted(back, ranks, best.sums, best.root)
    down = _packed(topology, ranks, copies, backward=False)
    back_links = opposite(topology) if enough else None
    up = _packed(back, ranks, sums, backward=True) if back_links is None else _mirrored(down, back_links)
    total = sum(copies.roots.values())
    share = {v: Fraction(k, total) for v, k in copies.roots.items() if v in down and v in up}
    whole = sum(share.values(), Fraction(0))
    return Forest({v: _paired(up[v], down[v]) for v in share}, {v: s / whole for v, s in share.items()})


def _meeting(topology: Topology, c: Collective) -> Forest | None:
    """Trees that are walked in and out from their middle, None where links are not alike both ways."""
    edges, bound = Edges.of(topology, c.ranks), best_parts(topology, c)
    if edges is None or bound is None:
        return None
    part = 2 * (edges.nodes - 1) * c.size_bytes / TRANSFERS[-1]
    rate = c.size_bytes / float(bound.seconds)
    trees = meeting_trees(edges, bound, rate, distances(topology, part), part)
    segments: dict[int, list[Segment]] = {}
    for tree in trees:
        out, into = edges.links(tree)
        segments.setdefault(tree.root, []).append(
            Segment(Fraction(1), Routed(tree.parent, into), Routed(tree.parent, out), tree.twin)
        )
    return Forest(
        {v: [replace(s, share=Fraction(1, len(some))) for s in some] for v, some in segments.items()},
        {v: Fraction(len(some), len(trees)) for v, some in segments.items()},
    )


def _mirrored(trees: dict[int, list[tuple[Fraction, Routed]]], back: Int64) -> dict[int, list[tuple[Fraction, Routed]]]:
    """Trees walked the other way."""
    return {
        root: [
            (share, Routed(t.parent, {v: tuple(back[list(way[::-1])].tolist()) for v, way in t.links.items()}))
            for share, t in some
        ]
        for root, some in trees.items()
    }


def _limit(topology: Topology, ranks: NDArray[np.int32]) -> float:
    """Bytes/s of AllReduce that no plan can beat."""
    c = make_collective("allreduce", topology, 1 << 40, ranks=ranks.tolist())
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
    topology: Topology, ranks: NDArray[np.int32], trees: Counted, backward: bool
) -> dict[int, list[tuple[Fraction, Routed]]]:
    """For each root its trees with their shares of its data."""
    nodes = ranks.tolist()
    direct = without_switches(topology.src, topology.dst, trees.capacity, trees.roots, nodes, topology.node_count)
    batches = pack(
        {edge: direct.capacity(edge) for edge in direct.paths},
        trees.roots,
        nodes,
        {
            edge: min(topology.latency_s[list(p)].sum() for _, p in paths)
            for edge, paths in direct.paths.items()
            if paths
        },
    )
    found: dict[int, list[tuple[Fraction, Routed]]] = {}
    for batch in batches:
        root = batch.reached[0]
        for count, tree in _routed(direct, batch, backward):
            found.setdefault(root, []).append((Fraction(count, trees.roots[root]), tree))
    return found


def _routed(direct: Direct, batch: Batch, backward: bool) -> list[tuple[int, Routed]]:
    """The trees of a batch with links: several where an edge is made up of several paths."""
    parent = {y: x for x, y in batch.edges}
    ways = {y: direct.take((x, y), batch.count) for x, y in batch.edges}
    ends = {end for way in ways.values() for end in np.cumsum([amount for amount, _ in way]).tolist()}
    found, low = [], 0
    for high in sorted(ends | {batch.count}):
        links = {}
        for y, way in ways.items():
            at = 0
            for amount, path in way:
                at += amount
                if low < at:
                    links[y] = path[::-1] if backward else path
                    break
        found.append((high - low, Routed(parent, links)))
        low = high
    return found


def _planned(topology: Topology, workload: Workload, forests: list[Forest], parts: float) -> Plan:
    """Chunks cut along segments and into parts, lowered, and put in order."""
    chunk: list[int] = []
    at: list[int] = []
    trees: list[tuple[int, int, int, float]] = []  # old chunk, its place, the segment from there on
    rows: list[Segment] = []
    roots: list[int] = []
    for number, (c, forest_) in enumerate(zip(workload.collectives, forests, strict=True)):
        first = {}
        for root, segments in forest_.segments.items():
            first[root] = len(rows)
            rows += segments
            roots += [root] * len(segments)
        base = int(workload.chunk_base[number])
        for i in range(c.chunk_count):
            size = int(c.chunk_bytes[i])
            for place, row, turn in _places(c, i, size, forest_, first, parts):
                chunk.append(base + i)
                at.append(place)
                trees.append((base + i, place, row, turn))
    finer, start = split_chunks(workload, np.array(chunk, dtype=np.int64), np.array(at, dtype=np.int64))
    # where several segments begin at one byte only the last has any
    tree = np.empty(finer.chunk_count, dtype=np.int64)
    seen: dict[tuple[int, int], int] = {(old, place): row for old, place, row, _ in trees}
    turns = {(old, place): turn for old, place, _, turn in trees}
    order = sorted(seen)
    for k, key in enumerate(order):
        tree[k] = seen[key]
    assert len(order) == finer.chunk_count == int(start[-1])
    up = _as_trees(topology, roots, [s.up for s in rows])
    down = _as_trees(topology, roots, [s.down for s in rows])
    up = replace(up, twin=np.array([s.twin for s in rows], dtype=np.int64))
    plan = lower(topology, finer, tree, up, down, meta={"parts": parts, "trees": len(rows)})
    return dispatched(plan, np.array([turns[key] for key in order]))


def _places(
    c: Collective, chunk: int, size: int, trees: Forest, first: dict[int, int], parts: float
) -> list[tuple[int, int, float]]:
    """Where in a chunk each part of each segment begins, and its row."""
    lists = c.wanted if c.kind in ("reducescatter", "reduce") else c.holders
    if c.kind == "allreduce":
        shares = [(root, share) for root, share in trees.share.items()]
    else:
        shares = [(int(c.ranks[lists[int(c.chunk_piece[chunk])][0]]), Fraction(1))]
    found, low = [], Fraction(0)
    for root, share in shares:
        for k, segment in enumerate(trees.segments[root]):
            count = max(round(parts * trees.weight[root][k]), 1)
            wide = share * segment.share / count
            for part in range(count):
                if int(low * size) < size:
                    found.append((int(low * size), first[root] + k, (part + 0.5) / count))
                low += wide
    return found


def _as_trees(topology: Topology, roots: list[int], trees: list[Routed | None]) -> Trees:
    toward = np.full((len(trees), topology.node_count), -1, dtype=np.int64)
    hop = np.zeros_like(toward)
    routes: dict[tuple[int, ...], int] = {(0,): 0}
    for k, tree in enumerate(trees):
        if tree is None:
            continue
        for v, parent in tree.parent.items():
            toward[k, v] = parent
            hop[k, v] = routes.setdefault(tree.links[v], len(routes))
    return Trees(np.array(roots, dtype=np.int64), toward, hop, Ragged.of(list(routes)))
