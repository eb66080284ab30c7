"""Plans in network namespaces, where this machine lets tests make them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from flows import over_routers
from networks import ring
from stretto import emulator
from stretto.cli import app
from stretto.emulator.shaping import has_htb, packet_bytes, reserved, shapes, wire_share
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.demand import alltoallv
from stretto.model.plan import Plan, make_plan
from stretto.model.targets import MESSAGE_S
from stretto.model.topology import ACCELERATOR, ROUTER, SWITCH, make_topology
from stretto.planners import run_planner
from stretto.runtime.local import run_local
from stretto.simulate import simulate
from stretto.topologies import load_topology

NEEDS_NAMESPACES = pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal()))


@NEEDS_NAMESPACES
def test_a_plan_moves_its_bytes_over_shaped_links():
    net = ring(3, bandwidth=4e6, latency_s=0.0)
    plan = run_planner("scale-ccl", net, Workload((make_collective("allgather", net, 2_400_000),)))
    with emulator.network(plan) as places:
        outcome = run_local(plan, places=places, timeout_s=30)
    assert outcome.wrong == []
    assert outcome.completion_s > 0.8 * simulate(plan).completion_s  # shaped, and not loopback
    assert (
        f"{emulator.PREFIX}{os.getpid()}-" not in subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
    )


@NEEDS_NAMESPACES
def test_packets_to_one_node_take_the_routes_of_their_sources():
    joined = [(0, 2), (1, 2), (2, 3), (2, 4), (3, 4)]
    links = [(a, b, 4e6, 0.0) for pair in joined for a, b in (pair, pair[::-1])]
    net = make_topology("two ways", [ACCELERATOR, ACCELERATOR, SWITCH, SWITCH, ACCELERATOR], links)
    at = {(a, b): i for i, (a, b, _, _) in enumerate(links)}
    work = Workload((alltoallv(net, [[0, 0, 100], [0, 0, 100], [0, 0, 0]]),))
    plan = make_plan(
        net, work, "ready-order", chunk=[0, 1], src=[0, 1], op=[0, 0], dst=Ragged.single([4, 4]),
        route=Ragged.of([[at[0, 2], at[2, 4]], [at[1, 2], at[2, 3], at[3, 4]]]), depends=Ragged.of([[], []]),
    )  # fmt: skip
    with emulator.network(plan) as places:
        addresses = {v: place.host for v, place in places.items()}
        for source, hop in ((0, 4), (1, 3)):
            ask = f"ip -n {places[2].argument} route get {addresses[4]} from {addresses[source]} iif to{source}"
            assert f"dev to{hop} " in subprocess.run(ask.split(), capture_output=True, text=True, check=True).stdout


@NEEDS_NAMESPACES
@pytest.mark.parametrize("sharing", ["ready-order", "weights"])
def test_bytes_from_one_node_to_another_take_both_routes_of_the_plan(sharing):
    routers, chunk = [3, 2, 2, 3, 2, 2, 3, 2], 100_000
    plan = over_routers(routers, chunk)
    if sharing == "weights":
        plan = replace(plan, sharing="weights", weight=np.ones(8), group=np.arange(8, dtype=np.int32))
    with emulator.network(plan) as places:
        outcome = run_local(plan, places=places, timeout_s=30)
        assert outcome.wrong == []
        for router in (2, 3):
            ask = ["ip", "-n", places[router].argument, "-j", "-s", "link", "show", "to0"]
            shown = json.loads(subprocess.run(ask, check=True, capture_output=True, text=True).stdout)
            assert shown[0]["stats64"]["rx"]["bytes"] == pytest.approx(routers.count(router) * chunk, rel=0.1)
        # the first chunk's subflow is marked 0; acknowledgements go back the way of their subflow
        for mark, router in (("0x0", 3), ("0x4", 2)):
            ask = f"ip -n {places[1].argument} route get {places[0].host} from {places[1].host} tos {mark}"
            assert f"dev to{router} " in subprocess.run(ask.split(), capture_output=True, text=True, check=True).stdout


@NEEDS_NAMESPACES
def test_fewer_bytes_over_slower_links_take_the_time_of_the_plan():
    net = load_topology("ring:3?bandwidth=4GB/s&latency=0s")
    plan = run_planner("ring", net, Workload((make_collective("allgather", net, 2_400_000_000),)))
    run = emulator.emulate(plan, emulator.Scaling(1000.0, 1000.0), timeout_s=30)
    assert run.outcome.wrong == []
    assert run.simulated_s == pytest.approx(simulate(plan).completion_s + 2 * MESSAGE_S)  # two steps
    assert run.plan.size_bytes.tolist() == [800_000] * plan.transfer_count
    assert run.outcome.completion_s > 0.8 * run.simulated_s


@NEEDS_NAMESPACES
def test_links_are_shared_by_the_same_tcp_on_every_machine():
    offered = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    with emulator.built(ring(3)) as places:
        shown = subprocess.run(["ip", "-n", places[0].argument, "route"], check=True, capture_output=True, text=True)
    routes = shown.stdout.splitlines()
    assert len(routes) == 2
    assert all(("congctl cubic" in route) == ("cubic" in offered) for route in routes)


def two_groups(size: int) -> Plan:
    """Two broadcasts, 0 to 4 and 1 to 5, share the link between two routers by weights 3 and 1."""
    ends = [(0, 2), (1, 2), (2, 3), (3, 4), (3, 5)]
    links = [(a, b, 4e6, 0.0) for x, y in ends for a, b in ((x, y), (y, x))]
    kinds = [ACCELERATOR, ACCELERATOR, ROUTER, ROUTER, ACCELERATOR, ACCELERATOR]
    net = make_topology("two routers", kinds, links)
    work = Workload(tuple(make_collective("broadcast", net, size, ranks=pair, root=0) for pair in ([0, 4], [1, 5])))
    at = {(a, b): i for i, (a, b) in enumerate(zip(net.src.tolist(), net.dst.tolist()))}
    routes = [[at[a, 2], at[2, 3], at[3, b]] for a, b in ((0, 4), (1, 5))]
    return make_plan(
        net, work, "weights", chunk=[0, 1], src=[0, 1], dst=Ragged.single([4, 5]), route=Ragged.of(routes),
        depends=Ragged.of([[], []]), weight=np.array([3.0, 1.0]), group=np.array([0, 1], np.int32),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("bandwidth", "packet", "wire"), [(1e5, 1500, 1514 / 1448), (1e6, 5000, 5014 / 4948), (1e9, 9000, 9014 / 8948)]
)
def test_packets_are_as_large_as_the_slowest_link_allows(bandwidth, packet, wire):
    net = ring(3, bandwidth=bandwidth)
    assert packet_bytes(net) == packet
    assert wire_share(net) == pytest.approx(wire)


@pytest.mark.skipif(not has_htb(), reason="the kernel has no htb, or lets nobody make namespaces")
def test_weights_are_classes_of_a_link_whose_rates_make_it_whole():
    plan = two_groups(1000)
    shares = reserved(plan)
    shared = next(i for i, own in shares.items() if len(own) == 2)
    assert shares[shared] == {(0, 4, 0): 0.75, (1, 5, 0): 0.25}
    lines = shapes(plan.topology, 2, False, shares, "node{}".format)
    classes = [line.split() for line in lines if line.startswith("class add dev to3 parent 1:1")]
    rates = {c[c.index("classid") + 1]: int(c[c.index("rate") + 1].removesuffix("bit")) for c in classes}
    assert rates["1:3"] == pytest.approx(3 * rates["1:4"], rel=1e-6)
    assert rates["1:3"] + rates["1:4"] == pytest.approx(4e6 * 8 * wire_share(plan.topology), rel=1e-6)
    packets = "match ip src node1/32 match ip dst node5/32 match ip tos 0x0 0x1c"
    assert f"filter add dev to3 parent 1: protocol ip prio 1 u32 {packets} flowid 1:4" in lines


@pytest.mark.skipif(not has_htb(), reason="the kernel has no htb, or lets nobody make namespaces")
def test_weights_count_for_each_subflow_of_a_pair():
    plan = over_routers([2, 3], 1000)
    plan = replace(plan, sharing="weights", weight=np.array([3.0, 1.0]), group=np.array([0, 1], np.int32))
    shares = reserved(plan)
    assert sorted(packets for own in shares.values() for packets in own) == [(0, 1, 0)] * 2 + [(0, 1, 1)] * 2
    filters = [line for line in shapes(plan.topology, 0, False, shares, str) if line.startswith("filter add dev to3")]
    assert ["tos 0x4 0x1c" in line for line in filters] == [True]


@NEEDS_NAMESPACES
@pytest.mark.skipif(not has_htb(), reason="the kernel has no htb")
def test_the_network_alone_divides_a_link_by_weight():
    plan = two_groups(1_500_000)
    with emulator.network(plan) as places:
        outcome = run_local(plan, places=places, timeout_s=30)  # unpaced
    assert outcome.wrong == []
    first, second = outcome.traces[4].arrived_s[0], outcome.traces[5].arrived_s[1]
    assert second > 2 * first  # equal shares would end together


@NEEDS_NAMESPACES
@pytest.mark.parametrize("guarded", [True, False], ids=["by its guard", "by the next --clean"])
def test_what_a_killed_emulation_leaves_is_removed(guarded, tmp_path):
    stretto = [sys.executable, "-m", "stretto.cli"]
    path = tmp_path / "p.json"
    plan = ["plan", "allgather", "-t", "ring:3?bandwidth=1MB/s", "--size", "300MB", "-p", "ring", "-o", path]
    subprocess.run([*stretto, *plan], check=True, capture_output=True)
    child = subprocess.Popen([*stretto, "emulate", path, "--scale", "1"])
    names = [f"{emulator.PREFIX}{child.pid}-{v}" for v in range(3)]
    inodes: set[int] = set()
    while len(living_in(inodes)) < 3:  # until a process is in each
        assert child.poll() is None
        inodes = {os.stat(path).st_ino for path in (f"/run/netns/{name}" for name in names) if os.path.exists(path)}
    guard = next(pid for pid in children_of(child.pid) if program_of(pid) == "sh")
    gone = os.pidfd_open(guard)
    if not guarded:
        os.kill(guard, signal.SIGKILL)
    child.kill()
    child.wait()
    assert select.select([gone], [], [], 60)[0]
    os.close(gone)
    ended = time.monotonic() + 30
    if not guarded:  # what another test emulates meanwhile begins by this, too: who removes which is left open
        subprocess.run([*stretto, "emulate", "--clean"], check=True, capture_output=True)
        while any(os.path.exists(f"/run/netns/{name}") for name in names) and time.monotonic() < ended:
            pass  # the other one may be at it
    assert not [name for name in names if os.path.exists(f"/run/netns/{name}")]
    while living_in(inodes) and time.monotonic() < ended:  # killed, and not yet gone
        pass
    assert living_in(inodes) == []  # so the kernel has dropped the namespaces, and their cables


@NEEDS_NAMESPACES
def test_clean_names_what_it_removed_and_spares_the_living(monkeypatch):
    monkeypatch.setattr(emulator.namespaces, "PREFIX", "strettotest-")  # what nobody else removes meanwhile
    ended = subprocess.Popen(["true"])
    ended.wait()
    left, kept = f"strettotest-{ended.pid}-0", f"strettotest-{os.getppid()}-0"
    try:
        for name in (left, kept):
            subprocess.run(["ip", "netns", "add", name], check=True)
        cleaned = CliRunner().invoke(app, ["emulate", "--clean", "--json"])
        assert json.loads(cleaned.stdout) == {"removed": [left]}
        assert [os.path.exists(f"/run/netns/{name}") for name in (left, kept)] == [False, True]
    finally:
        subprocess.run(["ip", "netns", "delete", kept], check=True)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def program_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # it has ended meanwhile
        return ""


def living_in(inodes: set[int]) -> list[str]:
    """The processes in some of these namespaces."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}/ns/net").st_ino in inodes:
                found.append(pid)
        except OSError:
            continue
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("os.setuid(65534)", "emulation needs root: it makes network namespaces"),
        ("ctypes.CDLL(None).prctl(24, 21)", "there are no network namespaces here: unshare: unshare failed"),
        ("os.environ['PATH'] = ''", "emulation needs ip(8): apt-get install iproute2"),
    ],
    ids=["nobody", "without CAP_SYS_ADMIN", "without iproute2"],
)
def test_where_there_are_no_namespaces_that_is_said(before, said):
    program = f"import ctypes, os\nfrom stretto import emulator\n{before}\nprint(emulator.refusal())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(said), done.stdout
