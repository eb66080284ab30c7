"""The plan's network on this machine: a namespace a node, a veth pair a cable, every direction shaped.

It calls ip(8) and tc(8), whose batches build ten nodes in a third of a second. Bandwidths are divided by one
declared factor and delays multiplied by it. Delays are netem's; on a kernel without it the executor adds them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from ..errors import Unsupported
from ..plan import Plan
from ..runtime.local import Outcome, Place, run_local
from ..simulate import simulate
from ..topology import Topology

PREFIX = "stretto-"
HEADERS = 1514 / 1448
"""Bytes on the wire for each byte of payload in a full segment: links shape the first, plans count the second."""
BURST_BYTES = 16384
QUEUE_S = "50ms"
WIDEST, TOTAL = 20e6, 60e6
"""Bytes/s of the widest link, and of all links together for each core, that this machine is trusted to fill."""
_NEWNET = 0x40000000


def fitting_scale(topology: Topology) -> float:
    """By what to divide bandwidths so that this machine can fill the links, at least 1."""
    if not topology.link_count:
        return 1.0  # nothing to divide: what is emulated are links, and the emulator says so
    widest, total = float(topology.bandwidth.max()), float(topology.bandwidth.sum())
    return max(1.0, widest / WIDEST, total / (TOTAL * (os.cpu_count() or 1)))


@dataclass(frozen=True)
class Emulated:
    """A plan that was run on its own network.

    Attributes:
        scale: what bandwidths were divided by, and times multiplied.
        simulated_s: the simulator's completion on the network as it was built.
        delays_by: ``netem``, ``the executor`` or ``nothing``, where the network has none.
        arrivals: for each transfer and receiver the simulated and the measured second of arrival.
    """

    outcome: Outcome
    scale: float
    simulated_s: float
    delays_by: str
    arrivals: list[tuple[int, int, float, float]]


def emulate(plan: Plan, scale: float, timeout_s: float = 60.0) -> Emulated:
    """Run a plan that verifies, real bytes on its own network, beside the simulator.

    Times are kept where the plan sets them or a rate (``timed``, ``rates``, ``weights``); elsewhere the network
    decides.
    """
    pace = scale if plan.sharing in ("timed", "rates", "weights") else None
    delayed = bool(plan.topology.latency_s.any())
    by_network = not delayed or has_netem()
    delays = {} if by_network else {k: _delay(plan, k) * scale for k in range(plan.transfer_count)}
    with network(plan, scale) as places:
        outcome = run_local(plan, places=places, pace=pace, timeout_s=timeout_s, delays=delays)
    timeline = simulate(plan)
    arrivals = [
        (k, v, float(timeline.finish_s[k] + _delay(plan, k)) * scale, outcome.traces[v].arrived_s[k])
        for k in range(plan.transfer_count)
        for v in plan.dst[k].tolist()
    ]
    by = "nothing" if not delayed else "netem" if by_network else "the executor"
    return Emulated(outcome, scale, timeline.completion_s * scale, by, arrivals)


def _delay(plan: Plan, k: int) -> float:
    """Latency on the way of a transfer to its farthest receiver, seconds."""
    topology, reached = plan.topology, {int(plan.src[k]): 0.0}
    left = plan.route[k].tolist()
    while left:
        link = next(i for i in left if int(topology.src[i]) in reached)
        reached[int(topology.dst[link])] = reached[int(topology.src[link])] + float(topology.latency_s[link])
        left.remove(link)
    return max(reached[v] for v in plan.dst[k].tolist())


def refusal() -> str | None:
    """Why this machine cannot emulate, None if it can."""
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"emulation needs {tool}(8): apt-get install iproute2"
    if os.geteuid() != 0:
        return "emulation needs root: it makes network namespaces"
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
    return None if done.returncode == 0 else f"there are no network namespaces here: {done.stderr.strip()}"


@cache
def has_netem() -> bool:
    """Whether the kernel can delay packets; where it cannot, :mod:`stretto.runtime.execute` delays arrivals."""
    line = ["unshare", "--net", "sh", "-c", "ip link set lo up && tc qdisc add dev lo root netem delay 1ms"]
    return subprocess.run(line, capture_output=True).returncode == 0


def clean() -> list[str]:
    """Remove the namespaces of emulations whose process is gone; their names."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.split("\n")
    names = [line.split()[0] for line in listed if line.startswith(PREFIX)]
    gone = [name for name in names if not os.path.exists(f"/proc/{name.split('-')[1]}") or _own(name)]
    for name in gone:
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
    return gone


def network(plan: Plan, scale: float) -> contextlib.AbstractContextManager[dict[int, Place]]:
    """The network of a plan, where packets take the plan's routes; see :func:`built`."""
    return built(plan.topology, scale, _first_hops(plan))


@contextlib.contextmanager
def built(
    topology: Topology, scale: float, hops: Mapping[tuple[int, int], int] | None = None
) -> Iterator[dict[int, Place]]:
    """Where each node's process runs, while the network stands.

    Args:
        scale: links have their bandwidth divided by this, and their latency multiplied.
        hops: for a node and a destination the next node; by fewest cables where it says nothing.
    Raises:
        Unsupported: this machine cannot, or the network has optical planes.
    """
    reason = refusal()
    if reason is not None:
        raise Unsupported(reason)
    if topology.planes:
        raise Unsupported("optical planes are not emulated; stretto run moves their bytes")
    clean()
    delayed = has_netem()
    try:
        _batch("ip", _build(topology))
        for v in range(topology.node_count):
            _batch("ip", _addresses(topology, v), _name(v))
        for v in range(topology.node_count):
            _batch("ip", _routes(topology, v, hops or {}), _name(v))
            _batch("tc", _shapes(topology, v, scale, delayed), _name(v))
            sysctl = ["sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0"]
            subprocess.run(["ip", "netns", "exec", _name(v), *sysctl], check=True)
        yield {v: Place(_address(v), enter, _name(v)) for v in range(topology.node_count)}
    finally:
        clean()


def enter(name: str) -> None:
    """Move the calling thread into a namespace; sockets that it opens belong there."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        if libc.setns(handle, _NEWNET):
            raise OSError(ctypes.get_errno(), f"setns to {name}")
    finally:
        os.close(handle)


def _name(node: int) -> str:
    return f"{PREFIX}{os.getpid()}-{node}"


def _own(name: str) -> bool:
    return name.startswith(f"{PREFIX}{os.getpid()}-")


def _address(node: int) -> str:
    return f"10.255.{node >> 8}.{node & 255}"


def _cables(topology: Topology) -> list[tuple[int, int]]:
    return sorted({(min(a, b), max(a, b)) for a, b in zip(topology.src.tolist(), topology.dst.tolist(), strict=True)})


def _build(topology: Topology) -> list[str]:
    """Namespaces, and veth pairs whose ends are named after the node at the other end."""
    lines = [f"netns add {_name(v)}" for v in range(topology.node_count)]
    for a, b in _cables(topology):
        lines.append(f"link add to{b} netns {_name(a)} type veth peer name to{a} netns {_name(b)}")
    return lines


def _addresses(topology: Topology, v: int) -> list[str]:
    ends = [b if v == a else a for a, b in _cables(topology) if v in (a, b)]
    # gloo and its like ask lo for its address, and must not be told 127.0.0.1
    own = ["link set lo up", "address delete 127.0.0.1/8 dev lo", f"address add {_address(v)}/32 dev lo"]
    return [*own, *(f"link set to{w} up" for w in ends)]


def _first_hops(plan: Plan) -> dict[tuple[int, int], int]:
    """From each node on the route of a transfer to one receiver, the next node towards it."""
    topology, found = plan.topology, {}
    for k in range(plan.transfer_count):
        if len(plan.dst[k]) == 1:
            to = int(plan.dst[k][0])
            found.update({(int(topology.src[link]), to): int(topology.dst[link]) for link in plan.route[k]})
    return {key: hop for key, hop in found.items() if key[0] != key[1]}


def _routes(topology: Topology, v: int, hops: Mapping[tuple[int, int], int]) -> list[str]:
    """From one node to every other."""
    near: dict[int, list[int]] = {w: [] for w in range(topology.node_count)}
    for a, b in _cables(topology):
        near[a].append(b)
        near[b].append(a)
    first = {w: w for w in near[v]}
    queue = deque(first)
    while queue:
        at = queue.popleft()
        for w in near[at]:
            if w != v and w not in first:
                first[w] = first[at]
                queue.append(w)
    first.update({to: hop for (at, to), hop in hops.items() if at == v})
    return [
        f"route add {_address(to)}/32 via {_address(hop)} dev to{hop} onlink src {_address(v)}"
        for to, hop in sorted(first.items())
    ]


def _shapes(topology: Topology, v: int, scale: float, delayed: bool) -> list[str]:
    """A token bucket for each link out of a node, and its delay behind that where the kernel can.

    What only acknowledges has the rate of the other direction.
    """
    ends = zip(topology.src.tolist(), topology.dst.tolist(), strict=True)
    link = {pair: i for i, pair in enumerate(ends)}
    lines = []
    for a, b in _cables(topology):
        if v in (a, b):
            to = b if v == a else a
            i = link.get((v, to), link.get((to, v), 0))
            bits = max(8000, round(topology.bandwidth[i] * 8 * HEADERS / scale))
            lines.append(
                f"qdisc add dev to{to} root handle 1: tbf rate {bits}bit burst {BURST_BYTES} latency {QUEUE_S}"
            )
            if delayed and topology.latency_s[i]:
                microseconds = round(topology.latency_s[i] * scale * 1e6)
                lines.append(f"qdisc add dev to{to} parent 1:1 handle 10: netem delay {microseconds}us limit 100000")
    return lines


def _batch(tool: str, lines: list[str], namespace: str | None = None) -> None:
    where = ["-n", namespace] if namespace else []
    done = subprocess.run([tool, *where, "-batch", "-"], input="\n".join(lines), capture_output=True, text=True)
    if done.returncode:
        raise Unsupported(f"{tool} could not build the network: {done.stderr.strip()}")
