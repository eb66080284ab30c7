"""List schedules of flows by rules: the greedy schedulers of the WAN paper (section III-E) and ours.

Among ready flows whose links are idle, the most urgent starts: the shortest, that with the most
bytes downstream, that with the longest chain after it, or collective after collective.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...kernels import at_speed
from ...model.plan import Plan
from . import kernel_lists
from .bound import heads_and_tails
from .flows import Flows

Float64 = NDArray[np.float64]

RULES = ("shortest", "downstream", "chain", "collective")


def urgencies(plan: Plan, flows: Flows, lag: Float64, rule: str) -> Float64:
    """float64[flows], the highest goes first."""
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
    ordered: Float64 = chain - 10 * chain.max() * place[collective]
    return ordered


def downstream(plan: Plan, flows: Flows) -> Float64:
    """float64[flows], the bytes of all flows that wait for each in its chain, its own included."""
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
        apart: every collective has the links for itself.
    """
    dependents = plan.dependents
    count = len(flows.width)
    links = flows.route.values.astype(np.int64)
    if apart:
        links = links + count * flows.flow_collective[flows.route.owners]
        count *= flows.collectives
    kernel_steps = 3.0 * plan.transfer_count * flows.groups
    starts: Float64 = at_speed(kernel_lists.schedule, kernel_steps)(
        urgency, seconds, lag, plan.workload.chunk_start_s[plan.chunk],
        flows.route.offsets, links,
        dependents.offsets, dependents.values.astype(np.int64), plan.depends.lengths.astype(np.int64),
        count,
    )  # fmt: skip
    return starts


def list_schedule(plan: Plan, flows: Flows, lag: Float64) -> Iterator[Float64]:
    """The starts by every rule."""
    for rule in RULES:
        yield run(plan, flows, lag, urgencies(plan, flows, lag, rule), flows.seconds)
