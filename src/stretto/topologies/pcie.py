"""Servers as NCCL and hwloc describe them: sockets, PCIe bridges, GPUs, network cards, NVLinks.

The files have no latencies, and no bandwidth between sockets: what is assumed stands here and in the notes. A network
card is a switch that stores and copies nothing, named ``nic0``, ``nic1`` ... with its device's name behind; it leads
out of the server, and the file does not say where to.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from ..model.errors import InputError
from ..model.topology import ACCELERATOR, SWITCH, Topology
from ..model.units import format_bandwidth, format_time
from .draft import Draft
from .values import one_line

SOCKET_BANDWIDTH = 10e9
"""Between sockets, as NCCL counts it for Intel's Skylake (SKL_QPI_BW of its src/graph/topo.h)."""
NVLINK_LATENCY_S, PCIE_LATENCY_S, SOCKET_LATENCY_S = 0.7e-6, 0.5e-6, 1e-6
"""Of a link each; NCCL's model (hwLat, LL, in its src/graph/tuning.cc) has 0.6 us for a step from a GPU to another over
NVLink, and 1 us over PCIe."""
PCIE = {3: 15.754e9, 4: 31.508e9, 5: 63.015e9, 6: 121e9}
"""Bytes/s of 16 lanes each way, by generation: 8, 16 or 32 GT/s of which 128 of 130 bits are data; 64 GT/s of which 242
of 256 bytes are."""
MOST_DEVICES, MOST_SOCKETS = 4096, 64

SOCKET, BRIDGE, GPU, NIC, NVSWITCH = "socket", "bridge", "gpu", "nic", "nvswitch"


@dataclass
class Device:
    """A node while servers are read.

    Attributes:
        name: of a GPU or network card the one that the operating system gives it, "" if none.
        order: what GPUs and network cards are sorted by; their numbers follow it.
    """

    kind: str
    server: int
    name: str = ""
    order: tuple[Any, ...] = ()


@dataclass
class Servers:
    """Devices and links of one or several servers, collected while a file is walked."""

    where: str
    devices: list[Device] = field(default_factory=list)
    links: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    def add(self, kind: str, server: int, name: str = "", order: tuple[Any, ...] = ()) -> int:
        """Adds a device; InputError if there are too many."""
        if len(self.devices) >= MOST_DEVICES:
            raise InputError(f"has more than {MOST_DEVICES} devices", self.where)
        self.devices.append(Device(kind, server, name, order))
        return len(self.devices) - 1

    def link(self, a: int, b: int, width: float, latency_s: float) -> None:
        """Adds a link, or bandwidth to the one that is there."""
        self.links[a, b] = (self.links.get((a, b), (0.0, 0.0))[0] + width, latency_s)

    def join(self, a: int, b: int, width: float, latency_s: float = PCIE_LATENCY_S) -> None:
        """Adds links both ways."""
        self.link(a, b, width, latency_s)
        self.link(b, a, width, latency_s)

    def below(self, kind: str, above: int, width: float, name: str = "", order: tuple[Any, ...] = ()) -> int:
        """Adds a device behind a PCIe link."""
        own = self.add(kind, self.devices[above].server, name, order)
        self.join(own, above, width)
        return own

    def join_sockets(self) -> None:
        """Joins each two sockets of a server."""
        servers: dict[int, list[int]] = {}
        for v, device in enumerate(self.devices):
            if device.kind == SOCKET:
                servers.setdefault(device.server, []).append(v)
        for sockets in servers.values():
            if len(sockets) > MOST_SOCKETS:
                raise InputError(f"has {len(sockets)} cpus, more than {MOST_SOCKETS}", self.where)
            for a, b in combinations(sockets, 2):
                self.join(a, b, SOCKET_BANDWIDTH, SOCKET_LATENCY_S)

    def topology(self, name: str, notes: list[str]) -> Topology:
        """The topology: first GPUs in their order, then the others without bridges that lead nowhere, or only on."""
        self._simplify()
        kept = sorted({v for link in self.links for v in link} | set(self._of(GPU)))
        several = len({self.devices[v].server for v in kept}) > 1
        gpus, cards = self._of(GPU), self._of(NIC)
        order = gpus + [v for v in kept if self.devices[v].kind != GPU]
        names = {v: f"{self._server(v, several)}gpu{n}" for v, n in self._numbers(gpus).items()}
        for v, n in self._numbers(cards).items():
            names[v] = f"{self._server(v, several)}nic{n} {one_line(self.devices[v].name)}".strip()
        draft = Draft()
        number = {}
        seen = Counter[str]()
        for v in order:
            device = self.devices[v]
            shared = device.kind == NVSWITCH and several
            label = names.get(v) or one_line(f"{'' if shared else self._server(v, several)}{device.name}")
            seen[label] += 1
            label += f" ({seen[label]})" * (seen[label] > 1)  # models repeat the bus ids of bridges
            kind = ACCELERATOR if device.kind == GPU else SWITCH
            number[v] = draft.node(kind, label, "" if shared else f"server{device.server}")
        for (a, b), way in self.links.items():
            draft.link(number[a], number[b], *way)
        assumed = [
            f"latencies assumed: NVLink {format_time(NVLINK_LATENCY_S)}, PCIe {format_time(PCIE_LATENCY_S)}",
            f"between sockets taken as {format_bandwidth(SOCKET_BANDWIDTH)} and {format_time(SOCKET_LATENCY_S)}",
        ]
        assumed += [f"network cards, which lead out of the server: {len(cards)}"] * bool(cards)
        replicates = [self.devices[v].kind == NVSWITCH for v in order]
        return draft.topology(name, ordered=True, replicates=replicates, notes=assumed + notes, where=self.where)

    def _of(self, kind: str) -> list[int]:
        """The devices of a kind, in their order."""
        found = [v for v, device in enumerate(self.devices) if device.kind == kind]
        return sorted(found, key=lambda v: (*self.devices[v].order, v))

    def _numbers(self, devices: list[int]) -> dict[int, int]:
        """The number of each device within its server."""
        seen: dict[int, int] = {}
        numbers = {}
        for v in devices:
            server = self.devices[v].server
            numbers[v] = seen[server] = seen.get(server, -1) + 1
        return numbers

    def _server(self, device: int, several: bool) -> str:
        return f"server{self.devices[device].server}." if several else ""

    def _simplify(self) -> None:
        """Leaves out sockets and bridges with one neighbour, and bridges with two, which become one link."""
        near: dict[int, set[int]] = {v: set() for v in range(len(self.devices))}
        for a, b in self.links:
            near[a].add(b)
            near[b].add(a)
        queue = list(near)
        while queue:
            v = queue.pop()
            kind, ends = self.devices[v].kind, sorted(near[v])
            passed = kind == BRIDGE and len(ends) == 2 and ends[1] not in near[ends[0]]
            if not passed and not (kind in (BRIDGE, SOCKET) and len(ends) == 1):
                continue
            if passed:
                a, b = ends
                width = min(self.links[a, v][0], self.links[v, b][0])
                self.join(a, b, width)
                near[a].add(b)
                near[b].add(a)
            for end in ends:
                near[end].discard(v)
                del self.links[v, end], self.links[end, v]
            near[v] = set()
            queue += ends
