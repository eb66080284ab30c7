"""Plans that are kept while a request is fitted again: to fewer messages, or to another target.

What a target asks is met after a planner has made its plan. So the plans of most planners are the same for all targets
that see the same network, and for each attempt with fewer messages. Whoever asks several times gives the same
:class:`Kept` each time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from ..model.errors import StrettoError
from ..model.plan import Plan
from .effort import Budget

T = TypeVar("T")

MOST_TRANSFERS = 100_000
"""Transfers of a plan that is kept, at most: about 30 MB. Larger plans are made again."""


class Kept:
    """Networks and plans by what they were made from; topologies, workloads and plans are keys by identity."""

    def __init__(self) -> None:
        self._values: dict[tuple[Hashable, ...], Any] = {}

    def of(self, key: tuple[Hashable, ...], make: Callable[[], T]) -> T:
        """The value for a key, made if it is not kept."""
        if key in self._values:
            value: T = self._values[key]
            return value
        made = make()
        if not isinstance(made, Plan) or made.transfer_count <= MOST_TRANSFERS:
            self._values[key] = made
        return made

    def plan(self, key: tuple[Hashable, ...], budget: Budget, make: Callable[[], Plan]) -> Plan:
        """A planner's plan, or its refusal; what it spent when it was made is charged each time.

        Args:
            key: what the plan depends on, besides the budget.
        """
        whole = (*key, f"{budget.left:.9g}", budget.most)
        if whole in self._values:
            answer, spent = self._values[whole]
            budget.charge(spent)
            if isinstance(answer, StrettoError):
                raise answer
            plan: Plan = answer
            return plan
        before = budget.spent
        try:
            made = make()
        except StrettoError as refusal:
            self._values[whole] = refusal, budget.spent - before
            raise
        if made.transfer_count <= MOST_TRANSFERS:
            self._values[whole] = made, budget.spent - before
        return made
