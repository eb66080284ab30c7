"""A plan with fixed routes as flows in flow groups: what the refiners of the WAN paper work on.

A *flow* is a transfer, a *flow group* a chain of flows of which each waits for the one before, so
at most one of a group is active. Symbols are those of the paper, section III-A.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...model.arrays import Int32, Int64, Ragged
from ...model.plan import Plan
from .. import Option

Float64 = NDArray[np.float64]

KINDS = ("allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "reduce", "scatter", "gather", "multicast")

READING = Option(
    "reading",
    str,
    "reserved",
    "reserved: a share stays its group's, used or not; work-conserving: what is idle is shared by those active",
    ("reserved", "work-conserving"),
)


@dataclass(frozen=True, eq=False)
class Flows:
    """Flows of a plan, by index of their transfer.

    Attributes:
        size: float64[flows], F, bytes.
        group: int64[flows], (k, n), numbered from 0.
        collective: int64[groups], k.
        route: ragged, the links of each flow.
        width: float64[links], C_e, bytes/s.
        seconds: float64[flows], dur: what it takes alone, at the slowest link of its route.
        pair: int64[hops], for each hop its row in ``pair_link`` and ``pair_group``: the groups
            that ever use a link, G_e.
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

    def least(self, per_hop: Float64) -> Float64:
        """float64[flows], the smallest value on each flow's route."""
        least: Float64 = self.route.reduced(np.minimum, per_hop)
        return least

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
    """The flows and groups of a plan; groups are found where it names none that are chains."""
    named = plan.group if plan.group is not None and _are_chains(plan, plan.group) else chains(plan)
    group = np.unique(named, return_inverse=True)[1].astype(np.int64)
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


def chains(plan: Plan) -> Int32:
    """int32[transfers], a group for each: it joins that of a dependency of its collective which none has joined."""
    group = np.arange(plan.transfer_count, dtype=np.int32)
    joined = np.zeros(plan.transfer_count, dtype=np.bool_)
    collective = plan.workload.chunk_collective[plan.chunk]
    for k in range(plan.transfer_count):
        for d in map(int, plan.depends[k]):
            if not joined[d] and collective[d] == collective[k]:
                joined[d] = True
                group[k] = group[d]
                break
    return group


def with_rates(plan: Plan, group: Iterable[int], rate: Float64, reading: str) -> Plan:
    """The plan at these rates: its own, or as guarantees beyond which what is idle is shared alike."""
    numbers = np.asarray(group, dtype=np.int32)
    bare = replace(plan, start_s=None, finish_s=None, rate=None, weight=None, group=numbers)
    if reading == "reserved":
        return replace(bare, sharing="rates", rate=rate)
    # max-min fairness weighted by the rates gives everyone at least its rate
    return replace(bare, sharing="fair", weight=rate)


def with_times(plan: Plan, start_s: Float64, seconds: Float64) -> Plan:
    """The plan with these starts and durations, its transfers in the order in which they start."""
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
        depends=Ragged(depends.offsets, place[depends.values].astype(np.int32)),
        group=None if plan.group is None else plan.group[order],
        start_s=start_s[order],
        finish_s=(start_s + seconds)[order],
        rate=None,
        weight=None,
    )


def noted(plan: Plan, **facts: float | bool) -> Plan:
    """The plan with facts about how it was made in its ``meta``."""
    return replace(plan, meta={**plan.meta, **facts})
