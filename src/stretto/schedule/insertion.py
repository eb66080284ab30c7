"""Plans of several collectives put into one: transfer by transfer, each into the first gap that its links have.

The collectives come in an order. The first keeps the times that its plan has alone. A transfer of a later one starts
once what it waits for has come and all links of its route have room for it, beside all that was placed before. So no
collective delays those earlier in the order, and it fills what they leave idle.

No collective ends later than if it began when all before it have ended. For its transfers are placed in the order of
the starts that they have alone. While none of them starts later than that, no more is in use at the moment at which the
next one would have started.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64, Int64, Ragged
from ..model.collective import Workload
from ..model.messages import apart
from ..model.plan import Plan, make_plan
from ..model.topology import ROUTER, Topology
from ..simulate import delays_of, simulate
from . import kernel_insertion
from .effort import Budget
from .kernel_insertion import Calendars, Transfers
from .moments import lags_s, settled

HOP_STEPS = 1.5
"""Steps (:mod:`.effort`) that placing a transfer takes for each link of its route."""

MOST_MOVED = 10_000
"""Transfers up to which a plan's transfers are moved into gaps: more take minutes where thousands share links at low
rates."""

LEAST_GAIN = 1e-4
"""Share of the completion that this must gain."""

KERNEL_STEPS = 60.0
"""Steps of the kernel's inner loops for each link of each route."""


@dataclass(frozen=True, eq=False)
class Placing:
    """Timed plans of single collectives over links, to be put into one plan.

    Attributes:
        plan: all transfers, collective after collective, with the times that they have alone, as if each collective
            began at 0.
        of: int64[transfers], the collective of each transfer.
    """

    plan: Plan
    of: Int64

    @classmethod
    def of_plans(cls, topology: Topology, workload: Workload, plans: Sequence[Plan]) -> Placing:
        """Plans for the collectives of a workload, each made for its collective alone, starting at 0."""
        timed = [timed_plan(replace(apart(plan), topology=topology)) for plan in plans]
        chunked = [
            replace(p.workload.collectives[0], start_s=c.start_s, weight=c.weight)
            for p, c in zip(timed, workload.collectives, strict=True)
        ]
        counts = np.array([p.transfer_count for p in timed])
        first = np.cumsum(counts) - counts
        joined = Workload(tuple(chunked))
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(p, name) for p in timed]) for name in ("src", "op", "start_s", "finish_s")
        }
        lists: dict[str, Any] = {
            name: Ragged.concatenate([getattr(p, name) for p in timed]) for name in ("dst", "route")
        }
        waits = [p.depends.with_values(p.depends.values + n) for p, n in zip(timed, first, strict=True)]
        if any(p.other_src is not None for p in timed):
            lists["other_src"] = Ragged.concatenate([p.other_src or Ragged.empty(p.transfer_count) for p in timed])
        if any(p.forwards is not None for p in timed):
            none = [np.zeros(p.transfer_count, dtype=np.int8) for p in timed]
            columns["forwards"] = np.concatenate(
                [n if p.forwards is None else p.forwards for n, p in zip(none, timed, strict=True)]
            )
        chunk = np.concatenate([p.chunk + base for p, base in zip(timed, joined.chunk_base, strict=False)])
        plan = make_plan(
            topology, joined, "timed", chunk=chunk, depends=Ragged.concatenate(waits), **columns, **lists
        )  # fmt: skip
        return cls(plan, np.arange(len(timed)).repeat(counts))

    @cached_property
    def transfers(self) -> Transfers:
        """The transfers as the kernel reads them."""
        plan, t = self.plan, self.plan.topology
        seconds = self.seconds
        hop_s, receiver_s = delays_of(plan)
        owners, links = plan.route.owners, plan.route.values
        size = plan.size_bytes[owners] + t.message_s[links] * t.bandwidth[links]
        rate = np.minimum(size / seconds[owners], t.bandwidth[links])
        waiting, awaited = plan.depends.owners, plan.depends.values.astype(np.int64)
        same = plan.chunk[waiting] == plan.chunk[awaited]
        return Transfers(
            seconds=seconds, release_s=plan.workload.chunk_start_s[plan.chunk], route_offsets=plan.route.offsets,
            links=links.astype(np.int64), delay_s=hop_s, rate=rate, depend_offsets=plan.depends.offsets,
            depends=awaited, lag_s=lags_s(plan, receiver_s),
            streams=same & (t.forwarding[plan.src[waiting]] == ROUTER),
        )  # fmt: skip

    @cached_property
    def seconds(self) -> Float64:
        """float64[transfers], how long each takes."""
        assert self.plan.start_s is not None and self.plan.finish_s is not None, "timed"
        seconds: Float64 = self.plan.finish_s - self.plan.start_s
        return seconds

    @cached_property
    def sequence(self) -> Int64:
        """int64[transfers], their order by the starts that they have alone, each after those that it waits for."""
        assert self.plan.start_s is not None, "timed"
        work = KERNEL_STEPS * len(self.of)
        moments = at_speed(kernel_insertion.moments, work)
        return np.argsort(
            moments(self.plan.start_s, self.plan.depends.offsets, self.transfers.depends), kind="stable"
        )  # fmt: skip

    @cached_property
    def rows(self) -> list[Int64]:
        """For each collective its transfers in :attr:`sequence`."""
        order = self.sequence
        return [order[self.of[order] == job] for job in range(len(self.plan.workload.collectives))]

    @cached_property
    def alone_s(self) -> Float64:
        """float64[collectives], the completion of each alone."""
        return self._ends_s(self._alone_start_s)

    @cached_property
    def _alone_start_s(self) -> Float64:
        assert self.plan.start_s is not None, "timed"
        return self.plan.start_s

    @property
    def steps(self) -> float:
        """Steps that placing all transfers takes."""
        return HOP_STEPS * len(self.plan.route.values)

    def in_order(self, jobs: Iterable[int]) -> Float64:
        """float64[transfers], starts where collectives are placed in this order."""
        start = np.zeros(len(self.of))
        calendars = self._calendars()
        for job in jobs:
            self._place(self.rows[job], calendars, 0.0, start)
        return start

    def after(self, start: Float64, now: float, jobs: Iterable[int]) -> Float64:
        """The same from a moment on; what has started before, as ``start`` says, stays."""
        begun = start < now
        calendars = self._calendars()
        placed = start.copy()
        rows = self.sequence[begun[self.sequence]]
        width = self.plan.topology.bandwidth
        at_speed(kernel_insertion.use, KERNEL_STEPS * len(rows))(rows, self.transfers, width, calendars[0], placed)
        for job in jobs:
            rows = self.rows[job]
            self._place(rows[~begun[rows]], calendars, now, placed)
        return placed

    def one_by_one(self, jobs: Iterable[int]) -> Float64:
        """float64[transfers], starts where each collective begins when the one before it has ended."""
        start, now = np.zeros(len(self.of)), 0.0
        for job in jobs:
            now = max(now, self.plan.workload.collectives[job].start_s)
            start[self.rows[job]] = self._alone_start_s[self.rows[job]] + now
            now += float(self.alone_s[job])
        return start

    def completions_s(self, start: Float64) -> Float64:
        """float64[collectives], from each start until the last rank has what it needs."""
        took: Float64 = self._ends_s(start) - np.array([c.start_s for c in self.plan.workload.collectives])
        return took

    def with_starts(self, start: Float64) -> Plan:
        """The plan of all collectives with these starts."""
        return settled(self.plan, start, self.seconds)

    def _ends_s(self, start: Float64) -> Float64:
        """float64[collectives], when the last wanted byte of each arrives."""
        ends = np.zeros(len(self.plan.workload.collectives))
        owners = self.plan.dst.owners
        arrival = (start + self.seconds)[owners] + self._receiver_s
        np.maximum.at(ends, self.of[owners], arrival)
        return ends

    @cached_property
    def _receiver_s(self) -> Float64:
        return delays_of(self.plan).receiver_s

    def _calendars(self) -> tuple[Calendars, Calendars]:
        """What is in use of each link, nothing at first, and room for as much."""
        links = self.plan.topology.link_count
        room = links + 2 * len(self.plan.route.values)
        none = np.full(room, -1, dtype=np.int64)
        base, work = (
            Calendars(
                np.zeros(room), np.zeros(room), none.copy(), none.copy(), np.arange(links), np.array([links])
            )
            for _ in range(2)
        )  # fmt: skip
        return base, work

    def _place(self, rows: Int64, calendars: tuple[Calendars, Calendars], now: float, start: Float64) -> None:
        work = KERNEL_STEPS * len(rows) * len(self.plan.route.values) / max(1, len(self.of))
        place = at_speed(kernel_insertion.place, work)
        place(rows, self.transfers, self.plan.topology.bandwidth, *calendars, now, start)


def in_gaps(plan: Plan, budget: Budget) -> Plan:
    """A plan over links whose messages carry one chunk each, with times, and each transfer in the first gap of its
    links, if it then ends sooner.

    Plans in which routes have shares of the links that they have in common leave gaps, where a route carries nothing
    for a while. Plans of more than ``MOST_MOVED`` transfers stay as they are: their gaps are short.
    """
    if plan.message is not None or plan.transfer_count > MOST_MOVED:
        return plan
    placing = Placing.of_plans(plan.topology, plan.workload, [plan])
    if placing.steps > budget.left:
        return plan
    budget.charge(placing.steps)
    start = placing.in_order([0])
    if placing.completions_s(start)[0] >= (1 - LEAST_GAIN) * placing.alone_s[0]:
        return plan
    return replace(placing.with_starts(start), meta=plan.meta)


def timed_plan(plan: Plan) -> Plan:
    """The plan with the times that the simulator finds, if it has none."""
    if plan.sharing == "timed":
        return plan
    line = simulate(plan)
    return replace(plan, sharing="timed", start_s=line.start_s, finish_s=line.finish_s)
