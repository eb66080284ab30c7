"""What a caller waits for, and the thread that runs what callers asked for, in their order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import torch
import torch.distributed as dist

from ..model.errors import PeerFailed


class Pending(dist._Work):  # type: ignore[misc]
    """A job that is under way; unlike PyTorch's own wrapper of a future its ``wait`` raises what the job raised."""

    def __init__(self, future: torch.futures.Future) -> None:
        super().__init__()
        self._future = future

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until it has ended. The job has a timeout of its own, so ``timeout`` is not needed to end."""
        self._future.wait()
        return True

    def get_future(self) -> torch.futures.Future:
        return self._future

    def is_completed(self) -> bool:
        return bool(self._future.done())


class Order:
    """Jobs of one group, run one after the other by a thread; after a peer failed none runs any more.

    Args:
        name: of the thread.
        failed: called once, when a peer has failed.
    """

    def __init__(self, name: str, failed: Callable[[PeerFailed], None]) -> None:
        self._failed = failed
        self._jobs: SimpleQueue[tuple[Callable[[], None], torch.futures.Future, Any] | None] = SimpleQueue()
        self._failure: PeerFailed | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def later(self, run: Callable[[], None], result: Any) -> Pending:
        """Run a job after all that were asked for before it; its future then has ``result``."""
        future: torch.futures.Future = torch.futures.Future()
        self._jobs.put((run, future, result))
        return Pending(future)

    def fail(self, failure: PeerFailed, within_s: float) -> None:
        """Run nothing more because of this, and wait until those that must know have been told."""
        told = threading.Event()

        def run() -> None:
            raise failure

        self.later(run, None).get_future().add_done_callback(lambda future: told.set())
        told.wait(within_s)

    def stop(self, within_s: float) -> None:
        """Run nothing that is asked for after this, and wait for the thread to end."""
        self._jobs.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(within_s)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            run, future, result = job
            try:
                if self._failure is not None:
                    raise self._failure
                run()
            except BaseException as error:
                if self._failure is None and isinstance(error, PeerFailed):
                    self._failure = error
                    self._failed(error)
                future.set_exception(error)  # type: ignore[arg-type]
            else:
                future.set_result(result)
            del job, run, future, result  # a job that is over keeps no tensor, and no group, alive
