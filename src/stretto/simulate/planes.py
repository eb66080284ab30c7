"""How the simulator sees optical planes: circuits as links, turns and barriers as events.

A circuit that some transfer uses becomes a link after the topology's own. A turn and a barrier
become events that take a time and carry nothing: they wait for what must have arrived, and what
must come later waits for them. So the event loop needs to know nothing of planes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Int32, Int64, Ragged
from ..model.plan import Plan

Float64 = NDArray[np.float64]


class Links(NamedTuple):
    """The columns of links that the event loop reads."""

    src: Int32
    dst: Int32
    latency_s: Float64
    bandwidth: Float64


class Events(NamedTuple):
    """Turns, then barriers, numbered on after the transfers.

    Attributes:
        asked: float64[events], none begins before.
        seconds: float64[events], how long each takes.
        depends: ragged, for each transfer and then each event what it waits for.
    """

    asked: Float64
    seconds: Float64
    depends: Ragged


def circuit_links(plan: Plan) -> tuple[Ragged, Links]:
    """The routes of all transfers and the links, with circuits among them."""
    t = plan.topology
    links = Links(t.src, t.dst, t.latency_s, t.bandwidth)
    if plan.plane is None or not (plan.plane >= 0).any():
        return plan.route, links
    on = np.flatnonzero(plan.plane >= 0)
    ends = np.stack((plan.plane[on], plan.src[on], plan.dst.values[plan.dst.offsets[on]]), axis=1)
    circuits, which = np.unique(ends, axis=0, return_inverse=True)
    planes = [t.planes[p] for p in circuits[:, 0]]
    more = Links(
        circuits[:, 1].astype(np.int32),
        circuits[:, 2].astype(np.int32),
        np.array([p.latency_s for p in planes]),
        np.array([p.bandwidth for p in planes]),
    )
    lengths = plan.route.lengths
    lengths[on] = 1
    offsets = np.zeros(plan.transfer_count + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    values = np.empty(offsets[-1], dtype=np.int32)
    is_circuit = np.zeros(len(values), dtype=np.bool_)
    is_circuit[offsets[on]] = True
    values[is_circuit] = t.link_count + which.ravel()
    values[~is_circuit] = plan.route.values
    both = Links(
        np.concatenate((links.src, more.src)),
        np.concatenate((links.dst, more.dst)),
        np.concatenate((links.latency_s, more.latency_s)),
        np.concatenate((links.bandwidth, more.bandwidth)),
    )
    return Ragged(offsets, values), both


def events(plan: Plan, barriers: bool, timed: bool) -> Events:
    """The turns, and if asked for the barriers between groups, with what waits for what."""
    n, turns = plan.transfer_count, plan.turns
    waits, on = [plan.depends.owners], [plan.depends.values.astype(np.int64)]

    def wait(who: Int64, whom: Int64) -> None:
        waits.append(np.broadcast_to(who, np.broadcast(who, whom).shape).astype(np.int64))
        on.append(np.broadcast_to(whom, waits[-1].shape).astype(np.int64))

    seconds = []
    for p, plane in enumerate(plan.topology.planes):
        own = np.flatnonzero(turns.plane == p)
        carried = np.flatnonzero(plan.plane == p) if plan.plane is not None else own[:0]
        epoch = np.searchsorted(turns.before[own], carried, side="right")
        later = epoch > 0
        wait(carried[later], n + own[epoch[later] - 1])
        before_one = epoch < len(own)
        wait(n + own[epoch[before_one]], carried[before_one])
        wait(n + own[1:], n + own[:-1])
        takes = np.full(len(own), plane.reconfiguration_s)
        if (plane.matching < 0).all():
            takes[:1] = 0.0
        seconds.append((own, takes))
    takes_s = np.zeros(turns.count)
    for own, takes in seconds:
        takes_s[own] = takes
    count = n + turns.count
    barrier_count = 0
    if barriers and plan.group is not None:
        _, step = np.unique(plan.group, return_inverse=True)
        barrier_count = int(step.max(initial=0))
        wait(count + step[step < barrier_count], np.flatnonzero(step < barrier_count))
        wait(np.flatnonzero(step > 0), count + step[step > 0] - 1)
        wait(count + np.arange(1, barrier_count), count + np.arange(barrier_count - 1))
    asked = np.concatenate((turns.start_s if timed else np.zeros(turns.count), np.zeros(barrier_count)))
    return Events(
        asked,
        np.concatenate((takes_s, np.zeros(barrier_count))),
        _grouped(np.concatenate(waits), np.concatenate(on), count + barrier_count),
    )


def _grouped(owners: Int64, values: Int64, rows: int) -> Ragged:
    """Pairs (owner, value) as a list an owner."""
    offsets = np.zeros(rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(owners, minlength=rows), out=offsets[1:])
    return Ragged(offsets, values[np.argsort(owners, kind="stable")].astype(np.int32))
