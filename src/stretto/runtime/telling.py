"""Threads that tell of failures: who hears of one may wait for others to hear of it, too."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable

_TELLING: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def beside(call: Callable[[], None]) -> None:
    """Call something in a thread of its own."""
    thread = threading.Thread(target=call, name="messages failed", daemon=True)
    thread.start()
    _TELLING.add(thread)


def wait_told(within_s: float) -> None:
    """Wait until all these threads have ended, or for a time: none may be left when its process ends."""
    deadline = time.monotonic() + within_s
    for thread in list(_TELLING):
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))
