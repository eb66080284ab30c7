"""Optical planes as the event loop sees them: circuits are links, and turns and barriers are events.

A circuit that some transfer uses becomes a link after those of the topology. A turn and a barrier become events that
take time and carry nothing: they wait for what must have arrived, and what must come later waits for them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..model.arrays import Float64, Int64, Ragged, offsets_of
from ..model.plan import Plan
from .kernel_physics import Links


class Events(NamedTuple):
    """Turns, then barriers, numbered on after the transfers."""

    earliest_s: Float64  # float64[events], no event begins before
    seconds: Float64  # float64[events], how long each takes
    depends: Ragged  # ragged, for each transfer and then each event what it waits for


def circuit_links(plan: Plan) -> tuple[Ragged, Links]:
    """The routes of all transfers, and the links, with the circuits of planes among them."""
    t = plan.topology
    links = Links(t.src, t.dst, t.latency_s, t.bandwidth, t.message_s)
    if plan.plane is None or not (plan.plane >= 0).any():
        return plan.route, links
    on_plane = plan.plane >= 0
    rows = np.flatnonzero(on_plane)
    ends = np.stack((plan.plane[rows], plan.src[rows], plan.dst.values[plan.dst.offsets[rows]]), axis=1)
    circuits, which = np.unique(ends, axis=0, return_inverse=True)
    planes = [t.planes[p] for p in circuits[:, 0]]
    offsets = offsets_of(np.where(on_plane, 1, plan.route.lengths))
    values = np.empty(offsets[-1], dtype=np.int32)
    is_circuit = np.zeros(len(values), dtype=np.bool_)
    is_circuit[offsets[rows]] = True
    values[is_circuit] = t.link_count + which.ravel()
    values[~is_circuit] = plan.route.values
    both = Links(
        np.concatenate((t.src, circuits[:, 1].astype(np.int32))),
        np.concatenate((t.dst, circuits[:, 2].astype(np.int32))),
        np.concatenate((t.latency_s, np.array([p.latency_s for p in planes]))),
        np.concatenate((t.bandwidth, np.array([p.bandwidth for p in planes]))),
        np.concatenate((t.message_s, np.zeros(len(planes)))),
    )
    return Ragged(offsets, values), both


def events(plan: Plan, barriers: bool, timed: bool) -> Events:
    """The turns, and if ``barriers`` the barriers between groups, with what waits for what.

    Args:
        timed: whether a turn waits for its ``start_s``.
    """
    n, turns = plan.transfer_count, plan.turns
    group = plan.group if barriers else None
    if not turns.count and group is None:
        return Events(np.zeros(0), np.zeros(0), plan.depends)
    waits, on = [plan.depends.owners], [plan.depends.values.astype(np.int64)]

    def wait(who: Int64, whom: Int64) -> None:
        waits.append(np.broadcast_to(who, np.broadcast(who, whom).shape).astype(np.int64))
        on.append(np.broadcast_to(whom, waits[-1].shape).astype(np.int64))

    for p in range(len(plan.topology.planes)):
        own = np.flatnonzero(turns.plane == p)
        carried = np.flatnonzero(plan.plane == p) if plan.plane is not None else own[:0]
        epoch = np.searchsorted(turns.before[own], carried, side="right")
        later, earlier = epoch > 0, epoch < len(own)
        wait(carried[later], n + own[epoch[later] - 1])
        wait(n + own[epoch[earlier]], carried[earlier])
        wait(n + own[1:], n + own[:-1])
    count = n + turns.count
    barrier_count = 0
    if group is not None:
        step = np.unique(group, return_inverse=True)[1]
        barrier_count = int(step.max(initial=0))
        wait(count + step[step < barrier_count], np.flatnonzero(step < barrier_count))
        wait(np.flatnonzero(step > 0), count + step[step > 0] - 1)
        wait(count + np.arange(1, barrier_count), count + np.arange(barrier_count - 1))
    earliest_s = np.concatenate((turns.start_s if timed else np.zeros(turns.count), np.zeros(barrier_count)))
    depends = Ragged.grouped(np.concatenate(waits), np.concatenate(on), count + barrier_count)
    return Events(earliest_s, np.concatenate((plan.turn_seconds, np.zeros(barrier_count))), depends)
