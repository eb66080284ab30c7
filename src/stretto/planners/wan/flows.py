"""A plan with fixed routes as flows in flow groups, which the refiners of the WAN paper work on.

A *flow* is a transfer. A *flow group* is a chain of flows in which each flow waits for the one before it, so that at
most one flow of a group is active. Symbols are those of the paper, section III-A.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from ...model.arrays import Float64, Int32, Int64, Ragged
from ...model.plan import Plan
from .. import Option, over_links, refiner

KINDS = ("allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "reduce", "scatter", "gather", "multicast")

READING = Option(
    "reading",
    str,
    "reserved",
    "reserved: a group keeps its share, used or not; work-conserving: active flows share what is idle",
    ("reserved", "work-conserving"),
)


def flow_refiner(name: str, paper: str, options: Iterable[Option] = ()) -> Callable[..., Callable[..., Plan]]:
    """Register a refiner of flows over fixed routes; alone it follows the planner ``ring``."""
    return refiner(
        name=name, collectives=KINDS, topologies="any without planes", paper=paper, alone=("ring",), options=options,
        serves=over_links,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Flows:
    """The flows of a plan, numbered as its transfers.

    Attributes:
        size: float64[flows], F, bytes.
        group: int64[flows], the flow group of each, (k, n) in the paper, numbered from 0.
        collective: int64[groups], the collective k of each group.
        route: ragged, the links of each flow.
        width: float64[links], C_e, bytes/s.
        seconds: float64[flows], dur: the time of each flow alone, at the slowest link of its route.
        pair_link, pair_group: int64[pairs], each link with each group that ever uses it, G_e.
        pair: int64[hops], the pair of each hop of the routes.
    """

    size: Float64
    group: Int64
    collective: Int64
    route: Ragged
    width: Float64
    seconds: Float64
    pair: Int64
    pair_link: Int64
    pair_group: Int64

    @property
    def groups(self) -> int:
        return len(self.collective)

    @property
    def collectives(self) -> int:
        return int(self.collective.max()) + 1

    @property
    def flow_collective(self) -> Int64:
        """int64[flows], the collective of each flow."""
        return self.collective[self.group]

    def least(self, per_hop: Float64) -> Float64:
        """float64[flows], the smallest value on each flow's route."""
        return self.route.reduced(np.minimum, per_hop)

    def proportional(self, weight: Float64) -> Float64:
        """float64[flows], the rate of each flow where every link is divided by its groups' weights (eq. 11)."""
        total = np.bincount(self.pair_link, weights=weight[self.pair_group], minlength=len(self.width))
        share = self.width[self.pair_link] * weight[self.pair_group] / total[self.pair_link]
        return self.least(share[self.pair])

    def surrogate(self, rate: Float64) -> float:
        """The mean over collectives of their slowest group's time at constant rates (eq. 10), seconds."""
        took = np.bincount(self.group, weights=self.size / rate, minlength=self.groups)
        slowest = np.zeros(self.collectives)
        np.maximum.at(slowest, self.collective, took)
        return float(slowest.mean())


def flows_of(plan: Plan) -> Flows:
    """The flows of a plan. Groups are those of the plan if these are chains, and else chains of dependencies."""
    label = plan.group if plan.group is not None and _are_chains(plan, plan.group) else _chains(plan)
    group = np.unique(label, return_inverse=True)[1].astype(np.int64)
    collective = np.zeros(int(group.max()) + 1, dtype=np.int64)
    collective[group] = plan.workload.chunk_collective[plan.chunk]
    owners, links = plan.route.owners, plan.route.values.astype(np.int64)
    pairs, pair = np.unique(links * len(collective) + group[owners], return_inverse=True)
    width = plan.topology.bandwidth
    size = plan.size_bytes.astype(np.float64)
    return Flows(
        size=size,
        group=group,
        collective=collective,
        route=plan.route,
        width=width,
        seconds=size / plan.topology.route_bandwidth(plan.route),
        pair=pair.astype(np.int64),
        pair_link=pairs // len(collective),
        pair_group=pairs % len(collective),
    )


def _are_chains(plan: Plan, group: Int32) -> bool:
    """Whether in every group each transfer waits for the one before it."""
    order = np.argsort(group, kind="stable").astype(np.int64)
    follows = np.flatnonzero(group[order][1:] == group[order][:-1])
    n = plan.transfer_count
    waits = plan.depends.owners * n + plan.depends.values
    return bool(np.isin(order[1:][follows] * n + order[:-1][follows], waits).all())


def _chains(plan: Plan) -> Int32:
    """int32[transfers], a group for each transfer: that of a dependency of its collective which no other transfer
    continues yet, or else a new one.
    """
    group = np.arange(plan.transfer_count, dtype=np.int32)
    continued = np.zeros(plan.transfer_count, dtype=np.bool_)
    collective = plan.workload.chunk_collective[plan.chunk]
    for k in range(plan.transfer_count):
        for d in map(int, plan.depends[k]):
            if not continued[d] and collective[d] == collective[k]:
                continued[d] = True
                group[k] = group[d]
                break
    return group


def with_rates(plan: Plan, group: Iterable[int], rate: Float64, reading: str) -> Plan:
    """The plan with these rates: reserved, or as weights of max-min sharing.

    Args:
        group: for each transfer the group that reserves its rate.
        rate: float64[transfers], bytes/s.
        reading: see :data:`READING`.
    """
    numbers = np.asarray(group, dtype=np.int32)
    bare = replace(plan, start_s=None, finish_s=None, rate=None, weight=None, group=numbers)
    if reading == "reserved":
        return replace(bare, sharing="rates", rate=rate)
    # max-min sharing weighted by the rates gives every flow at least its rate
    return replace(bare, sharing="fair", weight=rate)


def with_times(plan: Plan, start_s: Float64, seconds: Float64) -> Plan:
    """The timed plan with these starts and durations, float64[transfers]; its transfers are sorted by start."""
    order = np.lexsort((np.arange(len(start_s)), start_s))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    depends = plan.depends.take(order)
    return replace(
        plan,
        sharing="timed",
        chunk=plan.chunk[order],
        src=plan.src[order],
        op=plan.op[order],
        dst=plan.dst.take(order),
        route=plan.route.take(order),
        depends=depends.with_values(place[depends.values]),
        group=None if plan.group is None else plan.group[order],
        start_s=start_s[order],
        finish_s=(start_s + seconds)[order],
        rate=None,
        weight=None,
    )


def with_meta(plan: Plan, **facts: float | bool) -> Plan:
    """The plan with more facts in its ``meta``."""
    return replace(plan, meta={**plan.meta, **facts})
