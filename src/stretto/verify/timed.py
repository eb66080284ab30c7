"""Times of a timed plan: starts respect dependencies and planes, and no link carries too much at any moment."""

from __future__ import annotations

import numpy as np

from ..kernels import at_speed
from ..model.plan import Plan
from ..model.symmetry import Symmetry
from ..model.units import format_time
from . import kernel_referee
from .capacity import crowded_link
from .changing import wrong_load
from .findings import CODES, TOLERANCE, Finding, about
from .planes import broken_barrier, circuit_latency_s, early_turn
from .rounding import rounding

STEPS_A_TRANSFER = 4.0
"""Steps of the kernel's inner loop for each transfer, about."""


def wrong_time(plan: Plan, symmetry: Symmetry | None = None) -> Finding | None:
    """The first transfer that starts too early or does not end after its start; else what planes or links show.

    Args:
        symmetry: the group whose images of the plan share the links.
    """
    if plan.sharing != "timed" or plan.start_s is None or plan.finish_s is None:
        return None
    t = plan.topology
    hop_s = np.zeros(len(plan.route.values))
    circuit_s, allowed = circuit_latency_s(plan), rounding(plan)
    paths = kernel_referee.Paths(plan.sources, plan.dst, plan.route)
    network = kernel_referee.Network(t.src, t.dst, t.forwarding)
    times = kernel_referee.Times(
        chunk=plan.chunk, depends=plan.depends, start_s=plan.start_s, finish_s=plan.finish_s,
        earliest_s=plan.workload.chunk_start_s[plan.chunk], latency_s=t.latency_s, circuit_latency_s=circuit_s,
        slack_s=np.maximum(TOLERANCE * (plan.finish_s - plan.start_s), allowed.moment_s),
    )  # fmt: skip
    work = STEPS_A_TRANSFER * plan.transfer_count
    code, k, other, _ = at_speed(kernel_referee.starts, work)(paths, network, times, hop_s)
    if not code:
        arrival_s = plan.finish_s + circuit_s
        owners = plan.route.owners
        np.maximum.at(arrival_s, owners, (plan.finish_s[owners] + hop_s) + t.latency_s[plan.route.values])
        return (
            early_turn(plan, allowed.moment_s)
            or broken_barrier(plan, arrival_s, allowed.moment_s)
            or (wrong_load(plan, hop_s, allowed) if t.changes else crowded_link(plan, hop_s, allowed, symmetry))
        )
    k = int(k)
    when = float(plan.start_s[k])
    words = {
        "duration": "does not end after it starts",
        "before-start": f"starts at {format_time(when)}, before its collective may",
        "before-dependency": f"starts at {format_time(when)}, before "
        f"{plan.describe(int(other)) if other >= 0 else ''}, on which it depends, has arrived",
    }[CODES[code]]
    return about(plan, CODES[code], k, words, time_s=when)
