"""A plan between sites in smaller parts, and when each of its transfers goes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...model.arrays import Float64
from ...model.collective import Workload
from ...model.plan import Plan, make_plan
from ...simulate import simulate


@dataclass(frozen=True, eq=False)
class Crossing:
    """A plan between sites.

    Attributes:
        plan: over links, with one source a transfer.
        start_s, seconds: float64[transfers], when each transfer starts and how long it takes.
        come_s: float64[transfers], how long after its end the last receiver has it.
    """

    plan: Plan
    start_s: Float64
    seconds: Float64
    come_s: Float64

    @classmethod
    def of(cls, plan: Plan) -> Crossing:
        line = simulate(plan)
        come_s = plan.dst.reduced(np.maximum, line.arrival_s) - line.finish_s
        return cls(plan, line.start_s, line.finish_s - line.start_s, come_s)

    def in_parts(self, parts: int) -> Crossing:
        """The plan with every chunk cut into parts, each of which goes as the chunk did."""
        plan, (c,) = self.plan, self.plan.workload.collectives
        if parts == 1:
            return self
        each, part = (of.ravel() for of in np.indices((plan.transfer_count, parts)))
        chunk, place = (of.ravel() for of in np.indices((c.chunk_count, parts)))
        begin, end = (c.chunk_bytes[chunk] * (place + k) // parts for k in (0, 1))
        fine = replace(
            c, chunk_piece=c.chunk_piece[chunk], chunk_offset=c.chunk_offset[chunk] + begin, chunk_bytes=end - begin
        )
        waits = plan.depends.take(each)
        made = make_plan(
            plan.topology, Workload((fine,)), "ready-order",
            chunk=plan.chunk[each].astype(np.int64) * parts + part, src=plan.src[each], op=plan.op[each],
            dst=plan.dst.take(each), route=plan.route.take(each),
            depends=waits.with_values(waits.values * parts + part[waits.owners]),
            forwards=None if plan.forwards is None else plan.forwards[each],
        )  # fmt: skip
        seconds, come_s = (np.repeat(column, parts) for column in (self.seconds / parts, self.come_s))
        return Crossing(made, self._starts_in_parts(parts), seconds, come_s)

    def _starts_in_parts(self, parts: int) -> Float64:
        """When parts start if those of a transfer follow each other, and wait for links as long as the whole did."""
        plan, each_s, behind = self.plan, self.seconds / parts, np.arange(parts)
        start_s, last_s = np.zeros((plan.transfer_count, parts)), self.start_s + self.seconds + self.come_s
        for k in range(plan.transfer_count):
            waits = plan.depends[k]
            ready_s = (start_s[waits] + (each_s + self.come_s)[waits, None]).max(axis=0, initial=0.0)
            ready_s += self.start_s[k] - last_s[waits].max(initial=0.0)
            start_s[k] = np.maximum.accumulate(ready_s - behind * each_s[k]) + behind * each_s[k]
        return start_s.ravel()
