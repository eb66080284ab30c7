"""The handle that a caller waits on, and the thread that runs the calls in their order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import torch
import torch.distributed as dist

from ..model.errors import PeerFailed, StrettoError

Context = Callable[[], AbstractContextManager[Any]]


class TimedOut(StrettoError, RuntimeError):
    """An operation has not ended in the time for which its caller waits; it goes on."""


class Pending(dist._Work):  # type: ignore[misc]
    """A job that is running. Unlike PyTorch's own wrapper of a future its ``wait`` raises what the job raised.

    Args:
        source: where a receive from any rank says whose message it got.
    """

    def __init__(self, future: torch.futures.Future, source: Callable[[], int] | None = None) -> None:
        super().__init__()
        self._future, self._source = future, source

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the job has ended, or for a time; the job goes on when that is over. None and 0: as long as the
        job's own timeout lets it run."""
        if timeout and not self._future.done():
            ended = threading.Event()
            self._future.add_done_callback(lambda future: ended.set())
            if not ended.wait(timeout.total_seconds()):
                raise TimedOut(f"the operation has not ended within the timeout of {timeout.total_seconds():g} s")
        self._future.wait()
        return True

    def _source_rank(self) -> int:
        """The rank whose message was received."""
        if self._source is None:
            raise RuntimeError("only a receive has a source")
        return self._source()

    def get_future(self) -> torch.futures.Future:
        return self._future

    def is_completed(self) -> bool:
        return bool(self._future.done())


class Order:
    """The jobs of one group, which a thread runs one after another.

    After a peer has failed, ``report`` is called once, and no job runs any more.
    """

    def __init__(self, name: str, report: Callable[[PeerFailed], None]) -> None:
        self._report = report
        self._jobs: SimpleQueue[tuple[Callable[[], None], torch.futures.Future, Any, Context] | None] = SimpleQueue()
        self._failure: PeerFailed | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def failure(self) -> PeerFailed | None:
        """The failure after which no job runs."""
        return self._failure

    def later(
        self,
        run: Callable[[], None],
        result: Any,
        future: torch.futures.Future | None = None,
        on: Context = nullcontext,
    ) -> Pending:
        """Queue a job; when it has run, its future has ``result``.

        Args:
            future: that future, where it is no ordinary one.
            on: makes the context in which it gets the result, such as the stream on which that will be there.
        """
        future = torch.futures.Future() if future is None else future
        self._jobs.put((run, future, result, on))
        return Pending(future)

    def fail(self, failure: PeerFailed, within_s: float) -> None:
        """Run no more jobs because of a failure, and wait until the other ranks have its reason."""
        reported = threading.Event()

        def run() -> None:
            raise failure

        self.later(run, None).get_future().add_done_callback(lambda future: reported.set())
        reported.wait(within_s)

    def stop(self, within_s: float) -> None:
        """Accept no more jobs, and wait for the thread to end."""
        self._jobs.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(within_s)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            run, future, result, on = job
            try:
                if self._failure is not None:
                    raise self._failure
                run()
            except BaseException as error:
                if self._failure is None and isinstance(error, PeerFailed):
                    self._failure = error
                    self._report(error)
                future.set_exception(error)  # type: ignore[arg-type]
            else:
                with on():
                    future.set_result(result)
            del job, run, future, result, on  # a finished job must keep no tensor and no group alive
