"""What the simulator says happened: when each transfer began, ended and arrived."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import fsum

import numpy as np

from .arrays import Float64, Int64
from .plan import Plan
from .units import format_time


@dataclass(frozen=True, eq=False)
class Timeline:
    """The course of a plan.

    Attributes:
        plan: the plan that was run.
        start_s, finish_s: float64[transfers], when the transmission began and ended at its source.
        arrival_s: float64[len(plan.dst.values)], when all bytes had arrived, for each receiver.
        hop_offset_s: float64[len(plan.route.values)], how much later than its source each link of a route carries the
            bytes.
        completions_s: float64[collectives], seconds from a collective's start until its last rank has all that it
        needs. turn_start_s: float64[turns], when each turn of an optical plane began.
        turn_finish_s: float64[turns], when it ended, if that was measured; by default after the plane's time.
    """

    plan: Plan
    start_s: Float64
    finish_s: Float64
    arrival_s: Float64
    hop_offset_s: Float64
    completions_s: Float64
    turn_start_s: Float64
    turn_finish_s: Float64 | None = None

    def __repr__(self) -> str:
        busiest = ""
        if self.plan.topology.link_count and self.link_use.any():
            link = int(self.link_use.argmax())
            name, percent = self.plan.topology.link_name(link), 100 * self.link_use[link]
            busiest = f", busiest link {name} ({percent:.0f} % of what it could carry)"
        return f"<Timeline of {self.plan.title}\n completion {format_time(self.completion_s)}{busiest}>"

    @property
    def completion_s(self) -> float:
        """When the last rank of the last collective has all that it needs, seconds from 0."""
        starts = [c.start_s for c in self.plan.workload.collectives]
        return float(max(s + c for s, c in zip(starts, self.completions_s, strict=True)))

    @property
    def mean_completion_s(self) -> float:
        """The mean of the completions of collectives, by their weights, seconds."""
        return self.plan.workload.mean_s(self.completions_s)

    @cached_property
    def turn_end_s(self) -> Float64:
        """float64[turns], when each turn ended."""
        return self.turn_start_s + self.plan.turn_seconds if self.turn_finish_s is None else self.turn_finish_s

    @cached_property
    def link_bytes(self) -> Int64:
        """int64[links], the bytes that crossed each link."""
        plan = self.plan
        sizes = np.repeat(plan.size_bytes, plan.route.lengths)
        counts = np.bincount(plan.route.values, weights=sizes, minlength=plan.topology.link_count)
        return counts.astype(np.int64)

    @property
    def cost_usd(self) -> float:
        """What the bytes that crossed links cost by the links' prices, US dollars; the same to the last bit on every
        machine, which a dot product is not."""
        return fsum(self.link_bytes * self.plan.topology.usd_per_byte)

    @cached_property
    def link_use(self) -> Float64:
        """float64[links], the bytes that crossed each link over those that it could have carried until completion."""
        if self.completion_s <= 0:
            return np.zeros(self.plan.topology.link_count)
        net = self.plan.topology
        carried = net.changes.carried_bytes(net.bandwidth, self.completion_s)
        return np.divide(self.link_bytes, carried, out=np.zeros(net.link_count), where=carried > 0)
