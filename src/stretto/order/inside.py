"""The order of GPUs inside machines: the same in all machines, by exchanges of two while the step ends sooner."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Int64
from ..model.progress import Progress, silent
from . import kernel_cost
from .judge import Judge
from .problem import Problem

MOST_STEPS = 2e7
"""Messages that exchanges of GPUs may run through the bound of an order, about 5 ns of CPU each."""

GAIN = 1e-6
"""Part of a step's time that another order of GPUs must gain: it is work for whoever starts the ranks."""


def find_inside(problem: Problem, order: Int64, tell: Progress = silent) -> Int64:
    """int64[GPUs of a machine], the best order of GPUs that exchanges reach, never slower than the one given.

    Exchanges are compared by the bound of the order, which few networks leave far below the simulator's time; the
    simulator then compares the result with the order given.

    Args:
        tell: told how many messages of those that may be followed were.
    """
    inside = problem.inside.copy()
    short = problem.simulated
    rows, kinds = short.rows, short.kinds
    bound = at_speed(kernel_cost.order_bounds, MOST_STEPS)
    spent = 0.0

    def bound_of(tried: Int64) -> float:
        nonlocal spent
        spent += len(rows.kind)
        return float(bound(order[None], kinds, rows, replace(short, inside=tried).net)[0])

    best_s = bound_of(inside)
    improved = True
    while improved and spent < MOST_STEPS:
        improved = False
        for a, b in combinations(range(len(inside)), 2):
            tell(int(min(spent, MOST_STEPS)), int(MOST_STEPS), "exchanging GPUs in machines")
            tried = inside.copy()
            tried[[a, b]] = inside[[b, a]]
            seconds = bound_of(tried)
            if seconds < best_s * (1 - GAIN):
                inside, best_s, improved = tried, seconds, True
            if spent > MOST_STEPS:
                break
    if np.array_equal(inside, problem.inside):
        return inside
    given_s = Judge(problem).seconds(order)
    found_s = Judge(replace(problem, inside=inside)).seconds(order)
    return inside if found_s < given_s * (1 - GAIN) else problem.inside
