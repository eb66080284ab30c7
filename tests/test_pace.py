"""Time limits of work in stages."""

from __future__ import annotations

import math

import pytest

from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.planners.auto import NO_TIME
from stretto.schedule import budget as module
from stretto.schedule.budget import Pace
from stretto.topologies import load_topology


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


def test_a_slow_candidate_is_not_begun_in_little_time():
    net = load_topology("mesh:6x6")
    work = Workload((make_collective("allreduce", net, shard_bytes=1000),))
    tried = {t["planner"]: t.get("refused") for t in run_planner("auto", net, work, time_limit_s=0.0).meta["tried"]}
    assert tried["greedy"] is None
    assert tried["forest"] == tried["nccl-tree"] == NO_TIME
