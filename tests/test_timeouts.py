"""What a run on one machine takes, said before it begins: memory for its bytes, and a timeout that grows with them."""

from __future__ import annotations

import sys

import pytest

import stretto as st
from stretto import cli
from stretto.cli import timeouts
from stretto.model import memory
from stretto.model.errors import InputError
from stretto.runtime import local

GB = 10**9


@pytest.fixture(scope="module")
def plan():
    return st.plan("allgather", "ring:4", "8GB", planner="ring")


def test_the_bytes_of_a_run_are_what_ranks_hold_and_what_they_must_end_with(plan):
    assert timeouts.data_bytes(plan) == 8 * GB + 4 * 8 * GB


def test_a_run_that_does_not_fit_into_memory_is_refused_before_it_begins(plan, monkeypatch):
    monkeypatch.setattr(memory, "machine_bytes", lambda: 24 * GB)
    with pytest.raises(
        InputError, match=r"--size: .* 4 processes need 40\.12 GB of memory, and this machine has 24 GB"
    ):
        timeouts.check_memory(plan, 1.0, "--size")
    timeouts.check_memory(plan, 2.0, "--size")  # an emulation with sizes divided by two


def test_a_limit_of_each_process_is_none_of_all_processes_together(plan, monkeypatch):
    monkeypatch.setattr(memory, "machine_bytes", lambda: 64 * GB)
    monkeypatch.setattr(memory, "memory_bytes", lambda: 24 * GB)  # as of `ulimit -v`
    timeouts.check_memory(plan, 1.0, "--size")


def test_the_timeout_grows_with_the_bytes_and_with_the_time_that_a_run_keeps(plan):
    small = st.plan("allgather", "ring:4", "8MB", planner="ring")
    assert timeouts.timeout_s(small, 0.0) == timeouts.LEAST_S
    of_bytes_s = timeouts.MARGIN * (40 + 24) * GB / timeouts.RUN_BPS  # each of three ranks receives every share
    assert timeouts.timeout_s(plan, 0.0) == of_bytes_s
    assert timeouts.timeout_s(plan, 100.0, shrink=4.0) == of_bytes_s / 4 + 400.0


def timeout_of(words: str, monkeypatch) -> float:
    """The timeout of the run that a command line asks for."""
    given = {}
    monkeypatch.setattr(local, "run_local", lambda plan, **how: given.update(how) or sys.exit(9))
    monkeypatch.setattr(sys, "argv", f"stretto run allgather -t ring:4 --size 8MB -p ring {words}".split())
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 9
    return given["timeout_s"]


def test_a_run_that_keeps_the_times_of_a_long_plan_has_time_for_it(monkeypatch):
    assert timeout_of("", monkeypatch) == timeouts.LEAST_S
    assert timeout_of("--timeout 7", monkeypatch) == 7.0
    plan_s = st.plan("allgather", "ring:4", "8MB", planner="ring").simulate().completion_s
    assert timeout_of("--paced 1e6", monkeypatch) == pytest.approx(timeouts.MARGIN * 1e6 * plan_s, rel=0.05)


def test_more_processes_than_one_machine_may_run_are_left_to_the_run_to_refuse(monkeypatch):
    monkeypatch.setattr(memory, "machine_bytes", lambda: GB)
    many = st.plan("allreduce", "h100:64", "1MB", planner="ring")
    assert (timeouts.data_bytes(many), timeouts.timeout_s(many, 0.0)) == (0.0, timeouts.LEAST_S)
    timeouts.check_memory(many, 1.0, "--size")
