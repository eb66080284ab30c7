"""NCCL's topology XML (``NCCL_TOPO_DUMP_FILE``, ``NCCL_TOPO_FILE``), and RCCL's: CPUs, PCIe switches, GPUs, links.

Bandwidths are NCCL's own (its src/graph/topo.h): for an NVLink by the GPU's compute capability, for a PCIe lane
0.75 GB/s at 8 GT/s. In a dump of several servers on one NVLink fabric (``host_hash`` of its CPUs) all NVLinks to
switches lead to one switch, as NCCL has it, and ranks are those of the communicator. Where no device is called a GPU,
as in files that clouds ship for ``NCCL_TOPO_FILE``, the class of PCI devices says what is one.
"""

from __future__ import annotations

import re
from typing import Any

from ..model.errors import InputError
from ..model.topology import Topology
from .pcie import BRIDGE, GPU, NIC, NVLINK_LATENCY_S, NVSWITCH, SOCKET, Servers
from .values import count, named, real, shown

NVLINK_BANDWIDTHS = {60: 18e9, 70: 20e9, 80: 20e9, 86: 12e9, 90: 20.6e9, 100: 40.1e9}
"""By compute capability, else that of its generation (75 is of 70)."""
XGMI_BANDWIDTHS = {"90a": 36e9, "910": 36e9, "94": 48e9}
"""By what the GPU's gcn holds (RCCL's src/graph/topo.h), else 24 GB/s."""
LANE_BANDWIDTH_AT_8GT = 0.75e9
MOST_DEPTH = 32
GPU_CLASSES, NIC_CLASSES = ("0x03", "0x12"), ("0x02",)


def parse(root: Any, where: str) -> Topology:
    """The topology of a ``<system>`` element."""
    return _Dump(root, where).topology()


class _Dump:
    """What is known while the tree is walked."""

    def __init__(self, root: Any, where: str) -> None:
        self.where, self.servers = where, Servers(where)
        self.bus: dict[tuple[int, str], int] = {}  # GPUs by server and busid
        self.links: list[tuple[int, int, Any]] = []  # GPU, its socket, its element
        self.hosts: dict[str, int] = {}
        self.loops = 0
        self.named = any(True for _ in root.iter("gpu"))
        for element in named(root, "cpu"):
            host = self.hosts.setdefault(element.get("host_hash") or "", len(self.hosts))
            name = f"cpu{element.get('numaid', len(self.servers.devices))}"
            socket = self.servers.add(SOCKET, host, name)
            self.cards(element, socket, float("inf"))
            self.pci(element, socket, socket, 0)

    def pci(self, parent: Any, above: int, socket: int, depth: int) -> None:
        """The PCI devices below an element."""
        if depth > MOST_DEPTH:
            raise InputError(f"has PCIe switches more than {MOST_DEPTH} deep", self.where)
        server = self.servers.devices[socket].server
        for element in named(parent, "pci"):
            place = f"{self.where}, pci {shown(element.get('busid'))}"
            key = (server, (element.get("busid") or "").lower())
            width, gpus, inner = _pcie(element, place), named(element, "gpu"), named(element, "pci")
            kind = (element.get("class") or "").lower()
            if gpus or (not self.named and not inner and kind.startswith(GPU_CLASSES)):
                if not key[1] or key in self.bus:
                    raise InputError("the busid is missing or given twice", place)
                own = self.bus[key] = self.gpu(gpus[0] if gpus else None, above, width, place)
                self.links += [(own, socket, gpu) for gpu in gpus[:1]]
            elif inner:
                own = self.servers.below(BRIDGE, above, width, f"pci {key[1]}")
            else:
                own = above
                if not self.named and kind.startswith(NIC_CLASSES):
                    self.servers.below(NIC, above, width)
            self.cards(element, own if inner else above, width)
            self.pci(element, own, socket, depth + 1)

    def gpu(self, element: Any, above: int, width: float, place: str) -> int:
        dev = count(element.get("dev"), "gpu dev", place) if element is not None else len(self.bus)
        rank = count(element.get("rank") or dev, "gpu rank", place) if element is not None else dev
        return self.servers.below(GPU, above, width, order=(rank,))

    def cards(self, parent: Any, above: int, width: float) -> None:
        """The network cards of an element: devices with a number, unless they are for something else."""
        for net in (net for nic in named(parent, "nic") for net in named(nic, "net")):
            if net.get("dev") is None or net.get("net") == "0":
                continue
            name = net.get("name") or ""
            place = f"{self.where}, net {shown(name)}"
            dev = count(net.get("dev"), "net dev", place)
            # NCCL takes 10 Gbit/s where a card does not say its speed
            speed = 0.0 if net.get("speed") in (None, "", "-1") else real(net.get("speed"), "speed", place)
            self.servers.below(NIC, above, min(width, (speed or 10_000) * 1e6 / 8), name, (dev,))

    def nvlinks(self) -> None:
        """Links between GPUs, each given from both ends, and to NVSwitches and CPUs, given by the GPU."""
        switch = -1
        for own, socket, gpu in self.links:
            place = f"{self.where}, gpu {shown(gpu.get('dev'))}"
            for link in (*named(gpu, "nvlink"), *named(gpu, "xgmi")):
                total = _width(gpu, link, place) * count(link.get("count"), "nvlink count", place, 1, 1000)
                target = (self.servers.devices[own].server, (link.get("target") or "").lower())
                kind = (link.get("tclass") or "").lower()
                if kind.startswith("0x068001"):
                    self.servers.join(own, socket, total, NVLINK_LATENCY_S)
                elif kind.startswith("0x0680"):
                    switch = self.servers.add(NVSWITCH, 0, "nvswitch") if switch < 0 else switch
                    self.servers.join(own, switch, total, NVLINK_LATENCY_S / 2)
                elif self.bus.get(target) == own:
                    self.loops += 1
                elif target in self.bus:
                    self.servers.links[own, self.bus[target]] = (total, NVLINK_LATENCY_S)
                else:
                    raise InputError(f"has an NVLink to {shown(link.get('target'))}, which is no device", place)
            for c2c in named(gpu, "c2c"):
                lanes = count(c2c.get("count"), "c2c count", place, 1, 1000)
                self.servers.join(own, socket, real(c2c.get("bw"), "c2c bw", place, above=True) * 1e6 * lanes)

    def topology(self) -> Topology:
        self.servers.join_sockets()
        if not any(device.kind == GPU for device in self.servers.devices):
            raise InputError("has no <gpu> in a <pci>; is it the dump of NCCL_TOPO_DUMP_FILE?", self.where)
        self.nvlinks()
        notes = ["no device is called a GPU, so PCI classes say what is one; NVLinks are not known"] * (not self.named)
        notes += [f"NVLinks of a GPU to itself left out: {self.loops}"] * bool(self.loops)
        return self.servers.topology("nccl", notes)


def _width(gpu: Any, link: Any, where: str) -> float:
    """Bytes/s of one NVLink or xGMI link."""
    if link.tag.endswith("xgmi"):
        gcn = gpu.get("gcn") or ""
        return next((width for part, width in XGMI_BANDWIDTHS.items() if part in gcn), 24e9)
    sm = count(gpu.get("sm"), "sm", where)
    return NVLINK_BANDWIDTHS.get(sm, NVLINK_BANDWIDTHS.get(sm // 10 * 10, 20e9))


def _pcie(element: Any, where: str) -> float:
    """Bytes/s of a device's PCIe link; 16 lanes at 8 GT/s where the file has none, as NCCL assumes."""
    speed = re.match(r"\s*([0-9.]{1,8})\s*GT/s", element.get("link_speed") or "8 GT/s")
    lanes = count(element.get("link_width") or "16", "link_width", where, 0, 64) or 16
    try:
        rate = float(speed.group(1)) if speed else 8.0
    except ValueError:
        raise InputError(f"link_speed {shown(element.get('link_speed'))} is no speed", where) from None
    return max(rate, 0.1) / 8 * LANE_BANDWIDTH_AT_8GT * lanes
