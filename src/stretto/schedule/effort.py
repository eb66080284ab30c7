"""How much a planner may try, in counted work.

Work is counted in *steps*. How many steps a kind of work costs is a constant that its planner declares, calibrated once
so that a step is about a microsecond of CPU on one core of a server of the 2020s. No clock is read: the same request
tries the same things on every machine, however busy the machine is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from ..model.errors import InputError, Unsupported, nearest
from ..model.stop import Stop

EFFORTS = {"quick": 2e5, "normal": 1e6, "thorough": math.inf}
"""Steps that each level allows: about 0.2 s of CPU, about 1 s, and no limit but the planner's own rules."""

STEPS_A_SECOND = 1e6
"""Steps for each unit of an effort that is given as a number; they take about a second of CPU."""


COUNTED_COLLECTIVES = 4
"""Collectives up to which each different one of a workload adds the steps of its level of effort; more share these.
On benchmarks/jobs.py, held out, 1 instead makes mean completions 2 % longer, of AllReduce alone 6 %, for half the CPU
time."""


def steps_of(effort: str, collectives: int = 1) -> float:
    """The steps that an effort allows for a workload.

    Args:
        effort: a level, or a number: work of about that number of CPU seconds, counted in steps.
        collectives: how many different ones the workload has.

    Raises:
        InputError: there is no such level, or the number is not above 0 or infinite.
    """
    return _steps(effort) * min(collectives, COUNTED_COLLECTIVES)


def _steps(effort: str) -> float:
    if effort in EFFORTS:
        return EFFORTS[effort]
    with suppress(ValueError):
        if 0 < (seconds := float(effort)) < math.inf:
            return seconds * STEPS_A_SECOND
    otherwise = f"there are {', '.join(EFFORTS)}, and numbers above 0, about seconds of CPU"
    raise InputError(f"{effort!r} is no level of effort; {nearest(effort, EFFORTS, otherwise)}", "effort")


REQUIRED_TIMES = 20.0
"""Times the effort that work may take of which no less can be done: 20 s of CPU at "normal"."""

UNIT_STEPS = 1e6
"""Steps that a unit of a solver's effort costs, see :func:`stretto.solvers.solve`."""


@dataclass
class Budget:
    """Steps that are left for a request, and the net that may stop it early.

    A budget that is made of another one, by :meth:`with_costs` or :meth:`share`, spends on that one too.
    """

    steps: float = math.inf  # how many are allowed
    costs: Mapping[str, float] = field(default_factory=dict)  # for each kind of work the steps that a unit of it takes
    stop: Stop = field(default_factory=Stop)  # the net
    spent: float = 0.0  # steps so far
    parent: Budget | None = None  # the budget that this one is a part of
    beyond: float = field(default_factory=lambda: REQUIRED_TIMES)  # times the effort that required work may take

    def with_costs(self, costs: Mapping[str, float]) -> Budget:
        """The rest of this budget, for kinds of work with these costs."""
        return Budget(self.left, costs, self.stop, parent=self, beyond=self.beyond)

    def share(self, part: float) -> Budget:
        """A part of what is left of this budget."""
        return self.within(part * self.left)

    def within(self, steps: float) -> Budget:
        """At most this many steps of what is left of this budget."""
        return Budget(max(0.0, min(steps, self.left)), self.costs, self.stop, parent=self, beyond=self.beyond)

    def at_least(self, steps: float) -> Budget:
        """This many steps, even if fewer are left: for work that is done all the same. It is counted here, too."""
        return Budget(max(0.0, steps), self.costs, self.stop, parent=self, beyond=self.beyond)

    def apart(self) -> Budget:
        """As many steps as are left, which are not taken from this budget."""
        return Budget(self.left, self.costs, self.stop, beyond=self.beyond)

    def for_solvers(self, most_units: float) -> Budget:
        """At most this many units of solvers' effort: the one kind of work of the new budget, ``units``."""
        return self.within(most_units * UNIT_STEPS).with_costs({"units": UNIT_STEPS})

    @property
    def left(self) -> float:
        """Steps that are left; 0 once the net has fired."""
        return 0.0 if self.stop.fired else max(0.0, self.steps - self.spent)

    @property
    def most(self) -> float:
        """Steps that the whole request may take, of which this budget is a part."""
        return self.steps if self.parent is None else self.parent.most

    @property
    def exhausted(self) -> bool:
        """Whether no step is left."""
        return self.left <= 0.0

    def allows(self, **work: float) -> bool:
        """Whether these units of each kind of work fit into what is left."""
        return not self.stop.fired and self.cost(**work) <= self.steps - self.spent

    def require(self, what: str, **work: float) -> None:
        """Refuse work of which no less can be done, before it begins.

        Raises:
            Unsupported: it takes more than ``beyond`` times the effort of the whole request (at least "quick").
        """
        steps, most = self.cost(**work), self.beyond * max(self.most, EFFORTS["quick"])
        if steps > most:
            seconds, allowed = steps / STEPS_A_SECOND, most / STEPS_A_SECOND
            raise Unsupported(f"{what} would take about {seconds:.0f} s of CPU, and this effort is for {allowed:.0f} s")

    def spend(self, **work: float) -> None:
        """Count these units of each kind of work as done."""
        self.charge(self.cost(**work))

    def charge(self, steps: float) -> None:
        """Count steps as done, here and in every budget that this one is a part of."""
        self.spent += steps
        if self.parent is not None:
            self.parent.charge(steps)

    def cost(self, **work: float) -> float:
        """Steps that these units of each kind of work take."""
        return sum(units * self.costs[kind] for kind, units in work.items())

    def units(self, kind: str) -> float:
        """How many units of one kind of work fit into what is left."""
        return self.left / self.costs[kind]
