"""A thread of a group that does one job after another, beside its collectives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

END_S = 5.0
"""Seconds that the thread gets to end."""


class Worker:
    """Begins its thread with the first job.

    Args:
        name: of the thread.
        failed: told of a job that failed; the next ones are done all the same.
    """

    def __init__(self, name: str, failed: Callable[[Exception], None]) -> None:
        self._name, self._failed = name, failed
        self._lock, self._closed = threading.Lock(), False
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def later(self, job: Callable[[], None]) -> None:
        """Do something when all that was given before is done."""
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
        self._jobs.put(job)

    def close(self) -> None:
        """Do nothing any more but end the job of now."""
        with self._lock:
            self._closed = True
        self._jobs.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(END_S)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None and not self._closed:
            try:
                job()
            except Exception as error:
                self._failed(error)
