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
from .flow_program import CERTAIN, Answer, answer_of, solve_within
from .instance import FREE, Instance, completion


def solve_by_names(
    instance: Instance, share: Float64, budget: Budget | None = None, gap: float = 1e-7, solver: str = "highs"
) -> Answer:
    """The best schedule within the budget and its bound; the program allows only schedules better than ``share``."""
    given_s = completion(instance, share)
    model, bytes_of = _program(instance, given_s)
    solution = solve_within(budget, model, solver=solver, gap=gap)
    other = None
    if solution.x is not None:
        other = solution.x[bytes_of] * instance.volume[:, None]
        other[other < 1e-6 * instance.volume[:, None]] = 0.0
        other *= (instance.volume / other.sum(1))[:, None]
    return answer_of(instance, share, solution, other)


def _program(instance: Instance, given_s: float) -> tuple[Model, Int64]:
    """The program, times in ``given_s / steps``, and the columns of d as shares of each step's volume."""
    n, k = instance.steps, instance.planes
    unit = given_s / n
    kinds = instance.kinds
    needed = np.searchsorted(kinds, instance.matching)
    model, most = Model(), n * (1 - CERTAIN)
    step, plane = np.repeat(np.arange(n), k), np.tile(np.arange(k), n)
    # one column for each step and plane, in this order
    part, last = model.columns(n * k, 0.0, 1.0), model.columns(n * k, 0.0, most)
    serves, turns = model.columns(n * k, integer=True), model.columns(n * k, integer=True)
    holds = model.columns(n * k * len(kinds), integer=True).reshape(n * k, len(kinds))
    end = model.columns(n, 0.0, most, cost=np.arange(n) == n - 1)
    latency, turn = instance.latency_s[plane] / unit, instance.turn_s[plane] / unit
    whole = instance.volume[step] / instance.bandwidth[plane] / unit
    last_before, end_before = np.append(np.full(k, -1), last[:-k]), np.append(np.full(k, -1), end[step[:-k]])

    model.rows(n, 1.0, 1.0, (part.reshape(n, k), 1.0))
    model.rows(n * k, -INFINITY, 0.0, (part, 1.0), (serves, -1.0))
    model.rows(
        n * k, 0.0, INFINITY,
        (last, 1.0), (turns, -turn), (part, -whole), (serves, -latency), (last_before, -1.0),
    )  # fmt: skip
    model.rows(n * k, -most, INFINITY, (last, 1.0), (part, -whole), (serves, -latency - most), (end_before, -1.0))
    model.rows(n * k, -most, INFINITY, (end[step], 1.0), (last, -1.0), (serves, -most))
    model.rows(n - 1, 0.0, INFINITY, (end[1:], 1.0), (end[:-1], -1.0))
    model.rows(n * k, 1.0, 1.0, (holds, 1.0))
    model.rows(n * k, 0.0, INFINITY, (holds[np.arange(n * k), needed[step]], 1.0), (serves, -1.0))
    fixed = np.flatnonzero(instance.initial != FREE)
    for c, kind in enumerate(kinds):
        model.rows((n - 1) * k, 0.0, INFINITY, (turns[k:], 1.0), (holds[k:, c], -1.0), (holds[:-k, c], 1.0))
        held = (instance.initial[fixed] == kind).astype(np.float64)
        model.rows(len(fixed), -held, INFINITY, (turns[fixed], 1.0), (holds[fixed, c], -1.0))
    _in_order(model, instance, serves)
    return model, part.reshape(n, k)


def _in_order(model: Model, instance: Instance, serves: Int64) -> None:
    """Planes that are alike may be named so that, of two neighbours, the first carries step 1 if the second does."""
    columns = (instance.bandwidth, instance.latency_s, instance.turn_s, instance.initial)
    same = np.flatnonzero(np.all([c[1:] == c[:-1] for c in columns], axis=0))
    model.rows(len(same), 0.0, INFINITY, (serves[same], 1.0), (serves[same + 1], -1.0))
