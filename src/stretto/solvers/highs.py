"""HiGHS, for linear and mixed-integer programs."""

from __future__ import annotations

import math
from typing import Any

import highspy
import numpy as np

from ..model.arrays import Bool, Float64, Int64
from . import INTERIOR_ENTRIES_A_UNIT, Built, Limits, Model, Progress, Solution

SEARCHES_FOR_INCUMBENTS = (
    "mip_heuristic_run_rins",
    "mip_heuristic_run_rens",
    "mip_heuristic_run_root_reduced_cost",
)
"""Options of HiGHS: heuristics that each solve a smaller program."""

NODE_ENTRIES_A_UNIT = 5e5
"""Nodes of branch and bound times entries of the matrix in a unit of effort. On the big-M programs of
:mod:`stretto.solvers.disjunctive` a unit is about a second of CPU, from 120 to 400 columns."""

ITERATION_ENTRIES_A_UNIT = 1e8
"""Simplex iterations times entries of the matrix in a unit of effort: about a second of CPU on TE-CCL's programs."""

LARGEST_LIMIT = 2**31 - 1
"""The largest value that HiGHS takes for a counted limit."""


def run(model: Built, limits: Limits, start: Float64 | None, progress: Progress | None) -> Solution:
    """See :func:`stretto.solvers.solve`."""
    lp = _program(model)
    mixed = bool(model.integer.any())
    if mixed:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[i] for i in model.integer.tolist()]
    h = highspy.Highs()
    options: dict[str, Any] = {
        "output_flag": False, "threads": 1, "parallel": "off", "random_seed": limits.seed,
        "mip_rel_gap": limits.gap, "mip_abs_gap": 1e-6,
    }  # fmt: skip
    if limits.time_limit_s is not None:
        options["time_limit"] = max(limits.time_limit_s, 0.0)
    # what is counted, and how many of these are in a unit of effort
    counted, limit, a_unit = "simplex_iteration_count", "simplex_iteration_limit", ITERATION_ENTRIES_A_UNIT
    if mixed:
        counted, limit, a_unit = "mip_node_count", "mip_max_nodes", NODE_ENTRIES_A_UNIT
    elif limits.interior:
        counted, limit, a_unit = "ipm_iteration_count", "ipm_iteration_limit", INTERIOR_ENTRIES_A_UNIT
        options |= {"solver": "ipm", "run_crossover": "off"}
    counts_a_unit = a_unit / max(len(model.value), 1)
    if limits.effort is not None:
        options[limit] = int(min(max(limits.effort * counts_a_unit, 1), LARGEST_LIMIT))
    if limits.prove:
        options |= dict.fromkeys(SEARCHES_FOR_INCUMBENTS, False)
    if limits.first:
        options["mip_max_improving_sols"] = 1
    _load(h, lp, options)
    if start is not None and mixed:
        point = highspy.HighsSolution()
        point.col_value = start
        h.setSolution(point)
    if progress is not None and mixed:
        h.cbMipInterrupt += lambda e: progress(
            e.data_out.mip_dual_bound, e.data_out.mip_primal_bound if e.data_out.mip_primal_bound < 1e30 else None
        )
    h.run()
    info, status = h.getInfo(), h.getModelStatus()
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    statuses = highspy.HighsModelStatus
    if status == statuses.kInfeasible or (status == statuses.kUnboundedOrInfeasible and not feasible):
        state = "infeasible"
    elif status in (statuses.kOptimal, statuses.kModelEmpty):
        state, feasible = "optimal", True
    else:
        state = "feasible" if feasible else "unknown"
    objective = float(info.objective_function_value) if feasible else None
    bound = float(info.mip_dual_bound)
    if not mixed:
        bound = float(info.objective_function_value) if state == "optimal" else -np.inf
    x = np.array(h.getSolution().col_value) if feasible else None
    effort = max(getattr(info, counted), 0) / counts_a_unit
    return Solution(state, x, objective, bound, effort)


MOST_ITERATIONS = 2**31 - 1
"""HiGHS's own limit."""


PRIMAL = 4
"""HiGHS's number of the primal simplex method."""


class Growing:
    """A linear program to which rows and columns are added: each solution begins from the last basis."""

    def __init__(self, model: Model, *, by_columns: bool = False) -> None:
        """Args:
        by_columns: whether mostly columns are added: the last basis stays feasible, from which the primal simplex
            method goes on in a third of the time of the dual one.
        """
        self._highs = highspy.Highs()
        options: dict[str, Any] = {"output_flag": False, "threads": 1, "parallel": "off", "presolve": "off"}
        if by_columns:
            options["simplex_strategy"] = PRIMAL
        _load(self._highs, _program(model.built()), options)
        self._whole = True

    def add(self, rows: Model) -> None:
        """Append the rows of a model of the same columns."""
        b = rows.built()
        starts, index = b.starts[:-1].astype(np.int32), b.index.astype(np.int32)
        status = self._highs.addRows(len(starts), b.row_lower, b.row_upper, len(index), starts, index, b.value)
        self._whole &= status != highspy.HighsStatus.kError

    def add_columns(self, cost: Float64, entries: tuple[Int64, Int64, Float64]) -> None:
        """Append columns that are not negative.

        Args:
            cost: float64[columns].
            entries: the new column, in ascending order, the row and the value of each.
        """
        column, row, value = entries
        starts = np.searchsorted(column, np.arange(len(cost))).astype(np.int32)
        lower, upper = np.zeros(len(cost)), np.full(len(cost), np.inf)
        status = self._highs.addCols(
            len(cost), cost, lower, upper, len(row), starts, row.astype(np.int32), value.astype(np.float64)
        )
        self._whole &= status != highspy.HighsStatus.kError

    def keep(self, columns: Int64) -> None:
        """Leave out all columns but these. The last basis stays if all of its columns do."""
        gone = np.setdiff1d(np.arange(self._highs.getNumCol()), columns).astype(np.int32)
        self._whole &= self._highs.deleteCols(len(gone), gone) != highspy.HighsStatus.kError

    @property
    def basic(self) -> tuple[Bool, Bool]:
        """Which columns and which rows are in the last basis; the others are at their lower limits."""
        basis, inside = self._highs.getBasis(), highspy.HighsBasisStatus.kBasic
        columns, rows = (np.array([s == inside for s in each]) for each in (basis.col_status, basis.row_status))
        return columns, rows

    def start(self, columns: Bool, rows: Bool) -> None:
        """Begin the next solution with these in the basis; from scratch if they are none."""
        basis, statuses = highspy.HighsBasis(), (highspy.HighsBasisStatus.kLower, highspy.HighsBasisStatus.kBasic)
        basis.col_status, basis.row_status = ([statuses[is_in] for is_in in each.tolist()] for each in (columns, rows))
        basis.valid = True
        self._highs.setBasis(basis)

    @property
    def duals(self) -> Float64:
        """float64[rows], what the last optimum would grow by for each unit by which a row asks for more."""
        return np.array(self._highs.getSolution().row_dual)

    @property
    def size(self) -> int:
        """Rows and columns."""
        return int(self._highs.getNumRow() + self._highs.getNumCol())

    @property
    def entries(self) -> int:
        """Entries of the matrix that are not 0."""
        return int(self._highs.getNumNz())

    @property
    def iterations(self) -> int:
        """Simplex iterations of the last solution."""
        return max(int(self._highs.getInfo().simplex_iteration_count), 0)

    def solve(self, most_iterations: float = math.inf) -> Float64 | None:
        """float64[columns], an optimum; None if HiGHS finds none within these iterations, or refused some rows."""
        self._highs.setOptionValue("simplex_iteration_limit", int(min(most_iterations, MOST_ITERATIONS)))
        self._highs.run()
        optimal = self._highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return np.array(self._highs.getSolution().col_value) if optimal and self._whole else None


def _program(model: Built) -> highspy.HighsLp:
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(model.cost), len(model.row_lower)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = model.cost, model.lower, model.upper
    lp.row_lower_, lp.row_upper_ = model.row_lower, model.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = model.starts.astype(np.int32)
    lp.a_matrix_.index_ = model.index.astype(np.int32)
    lp.a_matrix_.value_ = model.value
    return lp


def _load(highs: highspy.Highs, program: highspy.HighsLp, options: dict[str, Any]) -> None:
    # HiGHS refuses a number of threads that differs from that of its first run in the process
    highspy.Highs.resetGlobalScheduler(True)
    for name, value in options.items():
        highs.setOptionValue(name, value)
    if highs.passModel(program) == highspy.HighsStatus.kError:
        raise AssertionError("HiGHS refused the model")
