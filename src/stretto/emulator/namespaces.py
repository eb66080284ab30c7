"""A topology of network namespaces: one for each node, a veth pair for each cable, and the plan's routes.

It calls ip(8) and tc(8) in batches, which build ten nodes in a third of a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

from ..lower import FIRST_CIRCUIT, subflows
from ..model.errors import Unsupported
from ..model.plan import Plan
from ..model.topology import Topology
from ..runtime.local import Place
from ..runtime.mesh import mark
from . import fabric
from .shaping import (
    Rough,
    Shares,
    cables,
    has_netem,
    packet_bytes,
    reserved,
    shapes,
    train_bytes,
    wire_share,
)  # fmt: skip

PREFIX = "stretto-"
CONGESTION = "cubic"
"""TCP's congestion control, if the kernel has it: Linux's default."""
TABLES = 1000
"""Table number ``TABLES + v`` of a node's routes leads to node v."""
RECEIVE_BYTES = 1 << 22
"""A connection's receive buffer at first. With Linux's 128 KiB a sender must stop before its window has grown."""
_NEWNET = 0x40000000

RULES = 1000
"""Priority of the rules for a pair's packets; those of a further subflow come before."""

Hops = Mapping[tuple[int, int, int, int], int]
"""For a node, and the source, the destination and the subflow of a packet the next node."""


def refusal() -> str | None:
    """Why this machine cannot emulate a network; None if it can."""
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"emulation needs {tool}(8): apt-get install iproute2"
    if os.geteuid() != 0:
        return "emulation needs root: it makes network namespaces"
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
    return None if done.returncode == 0 else f"there are no network namespaces here: {done.stderr.strip()}"


def clean() -> list[str]:
    """Remove the namespaces of emulations whose process is gone, and the processes in them; returns their names."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.split("\n")
    names = [line.split()[0] for line in listed if line.startswith(PREFIX)]
    gone = [name for name in names if not os.path.exists(f"/proc/{name.split('-')[1]}") or name.startswith(_name(""))]
    for name in gone:
        # a namespace and its cables live as long as a process in it
        left = subprocess.run(["ip", "netns", "pids", name], check=False, capture_output=True, text=True).stdout
        for pid in {*map(int, left.split())} - {os.getpid()}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
    return gone


def network(plan: Plan) -> contextlib.AbstractContextManager[dict[int, Place]]:
    """The network of a plan: packets take the plan's routes and get its reserved shares; see :func:`built`."""
    return built(plan.topology, _hops_of(plan), reserved(plan), _circuits_of(plan))


@contextlib.contextmanager
def built(
    topology: Topology,
    hops: Hops | None = None,
    shares: Shares | None = None,
    circuits: Mapping[tuple[int, int], Collection[int]] | None = None,
    *,
    relayed: bool = False,
    rough: Mapping[tuple[int, int], Rough] | None = None,
) -> Iterator[dict[int, Place]]:
    """The place of each node's process, while the network exists.

    Args:
        relayed: on a kernel without netem, let a process delay the packets (:mod:`.relay`); without it nothing does.
        rough: for some cables, the lower node first, what else happens to packets there; that process does it.
        hops: the next nodes; by the fewest cables for destinations that are not in it. A pair has as many subflows
            as there are here, in both directions the same number.
        shares: for some links, shares that are reserved for the subflows from one node to another.
        circuits: for two nodes the subflows that go from the first to the second, or back, over optical planes.
    Raises:
        Unsupported: this machine cannot emulate, or the network changes with time.
    """
    reason = refusal()
    if reason is not None:
        raise Unsupported(reason)
    if topology.changes:
        raise Unsupported(
            "links of the emulator keep their bandwidth; simulate plans where bandwidths change with time"
        )
    clean()
    delayed = has_netem()
    guard = _guard()
    rough = rough or {}
    most = min((each.packet_bytes for each in rough.values() if each.packet_bytes), default=0)
    slow = [] if delayed or not relayed else [pair for pair in cables(topology) if max(_latencies(topology, *pair)) > 0]
    slow = sorted({*slow, *rough})
    relay = None
    topology = fabric.managed(topology) if topology.planes else topology
    numbers: dict[int, dict[int, set[int]]] = {v: {} for v in range(topology.node_count)}
    for _, source, to, subflow in hops or ():
        numbers[source].setdefault(to, {0}).update(range(subflow + 1))
    for (source, to), over in (circuits or {}).items():
        numbers[source].setdefault(to, {0}).update(over)
    try:
        _batch("ip", _build(topology, slow, most))
        relay = _relay(topology, slow, rough, most) if slow else None
        for v in range(topology.node_count):
            _batch("ip", _addresses(topology, v, most), _name(v))
        for v in range(topology.node_count):
            _batch("ip", _routes(topology, v, hops or {}), _name(v))
            _batch(
                "tc",
                [*shapes(topology, v, delayed, shares or {}, _address, most), *fabric.carry(topology, v, delayed)],
                _name(v),
            )
            settings = {
                "ip_forward": "1", "conf.all.rp_filter": "0", "tcp_rmem": f"4096 {RECEIVE_BYTES} {8 * RECEIVE_BYTES}",
            }  # fmt: skip
            settings |= fabric.settings_at(topology, v)
            sysctl = ["sysctl", "-qw", *(f"net.ipv4.{name}={value}" for name, value in settings.items())]
            subprocess.run(["ip", "netns", "exec", _name(v), *sysctl], check=True)
        yield {
            v: Place(_address(v), enter, _name(v), {w: sorted(each) for w, each in numbers[v].items()}, fabric.onto)
            for v in range(topology.node_count)
        }
    finally:
        if relay is not None:
            relay.communicate()
        clean()
        guard.communicate()


def _latencies(topology: Topology, a: int, b: int) -> tuple[float, float]:
    """Seconds from a to b and back; a missing direction carries only acknowledgements, as late as the other."""
    ends = zip(topology.src.tolist(), topology.dst.tolist(), strict=True)
    late = dict(zip(ends, topology.latency_s.tolist(), strict=True))
    there, back = late.get((a, b)), late.get((b, a))
    return there if there is not None else back or 0.0, back if back is not None else there or 0.0


def _relay(
    topology: Topology, slow: list[tuple[int, int]], rough: Mapping[tuple[int, int], Rough], most: int
) -> subprocess.Popen[str]:
    """Start the process that passes the frames of these cables; returns when their devices are there."""
    ends = []
    for a, b in slow:
        each = rough.get((a, b), Rough())
        cap = each.cap * wire_share(topology, most) if math.isfinite(each.cap) else 0.0
        treated = [each.loss, cap, each.seed]
        latencies = (0.0, 0.0) if has_netem() else _latencies(topology, a, b)
        ends.append([_name(a), f"to{b}", _name(b), f"to{a}", *latencies, *treated])
    program = [sys.executable, "-E", "-S", str(Path(__file__).with_name("relay.py"))]
    process = subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(ends) + "\n")
        process.stdin.flush()
    if not process.stdout.readline():
        reason = process.communicate()[1].strip().rpartition("\n")[2]
        raise Unsupported(f"the process that delays packets ended: {reason}")
    mtu = packet_bytes(topology, most)
    for name, device in {(end[i], end[i + 1]) for end in ends for i in (0, 2)}:
        _batch("ip", [f"link set {device} mtu {mtu}"], str(name))
    return process


def _guard() -> subprocess.Popen[bytes]:
    """Start a process that removes this emulation when its input closes, as it does even if this process is killed."""
    each = 'ip netns pids "$n" | xargs -r kill -9; ip netns delete "$n"'
    script = f'read x; for n in $(ip netns list | grep -o "^{PREFIX}{os.getpid()}-[0-9]*"); do {each}; done'
    script = f"exec >/dev/null 2>&1; {script}"
    return subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, start_new_session=True)


def enter(name: str) -> None:
    """Move the calling thread into a namespace, where the sockets that it opens then are."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        if libc.setns(handle, _NEWNET):
            raise OSError(ctypes.get_errno(), f"setns to {name}")
    finally:
        os.close(handle)


def _name(node: int | str) -> str:
    return f"{PREFIX}{os.getpid()}-{node}"


def _address(node: int) -> str:
    return f"10.255.{node >> 8}.{node & 255}"


def _build(topology: Topology, slow: list[tuple[int, int]], most: int) -> list[str]:
    """Make the namespaces, and veth pairs whose ends are named after the node at the other end. Cables that are
    ``slow`` are left out: the process that delays their packets makes them."""
    lines = [f"netns add {_name(v)}" for v in range(topology.node_count)]
    mtu = packet_bytes(topology, most)
    for a, b in sorted({*cables(topology)} - {*slow}):
        peer = f"peer name to{a} netns {_name(b)} mtu {mtu}"
        lines.append(f"link add to{b} netns {_name(a)} mtu {mtu} type veth {peer}")
    return [*lines, *fabric.ports(topology, _name, mtu)]


def _addresses(topology: Topology, v: int, most: int) -> list[str]:
    ends = [b if v == a else a for a, b in cables(topology) if v in (a, b)]
    train = train_bytes(topology, most)
    # libraries such as gloo ask lo for its address, and must not get 127.0.0.1
    loopback = ["link set lo up", "address delete 127.0.0.1/8 dev lo", f"address add {_address(v)}/32 dev lo"]
    return [*loopback, *(f"link set to{w} gso_max_size {train} up" for w in ends), *fabric.commands_at(topology, v)]


def _circuits_of(plan: Plan) -> dict[tuple[int, int], set[int]]:
    """For two nodes, in either order, the subflows between them that go over optical planes."""
    circuits: dict[tuple[int, int], set[int]] = {}
    for k, subflow in enumerate(subflows(plan).tolist()):
        if subflow >= FIRST_CIRCUIT:
            a, b = int(plan.src[k]), int(plan.dst[k][0])
            for pair in ((a, b), (b, a)):
                circuits.setdefault(pair, set()).add(subflow)
    return circuits


def _hops_of(plan: Plan) -> Hops:
    """The next nodes on the routes of transfers to one receiver. Acknowledgements go back the same way, unless the plan
    has a route there."""
    src, dst = plan.topology.src, plan.topology.dst
    routes: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for k, subflow in enumerate(subflows(plan).tolist()):
        if len(plan.dst[k]) == 1 and subflow < FIRST_CIRCUIT:
            links = plan.route[k]
            packets = int(plan.src[k]), int(plan.dst[k][0]), subflow
            routes.setdefault(packets, list(zip(src[links].tolist(), dst[links].tolist(), strict=True)))
    back = {
        (to, source, subflow): [(b, a) for a, b in route]
        for (source, to, subflow), route in routes.items()
        if (to, source, subflow) not in routes
    }
    return {(a, *packets): b for packets, route in (*back.items(), *routes.items()) for a, b in route}


def _routes(topology: Topology, v: int, hops: Hops) -> list[str]:
    """Set the routes from one node to every other, and rules for packets that leave another way."""
    near: dict[int, list[int]] = {w: [] for w in range(topology.node_count)}
    for a, b in cables(topology):
        near[a].append(b)
        near[b].append(a)
    first = {w: w for w in near[v]}
    queue = list(first)
    for at in queue:
        further = [w for w in near[at] if w != v and w not in first]
        first |= dict.fromkeys(further, first[at])
        queue += further
    here = {(source, to, subflow): hop for (at, source, to, subflow), hop in hops.items() if at == v}
    first.update({to: hop for (_, to, _), hop in here.items()})
    lines = [
        f"route add {_address(to)}/32 via {_address(hop)} dev to{hop} onlink src {_address(v)}{_congestion()}"
        for to, hop in sorted(first.items())
    ]
    # packets of a further subflow would follow the rule for their pair
    others = {packets: hop for packets, hop in here.items() if packets[2] or hop != first[packets[1]]}
    for hop in sorted({*others.values()}):
        lines.append(f"route add default via {_address(hop)} dev to{hop} onlink table {TABLES + hop}{_congestion()}")
    for (source, to, subflow), hop in sorted(others.items()):
        packets = f"from {_address(source)}/32 to {_address(to)}/32 tos {mark(subflow):#x}"
        lines.append(f"rule add {packets} lookup {TABLES + hop} priority {RULES - subflow}")
    return lines


@cache
def _congestion() -> str:
    """Route attributes that fix TCP's congestion control, whatever the machine's default is. BBR, which takes delay for
    congestion, loses seconds on a token bucket when a receiver pauses."""
    with open("/proc/sys/net/ipv4/tcp_available_congestion_control") as file:
        return f" congctl {CONGESTION}" if CONGESTION in file.read().split() else ""


def _batch(tool: str, lines: list[str], namespace: str | None = None) -> None:
    where = ["-n", namespace] if namespace else []
    done = subprocess.run([tool, *where, "-batch", "-"], input="\n".join(lines), capture_output=True, text=True)
    if done.returncode:
        raise Unsupported(f"{tool} could not build the network: {done.stderr.strip()}")
