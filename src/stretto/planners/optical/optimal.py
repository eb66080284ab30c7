"""A schedule with a certificate: counts where they decide, else the flow program, then named planes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic

import numpy as np

from ...solvers import INFINITY
from .counts import countable, counted
from .exact import CERTAIN, Answer, exact
from .fast import fast, mirrored_half
from .milp import named_planes
from .model import Float64, Instance, completion

MOST_NAMED = 40
"""Steps times planes up to which planes are named where counting them leaves a gap."""

SECONDS = 30.0
"""What proving may take where nothing else is said."""


def optimal(instance: Instance, share: Float64 | None = None, time_limit_s: float | None = None) -> Answer:
    """The best schedule and bound that can be had in time.

    Where the counts of planes decide, limits are in work, so that a busy machine loses no proof; otherwise
    ``time_limit_s`` is :data:`SECONDS` by default.
    """
    half = mirrored_half(instance)
    share = fast(instance) if share is None else share
    if half is not None:
        answer = optimal(half, share[: half.steps], time_limit_s)
        whole = np.concatenate((answer.share, answer.share[::-1]))
        best = min(share, whole, key=partial(completion, instance))
        return Answer(best, min(2 * answer.bound_s, completion(instance, best)))
    now = monotonic()
    answer = Answer(share, 0.0)
    if countable(instance):
        answer = counted(instance, share, INFINITY if time_limit_s is None else now + time_limit_s)
    until = monotonic() + SECONDS if time_limit_s is None else now + time_limit_s
    for method in _others(instance):
        if proved(instance, answer):
            break
        other = method(instance, answer.share, max(until - monotonic(), 0.0))
        answer = Answer(other.share, max(other.bound_s, answer.bound_s))
    return answer


def _others(instance: Instance) -> Iterator[Callable[[Instance, Float64, float], Answer]]:
    if instance.alike:
        yield exact
    if not instance.alike or instance.steps * instance.planes <= MOST_NAMED:
        yield named_planes


def proved(instance: Instance, answer: Answer) -> bool:
    """Whether a schedule and its bound meet."""
    return answer.bound_s >= completion(instance, answer.share) * (1 - 2 * CERTAIN)
