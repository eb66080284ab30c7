"""How much a planner may try, in counted work.

Work is counted in *steps*. What each kind of work costs in steps is a constant that its planner declares, calibrated
once so that a step is about a microsecond of CPU on one core of a 2020s server. No clock is read: the same request may
try the same things on every machine, however busy it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model.errors import InputError
from ..model.stop import Stop

EFFORTS = {"quick": 2e5, "normal": 1e6, "thorough": math.inf}
"""Steps that each level allows: about 0.2 s, about 1 s, and as many as the planner's own rules want."""


def steps_of(effort: str) -> float:
    """The steps that a level of effort allows.

    Raises:
        InputError: there is no such level.
    """
    if effort not in EFFORTS:
        raise InputError(f"{effort!r} is no effort; there are {', '.join(EFFORTS)}", "effort")
    return EFFORTS[effort]


@dataclass
class Budget:
    """Steps that are left for a request, and the net that may stop it early.

    Attributes:
        steps: how many steps were allowed.
        costs: for each kind of work, what a unit of it costs in steps.
        spent: steps spent so far.
    """

    steps: float = math.inf
    costs: Mapping[str, float] = field(default_factory=dict)
    stop: Stop = field(default_factory=Stop)
    spent: float = 0.0

    def with_costs(self, costs: Mapping[str, float]) -> Budget:
        """A budget of what is left of this one, for work that costs so much."""
        return Budget(self.left, costs, self.stop)

    def share(self, part: float) -> Budget:
        """A budget of a part of what is left; the caller spends on this one what was spent there."""
        return Budget(part * self.left, self.costs, self.stop)

    @property
    def left(self) -> float:
        """Steps that are left; 0 once the net has fired."""
        return 0.0 if self.stop.fired else max(0.0, self.steps - self.spent)

    @property
    def exhausted(self) -> bool:
        return self.left <= 0.0

    def allows(self, **work: float) -> bool:
        """Whether so many units of each kind of work fit into what is left."""
        return not self.stop.fired and self.cost(**work) <= self.steps - self.spent

    def spend(self, **work: float) -> None:
        """Count so many units of each kind of work as done."""
        self.spent += self.cost(**work)

    def cost(self, **work: float) -> float:
        """Steps that so many units of each kind of work take."""
        return sum(units * self.costs[kind] for kind, units in work.items())

    def units(self, kind: str) -> float:
        """How many units of one kind of work fit into what is left."""
        return self.left / self.costs[kind]
