"""TACCL: collectives guided by a communication sketch, in three stages.

Sums are TACCL's inversion: ReduceScatter is AllGather backwards, AllReduce the two one after the other.

``reported_s`` in the plan's meta is what TACCL's own model says (alpha occupies a link, a joined
message pays it once). The plan's times are the physics of stretto in TACCL's order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...model.arrays import Float64
from ...model.collective import Workload
from ...model.errors import Infeasible, InputError
from ...model.kinds import EVERY_KIND
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.asap import Pass
from ...schedule.inversion import Transfers, plan_in_phases, transfers_of
from ...solvers import Model, Solution, solve
from .. import Option, Request, over_links, register
from .hops import Hops, hops_of
from .routing import Routing
from .schedule import Scheduling, order_sends
from .sketch import Sketch, find_sketch, included

MOST_UNITS = 300.0
"""Units of effort that all solves of a request may take together, see :func:`stretto.solvers.solve`; TACCL gives each
stage 1800 s."""

ROUTING_SHARE = 0.7
"""Share of the units that are left which stage 1 may take; stage 3 may take the rest."""

COSTS = {"ways": 20.0}
"""Steps (:mod:`stretto.schedule.effort`) of a first routing, for each chunk and link."""

TIMES_GAP = 1e-4
"""Relative gap at which stage 3 stops."""

OPTIONS = (
    Option("sketch", str, "auto", f"a sketch file, or none, auto, {', '.join(included())}"),
    Option("slack", float, 2.0, "how many times the cheapest way a chunk's way may cost"),
    Option("routing_gap", float, 0.05, "relative gap at which the routing stage stops"),
    Option("solver", str, "highs", "the solver of both programs", ("highs", "gurobi")),
)


@register(
    "taccl",
    collectives=EVERY_KIND,
    topologies="any without planes",
    paper="Shah et al., NSDI 2023",
    options=OPTIONS,
    quick={"routing_gap": 0.5},
    serves=over_links,
)  # fmt: skip
def taccl(
    request: Request, *, sketch: str = "auto", slack: float = 2.0, routing_gap: float = 0.05, solver: str = "highs"
) -> Plan:
    """TACCL's three stages: relaxed routing, greedy order, exact times.

    Args:
        sketch: what to rely on; "auto" takes the included one of the topology's family, if any.
    Returns:
        A timed plan. Its meta has ``reported_s``, ``stages`` (status, gap, CPU seconds of each
        solve) and ``messages`` (sends that were joined with the one before).
    Raises:
        InputError: a sketch that is malformed or does not fit; a slack below 1.
        Infeasible: the sketch or the slack leaves no way, or the solver gave up without a routing.
    """
    if not routing_gap >= 0:
        raise InputError(f"{routing_gap} is no gap; give 0 or more", "option routing_gap")
    if not slack >= 1:
        raise InputError(f"{slack} is below 1: not even the cheapest way would be left", "option slack")
    stages = _Stages(request, find_sketch(sketch, request.topology), sketch == "auto", slack, routing_gap, solver)
    plan = plan_in_phases(request.topology, request.workload, stages.spread)
    plan.meta.update(
        sketch=stages.sketch.name, reported_s=stages.reported_s, stages=stages.solves, messages=stages.messages,
        gap=max((s["gap"] or 0.0 for s in stages.solves), default=0.0),
    )  # fmt: skip
    return plan


@dataclass
class _Stages:
    """The three stages for each phase of a request, and what they came to."""

    request: Request
    sketch: Sketch
    lenient: bool  # whether to go without the sketch where it does not fit
    slack: float
    gap: float
    solver: str
    solves: list[dict[str, Any]] = field(default_factory=list)  # each solve, as the plan's meta tells it
    reported_s: float = 0.0  # the time of all phases, in TACCL's accounting
    messages: int = 0  # sends that were joined with the one before

    def __post_init__(self) -> None:
        self.budget = self.request.budget.for_solvers(MOST_UNITS)

    def _solve(self, stage: str, model: Model, gap: float, share: float, start: Float64 | None = None) -> Solution:
        """Solve with a share of what is left of the budget."""
        effort = self.budget.share(share).units("units")
        self.request.tell_solving(f"{stage}, a program of {model.column_count} columns", effort)
        solution = solve(
            model, solver=self.solver, effort=effort, gap=gap,
            time_limit_s=self.budget.stop.limit_s, start=start, seed=self.request.seed,
        )  # fmt: skip
        self.budget.spend(units=solution.effort)
        self.solves.append({"stage": stage, **solution.facts})
        return solution

    def spread(self, topology: Topology, workload: Workload, pipes: bool) -> Transfers:
        """Chunks from their holders to all who want them, see :func:`stretto.schedule.inversion.plan_in_phases`."""
        sketch = self.sketch.reversed() if pipes else self.sketch
        ways = float(workload.chunk_count * topology.link_count)
        costs = self.request.budget.with_costs(COSTS)
        costs.require(f"taccl's routing of {workload.title} on {topology.name}", ways=ways)
        try:
            routing = Routing(topology, workload, hops_of(topology, sketch, pipes), sketch, self.slack)
        except (InputError, Infeasible):
            if not self.lenient or sketch.name == "none":
                raise
            # the family's sketch does not fit this member of it
            self.sketch = sketch = Sketch("none")
            routing = Routing(topology, workload, hops_of(topology, sketch, pipes), sketch, self.slack)
        hops = routing.hops
        solution = self._solve("routing", routing.model, self.gap, ROUTING_SHARE, routing.start())
        if solution.x is None:
            raise Infeasible("the solver gave up without a routing; raise the effort or the time limit")
        sends, parent, start_s = order_sends(workload, hops, routing.hops_of_chunks(solution))
        self._time(workload, hops, sends, parent, start_s)
        passes = [
            Pass(q, int(hops.src[h]), [int(hops.dst[h])], hops.route[h].tolist(), after)
            for (q, h), after in zip(sends, parent, strict=True)
        ]
        return transfers_of(topology, workload, passes)

    def _time(
        self, workload: Workload, hops: Hops, sends: list[tuple[int, int]], parent: list[int], start_s: Float64
    ) -> None:
        """Stage 3, for what TACCL reports: the stage's time, or that of stage 2 where the solver gave up."""
        if not sends:
            return
        greedy_s = max(
            float(start_s[k] + hops.latency_s[h] + workload.chunk_bytes[q] / hops.bandwidth[h])
            for k, (q, h) in enumerate(sends)
        )
        scheduling = Scheduling(workload, hops, sends, parent, start_s)
        solution = self._solve("scheduling", scheduling.model, TIMES_GAP, 1.0)
        if solution.x is None:
            self.reported_s += greedy_s
            return
        self.reported_s += min(greedy_s, float(solution.x[scheduling.finish]) * scheduling.scale)
        self.messages += sum(bool(solution.x[c] > 0.5) for c in scheduling.joined.values())
