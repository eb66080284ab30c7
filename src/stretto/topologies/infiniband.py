"""InfiniBand fabrics: what ``ibnetdiscover`` and ``iblinkinfo`` print (rdma-core, infiniband-diags).

As ibnetdiscover(8) and the two programs' sources have it. A channel adapter's description is its host and its device
(``node17 mlx5_0``); each that is joined is a port of its host. A link has the bandwidth of its width and speed, data
bits only. Adapters inside switches that sum (SHARP's aggregation nodes) are no hosts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..model.errors import InputError
from ..model.topology import Topology
from . import MOST_NODES
from .hosts import HOSTS, Cluster, Port
from .values import one_line, shown

LANE_GBIT = {
    "SDR": 2.0, "DDR": 4.0, "QDR": 8.0, "FDR10": 10.0, "FDR": 14.0625 * 64 / 66, "EDR": 25.0, "HDR": 50.0, "NDR": 100.0,
    "XDR": 200.0,
}  # fmt: skip
"""Gbit/s of data on one lane: 8 of 10 bits up to QDR, 64 of 66 from FDR on, whose successors are named without them."""
_SIGNALS = {
    2.5: "SDR",
    5.0: "DDR",
    10.0: "QDR",
    14.0625: "FDR",
    25.78125: "EDR",
    53.125: "HDR",
    106.25: "NDR",
    212.5: "XDR",
}
MOST_PORTS = 1_000_000
MOST_LINE = 1000
"""Characters of a line; the programs print fewer than 300. Expressions below may take the square of it in time."""

_NODE = re.compile(r'^(Switch|Ca|Rt)\s+\d+\s+"([^"]+)"\s*#\s*"([^"]*)"')
_CABLE = re.compile(r'^\[(\d+)\](?:\[ext \d+\])?(?:\s*\([^)]*\))?\s*"([^"]+)"\[(\d+)\]([^#]*)#(.*)$')
_SPEED = re.compile(r"\b(\d+)x(SDR|DDR|QDR|FDR10|FDR|EDR|HDR|NDR|XDR)\b")
_HEADER = re.compile(r"^\s*(Switch|CA|Router):\s*(?:0x[0-9a-fA-F]+\s+)?(.*?):?$")
_LINK = re.compile(
    r'^\s*(?:0x[0-9a-fA-F]+\s+)?(?:"([^"]*)"\s+)?(\d+)\s+(\d+)\[[^\]]*\]\s*==\(\s*(.*?)\)(?:\s*\(HOQ[^)]*\))?\s*==>\s*'
    r'(?:0x[0-9a-fA-F]+\s+)?(\d+)\s+(\d+)\[[^\]]*\]\s*"([^"]*)"'
)
_DOWN = re.compile(r"==\([^()]*(?:Down|Init|Polling|Disabled)[^()]*\)|\"Port not available\"")
_RATE = re.compile(r"\b(\d+)X\s+([\d.]+)\s*Gbps(\s*\(FDR10\))?\s+Active")
_REPORT = re.compile(
    r"^(CA|SW|RT)\s+(\d+)\s+(\d+)\s+0x[0-9a-fA-F]+\s+(\d+)x\s+(\w+)\s+-\s+(CA|SW|RT)\s+(\d+)\s+(\d+)\s+0x[0-9a-fA-F]+\s+"
    r"\(\s*'(.*)'\s+-\s+'(.*)'\s*\)\s*$"
)
_ADAPTER = re.compile(r"^(\S.*?)\s+((?:mlx|hfi|ib|bnxt|irdma|qib|roce|HCA-|mthca|hns|efa)\S*)$")

Key = str
End = tuple[Key, int]


@dataclass
class Fabric:
    """Nodes and cables while a file is read; a cable is known by its two ends."""

    where: str
    names: dict[Key, str] = field(default_factory=dict)
    is_switch: dict[Key, bool] = field(default_factory=dict)
    cables: dict[tuple[End, End], float | None] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)

    def add(self, a: End, b: End, width: float | None, place: str) -> None:
        """Adds a cable, or what its other end says of it; InputError if there are too many."""
        if len(self.cables) >= MOST_PORTS:
            raise InputError(f"has more than {MOST_PORTS} cables", place)
        ends = (a, b) if a <= b else (b, a)
        self.cables[ends] = self.cables.get(ends) or width

    def topology(self, settings: dict[str, Any]) -> Topology:
        """The topology of its hosts and switches."""
        cluster = Cluster("infiniband", self.where)
        cluster.switches = {key: _switch_name(self.names[key]) for key, switch in self.is_switch.items() if switch}
        known = Counter(width for width in self.cables.values() if width)
        if not known:
            raise InputError("has no cable with a width and speed, such as 4xHDR", self.where)
        usual = known.most_common(1)[0][0]
        adapters = Counter(name for key, name in self.names.items() if not self.is_switch[key])
        ports: dict[str, list[tuple[tuple[Any, ...], Port]]] = {}
        for (a, b), width in sorted(self.cables.items()):
            if not width:
                self.notes[f"cables without a speed, taken as {usual * 8 / 1e9:.4g} Gbit/s"] += 1
            self._lay(cluster, ports, a[0], b[0], width or usual, adapters)
        cluster.hosts = {
            host: [port for _, port in sorted(found, key=lambda one: one[0])]
            for host, found in sorted(ports.items(), key=lambda one: _natural(one[0]))
        }
        if not 0 < len(cluster.hosts) <= MOST_NODES:
            raise InputError(f"has {len(cluster.hosts) or 'no'} channel adapters of hosts", self.where)
        cluster.notes += [f"{what}: {number}" for what, number in self.notes.items()]
        cluster.choose(settings[HOSTS.name])
        return cluster.topology(settings)

    def _lay(
        self, cluster: Cluster, ports: dict[str, list[Any]], a: Key, b: Key, width: float, adapters: Counter[str]
    ) -> None:
        """A cable between two switches, or from a host's port."""
        if self.is_switch[a] and self.is_switch[b]:
            if a != b:
                ends = (a, b) if a <= b else (b, a)
                cluster.cables[ends] = cluster.cables.get(ends, 0.0) + width
            return
        if not self.is_switch[a] and not self.is_switch[b]:
            between = f"{a} {b}"
            cluster.switches[between] = f"cable {one_line(self.names[a])} to {one_line(self.names[b])}"
            sides = [(a, between), (b, between)]
        else:
            sides = [(b, a) if self.is_switch[a] else (a, b)]
        for adapter, switch in sides:
            name = one_line(self.names[adapter])
            if "aggregation node" in name.lower():
                self.notes["SHARP's aggregation nodes in switches left out; ?sharp=true lets switches sum"] += 1
                continue
            match = _ADAPTER.match(name)
            # a description without a device may be that of many hosts
            alone = name if adapters[self.names[adapter]] == 1 and name else f"{name} {adapter}".strip()
            host, device = match.groups() if match else (alone, "")
            ports.setdefault(host, []).append(((*_natural(device), switch), Port(switch, width, device)))


def _natural(text: str) -> tuple[Any, ...]:
    """A key that sorts mlx5_10 after mlx5_9."""
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d{1,15})", text))


def _switch_name(description: str) -> str:
    """The name of a switch: of MF0;leaf-1:MQM8700/U1 it is leaf-1, of a chip in a chassis leaf-1 L01/U1."""
    match = re.match(r"^[^;:]+;([^;:]+):([^/]*)/(.*)$", description)
    if not match:
        return one_line(description)
    return one_line(match[1] if match[3] == "U1" else f"{match[1]} {match[3]}")


def begins_netdiscover(text: str) -> bool:
    """Whether a line of the beginning describes a switch or adapter as ibnetdiscover does."""
    return bool(re.search(r'(?m)^(Switch|Ca|Rt)\s+\d+\s+"[SHR]-', text[:100_000]))


def begins_linkinfo(text: str) -> bool:
    """Whether a line of the beginning is a port as iblinkinfo prints it."""
    return any("==>" in row and re.search(r"\]\s*==\(", row) for row in text[:100_000].splitlines())


def _lines(text: str, where: str) -> Iterator[tuple[str, str]]:
    """Each line without spaces at its end, after its place; InputError if one is too long."""
    for number, row in enumerate(text.splitlines(), start=1):
        place = f"{where}, line {number}"
        if len(row) > MOST_LINE:
            raise InputError(f"has more than {MOST_LINE} characters", place)
        yield place, row.rstrip()


def parse_netdiscover(text: str, where: str, settings: dict[str, Any]) -> Topology:
    """The topology of ibnetdiscover's output."""
    fabric = Fabric(where)
    own = ""
    for place, row in _lines(text, where):
        if row.startswith(("Switch", "Ca\t", "Ca ", "Rt")):
            match = _NODE.match(row)
            if match is None:
                raise InputError(f'{shown(row)} is not of the form Switch 40 "S-GUID" # "NAME" ...', place)
            own = match[2]
            fabric.names[own], fabric.is_switch[own] = match[3], match[1] == "Switch"
        elif row.startswith("["):
            cable = _CABLE.match(row)
            if cable is None or not own:
                wrong = (
                    "stands before any switch or adapter" if cable else 'is not of the form [1] "S-GUID"[2] # ... 4xHDR'
                )
                raise InputError(f"{shown(row)} {wrong}", place)
            other = cable[2]
            said = re.findall(r'"([^"]*)"', cable[5])
            fabric.names.setdefault(other, said[0] if said else other)
            fabric.is_switch.setdefault(other, other.startswith("S-"))
            speed = _SPEED.search(cable[5].rpartition('"')[2])
            width = int(speed[1][:4]) * LANE_GBIT[speed[2]] * 1e9 / 8 if speed else None
            fabric.add((own, int(cable[1][:9])), (other, int(cable[3][:9])), width, place)
    return fabric.topology(settings)


def begins_report(text: str) -> bool:
    """Whether a line of the beginning is a port as ibnetdiscover reports it with ``--ports``."""
    rows = text[:100_000].splitlines()[:1000]
    return any(len(row) <= MOST_LINE and _REPORT.match(row) for row in rows)


def parse_report(text: str, where: str, settings: dict[str, Any]) -> Topology:
    """The topology of ibnetdiscover's report of ports; nodes are known by their LIDs."""
    fabric = Fabric(where)
    for place, row in _lines(text, where):
        if " - " not in row or row.startswith("#"):
            continue  # a port that is not joined
        match = _REPORT.match(row)
        if match is None:
            raise InputError(
                f"{shown(row)} is no port as in SW 4 1 0x... 4x HDR - CA 5 1 0x... ( 'leaf' - 'host' )", place
            )
        ends = []
        for kind, lid, port, name in ((*match.group(1, 2, 3), match[9]), (*match.group(6, 7, 8), match[10])):
            fabric.names[f"lid {lid}"], fabric.is_switch[f"lid {lid}"] = name, kind == "SW"
            ends.append((f"lid {lid}", int(port[:9])))
        width = int(match[4][:4]) * LANE_GBIT[match[5]] * 1e9 / 8 if match[5] in LANE_GBIT else None
        fabric.add(ends[0], ends[1], width, place)
    return fabric.topology(settings)


def parse_linkinfo(text: str, where: str, settings: dict[str, Any]) -> Topology:
    """The topology of iblinkinfo's output, with headers or (``--line``) without; nodes are known by their LIDs."""
    fabric = Fabric(where)
    kind, name, headers = "", "", False
    ports: dict[Key, set[int]] = {}
    for place, row in _lines(text, where):
        header = _HEADER.match(row)
        if "==(" not in row:
            if header:
                kind, name, headers = header[1], header[2], True
            continue
        if _DOWN.search(row):
            continue
        match = _LINK.match(row)
        if match is None:
            raise InputError(
                f'{shown(row.strip())} is no port as in 4 1[ ] ==( 4X 25.78125 Gbps Active/ LinkUp)==> 2 17[ ] "NAME"',
                place,
            )
        rate = _RATE.search(match[4])
        if rate is None:
            raise InputError(f"{shown(match[4])} is no width and speed, such as 4X 53.125 Gbps Active/ LinkUp", place)
        own, other = f"lid {match[2]}", f"lid {match[5]}"
        fabric.names[own] = one_line(match[1] or "") or name
        if headers:
            fabric.is_switch[own] = kind == "Switch"
        fabric.names.setdefault(other, match[7])
        for key, port in ((own, match[3]), (other, match[6])):
            ports.setdefault(key, set()).add(int(port[:9]))
        fabric.add((own, int(match[3][:9])), (other, int(match[6][:9])), _width(rate, place), place)
    for key, name in fabric.names.items():
        several = len(ports[key]) > 2 or ";" in name
        fabric.is_switch.setdefault(key, not headers and several and not _ADAPTER.match(one_line(name)))
    return fabric.topology(settings)


def _width(rate: re.Match[str], where: str) -> float:
    """Bytes/s of data of a width and a signalling rate."""
    try:
        signal = float(rate[2])
    except ValueError:
        signal = 0.0
    speed = next((speed for known, speed in _SIGNALS.items() if abs(signal - known) <= 0.01 * known), None)
    if speed is None:
        raise InputError(f"{shown(rate[2])} Gbps is the speed of no InfiniBand lane", where)
    speed = "FDR10" if rate[3] else speed
    return int(rate[1][:4]) * LANE_GBIT[speed] * 1e9 / 8
