"""What a run did, by the clocks of its processes: when rows were sent and arrived, when planes turned, who waited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..lower import Program
from ..model.plan import Plan
from ..model.timeline import Timeline


@dataclass
class Trace:
    """When each row was sent or received at this node, seconds from the start of the run.

    Attributes:
        sent_s, gone_s: when the first and the last byte were given to the network.
        coming_s, arrived_s: when the first byte arrived, and when the whole row had. Of turns and barriers: at the
            controller ``sent_s`` is when each began, ``arrived_s`` when it ended; elsewhere ``arrived_s`` is when this
            node learned so.
        dry: of rows that were not whole by then, when all of their bytes that had come were first read, and how many
            bytes that were. Later bytes come as the network gives them; earlier ones may have waited to be read.
        cpu_s: CPU seconds of the thread that ran the program, with what the compiled loop took meanwhile.
    """

    sent_s: dict[int, float] = field(default_factory=dict)
    gone_s: dict[int, float] = field(default_factory=dict)
    coming_s: dict[int, float] = field(default_factory=dict)
    arrived_s: dict[int, float] = field(default_factory=dict)
    dry: dict[int, tuple[float, int]] = field(default_factory=dict)
    cpu_s: float = 0.0

    @property
    def spans_s(self) -> float:
        """Seconds from the first byte that this node sent or got to the last one; 0 if there were none."""
        first = min((*self.sent_s.values(), *self.coming_s.values()), default=0.0)
        return max((*self.gone_s.values(), *self.arrived_s.values()), default=0.0) - first


class Wait(NamedTuple):
    """A transfer that had all but its circuit, from when to when, seconds from the start of the run."""

    row: int
    since_s: float
    until_s: float


def waits_of(program: Program, trace: Trace, pace: float | None) -> list[Wait]:
    """The transfers that one node could have sent earlier, had their circuits been up."""
    steps, plan = program.steps, program.plan
    first, last = plan.transfer_count, plan.transfer_count + plan.turns.count
    circuit_s: dict[int, float] = {}
    rest_s: dict[int, float] = {}
    for (row, _), waiting in steps.wakes.items():
        of = circuit_s if first <= row < last else rest_s
        for k in waiting:
            of[k] = max(of.get(k, 0.0), trace.arrived_s[row])
    waits = []
    for k, until_s in sorted(circuit_s.items()):
        if k in steps.sends:
            planned_s = 0.0 if pace is None else steps.sends[k].start_s * pace
            since_s = max(rest_s.get(k, 0.0), planned_s)
            if until_s > since_s:
                waits.append(Wait(k, since_s, until_s))
    return waits


def off_circuits(plan: Plan, traces: Mapping[int, Trace]) -> list[int]:
    """The transfers of which bytes were on a plane while it turned: sent before their circuit was up, or not arrived
    when the plane turned again; by the clock of one machine."""
    if plan.plane is None or not plan.turns.count:
        return []
    controller, n = traces[plan.topology.node_count], plan.transfer_count
    off = []
    for p in range(len(plan.topology.planes)):
        own = np.flatnonzero(plan.turns.plane == p)
        for k in np.flatnonzero(plan.plane == p).tolist():
            after = int(np.searchsorted(plan.turns.before[own], k, side="right"))
            up_s = controller.arrived_s[n + int(own[after - 1])] if after else 0.0
            down_s = controller.sent_s[n + int(own[after])] if after < len(own) else np.inf
            arrived_s = max(traces[v].arrived_s[k] for v in plan.dst[k].tolist())
            if traces[int(plan.src[k])].sent_s[k] < up_s or arrived_s > down_s:
                off.append(k)
    return sorted(off)


def timeline_of(plan: Plan, traces: Mapping[int, Trace], completion_s: float) -> Timeline:
    """A run as the simulator would say it, with measured times. A transmission ends when its bytes have arrived, less
    the latency of its plane."""
    n = plan.transfer_count
    arrival_s = np.array([traces[v].arrived_s[k] for k in range(n) for v in plan.dst[k].tolist()])
    start_s = np.array([traces[int(v)].sent_s[k] for k, v in enumerate(plan.src)])
    latency_s = np.zeros(n)
    if plan.plane is not None and plan.topology.planes:
        planes_s = np.array([plane.latency_s for plane in plan.topology.planes])
        latency_s = np.where(plan.plane < 0, 0.0, planes_s[plan.plane])
    finish_s = np.maximum(plan.dst.reduced(np.maximum, arrival_s) - latency_s, start_s)
    controller, turns = traces.get(plan.topology.node_count, Trace()), range(n, n + plan.turns.count)
    return Timeline(
        plan, start_s, finish_s, arrival_s, np.zeros(len(plan.route.values)),
        np.array([completion_s - c.start_s for c in plan.workload.collectives]),
        np.array([controller.sent_s[row] for row in turns]), np.array([controller.arrived_s[row] for row in turns]),
    )  # fmt: skip
