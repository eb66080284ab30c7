"""A safety net outside planners: a moment after which they should give the best that they have.

Planners never read a clock. They ask :attr:`Stop.fired` between two pieces of work, and solvers take
:attr:`Stop.left_s` as their limit. A plan that a stop has cut short is marked as such, since another run may give
another plan.
"""

from __future__ import annotations

import math
from time import monotonic


class Stop:
    """A limit on wall-clock time, counted from when it is made."""

    def __init__(self, limit_s: float | None = None) -> None:
        self._until_s = math.inf if limit_s is None else monotonic() + limit_s
        self._told = False
        self._lent = False

    @property
    def left_s(self) -> float:
        """Seconds left, never below 0; infinite without a limit."""
        return math.inf if math.isinf(self._until_s) else max(0.0, self._until_s - monotonic())

    @property
    def limit_s(self) -> float | None:
        """Seconds left as solvers take them: None without a limit."""
        self._lent = True
        return None if math.isinf(self._until_s) else self.left_s

    @property
    def fired(self) -> bool:
        """Whether the time is over; whoever asks is expected to stop then."""
        self._told = self._told or self.left_s <= 0.0
        return self._told

    @property
    def used(self) -> bool:
        """Whether somebody was told to stop, or a solver had the time left as its limit and that is over."""
        return self._told or (self._lent and self.left_s <= 0.0)
