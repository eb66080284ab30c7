"""Moments of timed plans, and what rounding does to them.

A moment is a float64, so it is off by up to 1e-16 of itself, and the difference of two moments by as much of the
larger one. That is nothing beside a second, but much beside the 1e-11 s that a byte takes. So planners count time from
the start of the first collective (:func:`from_zero`, :func:`moved`), ends are rounded up (:func:`ends`), and a schedule
that was made with time reversed, whose first moments are differences of its last ones, is corrected once forward
(:func:`settled`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64, Int64, Ragged
from ..model.changes import NO_CHANGES
from ..model.collective import Workload
from ..model.plan import Plan
from ..model.symmetric import SymmetricPlan
from ..model.topology import ROUTER, Topology
from ..model.variants import seen_by
from ..simulate import delays_of, in_order, simulate
from . import kernel_moments

SHORT = 1e-10
"""Share of its duration by which a transfer may be too short for its bytes."""

EARLY = 1e-4
"""Share of the completion before which a rounding may exceed what the verifier tolerates of a moment."""

ROUNDED = 1e-13
"""Share of the completion: transfers that overlap by less overlap because of rounding. The later one is put off by that
much at most, which the verifier tolerates of all but the first transfers."""

EVEN = 1e-3
"""Share of the largest chunk: where no chunk is smaller by more, all are planned as if they were as large."""


def from_zero(workload: Workload) -> Workload:
    """The workload with all starts moved so that the first collective may start at 0."""
    begin_s = min(c.start_s for c in workload.collectives)
    return starting(workload, [c.start_s - begin_s for c in workload.collectives]) if begin_s else workload


def starting(workload: Workload, start_s: list[float]) -> Workload:
    """The workload with these starts of its collectives."""
    return Workload(tuple(replace(c, start_s=at) for c, at in zip(workload.collectives, start_s, strict=True)))


def moved(plan: Plan, workload: Workload) -> Plan:
    """A plan that was made for :func:`from_zero` of the workload, for the workload as it is."""
    starts = [c.start_s for c in workload.collectives]
    if not any(starts):
        return plan
    if isinstance(plan, SymmetricPlan):
        plan = plan.expand()
    begin_s, asked = min(starts), starting(plan.workload, starts)
    if plan.start_s is None or plan.finish_s is None:
        return replace(plan, workload=asked)
    start = plan.start_s + begin_s
    finish = np.maximum(ends(start, plan.finish_s - plan.start_s), np.nextafter(start, np.inf))
    turns = replace(plan.turns, start_s=plan.turns.start_s + begin_s)
    return replace(plan, workload=asked, start_s=start, finish_s=finish, turns=turns)


def charged(plan: Plan, topology: Topology) -> Plan:
    """A plan that was made where messages cost nothing, on the network where they do.

    Transfers take longer there. Those of a timed plan are put off until their links have room and what they wait for
    has come.
    """
    if plan.topology is topology or not topology.message_s.any():
        return plan
    plan = replace(plan, topology=topology)
    if plan.sharing != "timed" or plan.start_s is None or plan.finish_s is None or not len(plan.route.values):
        return plan
    seconds = np.maximum(plan.finish_s - plan.start_s, topology.route_s(plan.route, plan.size_bytes))
    line = simulate(replace(plan, finish_s=ends(plan.start_s, seconds)))
    turns = replace(plan.turns, start_s=line.turn_start_s)
    return replace(plan, start_s=line.start_s, finish_s=ends(line.start_s, seconds), turns=turns)


def retimed(plan: Plan, topology: Topology) -> Plan:
    """A timed plan on a network that changes with time, as early and as fast as links serve transfers by their starts.

    The planner, which knows of the changes, decides routes and turns; the simulator decides the times.
    """
    assert plan.start_s is not None, "planners that heed changes give times"
    line = in_order(replace(plan, topology=topology), plan.start_s)
    return replace(plan, topology=topology, start_s=line.start_s, finish_s=line.finish_s)


def for_messages(topology: Topology, workload: Workload, make: Callable[[Topology, Workload], Plan]) -> Plan:
    """A plan whose messages are the chunks of a workload, by a planner that does not heed what messages cost.

    Args:
        make: plans on the network as such messages see it; its plan is timed on the network itself.
    """
    if not topology.message_s.any():
        return make(topology, workload)
    even = _evened(workload)
    plan = make(seen_by(topology, float(even.chunk_bytes.mean())), even)
    return charged(replace(plan, workload=workload), topology)


def _evened(workload: Workload) -> Workload:
    """The workload with all chunks as large as the largest where they are nearly equal.

    Where data does not divide evenly some chunks have a byte more, and what should end together misses by a rounding.
    """
    size = workload.chunk_bytes
    if size.min() == size.max() or size.min() < (1 - EVEN) * size.max():
        return workload
    return Workload(
        tuple(replace(c, chunk_bytes=np.full_like(c.chunk_bytes, size.max())) for c in workload.collectives)
    )


def with_and_without(topology: Topology, plan: Callable[[Topology], Plan]) -> Plan:
    """The plan that ends first where bandwidths change: with that known, or planned for the bandwidths at first.

    Greedy planners are not always better for what they know.
    """
    if not topology.changes:
        return plan(topology)
    known, blind = retimed(plan(topology), topology), plan(replace(topology, changes=NO_CHANGES))
    line = simulate(blind, topology.changes)
    pushed = replace(blind, topology=topology, start_s=line.start_s, finish_s=line.finish_s)
    return min(known, pushed, key=lambda each: simulate(each).completion_s)


def ends(start: Float64, seconds: Float64) -> Float64:
    """When transfers end, rounded up where they would otherwise be too short."""
    finish: Float64 = start + seconds
    short = finish - start < seconds * (1 - SHORT)
    return np.where(short, np.nextafter(finish, np.inf), finish) if short.any() else finish


def settled(plan: Plan, start: Float64, seconds: Float64) -> Plan:
    """The plan with these times, which are right but for rounding.

    A transfer that overlaps others by a rounding is put off until its links are free and what it waits for has come.
    Only the first transfers can need that: beside later moments a rounding is small.
    """
    lag = delays(plan, np.arange(plan.transfer_count))[1]
    end_s = float((start + seconds + lag).max())
    rows = np.flatnonzero(start < EARLY * end_s)
    if len(rows):
        start = start.copy()
        start[rows] = _exact(plan, rows, start[rows], seconds[rows], ROUNDED * end_s)
    return replace(plan, sharing="timed", start_s=start, finish_s=ends(start, seconds))


def _exact(plan: Plan, rows: Int64, start: Float64, seconds: Float64, near: float) -> Float64:
    """Exact starts of some transfers among themselves; moments closer than ``near`` are the same."""
    topology, route, chunk = plan.topology, plan.route.take(rows), plan.chunk[rows]
    hop, lag = delays(plan, rows)
    end = np.repeat(start + seconds, route.lengths) + hop
    of_link = np.concatenate(([0], np.cumsum(np.bincount(route.values, minlength=topology.link_count))))
    exact: Float64 = at_speed(kernel_moments.settle, 40.0 * len(end))(
        start, seconds, lag, plan.workload.chunk_start_s[chunk], chunk, topology.forwarding[plan.src[rows]] == ROUTER,
        route.offsets, route.values, hop, *among(plan.depends, rows),
        np.lexsort((end, route.values)), of_link, min(near, float(seconds.min()) / 8),
    )  # fmt: skip
    return exact


def among(lists: Ragged, rows: Int64) -> Ragged:
    """The lists of ``rows`` without the values that are not among ``rows``; the others by their place in ``rows``."""
    place = np.full(lists.rows, -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    own = lists.take(rows)
    found = place[own.values]
    return Ragged.grouped(own.owners[found >= 0], found[found >= 0], len(rows))


def delays(plan: Plan, rows: Int64) -> tuple[Float64, Float64]:
    """For some transfers how much later than its source each link carries the bytes, and the last receiver has them."""
    if plan.other_src is None and len(plan.dst.values) == plan.transfer_count:
        return path_delays(plan.topology, plan.route.take(rows))
    hop_s, receiver_s = delays_of(plan)
    hops = plan.route.with_values(np.arange(len(hop_s))).take(rows).values
    return hop_s[hops], plan.dst.reduced(np.maximum, receiver_s)[rows]


def path_delays(topology: Topology, route: Ragged) -> tuple[Float64, Float64]:
    """Of routes that are paths: float64[links of routes], how much later than its source each link carries the bytes,
    and float64[routes], how much later the receiver has them, seconds."""
    latency, first, lengths = topology.latency_s[route.values], route.offsets[:-1], route.lengths
    hop = np.zeros(len(latency))
    # place by place: differences of a sum over all routes would be rounded
    for place in range(1, int(lengths.max(initial=0))):
        at = first[lengths > place] + place
        hop[at] = hop[at - 1] + latency[at - 1]
    return hop, route.reduced(np.add, latency)


def lags_s(plan: Plan, receiver_s: Float64) -> Float64:
    """float64[depends], for each the latency from the source of the transfer awaited to that of the one that waits; to
    the farthest receiver where it is not among them, or where several nodes send.
    """
    waiting, awaited = plan.depends.owners, plan.depends.values
    farthest = plan.dst.reduced(np.maximum, receiver_s)[awaited]
    nodes, receivers = np.int64(plan.topology.node_count), plan.dst.owners * plan.topology.node_count + plan.dst.values
    order = np.argsort(receivers)
    asked = awaited * nodes + plan.src[waiting]
    place = order[np.minimum(np.searchsorted(receivers, asked, sorter=order), len(order) - 1)]
    single = plan.sources.lengths[waiting] == 1
    lag_s: Float64 = np.where(single & (receivers[place] == asked), receiver_s[place], farthest)
    return lag_s
