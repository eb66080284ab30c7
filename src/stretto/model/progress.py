"""Progress: who does long work says now and then what is done, and how much of it.

Whoever listens gives a :data:`Progress`. It may also have two methods: ``at_most(what, seconds)`` is told of work whose
parts cannot be counted, but which ends after a known effort, as that of a solver; ``counting(counted, before, total,
what)`` of one call of a kernel, which counts its parts in an array while it works.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .arrays import Int64

Progress = Callable[[int, int, str], None]
"""Called with (done, total, what): parts that are done of parts in all, and what is being done now. The total is 0 if
the parts are not counted, and may be a number of steps of work."""


def silent(done: int, total: int, what: str) -> None:
    """The progress that nobody listens to."""


def tell_at_most(progress: Progress, what: str, seconds: float | None) -> None:
    """Say what is being done, and how long it takes at most.

    Args:
        seconds: from now on; None if what was said last still holds.
    """
    at_most = getattr(progress, "at_most", None)
    if at_most is None:
        progress(0, 0, what)
    else:
        at_most(what, seconds)


def tell_counting(progress: Progress, counted: Int64, before: int, total: int, what: str) -> None:
    """Say that a kernel begins to work.

    Args:
        counted: int64[1], the parts that this call has done; whoever listens may read it at any time.
        before: parts that were done before.
    """
    counting = getattr(progress, "counting", None)
    if counting is None:
        progress(before, total, what)
    else:
        counting(counted, before, total, what)
