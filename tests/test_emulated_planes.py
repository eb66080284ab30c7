"""Optical planes in network namespaces: bytes pass where a circuit is up, and nowhere else."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from typer.testing import CliRunner

from stretto import emulator
from stretto.cli import app
from stretto.emulator.fabric import FabricSwitch, onto
from stretto.model.circuits import change
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.planners import run_planner
from stretto.runtime.local import run_local
from stretto.runtime.switches import SwitchFailed
from stretto.simulate import simulate
from stretto.topologies import load_topology

NEEDS_NAMESPACES = pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal()))


def test_a_machine_without_namespaces_is_told_so(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(Unsupported, match=r"root|iproute2"), emulator.built(load_topology("optical:4,2")):
        pass


def test_circuits_count_as_links_where_a_machine_can_fill_few():
    net = load_topology("optical:4,2?bandwidth=800MB/s")
    # eight circuits of 400 MB/s at most, and 20 MB/s for each
    assert emulator.fitting_scale(net) >= 20.0
    plan = run_planner("rabenseifner+swot", net, Workload((make_collective("allreduce", net, 40_000),)))
    small = emulator.scaled(plan, emulator.Scaling(20.0, 2.0))
    assert small.topology.planes[0].bandwidth == 20e6
    assert small.topology.planes[0].reconfiguration_s == pytest.approx(2e-3)
    assert small.turns.start_s == pytest.approx(10 * plan.turns.start_s)
    assert simulate(small).completion_s == pytest.approx(10 * simulate(plan).completion_s)


def in_namespace(name: str) -> socket.socket:
    """A socket for datagrams inside a namespace."""

    def made() -> socket.socket:
        emulator.enter(name)
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(made).result()


@pytest.fixture
def places():
    with emulator.built(load_topology("optical:4,2?bandwidth=20MB/s&latency=0us&initial=xor1")) as made:
        yield made


class Ends:
    """A sender on plane 0 of node 0, and a receiver of everything at two other nodes."""

    def __init__(self, places) -> None:
        self.over_plane, self.managed = in_namespace(places[0].argument), in_namespace(places[0].argument)
        onto(self.over_plane, 0)
        self.at = {v: in_namespace(places[v].argument) for v in (1, 2)}
        for v, sock in self.at.items():
            sock.bind((places[v].host, 0))
            sock.settimeout(20)

    def passes(self, to: int) -> bool:
        """Whether a datagram passes over the plane to a node: it comes before one that is sent later by the management
        network, which always passes."""
        self.over_plane.sendto(b"over the plane", self.at[to].getsockname())
        self.managed.sendto(b"managed", self.at[to].getsockname())
        came = self.at[to].recv(100)
        if came == b"over the plane":
            assert self.at[to].recv(100) == b"managed"
        return came == b"over the plane"

    def close(self) -> None:
        for sock in (self.over_plane, self.managed, *self.at.values()):
            sock.close()


@NEEDS_NAMESPACES
def test_bytes_pass_only_where_a_circuit_is_up(places):
    ends = Ends(places)
    switch = FabricSwitch(places[4].argument, [[0, 1, 2, 3]] * 2)
    first, second = np.array([1, 0, 3, 2]), np.array([2, 3, 0, 1])
    assert ends.passes(1)  # the circuits with which the network begins
    assert not ends.passes(2)
    switch.turn(0, change(first, second), 0.0)
    assert not ends.passes(1)
    assert ends.passes(2)
    switch.turn(1, change(first, second), 0.0)  # the other plane
    assert ends.passes(2)
    switch.turn(0, change(second, np.array([-1, 3, 1, -1])), 0.0)
    assert not ends.passes(1)
    assert not ends.passes(2)
    switch.turn(0, change(np.array([-1, 3, 1, -1]), first), 0.0)
    assert ends.passes(1)
    ends.close()


@NEEDS_NAMESPACES
def test_nothing_passes_while_a_plane_turns(places):
    ends = Ends(places)
    broken = threading.Event()

    class Slow(FabricSwitch):
        def _ip(self, lines):
            super()._ip(lines)
            broken.set()

    switch, first, second = Slow(places[4].argument, [[0, 1, 2, 3]] * 2), [1, 0, 3, 2], [2, 3, 0, 1]
    with ThreadPoolExecutor(1) as pool:
        turning = pool.submit(switch.turn, 0, change(np.array(first), np.array(second)), 600.0)
        assert broken.wait(20)
        assert not ends.passes(1)
        assert not ends.passes(2)
        switch.close()
        with pytest.raises(SwitchFailed, match="it was closed while it turned"):
            turning.result()
    assert not ends.passes(2)
    FabricSwitch(places[4].argument, [[0, 1, 2, 3]] * 2).turn(0, change(np.full(4, -1), np.array(first)), 0.0)
    assert ends.passes(1)
    with pytest.raises(SwitchFailed, match="ip could not join its ports"):
        FabricSwitch(places[4].argument, [[0, 1, 2, 9]]).turn(0, change(np.full(4, -1), np.array(second)), 0.0)
    ends.close()


@NEEDS_NAMESPACES
def test_a_plan_moves_its_bytes_over_the_planes_that_it_names():
    net = load_topology("optical:4,2?bandwidth=16MB/s&latency=0us&initial=xor1&reconfiguration=30ms")
    plan = run_planner("rabenseifner+swot", net, Workload((make_collective("allreduce", net, 1_000_000),)))
    assert plan.turns.count
    with emulator.network(plan) as places:
        switch = partial(FabricSwitch, places[4].argument, [p.nodes.tolist() for p in net.planes])
        outcome = run_local(plan, places=places, pace=1.0, timeout_s=30, switch=switch)
        sent = {(v, p): sent_bytes(places[v].argument, f"plane{p}") for v in range(4) for p in range(2)}
        managed = sum(sent_bytes(places[v].argument, "to4") for v in range(4))
    assert outcome.wrong == []
    assert outcome.off_circuits == []
    assert len(outcome.turns) == plan.turns.count
    assert outcome.completion_s > 0.9 * simulate(plan).completion_s  # shaped, and turned
    for (v, p), count in sent.items():
        payload = int(plan.size_bytes[(plan.src == v) & (plan.plane == p)].sum())
        assert payload <= count < 1.1 * payload + 20_000
    assert managed < 0.1 * plan.size_bytes.sum()  # signals and acknowledgements


def sent_bytes(namespace: str, device: str) -> int:
    command = ["ip", "-n", namespace, "-s", "-j", "link", "show", "dev", device]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(json.loads(said)[0]["stats64"]["tx"]["bytes"])


@NEEDS_NAMESPACES
def test_the_command_line_emulates_planes_and_writes_what_they_did(tmp_path):
    plan, trace = str(tmp_path / "plan.parquet"), tmp_path / "run.json"
    spec = "optical:4,2?initial=xor1&latency=0us&bandwidth=16MB/s&reconfiguration=30ms"
    made = CliRunner().invoke(
        app, ["plan", "allreduce", "-t", spec, "--size", "400KB", "-p", "rabenseifner+swot", "-o", plan]
    )
    assert made.exit_code == 0, made.output
    command = ["emulate", plan, "--scale", "1", "--shrink", "1", "--trace", str(trace), "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["correct"]
    assert said["circuits"]["off_circuits"] == []
    assert said["circuits"]["turns"] > 0
    assert said["circuits"]["turning_s"] >= 0.03 * said["circuits"]["turns"]
    assert 0.9 < said["measured_over_simulated"] < 5
    events = json.loads(trace.read_text())["traceEvents"]
    turns = [e for e in events if e["name"] == "turns" and e["pid"] == 1]
    assert len(turns) == said["circuits"]["turns"]
    assert all(e["dur"] >= 0.03e6 for e in turns)
