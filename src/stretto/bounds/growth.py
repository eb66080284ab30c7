"""How fast sums can grow where messages cost: a node learns from few messages at a time.

For one byte of a sum let K_v(t) be how many contributions node v can have by time t. They came in messages, each over
some link e into v, and each holds what its sender s had when it began. Every message keeps the link for its cost m,
so of the messages that have come by t the i-th last began to cross it no later than t - i m. It also takes the latency
d(s, e) of the way to v whose last link is e. So

    K_v(t) <= c_v + sum over links e into v, and i = 1, 2, ..., of the largest K_s(t - d(s, e) - i m) of any s

where c_v is 1 if v contributes, else 0, and K is 0 before the start. A rank that wants the sum of n contributions does
not have it before K_v(t) >= n. Where all links are alike this is the optimal summation of LogP (Karp, Sahay, Santos and
Schauser, SPAA 1993). It makes no difference how many chunks a message carries.

A rank that wants pieces of n holders (AllGather, AllToAll, Gather) learns of them in the same way: K_v(t) is then of
how many holders v can have a byte by time t.

The same holds for the contributions of some ranks alone, those of a set C: then c_v is 1 if v is in C, and a rank needs
|C| of them. Those far from a rank come to it late, though many nodes around it may contribute soon. So the ranks beyond
a few distances from the rank that hears latest are tried, too (:func:`_far_ranks`).

Among many nodes s is taken to be the nearest to a link, and to have as much as any node.

Time is cut into steps. For a whole step the largest values are taken that occur in it, so K is never too small.

Where switches sum, a message may have several senders: then nothing is said.

Backwards in time, copies from one holder are sums over links turned round, if no switch copies: what a node sent after
a message came to it, it receives before it sends the sum on. So copies are bounded in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Float64, Int32, Int64, Ragged, distinct
from ..model.collective import Collective, Workload
from ..model.topology import Topology
from ..model.units import format_time
from .latency import distances
from .model import Bound

COME, TOLD = "contributions come in few at a time", "ranks are told few at a time"
"""What witnesses say of sums and of copies."""

GRAIN = 32
"""Steps of time in the shortest time of a message. Twice as many raise the bound by 1 to 3 % and double its cost."""

MOST_STEPS = 1000
"""Steps of time for which K is computed: those of 31 messages one after the other."""

FAR_SETS = 4
"""How many distances from the rank that hears latest are tried; for each the ranks beyond it are a set C. AllReduce of
1 KB on `family:89809:some?message=2us` (benchmarks/heldout.py -t) is bounded by 8.0 us with 0 or 1 of them, and by
11.7 us with 4."""

MOST_ENTRIES = 50_000
"""Pairs of a sender and a link up to which each sender has a K of its own: 111 ranks of a torus have that many."""


def growth_bound(topology: Topology, workload: Workload, from_s: float) -> Bound | None:
    """The bound by messages for sums; None where it says nothing.

    Args:
        from_s: seconds, another bound; where this one cannot be better it is not computed.
    """
    sums = [c for each in workload.collectives if (c := each if each.reduces else _from_many(each)) is not None]
    links, senders = np.flatnonzero(topology.adds[topology.dst]), np.flatnonzero(topology.adds)
    if not sums or topology.planes or topology.reduces.any() or not len(links) or not topology.message_s[links].all():
        return None
    near = distances(topology, 0.0)
    way_s = near[np.ix_(senders, topology.src[links])] + topology.latency_s[links]
    way_s[senders[:, None] == topology.dst[links]] = np.inf
    step_s = float((way_s.min(axis=0) + topology.message_s[links]).min()) / GRAIN
    if not from_s - max(c.start_s for c in sums) < step_s * MOST_STEPS < np.inf:
        return None
    if way_s.size > MOST_ENTRIES:
        way_s = way_s.min(axis=0, keepdims=True)
    model = GrowthModel.of(topology, links, senders, way_s, step_s)
    everyone = np.unique(np.concatenate([c.ranks for c in sums]))
    latest = {c.alike: c for c in sorted(sums, key=lambda c: c.start_s)}.values()
    ends = [_end(model, everyone, c) for c in latest]
    for c in latest if len(way_s) > 1 else ():
        if c.holders.lengths.min() == len(c.ranks):
            ends += [_end(model, far, c) for far in _far_ranks(model, c)]
    seconds, count = max(ends)
    words = growth_words(step_s, count)
    return Bound(seconds, "messages", words, tuple(topology.accelerators.tolist()), tuple(links.tolist()))


def growth_of_copies(topology: Topology, workload: Workload, from_s: float) -> Bound | None:
    """The same bound for what one holder has for several ranks, where switches pass messages on and do not copy them.

    Where no switch is passed, other bounds are larger: so for all sizes from 1 KB on dgx1, mesh:8x8 and torus:8x8,
    ndv2:4, dgx2:2, amd:2 and h100:4.
    """
    sends = topology.store_and_forward | topology.is_switch
    if topology.replicates.any() or not topology.is_switch.any() or not sends.all():
        return None
    sums = []
    for c in workload.collectives:
        alone = not c.reduces and (c.holders.lengths == 1).all() and len(distinct(c.holders.values)) == 1
        if alone and len(told := np.union1d(c.wanted.values, c.holders.values[:1])) > 2:
            sums.append(_one_sum(c, told, c.holders.values[:1]))
    if not sums:
        return None
    turned = replace(topology, src=topology.dst, dst=topology.src)
    found = growth_bound(turned, Workload(tuple(sums)), from_s)
    return None if found is None else replace(found, witness=found.witness.replace(COME, TOLD))


def _from_many(c: Collective) -> Collective | None:
    """What ranks want that want something of all holders, as one sum; None if no rank does, or holders share pieces."""
    if (c.holders.lengths != 1).any() or len(holders := distinct(c.holders.values)) < 2:
        return None
    hears = np.eye(len(c.ranks), dtype=np.bool_)
    hears[c.wanted.values, c.holders.values[c.wanted.owners]] = True
    wanting = np.flatnonzero(hears[:, holders].all(axis=1))
    return _one_sum(c, holders, wanting) if len(wanting) else None


def _one_sum(c: Collective, holders: NDArray[Any], wanting: NDArray[Any]) -> Collective:
    """One piece that some ranks contribute to and that others want."""
    one = np.array([c.size_bytes])
    ends = Ragged.of([holders.tolist()]), Ragged.of([wanting.tolist()])
    return Collective.uncut("reduce", c.ranks, c.size_bytes, one, *ends, start_s=c.start_s)


def growth_words(step_s: float, count: int) -> str:
    """The witness of the bound."""
    return f"a message takes {format_time(step_s * GRAIN)} or more, and {count} {COME}"


def _far_ranks(model: GrowthModel, c: Collective) -> list[Int32]:
    """For a few distances the ranks farther than that from the rank that hears latest, of those that want a sum."""
    takes_s = np.full((len(model.senders), len(model.senders)), np.inf)
    np.minimum.at(takes_s.T, model.into, (model.way_s + model.message_s).T)
    at = np.searchsorted(model.senders, c.ranks)
    far_s = takes_s[np.ix_(at, at)]
    np.fill_diagonal(far_s, 0.0)
    wants = np.unique(c.wanted.values)
    heard_s = far_s[:, wants[far_s[:, wants].max(axis=0).argmax()]]
    nearest = np.unique(np.round(heard_s / model.step_s))[1 : FAR_SETS + 1]
    return [c.ranks[far] for far in (heard_s / model.step_s > near + 0.5 for near in nearest) if far.any()]


def _end(model: GrowthModel, own: Int32, c: Collective) -> tuple[float, int]:
    """When every rank can have the contributions of the ranks ``own`` to its piece at the soonest, and their number."""
    pieces = np.minimum(np.repeat(c.holders.lengths, c.wanted.lengths), len(own))
    at = np.searchsorted(model.senders, c.ranks[c.wanted.values])
    grown = model.grow(np.isin(model.senders, own).astype(np.float64), at, int(pieces.max()))
    return c.start_s + model.step_s * int((grown[:, at] < pieces).sum(axis=0).max()), int(pieces.max())


@dataclass(frozen=True)
class GrowthModel:
    """What K is computed from, in steps of time."""

    senders: Int64  # int64[senders], nodes that add
    into: Int64  # int64[links], the place of each link's end among them
    way_s: Float64  # float64[senders, links], d; or float64[1, links], the shortest of any sender
    message_s: Float64  # float64[links], m
    step_s: float

    @classmethod
    def of(cls, topology: Topology, links: Int64, senders: Int64, way_s: Float64, step_s: float) -> GrowthModel:
        return cls(senders, np.searchsorted(senders, topology.dst[links]), way_s, topology.message_s[links], step_s)

    def grow(self, own: Float64, wanting: Int64, most: int) -> Float64:
        """float64[steps, senders]: K, at the most, in each step of time, until some senders have ``most``.

        Args:
            own: float64[senders], 1 for those that contribute.
            wanting: int64[any], the senders that want the sum.
        """
        count = np.minimum(MOST_STEPS * self.step_s / self.message_s + 1, most).astype(np.int64)
        link = np.repeat(np.arange(len(count)), count)
        i = np.arange(len(link)) - np.repeat(np.cumsum(count) - count, count) + 1
        # a message that was sent this many steps before may come in this step
        ago = _steps(i * self.message_s[link], self.step_s)
        far = _steps(self.way_s, self.step_s)
        into, senders = self.into[link], len(own)
        grown, sent = np.zeros((MOST_STEPS, senders)), np.zeros((MOST_STEPS, len(count)))
        every, at_once = np.arange(len(self.way_s))[:, None], (far == 0).any()
        known = grown if len(self.way_s) == senders else np.zeros((MOST_STEPS, 1))
        for step in range(MOST_STEPS):
            # a way or a cost may be shorter than a step, but not both: so first what comes over ways of a step or more
            for long in (True, False) if at_once else (True,):
                at = step - far
                sent[step] = np.where(at >= 0, known[np.maximum(at, 0), every], 0.0).max(axis=0)
                if long:
                    came = ago <= step
                    grown[step] = own + np.bincount(into[came], sent[step - ago[came], link[came]], senders)
                    known[step] = grown[step] if known is grown else grown[step].max()
            if grown[step][wanting].min() >= most:
                return grown[: step + 1]
        return grown


def _steps(seconds: Float64, step_s: float) -> Int64:
    """The number of whole steps in each time, MOST_STEPS at the most."""
    steps: Int64 = np.minimum(seconds / step_s, MOST_STEPS).astype(np.int64)
    return steps
