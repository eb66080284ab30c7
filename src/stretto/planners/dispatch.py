"""An order for transfers that are pipelined along trees: a plan in ready-order becomes a timed one.

Serving what is ready first lets a root's own data crowd out what it must pass on, and the ends of deep trees come
late. Here a link takes the most urgent of what waits for it: of the earliest part of the data, as all trees advance
together, and among those what has the longest way before it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from ..plan import Plan

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


def dispatched(plan: Plan, turn: Float64) -> Plan:
    """The plan with starts by urgency.

    Args:
        turn: float64[chunks], from 0 to 1, which part of its data a chunk is.
    """
    topology, route = plan.topology, plan.route
    latency = topology.latency_s[route.values]
    hop = np.cumsum(latency) - latency
    hop -= np.repeat(hop[route.offsets[:-1]], route.lengths)
    lag = np.add.reduceat(latency, route.offsets[:-1])
    seconds = plan.size_bytes / np.minimum.reduceat(topology.bandwidth[route.values], route.offsets[:-1])
    dependents = plan.dependents
    kernel = kernels.load("dispatch", 50.0 * plan.transfer_count)
    ahead = kernel.longest(seconds + lag, dependents.offsets, dependents.values.astype(np.int64))
    rank = np.empty(plan.transfer_count, dtype=np.int64)
    rank[np.lexsort((-ahead, turn[plan.chunk]))] = np.arange(plan.transfer_count)
    start = kernel.schedule(
        rank, seconds, lag, plan.workload.chunk_start_s[plan.chunk], route.offsets, route.values.astype(np.int64), hop,
        dependents.offsets, dependents.values.astype(np.int64), plan.depends.lengths.astype(np.int64),
        topology.link_count,
    )  # fmt: skip
    return replace(plan, sharing="timed", start_s=start, finish_s=start + seconds)


def completion(plan: Plan) -> float:
    """When the last transfer of a timed plan arrives."""
    assert plan.finish_s is not None, "dispatched"
    lag = np.add.reduceat(plan.topology.latency_s[plan.route.values], plan.route.offsets[:-1])
    return float((plan.finish_s + lag).max())
