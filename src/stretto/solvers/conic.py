"""Convex programs on Clarabel, from arrays.

``min c.x  subject to  rows.x <= limits`` and cones ``x[i] * x[j] >= 1`` (both positive), which is
what constraints on sums of reciprocals come to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..model.errors import Infeasible

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Solution:
    """Attributes: x, float64[variables]; value and bound, the objective and its dual bound."""

    x: Float64
    value: float
    bound: float


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
        rows: (row, column, value) of the entries of the matrix.
        limits: float64[rows].
        reciprocal: the pairs i, j with x[i] * x[j] >= 1.
    Raises:
        Infeasible: Clarabel found no solution within the limit (or one that breaks a cone); says
            how it ended.
    """
    import clarabel
    from scipy.sparse import csc_matrix

    row, column, value = rows
    n, m, (i, j) = len(cost), len(limits), reciprocal
    cones = len(i)
    # x_i x_j >= 1 is |(2, x_i - x_j)| <= x_i + x_j; rows read b - A x in the cone
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
    found = clarabel.DefaultSolver(csc_matrix((n, n)), cost, matrix, b, kinds, settings).solve()
    x = np.array(found.x)
    if str(found.status) not in ("Solved", "AlmostSolved") or (x[i] <= 0).any() or (x[i] * x[j] < 1 - 1e-4).any():
        raise Infeasible(f"the convex program ended as {found.status}")
    return Solution(x, float(found.obj_val), float(found.obj_val_dual))
