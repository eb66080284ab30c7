"""CP-SAT of OR-tools, for models whose columns and coefficients are all integer."""

from __future__ import annotations

import math

import numpy as np

from ..model.arrays import Float64
from ..model.errors import InputError
from ..model.extras import require
from . import Built, Limits, Progress, Solution

_WIDE = 1 << 40


def run(model: Built, limits: Limits, start: Float64 | None, progress: Progress | None) -> Solution:
    """See :func:`stretto.solvers.solve`."""
    require("solvers", "CP-SAT", "ortools")
    from ortools.sat.python import cp_model

    if not model.integer.all() or any((v != np.round(v)).any() for v in (model.value, model.cost)):
        raise InputError("CP-SAT takes integer columns and coefficients only; use highs", "solver")
    program = cp_model.CpModel()
    proto = program.proto
    low, high = _whole(model.lower, math.ceil), _whole(model.upper, math.floor)
    for a, b in zip(low, high, strict=True):
        proto.variables.add().domain.extend([a, b])
    starts, index, value = model.starts.tolist(), model.index.tolist(), model.value.astype(np.int64).tolist()
    row_low, row_high = _whole(model.row_lower, math.ceil), _whole(model.row_upper, math.floor)
    for i, (a, b) in enumerate(zip(row_low, row_high, strict=True)):
        row = proto.constraints.add().linear
        row.vars.extend(index[starts[i] : starts[i + 1]])
        row.coeffs.extend(value[starts[i] : starts[i + 1]])
        row.domain.extend([a, b])
    priced = np.flatnonzero(model.cost)
    if len(priced):
        proto.objective.vars.extend(priced.tolist())
        proto.objective.coeffs.extend(model.cost[priced].astype(np.int64).tolist())
    if start is not None:
        proto.solution_hint.vars.extend(range(len(start)))
        proto.solution_hint.values.extend(np.round(start).astype(np.int64).tolist())
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = 1
    parameters.catch_sigint_signal = False  # else Ctrl-C would give the plan found so far, as if it were the answer
    parameters.random_seed = limits.seed
    parameters.relative_gap_limit = limits.gap
    parameters.stop_after_first_solution = limits.first or not len(priced)
    if limits.time_limit_s is not None:
        parameters.max_time_in_seconds = max(limits.time_limit_s, 0.0)
    if limits.effort is not None:
        parameters.max_deterministic_time = limits.effort
    watch = None
    if progress is not None:
        report = progress

        class Watch(cp_model.CpSolverSolutionCallback):
            def on_solution_callback(self) -> None:
                report(self.best_objective_bound, self.objective_value)

        watch = Watch()
    code = solver.solve(program, watch)
    names = {cp_model.OPTIMAL: "optimal", cp_model.FEASIBLE: "feasible", cp_model.INFEASIBLE: "infeasible"}
    state = names.get(code, "unknown")  # type: ignore[call-overload]
    x = np.array(solver.response_proto.solution, dtype=np.float64) if state in ("optimal", "feasible") else None
    objective = float(model.cost @ x) if x is not None else None
    bound = float(solver.best_objective_bound) if len(priced) else 0.0
    effort = float(solver.response_proto.deterministic_time)
    return Solution(state, x, objective, bound, effort)


def _whole(values: Float64, toward: object) -> list[int]:
    """Bounds as integers, the infinite ones wide, fractions rounded into the interval."""
    rounded = np.ceil(values - 1e-9) if toward is math.ceil else np.floor(values + 1e-9)
    return [int(v) for v in np.clip(rounded, -_WIDE, _WIDE)]
