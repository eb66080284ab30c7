"""CPU time of a thread, without what loading and compiling code takes.

In a new process that is half a second and more, on a new machine minutes, once: time limits of planners leave it out,
so that the first plan of a process is as good as the others.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import thread_time


class _Loading(threading.local):
    """Of each thread the seconds so far, and how many are at it now, one within the other."""

    seconds = 0.0
    depth = 0


_LOADING = _Loading()


def clock() -> float:
    """Seconds of CPU that this thread has worked."""
    return thread_time() - _LOADING.seconds


@contextmanager
def loading() -> Iterator[None]:
    """What happens within is no work."""
    began_s = thread_time()
    _LOADING.depth += 1
    try:
        yield
    finally:
        _LOADING.depth -= 1
        if not _LOADING.depth:
            _LOADING.seconds += thread_time() - began_s
