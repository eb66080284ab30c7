"""Optical planes among network namespaces: one more namespace, the fabric, has all switches and the controller.

A node has a veth pair for each of its ports; the other end is in the fabric. What comes in by a port goes out by the
port that its circuit leads to, and nowhere if there is no circuit. A turn takes the circuits away, waits, and puts the
new ones in their place. A port carries packets that are marked with its plane: the data of connections over circuits.
Everything else (signals, and acknowledgements, whose direction may have no circuit) goes by a management network, which
joins every node with the fabric, as fabrics with optical switches have.
"""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ..model.circuits import Change, circuits_of
from ..model.topology import ACCELERATOR, Topology, make_topology
from ..runtime.channel import Wire
from ..runtime.switches import SwitchFailed
from .shaping import bucket, wire_share

MANAGEMENT_BANDWIDTH = 1e9
"""Bytes/s between a node and the fabric besides its ports: it carries no data."""
NODE_TABLES, FABRIC_TABLES = 2000, 5000
"""Table ``NODE_TABLES + p`` of a node leads to its port on plane p. Table ``FABRIC_TABLES + i`` of the fabric leads to
where port i, counted through all planes, is joined to."""
RULES = 500
"""Priority of the rules for marked packets and for ports: before those of subflows."""
STATION = "02:00:00:00:00:01"
"""The hardware address of all ports: a circuit's other end changes, and nobody could ask for its address in time."""


def managed(topology: Topology) -> Topology:
    """The links, planes and management network of a topology; the last node is the fabric."""
    n = topology.node_count
    links = list(zip(topology.src.tolist(), topology.dst.tolist(), topology.bandwidth.tolist(),
                     topology.latency_s.tolist(), strict=True))  # fmt: skip
    links += [link for v in range(n) for link in ((v, n, MANAGEMENT_BANDWIDTH, 0.0), (n, v, MANAGEMENT_BANDWIDTH, 0.0))]
    return replace(make_topology(topology.name, [ACCELERATOR] * (n + 1), links), planes=topology.planes)


def ports(topology: Topology, name: Callable[[int], str], mtu: int) -> list[str]:
    """The ip(8) commands that make the ports of all nodes, and the other ends of their cables."""
    fabric = name(topology.node_count - 1)
    return [
        f"link add {_port(p)} netns {name(v)} address {STATION} mtu {mtu} type veth "
        f"peer name {_end(p, v)} netns {fabric} address {STATION} mtu {mtu}"
        for p, plane in enumerate(topology.planes)
        for v in plane.nodes.tolist()
    ]


def commands_at(topology: Topology, v: int) -> list[str]:
    """The ip(8) commands inside a node that lead marked packets to its ports; at the fabric, its first circuits."""
    if not topology.planes:
        return []
    if v == topology.node_count - 1:
        return _first_circuits(topology)
    lines = []
    for p in np.flatnonzero([v in plane.nodes for plane in topology.planes]).tolist():
        lines += [
            f"link set {_port(p)} arp off up",
            f"route add default dev {_port(p)} table {NODE_TABLES + p}",
            f"rule add fwmark {p + 1} lookup {NODE_TABLES + p} priority {RULES}",
        ]
    return lines


def settings_at(topology: Topology, v: int) -> dict[str, str]:
    """What sysctl(8) sets in a node or the fabric, below net.ipv4: a circuit that comes back carries at full speed, and
    what comes over a circuit to the wrong node goes no further."""
    settings = {"tcp_slow_start_after_idle": "0"} if topology.planes else {}
    here = [p for p, plane in enumerate(topology.planes) if v in plane.nodes]
    return settings | {f"conf.{_port(p)}.forwarding": "0" for p in here}


def _first_circuits(topology: Topology) -> list[str]:
    lines = []
    for p, plane in enumerate(topology.planes):
        first = sum(len(before.nodes) for before in topology.planes[:p])
        for i, v in enumerate(plane.nodes.tolist()):
            table = FABRIC_TABLES + first + i
            lines += [
                f"link set {_end(p, v)} arp off up",
                f"rule add iif {_end(p, v)} lookup {table} priority {RULES}",
                f"route add blackhole default table {table}",
            ]
        lines += _joined(p, first, plane.nodes.tolist(), circuits_of(plane.matching))
    return lines


def _joined(plane: int, first: int, nodes: Sequence[int], circuits: Sequence[Sequence[int]]) -> list[str]:
    """The ip(8) commands that join ports; ``first`` is the number of the plane's first port among all."""
    return [f"route replace default dev {_end(plane, nodes[b])} table {FABRIC_TABLES + first + a}" for a, b in circuits]


def carry(topology: Topology, v: int, delayed: bool) -> list[str]:
    """The tc(8) commands for the ports of a node, which have the bandwidth of their planes."""
    lines: list[str] = []
    for p, plane in enumerate(topology.planes):
        if v in plane.nodes:
            microseconds = round(plane.latency_s * 1e6) if delayed else 0
            lines += bucket(_port(p), plane.bandwidth * wire_share(topology), microseconds)
    return lines


def onto(sock: Wire, plane: int) -> None:
    """Let what a connection sends leave by the port on a plane."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, plane + 1)


class FabricSwitch:
    """Turns the planes of an emulated fabric.

    Args:
        name: the namespace of the fabric.
        nodes: for each plane the node behind each port.
    """

    def __init__(self, name: str, nodes: Sequence[Sequence[int]]) -> None:
        self.name, self.nodes = name, nodes
        self.first = np.concatenate(([0], np.cumsum([len(each) for each in nodes]))).tolist()
        self.closed = threading.Event()

    def turn(self, plane: int, turn: Change, seconds: float) -> None:
        first, nodes = self.first[plane], self.nodes[plane]
        self._ip([f"route replace blackhole default table {FABRIC_TABLES + first + a}" for a, _ in turn.breaks])
        if self.closed.wait(seconds):
            raise SwitchFailed("it was closed while it turned")
        self._ip(_joined(plane, first, nodes, turn.makes))

    def close(self) -> None:
        self.closed.set()

    def _ip(self, lines: list[str]) -> None:
        command = ["ip", "-n", self.name, "-batch", "-"]
        done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True)
        if done.returncode:
            raise SwitchFailed(f"ip could not join its ports: {done.stderr.strip()}")


def _port(plane: int) -> str:
    """The interface of a node on a plane."""
    return f"plane{plane}"


def _end(plane: int, node: int) -> str:
    """The interface of the fabric that a node's port leads to."""
    return f"p{plane}n{node}"
