"""Runs on this machine: what keeps a process from running is said by its node."""

from __future__ import annotations

import pytest

from networks import ring
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import PeerFailed
from stretto.planners import run_planner
from stretto.runtime.local import Place, run_local


def test_an_address_that_the_machine_does_not_have_is_said_by_its_node(capfd):
    net = ring(2)
    plan = run_planner("ring", net, Workload((make_collective("allgather", net, 2000),)))
    with pytest.raises(PeerFailed, match=r"gpu1: its process failed.*Cannot assign requested address"):
        run_local(plan, places={1: Place("192.0.2.1")})  # RFC 5737: an address for documentation
    assert "Traceback" not in capfd.readouterr().err
