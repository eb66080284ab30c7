"""The bottleneck of a collective: of all cuts the one that takes longest, exactly, with the cut as its certificate.

Bytes that a set of nodes T lacks must enter it, at least once however they are copied or summed, so at least
``lacking(T) / width(T)`` seconds pass. The largest such ratio over all T is found by Dinkelbach's iteration on min-cuts
in integers. Take the best ratio known so far as a time, and ask for every rank whether all that it lacks could flow to
it in that time. If it could not, the min-cut is a set with a larger ratio.

Where as much can leave every switch as can enter it, trees reach this ratio: for a broadcast by Edmonds' branchings
(1973); for AllGather Bérczi and Frank; with switches Zhao et al., "ForestColl" (arXiv 2402.06787). The public code of
the latter bisects in floating point; this ends in a few rounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import at_speed
from ..kernels import maxflow as maxflow_kernel
from ..model.arrays import Bool, Float64, Int64, Ragged, offsets_of
from ..model.collective import Collective
from ..model.topology import Topology

FINEST = 1 << 24
"""Capacities and weights with no common unit are counted in units of the largest one divided by this."""


MOST_STEPS = 2_500_000
"""Arcs of min-cuts that are looked at for pieces with one holder and one receiver each, were each cut to look at every
arc once: about a quarter of a second of CPU. Among more ranks, those that have most to send or get for their links are
asked."""


@dataclass(frozen=True)
class Bottleneck:
    """A cut and what must cross it."""

    inside: Bool  # bool[nodes], the set that bytes must enter
    load_bytes: int  # what must enter it
    width: Fraction  # bytes/s that can enter it, exactly

    @property
    def seconds(self) -> Fraction:
        """The time that no plan can beat."""
        return Fraction(self.load_bytes) / self.width


def bottleneck(topology: Topology, collective: Collective) -> Bottleneck | None:
    """The cut with the largest ratio of bytes to width; None where no cut is found.

    Of all cuts it is the largest for AllReduce, and for collectives whose pieces have one holder each and go to the
    same ranks (or are sums that the same ranks contribute to, for one rank each). Where every piece has one holder
    and one receiver, as in an AllToAll, it is the largest of the cuts between one rank and all that it gets, or all
    that it sends. Planes are not looked at.
    """
    best: Bottleneck | None = None
    last: Bool | None = None
    between = bytes_between(collective)
    questions = list(_questions(topology, collective, between))
    for weight, sinks, backward in questions:
        search = _Search(topology, weight, sinks, backward, len(questions))
        for inside in search.cuts():
            if last is not None and (inside == last).all():
                continue
            last = inside
            found = measured(topology, collective, inside, between)
            if found is not None and (best is None or found.seconds > best.seconds):
                best = found
    return best


def cuts_among_alike(
    topology: Topology, weight: Int64, sinks: Int64, backward: bool, questions: int, alike: Int64
) -> Iterable[Bool]:
    """Sets that bytes must enter, of a network that looks alike from some nodes, each with a larger ratio.

    Args:
        weight, sinks, backward: see :func:`_questions`; one sink stands for all that look like it.
        alike: int64[nodes], equal for nodes that look alike.
    """
    return _Search(topology, weight, sinks, backward, questions, alike).cuts()


def measured(
    topology: Topology, collective: Collective, inside: Bool, between: Int64 | None = None
) -> Bottleneck | None:
    """A cut with its load and width; None where nothing must enter it, or nothing can.

    Args:
        between: see :func:`bytes_between`.
    """
    enters = ~inside[topology.src] & inside[topology.dst]
    width = sum(map(Fraction, topology.bandwidth[enters].tolist()), Fraction(0))
    if between is not None:
        within = inside[collective.ranks]
        load = int(between[~within][:, within].sum())
    else:
        load = int(collective.piece_bytes[lacking(collective, inside[None])[0]].sum())
    return Bottleneck(inside, load, width) if load and width else None


def bytes_between(collective: Collective) -> Int64 | None:
    """int64[ranks, ranks]: bytes that each rank holds for each other; None unless every piece has one holder and one
    receiver."""
    c, count = collective, len(collective.ranks)
    if c.reduces or not ((c.holders.lengths == 1).all() and (c.wanted.lengths == 1).all()):
        return None
    total = np.zeros(count * count, dtype=np.int64)
    np.add.at(total, c.holders.values.astype(np.int64) * count + c.wanted.values, c.piece_bytes)
    return total.reshape(count, count)


def lacking(collective: Collective, inside: Bool) -> Bool:
    """bool[cuts, pieces]: what must enter each set, bool[cuts, nodes], since it is wanted inside.

    A piece that is copied must enter if nobody inside holds it, a sum if somebody outside contributes to it.
    """
    c, within = collective, inside[:, collective.ranks]
    missing = _any_of(~within, c.holders) if c.reduces else ~_any_of(within, c.holders)
    return np.broadcast_to(_any_of(within, c.wanted) & missing, (len(inside), len(c.piece_bytes)))


def _any_of(ranks: Bool, lists: Ragged) -> Bool:
    """bool[cuts, lists (or 1 if all are alike)]: whether some rank of a list is among ``ranks``, bool[cuts, ranks]."""
    lengths = lists.lengths
    if (lengths == ranks.shape[1]).all():
        anyone: Bool = np.asarray(ranks.any(axis=1, keepdims=True))
        return anyone
    listed: Bool = ranks[:, lists.values]
    if (lengths == 1).all():
        return listed
    found = np.zeros((len(ranks), lists.rows), dtype=np.bool_)
    filled = lengths > 0
    found[:, filled] = np.logical_or.reduceat(listed, lists.offsets[:-1][filled], axis=1)
    return found


def _questions(topology: Topology, c: Collective, between: Int64 | None) -> Iterable[tuple[Int64, Int64, bool]]:
    """What must flow: the bytes at each node (int64[nodes]), the nodes that must each get all, and whether backward.

    Sums flow backward: what all contribute to one rank is what that rank sends to all, over the reversed links.
    """
    weight = np.zeros(topology.node_count, dtype=np.int64)
    spread, gathered = (c.wanted, c.holders) if not c.reduces else (c.holders, c.wanted)
    if c.traits.reduces_to_all:
        weight[c.ranks[0]] = c.size_bytes
        yield weight, c.ranks[1:].astype(np.int64), False
        yield weight, c.ranks[1:].astype(np.int64), True
    elif (gathered.lengths == 1).all() and (spread.lengths == spread.lengths[0]).all() and spread.lengths[0] > 1:
        # one origin a piece; all pieces go to the same ranks
        np.add.at(weight, c.ranks[gathered.values], c.piece_bytes)
        sinks = c.ranks[np.unique(spread.values)].astype(np.int64)
        if len(sinks) == spread.lengths[0]:
            yield weight, sinks, c.reduces
    elif not c.traits.copies and between is not None:
        yield from _one_to_one(topology, c.ranks.astype(np.int64), between)


def _one_to_one(topology: Topology, ranks: Int64, between: Int64) -> Iterable[tuple[Int64, Int64, bool]]:
    """What each rank gets, and (backward) what each sends; those that have most of it for their links first."""
    most = max(1, MOST_STEPS // (2 * (topology.link_count + len(ranks))))
    for load, ends, backward in ((between.T, topology.dst, False), (between, topology.src, True)):
        others = load.sum(axis=1) - load.diagonal()
        width = np.bincount(ends, topology.bandwidth, topology.node_count)[ranks]
        slow_first = np.argsort(-others / np.maximum(width, 1.0), kind="stable")
        for rank in slow_first[:most][others[slow_first[:most]] > 0].tolist():
            weight = np.zeros(topology.node_count, dtype=np.int64)
            weight[ranks] = load[rank]
            yield weight, ranks[rank : rank + 1], backward


def in_units(values: Float64 | Int64, upward: bool) -> Int64:
    """Whole numbers in the ratio of ``values``: exactly where these have a common unit, else to 24 bits."""
    whole = values.astype(np.int64)
    if (whole == values).all():
        whole = whole // max(int(np.gcd.reduce(whole)), 1)
        if int(whole.max(initial=0)) <= FINEST:
            return whole
    scaled = values / values.max() * FINEST
    counted: Int64 = (np.ceil(scaled) if upward else np.rint(scaled)).astype(np.int64)
    return counted


class _Search:
    """Dinkelbach's iteration for one of the questions: the arcs, and which ranks have been asked."""

    def __init__(
        self,
        topology: Topology,
        weight: Int64,
        sinks: Int64,
        backward: bool,
        questions: int,
        alike: Int64 | None = None,
    ) -> None:
        self.questions = questions
        self.alike = np.arange(topology.node_count) if alike is None else alike
        self.src, self.dst = (topology.dst, topology.src) if backward else (topology.src, topology.dst)
        self.backward = backward
        self.nodes = topology.node_count
        self.width = in_units(topology.bandwidth, upward=True)
        origins = np.flatnonzero(weight)
        shares = weight[origins]
        # shards are whole bytes: those that differ by one byte count as equal
        even = shares.max() - shares.min() <= 1
        self.weight = np.zeros(self.nodes, dtype=np.int64)
        self.weight[origins] = 1 if even else np.maximum(in_units(shares, upward=False), 1)
        self.total = int(self.weight.sum())
        self.sinks = near_first(topology, sinks)

    def cuts(self) -> Iterable[Bool]:
        """Sets that bytes must enter, each with a larger ratio than the one before; the last is the bottleneck."""
        into = np.bincount(self.dst, self.width, self.nodes).astype(np.int64)
        lacks = self.total - self.weight
        asked = [v for v in map(int, self.sinks) if lacks[v] > 0 and into[v] > 0]
        if not asked:
            return
        v = max(asked, key=lambda v: Fraction(int(lacks[v]), int(into[v])))
        ratio = Fraction(int(lacks[v]), int(into[v]))
        inside = np.zeros(self.nodes, dtype=np.bool_)
        inside[v] = True
        yield ~inside if self.backward else inside
        # arcs lead backward, from the rank that asks to where bytes are: links, then what each node holds
        origins = np.unique(np.concatenate((np.flatnonzero(self.weight), self.sinks)))
        tails = np.concatenate((self.dst, origins))
        heads = np.concatenate((self.src, np.full(len(origins), self.nodes)))
        arcs = Arcs.of(tails, heads, self.nodes + 1)
        work = 2.0 * self.questions * len(self.sinks) * len(tails)
        begin = 0
        passed = np.zeros(len(origins), dtype=np.bool_)
        while True:
            bytes_per, width_per = ratio.denominator, ratio.numerator
            need = self.total * bytes_per
            assert need < 1 << 61 and int(self.width.sum()) * width_per < 1 << 61, "24 bits a number keep this small"
            held = np.where(passed, need, self.weight[origins] * bytes_per)
            capacity = arcs.capacities(np.concatenate((self.width * width_per, held)))
            at, side, _ = arcs.first_violated(capacity, self.sinks, begin, self.nodes, need, need, work)
            if at == len(self.sinks):
                return
            passed |= np.isin(self.alike[origins], self.alike[self.sinks[begin:at]])
            begin = at
            inside = side[: self.nodes]
            entering = inside[self.dst] & ~inside[self.src]
            width = int(self.width[entering].sum())
            if not width:
                return  # not joined at all
            ratio = Fraction(int(self.weight[~inside].sum()), width)
            yield ~inside if self.backward else inside


@dataclass(frozen=True)
class Arcs:
    """A network for the kernel ``maxflow``: each directed edge and its reverse."""

    offsets: Int64
    to: Int64
    pair: Int64
    forward: Int64  # int64[edges], the arc of each edge

    @classmethod
    def of(cls, tails: NDArray[Any], heads: NDArray[Any], nodes: int) -> Arcs:
        edges = len(tails)
        start = np.concatenate((tails, heads)).astype(np.int64)
        order = np.argsort(start, kind="stable")
        place = np.empty(2 * edges, dtype=np.int64)
        place[order] = np.arange(2 * edges)
        offsets = offsets_of(np.bincount(start, minlength=nodes))
        to = np.concatenate((heads, tails)).astype(np.int64)[order]
        other = np.concatenate((place[edges:], place[:edges]))
        return cls(offsets, to, other[order], place[:edges])

    def capacities(self, edge: Int64) -> Int64:
        """int64[arcs]: the capacity of each edge, and none for its reverse."""
        capacity = np.zeros(len(self.to), dtype=np.int64)
        capacity[self.forward] = edge
        return capacity

    def first_violated(
        self, capacity: Int64, sinks: Int64, begin: int, target: int, need: int, unlimited: int, work: float
    ) -> tuple[int, Bool, int]:  # fmt: skip
        """See :func:`stretto.kernels.maxflow.first_violated`; ``work`` is for :func:`stretto.kernels.at_speed`."""
        at, side, flow = at_speed(maxflow_kernel.first_violated, work)(
            self.offsets, self.to, self.pair, capacity, sinks, begin, target, need, np.int64(unlimited)
        )
        return int(at), side, int(flow)


def near_first(topology: Topology, sinks: Int64) -> Int64:
    """The sinks in an order in which each is near an earlier one: breadth-first, then those that were not reached."""
    if len(sinks) == 1:
        return sinks
    order = {int(sinks[0]): None}
    queue = [int(sinks[0])]
    for v in queue:
        for w in topology.dst[topology.out_links[v]].tolist():
            if w not in order:
                order[w] = None
                queue.append(w)
    wanted = set(sinks.tolist())
    return np.array([v for v in [*order, *wanted.difference(order)] if v in wanted], dtype=np.int64)
