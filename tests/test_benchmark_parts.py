"""What benchmarks take from elsewhere is there: functions that they replace or time, and certificates of tests."""

from __future__ import annotations

import importlib

import pytest

import frames
from ablation import PARTS as PARTS_OF_PLANNERS
from ablation import owner_of
from call_parts import PARTS as PARTS_OF_CALLS
from call_parts import holder_of
from stretto.planners.registry import find


@pytest.mark.parametrize(("module", "name"), [part[1:] for part in PARTS_OF_CALLS], ids=str)
def test_a_timed_part_of_a_call_is_a_function(module, name):
    if ".torch." in module:
        pytest.importorskip("torch")
    holder, last = holder_of(importlib.import_module(module), name)
    assert last in vars(holder)


@pytest.mark.parametrize("part", PARTS_OF_PLANNERS)
def test_a_part_of_a_planner_that_is_left_out_is_there(part):
    target, by = PARTS_OF_PLANNERS[part]
    if by is None:
        assert find(target).auto is not None
    else:
        owner, name = owner_of(target)
        assert name in vars(owner)


def test_a_handshake_is_timed_with_every_way_to_protect_a_connection(monkeypatch):
    monkeypatch.setattr(frames, "HANDSHAKES", 1)
    assert all(
        frames.handshake_s(credentials) > 0 for way, credentials in frames.kinds().items() if way != "authenticated"
    )
