"""NCCL's topology XML (``NCCL_TOPO_DUMP_FILE``): CPUs, PCIe switches, GPUs and NVLinks of one server.

Bandwidths are NCCL's own (its src/graph/topo.h): for an NVLink by the GPU's compute capability, for a PCIe lane
0.75 GB/s at 8 GT/s, between sockets 10 GB/s. The file has no latencies; the notes say which ones are assumed.
Network cards lead out of the server and are left out.
"""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

from ..model.errors import InputError
from ..model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from ..model.units import format_bandwidth, format_time
from .draft import Draft
from .values import count, named, shown

NVLINK_BANDWIDTHS = {60: 18e9, 70: 20e9, 80: 20e9, 86: 12e9, 90: 20.6e9, 100: 40.1e9}
"""By compute capability, else that of its generation (75 is of 70)."""
LANE_BANDWIDTH_AT_8GT = 0.75e9
SOCKET_BANDWIDTH = 10e9
NVLINK_LATENCY_S, PCIE_LATENCY_S, SOCKET_LATENCY_S = 0.7e-6, 0.5e-6, 1e-6
MOST_DEPTH, MOST_DEVICES, MOST_SOCKETS = 32, 4096, 64


def parse(root: Any, where: str) -> Topology:
    """The topology of a ``<system>`` element."""
    server = _Server(where)
    cpus: list[int] = []
    for element in named(root, "cpu"):
        cpus.append(server.node(f"cpu{element.get('numaid', len(cpus))}", SWITCH))
        server.devices(element, cpus[-1], 0)
    if len(cpus) > MOST_SOCKETS:
        raise InputError(f"has {len(cpus)} cpus, more than {MOST_SOCKETS}", where)
    for a, b in combinations(cpus, 2):
        server.draft.join(a, b, SOCKET_BANDWIDTH, SOCKET_LATENCY_S)
    server.nvlinks()
    return server.topology()


class _Server:
    """Nodes and links, collected while the tree is walked."""

    def __init__(self, where: str) -> None:
        self.where, self.draft = where, Draft()
        self.bus: dict[str, int] = {}
        self.gpus: list[tuple[int, int, Any]] = []  # rank, node, element
        self.networks = 0

    def node(self, name: str, kind: int) -> int:
        if len(self.draft.kinds) >= MOST_DEVICES:
            raise InputError(f"has more than {MOST_DEVICES} devices", self.where)
        return self.draft.node(kind, name)

    def devices(self, parent: Any, above: int, depth: int) -> None:
        """The devices below an element."""
        if depth > MOST_DEPTH:
            raise InputError(f"has PCIe switches more than {MOST_DEPTH} deep", self.where)
        for element in named(parent, "pci"):
            place = f"{self.where}, pci {shown(element.get('busid'))}"
            key = (element.get("busid") or "").lower()
            if not key or key in self.bus:
                raise InputError("the busid is missing or given twice", place)
            gpus, inner = named(element, "gpu"), named(element, "pci")
            self.networks += len(named(element, "nic"))
            if not gpus and not inner:
                continue
            rank = count(gpus[0].get("dev"), "gpu dev", place) if gpus else 0
            own = self.node(f"gpu{rank}" if gpus else f"pci {key}", ACCELERATOR if gpus else SWITCH)
            self.bus[key] = own
            self.draft.join(own, above, _pcie(element, place), PCIE_LATENCY_S)
            self.gpus += [(rank, own, gpu) for gpu in gpus[:1]]
            self.devices(element, own, depth + 1)

    def nvlinks(self) -> None:
        """Links between GPUs, each given from both ends, and to NVSwitches, given by the GPU."""
        switch = -1
        for _, own, gpu in self.gpus:
            place = f"{self.where}, {self.draft.names[own]}"
            sm = count(gpu.get("sm"), "sm", place)
            width = NVLINK_BANDWIDTHS.get(sm, NVLINK_BANDWIDTHS.get(sm // 10 * 10, 20e9))
            for link in named(gpu, "nvlink"):
                total = width * count(link.get("count"), "nvlink count", place, 1, 1000)
                target = (link.get("target") or "").lower()
                if (link.get("tclass") or "").lower().startswith("0x0680"):
                    switch = self.node("nvswitch", SWITCH) if switch < 0 else switch
                    self.draft.join(own, switch, total, NVLINK_LATENCY_S / 2)
                elif target in self.bus:
                    self.draft.links[own, self.bus[target]] = (total, NVLINK_LATENCY_S)
                else:
                    raise InputError(f"has an NVLink to {shown(target)}, which is no device", place)

    def topology(self) -> Topology:
        if not self.gpus:
            raise InputError("has no <gpu> in a <pci>; is it the dump of NCCL_TOPO_DUMP_FILE?", self.where)
        kinds, names = self.draft.kinds, self.draft.names
        ranks = [v for _, v, _ in sorted(self.gpus, key=lambda gpu: gpu[0])]
        order = ranks + [v for v, kind in enumerate(kinds) if kind == SWITCH]
        new = {old: i for i, old in enumerate(order)}
        notes = [
            f"latencies assumed: NVLink {format_time(NVLINK_LATENCY_S)}, PCIe {format_time(PCIE_LATENCY_S)}",
            f"between sockets taken as {format_bandwidth(SOCKET_BANDWIDTH)} and {format_time(SOCKET_LATENCY_S)}",
        ]
        notes += [f"network cards left out: {self.networks}"] * bool(self.networks)
        return make_topology(
            "nccl",
            [kinds[v] for v in order],
            sorted((new[a], new[b], *way) for (a, b), way in self.draft.links.items()),
            names=[" ".join(names[v].split()) for v in order],
            sites=["server0"] * len(order),
            replicates=[names[v] == "nvswitch" for v in order],
            notes=notes,
            where=self.where,
        )


def _pcie(element: Any, where: str) -> float:
    """Bytes/s of a device's PCIe link; 16 lanes at 8 GT/s where the file has none, as NCCL assumes."""
    speed = re.match(r"\s*([0-9.]{1,8})\s*GT/s", element.get("link_speed") or "8 GT/s")
    lanes = count(element.get("link_width") or "16", "link_width", where, 0, 64) or 16
    try:
        rate = float(speed.group(1)) if speed else 8.0
    except ValueError:
        raise InputError(f"link_speed {shown(element.get('link_speed'))} is no speed", where) from None
    return max(rate, 0.1) / 8 * LANE_BANDWIDTH_AT_8GT * lanes
