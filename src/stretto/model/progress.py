"""Progress: who does long work says now and then what is done, and how much of it.

Whoever listens gives a :data:`Progress`. It may also have a method ``at_most(what, seconds)``; it is then told of work
whose parts cannot be counted, but which ends after a known effort, as that of a solver.
"""

from __future__ import annotations

from collections.abc import Callable

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
