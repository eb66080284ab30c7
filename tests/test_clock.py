"""Time limits leave out what loading code takes."""

from __future__ import annotations

from time import thread_time

from stretto.kernels.clock import clock, loading


def busy(seconds: float) -> None:
    until_s = thread_time() + seconds
    while thread_time() < until_s:
        pass


def test_what_is_loaded_is_no_work_also_where_it_loads_more():
    before_s = clock()
    with loading():
        busy(0.02)
        with loading():
            busy(0.02)
    assert clock() - before_s < 0.02
    busy(0.03)
    assert clock() - before_s >= 0.03
