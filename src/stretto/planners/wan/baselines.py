"""What others do: the baselines of the WAN paper (section IV-C), and what TCP does by itself.

All but ``tcp-fair`` divide links once and for all. ``reading=work-conserving`` lets those that are
active share what the others leave idle.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...model.plan import Plan
from .. import Progress, over_links, refiner
from .flows import KINDS, READING, Flows, flows_of, with_rates

Float64 = NDArray[np.float64]

PAPER = "Wang, Craps, Li, section IV-C"
TOPOLOGIES = "any without planes"


@refiner(
    name="out-of-order", collectives=KINDS, topologies=TOPOLOGIES, paper=PAPER, alone=("ring",),
    options=(READING,), serves=over_links,
)  # fmt: skip
def out_of_order(
    plan: Plan, *, seed: int = 0, time_limit_s: float | None = None, progress: Progress | None = None,
    reading: str = "reserved",
) -> Plan:  # fmt: skip
    """Each link divided equally among all flows that ever use it."""
    flows = flows_of(plan)
    crowd = np.bincount(flows.route.values, minlength=len(flows.width))
    rate = flows.least((flows.width / np.maximum(crowd, 1))[flows.route.values])
    # each flow keeps its share as if it were a group of its own
    return with_rates(plan, range(plan.transfer_count), rate, reading)


@refiner(
    name="equal-alloc", collectives=KINDS, topologies=TOPOLOGIES, paper=PAPER, alone=("ring",),
    options=(READING,), serves=over_links,
)  # fmt: skip
def equal_alloc(
    plan: Plan, *, seed: int = 0, time_limit_s: float | None = None, progress: Progress | None = None,
    reading: str = "reserved",
) -> Plan:  # fmt: skip
    """Each link divided equally among the flow groups that ever use it."""
    flows = flows_of(plan)
    return with_rates(plan, flows.group, flows.proportional(np.ones(flows.groups)), reading)


@refiner(
    name="data-aware", collectives=KINDS, topologies=TOPOLOGIES, paper=PAPER, alone=("ring",),
    options=(READING,), serves=over_links,
)  # fmt: skip
def data_aware(
    plan: Plan, *, seed: int = 0, time_limit_s: float | None = None, progress: Progress | None = None,
    reading: str = "reserved",
) -> Plan:  # fmt: skip
    """Each link divided among the flow groups that ever use it by their bytes."""
    flows = flows_of(plan)
    volume = np.bincount(flows.group, weights=flows.size).astype(np.float64)
    return with_rates(plan, flows.group, flows.proportional(volume), reading)


@refiner(
    name="barrier-aware",
    collectives=KINDS,
    topologies=TOPOLOGIES,
    paper="Chen, Li, Li, IC2E 2016; as a baseline Wang, Craps, Li, section IV-C",
    alone=("ring",),
    options=(READING,),
    serves=over_links,
)
def barrier_aware(
    plan: Plan, *, seed: int = 0, time_limit_s: float | None = None, progress: Progress | None = None,
    reading: str = "reserved",
) -> Plan:  # fmt: skip
    """Max-min fair progress of collectives, all flows of one ending together."""
    flows = flows_of(plan)
    return with_rates(plan, range(plan.transfer_count), _equal_progress(flows), reading)


def _equal_progress(flows: Flows) -> Float64:
    """float64[flows]: rates by which a collective's flows, were all active, would end at one barrier.

    Progressive filling: the part of a collective's bytes that moves per second rises alike for
    all collectives until a link is full, which stops those on it.
    """
    owners, links = flows.route.owners, flows.route.values
    k = flows.collective[flows.group]
    load = np.zeros((flows.collectives, len(flows.width)))
    np.add.at(load, (k[owners], links), flows.size[owners])
    left = flows.width.copy()
    progress = np.zeros(flows.collectives)
    rising = np.ones(flows.collectives, dtype=np.bool_)
    while rising.any():
        total = load[rising].sum(axis=0)
        used = total > 0
        step = (left[used] / total[used]).min()
        progress[rising] += step
        left = np.maximum(left - step * total, 0.0)
        full = used & (left <= 1e-12 * flows.width)
        rising &= ~(load[:, full] > 0).any(axis=1)
    rate: Float64 = flows.size * progress[k]
    return rate


@refiner(
    name="tcp-fair",
    collectives=KINDS,
    topologies=TOPOLOGIES,
    paper="max-min fairness, what TCP aims at",
    alone=("ring",),
    serves=over_links,
)
def tcp_fair(
    plan: Plan, *, seed: int = 0, time_limit_s: float | None = None, progress: Progress | None = None,
) -> Plan:  # fmt: skip
    """Max-min fair shares among the flows that are active, as networks do untold."""
    n = plan.transfer_count
    return replace(plan, sharing="fair", weight=np.ones(n), start_s=None, finish_s=None, rate=None)
