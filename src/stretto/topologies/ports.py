"""Where a server is joined to a fabric: its NICs, or its accelerators if it has no NICs as nodes.

A NIC is a switch that neither replicates nor reduces, between PCIe and the network. Its name says what it is: ``nic``
and a number, and maybe the name of the device: ``nic0``, ``nic3 mlx5_4``, ``server1.nic0``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..model.arrays import Int64
from ..model.errors import InputError
from ..model.topology import SWITCH, Topology
from ..model.units import parse_bandwidth
from . import FABRIC_MESSAGE_S
from .pcie import PCIE_LATENCY_S

MOST_NICS = 4096
"""NICs of a server."""

_NIC = re.compile(r"(?:^|\.)nic(\d{1,6})(?: .*)?$")
_NICS = re.compile(r"(\d{1,6})(?:x(.+))?")


@dataclass(frozen=True)
class Port:
    """A place where a fabric's link begins.

    Attributes:
        node: the NIC, or the accelerator.
        bandwidth: of the link into the fabric, bytes/s each way.
    """

    node: int
    bandwidth: float


@dataclass(frozen=True)
class Nics:
    """What a user says of the NICs of a server: how many, and their bandwidth in bytes/s; None if not said."""

    count: int | None = None
    bandwidth: float | None = None


def parse_nics(text: str | None, where: str = "NICs of a server") -> Nics:
    """NICs from ``8x400Gbit/s``, ``8`` or ``400Gbit/s``."""
    if text is None:
        return Nics()
    match = _NICS.fullmatch(text.strip())
    if match is None:
        return Nics(None, parse_bandwidth(text, where))
    if not 0 < int(match[1]) <= MOST_NICS:
        raise InputError(f"{text!r}: a server has at least one NIC, and at most {MOST_NICS}", where)
    return Nics(int(match[1]), None if match[2] is None else parse_bandwidth(match[2], where))


def nic_nodes(topology: Topology) -> list[int]:
    """The NICs of a topology that no fabric uses, by number."""
    numbered = [(int(m[1]), v) for v, name in enumerate(topology.names) if (m := _NIC.search(name))]
    site = np.unique(np.array(topology.sites), return_inverse=True)[1].reshape(-1)
    used = set(topology.src[site[topology.src] != site[topology.dst]].tolist())
    return [v for _, v in sorted(numbered) if topology.is_switch[v] and v not in used]


def ports(topology: Topology, wanted: Nics, where: str) -> tuple[Topology, list[Port]]:
    """A server and its ports, in the order of its NICs, or of its accelerators.

    Where the number of NICs is not given, those are taken that are the nearest of some accelerator. Of more NICs than
    are wanted, the ones with the fewest hops to an accelerator are taken, then the first ones. Others are left out. A
    server without NICs has one at each accelerator, or several; fewer NICs than accelerators
    become nodes, each for the same number of accelerators.

    Raises:
        InputError: there are too few NICs, they cannot be shared out, their bandwidth is unknown, or the topology is a
            cluster already.
    """
    nics = nic_nodes(topology)
    if nics:
        return _of_nics(topology, nics, wanted, where)
    if len({site for site in topology.sites if site}) > 1:
        raise InputError(
            "is a cluster already, and none of its NICs is free; clusters are joined by the fabric wan, or by a "
            "topology as the fabric",
            where,
        )
    nodes = topology.accelerators.tolist()
    count = len(nodes) if wanted.count is None else wanted.count
    if wanted.bandwidth is None:
        hint = f"give it by --nics (in Python nics=), such as {count}x400Gbit/s"
        raise InputError(f"the bandwidth of its NICs is unknown; {hint}", where)
    if len(nodes) % count == 0 and count < len(nodes):
        topology = _with_nics(topology, count, wanted.bandwidth)
        return topology, [Port(topology.node_count - count + k, wanted.bandwidth) for k in range(count)]
    if count % len(nodes):
        raise InputError(f"{count} NICs cannot be shared out evenly among {len(nodes)} accelerators", where)
    return topology, [Port(v, wanted.bandwidth) for v in nodes for _ in range(count // len(nodes))]


def _of_nics(topology: Topology, nics: list[int], wanted: Nics, where: str) -> tuple[Topology, list[Port]]:
    if wanted.count is not None and wanted.count > len(nics):
        raise InputError(f"it has {len(nics)} NICs, and {wanted.count} are wanted", where)
    hops = np.array([_hops(topology, [v])[topology.accelerators] for v in nics])
    if wanted.count is None:
        chosen = [v for v, own in zip(nics, (hops == hops.min(axis=0)).any(axis=1).tolist(), strict=True) if own]
    else:
        nearest = hops.min(axis=1)
        chosen = [nics[k] for k in sorted(range(len(nics)), key=lambda k: (nearest[k], k))[: wanted.count]]
    topology = without_nics(topology, set(nics) - set(chosen))
    own = np.zeros(topology.node_count)
    np.maximum.at(own, topology.dst, topology.bandwidth)
    return topology, [Port(v, wanted.bandwidth or float(own[v])) for v in nic_nodes(topology)]


def without_nics(topology: Topology, dropped: set[int]) -> Topology:
    """The server without some NICs, and without the switches that lead nowhere then."""
    if not dropped:
        return topology
    kept = np.ones(topology.node_count, dtype=np.bool_)
    kept[list(dropped)] = False
    spared = set(nic_nodes(topology))
    while True:
        inner = kept[topology.src] & kept[topology.dst]
        ways = np.bincount(topology.src[inner], minlength=topology.node_count)
        ends = [v for v in np.flatnonzero(kept & topology.is_switch & (ways <= 1)).tolist() if v not in spared]
        if not ends:
            break
        kept[ends] = False
    number = np.cumsum(kept) - 1
    smaller = topology.with_links(inner)
    columns: dict[str, Any] = {name: getattr(smaller, name)[kept] for name in ("kind", *_FLAGS, "xy")}
    columns |= {end: number[getattr(smaller, end)].astype(np.int32) for end in ("src", "dst")}
    columns |= {name: tuple(np.array(getattr(smaller, name), dtype=object)[kept]) for name in ("names", "sites")}
    left = ", ".join(topology.names[v] for v in sorted(dropped))
    return replace(smaller, **columns, notes=(*topology.notes, f"NICs left out: {left}"))


_FLAGS = ("replicates", "transit", "reduces")


def _with_nics(topology: Topology, count: int, bandwidth: float) -> Topology:
    """The server with NICs after its other nodes, each joined to the same number of accelerators."""
    nodes, n = topology.accelerators, topology.node_count
    nic = n + np.arange(len(nodes)) * count // len(nodes)
    first = nodes[:: len(nodes) // count]
    ways = len(nodes) * 2
    more: dict[str, Any] = {
        "src": [*nodes, *nic], "dst": [*nic, *nodes], "bandwidth": np.full(ways, bandwidth),
        "latency_s": np.full(ways, PCIE_LATENCY_S),
        "message_s": np.full(ways, FABRIC_MESSAGE_S if topology.knows_messages else 0.0),
        "usd_per_byte": np.zeros(ways), "kind": np.full(count, SWITCH),
        "xy": topology.xy[first] * 1.3, **{flag: np.full(count, flag == "transit") for flag in _FLAGS},
    }  # fmt: skip
    columns: dict[str, Any] = {
        name: np.concatenate([old, np.asarray(values, dtype=old.dtype)])
        for name, values in more.items()
        for old in (getattr(topology, name),)
    }
    names = (*topology.names, *(f"nic{k}" for k in range(count)))
    return replace(topology, **columns, names=names, sites=(*topology.sites, *(topology.sites[v] for v in first)))


def hops_from_accelerators(topology: Topology) -> Int64:
    """int64[nodes], how many links the nearest accelerator is away."""
    return _hops(topology, topology.accelerators)


def _hops(topology: Topology, sources: ArrayLike) -> Int64:
    """int64[nodes], how many links the nearest source is away, without ways through other accelerators."""
    hops = np.full(topology.node_count, topology.node_count)
    hops[np.asarray(sources)] = 0
    passed = ~topology.is_accelerator | (hops == 0)
    while True:
        nearer = hops.copy()
        np.minimum.at(nearer, topology.dst, np.where(passed, hops, topology.node_count)[topology.src] + 1)
        if np.array_equal(nearer, hops):
            return hops
        hops = nearer
