"""Moments of timed plans, and what rounding does to them.

A moment is a float64, so it is off by up to 1e-16 of itself, and the difference of two by as much of the larger one.
That is nothing beside a second and much beside the 1e-11 s that a byte takes. So planners count from the start of the
first collective (:func:`from_zero`, :func:`moved`), what ends is rounded up (:func:`ends`), and a schedule that was
made with time reversed, whose first moments are differences of its last ones, is gone through once forward
(:func:`settled`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..kernels import at_speed
from ..model.arrays import Ragged
from ..model.collective import Workload
from ..model.plan import Plan
from ..model.topology import ROUTER, Topology
from . import kernel_moments

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

SHORT = 1e-10
"""By which part of itself a transfer may be too short for what it carries."""

EARLY = 1e-4
"""Before this part of all the time a rounding may be larger than the verifier's part of a moment."""

ROUNDED = 1e-13
"""What overlaps by less than this part of all the time was not meant to. Transfers are put off by so much at most, and
after the first of them the verifier does not mind that."""


def from_zero(workload: Workload) -> Workload:
    """The same where the first collective may start at 0."""
    begin_s = min(c.start_s for c in workload.collectives)
    return starting(workload, [c.start_s - begin_s for c in workload.collectives]) if begin_s else workload


def starting(workload: Workload, start_s: list[float]) -> Workload:
    """The same, its collectives with these starts."""
    return Workload(tuple(replace(c, start_s=at) for c, at in zip(workload.collectives, start_s, strict=True)))


def moved(plan: Plan, workload: Workload) -> Plan:
    """A plan that was made for :func:`from_zero` of the workload, for the workload as it is."""
    starts = [c.start_s for c in workload.collectives]
    if not any(starts):
        return plan
    begin_s, asked = min(starts), starting(plan.workload, starts)
    if plan.start_s is None or plan.finish_s is None:
        return replace(plan, workload=asked)
    start = plan.start_s + begin_s
    finish = np.maximum(ends(start, plan.finish_s - plan.start_s), np.nextafter(start, np.inf))
    turns = replace(plan.turns, start_s=plan.turns.start_s + begin_s)
    return replace(plan, workload=asked, start_s=start, finish_s=finish, turns=turns)


def ends(start: Float64, seconds: Float64) -> Float64:
    """When what takes so long ends: rounded up where a transfer would else be too short."""
    finish: Float64 = start + seconds
    short = finish - start < seconds * (1 - SHORT)
    return np.where(short, np.nextafter(finish, np.inf), finish) if short.any() else finish


def settled(plan: Plan, start: Float64, seconds: Float64) -> Plan:
    """A plan of some transfers with these times, which are right but for rounding; each has one receiver.

    What overlaps by a rounding begins when its links are free, and nothing before what it waits for has come. Of all
    transfers only the first can need that: later moments are so large themselves that what is rounded is small.
    """
    lag = plan.topology.route_latency_s(plan.route)
    end_s = float((start + seconds + lag).max())
    rows = np.flatnonzero(start < EARLY * end_s)
    if len(rows):
        start = start.copy()
        start[rows] = _exact(plan, rows, start[rows], seconds[rows], ROUNDED * end_s)
    return replace(plan, sharing="timed", start_s=start, finish_s=ends(start, seconds))


def _exact(plan: Plan, rows: Int64, start: Float64, seconds: Float64, near: float) -> Float64:
    """Starts of some transfers, among themselves; moments that are this ``near`` are one."""
    topology, route, chunk = plan.topology, plan.route.take(rows), plan.chunk[rows]
    hop, lag = delays(topology, route)
    end = np.repeat(start + seconds, route.lengths) + hop
    of_link = np.concatenate(([0], np.cumsum(np.bincount(route.values, minlength=topology.link_count))))
    exact: Float64 = at_speed(kernel_moments.settle, 40.0 * len(end))(
        start, seconds, lag, plan.workload.chunk_start_s[chunk], chunk, topology.forwarding[plan.src[rows]] == ROUTER,
        route.offsets, route.values, hop, *among(plan.depends, rows),
        np.lexsort((end, route.values)), of_link, min(near, float(seconds.min()) / 8),
    )  # fmt: skip
    return exact


def among(lists: Ragged, rows: Int64) -> Ragged:
    """The lists of ``rows``, of what is among the rows itself, by its place there."""
    place = np.full(lists.rows, -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    own = lists.take(rows)
    found = place[own.values]
    return Ragged.grouped(own.owners[found >= 0], found[found >= 0], len(rows))


def delays(topology: Topology, route: Ragged) -> tuple[Float64, Float64]:
    """How much later than its source each link of a path carries the bytes, and how much later the last one's end."""
    latency, first, lengths = topology.latency_s[route.values], route.offsets[:-1], route.lengths
    hop = np.zeros(len(latency))
    # place by place: differences of a sum over all routes would be rounded
    for place in range(1, int(lengths.max(initial=0))):
        at = first[lengths > place] + place
        hop[at] = hop[at - 1] + latency[at - 1]
    return hop, np.add.reduceat(latency, first)
