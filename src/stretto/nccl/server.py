"""A server as NCCL's topology files describe it: sockets, PCIe switches, GPUs, NVLinks, network cards.

Topologies say less than NCCL wants to know. What is missing is assumed, and noted: where nothing of PCIe is known, two
sockets, and a PCIe switch for each network card and its GPUs; bus ids are made up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.etree import ElementTree

import numpy as np

from ..model.arrays import Int64
from ..model.errors import InputError, Unsupported
from ..model.topology import ROUTER, Topology
from ..topologies.pcie import PCIE
from .generations import Generation

MOST_GPUS = 16
"""GPUs of a server. Larger ones are several hosts on one NVLink fabric, each with files of its own."""

SPEEDS = {8.0: "8.0 GT/s PCIe", 16.0: "16.0 GT/s PCIe", 32.0: "32.0 GT/s PCIe", 64.0: "64.0 GT/s PCIe"}
"""What Linux calls the speeds of PCIe, by GT/s of a lane."""

COUNTED_AT_8GT = 0.75e9
"""Bytes/s that NCCL counts for a lane at 8 GT/s (src/graph/topo.cc, kvDictPciGen)."""

_BUS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True)
class Nic:
    """A network card.

    Attributes:
        node: its node, -1 where the topology has none and GPUs lead out of the server themselves.
        sends, receives: the GPUs at which it leads out and in, by their number in the server; empty if it has a node.
        bandwidth: bytes/s into the network.
    """

    node: int
    sends: tuple[int, ...]
    receives: tuple[int, ...]
    bandwidth: float
    name: str = ""


@dataclass
class Branch:
    """A device of the PCIe tree: ``cpu``, ``bridge``, ``gpu`` or ``nic``.

    Attributes:
        number: of a GPU or network card.
        width: of its PCIe link, bytes/s.
    """

    kind: str
    number: int = -1
    width: float = 0.0
    name: str = ""
    below: list[Branch] = field(default_factory=list)


@dataclass(frozen=True)
class Server:
    """One server.

    Attributes:
        gpus: the GPUs' nodes, by their number.
        to_switch: NVLinks of each GPU to NVSwitches.
        nvlinks: NVLinks between two GPUs, by their numbers.
        sockets: the PCIe trees.
        notes: what was assumed.
    """

    generation: Generation
    gpus: tuple[int, ...]
    nics: tuple[Nic, ...]
    to_switch: tuple[int, ...]
    nvlinks: dict[tuple[int, int], int]
    sockets: tuple[Branch, ...]
    notes: tuple[str, ...]


def servers_of(topology: Topology, ranks: Int64) -> list[list[int]]:
    """The ranks' nodes of each server, servers by their first rank.

    Raises:
        Unsupported: NCCL could not run there as it is described.
    """
    if topology.planes:
        raise Unsupported("NCCL does not know optical planes, which this network has")
    if (topology.kind == ROUTER).any():
        router = topology.names[int(np.flatnonzero(topology.kind == ROUTER)[0])]
        raise Unsupported(
            f"the network has routers that store and forward, such as {router}: its sites are not servers as NCCL knows"
        )
    servers: dict[str, list[int]] = {}
    for v in ranks.tolist():
        if not topology.sites[v]:
            raise Unsupported(f"{topology.names[v]} is in no server (site), so there is nothing that NCCL could read")
        servers.setdefault(topology.sites[v], []).append(v)
    sizes = {len(nodes) for nodes in servers.values()}
    if len(sizes) > 1:
        raise Unsupported(
            f"servers have {min(sizes)} to {max(sizes)} GPUs; NCCL's graph file needs the same number in all"
        )
    if max(sizes) > MOST_GPUS:
        raise Unsupported(
            f"a server of {max(sizes)} GPUs is several hosts on one NVLink fabric; it may have {MOST_GPUS} at most"
        )
    return list(servers.values())


def read_server(topology: Topology, gpus: list[int], generation: Generation) -> Server:
    """The server that has these GPUs."""
    site = topology.sites[gpus[0]]
    inside = [v for v in range(topology.node_count) if topology.sites[v] == site]
    width = _widths(topology)
    near = {v: sorted({b for a, b in width if a == v} | {a for a, b in width if b == v}) for v in inside}
    number = {v: i for i, v in enumerate(gpus)}
    switches = {v for v in inside if topology.is_switch[v]}
    fabric = {v for v in switches if _is_nvswitch(topology, v, near[v], width)}
    nvlinks, to_switch = {}, [0] * len(gpus)
    for v in gpus:
        for w in near[v]:
            if w in number and w != v:
                nvlinks[number[v], number[w]] = generation.links(width.get((v, w), width.get((w, v), 0.0)))
        total = sum(width.get((v, w), 0.0) for w in near[v] if w in fabric)
        to_switch[number[v]] = generation.links(total) if total else 0
    pcie = switches - fabric
    notes: list[str] = []
    if pcie:
        nics = _nics_with_nodes(topology, sorted(pcie), set(inside), near, width)
        sockets = _known_sockets(topology, gpus, nics, pcie, near, width, notes)
    else:
        nics = _nics_at_gpus(topology, gpus, set(inside), near, width)
        sockets = _assumed_sockets(len(gpus), nics, generation, notes)
    return Server(
        generation, tuple(gpus), tuple(nics), tuple(to_switch), nvlinks, tuple(sockets),
        (*notes, "bus ids are made up where the topology has none"),
    )  # fmt: skip


def _widths(topology: Topology) -> dict[tuple[int, int], float]:
    widths: dict[tuple[int, int], float] = {}
    for a, b, w in zip(topology.src.tolist(), topology.dst.tolist(), topology.bandwidth.tolist(), strict=True):
        widths[a, b] = widths.get((a, b), 0.0) + w
    return widths


def _is_nvswitch(topology: Topology, switch: int, near: list[int], width: dict[tuple[int, int], float]) -> bool:
    """A switch among GPUs alone that is called one, copies, or has more bandwidth than PCIe."""
    if not all(topology.is_accelerator[v] for v in near) or len(near) < 2:
        return False
    wide = max(width.get((v, switch), 0.0) for v in near) > PCIE[5] * 1.01
    return "nvswitch" in topology.names[switch].lower() or bool(topology.replicates[switch]) or wide


def _nics_at_gpus(
    topology: Topology,
    gpus: list[int],
    inside: set[int],
    near: dict[int, list[int]],
    width: dict[tuple[int, int], float],
) -> list[Nic]:
    """Where GPUs lead out of the server themselves: one network card for each that sends and one that receives."""
    out = [sum(width.get((v, w), 0.0) for w in near[v] if w not in inside) for v in gpus]
    into = [sum(width.get((w, v), 0.0) for w in near[v] if w not in inside) for v in gpus]
    both = [Nic(-1, (i,), (i,), min(a, b)) for i, (a, b) in enumerate(zip(out, into, strict=True)) if a and b]
    senders = [i for i in range(len(gpus)) if out[i] and not into[i]]
    receivers = [i for i in range(len(gpus)) if into[i] and not out[i]]
    if len(senders) != len(receivers):
        raise Unsupported(f"{len(senders)} GPUs of a server only send to others and {len(receivers)} only receive")
    one_way = [Nic(-1, (a,), (b,), min(out[a], into[b])) for a, b in zip(senders, receivers, strict=True)]
    return sorted(both + one_way, key=lambda nic: min(nic.sends + nic.receives))


def _nics_with_nodes(
    topology: Topology,
    pcie: list[int],
    inside: set[int],
    near: dict[int, list[int]],
    width: dict[tuple[int, int], float],
) -> list[Nic]:
    """The switches that lead out of the server, or are called network cards."""
    nics: list[tuple[int, Nic]] = []
    for v in pcie:
        out = sum(width.get((v, w), 0.0) for w in near[v] if w not in inside)
        called = re.search(r"(?:^|\.)nic(\d+)(?: (.*))?$", topology.names[v])
        if not out and called is None:
            continue
        own = out or max(width.get((v, w), 0.0) for w in near[v])
        nics.append((int(called[1]) if called else len(nics), Nic(v, (), (), own, (called and called[2]) or "")))
    return [nic for _, nic in sorted(nics, key=lambda pair: pair[0])]


def _assumed_sockets(gpus: int, nics: list[Nic], generation: Generation, notes: list[str]) -> list[Branch]:
    """Two sockets, and a PCIe switch for each network card and its GPUs."""
    lanes = PCIE[generation.pcie]
    at = {g: k for k, nic in enumerate(nics) for g in nic.sends + nic.receives}
    bridges: list[Branch] = []
    for k, nic in enumerate(nics):
        own = [Branch("gpu", g, lanes) for g in sorted({*nic.sends, *nic.receives}) if at[g] == k]
        bridges.append(Branch("bridge", width=lanes, below=[*own, Branch("nic", k, lanes)]))
    bridges += [Branch("gpu", g, lanes) for g in range(gpus) if g not in at]
    bridges.sort(key=lambda b: min((x.number for x in _walk(b) if x.kind == "gpu"), default=gpus))
    half = (len(bridges) + 1) // 2
    notes.append(
        f"PCIe is assumed: two sockets, generation {generation.pcie}, a switch for each network card and its GPUs"
    )
    return [Branch("cpu", below=part) for part in (bridges[:half], bridges[half:]) if part]


def _known_sockets(
    topology: Topology, gpus: list[int], nics: list[Nic], pcie: set[int], near: dict[int, list[int]],
    width: dict[tuple[int, int], float], notes: list[str],
) -> list[Branch]:  # fmt: skip
    """The PCIe trees below sockets; parts without a socket are shared out among two."""
    gpu, nic = {v: i for i, v in enumerate(gpus)}, {n.node: k for k, n in enumerate(nics)}
    seen: set[int] = set()

    def branch(v: int, above: int) -> Branch:
        seen.add(v)
        own = width.get((v, above), 0.0)
        if v in gpu:
            return Branch("gpu", gpu[v], own)
        if v in nic:
            return Branch("nic", nic[v], own, nics[nic[v]].name)
        name = topology.names[v].rpartition("pci ")[2]
        found = Branch("bridge", width=own, name=name if _BUS.fullmatch(name) else "")
        for w in near[v]:
            if w not in seen and (w in pcie or w in gpu) and w not in roots:
                found.below.append(branch(w, v))
        return found

    roots = {v for v in pcie if re.search(r"(?:^|\.)cpu\d+$", topology.names[v])}
    trees = [branch(v, v) for v in sorted(roots)]
    for tree in trees:
        tree.kind = "cpu"
    rest = [branch(v, v) for v in sorted(pcie - set(nic), key=lambda v: -len(near[v])) if v not in seen]
    rest += [branch(v, v) for v in (*gpus, *nic) if v not in seen]
    rest.sort(key=lambda b: min((x.number for x in _walk(b) if x.kind == "gpu"), default=len(gpus)))
    if rest:
        notes.append("sockets are not known; two are assumed")
        half = (len(rest) + 1) // 2
        trees += [Branch("cpu", below=part) for part in (rest[:half], rest[half:]) if part]
    return trees


def _walk(branch: Branch) -> Iterator[Branch]:
    yield branch
    for below in branch.below:
        yield from _walk(below)


# --- as XML ---------------------------------------------------------------------------------------


def topology_xml(server: Server) -> str:
    """The server as a file for ``NCCL_TOPO_FILE``."""
    root = ElementTree.Element("system", version="1")
    used = {b.name for socket in server.sockets for b in _walk(socket) if b.name}
    free = (f"0000:{bus:02x}:00.0" for bus in range(1, 256) if f"0000:{bus:02x}:00.0" not in used)
    ids = {id(b): b.name if _BUS.fullmatch(b.name) else next(free)
           for socket in server.sockets for b in _walk(socket) if b.kind != "cpu"}  # fmt: skip
    gpu_ids = {b.number: ids[id(b)] for socket in server.sockets for b in _walk(socket) if b.kind == "gpu"}
    if len(gpu_ids) != len(server.gpus):
        raise InputError("a GPU has no PCIe link, so it has no place in NCCL's topology file")
    for k, socket in enumerate(server.sockets):
        cpu = ElementTree.SubElement(
            root, "cpu", numaid=str(k), affinity=f"{1 << k:08x}", arch="x86_64", vendor="GenuineIntel", familyid="6",
            modelid="143",
        )  # fmt: skip
        for below in socket.below:
            _add(cpu, below, server, ids, gpu_ids)
    ElementTree.indent(root, " ")
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _add(
    parent: ElementTree.Element, own: Branch, server: Server, ids: dict[int, str], gpu_ids: dict[int, str]
) -> None:
    kind = {"bridge": "0x060400", "gpu": "0x030200", "nic": "0x020700"}[own.kind]
    speed, lanes = pcie_link(own.width, server.generation)
    place = {"busid": ids[id(own)], "class": kind, "link_speed": SPEEDS[speed], "link_width": str(lanes)}
    pci = ElementTree.SubElement(parent, "pci", place)
    if own.kind == "gpu":
        sm = str(server.generation.sm)
        gpu = ElementTree.SubElement(pci, "gpu", dev=str(own.number), sm=sm)
        links = {gpu_ids[b]: n for (a, b), n in sorted(server.nvlinks.items()) if a == own.number}
        for target, count in links.items():
            ElementTree.SubElement(gpu, "nvlink", target=target, count=str(count), tclass="0x030200")
        if server.to_switch[own.number]:
            links_up = str(server.to_switch[own.number])
            ElementTree.SubElement(gpu, "nvlink", target="fffffff:ffff:ff", count=links_up, tclass="0x068000")
    elif own.kind == "nic":
        nic = server.nics[own.number]
        name, speed_mbps = nic.name or f"mlx5_{own.number}", str(round(nic.bandwidth * 8 / 1e6))
        ElementTree.SubElement(
            ElementTree.SubElement(pci, "nic"), "net", name=name, dev=str(own.number), speed=speed_mbps, port="1",
            guid=f"0x{own.number + 1:x}", gdr="1",
        )  # fmt: skip
    for below in own.below:
        _add(pci, below, server, ids, gpu_ids)


def pcie_link(width: float, generation: Generation) -> tuple[float, int]:
    """The speed of a lane in GT/s and the number of lanes that come nearest to a bandwidth, by data sheets or as NCCL
    counts it; 16 lanes of the GPU's generation where the bandwidth is not known (0)."""
    width = width or PCIE[generation.pcie]
    ways = [(gt, lanes) for gt in SPEEDS for lanes in (16, 8, 4, 2, 1)]
    sheets = dict(zip(SPEEDS, PCIE.values(), strict=True))

    def distance(way: tuple[float, int]) -> float:
        gt, lanes = way
        values = (sheets[gt] * lanes / 16, COUNTED_AT_8GT * gt / 8 * lanes)
        return min(abs(math.log(width / value)) for value in values)

    return min(ways, key=distance)
