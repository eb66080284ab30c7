"""The plan's network on this machine: a namespace a node, a veth pair a cable, every direction shaped.

It calls ip(8) and tc(8), whose batches build ten nodes in a third of a second. Bandwidths are divided by one
declared factor. Delays are not emulated: a kernel without netem cannot, and the answer says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections import deque
from collections.abc import Iterator

from ..errors import Unsupported
from ..plan import Plan
from ..runtime.local import Place
from ..topology import Topology

PREFIX = "stretto-"
HEADERS = 1514 / 1448
"""Bytes on the wire for each byte of payload in a full segment: links shape the first, plans count the second."""
BURST_BYTES = 16384
QUEUE_S = "50ms"
_NEWNET = 0x40000000


def refusal() -> str | None:
    """Why this machine cannot emulate, None if it can."""
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"emulation needs {tool}(8): apt-get install iproute2"
    if os.geteuid() != 0:
        return "emulation needs root: it makes network namespaces"
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
    return None if done.returncode == 0 else f"there are no network namespaces here: {done.stderr.strip()}"


def clean() -> list[str]:
    """Remove the namespaces of emulations whose process is gone; their names."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.split("\n")
    names = [line.split()[0] for line in listed if line.startswith(PREFIX)]
    gone = [name for name in names if not os.path.exists(f"/proc/{name.split('-')[1]}") or _own(name)]
    for name in gone:
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
    return gone


@contextlib.contextmanager
def network(plan: Plan, scale: float) -> Iterator[dict[int, Place]]:
    """Where each node's process runs, while the network stands.

    Args:
        scale: links have their bandwidth divided by this.
    Raises:
        Unsupported: this machine cannot, or the plan uses optical planes.
    """
    reason = refusal()
    if reason is not None:
        raise Unsupported(reason)
    if plan.topology.planes:
        raise Unsupported("optical planes are not emulated; stretto run moves their bytes")
    clean()
    topology = plan.topology
    try:
        _batch("ip", _build(topology))
        for v in range(topology.node_count):
            _batch("ip", _addresses(topology, v), _name(v))
        for v in range(topology.node_count):
            _batch("ip", _routes(plan, v), _name(v))
            _batch("tc", _shapes(topology, v, scale), _name(v))
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
    return ["link set lo up", f"address add {_address(v)}/32 dev lo", *(f"link set to{w} up" for w in ends)]


def _routes(plan: Plan, v: int) -> list[str]:
    """From one node to every other: by the plan's route if it has one, else by fewest cables."""
    topology = plan.topology
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
    for k in range(plan.transfer_count):
        for link in plan.route[k]:
            if topology.src[link] == v:
                for to in plan.dst[k].tolist():
                    if len(plan.dst[k]) == 1 and to != v:
                        first[to] = int(topology.dst[link])
    return [
        f"route add {_address(to)}/32 via {_address(hop)} dev to{hop} onlink src {_address(v)}"
        for to, hop in sorted(first.items())
    ]


def _shapes(topology: Topology, v: int, scale: float) -> list[str]:
    """A token bucket for each link out of a node; what only acknowledges has the rate of the other direction."""
    width = {
        (a, b): w for a, b, w in zip(topology.src.tolist(), topology.dst.tolist(), topology.bandwidth, strict=True)
    }
    lines = []
    for a, b in _cables(topology):
        if v in (a, b):
            to = b if v == a else a
            bits = width.get((v, to), width.get((to, v), 0.0)) * 8 * HEADERS / scale
            lines.append(
                f"qdisc add dev to{to} root tbf rate {max(8000, round(bits))}bit burst {BURST_BYTES} latency {QUEUE_S}"
            )
    return lines


def _batch(tool: str, lines: list[str], namespace: str | None = None) -> None:
    where = ["-n", namespace] if namespace else []
    done = subprocess.run([tool, *where, "-batch", "-"], input="\n".join(lines), capture_output=True, text=True)
    if done.returncode:
        raise Unsupported(f"{tool} could not build the network: {done.stderr.strip()}")
