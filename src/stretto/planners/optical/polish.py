"""The best shares for given servings: a small linear program.

Once it is fixed which planes carry which steps, and so which turns there are, only times are left
(SWOT's equations with u and r constant). A plane that carries step i and next step l of another
matching gives up ``a`` of its time at the end of i and ``b`` at the beginning of l, and must have
a turn's length in all:

    a + (T_{l-1} - T_i) + b >= turn                                            for each turn
    sum over planes of bandwidth (T_i - T_{i-1} - latency - b - a) >= volume   for each step
    T_i - T_{i-1} - latency - b - a >= 0                                       for each plane and step

and T_n is to be least, T_0 = 0.
"""

from __future__ import annotations

import numpy as np

from ...model.arrays import Float64
from ...solvers import INFINITY, Model, solve
from .instance import FREE, Instance, completion


def polish(instance: Instance, share: Float64) -> Float64:
    """The best schedule in which the same planes carry the same steps; never worse than ``share``."""
    n = instance.steps
    unit = float(max(instance.turn_s.max(), (instance.volume / instance.bandwidth.sum()).max()))
    step, plane = np.nonzero(share > 0)
    order = np.lexsort((step, plane))
    step, plane = step[order], plane[order]
    # for each serving the one before it on the same plane, and whether a turn lies between
    first = np.concatenate(([True], plane[1:] != plane[:-1]))
    before = np.arange(len(step)) - 1
    held = np.where(first, instance.initial[plane], instance.matching[step[before]])
    turns = np.flatnonzero((held != instance.matching[step]) & (held != FREE))
    came_from = np.where(first[turns], -1, step[before[turns]])

    model = Model()
    # the end of each step, and -1 for the time zero before step 0
    end = np.append(model.columns(n, 0.0, INFINITY, cost=np.arange(n) == n - 1), -1)
    late, early = np.full(len(step), -1), np.full(len(step), -1)
    late[turns] = model.columns(len(turns), 0.0, INFINITY)
    bought = np.where(came_from < 0, -1, model.columns(len(turns), 0.0, np.where(came_from < 0, 0.0, INFINITY)))
    early[before[turns[came_from >= 0]]] = bought[came_from >= 0]
    model.rows(
        len(turns), instance.turn_s[plane[turns]] / unit, INFINITY,
        (late[turns], 1.0), (bought, 1.0), (end[step[turns] - 1], 1.0), (end[came_from], -1.0),
    )  # fmt: skip
    parts = ((end[step], 1.0), (end[step - 1], -1.0), (late, -1.0), (early, -1.0))
    model.rows(len(step), instance.latency_s[plane] / unit, INFINITY, *parts)
    width = instance.bandwidth[plane] / instance.bandwidth.sum()
    volume = instance.volume / instance.bandwidth.sum() / unit
    loss = np.bincount(step, weights=width * instance.latency_s[plane] / unit, minlength=n)
    model.rows(n, volume + loss, INFINITY, *((step, column, width * value) for column, value in parts))
    solution = solve(model)
    if solution.x is None:
        return share
    x = np.append(solution.x, 0.0)
    span = sum(x[column] * value for column, value in parts)
    better = np.zeros_like(share)
    better[step, plane] = np.maximum(span * unit - instance.latency_s[plane], 0.0) * instance.bandwidth[plane]
    total = better.sum(1, keepdims=True)
    better *= np.divide(instance.volume[:, None], total, out=np.ones_like(total), where=total > 0)
    return better if completion(instance, better) < completion(instance, share) else share
