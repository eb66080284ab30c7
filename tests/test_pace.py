"""Time limits of work in stages."""

from __future__ import annotations

import math

import pytest

from stretto.schedule import budget as module
from stretto.schedule.budget import Pace


@pytest.fixture
def now(monkeypatch):
    """CPU seconds, to be set."""
    at = [0.0]
    monkeypatch.setattr(module, "clock", lambda: at[0])
    return at


def test_what_would_not_end_in_time_is_not_allowed(now):
    pace = Pace.within(1.0, {"match": 0.01, "order": 0.1})
    assert pace.allows(match=100)
    assert not pace.allows(match=101)
    assert not pace.allows(match=60, order=5)
    now[0] = 0.5
    assert not pace.allows(match=51)
    assert pace.room("match") == pytest.approx(50)
    assert not pace.late
    now[0] = 1.1
    assert pace.late
    assert pace.room("match") == 0


def test_what_was_measured_counts_more_than_what_is_typical(now):
    pace = Pace.within(1.0, {"match": 0.01})
    with pace.measured("match", 10):
        now[0] = 0.2
    assert pace.allows(match=40)
    assert not pace.allows(match=41)


def test_without_a_limit_all_is_allowed(now):
    pace = Pace.within(None, {"match": 0.01})
    now[0] = 1e9
    assert pace.allows(match=1e9)
    assert math.isinf(pace.room("match"))
