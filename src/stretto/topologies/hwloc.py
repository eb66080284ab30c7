"""hwloc's XML (``lstopo --of xml``, versions 2 and 3): packages, PCI bridges, GPUs, network cards, NVLinks.

As hwloc/hwloc2.dtd and the manual's section on I/O devices have it. ``pci_link_speed`` is GB/s; a GPU is a PCI device
with an operating-system device of NVML, CUDA, RSMI or LevelZero, or of a PCI class of accelerators; a network card has
one of network or OpenFabrics. Matrices ``NVLinkBandwidth``, ``XGMIBandwidth`` and ``XeLinkBandwidth`` are MB/s; NVLinks
to NVSwitches are taken as links to one switch.
"""

from __future__ import annotations

import re
from typing import Any

from ..model.errors import InputError
from ..model.topology import Topology
from .pcie import BRIDGE, GPU, NIC, NVLINK_LATENCY_S, NVSWITCH, PCIE, SOCKET, Servers
from .values import named, one_line, real, shown

MATRICES = ("NVLinkBandwidth", "XGMIBandwidth", "XeLinkBandwidth")
GPU_CLASSES, NIC_CLASSES, NVSWITCH_CLASS = ("0302", "0380", "12"), ("02", "0c06"), "0680"
MOST_DEPTH, MOST_LISTED = 64, 4096

_GPU_NAME = re.compile(r"(nvml|rsmi|ze|cuda)(\d{1,6})(?:\.\d+)?")
_NETWORK, _FABRIC = {"2", "16", "48"}, {"3", "32", "48"}
"""Types of operating-system devices: numbers in version 2, sums of powers of two in version 3."""


def fits(root: Any) -> bool:
    """Whether a ``<topology>`` element holds hwloc's objects."""
    return any(child.get("type") for child in named(root, "object"))


def parse(root: Any, where: str) -> Topology:
    """The topology of one machine."""
    machine = _Machine(where)
    for element in named(root, "object"):
        machine.objects(element, -1, 0)
    return machine.topology(root)


class _Machine:
    """What is known while the tree is walked."""

    def __init__(self, where: str) -> None:
        self.where, self.servers = where, Servers(where)
        self.top = -1  # what devices that belong to no package are joined to
        self.packages: list[int] = []
        self.by_id: dict[tuple[str, str], int] = {}  # devices by type and gp_index
        self.switches: set[tuple[str, str]] = set()  # NVSwitches
        self.unknown = 0

    def objects(self, element: Any, above: int, depth: int) -> None:
        """An object and those below it."""
        if depth > MOST_DEPTH:
            raise InputError(f"has objects more than {MOST_DEPTH} deep", self.where)
        kind = element.get("type") or ""
        if kind in ("Package", "Socket"):  # version 1 calls it a socket
            above = self.servers.add(SOCKET, 0, f"package{len(self.packages)}")
            self.packages.append(above)
            self.by_id[kind, element.get("gp_index") or ""] = above
        elif kind == "Bridge" and element.get("pci_busid"):
            above = self.servers.below(BRIDGE, self.root(above), self.width(element), f"pci {element.get('pci_busid')}")
        elif kind == "PCIDev":
            self.device(element, self.root(above))
            return
        for child in named(element, "object"):
            self.objects(child, above, depth + 1)

    def root(self, above: int) -> int:
        """What a PCI device is joined to: what is above it, or the machine."""
        if above < 0 and self.top < 0:
            self.top = self.servers.add(SOCKET, 0, "machine")
        return above if above >= 0 else self.top

    def device(self, element: Any, above: int) -> None:
        """A PCI device, if it is a GPU, a network card or an NVSwitch."""
        key = ("PCIDev", element.get("gp_index") or "")
        inner = [child for child in named(element, "object") if child.get("type") == "OSDev"]
        names = [child.get("name") or "" for child in inner]
        of_class = (element.get("pci_type") or "").lower()
        numbers = (_gpu(name, library) for library in ("nvml", "rsmi", "ze", "cuda") for name in names)
        number = next((n for n in numbers if n is not None), None)
        if element.get("subtype") == "NVSwitch" or of_class.startswith(NVSWITCH_CLASS):
            self.switches.add(key)
        elif number is not None or of_class.startswith(GPU_CLASSES):
            order = (0, number) if number is not None else (1, 0)
            self.by_id[key] = self.servers.below(GPU, above, self.width(element), order=order)
            for child in inner:
                self.by_id["OSDev", child.get("gp_index") or ""] = self.by_id[key]
        elif of_class.startswith(NIC_CLASSES):
            fabric = [child for child in inner if child.get("osdev_type") in _FABRIC]
            ports = fabric or [child for child in inner if child.get("osdev_type") in _NETWORK]
            name = ports[0].get("name") or "" if ports else ""
            self.servers.below(NIC, above, self.width(element), name, (0 if fabric else 1,))

    def width(self, element: Any) -> float:
        """Bytes/s of a device's PCIe link."""
        place = f"{self.where}, {element.get('type')} {shown(element.get('pci_busid'))}"
        speed = real(element.get("pci_link_speed") or "0", "pci_link_speed", place)
        self.unknown += speed == 0
        return speed * 1e9 or PCIE[3]

    def matrices(self, root: Any) -> list[str]:
        """Adds the links of the matrices of bandwidths; returns the names of those that are there."""
        found = []
        switch = -1
        for table in (*named(root, "distances2hetero"), *named(root, "distances2")):
            name = table.get("name") or ""
            if name not in MATRICES or name in found:
                continue
            found.append(name)
            place = f"{self.where}, {name}"
            keys = self.listed(table, place)
            values = " ".join(part.text or "" for part in named(table, "u64values")).split()
            if len(values) != len(keys) ** 2:
                raise InputError(f"has {len(values)} values for {len(keys)} objects", place)
            for i, a in enumerate(keys):
                own = self.by_id.get(a, -1)
                if a not in self.switches and own < 0:
                    raise InputError(f"is of {':'.join(a)}, which is no GPU, package or NVSwitch", place)
                for j, b in enumerate(keys):
                    value = values[i * len(keys) + j]
                    width = 0.0 if value == "0" else real(value, "a bandwidth", place) * 1e6
                    other = self.by_id.get(b, -1)
                    if not width or own < 0 or own == other:
                        continue
                    if b in self.switches:
                        switch = self.servers.add(NVSWITCH, 0, "nvswitch") if switch < 0 else switch
                        self.servers.join(own, switch, width, NVLINK_LATENCY_S / 2)
                    elif other >= 0:
                        self.servers.link(own, other, width, NVLINK_LATENCY_S)
        return found

    def listed(self, table: Any, where: str) -> list[tuple[str, str]]:
        """The type and gp_index of each object of a matrix."""
        words = " ".join(part.text or "" for part in named(table, "indexes")).split()
        if len(words) > MOST_LISTED:
            raise InputError(f"is of {len(words)} objects, more than {MOST_LISTED}", where)
        kind = table.get("type") or ""
        pairs = [word.partition(":") for word in words]
        return [(before, after) if mark else (kind, before) for before, mark, after in pairs]

    def topology(self, root: Any) -> Topology:
        if not any(device.kind == GPU for device in self.servers.devices):
            raise InputError(
                "has no GPU among its PCI devices; write it on the server, all I/O devices included", self.where
            )
        self.servers.join_sockets()
        found = self.matrices(root)
        notes = [f"PCI devices without a speed, taken as 15.75 GB/s: {self.unknown}"] * bool(self.unknown)
        notes += ["it has no matrix of NVLinks: GPUs are joined over PCIe only"] * (not found)
        hosts = [i.get("value") or "" for i in root.iter() if i.tag == "info" and i.get("name") == "HostName"]
        return self.servers.topology(one_line(hosts[0]) if hosts and one_line(hosts[0]) else "hwloc", notes)


def _gpu(name: str, library: str) -> int | None:
    """The number that a library gives a GPU, by the name of its operating-system device; None for other devices."""
    match = _GPU_NAME.fullmatch(name)
    return int(match[2]) if match and match[1] == library else None
