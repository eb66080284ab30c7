"""A request to TE-CCL, in epochs, and the solves that it takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...model.collective import Workload
from ...model.errors import Infeasible
from ...model.plan import Plan
from ...model.topology import Topology
from ...solvers import Model, Solution, solve
from .. import Progress, run_planner
from .horizon import hops
from .model import Epochs, in_epochs, initial

EFFORT = 20.0
"""CP-SAT's units of work on one horizon before ``solver=auto`` turns to HiGHS on models of at most
``SMALL`` columns; larger ones stay with CP-SAT."""
SMALL = 20_000


@dataclass
class Job:
    """A request in epochs, with what has been tried so far."""

    topology: Topology
    workload: Workload
    seconds: float
    seed: int
    deadline: float
    progress: Progress | None
    switch_copy: bool
    solver: str
    gap: float
    attempts: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = initial(self.topology, self.workload, self.seconds)
        lists = self.workload.chunk_wanted
        self.wanted = np.zeros_like(self.state.held)
        self.wanted[lists.owners, lists.values] = True
        self.wanted &= ~self.state.held

    def epochs(self, seconds: float | None = None) -> Epochs:
        return in_epochs(self.topology, float(self.workload.chunk_bytes.max()), seconds or self.seconds)

    @property
    def left_s(self) -> float:
        return self.deadline - time.monotonic()

    def solve(self, model: Model, horizon: int, *, first: bool, start: NDArray[np.float64] | None = None) -> Solution:
        """Solve, by ``solver=auto`` CP-SAT and then HiGHS, and note it among the attempts."""
        order: list[tuple[str, float | None]] = [(self.solver, None)]
        if self.solver == "auto":
            small = model.column_count <= SMALL
            order = [("cp-sat", EFFORT), ("highs", None)] if small else [("cp-sat", None)]
            order = order if model.all_integer else [("highs", None)]
        for name, effort in order:
            found = solve(
                model, solver=name, time_limit_s=self.left_s, gap=self.gap, first=first, start=start,
                seed=self.seed, effort=effort,
            )  # fmt: skip
            self.note(horizon, found)
            if found.status != "unknown" or self.left_s <= 0:
                break
        return found

    def note(self, horizon: int, found: Solution) -> None:
        self.attempts.append(
            {"epochs": horizon, "status": found.status, "solver": found.solver, "columns": found.columns,
             "rows": found.rows, "cpu_s": found.cpu_s, "gap": found.gap}
        )  # fmt: skip
        if self.progress is not None:
            tried = len(self.attempts)
            self.progress(tried, tried + 1, f"{horizon} epochs: {found.status}")

    def heuristic(self) -> Plan:
        """A plan that is at hand: MTEGCCA's, or shortest paths where that does not serve."""
        kinds = {c.kind for c in self.workload.collectives}
        name = "mtegcca" if kinds <= {"allgather", "broadcast", "multicast"} else "shortest-path"
        net = self.topology
        if not self.switch_copy:
            net = replace(net, replicates=np.zeros_like(net.replicates))
        return run_planner(name, net, self.workload, seed=self.seed)

    def search_horizon(self, meets: Callable[[float, int], bool]) -> int:
        """A number of epochs that should do, as the public code finds it.

        The horizon is 3 x the most hops between two nodes, and what is searched, by bisection in at
        most 11 solves, is the total time in which so many epochs do; then that time is counted in
        epochs of the length asked for.

        Args:
            meets: ``(epoch seconds, horizon) -> bool``, solves.
        """
        coarse = 3 * hops(self.topology)
        low, high, met = 0.0, coarse * self.seconds, False
        for _ in range(11):
            middle = (low + high) / 2 if met else high
            if meets(middle / coarse, coarse):
                met, high = True, middle
            elif met:
                low = middle
            else:
                low, high = high, high * 2
            if self.left_s <= 0 or (met and high - low < 0.05 * high):
                break
        if not met:
            raise Infeasible("no horizon was found; raise --time-limit, or try --option epochs=from-heuristic")
        return math.ceil(high / self.seconds - 1e-9)
