"""A time limit for work in stages: what would not end in time is not begun.

Each stage counts its work beforehand. What a unit of it takes is what it took the last time within the same request, or
at first what it typically takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..kernels.clock import clock


@dataclass
class Pace:
    """What is left of a time limit, and what work takes.

    Attributes:
        until_s: of the CPU time of this thread, when all is to end.
        unit_s: for each kind of work what a unit of it takes, seconds.
    """

    until_s: float = math.inf
    unit_s: dict[str, float] = field(default_factory=dict)

    @classmethod
    def within(cls, limit_s: float | None, unit_s: Mapping[str, float]) -> Pace:
        """From now on; without end if there is no limit."""
        return cls(math.inf if limit_s is None else clock() + limit_s, dict(unit_s))

    @property
    def left_s(self) -> float:
        return self.until_s - clock()

    @property
    def late(self) -> bool:
        return self.left_s < 0

    def allows(self, **work: float) -> bool:
        """Whether so much of each kind of work would end in time."""
        return self.left_s >= sum(units * self.unit_s.get(kind, 0.0) for kind, units in work.items())

    def room(self, kind: str) -> float:
        """So much of one kind of work would end in time."""
        return max(self.left_s, 0.0) / self.unit_s[kind] if self.unit_s.get(kind) else math.inf

    @contextmanager
    def measured(self, kind: str, units: float) -> Iterator[None]:
        """So much of one kind of work, whose pace is kept."""
        began_s = clock()
        yield
        self.unit_s[kind] = (clock() - began_s) / max(units, 1.0)
