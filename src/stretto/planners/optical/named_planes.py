"""The model of the SWOT paper, equations (1) to (11), as a mixed-integer program over named planes.

For each step i and plane j: d_ij bytes, u_ij whether it carries, r_ij whether it turns in between,
h_ijc whether it then holds matching c, p_ij when its last activity so far ends; T_i the end of step
i. In the paper's numbering, with what differs:

    sum_j d_ij = m_i                                             (1)
    p_ij >= p_i-1,j + R r_ij + d_ij / B + L u_ij                 (2), (4), (5), (8), (9): one after the other
    d_ij <= m_i u_ij                                             (3)
    sum_c h_ijc = 1,  u_ij <= h_i,j,cfg(i)                       its matching is a state of each plane ...
    r_ij >= h_ijc - h_i-1,j,c                                    (6), (7): ... and changes only by a turn
    p_ij >= T_i-1 + d_ij / B + L u_ij - M (1 - u_ij)             (11): the barrier
    T_i >= p_ij - M (1 - u_ij),  T_i >= T_i-1;  min T_n          (10)

The paper's s_ij compares the matchings of neighbouring steps, not what the plane holds; with h a
plane may also turn ahead, and bypass steps. M is the time of a schedule at hand, so it is as small
as it can be. Planes need not be alike.
"""

from __future__ import annotations

import numpy as np

from ...model.arrays import Float64, Int64
from ...schedule.effort import Budget
from ...solvers import INFINITY, Model
from .flow_program import CERTAIN, Answer, solve_within
from .instance import FREE, Instance, completion
from .polish import polish


def solve_by_names(
    instance: Instance, share: Float64, budget: Budget | None = None, gap: float = 1e-7, solver: str = "highs"
) -> Answer:
    """The best schedule within the budget, and its bound.

    Args:
        share: a schedule to begin from; the program allows better ones alone.
        budget: in units of solvers' effort.
        gap: relative gap at which to stop.
    """
    given_s = completion(instance, share)
    model, bytes_of = _program(instance, given_s)
    solution = solve_within(budget, model, solver=solver, gap=gap)
    if solution.x is not None:
        other = solution.x[bytes_of] * instance.volume[:, None]
        other[other < 1e-6 * instance.volume[:, None]] = 0.0
        other *= (instance.volume / other.sum(1))[:, None]
        share = min(share, polish(instance, other), key=lambda s: completion(instance, s))
    unit, beaten = given_s / instance.steps, given_s * (1 - CERTAIN)
    bound = beaten if solution.status == "infeasible" else min(solution.bound * unit, beaten)
    return Answer(share, min(max(bound, 0.0), completion(instance, share)))


def _program(instance: Instance, given_s: float) -> tuple[Model, Int64]:
    """The program, times in ``given_s / steps``, and the columns of d as shares of each step's volume."""
    n, k = instance.steps, instance.planes
    unit = given_s / n
    kinds = np.unique(np.concatenate((instance.matching, instance.initial)))
    kinds = kinds[kinds != FREE]
    needed = np.searchsorted(kinds, instance.matching)
    model, most = Model(), n * (1 - CERTAIN)
    step, plane = (a.ravel() for a in np.meshgrid(np.arange(n), np.arange(k), indexing="ij"))
    cell = np.arange(n * k)

    def grid(upper: float, integer: bool = False) -> Int64:
        return model.columns(n * k, 0.0, upper, integer=integer).reshape(n, k)

    part, last = grid(1.0), grid(most)
    serves, turns = grid(1.0, integer=True), grid(1.0, integer=True)
    holds = model.columns(n * k * len(kinds), 0, 1, integer=True).reshape(n, k, len(kinds))
    end = model.columns(n, 0.0, most, cost=np.arange(n) == n - 1)
    latency, turn = instance.latency_s[plane] / unit, instance.turn_s[plane] / unit
    whole = instance.volume[step] / instance.bandwidth[plane] / unit

    model.rows(n, 1.0, 1.0, (step, part.ravel(), 1.0))
    model.rows(n * k, -INFINITY, 0.0, (cell, part.ravel(), 1.0), (cell, serves.ravel(), -1.0))
    later = step > 0
    one_after_another = [
        (cell, last.ravel(), 1.0), (cell, turns.ravel(), -turn), (cell, part.ravel(), -whole),
        (cell, serves.ravel(), -latency), (cell[later], last[step[later] - 1, plane[later]], -1.0),
    ]  # fmt: skip
    model.rows(n * k, 0.0, INFINITY, *one_after_another)
    model.rows(
        n * k, -most, INFINITY,
        (cell, last.ravel(), 1.0), (cell, part.ravel(), -whole), (cell, serves.ravel(), -latency - most),
        (cell[later], end[step[later] - 1], -1.0),
    )  # fmt: skip
    model.rows(
        n * k, -most, INFINITY, (cell, end[step], 1.0), (cell, last.ravel(), -1.0), (cell, serves.ravel(), -most)
    )
    model.rows(n - 1, 0.0, INFINITY, (np.arange(n - 1), end[1:], 1.0), (np.arange(n - 1), end[:-1], -1.0))
    model.rows(n * k, 1.0, 1.0, (np.repeat(cell, len(kinds)), holds.ravel(), 1.0))
    model.rows(n * k, 0.0, INFINITY, (cell, holds[step, plane, needed[step]], 1.0), (cell, serves.ravel(), -1.0))
    for c in range(len(kinds)):
        rows = np.arange((n - 1) * k)
        model.rows(
            len(rows), 0.0, INFINITY,
            (rows, turns[1:].ravel(), 1.0),
            (rows, holds[1:, :, c].ravel(), -1.0), (rows, holds[:-1, :, c].ravel(), 1.0),
        )  # fmt: skip
        fixed = np.flatnonzero(instance.initial != FREE)
        held = (instance.initial[fixed] == kinds[c]).astype(np.float64)
        rows = np.arange(len(fixed))
        model.rows(len(fixed), -held, INFINITY, (rows, turns[0, fixed], 1.0), (rows, holds[0, fixed, c], -1.0))
    _in_order(model, instance, serves)
    return model, part


def _in_order(model: Model, instance: Instance, serves: Int64) -> None:
    """Planes that are alike may be named so that, of two neighbours, the first carries step 1 if the second does."""
    columns = (instance.bandwidth, instance.latency_s, instance.turn_s, instance.initial)
    same = np.flatnonzero(np.all([c[1:] == c[:-1] for c in columns], axis=0))
    rows = np.arange(len(same))
    model.rows(len(same), 0.0, INFINITY, (rows, serves[0, same], 1.0), (rows, serves[0, same + 1], -1.0))
