"""A request to TE-CCL in epochs, the solves that it has taken, and a start from another planner's plan."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...model.arrays import Float64
from ...schedule.asap import Send
from ...solvers import Model, Solution, solve
from .. import Request, plan_by
from .epochs import Epochs, in_epochs, initial_state
from .horizon import schedule_of

MOST_UNITS = 600.0
"""Units of effort that all solves of a request may take together, see :func:`stretto.solvers.solve`."""

CP_SAT_UNITS = 20.0
"""Units of effort that CP-SAT may take for one horizon before ``solver=auto`` turns to HiGHS on a small model."""

SMALL = 20_000
"""Columns of the largest model that ``solver=auto`` gives to HiGHS, too; larger ones stay with CP-SAT."""


@dataclass
class Problem:
    """A request in epochs, with what has been tried so far."""

    request: Request  # with a budget of its own in units of solvers' effort
    seconds: float  # the length of an epoch
    switch_copy: bool  # whether a switch may send one chunk over several links
    solver: str
    gap: float  # relative gap of the paper's objective at which a solver stops
    start: str = ""  # the planner whose plan a search may start from; "": see ``heuristic``
    attempts: list[dict[str, Any]] = field(default_factory=list)  # each solve so far, as the plan's meta tells it

    def __post_init__(self) -> None:
        self.topology, self.workload, self.budget = self.request.topology, self.request.workload, self.request.budget
        self.state = initial_state(self.topology, self.workload, self.seconds)
        lists = self.workload.chunk_wanted
        self.wanted = np.zeros_like(self.state.held)
        self.wanted[lists.owners, lists.values] = True
        self.wanted &= ~self.state.held

    def epochs(self, seconds: float | None = None) -> Epochs:
        """The topology in epochs of ``seconds``, by default in the problem's own."""
        return in_epochs(self.topology, float(self.workload.chunk_bytes.max()), seconds or self.seconds)

    def solve(self, model: Model, horizon: int, *, first: bool, start: Float64 | None = None) -> Solution:
        """Solve, by ``solver=auto`` with CP-SAT and then HiGHS, and note it among the attempts."""
        order = [(self.solver, MOST_UNITS)]
        if self.solver == "auto":
            small = model.column_count <= SMALL
            order = [("cp-sat", CP_SAT_UNITS), ("highs", MOST_UNITS)] if small else [("cp-sat", MOST_UNITS)]
            order = order if model.all_integer else [("highs", MOST_UNITS)]
        for name, units in order:
            effort = min(units, self.budget.units("units"))
            self.request.tell_solving(f"{horizon} epochs, a program of {model.column_count} columns", effort)
            solution = solve(
                model, solver=name, effort=effort, gap=self.gap, first=first,
                time_limit_s=self.budget.stop.limit_s, start=start, seed=self.request.seed,
            )  # fmt: skip
            self.budget.spend(units=solution.effort)
            self.attempts.append({"epochs": horizon, **solution.facts})
            if solution.status != "unknown" or self.budget.exhausted:
                break
        return solution

    def heuristic(self) -> list[Send]:
        """A plan in epochs: by ``start``, or MTEGCCA's, or shortest paths for kinds that MTEGCCA does not serve."""
        copied = all(c.traits.copies and not c.reduces for c in self.workload.collectives)
        net = self.topology
        if not self.switch_copy:
            net = replace(net, replicates=np.zeros_like(net.replicates))
        planner = self.start or ("mtegcca" if copied else "shortest-path")
        whole = {"parts": 1} if planner == "mtegcca" else {}  # the program has the chunks of the request
        plan = plan_by(planner, replace(self.request, topology=net), **whole)
        return schedule_of(plan, self.epochs())
