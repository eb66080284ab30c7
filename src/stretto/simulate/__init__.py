"""The simulator: how long a plan takes. The only implementation of the physics (docs: physics).

It knows links, nodes and dependencies, and nothing of planners: a completion that a planner
claims counts when this reproduces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import at_speed
from ..model.arrays import Ragged
from ..model.errors import Unsupported
from ..model.plan import Plan
from ..model.timeline import Float64, Timeline
from . import kernel_engine, kernel_fluid
from .planes import circuit_links, events

SIMULATED = ("timed", "ready-order", "rates", "weights", "fair", "priorities")
"""The ways of sharing links that the simulator knows."""

FLUID = ("rates", "weights", "fair", "priorities")
"""Those in which a rate is a transfer's share and not a link's whole bandwidth."""


@dataclass(frozen=True, eq=False)
class Changes:
    """Bandwidths that vary in time.

    Attributes:
        at_s: float64[changes], increasing.
        bandwidth: float64[changes, links], bytes/s from then on.
    """

    at_s: Float64
    bandwidth: Float64


def simulate(plan: Plan, changes: Changes | None = None, *, barriers: bool = True) -> Timeline:
    """Run a plan.

    ``timed``: a transfer starts at its ``start_s``, or when it is ready and its links have room
    if that is later, and takes the time that the plan gives it. ``ready-order``: links serve
    transfers in the order in which they become ready (then by index), one at a time, at the speed
    of the slowest link of the route. An optical plane turns when all that it carried has arrived
    (in a timed plan not before the turn's ``start_s``).

    ``rates`` and ``weights`` reserve: a transfer has its ``rate``, or its group's share by weight
    of every link (WAN paper, eq. 11), whoever else is active. ``fair`` and ``priorities`` are
    work-conserving: weighted max-min among the active transfers, or the highest ``weight`` first
    and max-min among equals.

    Args:
        barriers: False relaxes a plan with barriers: nothing waits for its step or for its
            ``start_s``, but only for its own dependencies, its links and its plane.
        changes: bandwidths that vary, for the last four. Reserved ``rates`` shrink together where
            a link cannot carry what is reserved on it, and do not grow.
    Raises:
        Unsupported: optical planes in a plan of the last four, or bandwidths that vary under a plan
            that fixes its times or rates.
    """
    if plan.sharing not in SIMULATED:
        raise Unsupported(f"plans that share by {plan.sharing!r} are not simulated yet; {', '.join(SIMULATED)} are")
    if plan.sharing in FLUID:
        if plan.plane is not None and (plan.plane >= 0).any():
            raise Unsupported(f"optical planes do not share by {plan.sharing!r}")
        return _fluid(plan, changes)
    if changes is not None:
        raise Unsupported(f"a plan that shares by {plan.sharing!r} needs constant bandwidths")
    topology, workload, n = plan.topology, plan.workload, plan.transfer_count
    relaxed = plan.barriers and not barriers
    timed = plan.sharing == "timed" and not relaxed
    route, links = circuit_links(plan)
    seconds, rate = _durations(plan, route, links.bandwidth, timed)
    asked = workload.chunk_start_s[plan.chunk]
    if timed and plan.start_s is not None:
        asked = np.maximum(asked, plan.start_s)
    extra = events(plan, plan.barriers and barriers, timed)
    more = len(extra.asked)
    kernel_steps = 4.0 * (n + more)
    start, arrival, hop, done = at_speed(kernel_engine.run, kernel_steps)(
        _padded(plan.src, more, topology.node_count), _padded(plan.dst.offsets, more), plan.dst.values,
        _padded(route.offsets, more), route.values, extra.depends.offsets, extra.depends.values,
        _padded(plan.chunk, more, -1), np.concatenate((asked, extra.asked)), np.concatenate((seconds, extra.seconds)),
        _padded(rate, more, 0.0), not timed,
        links.src, links.dst, links.latency_s, links.bandwidth,
        _padded(topology.forwarding, 1), topology.node_count + 1,
    )  # fmt: skip
    assert done == n + more, "a plan's dependencies are acyclic by construction"
    return Timeline(
        plan=plan,
        start_s=start[:n],
        finish_s=start[:n] + seconds,
        arrival_s=arrival,
        hop_offset_s=hop[route.values < topology.link_count],
        completions_s=_completions(plan, arrival),
        turn_start_s=start[n : n + plan.turns.count],
    )


def _padded(column: NDArray[Any], more: int, value: Any = None) -> NDArray[Any]:
    """A column with ``more`` rows of ``value`` (or of its last) after its own."""
    return np.concatenate((column, np.full(more, column[-1] if value is None else value, dtype=column.dtype)))


def _fluid(plan: Plan, changes: Changes | None) -> Timeline:
    topology, n = plan.topology, plan.transfer_count
    size = plan.size_bytes.astype(np.float64)
    asked = plan.workload.chunk_start_s[plan.chunk]
    at = np.zeros(0) if changes is None else changes.at_s
    widths = np.zeros((0, topology.link_count)) if changes is None else changes.bandwidth
    conserving = plan.sharing in ("fair", "priorities")
    kernel_steps = 1000.0 * n if conserving else 10.0 * n
    hop, delay = at_speed(kernel_fluid.delays, kernel_steps)(
        plan.src, plan.dst.offsets, plan.dst.values, plan.route.offsets, plan.route.values,
        topology.src, topology.dst, topology.latency_s, topology.node_count,
    )  # fmt: skip
    if conserving:
        weight = np.ones(n) if plan.weight is None else plan.weight
        rank = np.zeros(n, dtype=np.int64)
        if plan.sharing == "priorities":
            rank, weight = np.unique(-weight, return_inverse=True)[1].astype(np.int64), np.ones(n)
        start, finish = at_speed(kernel_fluid.run, kernel_steps)(
            plan.src, plan.dst.offsets, plan.dst.values, plan.route.offsets, plan.route.values, delay,
            plan.depends.offsets, plan.depends.values, size, asked, rank, weight, topology.bandwidth, at, widths,
        )  # fmt: skip
    else:
        rates = _reserved_rates(plan, np.concatenate((topology.bandwidth[None], widths)))
        start, finish = at_speed(kernel_fluid.reserved, kernel_steps)(
            plan.src, plan.dst.offsets, plan.dst.values, delay, plan.depends.offsets, plan.depends.values,
            asked, size, at, rates,
        )  # fmt: skip
    arrival = finish[plan.dst.owners] + delay
    return Timeline(plan, start, finish, arrival, hop, _completions(plan, arrival), np.zeros(0))


def _reserved_rates(plan: Plan, widths: Float64) -> Float64:
    """float64[widths, transfers], the rate that is each one's own on links of these bandwidths."""
    owners, links = plan.route.owners, plan.route.values.astype(np.int64)
    group = np.arange(plan.transfer_count) if plan.group is None else plan.group.astype(np.int64)
    own = plan.rate if plan.sharing == "rates" else plan.weight
    assert own is not None, "make_plan asks for it"
    # what a group asks of a link is the most that one of its transfers does: eqs. (8), (9), (11)
    groups = int(group.max()) + 1
    pairs, row = np.unique(links * groups + group[owners], return_inverse=True)
    asks = np.zeros(len(pairs))
    np.maximum.at(asks, row, own[owners])
    total = np.bincount(pairs // groups, weights=asks, minlength=widths.shape[1])
    rates = np.empty((len(widths), plan.transfer_count))
    for i, width in enumerate(widths):
        scale = width[links] / total[links]
        if plan.sharing == "rates":
            scale[scale > 1 - 1e-9] = 1.0
        rates[i] = own * plan.route.reduced(np.minimum, scale)
    return rates


def _durations(plan: Plan, route: Ragged, bandwidth: Float64, timed: bool) -> tuple[Float64, Float64]:
    """float64[transfers] twice: seconds on a link, and bytes/s meanwhile."""
    size = plan.size_bytes.astype(np.float64)
    slowest = route.reduced(np.minimum, bandwidth[route.values])
    if timed and plan.start_s is not None and plan.finish_s is not None:
        seconds = plan.finish_s - plan.start_s
        with np.errstate(divide="ignore"):
            rate = size / seconds
        # what only the rounding of the two times makes too fast has the speed of the link
        full = slowest * (seconds + 4 * np.spacing(plan.finish_s)) >= size
        return seconds, np.where(full, np.minimum(rate, slowest), rate)
    return size / slowest, slowest


def _completions(plan: Plan, arrival: Float64) -> Float64:
    """float64[collectives], from each one's start until the last byte that some rank wants."""
    workload, owners = plan.workload, plan.dst.owners
    chunk = plan.chunk[owners].astype(np.int64)
    lists = workload.chunk_wanted
    nodes = plan.topology.node_count
    if workload.chunk_count * nodes <= 1 << 26:
        wants = np.zeros(workload.chunk_count * nodes, dtype=np.bool_)
        wants[lists.owners * nodes + lists.values] = True
        counts = wants[chunk * nodes + plan.dst.values]
    else:
        counts = np.isin(chunk * nodes + plan.dst.values, lists.owners * nodes + lists.values)
    starts = np.array([c.start_s for c in workload.collectives])
    last = starts.copy()
    which = workload.chunk_collective[plan.chunk[owners]]
    np.maximum.at(last, which[counts], arrival[counts])
    completions: Float64 = last - starts
    return completions
