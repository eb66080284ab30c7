"""Plans in network namespaces, where this machine lets tests make them."""

from __future__ import annotations

import os
import subprocess

import pytest

from networks import ring
from stretto import emulator
from stretto.collective import Workload, make_collective
from stretto.errors import Unsupported
from stretto.planners import run_planner
from stretto.runtime.local import run_local
from stretto.simulate import simulate
from stretto.topologies import load_topology


def test_optical_planes_or_a_machine_without_namespaces_are_refused():
    net = load_topology("optical:4,2")
    plan = run_planner("swot", net, Workload((make_collective("allreduce", net, 4096),)))
    with pytest.raises(Unsupported, match=r"planes|root|namespaces|iproute2"), emulator.network(plan, 1.0):
        pass


def test_planes_have_a_scale_so_that_the_emulator_can_refuse_them():
    assert emulator.fitting_scale(load_topology("optical:4,2")) == 1.0


@pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal()))
def test_a_plan_moves_its_bytes_over_shaped_links():
    net = ring(3, bandwidth=4e6, latency_s=0.0)
    plan = run_planner("scale-ccl", net, Workload((make_collective("allgather", net, 2_400_000),)))
    with emulator.network(plan, 1.0) as places:
        outcome = run_local(plan, places=places, timeout_s=30)
    assert outcome.wrong == []
    assert outcome.completion_s > 0.8 * simulate(plan).completion_s  # shaped, and not loopback
    assert (
        f"{emulator.PREFIX}{os.getpid()}-" not in subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
    )
