"""TACCL: collectives guided by a communication sketch, in three stages.

Shah, Chidambaram et al., "TACCL: Guiding collective algorithm synthesis using communication
sketches", NSDI 2023, section 4, on open solvers: routing by a relaxed integer program
(:mod:`.taccl_routing`), ordering by a heuristic, contiguity and exact times by a second program
(:mod:`.taccl_schedule`). Sums are TACCL's inversion: ReduceScatter is AllGather backwards, and
AllReduce one after the other.

``reported_s`` in the plan's meta is what TACCL's own model says (alpha occupies a link, a joined
message pays it once). The plan's times are the physics of stretto in TACCL's order.
"""

from __future__ import annotations

import time
from typing import Any

from ...model.collective import Workload
from ...model.errors import Infeasible, InputError
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.asap import Pass
from ...schedule.inversion import Transfers, plan_in_phases, transfers_of
from ...solvers import Model, Solution, solve
from .. import Option, Progress, over_links, register
from .hops import Hops, hops_of
from .routing import Routing
from .schedule import Scheduling, order_sends
from .sketch import Sketch, find_sketch, included

OPTIONS = (
    Option("sketch", str, "auto", f"a sketch file, or none, auto, {', '.join(included())}"),
    Option("slack", float, 2.0, "a chunk's way may cost so many times the cheapest"),
    Option("routing_gap", float, 0.05, "relative gap at which the routing stage stops"),
    Option("solver", str, "highs", "the solver of both programs", ("highs", "gurobi")),
)


@register(
    "taccl",
    collectives=(
        "allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "reduce", "scatter", "gather", "multicast",
    ),
    topologies="any without planes",
    paper="Shah et al., NSDI 2023",
    options=OPTIONS,
    quick={"routing_gap": 0.5},
    serves=over_links,
)  # fmt: skip
def taccl(
    topology: Topology,
    workload: Workload,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
    sketch: str = "auto",
    slack: float = 2.0,
    routing_gap: float = 0.05,
    solver: str = "highs",
) -> Plan:
    """TACCL's three stages: relaxed routing, greedy order, exact times.

    Args:
        time_limit_s: for all solves together; without it, 300 s (TACCL: 1800 s a stage).
        sketch: what to rely on; "auto" takes the included one of the topology's family, if any.
    Returns:
        A timed plan. Its meta has ``reported_s``, ``stages`` (status, gap, CPU seconds of each
        solve) and ``messages`` (sends that were joined with the one before).
    Raises:
        InputError: a sketch that is malformed or does not fit; a slack below 1.
        Infeasible: the sketch or the slack leaves no way, or no routing was found in time.
    """
    if not routing_gap >= 0:
        raise InputError(f"{routing_gap} is no gap; give 0 or more", "--option routing_gap")
    if not slack >= 1:
        raise InputError(f"{slack} is below 1: not even the cheapest way would be left", "--option slack")
    run = _Run(
        find_sketch(sketch, topology), sketch == "auto", slack, routing_gap, solver, seed,
        time.monotonic() + (300.0 if time_limit_s is None else time_limit_s), progress,
    )  # fmt: skip
    plan = plan_in_phases(topology, workload, run.spread)
    plan.meta.update(
        sketch=run.sketch.name, reported_s=run.reported_s, stages=run.stages, messages=run.messages,
        gap=max((s["gap"] or 0.0 for s in run.stages), default=0.0),
    )  # fmt: skip
    return plan


class _Run:
    """One request: the sketch, the limits, and what the stages said."""

    def __init__(
        self, sketch: Sketch, lenient: bool, slack: float, gap: float, solver: str, seed: int, deadline: float,
        progress: Progress | None,
    ) -> None:  # fmt: skip
        self.lenient = lenient
        self.sketch, self.slack, self.gap, self.solver, self.seed = sketch, slack, gap, solver, seed
        self.deadline, self.progress = deadline, progress
        self.stages: list[dict[str, Any]] = []
        self.reported_s, self.messages = 0.0, 0

    def solve(self, stage: str, model: Model, gap: float, share: float, start: Any = None) -> Solution:
        left = max(self.deadline - time.monotonic(), 0.5) * share
        found = solve(model, solver=self.solver, time_limit_s=left, gap=gap, start=start, seed=self.seed)
        self.stages.append(
            {"stage": stage, "status": found.status, "solver": found.solver, "columns": found.columns,
             "rows": found.rows, "cpu_s": found.cpu_s, "gap": found.gap}
        )  # fmt: skip
        if self.progress is not None:
            self.progress(len(self.stages), len(self.stages) + 1, f"{stage}: {found.status}")
        return found

    def spread(self, topology: Topology, workload: Workload, pipes: bool) -> Transfers:
        """Chunks from their holders to all who want them, see :func:`.inversion.plan_in_phases`."""
        sketch = self.sketch.reversed() if pipes else self.sketch
        try:
            hops = hops_of(topology, sketch, pipes)
            routing = Routing(topology, workload, hops, sketch, self.slack)
        except (InputError, Infeasible):
            if not self.lenient or sketch.name == "none":
                raise
            # the family's sketch does not fit this member of it
            self.sketch = sketch = Sketch("none")
            hops = hops_of(topology, sketch, pipes)
            routing = Routing(topology, workload, hops, sketch, self.slack)
        found = self.solve("routing", routing.model, self.gap, 0.7, routing.start())
        if found.x is None:
            raise Infeasible("no routing was found in time; raise --time-limit")
        sends, parent, start = order_sends(workload, hops, routing.chosen(found))
        self._time(workload, hops, sends, parent, start)
        passes = [
            Pass(q, int(hops.src[h]), [int(hops.dst[h])], hops.route[h], parent[k]) for k, (q, h) in enumerate(sends)
        ]
        return transfers_of(topology, workload, passes)

    def _time(
        self, workload: Workload, hops: Hops, sends: list[tuple[int, int]], parent: list[int], start: Any
    ) -> None:
        """Stage 3, for what TACCL reports: the stage's time, or the greedy one where it ran out of time."""
        if not sends:
            return
        greedy = max(
            float(start[k] + hops.latency_s[h] + workload.chunk_bytes[q] / hops.bandwidth[h])
            for k, (q, h) in enumerate(sends)
        )
        scheduling = Scheduling(workload, hops, sends, parent, start)
        found = self.solve("scheduling", scheduling.model, 1e-4, 1.0)
        if found.x is None:
            self.reported_s += greedy
            return
        self.reported_s += min(greedy, float(found.x[scheduling.finish]) * scheduling.scale)
        self.messages += sum(bool(found.x[c] > 0.5) for c in scheduling.joined.values())
