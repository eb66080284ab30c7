"""CBC, for linear and mixed-integer programs, as OR-tools includes it; the authors of SWOT use it."""

from __future__ import annotations

import numpy as np

from ..model.arrays import Float64
from ..model.extras import require
from . import Built, Limits, Progress, Solution


def run(model: Built, limits: Limits, start: Float64 | None, progress: Progress | None) -> Solution:
    """See :func:`stretto.solvers.solve`. CBC reports no progress and has no counted limit."""
    require("solvers", "CBC", "ortools")
    from ortools.linear_solver import pywraplp

    solver = pywraplp.Solver.CreateSolver("CBC")
    kinds = (solver.NumVar, solver.IntVar)
    columns = [
        kinds[integer](low, high, "")
        for low, high, integer in zip(model.lower.tolist(), model.upper.tolist(), model.integer.tolist(), strict=True)
    ]
    for low, high, begin, end in zip(
        model.row_lower.tolist(), model.row_upper.tolist(), model.starts[:-1].tolist(), model.starts[1:].tolist(),
        strict=True,
    ):  # fmt: skip
        row = solver.Constraint(low, high, "")
        for index, value in zip(model.index[begin:end].tolist(), model.value[begin:end].tolist(), strict=True):
            row.SetCoefficient(columns[index], value)
    objective = solver.Objective()
    for column in np.flatnonzero(model.cost).tolist():
        objective.SetCoefficient(columns[column], float(model.cost[column]))
    objective.SetMinimization()
    if limits.time_limit_s is not None:
        # zero would be no limit
        solver.SetTimeLimit(max(int(limits.time_limit_s * 1000), 1))
    if start is not None:
        solver.SetHint(columns, start.tolist())
    parameters = pywraplp.MPSolverParameters()
    parameters.SetDoubleParam(parameters.RELATIVE_MIP_GAP, limits.gap)
    states = {solver.OPTIMAL: "optimal", solver.FEASIBLE: "feasible", solver.INFEASIBLE: "infeasible"}
    state = states.get(solver.Solve(parameters), "unknown")
    if state not in ("optimal", "feasible"):
        return Solution(state, None, None, np.inf if state == "infeasible" else -np.inf)
    x, value = np.array([column.solution_value() for column in columns]), objective.Value()
    return Solution(state, x, value, float(objective.BestBound() if model.integer.any() else value))
