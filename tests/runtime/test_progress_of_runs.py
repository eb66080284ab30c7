"""What a run on this machine says while it goes on: how many of the transfers have arrived."""

from __future__ import annotations

from multiprocessing import Pipe

import pytest

import stretto as st
from stretto.lower import lower
from stretto.model.errors import PeerFailed
from stretto.runtime import local
from stretto.runtime.recorded import Trace

AFTER = {1: [(0, local._Arrived(2))], 2: [(0, "a"), (1, "b"), (2, "c")]}
"""What processes send once this number of things has been told."""


@pytest.fixture(scope="module")
def plan():
    return st.plan("allgather", "ring:3", "3KB", planner="ring")


def test_arrivals_are_counted_of_all_until_every_process_has_ended(plan):
    pipes, ends = {}, {}
    for node in range(3):
        pipes[node], ends[node] = Pipe()
    told = []

    def progress(done, total, what):
        told.append((done, total, what))
        for node, message in AFTER.get(len(told), ()):
            ends[node].send(message)

    assert local._gather(plan, pipes, 5.0, progress, "sending") == {0: "a", 1: "b", 2: "c"}
    assert told[0] == (0, 0, "sending, 0 of 3 processes done")  # no transfer has arrived
    assert told[-1] == (2, 6, "sending")


def test_parts_that_processes_do_at_the_same_time_are_counted_in_words_so_that_no_time_left_is_said(plan):
    """The first of four was said to leave three times as long, when all were nearly done."""
    pipes, ends = {}, {}
    for node in range(3):
        pipes[node], ends[node] = Pipe()
    told = []

    def progress(done, total, what):
        ends[len(told)].send("ready") if len(told) < 3 else None
        told.append((done, total, what))

    local._gather(plan, pipes, 5.0, progress, "connecting and making test data")
    assert told == [(0, 0, f"connecting and making test data, {k} of 3 processes done") for k in range(4)]


def test_a_node_says_how_many_transfers_have_arrived_there(plan, monkeypatch):
    monkeypatch.setattr(local, "TELL_S", 0.0)
    program = lower(plan)[0]
    first, *_ = program.steps.receives
    ours, theirs = Pipe()
    trace = Trace(arrived_s={first: 0.5, -1: 0.1})  # and something that happened elsewhere
    with local._telling(theirs, program, trace):
        assert ours.recv() == local._Arrived(1)
        trace.arrived_s.update(dict.fromkeys(program.steps.receives, 1.0))
        assert ours.recv() == local._Arrived(2)


def test_a_process_that_is_silent_for_too_long_is_named_with_what_would_help(plan):
    ours, theirs = Pipe()
    with pytest.raises(PeerFailed, match=r"has not answered for 0\.01 s, which a longer timeout allows"):
        local._gather(plan, {0: ours}, 0.01, lambda *_: None, "waiting")
    theirs.close()
