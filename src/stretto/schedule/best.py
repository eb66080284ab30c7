"""The one place that compares plans, by the one score: when the simulator says that the last rank has all it needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..model.errors import StrettoError
from ..model.plan import Plan
from ..model.symmetric import SymmetricPlan
from ..simulate import simulate

PER_HALF = 1.01
"""Times the completion that half the messages may cost. On five uneven networks and five fabrics (four collectives,
benchmarks/messages.py) this leaves out 23 % of the messages and costs 0.16 % of the completion, at most 1.6 %; 1.0025
leaves out 10 % for nothing."""


def completion_s(plan: Plan) -> float:
    """When the last transfer of a plan has arrived, seconds, as the simulator says.

    A timed plan over links whose transfers have one source and one receiver each says so itself, which is quicker. Of a
    plan by symmetry the representatives say it.
    """
    if isinstance(plan, SymmetricPlan):
        plan = plan.part
    if not plan.transfer_count:
        return 0.0
    single = plan.other_src is None and (plan.dst.lengths == 1).all()
    if plan.sharing == "timed" and not plan.topology.planes and single:
        assert plan.finish_s is not None, "timed"
        return float((plan.finish_s + plan.topology.route_latency_s(plan.route)).max())
    return simulate(plan).completion_s


def preference_s(plan: Plan) -> float:
    """What plans of one request are compared by: their completion and, where messages cost, how many these are.

    A plan with half as many messages is preferred if it ends at most ``PER_HALF`` times as late.
    """
    return completion_s(plan) * _surcharge(plan)


def _surcharge(plan: Plan) -> float:
    """Times its completion that a plan counts for its messages."""
    costs = bool(plan.topology.message_s.any())
    return float(max(plan.transfer_count, 1)) ** math.log2(PER_HALF) if costs else 1.0


def best(plans: Iterable[Plan]) -> Plan:
    """The plan that is preferred; of several alike the first of them."""
    return min(plans, key=preference_s)


@dataclass(frozen=True)
class Answer:
    """What one candidate answered."""

    name: str  # the candidate
    plan: Plan | None = None  # None if it refused
    score_s: float = math.inf  # the score of the plan, seconds
    refusal: StrettoError | None = None  # why it refused

    @property
    def preference_s(self) -> float:
        """The score with the surcharge for messages, see :func:`preference_s`."""
        return self.score_s if self.plan is None else self.score_s * _surcharge(self.plan)


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
