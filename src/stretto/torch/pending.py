"""The handle that a caller waits on, and the thread that runs the calls in their order."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..model.errors import PeerFailed, StrettoError
from ..runtime.native.runs import Run

IDLE_S = 2.0
"""Seconds without a job after which a group's thread ends; starting one takes 0.1 ms."""

_MAKING = threading.RLock()
"""Held for the moment in which an operation gets its future, or one thread is chosen to end it."""

Context = Callable[[], AbstractContextManager[Any]]
Queued = tuple[Callable[[], None], torch.futures.Future, Any, Context, int]


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
        self._given: torch.futures.Future | None = None  # what callers get, which ends a moment after the other

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the job has ended, or for a time; the job goes on when that is over. None and 0: as long as the
        job's own timeout lets it run. The future that a caller has got has ended, too, when this returns, as of
        PyTorch's own groups: torchft adds a callback then that must run at once."""
        last = self._future if self._given is None else self._given
        if timeout and not last.done():
            ended = threading.Event()
            last.add_done_callback(lambda future: ended.set())
            if not ended.wait(timeout.total_seconds()):
                raise TimedOut(f"the operation has not ended within the timeout of {timeout.total_seconds():g} s")
        _wait_for_end(last)
        self._future.wait()
        return True

    def _source_rank(self) -> int:
        """The rank whose message was received."""
        if self._source is None:
            raise RuntimeError("only a receive has a source")
        return self._source()

    def get_future(self) -> torch.futures.Future:
        with _MAKING:
            given = self._given = self._given or _failing(self._future)
        return given

    def is_completed(self) -> bool:
        return bool(self._future.done())


class Started(dist._Work):  # type: ignore[misc]
    """Collectives that the compiled loop runs.

    Args:
        runs: one for each, in their order.
        result: gives what the future gives.
        calls: what was called, for who wants to repeat it.
    """

    def __init__(self, runs: list[Run], result: Callable[[], Any], calls: Sequence[Any] = ()) -> None:
        super().__init__()
        self._runs, self._result, self.calls = runs, result, calls
        self._future: torch.futures.Future | None = None
        self._unset: torch.futures.Future | None = None  # what the future comes from, until it is set

    def wait(self, timeout: timedelta | None = None) -> bool:
        """As of :class:`Pending`."""
        until = time.monotonic() + timeout.total_seconds() if timeout else None
        for run in self._runs:
            if not run.wait(None if until is None else max(0.0, until - time.monotonic())):
                assert timeout is not None
                raise TimedOut(f"the operation has not ended within the timeout of {timeout.total_seconds():g} s")
        if self._future is not None:
            self._end()
            _wait_for_end(self._future)
        for run in self._runs:
            if run.failure is not None:
                raise run.failure
            run.keep.clear()
        return True

    def get_future(self) -> torch.futures.Future:
        with _MAKING:
            future, first = self._future, self._future is None
            if future is None:
                self._unset = torch.futures.Future()
                future = self._future = _failing(self._unset)
        if not first:
            return future
        if self.is_completed():
            self._end()
        else:
            self._runs[-1].listen(self._end)
        return future

    def is_completed(self) -> bool:
        return all(run.ended for run in self._runs)

    @property
    def failed(self) -> bool:
        """Whether one of the collectives has failed."""
        return any(run.failure is not None for run in self._runs)

    def _end(self) -> None:
        """Let the future end, once: of those who call this the first one does it. No lock is held meanwhile, since
        callbacks run that may wait for what other threads do."""
        with _MAKING:
            future, self._unset = self._unset, None
        if future is None:
            return
        failure = next((run.failure for run in self._runs if run.failure is not None), None)
        if failure is not None:
            future.set_exception(failure)  # type: ignore[arg-type]
        else:
            future.set_result(self._result())


class Order:
    """The jobs of one group that need Python, which a thread runs one after another; it ends when there are none.

    After a peer has failed, ``report`` is called once, and no job runs any more, unless a group can go on without a
    link (:mod:`.mending`). For that collectives are numbered in the order of their calls.

    Attributes:
        mend: whether the collective of a number may run although a link has failed.
        failed: called at a failure; returns what is called after ``report``.
    """

    def __init__(self, name: str, report: Callable[[PeerFailed], None]) -> None:
        self._report, self._name = report, name
        self._jobs: deque[Queued] = deque()
        self._failure: PeerFailed | None = None
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._busy = self._stopped = False
        self.mend: Callable[[int], bool] = lambda number: False
        self.failed: Callable[[PeerFailed], Callable[[], None]] = lambda failure: _nothing
        self._begun = self._ended = 0  # the last collectives that were begun, and that a job has ended well
        self._started: tuple[int, Started] | None = None
        self._given_back = threading.local()

    def call(self) -> int:
        """The number of a collective that begins: the one that this thread has given back, or the next.

        A call takes its number before it looks whether the group is :attr:`free`: then a failure that it has not seen
        yet counts it among the calls that have begun (:meth:`last_without_result`).
        """
        number: int | None = self._given_back.__dict__.pop("number", None)
        if number is not None:
            return number
        with self._change:
            self._begun += 1
            return self._begun

    def give_back(self, number: int) -> None:
        """Keep a number for the same call, which is begun in another way."""
        self._given_back.number = number

    def start(self, number: int, started: Started) -> Started:
        """Take note of collectives that the compiled loop runs."""
        self._started = number, started
        return started

    def last_without_result(self) -> int:
        """The last collective that has begun; the one after it if that one has ended well."""
        with self._change:
            ended = self._ended == self._begun
            if self._started is not None and self._started[0] == self._begun:
                ended = self._started[1].is_completed() and not self._started[1].failed
            return self._begun + ended

    def forget(self) -> None:
        """Run jobs again."""
        self._failure = None

    @property
    def free(self) -> bool:
        """Whether no job runs or waits, and none has failed: what is asked for now needs no place in the order."""
        return not self._busy and self._failure is None

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
        number: int = 0,
    ) -> Pending:
        """Queue a job; when it has run, its future has ``result``.

        Args:
            future: that future, where it is no ordinary one.
            on: makes the context in which it gets the result, such as the stream on which that will be there.
            number: of a collective.
        """
        future = torch.futures.Future() if future is None else future
        with self._change:
            self._jobs.append((run, future, result, on, number))
            self._busy = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            else:
                self._change.notify()
        return Pending(future)

    def note(self, failure: PeerFailed) -> None:
        """Run no more jobs because a peer has failed, and report it."""
        with self._change:
            if self._failure is not None:
                return
            self._failure = failure
            go_on = self.failed(failure)
        self._report(failure)
        go_on()

    def fail(self, failure: PeerFailed, within_s: float) -> None:
        """Run no more jobs because of a failure, and wait until the other ranks have its reason."""
        reported = threading.Event()

        def run() -> None:
            raise failure

        self.later(run, None).get_future().add_done_callback(lambda future: reported.set())
        reported.wait(within_s)

    def stop(self, within_s: float) -> None:
        """Accept no more jobs, and wait for the thread to end."""
        with self._change:
            self._stopped = True
            thread = self._thread
            self._change.notify()
        if thread is not None and threading.current_thread() is not thread:
            thread.join(within_s)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            run, future, result, on, number = job
            try:
                if self._failure is not None and not (number and self.mend(number)):
                    raise self._failure
                run()
                self._ended = number or self._ended
            except BaseException as error:
                if isinstance(error, PeerFailed):
                    self.note(error)
                self._done()
                future.set_exception(error)  # type: ignore[arg-type]
            else:
                self._done()
                with on():
                    future.set_result(result)
            del job, run, future, result, on  # a finished job must keep no tensor and no group alive

    def _next(self) -> Queued | None:
        """The next job; None when there has been none for ``IDLE_S``, or there will be none."""
        with self._change:
            if not self._jobs and not self._stopped:
                self._change.wait(IDLE_S)
            if self._jobs:
                return self._jobs.popleft()
            self._thread = None
            return None

    def _done(self) -> None:
        with self._change:
            self._busy = bool(self._jobs)


def _failing(future: torch.futures.Future) -> torch.futures.Future:
    """A future that ends as another one does, and fails in C++, too.

    What ``set_exception`` gives is a result for C++, which raises when Python asks for it: DDP would take the exception
    for tensors, and crash. An exception in a callback of ``then`` is a failure everywhere.
    """
    return future.then(lambda ended: ended.value())


def _wait_for_end(future: torch.futures.Future) -> None:
    """Wait until a future has ended, well or not; its callbacks may still run."""
    if not future.done():
        with suppress(Exception):
            future.wait()


def _nothing() -> None:
    pass
