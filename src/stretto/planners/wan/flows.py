"""A plan with fixed routes as flows in flow groups, which the refiners of the WAN paper work on.

A *flow* is a transfer. A *flow group* is a chain of flows in which each flow waits for the one before it, so that at
most one flow of a group is active. Symbols are those of the paper, section III-A.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from ...model.arrays import Float64, Int32, Int64
from ...model.kinds import EVERY_KIND
from ...model.plan import Plan
from ...simulate import Delays, delays_of
from .. import Option, over_links, refiner

READING = Option(
    "reading",
    str,
    "reserved",
    "reserved: a group keeps its share, used or not; work-conserving: active flows share what is idle",
    ("reserved", "work-conserving"),
)


def flow_refiner(name: str, paper: str, options: tuple[Option, ...] = ()) -> Callable[..., Callable[..., Plan]]:
    """Register a refiner of flows over fixed routes; alone it follows the planner ``ring``."""
    return refiner(
        name=name, collectives=EVERY_KIND, topologies="any without planes", paper=paper, alone=("ring",),
        options=options, serves=over_links,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Flows:
    """The flows of a plan, numbered as its transfers, and what follows from the plan alone.

    Attributes:
        group: int64[flows], the flow group of each, (k, n) in the paper, numbered from 0.
        collective: int64[groups], the collective k of each group.
        pair_link, pair_group: int64[pairs], each link with each group that ever uses it, G_e.
        pair: int64[hops], the pair of each hop of the routes.
    """

    plan: Plan
    group: Int64
    collective: Int64
    pair: Int64
    pair_link: Int64
    pair_group: Int64

    @property
    def groups(self) -> int:
        return len(self.collective)

    @property
    def collectives(self) -> int:
        return len(self.start_s)

    @cached_property
    def flow_collective(self) -> Int64:
        """int64[flows], the collective of each flow."""
        return self.collective[self.group]

    @cached_property
    def start_s(self) -> Float64:
        """float64[collectives], when each collective starts."""
        return np.array([c.start_s for c in self.plan.workload.collectives])

    @cached_property
    def release_s(self) -> Float64:
        """float64[flows], when the collective of each starts."""
        return self.plan.workload.chunk_start_s[self.plan.chunk]

    @cached_property
    def size(self) -> Float64:
        """float64[flows], F, bytes."""
        return self.plan.size_bytes.astype(np.float64)

    @property
    def width(self) -> Float64:
        """float64[links], C_e, bytes/s."""
        return self.plan.topology.bandwidth

    @cached_property
    def seconds(self) -> Float64:
        """float64[flows], dur: the time of each flow alone, at the slowest link of its route."""
        return self.size / self.plan.topology.route_bandwidth(self.plan.route)

    @cached_property
    def lag(self) -> Float64:
        """float64[flows], the latency from source to receiver; to the farthest one of a route that branches."""
        return self.plan.dst.reduced(np.maximum, self._receiver_lag)

    @cached_property
    def wait_lag(self) -> Float64:
        """float64[waits], for each entry of ``plan.depends`` the latency until the waiting flow's source knows."""
        depends = self.plan.depends
        return self.lag_between(depends.values, depends.owners)

    def lag_between(self, before: Int32 | Int64, after: Int64 | Int32) -> Float64:
        """float64[pairs], the latency from the source of a flow to that of one which waits for it; to the farthest
        receiver where the one before does not go there.
        """
        dst, nodes = self.plan.dst, self.plan.topology.node_count
        receiver = dst.owners * nodes + dst.values
        order = np.argsort(receiver)
        asked = before * np.int64(nodes) + self.plan.src[after]
        place = order[np.minimum(np.searchsorted(receiver, asked, sorter=order), len(order) - 1)]
        return np.where(receiver[place] == asked, self._receiver_lag[place], self.lag[before])

    @cached_property
    def hop_lag(self) -> Float64:
        """float64[hops], how much later than its source each link of a route carries a flow."""
        return self._delays.hop_s

    @property
    def _receiver_lag(self) -> Float64:
        """float64[receivers], the latency from the source to each receiver."""
        return self._delays.receiver_s

    @cached_property
    def _delays(self) -> Delays:
        return delays_of(self.plan)

    @cached_property
    def owner(self) -> Int64:
        """int64[hops], the flow of each hop."""
        return self.plan.route.owners

    @cached_property
    def link(self) -> Int64:
        """int64[hops], the link of each hop."""
        return self.plan.route.values.astype(np.int64)

    @cached_property
    def hop_seconds(self) -> Float64:
        """float64[hops], the time of the flow on the link alone."""
        took: Float64 = self.size[self.owner] / self.width[self.link]
        return took

    @cached_property
    def head(self) -> Float64:
        """float64[flows], the least seconds from 0 to a flow's first byte."""
        head = self.release_s.copy()
        for k, before in enumerate(self.waits):
            for d, lag in before:
                head[k] = max(head[k], head[d] + self.seconds[d] + lag)
        return head

    @cached_property
    def tail(self) -> Float64:
        """float64[flows], the least seconds from a flow's last byte to the end of its chain."""
        tail = self.lag.copy()
        for k in range(len(tail) - 1, -1, -1):
            for d, lag in self.waits[k]:
                tail[d] = max(tail[d], lag + self.seconds[k] + tail[k])
        return tail

    @property
    def remaining(self) -> Float64:
        """float64[flows], the least seconds from a flow's start to the end of its chain."""
        return self.tail + self.seconds

    @cached_property
    def waits(self) -> list[list[tuple[int, float]]]:
        """For each flow the flows that it waits for, and the latency from each to it."""
        offsets = self.plan.depends.offsets.tolist()
        entries = list(zip(self.plan.depends.values.tolist(), self.wait_lag.tolist(), strict=True))
        return [entries[begin:end] for begin, end in pairwise(offsets)]

    def latest(self, values: Float64) -> Float64:
        """float64[collectives], the largest of the values, float64[flows], of each collective's flows; at least 0."""
        largest = np.zeros(self.collectives)
        np.maximum.at(largest, self.flow_collective, values)
        return largest

    def least(self, per_hop: Float64) -> Float64:
        """float64[flows], the smallest value on each flow's route."""
        return self.plan.route.reduced(np.minimum, per_hop)

    def total_weight(self, weight: Float64) -> Float64:
        """float64[links], the sum of the weights of the groups that use each link; 1 for a link that none uses."""
        total = np.bincount(self.pair_link, weights=weight[self.pair_group], minlength=len(self.width))
        return np.where(total > 0, total, 1.0)

    def proportional(self, weight: Float64) -> Float64:
        """float64[flows], the rate of each flow where every link is divided by its groups' weights (eq. 11)."""
        share = self.width[self.pair_link] * weight[self.pair_group] / self.total_weight(weight)[self.pair_link]
        return self.least(share[self.pair])

    def surrogate(self, rate: Float64) -> float:
        """The mean over collectives of their slowest group's time at constant rates (eq. 10), seconds."""
        took = np.bincount(self.group, weights=self.size / rate)
        return float(self.latest(took[self.group].astype(np.float64)).mean())


def flows_of(plan: Plan) -> Flows:
    """The flows of a plan. Groups are those of the plan if these are chains, and else chains of dependencies."""
    label = plan.group if plan.group is not None and _are_chains(plan, plan.group) else _chains(plan)
    group = np.unique(label, return_inverse=True)[1].astype(np.int64)
    collective = np.zeros(int(group.max()) + 1, dtype=np.int64)
    collective[group] = plan.workload.chunk_collective[plan.chunk]
    pairs, pair = np.unique(
        plan.route.values.astype(np.int64) * len(collective) + group[plan.route.owners], return_inverse=True
    )
    return Flows(plan, group, collective, pair, pairs // len(collective), pairs % len(collective))


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


def with_sharing(
    plan: Plan, sharing: str, group: Iterable[int], *, weight: Float64 | None = None, rate: Float64 | None = None
) -> Plan:  # fmt: skip
    """The plan with these groups and with these weights or rates, float64[transfers], and nothing else that shapes
    time.
    """
    numbers = np.asarray(group, dtype=np.int32)
    return replace(plan, sharing=sharing, group=numbers, weight=weight, rate=rate, start_s=None, finish_s=None)


def with_rates(plan: Plan, group: Iterable[int], rate: Float64, reading: str) -> Plan:
    """The plan with these rates: reserved, or as weights of max-min sharing.

    Args:
        group: for each transfer the group that reserves its rate.
        rate: float64[transfers], bytes/s.
        reading: see :data:`READING`.
    """
    if reading == "reserved":
        return with_sharing(plan, "rates", group, rate=rate)
    # max-min sharing weighted by the rates gives every flow at least its rate
    return with_sharing(plan, "fair", group, weight=rate)


def with_times(plan: Plan, start_s: Float64, seconds: Float64) -> Plan:
    """The timed plan with these starts and durations, float64[transfers]; its transfers are sorted by start."""
    order = np.lexsort((np.arange(len(start_s)), start_s))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    depends = plan.depends.take(order)
    return replace(
        plan, sharing="timed", chunk=plan.chunk[order], src=plan.src[order], op=plan.op[order],
        dst=plan.dst.take(order), route=plan.route.take(order), depends=depends.with_values(place[depends.values]),
        group=None if plan.group is None else plan.group[order], start_s=start_s[order],
        finish_s=(start_s + seconds)[order], rate=None, weight=None,
    )  # fmt: skip


def with_meta(plan: Plan, **facts: float | bool) -> Plan:
    """The plan with more facts in its ``meta``."""
    return replace(plan, meta={**plan.meta, **facts})
