"""A schedule with a certificate: the flow program first, named planes where it leaves a gap."""

from __future__ import annotations

from time import monotonic

from .exact import CERTAIN, Answer, exact
from .fast import fast, mirrored_half
from .milp import named_planes
from .model import Float64, Instance, completion

MOST_NAMED = 40
"""Steps times planes up to which planes are named where counting them leaves a gap."""

SECONDS = 30.0
"""What proving may take where nothing else is said."""


def optimal(instance: Instance, share: Float64 | None = None, time_limit_s: float | None = None) -> Answer:
    """The best schedule and bound that can be had in time; ``time_limit_s`` is :data:`SECONDS` by default."""
    until = monotonic() + (SECONDS if time_limit_s is None else time_limit_s)
    answer = Answer(fast(instance) if share is None else share, 0.0)
    if instance.alike:
        answer = exact(instance, answer.share, until - monotonic())
    size = instance.steps * instance.planes
    whole = mirrored_half(instance) is None
    if not proved(instance, answer) and (not instance.alike or (whole and size <= MOST_NAMED)):
        named = named_planes(instance, answer.share, until - monotonic())
        answer = Answer(named.share, max(named.bound_s, answer.bound_s))
    return answer


def proved(instance: Instance, answer: Answer) -> bool:
    """Whether a schedule and its bound meet."""
    return answer.bound_s >= completion(instance, answer.share) * (1 - 2 * CERTAIN)
