"""The exact mode of SWOT: a schedule with a certificate, a bound that no schedule beats."""

from __future__ import annotations

from functools import partial

import numpy as np

from ...model.arrays import Float64
from ...schedule.effort import Budget
from .counts import counts_decide, solve_by_counts
from .flow_program import CERTAIN, Answer, solve_by_flow
from .instance import Instance, completion, mirrored_half
from .named_planes import solve_by_names
from .search import find_schedule

MOST_NAMED = 40
"""Steps times planes up to which planes are named where counting them leaves a gap."""

MOST_UNITS = 4.0
"""Units of effort that the programs of an instance may take together, see :func:`stretto.solvers.solve`; on random
instances of 10 and 14 steps a unit is 7 to 10 s of CPU."""


def certify(instance: Instance, share: Float64 | None = None, budget: Budget | None = None) -> Answer:
    """The best schedule and bound within a budget.

    Args:
        share: a schedule to begin from; by default the search's.
        budget: of a request; at most :data:`MOST_UNITS` of it are spent.
    """
    budget = (budget or Budget()).for_solvers(MOST_UNITS)
    half = mirrored_half(instance)
    share = find_schedule(instance, stop=budget.stop) if share is None else share
    if half is None:
        return _certify(instance, share, budget)
    answer = _certify(half, share[: half.steps], budget)
    whole = np.concatenate((answer.share, answer.share[::-1]))
    best = min(share, whole, key=partial(completion, instance))
    return Answer(best, min(2 * answer.bound_s, completion(instance, best)))


def _certify(instance: Instance, share: Float64, budget: Budget) -> Answer:
    answer = Answer(share, 0.0)
    if counts_decide(instance):
        answer = solve_by_counts(instance, share, budget.stop)
    methods = [solve_by_flow] if instance.alike else []
    if not instance.alike or instance.steps * instance.planes <= MOST_NAMED:
        methods.append(solve_by_names)
    for method in methods:
        if not proved(instance, answer):
            other = method(instance, answer.share, budget)
            answer = Answer(other.share, max(other.bound_s, answer.bound_s))
    return answer


def proved(instance: Instance, answer: Answer) -> bool:
    """Whether a schedule and its bound meet."""
    return answer.bound_s >= completion(instance, answer.share) * (1 - 2 * CERTAIN)
