"""A request to TE-CCL in epochs, the solves that it has taken, and a start from another planner's plan."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...model.arrays import Float64
from ...model.collective import Workload
from ...model.errors import Infeasible
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.effort import Budget
from ...solvers import Model, Solution, solve
from .. import Request, plan_by
from .epochs import Epochs, in_epochs, initial_state
from .horizon import most_hops

MOST_UNITS = 600.0
"""Units of effort that all solves of a request may take together, see :func:`stretto.solvers.solve`."""

CP_SAT_UNITS = 20.0
"""Units of effort that CP-SAT may take for one horizon before ``solver=auto`` turns to HiGHS on a small model."""

SMALL = 20_000
"""Columns of the largest model that ``solver=auto`` gives to HiGHS, too; larger ones stay with CP-SAT."""

COSTS = {"units": 1e6}
"""Steps of effort that a unit of a solver's effort costs, see :mod:`stretto.schedule.effort`."""

MOST_COARSE_SOLVES = 11
"""Solves of the search for a horizon in coarse epochs, as in the public code."""

COARSE_HORIZON = 3
"""Coarse epochs for each hop of the longest shortest path, as in the public code."""

COARSE_GAP = 0.05
"""Relative gap between a total time that does and one that does not at which the coarse search ends."""


@dataclass
class Problem:
    """A request in epochs, with what has been tried so far.

    Attributes:
        request: with a budget of its own in units of solvers' effort, see :func:`budget_of`.
        seconds: the length of an epoch.
        switch_copy: whether a switch may send one chunk over several links.
        gap: relative gap of the paper's objective at which a solver stops.
        attempts: each solve so far, as the plan's meta tells it.
    """

    request: Request
    seconds: float
    switch_copy: bool
    solver: str
    gap: float
    attempts: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = initial_state(self.topology, self.workload, self.seconds)
        lists = self.workload.chunk_wanted
        self.wanted = np.zeros_like(self.state.held)
        self.wanted[lists.owners, lists.values] = True
        self.wanted &= ~self.state.held

    @property
    def topology(self) -> Topology:
        return self.request.topology

    @property
    def workload(self) -> Workload:
        return self.request.workload

    @property
    def budget(self) -> Budget:
        return self.request.budget

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
            solution = solve(
                model, solver=name, effort=min(units, self.budget.units("units")), gap=self.gap, first=first,
                time_limit_s=self.budget.stop.limit_s, start=start, seed=self.request.seed,
            )  # fmt: skip
            self.budget.spend(units=solution.effort)
            self._note(horizon, solution)
            if solution.status != "unknown" or self.budget.exhausted:
                break
        return solution

    def _note(self, horizon: int, solution: Solution) -> None:
        self.attempts.append({"epochs": horizon, **solution.facts})
        tried = len(self.attempts)
        self.request.tell(tried, tried + 1, f"{horizon} epochs: {solution.status}")

    def heuristic_plan(self) -> Plan:
        """MTEGCCA's plan, or shortest paths for kinds that it does not serve."""
        copied = all(c.traits.copies and not c.reduces for c in self.workload.collectives)
        name = "mtegcca" if copied else "shortest-path"
        net = self.topology
        if not self.switch_copy:
            net = replace(net, replicates=np.zeros_like(net.replicates))
        return plan_by(name, replace(self.request, topology=net))

    def search_horizon(self, meets: Callable[[float, int], bool]) -> int:
        """A number of epochs that should do, as the public code finds it.

        The horizon is 3 x the most hops between two nodes, and what is searched, by bisection in at
        most 11 solves, is the total time in which that many epochs do; then that time is counted in
        epochs of the length asked for.

        Args:
            meets: ``(epoch seconds, horizon) -> bool``, solves.
        """
        coarse = COARSE_HORIZON * most_hops(self.topology)
        low, high, met = 0.0, coarse * self.seconds, False
        for _ in range(MOST_COARSE_SOLVES):
            middle = (low + high) / 2 if met else high
            if meets(middle / coarse, coarse):
                met, high = True, middle
            elif met:
                low = middle
            else:
                low, high = high, high * 2
            if self.budget.exhausted or (met and high - low < COARSE_GAP * high):
                break
        if not met:
            raise Infeasible("no horizon was found; try epochs=from-heuristic, more effort, or a longer time limit")
        return math.ceil(high / self.seconds - 1e-9)


def budget_of(request: Request) -> Budget:
    """What is left of a request's budget, at most :data:`MOST_UNITS`, counted in units of solvers' effort."""
    return request.budget.within(MOST_UNITS * COSTS["units"]).with_costs(COSTS)
