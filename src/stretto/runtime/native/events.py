"""Events of the kernel, by which the compiled loop tells a thread that something has ended; they are used again."""

from __future__ import annotations

import contextlib
import ctypes
import os

HOLDING, LEAVING = ctypes.PyDLL(None, use_errno=True), ctypes.CDLL(None, use_errno=True)
"""The C library, called with Python's lock and without."""
_COUNT, _COUNT_BYTES = (ctypes.c_uint8 * 8)(), ctypes.c_size_t(8)


class Events:
    """Those of one loop. A process that was forked leaves them alone: what it reads would be missing in the other."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._free: list[int] = []
        self._stopped = False

    def take(self) -> int:
        """A descriptor of an event that has not happened."""
        with contextlib.suppress(IndexError):
            return self._free.pop()
        return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def give(self, event: int) -> None:
        """Take an event back."""
        if os.getpid() != self._owner:
            return
        if self._stopped:
            os.close(event)
            return
        HOLDING.read(event, _COUNT, _COUNT_BYTES)  # now it has not happened
        self._free.append(event)

    def stop(self) -> None:
        """Close all that are back, and those that are given from now on."""
        self._stopped = True
        while self._free:
            os.close(self._free.pop())
