"""Trees that fill the network: AllGather, ReduceScatter, AllReduce, Broadcast and Reduce near the bandwidth bound.

Zhao et al., "ForestColl: Throughput-optimal collective communications on heterogeneous network fabrics" (arXiv
2402.06787): the rates of the bottleneck cut (:mod:`stretto.bounds.exact`), switches split off
(:mod:`.forest_split`), trees packed (:mod:`.forest_pack`). Ours beyond it: trees of unequal counts, so that few
chunks do where equal trees need thousands; switches that get more than they send; and AllReduce by in-trees and
out-trees of unequal roots at once (:mod:`stretto.bounds.trees`) instead of ReduceScatter and then AllGather.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ...bounds import distances
from ...kernels.clock import clock
from ...model.arrays import Ragged
from ...model.collective import Collective, Workload
from ...model.errors import InputError
from ...model.plan import COPY, REDUCE, Plan
from ...model.topology import Topology
from ...schedule.dispatch import NEAR as DISPATCHED
from ...schedule.dispatch import busiest_link_s, completion, dispatch
from ...schedule.trees import Trees, lower, split_chunks
from .. import Candidate, Option, Progress, Request, register
from .budget import limited
from .priced import busiest_s, priced_forest
from .relays import find_relays
from .timely import timely_forests
from .trees import LONG, Forest, Routed, Segment, forests_of

Int64 = NDArray[np.int64]

KINDS = ("allgather", "reducescatter", "allreduce", "broadcast", "reduce")

TRANSFERS = (3_000, 12_000, 60_000, 150_000)
"""Parts are cut so small that a plan has about so many: smaller ones where larger are not ``NEAR`` and still gain."""

FAR, TIMES = 0.01, 2.0
"""Where the finest parts would leave a plan so late, in proportion to those before, it has so many times as many."""

SMALLEST_BYTES = 1024
"""Parts are not cut smaller than this, on average."""

NEAR = 1.003
"""Times the busiest link's work that are near enough, or times which a finer plan must gain."""

FINER = 1.5
"""Parts are cut anew where there are more than so many times as many."""

TRANSFER_S = 3e-6
"""What a transfer of a fine plan takes, with one round of justification, seconds of CPU: it is cut no finer than a time
limit leaves for that."""

ROUNDS = 2
"""As many rounds of justification coarse plans have on average, and ways to share links."""

TIMELY = 0.75
"""In this part of a time limit trees with shares by latency must be found, or they are not looked for."""

TIMELY_S, MANY = 8e-5, 128
"""What one of so many takes, seconds of CPU for each node, with all that is tried."""

FINE = 0.35
"""The part of a time limit that the first fine plan may take, even if finding trees has left less."""

HOPED = 2.0
"""How many times less late than in proportion to their parts finer plans may be hoped to be."""

HASTE = 0.1
"""Only the best trees are looked at further once looking at all has taken so much of what a time limit leaves."""

LOST = 1.3
"""Trees of which a plan is so many times later than that of others with as many transfers are not looked at further."""

DEEP = 0.5
"""Trees are looked for that are shallower where a plan of some thousand transfers ends so much later than it has to."""

OPTIONS = (
    Option("parts", int, 0, "into how many parts a tree's share is cut, on average; 0: by the number of transfers"),
    Option("trees", int, 16, "at most so many a rank: of each root, of an AllReduce of all roots together"),
)


def _serves(topology: Topology, workload: Workload) -> str | None:
    if topology.planes:
        return "its trees are of links, not of optical planes"
    if workload.chunk_reduces.any() and (topology.forwarding != topology.kind).any():
        return "routers that store end its trees, and cannot sum"
    return None


def _least_steps(request: Request) -> float:
    """Steps that the first trees take, about."""
    return 40_000 + 46 * sum(len(c.ranks) for c in request.workload.collectives) * request.topology.link_count


@register(
    "forest",
    collectives=KINDS,
    topologies="any without planes",
    paper="Zhao et al., arXiv 2402.06787; AllReduce our own",
    options=OPTIONS,
    serves=_serves,
    cuts=True,
    auto=Candidate(130, _least_steps, counts=True, good_for=("bandwidth", "relays", "size")),
    tune=40,
)
def forest(
    topology: Topology,
    workload: Workload,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
    parts: int = 0,
    trees: int = 16,
) -> Plan:
    """Trees packed to fill every link of the bottleneck, their chunks pipelined."""
    limit_s = math.inf if time_limit_s is None else time_limit_s
    until_s, found_s = clock() + limit_s, clock() + TIMELY * limit_s
    if trees < 1:
        raise InputError("without a tree nothing is sent", f"--option trees={trees}")
    known = [
        [limited(topology, some, trees, len(c.ranks)) for some in forests_of(topology, c, TRANSFERS[-1])]
        for c in workload.collectives
    ]
    timely = [_timely(topology, c, some, trees, found_s) for c, some in zip(workload.collectives, known, strict=True)]
    kinds = [some + more for some, more in zip(known, timely, strict=True)]
    choices = [_Rows.of(topology, [some[min(k, len(some) - 1)] for some in kinds]) for k in range(max(map(len, kinds)))]
    shallow = bool(parts) or any(timely)
    return _Cutter(topology, workload, parts, trees, until_s, FINE * limit_s, shallow, choices[0]).best(choices)


def _timely(topology: Topology, c: Collective, known: list[Forest], trees: int, until_s: float) -> list[Forest]:
    """Other forests with shares by latency, where that counts beside bandwidth, or, of an AllReduce, where there are
    accelerators that are no ranks, but could add and fork. They are not made if that would last longer.
    """
    if any(s.twin >= 0 for f in known for some in f.segments.values() for s in some):
        return []
    part = _part(c)
    far = distances(topology, part)[np.ix_(c.ranks, c.ranks)].max()
    slow = far > LONG * busiest_s(topology, known[0]) / float(sum(known[0].share.values())) * c.size_bytes
    summed = c.kind == "allreduce"
    if not slow and not (summed and find_relays(topology, c.ranks).any()):
        return []
    many = trees * (len(c.ranks) if summed else len(known[0].segments))
    if clock() + TIMELY_S * topology.node_count * min(many, MANY) > until_s:
        return []
    return timely_forests(topology, c, known, part, many if summed else trees)


def _part(c: Collective) -> float:
    """Bytes of a part of what is cut as finely as may be."""
    edges = (len(c.ranks) - 1) * (2 if c.kind == "allreduce" else 1)
    return max(edges * c.size_bytes / TRANSFERS[-1], float(SMALLEST_BYTES))


@dataclass
class _Cutter:
    """Cuts data into parts, finer and finer, and orders what is sent.

    Attributes:
        parts: into how many a tree's share is cut on average; 0 to choose.
        trees: how many there may be, for each rank.
        until_s: of this thread's CPU time, when to be content,
        least_s: but the first fine plan may always take so long.
        shallow: whether there are shallow trees among the choices, or none are wanted.
        first: the trees by whose edges transfers are counted.
        apart, content: what :func:`.dispatch.dispatch` need not try, once that is settled.
        transfer_s: what a transfer of a fine plan takes, as far as is known.
    """

    topology: Topology
    workload: Workload
    parts: int
    trees: int
    until_s: float
    least_s: float
    shallow: bool
    first: _Rows
    apart: bool | None = None
    content: float = DISPATCHED
    transfer_s: float = TRANSFER_S

    def best(self, choices: list[_Rows]) -> Plan:
        """The plan that ends first, by the trees of one of the choices."""
        plans: list[Plan] = []
        counts, last = self.counts(), 0.0
        while counts:
            now, *counts = counts
            coarse = not plans or plans[-1].transfer_count < TRANSFERS[1]
            left_s = max(self.until_s - clock(), self.least_s if coarse else 0.0)
            affordable = left_s / (self.transfer_s * self.edges(self.first))
            if plans and now > affordable:
                if affordable < FINER * last:
                    break
                now, counts = affordable, []
            began_s = clock()
            several = [self.cut(some, now) for some in choices]
            if not plans and not self.shallow and min(map(_late, several)) > DEEP:
                shallow = _shallow(self.topology, self.workload, self.first.forests, self.trees)
                if shallow is not None:
                    choices = [choices[int(np.argmin([_took_s(p) for p in several]))], shallow]
                    # what is compared has as many transfers
                    now = max(now, self.edges(shallow) / self.edges(self.first))
                    several = [self.cut(some, now) for some in choices]
            best, kept = min(zip(several, choices, strict=True), key=lambda pair: _took_s(pair[0]))
            plans.append(best)
            late, last = _late(best), now
            finer = len(plans) > 1 and best.transfer_count > plans[-2].transfer_count
            if late <= NEAR - 1 or (finer and _took_s(plans[-2]) <= NEAR * _took_s(best)):
                break
            choices = [some for some, plan in zip(choices, several, strict=True) if _late(plan) <= LOST * late]
            if clock() - began_s > HASTE * max(self.until_s - clock(), 0.0):
                choices = [kept]
            # what is the better way for some thousands of transfers is so for many
            if len(plans) > 1 or 2 * best.transfer_count >= TRANSFERS[1]:
                choices, self.apart, self.content = [kept], _may_be_apart(best), 1 + late
                late *= _filling(best)
                if late <= NEAR - 1:
                    break
                counts = self.useful(counts, late * now)
        return min(plans, key=_took_s)

    def edges(self, rows: _Rows) -> int:
        """Transfers of one part of everything: it is sent once along each edge of its trees."""
        return sum(f.edges * many for f, many in zip(rows.forests, self.cut_along, strict=True))

    @property
    def cut_along(self) -> list[int]:
        """How many chunks of each collective are cut along a tree: all of an AllReduce, of others those of a piece."""
        return [
            c.chunk_count if c.kind == "allreduce" else c.chunk_count // len(np.unique(c.chunk_piece))
            for c in self.workload.collectives
        ]

    @property
    def most(self) -> float:
        """Into how many parts there are bytes to cut."""
        segments = sum(
            len(some) * many
            for f, many in zip(self.first.forests, self.cut_along, strict=True)
            for some in f.segments.values()
        )
        return sum(c.size_bytes for c in self.workload.collectives) / (SMALLEST_BYTES * segments)

    def counts(self) -> list[float]:
        """Into how many parts to cut, on average, coarse ones first."""
        if self.parts:
            return [float(self.parts)]
        counts = [max(min(count / self.edges(self.first), self.most), 1.0) for count in TRANSFERS]
        # some that hardly differ are one
        return [count for k, count in enumerate(counts) if not k or count > FINER * counts[k - 1]]

    def useful(self, counts: list[float], late: float) -> list[float]:
        """Those of the counts that are worth it, if what makes a plan late falls as parts do.

        Args:
            late: how late a plan is for that, as a share, times its parts.
        """
        # no use for large plans that it leaves too late
        while len(counts) > 1 and late > HOPED * (NEAR - 1) * counts[0]:
            counts = counts[1:]
        if len(counts) == 1 and late > FAR * counts[0]:
            counts = [min(TIMES * counts[0], max(self.most, counts[0]))]
        return counts

    def cut(self, some: _Rows, now: float) -> Plan:
        """A plan with so many parts; more trees, of less each, are cut into fewer."""
        count = now if self.parts else max(now * self.edges(self.first) / self.edges(some), 1.0)
        began_s = clock()
        plan = _planned(self.topology, self.workload, some, count, self.apart, self.content, self.until_s)
        self.transfer_s = max(self.transfer_s, (clock() - began_s) / (ROUNDS * max(plan.transfer_count, TRANSFERS[1])))
        return plan


def _shallow(topology: Topology, workload: Workload, known: list[Forest], most: int) -> _Rows | None:
    """Priced trees for what is summed and copied, the known ones for all else; None if there are none."""
    found = [
        priced_forest(topology, c, forest_, _part(c), most * len(c.ranks)) if c.kind == "allreduce" else None
        for c, forest_ in zip(workload.collectives, known, strict=True)
    ]
    if not any(found):
        return None
    return _Rows.of(topology, [new or old for new, old in zip(found, known, strict=True)])


def _may_be_apart(plan: Plan) -> bool:
    """Whether copies come after sums, and links need not be idle for that however finely parts are cut."""
    halves = [busiest_link_s(plan, np.flatnonzero(plan.op == op)) for op in (REDUCE, COPY)]
    return bool(plan.meta["apart"]) and sum(halves) <= NEAR * busiest_link_s(plan)


def _late(plan: Plan) -> float:
    """How much later a plan ends than its busiest link has to, as a share."""
    return _took_s(plan) / busiest_link_s(plan) - 1


def _took_s(plan: Plan) -> float:
    """From when its first collective may begin to its end."""
    return completion(plan) - float(plan.workload.chunk_start_s.min())


def _filling(plan: Plan) -> float:
    """Of the time that passes until pipelines are full the share that finer parts make less; latency is the other."""
    assert plan.start_s is not None and plan.finish_s is not None, "dispatched"
    sending = float((plan.finish_s - plan.start_s).mean())
    return sending / (sending + float(plan.topology.latency_s[plan.route.values].sum()) / plan.transfer_count)


@dataclass(frozen=True)
class _Rows:
    """The segments of all collectives' forests, a row each.

    Attributes:
        first: for each collective the row of each root's first segment.
        up, down: the trees of each row.
    """

    forests: list[Forest]
    first: list[dict[int, int]]
    up: Trees
    down: Trees

    @classmethod
    def of(cls, topology: Topology, forests: list[Forest]) -> _Rows:
        """Of one forest a collective."""
        first: list[dict[int, int]] = []
        rows: list[Segment] = []
        roots: list[int] = []
        for forest_ in forests:
            first.append({})
            for root, segments in forest_.segments.items():
                first[-1][root] = len(rows)
                rows += segments
                roots += [root] * len(segments)
        up, down = (_as_trees(topology, roots, trees) for trees in ([s.up for s in rows], [s.down for s in rows]))
        return cls(forests, first, replace(up, twin=np.array([s.twin for s in rows], dtype=np.int64)), down)


def _planned(
    topology: Topology,
    workload: Workload,
    rows: _Rows,
    parts: float,
    apart: bool | None,
    content: float,
    until_s: float = math.inf,
) -> Plan:
    """Chunks cut along segments and into parts, lowered, and put in order."""
    cuts = [
        (int(workload.chunk_base[number]) + i, *place)
        for number, (c, forest_) in enumerate(zip(workload.collectives, rows.forests, strict=True))
        for i in range(c.chunk_count)
        for place in _places(c, i, forest_, rows.first[number], parts)
    ]
    chunk, at, row = (np.array(column, dtype=np.int64) for column in list(zip(*cuts, strict=True))[:3])
    turn = np.array([cut[3] for cut in cuts])
    # where several segments begin at one byte only the last has any
    kept = np.append((np.diff(chunk) != 0) | (np.diff(at) != 0), True)
    finer, start = split_chunks(workload, chunk, at)
    assert int(kept.sum()) == finer.chunk_count == int(start[-1])
    plan = lower(topology, finer, row[kept], rows.up, rows.down, meta={"parts": parts, "trees": len(rows.up.root)})
    return dispatch(plan, turn[kept], apart=apart, good_enough=content)


def _places(
    c: Collective, chunk: int, trees: Forest, first: dict[int, int], parts: float
) -> Iterator[tuple[int, int, float]]:
    """Where in a chunk each part of each segment begins, its row, and how far into its segment's data it is."""
    size = int(c.chunk_bytes[chunk])
    lists = c.wanted if c.kind in ("reducescatter", "reduce") else c.holders
    if c.kind == "allreduce":
        shares = [(root, share) for root, share in trees.share.items()]
    else:
        shares = [(int(c.ranks[lists[int(c.chunk_piece[chunk])][0]]), Fraction(1))]
    low = Fraction(0)
    for root, share in shares if size else ():
        for k, segment in enumerate(trees.segments[root]):
            count = max(round(parts * trees.weight[root][k]), 1)
            begin, each = low * size, share * segment.share * size / count
            # floor(begin + part x each), in whole numbers
            below = begin.denominator * each.denominator
            offset, step = begin.numerator * each.denominator, each.numerator * begin.denominator
            for part in range(count):
                yield (offset + part * step) // below, first[root] + k, (part + 0.5) / count
            low += share * segment.share


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
