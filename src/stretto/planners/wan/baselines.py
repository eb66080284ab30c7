"""The baselines of the WAN paper (section IV-C), and what TCP does by itself.

All but ``tcp-fair`` divide links once and for all. With ``reading=work-conserving`` active flows share what the others
leave idle.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...model.arrays import Float64
from ...model.plan import Plan
from .. import Request
from .flows import READING, Flows, flow_refiner, flows_of, with_rates

PAPER = "Wang, Craps, Li, section IV-C"

FULL_TOLERANCE = 1e-12
"""Part of a link's bandwidth below which what is left of it is rounding."""


@flow_refiner("out-of-order", PAPER, (READING,))
def out_of_order(plan: Plan, request: Request, *, reading: str = "reserved") -> Plan:
    """Each link divided equally among all flows that ever use it."""
    flows = flows_of(plan)
    users = np.bincount(flows.link, minlength=len(flows.width))
    rate = flows.least(flows.width[flows.link] / users[flows.link])
    # each flow keeps its share, as if it were a group of its own
    return with_rates(plan, range(plan.transfer_count), rate, reading)


@flow_refiner("equal-alloc", PAPER, (READING,))
def equal_alloc(plan: Plan, request: Request, *, reading: str = "reserved") -> Plan:
    """Each link divided equally among the flow groups that ever use it."""
    flows = flows_of(plan)
    return with_rates(plan, flows.group, flows.proportional(np.ones(flows.groups)), reading)


@flow_refiner("data-aware", PAPER, (READING,))
def data_aware(plan: Plan, request: Request, *, reading: str = "reserved") -> Plan:
    """Each link divided among the flow groups that ever use it by their bytes."""
    flows = flows_of(plan)
    volume = np.bincount(flows.group, weights=flows.size).astype(np.float64)
    return with_rates(plan, flows.group, flows.proportional(volume), reading)


@flow_refiner("barrier-aware", "Chen, Li, Li, IC2E 2016; as a baseline Wang, Craps, Li, section IV-C", (READING,))
def barrier_aware(plan: Plan, request: Request, *, reading: str = "reserved") -> Plan:
    """Max-min fair progress of collectives, all flows of one ending together."""
    flows = flows_of(plan)
    return with_rates(plan, range(plan.transfer_count), _equal_progress(flows), reading)


@flow_refiner("tcp-fair", "max-min fairness, what TCP aims at")
def tcp_fair(plan: Plan, request: Request) -> Plan:
    """Max-min fair shares among the active flows, as networks give without a plan."""
    n = plan.transfer_count
    return replace(plan, sharing="fair", weight=np.ones(n), start_s=None, finish_s=None, rate=None)


def _equal_progress(flows: Flows) -> Float64:
    """float64[flows], rates at which all flows of a collective would end together if all were active.

    Progressive filling: the part of its bytes that a collective moves in a second rises alike for all collectives until
    a link is full, which stops the collectives on it.
    """
    load = np.zeros((flows.collectives, len(flows.width)))
    np.add.at(load, (flows.flow_collective[flows.owner], flows.link), flows.size[flows.owner])
    left = flows.width.copy()
    progress = np.zeros(flows.collectives)
    rising = np.ones(flows.collectives, dtype=np.bool_)
    while rising.any():
        total = load[rising].sum(axis=0)
        used = total > 0
        step = (left[used] / total[used]).min()
        progress[rising] += step
        left = np.maximum(left - step * total, 0.0)
        full = used & (left <= FULL_TOLERANCE * flows.width)
        rising &= ~(load[:, full] > 0).any(axis=1)
    rate: Float64 = flows.size * progress[flows.flow_collective]
    return rate
