"""List schedules of flows by rules: the greedy schedulers of the WAN paper (section III-E) and ours.

Among the ready flows whose links are idle the most urgent starts: by rule the shortest, the one with the most bytes
downstream, the one with the longest chain after it, or collective after collective.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...kernels import at_speed
from ...model.arrays import Float64
from ...model.plan import Plan
from . import kernel_lists
from .bound import heads_and_tails
from .flows import Flows

RULES = ("shortest", "downstream", "chain", "collective")
"""Rules by which a flow is urgent."""

STRICT = 10
"""Collectives are ordered strictly by this many times the longest chain between them."""

STEPS_A_FLOW_AND_GROUP = 3.0
"""Steps of the kernel's inner loop for each flow and group, about."""


def urgencies(plan: Plan, flows: Flows, lag: Float64, rule: str) -> Float64:
    """float64[flows], how urgent each flow is by a rule; the highest goes first."""
    if rule == "shortest":
        return -flows.seconds
    if rule == "downstream":
        return downstream(plan, flows)
    chain: Float64 = heads_and_tails(plan, flows, lag)[1] + flows.seconds
    if rule == "chain":
        return chain
    collective = flows.flow_collective
    longest = np.zeros(flows.collectives)
    np.maximum.at(longest, collective, plan.workload.chunk_start_s[plan.chunk] + chain)
    load = np.bincount(collective, weights=flows.seconds)
    place = np.argsort(np.lexsort((load, longest)))
    ordered: Float64 = chain - STRICT * chain.max() * place[collective]
    return ordered


def downstream(plan: Plan, flows: Flows) -> Float64:
    """float64[flows], the bytes of each flow and of all flows after it in its chain."""
    volume = flows.size.copy()
    for k in range(plan.transfer_count - 1, -1, -1):
        for d in plan.depends[k]:
            if flows.group[d] == flows.group[k]:
                volume[d] += volume[k]
    return volume


def run(
    plan: Plan, flows: Flows, lag: Float64, urgency: Float64, seconds: Float64, apart: bool = False
) -> Float64:  # fmt: skip
    """float64[flows], the starts of the list schedule.

    Args:
        lag: float64[flows], latency from source to receiver.
        urgency: float64[flows], the highest goes first.
        seconds: float64[flows], the duration of each.
        apart: whether every collective has the links for itself.
    """
    links, link_count = flows.route.values.astype(np.int64), len(flows.width)
    if apart:
        links = links + link_count * flows.flow_collective[flows.route.owners]
        link_count *= flows.collectives
    jobs = kernel_lists.Flows(
        seconds=seconds, lag=lag, release_s=plan.workload.chunk_start_s[plan.chunk],
        route_offsets=flows.route.offsets, route_links=links,
        next_offsets=plan.dependents.offsets, dependents=plan.dependents.values.astype(np.int64),
        dependency_count=plan.depends.lengths,
    )  # fmt: skip
    work = STEPS_A_FLOW_AND_GROUP * plan.transfer_count * flows.groups
    return at_speed(kernel_lists.schedule, work)(urgency, jobs, link_count)


def list_schedule(plan: Plan, flows: Flows, lag: Float64) -> Iterator[Float64]:
    """The starts by every rule."""
    for rule in RULES:
        yield run(plan, flows, lag, urgencies(plan, flows, lag, rule), flows.seconds)
