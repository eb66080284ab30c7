"""By how much rounding may miss the moments of a timed plan (docs: physics, "What rounding may hide")."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..model.plan import Plan

ULPS = 64
"""Units in the last place of a plan's last moment by which rounding may miss a moment."""

ENDS_ULPS = 4
"""Units in the last place of a transfer's end by which it may be too short."""

DRIFT = 1e-12
"""Share of the time that a plan takes by which a link may be ahead, in all: many roundings add up."""


class Rounding(NamedTuple):
    """What roundings allow."""

    moment_s: float  # by which any moment may be missed
    drift_s: float  # by which a link may be ahead, in all


def rounding(plan: Plan) -> Rounding:
    """What roundings allow in a timed plan, by when the last bytes arrive at a rank that wants them.

    What nobody wants may be as late as it likes, so it says nothing of how exact the others are.
    """
    assert plan.start_s is not None and plan.finish_s is not None, "timed"
    workload, nodes = plan.workload, plan.topology.node_count
    wanted, owners = workload.chunk_wanted, plan.dst.owners
    pairs = plan.chunk[owners].astype(np.int64) * nodes + plan.dst.values
    arrival_s = plan.finish_s.copy()
    np.add.at(arrival_s, plan.route.owners, plan.topology.latency_s[plan.route.values])
    counts = np.isin(pairs, wanted.owners * nodes + wanted.values)
    last_s = float(arrival_s[owners[counts]].max(initial=0.0))
    takes_s = last_s - float(plan.start_s.min(initial=last_s))
    moment_s = ULPS * float(np.spacing(last_s))
    return Rounding(moment_s, moment_s + DRIFT * takes_s)
