"""The one place that compares plans, by the one score: when the simulator says that the last rank has all it needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..model.errors import StrettoError
from ..model.plan import Plan
from ..simulate import simulate


def completion_s(plan: Plan) -> float:
    """When the last transfer of a plan has arrived, seconds, as the simulator says.

    A timed plan over links whose transfers have one receiver each says so itself, which is quicker to read.
    """
    if not plan.transfer_count:
        return 0.0
    if plan.sharing == "timed" and not plan.topology.planes and (plan.dst.lengths == 1).all():
        assert plan.finish_s is not None, "timed"
        return float((plan.finish_s + plan.topology.route_latency_s(plan.route)).max())
    return simulate(plan).completion_s


def best(plans: Iterable[Plan]) -> Plan:
    """The plan that ends first; of several that end together the first of them."""
    return min(plans, key=completion_s)


@dataclass(frozen=True)
class Answer:
    """What one candidate answered."""

    name: str  # the candidate
    plan: Plan | None = None  # None if it refused
    score_s: float = math.inf  # the score of the plan, seconds
    refusal: StrettoError | None = None  # why it refused


def ask(name: str, make: Callable[[], Plan], score: Callable[[Plan], float] = completion_s) -> Answer:
    """Ask one candidate; a candidate that cannot serve the request is an answer too."""
    try:
        plan = make()
        return Answer(name, plan, score(plan))
    except StrettoError as refusal:
        return Answer(name, refusal=refusal)


def best_of(answers: Iterable[Answer], within: float = 1.0) -> Answer:
    """The answer with the least score; an answer without a plan if all candidates refused.

    Args:
        within: scores up to this many times the least are alike; of several the first answer is taken.
    """
    answers = list(answers)
    enough_s = within * min(answer.score_s for answer in answers)
    return next(answer for answer in answers if answer.score_s <= enough_s)
