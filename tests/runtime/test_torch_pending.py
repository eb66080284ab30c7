"""The future of an operation: when it ends, by which thread, and what callbacks may do."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import timedelta

import pytest

torch = pytest.importorskip("torch")

from stretto.torch import pending  # noqa: E402
from stretto.torch.pending import Pending, Started, TimedOut  # noqa: E402

LONG_S = 20.0
"""Seconds after which a thread hangs."""


class EndingRun:
    """A run of the compiled loop that ends when the test says so, and its thread for futures."""

    def __init__(self) -> None:
        self.ended, self.failure, self.keep, self.calls = False, None, [], []

    def wait(self, within_s: float | None = None) -> bool:
        return self.ended

    def listen(self, call) -> None:
        self.calls.append(call)

    def tell(self) -> None:
        """What the thread for futures does."""
        for call in self.calls:
            call()


@pytest.fixture
def run():
    return EndingRun()


def in_a_thread(call) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_a_job_is_waited_for_until_the_future_that_was_given_has_ended():
    source, begun, go = torch.futures.Future(), threading.Event(), threading.Event()
    source.add_done_callback(lambda future: (begun.set(), go.wait(LONG_S)))
    job = Pending(source)
    given = job.get_future()
    ending = in_a_thread(lambda: source.set_result(3))
    assert begun.wait(LONG_S)
    with pytest.raises(TimedOut):
        job.wait(timedelta(milliseconds=1))
    assert source.done() and not given.done()
    go.set()
    assert job.wait() and given.done() and given.value() == 3
    ending.join(LONG_S)


def test_a_job_that_failed_raises_what_it_raised_whether_its_future_was_asked_for_or_not():
    for asked in (False, True):
        source = torch.futures.Future()
        job = Pending(source)
        given = job.get_future() if asked else None
        source.set_exception(KeyError("lost"))
        with pytest.raises(KeyError, match="lost"):
            job.wait()
        assert given is None or given.done()


def test_a_callback_of_a_collective_may_wait_for_the_thread_for_futures(run):
    work = Started([run], lambda: [1])
    told = []

    def callback(future) -> None:
        thread = in_a_thread(run.tell)
        thread.join(LONG_S)
        told.append(not thread.is_alive())

    work.get_future().add_done_callback(callback)
    run.ended = True
    assert work.wait() and told == [True]


def test_a_collective_is_waited_for_while_its_callbacks_wait_for_who_waits(run):
    work, begun, go = Started([run], lambda: [1]), threading.Event(), threading.Event()
    future = work.get_future()
    future.add_done_callback(lambda future: (begun.set(), go.wait(2 * LONG_S)))
    run.ended = True
    ending = in_a_thread(run.tell)
    assert begun.wait(LONG_S)
    waiting = in_a_thread(work.wait)
    waiting.join(LONG_S)
    assert not waiting.is_alive() and future.done()
    go.set()
    ending.join(LONG_S)


def test_a_callback_may_wait_for_its_own_collective(run):
    work, waited = Started([run], lambda: [1]), []
    work.get_future().add_done_callback(lambda future: waited.append(work.wait()))
    run.ended = True
    assert work.wait() and waited == [True]


def test_two_threads_that_ask_at_once_get_one_future_that_ends(run, monkeypatch):
    work, made, futures = Started([run], lambda: [1]), threading.Barrier(2), []
    failing = pending._failing

    def slowly(future):
        with suppress(threading.BrokenBarrierError):
            made.wait(0.1)  # until the other thread is here, too, which must not be
        return failing(future)

    monkeypatch.setattr(pending, "_failing", slowly)
    threads = [in_a_thread(lambda: futures.append(work.get_future())) for _ in range(2)]
    for thread in threads:
        thread.join(LONG_S)
    run.ended = True
    run.tell()
    assert futures[0] is futures[1] and futures[0].value() == [1]
