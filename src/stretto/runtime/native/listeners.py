"""Who listens to runs of the compiled loop: a thread calls them as runs end, which starts with the first one."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from .records import WORD

if TYPE_CHECKING:
    from .runs import Run


class Listeners:
    """Those of one loop.

    Attributes:
        tells: the end of a pipe into which the loop writes the address of a run that has ended.
    """

    def __init__(self) -> None:
        self._ended, self.tells = os.pipe()
        self._lock = threading.RLock()
        self._calls: dict[int, tuple[Run, Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None

    def add(self, place: int, run: Run, call: Callable[[], None]) -> None:
        """Call ``call`` when the run at an address has ended."""
        with self._lock:
            self._calls[place] = run, call
            if self._thread is None:
                self._thread = threading.Thread(target=self._listen, name="stretto-futures", daemon=True)
                self._thread.start()

    def call(self, place: int) -> None:
        """Call who listens to the run of an address, if it has ended."""
        with self._lock:
            run, call = self._calls.get(place, (None, None))
            if run is None or call is None or not run.ended:
                return  # it was called, or this is what another run left at the address
            del self._calls[place]
        call()

    def stop(self, within_s: float) -> None:
        """End the thread; the loop has ended."""
        os.close(self.tells)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(within_s)
        os.close(self._ended)

    def _listen(self) -> None:
        while told := os.read(self._ended, WORD):
            self.call(struct.unpack("q", told)[0])
