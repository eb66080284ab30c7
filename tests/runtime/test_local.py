"""Runs on this machine: what keeps a process from running is said by its node."""

from __future__ import annotations

import os

import pytest

from networks import ring
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, PeerFailed
from stretto.planners import run_planner
from stretto.runtime.local import Place, run_local


def test_an_address_that_the_machine_does_not_have_is_said_by_its_node(capfd):
    net = ring(2)
    plan = run_planner("ring", net, Workload((make_collective("allgather", net, 2000),)))
    with pytest.raises(PeerFailed, match=r"gpu1: its process failed.*Cannot assign requested address"):
        run_local(plan, places={1: Place("192.0.2.1")})  # RFC 5737: an address for documentation
    assert "Traceback" not in capfd.readouterr().err


def test_processes_have_the_environment_of_their_run(monkeypatch):
    # the server that forks them has that of the first run
    net = ring(2)
    plan = run_planner("ring", net, Workload((make_collective("allgather", net, 2000),)))
    run_local(plan)
    monkeypatch.setenv("STRETTO_TEST_PLACE", "here")
    assert run_local(plan, places={1: Place(enter=_require_environment, argument="here")}).completion_s > 0
    with pytest.raises(InputError, match="STRETTO_TEST_PLACE is here"):
        run_local(plan, places={1: Place(enter=_require_environment, argument="there")})


def _require_environment(place):
    found = os.environ.get("STRETTO_TEST_PLACE")
    if found != place:
        raise InputError(f"STRETTO_TEST_PLACE is {found}", "environment")
