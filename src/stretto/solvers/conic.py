"""Convex programs with reciprocals, given as arrays and solved by Clarabel.

``min cost.x  subject to  rows.x <= limits  and  x[i] * x[j] >= 1`` for pairs of positive variables, in which x[j] is at
least the reciprocal of x[i], so a constraint on a sum of reciprocals becomes one on a sum of variables. Clarabel runs
on one thread and stops after a fixed number of iterations; ``time_limit_s`` is a net.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model.arrays import Float64, Int64
from ..model.errors import Infeasible

CONE_TOLERANCE = 1e-4
"""How far below 1 a product x[i] * x[j] may be."""


@dataclass(frozen=True)
class Solution:
    """The answer of Clarabel."""

    x: Float64  # float64[variables]
    value: float  # the objective at ``x``
    bound: float  # the objective of the dual, which no solution is below


def solve(
    cost: Float64,
    rows: tuple[Int64, Int64, Float64],
    limits: Float64,
    reciprocal: tuple[Int64, Int64],
    time_limit_s: float | None = None,
) -> Solution:
    """Solve a linear program with reciprocal cones.

    Args:
        cost: float64[variables].
        rows: row, column and value of each entry of the matrix.
        limits: float64[rows].
        reciprocal: i and j of each pair with x[i] * x[j] >= 1.
        time_limit_s: wall-clock seconds after which Clarabel stops.
    Raises:
        Infeasible: Clarabel found no solution, or one that violates a cone; the message has its status.
    """
    import clarabel
    from scipy.sparse import csc_matrix

    row, column, value = rows
    n, m, (i, j) = len(cost), len(limits), reciprocal
    cones = len(i)
    # x_i x_j >= 1 is |(2, x_i - x_j)| <= x_i + x_j; Clarabel asks that b - A x be in the cone
    base = m + 3 * np.arange(cones)
    one = np.ones(cones)
    matrix = csc_matrix(
        (
            np.concatenate((value, -one, -one, -one, one)),
            (
                np.concatenate((row, base, base, base + 2, base + 2)),
                np.concatenate((column, i, j, i, j)),
            ),
        ),
        shape=(m + 3 * cones, n),
    )
    b = np.concatenate((limits, np.tile([0.0, 2.0, 0.0], cones)))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    if time_limit_s is not None:
        settings.time_limit = time_limit_s
    kinds = [clarabel.NonnegativeConeT(m), *[clarabel.SecondOrderConeT(3)] * cones]
    answer = clarabel.DefaultSolver(csc_matrix((n, n)), cost, matrix, b, kinds, settings).solve()
    x = np.array(answer.x)
    solved = str(answer.status) in ("Solved", "AlmostSolved")
    if not solved or (x[i] <= 0).any() or (x[i] * x[j] < 1 - CONE_TOLERANCE).any():
        raise Infeasible(f"the convex program ended as {answer.status}")
    return Solution(x, float(answer.obj_val), float(answer.obj_val_dual))
