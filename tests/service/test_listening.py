"""When telemetry of a link counts: a threshold, a holding time, and hysteresis between them."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("sqlalchemy")

import stretto as st
from stretto.service.listening import Sensitivity, news_of
from stretto.service.telemetry.samples import CAPACITY, CARRIED, LATENCY, UP, Sample

NET = st.topology("ring:4", bandwidth="10GB/s", latency="1ms")
HOW = Sensitivity(threshold=0.2, hold_s=2.0)


def news(now, *values, kind=CAPACITY, overlay=()):
    """The news of samples (seconds, rate) of one link."""
    return news_of(NET, list(overlay), [Sample("gpu0", "gpu1", kind, rate, at) for at, rate in values], now, HOW)


def overlay(width):
    return [{"src": "gpu0", "dst": "gpu1", "bandwidth_Bps": width}]


def test_a_link_counts_after_the_holding_time_with_the_median_of_what_it_gave():
    values = [(0.0, 10e9), (1.0, 5e9), (1.5, 4e9), (2.0, 4.5e9)]
    assert news(2.9, *values) == (waiting := news(2.9, *values)) and waiting.overlay is None
    assert waiting.again_at == 3.0
    found = news(3.0, *values)
    assert found.overlay == overlay(4.5e9)
    assert found.why == "telemetry: gpu0→gpu1 has 4.5 GB/s instead of 10 GB/s for 2.0 s"


def both_ways(now, second_at):
    """The news of a cable that is halved at 1.0, of whose second direction that is heard later."""
    heard = [("gpu0", "gpu1", 1.0), ("gpu1", "gpu0", second_at)]
    return news_of(NET, [], [Sample(src, dst, CAPACITY, 5e9, at) for src, dst, at in heard], now, HOW)


def test_with_a_link_that_counts_those_count_that_have_differed_for_half_the_holding_time():
    assert both_ways(2.9, 1.9).overlay is None  # alone neither has differed for long enough
    assert [said["src"] for said in both_ways(3.0, 2.0).overlay] == ["gpu0", "gpu1"]
    late = both_ways(3.0, 2.1)
    assert ([said["src"] for said in late.overlay], late.again_at) == (["gpu0"], 4.1)


def test_a_difference_below_the_threshold_never_counts():
    assert news(100.0, (0.0, 8.1e9)).overlay is None
    assert news(100.0, (0.0, 8.1e9)).again_at == math.inf


def test_a_sample_as_planned_begins_the_holding_time_again():
    found = news(3.5, (1.0, 5e9), (2.0, 10e9), (3.0, 5e9))
    assert (found.overlay, found.again_at) == (None, 5.0)


def test_samples_on_both_sides_of_what_is_planned_do_not_count_together():
    values = [(0.0, 5.5e9), (1.0, 3e9), (1.5, 8e9)]  # in the median 5.5 GB/s, for which nobody has to plan anew
    found = news(3.4, *values, overlay=overlay(5.5e9))
    assert (found.overlay, found.again_at) == (None, 3.5)
    assert news(3.5, *values, overlay=overlay(5.5e9)).overlay == overlay(8e9)


def test_a_sample_between_release_and_threshold_changes_nothing():
    assert news(3.0, (1.0, 5e9), (2.0, 8.5e9)).overlay is not None  # 15 % off: below the threshold, above the release
    assert news(3.0, (1.0, 8.5e9), (2.0, 8.5e9)).overlay is None


def test_a_link_that_is_down_counts_at_once_and_comes_back_after_the_holding_time():
    found = news(1.0, (1.0, 0.0))
    assert found.overlay == overlay(0.0) and found.why == "telemetry: gpu0→gpu1 is down"
    assert news(2.0, (1.0, 0.0), (1.5, 10e9), overlay=overlay(0.0)).again_at == 3.5
    assert news(3.5, (1.0, 0.0), (1.5, 10e9), overlay=overlay(0.0)).overlay == []


def test_a_port_that_is_down_counts_at_once_and_one_that_is_up_says_nothing_of_a_slow_link():
    assert news(1.0, (1.0, 0.0), kind=UP).overlay == overlay(0.0)
    assert news(2.0, (1.0, 0.0), (1.5, 1.0), kind=UP, overlay=overlay(0.0)).again_at == 3.5
    assert news(3.5, (1.0, 0.0), (1.5, 1.0), kind=UP, overlay=overlay(0.0)).overlay == []
    assert news(9.0, (1.5, 1.0), kind=UP, overlay=overlay(0.0)).overlay == []  # what was said before is forgotten
    assert news(9.0, (1.5, 1.0), kind=UP, overlay=overlay(4e9)) == news(9.0, overlay=overlay(4e9))


def test_what_telemetry_has_changed_already_is_what_is_planned():
    assert news(100.0, (1.0, 4.5e9), overlay=overlay(4.5e9)).overlay is None
    assert news(100.0, (1.0, 2e9), overlay=overlay(4.5e9)).overlay == overlay(2e9)


def test_a_latency_counts_beyond_noise_and_what_was_carried_does_not():
    found = news(10.0, (1.0, 5e-3), kind=LATENCY)
    assert found.overlay == [{"src": "gpu0", "dst": "gpu1", "latency_s": 5e-3}]
    assert news(10.0, (1.0, 1.25e-3), kind=LATENCY).overlay is None
    assert news(10.0, (1.0, 1e6), kind=CARRIED).overlay is None
