"""List schedules of flows by rules: the greedy schedulers of the WAN paper (section III-E) and ours.

Among the ready flows whose links are idle the most urgent starts: by rule the shortest, the one with the most bytes
downstream, the one with the longest chain after it, or collective after collective.
"""

from __future__ import annotations

import numpy as np

from ...kernels import at_speed
from ...model.arrays import Float64
from . import kernel_lists
from .flows import Flows

RULES = ("shortest", "downstream", "chain", "collective")
"""Rules by which a flow is urgent."""

STRICT = 10
"""Collectives are ordered strictly by this many times the longest chain between them."""

STEPS_A_FLOW_AND_GROUP = 3.0
"""Steps of the kernel's inner loop for each flow and group, about."""


def urgencies(flows: Flows, rule: str) -> Float64:
    """float64[flows], how urgent each flow is by a rule; the highest goes first."""
    if rule == "shortest":
        return -flows.seconds
    if rule == "downstream":
        return downstream(flows)
    if rule == "chain":
        return flows.remaining
    longest = flows.latest(flows.release_s + flows.remaining)
    load = np.bincount(flows.flow_collective, weights=flows.seconds)
    place = np.argsort(np.lexsort((load, longest)))
    ordered: Float64 = flows.remaining - STRICT * flows.remaining.max() * place[flows.flow_collective]
    return ordered


def downstream(flows: Flows) -> Float64:
    """float64[flows], the bytes of each flow and of all flows after it in its chain."""
    volume = flows.size.copy()
    for k in range(len(volume) - 1, -1, -1):
        for d, _ in flows.waits[k]:
            if flows.group[d] == flows.group[k]:
                volume[d] += volume[k]
    return volume


def run(flows: Flows, urgency: Float64, seconds: Float64, guard_s: float = 0.0, apart: bool = False) -> Float64:
    """float64[flows], the starts of the list schedule.

    Args:
        urgency: float64[flows], the highest goes first.
        seconds: float64[flows], the duration of each.
        guard_s: seconds for which a link rests after each flow.
        apart: whether every collective has the links for itself.
    """
    links, link_count, plan = flows.link, len(flows.width), flows.plan
    if apart:
        links = links + link_count * flows.flow_collective[flows.owner]
        link_count *= flows.collectives
    following = plan.dependents
    jobs = kernel_lists.Flows(
        seconds=seconds, release_s=flows.release_s, route_offsets=plan.route.offsets, route_links=links,
        route_lag=flows.hop_lag, next_offsets=following.offsets, dependents=following.values.astype(np.int64),
        next_lag=flows.lag_between(following.owners, following.values),
        dependency_count=plan.depends.lengths, guard_s=guard_s,
    )  # fmt: skip
    work = STEPS_A_FLOW_AND_GROUP * plan.transfer_count * flows.groups
    return at_speed(kernel_lists.schedule, work)(urgency, jobs, link_count)


def list_schedules(flows: Flows, guard_s: float = 0.0) -> list[Float64]:
    """float64[flows] each, the starts by every rule; links rest for ``guard_s`` seconds after each flow."""
    return [run(flows, urgencies(flows, rule), flows.seconds, guard_s) for rule in RULES]
