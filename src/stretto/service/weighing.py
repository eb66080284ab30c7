"""What a new plan gains: how long the plans that jobs have would take on the network as it is now.

Transfers of a timed plan begin at their times or, where something is late, when they can (:mod:`stretto.simulate`).
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

import numpy as np

from ..model.changes import make_changes
from ..model.errors import StrettoError
from ..model.plan import Plan
from ..model.topology import Topology
from ..simulate import simulate
from .numbering import links_there


def mean_s(plan: Plan, topology: Topology) -> float:
    """The mean completion of a plan's collectives by weight on a network of the same nodes, seconds.

    Returns:
        infinite, if a link that the plan needs is down there, or the nodes are others.
    """
    was = plan.topology
    if was.names != topology.names:
        return math.inf
    there = links_there(was, topology)
    up = there >= 0
    if not up[plan.route.values].all():
        return math.inf
    width, latency_s = was.bandwidth.copy(), was.latency_s.copy()
    width[up], latency_s[up] = topology.bandwidth[there[up]], topology.latency_s[there[up]]
    steps = [(0.0, link, float(width[link])) for link in np.flatnonzero(width != was.bandwidth).tolist()]
    late = replace(plan, topology=replace(was, latency_s=latency_s))
    with suppress(StrettoError):
        line = simulate(late, make_changes(steps, was.link_count)) if steps else simulate(late)
        if np.isfinite(line.completions_s).all():
            return plan.workload.mean_s(line.completions_s)
    return math.inf
