"""The simulator: how long a plan takes. The only implementation of the physics (docs: physics).

It knows links, nodes and dependencies, and nothing of planners: a completion that a planner
claims counts when this reproduces it.
"""

from __future__ import annotations

import numpy as np

from . import kernels
from .errors import Unsupported
from .plan import Plan
from .timeline import Float64, Timeline

SIMULATED = ("timed", "ready-order")
"""The ways of sharing links that the simulator knows so far."""


def simulate(plan: Plan) -> Timeline:
    """Run a plan.

    ``timed``: a transfer starts at its ``start_s``, or when it is ready and its links have room
    if that is later, and takes the time that the plan gives it. ``ready-order``: links serve
    transfers in the order in which they become ready (then by index), one at a time, at the speed
    of the slowest link of the route.

    Raises:
        Unsupported: the plan shares links in a way, or uses optical planes, not simulated yet.
    """
    if plan.sharing not in SIMULATED:
        raise Unsupported(f"plans that share by {plan.sharing!r} are not simulated yet; {', '.join(SIMULATED)} are")
    if plan.plane is not None and (plan.plane >= 0).any():
        raise Unsupported("transfers on optical planes are not simulated yet")
    topology, workload = plan.topology, plan.workload
    seconds, rate = _durations(plan)
    asked = workload.chunk_start_s[plan.chunk]
    if plan.sharing == "timed" and plan.start_s is not None:
        asked = np.maximum(asked, plan.start_s)
    kernel = kernels.load("engine", 4.0 * plan.transfer_count)
    start, arrival, hop, done = kernel.run(
        plan.src, plan.dst.offsets, plan.dst.values, plan.route.offsets, plan.route.values,
        plan.depends.offsets, plan.depends.values,
        plan.chunk, asked, seconds, rate, plan.sharing == "ready-order",
        topology.src, topology.dst, topology.latency_s, topology.bandwidth, topology.kind, topology.node_count,
    )  # fmt: skip
    assert done == plan.transfer_count, "a plan's dependencies are acyclic by construction"
    return Timeline(
        plan=plan,
        start_s=start,
        finish_s=start + seconds,
        arrival_s=arrival,
        hop_offset_s=hop,
        completions_s=_completions(plan, arrival),
    )


def _durations(plan: Plan) -> tuple[Float64, Float64]:
    """float64[transfers] twice: seconds on a link, and bytes/s meanwhile."""
    size = plan.size_bytes.astype(np.float64)
    if plan.sharing == "timed" and plan.start_s is not None and plan.finish_s is not None:
        seconds = plan.finish_s - plan.start_s
        with np.errstate(divide="ignore"):
            return seconds, size / seconds
    widths = plan.topology.bandwidth[plan.route.values]
    slowest = np.minimum.reduceat(widths, plan.route.offsets[:-1]) if len(widths) else widths
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
