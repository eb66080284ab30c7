"""Rates from counters of bytes: wraps, restarts, and readings that are late, doubled or absurd."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.model.errors import InputError
from stretto.service.telemetry.counters import SHORTEST_S, Counter


def rates(readings, most=1e9, bits=64):
    counter = Counter(most, bits)
    return [counter.rate(*reading) for reading in readings]


def test_the_first_reading_tells_no_rate_and_each_later_one_the_rate_since_the_one_before():
    assert rates([(1000, 0.0), (3000, 10.0), (3000, 20.0), (4000, 22.0)]) == [None, 200.0, 0.0, 500.0]


@pytest.mark.parametrize("bits", [32, 64])
def test_a_counter_that_has_gone_round_counts_on(bits):
    assert rates([(2**bits - 100, 0.0), (400, 1.0)], bits=bits) == [None, 500.0]


def test_a_counter_of_64_bits_that_starts_anew_tells_no_rate_and_is_a_new_beginning():
    assert rates([(10**12, 0.0), (700, 10.0), (1700, 20.0)]) == [None, None, 100.0]


def test_a_restart_that_the_device_tells_is_no_wrap_even_where_the_counter_has_grown():
    readings = [(1000, 0.0, "boot 1"), (2000, 10.0, "boot 2"), (2500, 20.0, "boot 2")]
    assert rates(readings) == [None, None, 50.0]
    assert rates([(2**32 - 100, 0.0, "boot 1"), (400, 1.0, "boot 2")], bits=32) == [None, None]


def test_a_doubled_reading_tells_nothing_and_changes_nothing():
    assert rates([(0, 0.0), (100, 1.0), (100, 1.0), (300, 2.0)]) == [None, 100.0, None, 200.0]


def test_readings_too_close_together_count_from_the_earlier_one():
    assert rates([(0, 0.0), (90, SHORTEST_S / 2), (100, 1.0)]) == [None, None, 100.0]


def test_a_late_reading_tells_nothing_and_the_newer_one_stands():
    assert rates([(0, 0.0), (200, 2.0), (100, 1.0), (300, 3.0)]) == [None, 100.0, None, 100.0]


def test_a_clock_that_was_set_back_is_a_new_beginning():
    assert rates([(0, 1000.0), (100, 10.0), (300, 11.0)]) == [None, None, 200.0]


def test_an_absurd_rate_is_not_told_and_the_next_one_counts_from_it():
    assert rates([(0, 0.0), (10**15, 1.0), (10**15 + 50, 2.0)]) == [None, None, 50.0]


def test_a_counter_that_can_go_round_between_two_readings_is_refused():
    Counter(1e6, 32).check_interval(10.0, "here")
    with pytest.raises(
        InputError, match=r"here: a counter of 32 bits can go round in 0.0344 s, and is read every 10 s"
    ):
        Counter(1.25e11, 32).check_interval(10.0, "here")


@given(
    st.lists(st.tuples(st.integers(0, 2**30), st.floats(0.1, 100)), min_size=1, max_size=20), st.integers(0, 2**32 - 1)
)
def test_whatever_a_counter_of_32_bits_counts_between_readings_the_rates_add_up_to_it(steps, start):
    counter, value, at_s, told = Counter(2**31 / 0.1, 32), start, 0.0, 0.0
    counter.rate(value, at_s)
    for grown, wait_s in steps:
        value, before, at_s = (value + grown) % 2**32, at_s, at_s + wait_s
        told += counter.rate(value, at_s) * (at_s - before)
    assert told == pytest.approx(sum(grown for grown, _ in steps))
