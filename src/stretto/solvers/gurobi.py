"""Gurobi, where the user has it and a licence. Stretto neither needs nor installs it, and does not test it."""

from __future__ import annotations

import numpy as np

from ..model.arrays import Float64
from ..model.errors import InputError
from . import Built, Limits, Progress, Solution


def run(model: Built, limits: Limits, start: Float64 | None, progress: Progress | None) -> Solution:
    """See :func:`stretto.solvers.solve`."""
    try:
        import gurobipy as gp
        from scipy.sparse import csr_matrix
    except ImportError as error:
        raise InputError(f"Gurobi is not installed here ({error.name} is missing); use highs", "solver") from None
    try:
        m = gp.Model()
    except gp.GurobiError as error:
        raise InputError(f"Gurobi does not start: {error}", "solver") from None
    m.Params.OutputFlag = 0
    m.Params.Threads, m.Params.Seed, m.Params.MIPGap = 1, limits.seed, limits.gap
    if limits.time_limit_s is not None:
        m.Params.TimeLimit = max(limits.time_limit_s, 0.0)
    if limits.effort is not None:
        m.Params.WorkLimit = limits.effort
    if limits.first:
        m.Params.SolutionLimit = 1
    kinds = np.where(model.integer, gp.GRB.INTEGER, gp.GRB.CONTINUOUS)
    x = m.addMVar(len(model.cost), lb=model.lower, ub=model.upper, obj=model.cost, vtype=kinds)
    matrix = csr_matrix((model.value, model.index, model.starts), shape=(len(model.row_lower), len(model.cost)))
    for sense, side in ((">", model.row_lower), ("<", model.row_upper)):
        finite = np.flatnonzero(np.isfinite(side))
        if len(finite):
            m.addMConstr(matrix[finite], x, sense, side[finite])
    if start is not None:
        x.Start = start
    m.optimize()
    if m.SolCount:
        state = "optimal" if m.Status == gp.GRB.OPTIMAL else "feasible"
        return Solution(state, np.array(x.X), float(m.ObjVal), float(m.ObjBound), float(m.Work))
    if m.Status in (gp.GRB.INFEASIBLE, gp.GRB.INF_OR_UNBD):
        return Solution("infeasible", None, None, np.inf, float(m.Work))
    return Solution("unknown", None, None, float(m.ObjBound), float(m.Work))
