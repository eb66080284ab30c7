"""Bounds on the mean completion of several collectives, by weight, that hold for every plan.

Take any set of links as a machine that serves collectives. The links into a set of nodes carry the bytes that each
collective must bring in. The links into the parts of a partition carry what its parts must receive (:mod:`.parts`).
Divided by the bandwidth of these links, that is how long each collective keeps the machine busy. Collectives may share
a machine in any way and interrupt each other, but none is served before it starts. So a set of collectives is not over
before

    max over moments r of  r + the seconds, on that machine, of those of them that start at r or later

nor before the bound of each of them alone. In whatever order collectives end, the first j of them are a set, and the
j-th ends no sooner than that set allows. The least weighted sum over all orders is found by a recursion over sets. With
one machine this is the optimum of preemptive scheduling with release times: shortest remaining time first where weights
are equal, weighted shortest first (Smith 1956) where starts are equal. With more than ``SETS_UP_TO`` collectives each
machine is bounded by mean busy times (Goemans 1997).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..model.arrays import Bool, Float64, Int64
from ..model.collective import Collective, Workload
from ..model.topology import Topology
from .candidates import candidate_cuts, width_into
from .cuts import as_bound, bytes_into
from .exact import bottleneck
from .messages import without_messages
from .model import Bound
from .parts import best_parts, partitions

SETS_UP_TO = 12
"""Collectives up to which all orders are looked at, by a recursion over 4,096 sets."""

MOST_MACHINES = 512
"""Machines that are looked at: those that all collectives together keep busy longest, and each one alone."""


@dataclass(frozen=True, eq=False)
class _Machines:
    """Sets of links, and how long each collective keeps each of them busy.

    Attributes:
        seconds: float64[machines, collectives].
        way_s: float64[machines], the least latency of their links: what is served has not come sooner.
        words: what each is, for people; made when asked.
    """

    seconds: Float64
    way_s: Float64
    words: list[Callable[[], Bound]]


def least_mean(topology: Topology, workload: Workload, alone_s: Float64) -> Bound:
    """A time that the mean completion of a workload, by weight, is not below.

    Args:
        alone_s: float64[collectives], a bound on the completion of each alone, from its start.
    """
    work, start = workload, np.array([c.start_s for c in workload.collectives])
    net = replace(topology.at_best.relaying, planes=topology.planes)
    heavier = without_messages(net, work)
    if heavier is not None:
        net, work = heavier
    machines = _machines(net, work)
    share = workload.weights / workload.weights.sum()
    alone = Bound(float(share @ alone_s), "alone", "each collective as if it were alone", (), ())
    if not len(machines.seconds):
        return alone
    if len(start) <= SETS_UP_TO:
        ends = _ends_of_sets(machines, start, start + alone_s)
        seconds = _least_sum(ends.least_s, share) - float(share @ start)
        widest = int(ends.machine[-1])
    else:
        each = [
            _mean_busy(seconds, start, share) + way_s * float(share[seconds > 0].sum())
            for seconds, way_s in zip(machines.seconds, machines.way_s.tolist(), strict=True)
        ]
        widest = int(np.argmax(each))
        seconds = each[widest] - float(share @ start)
    if seconds <= alone.seconds * (1 + 1e-12):
        return alone
    said = machines.words[widest]()
    return Bound(seconds, "one after the other", f"the shortest first, {said.witness}", said.nodes, said.links)


def _machines(topology: Topology, workload: Workload) -> _Machines:
    """Cuts, then partitions, that some collective keeps busy; the busiest ones."""
    collectives = workload.collectives
    inside = candidate_cuts(topology)
    if not topology.planes:
        found = (bottleneck(topology, c) for c in _different(collectives))
        inside = np.concatenate((inside, *(cut.inside[None] for cut in found if cut is not None)))
    width = width_into(topology, inside)
    load = np.stack([bytes_into(c, inside) for c in collectives], axis=1)
    useful = np.flatnonzero((width > 0) & (load > 0).any(axis=1))
    seconds = load[useful] / width[useful, None]
    if len(useful) > MOST_MACHINES:
        kept = np.unique([*np.argsort(-seconds.sum(axis=1), kind="stable")[:MOST_MACHINES], *seconds.argmax(axis=0)])
        useful, seconds = useful[kept], seconds[kept]
    words: list[Callable[[], Bound]] = []
    for row in useful:
        total, room = float(load[row].sum()), float(width[row])
        words.append(partial(as_bound, topology, inside[row], 0.0, total, room))
    way_s = [_way_s(topology, inside[row][None]) for row in useful]
    for parts in _partitions(topology, collectives):
        enters = (parts[:, topology.dst] & ~parts[:, topology.src]).sum(axis=0)
        received = [_received_bytes(c, parts) for c in collectives]
        seconds = np.concatenate((seconds, [np.array(received) / float(enters @ topology.bandwidth)]))
        words.append(partial(_words_of_parts, topology, parts, enters))
        way_s.append(_way_s(topology, parts))
    return _Machines(seconds, np.array(way_s), words)


def _different(collectives: tuple[Collective, ...]) -> list[Collective]:
    """One of the collectives that have the same kind and ranks."""
    return list({(c.kind, c.root, c.ranks.tobytes()): c for c in collectives}.values())


def _partitions(topology: Topology, collectives: tuple[Collective, ...]) -> list[Bool]:
    """bool[parts, nodes] each: partitions that are best for one AllReduce, or tell sites or servers apart."""
    if topology.planes:
        return []
    found: dict[bytes, Bool] = {}
    for c in _different(collectives):
        best = best_parts(topology, c)
        if best is not None:
            for parts in (best.inside, *partitions(topology, c.ranks)):
                # every node that adds belongs to one part: then other collectives may have ranks in any of them
                if len(parts) > 2 and (parts[:, topology.adds].sum(axis=0) == 1).all():
                    found.setdefault(parts.tobytes(), parts)
    return list(found.values())


def _received_bytes(c: Collective, parts: Bool) -> float:
    """Bytes that the parts of a partition must receive together.

    An AllReduce with ranks in k parts makes 2 (k - 1) receipts of each byte, whichever part is first to have its sum,
    one without ranks included.
    """
    if c.traits.reduces_to_all:
        return 2.0 * max(int(parts[:, c.ranks].any(axis=1).sum()) - 1, 0) * float(c.piece_bytes.sum())
    return float(bytes_into(c, parts).sum())


def _way_s(topology: Topology, inside: Bool) -> float:
    """The least latency of the links into some sets."""
    enters = (inside[:, topology.dst] & ~inside[:, topology.src]).any(axis=0)
    return float(min([*topology.latency_s[enters].tolist(), *(p.latency_s for p in topology.planes)], default=0.0))


def _words_of_parts(topology: Topology, parts: Bool, enters: Int64) -> Bound:
    links = tuple(np.flatnonzero(enters).tolist())
    words = f"what {len(parts)} parts must receive over the {len(links)} links between them"
    return Bound(0.0, "parts", words, tuple(range(topology.node_count)), links)


@dataclass(frozen=True, eq=False)
class _Sets:
    least_s: Float64  # float64[2 ** collectives], by the set as bits: before when not all of them are over
    machine: Int64  # int64[2 ** collectives], the machine that says so, or would if none were alone


def _ends_of_sets(machines: _Machines, start: Float64, alone: Float64) -> _Sets:
    """For each set of collectives a time before which not all of them are over."""
    count = len(start)
    member = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1 == 1
    least = np.where(member, alone, 0.0).max(axis=1)
    busiest, machine = np.zeros(1 << count), np.zeros(1 << count, dtype=np.int64)
    for at in np.unique(start):
        later = (member & (start >= at)).astype(np.float64)
        some = np.flatnonzero(later.any(axis=1))
        for low in range(0, len(some), 256):
            rows = some[low : low + 256]
            busy = later[rows] @ machines.seconds.T
            ends = at + np.where(busy > 0, busy + machines.way_s, 0.0)
            widest = ends.argmax(axis=1)
            end = ends[np.arange(len(rows)), widest]
            better = end > busiest[rows]
            busiest[rows[better]], machine[rows[better]] = end[better], widest[better]
    return _Sets(np.maximum(least, busiest), machine)


def _least_sum(least_s: Float64, share: Float64) -> float:
    """The least weighted sum of ends over all orders: the j-th end is no sooner than that of the first j."""
    count = len(share)
    total = np.full(len(least_s), np.inf)
    total[0] = 0.0
    sets = np.arange(len(least_s))
    size = ((sets[:, None] >> np.arange(count)) & 1).sum(axis=1)
    for members in range(1, count + 1):
        rows = sets[size == members]
        for k in range(count):
            own = rows[rows >> k & 1 == 1]
            total[own] = np.minimum(total[own], total[own ^ (1 << k)] + share[k] * least_s[own])
    return float(total[-1])


def _mean_busy(seconds: Float64, start: Float64, share: Float64) -> float:
    """The least weighted sum of ends on one machine, by mean busy times.

    The schedule that always serves the largest weight over seconds makes the weighted sum of mean busy times least. No
    collective ends sooner than half its seconds after its mean busy time, nor than its start and its seconds.
    """
    left, busy = seconds.copy(), np.zeros(len(seconds))
    with np.errstate(divide="ignore"):
        urgency = np.where(seconds > 0, share / seconds, 0.0)
    now, arrivals = 0.0, np.unique(start).tolist() + [np.inf]
    for number, at in enumerate(arrivals[:-1]):
        now = max(now, at)
        while now < arrivals[number + 1]:
            waiting = np.flatnonzero((start <= now) & (left > 0))
            if not len(waiting):
                break
            k = int(waiting[np.argmax(urgency[waiting])])
            end = min(now + left[k], arrivals[number + 1])
            busy[k] += (end * end - now * now) / 2
            left[k] = 0.0 if end == now + left[k] else left[k] - (end - now)
            now = end
    mean = np.divide(busy, seconds, out=start.copy(), where=seconds > 0)
    return float(share @ (mean + seconds / 2))
