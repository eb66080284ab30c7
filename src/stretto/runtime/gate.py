"""What another thread tells a run, and learns from it: transfers whose bytes are there to be sent, and arrivals.

A device copies what is to be sent into host memory while the run is under way, and copies what has arrived. So a
transfer begins when its bytes have been released, and who waits for an arrival is woken by it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from queue import SimpleQueue

from ..model.errors import PeerFailed


class Gate:
    """Joins a run (:func:`.execute.execute`) to the threads of a device. It serves one run after another."""

    def __init__(self) -> None:
        self._told, self._tell = socket.socketpair()
        for end in (self._told, self._tell):  # a full socket wakes the run as well
            end.setblocking(False)
        self._released: SimpleQueue[int | PeerFailed] = SimpleQueue()
        self._arrivals = threading.Condition()
        self._arrived: set[int] = set()
        self._failure: BaseException | None = None

    def begin(self) -> None:
        """Forget the arrivals of the last run, which released every row that it sent."""
        with self._arrivals:
            self._arrived = set()

    def fileno(self) -> int:
        """A file that can be read when a row has been released."""
        return self._told.fileno()

    def release(self, row: int) -> None:
        """Let the run send a row: its bytes are there."""
        self._put(row)

    def fail(self, failure: PeerFailed) -> None:
        """End the run."""
        self._put(failure)

    def _put(self, word: int | PeerFailed) -> None:
        self._released.put(word)
        with contextlib.suppress(OSError):
            self._tell.send(b"\0")

    def released(self) -> list[int]:
        """The rows that have been released since the last call; raises what shall end the run."""
        with contextlib.suppress(BlockingIOError):
            self._told.recv(1 << 12)
        rows = []
        while not self._released.empty():
            word = self._released.get()
            if isinstance(word, PeerFailed):
                raise word
            rows.append(word)
        return rows

    def report(self, row: int) -> None:
        """Say that all bytes of a row are there."""
        with self._arrivals:
            self._arrived.add(row)
            self._arrivals.notify_all()

    def end(self, failure: BaseException) -> None:
        """Say that nothing arrives any more."""
        with self._arrivals:
            self._failure = failure
            self._arrivals.notify_all()

    def await_row(self, row: int) -> None:
        """Wait until a row has arrived; raises what ended the run if it never will."""
        with self._arrivals:
            self._arrivals.wait_for(lambda: row in self._arrived or self._failure is not None)
            if row not in self._arrived:
                assert self._failure is not None
                raise self._failure

    def close(self) -> None:
        for end in (self._told, self._tell):
            end.close()
