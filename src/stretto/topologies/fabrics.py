"""Fabrics: what joins the ports of servers, or the border routers of clusters.

A fabric adds its switches and links to a draft that has the servers already. :mod:`.composition` calls it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any

from ..model.errors import InputError
from ..model.topology import ROUTER, SWITCH
from ..model.units import parse_bandwidth, parse_time
from . import Setting, check_size, decimal, whole
from .draft import XY, Draft
from .ports import Port
from .regular import fat_tree_pairs
from .sites import FIBRE_KM_PER_S, wan_links, wan_pairs
from .sites import SETTINGS as SITES_SETTINGS

HOP_S = 1.3e-6
"""Latency of a link between a NIC and a switch, or two switches: half of the 2.6 us between two servers that the public
TE-CCL code has. NCCL's model (src/graph/tuning.cc) has 2.7 us for such a step of a ring."""

Servers = Sequence[Sequence[Port]]
"""The ports of each server."""


@dataclass
class Ground(Draft):
    """A draft that has the servers already.

    Attributes:
        left, right, top: where the servers are drawn.
        message_s, usd_per_byte: of links of the fabric, by their ends, where it says so.
        flags: of nodes of the fabric: replicates, transit, reduces; by default as of a switch that does not reduce.
    """

    left: float = 0.0
    right: float = 0.0
    top: float = 0.0
    message_s: dict[tuple[int, int], float] = field(default_factory=dict)
    usd_per_byte: dict[tuple[int, int], float] = field(default_factory=dict)
    flags: dict[int, tuple[bool, bool, bool]] = field(default_factory=dict)

    def row(self, count: int, level: int) -> list[XY]:
        """Positions of switches in a row above the servers."""
        gap = max(1.0, (self.right - self.left) / 12)
        return [
            (self.left + (self.right - self.left) * (k + 0.5) / count, self.top + gap * level) for k in range(count)
        ]


@dataclass(frozen=True)
class Fabric:
    """A kind of fabric; ``build(draft, servers, settings, where)`` adds one.

    Attributes:
        borders: whether it joins the border routers of clusters instead of the ports of servers.
    """

    name: str
    summary: str
    build: Callable[[Ground, Servers, dict[str, Any], str], None]
    settings: tuple[Setting, ...]
    borders: bool = False


_above_zero = decimal("a number above 0", lambda value: 0 < value < math.inf)
_count = partial(whole, least=1)
LATENCY = Setting("latency", parse_time, HOP_S, "of each link of the fabric")
SPINE = (
    Setting("spines", whole, None, "spine switches; by default one for the whole layer, if there is one"),
    Setting("oversubscription", _above_zero, None, "what enters a leaf switch over what leaves it for the spine"),
)
NUMBER = Setting("number", _count, None, "rails: NIC k of a server is on rail k mod this; by default a rail for each")
POD = Setting("pod", _count, None, "servers under one set of leaf switches; all by default")
BORDERS = (
    Setting("routers", _count, 1, "border routers a site, where it has none"),
    Setting("router_bandwidth", parse_bandwidth, 12.5e9, "of each link between a border router and its site"),
)
_WAN = tuple(s for s in SITES_SETTINGS if s.name in ("wan", "peers", "wan_bandwidth", "km", "wan_latency"))


def _rails(draft: Ground, servers: Servers, settings: dict[str, Any], where: str) -> None:
    """A leaf switch for the NICs of one number in a pod, or for a group of NICs of a server."""
    pod = settings["pod"] or len(servers)
    count = settings["number"] or max(map(len, servers))
    leaves = []
    for rail in range(min(count, max(map(len, servers)))):
        for first in range(0, len(servers), pod):
            ports = [port for ports in servers[first : first + pod] for port in ports[rail::count]]
            if ports:
                leaves.append((ports, f"rail{rail}" + (f".pod{first // pod}" if pod < len(servers) else "")))
    _with_spine(draft, leaves, len(servers) > pod, settings)


def _leafspine(draft: Ground, servers: Servers, settings: dict[str, Any], where: str) -> None:
    """A leaf switch for all NICs of some servers."""
    _two_levels(draft, servers, settings)


def _two_levels(draft: Ground, servers: Servers, settings: dict[str, Any]) -> list[int]:
    pod = settings["pod"] or len(servers)
    groups = [servers[first : first + pod] for first in range(0, len(servers), pod)]
    leaves = [([port for ports in group for port in ports], f"leaf{k}") for k, group in enumerate(groups)]
    return _with_spine(draft, leaves, len(groups) > 1, settings)


def _with_spine(
    draft: Ground, leaves: list[tuple[list[Port], str]], needed: bool, settings: dict[str, Any]
) -> list[int]:
    """Add leaf switches, and spine switches above them; returns the switches at the top."""
    latency_s, ratio, count = settings["latency"], settings["oversubscription"], settings["spines"]
    if count is None:
        count = 1 if needed or (ratio is not None and len(leaves) > 1) else 0
    check_size(len(draft.kinds) + len(leaves) + count, 2 * len(leaves) * count, "fabric")
    row = draft.row(len(leaves), 1)
    switches = []
    for (ports, name), xy in zip(leaves, row, strict=True):
        switches.append(draft.node(SWITCH, name, xy=xy))
        for port in ports:
            draft.join(port.node, switches[-1], port.bandwidth, latency_s)
    spines = [draft.node(SWITCH, f"spine{k}", xy=xy) for k, xy in enumerate(draft.row(count, 2))]
    for spine in spines:
        for (ports, _), leaf in zip(leaves, switches, strict=True):
            draft.join(leaf, spine, sum(port.bandwidth for port in ports) / (ratio or 1.0) / count, latency_s)
    return spines or switches


def _fattree(draft: Ground, servers: Servers, settings: dict[str, Any], where: str) -> None:
    """Three levels of switches of K ports, as many pods as the NICs need; NICs in the order of their servers."""
    ports = [port for server in servers for port in server]
    k = settings["k"] or _alike(servers, len(ports))
    if k % 2 or k**3 // 4 < len(ports):
        raise InputError(f"k={k}: it must be even, and K^3/4 must be at least the {len(ports)} NICs", where)
    half = k // 2
    pods = math.ceil(len(ports) / half**2)
    check_size(len(draft.kinds) + 2 * pods * half + half**2, 4 * pods * half**2, where)
    first = len(draft.kinds)
    for level, (count, name) in enumerate(((pods * half, "edge"), (pods * half, "aggregation"), (half**2, "core"))):
        for i, xy in enumerate(draft.row(count, level + 1)):
            draft.node(SWITCH, f"{name}{i}", xy=xy)
    width = max(port.bandwidth for port in ports)
    for i, port in enumerate(ports):
        draft.join(port.node, first + i // half, port.bandwidth, settings["latency"])
    for a, b in fat_tree_pairs(k, pods):
        draft.join(first + a, first + b, width, settings["latency"])


def _alike(servers: Servers, count: int) -> int:
    """The least K of a fat tree that has room, where all servers have as many NICs on each of their edge switches."""
    least = next(k for k in range(2, 10_000, 2) if k**3 // 4 >= count)
    sides = {len(ports) for ports in servers}
    fits = (k for k in range(least, 10_000, 2) if all(n % (k // 2) == 0 or k // 2 % n == 0 for n in sides))
    return next(fits, least)


def _dragonfly(draft: Ground, servers: Servers, settings: dict[str, Any], where: str) -> None:
    """Groups of switches that are all joined; each switch has links to other groups (Kim et al., ISCA 2008).

    Link c of a group leads to the group c + 1 further on, so all groups are alike. A network that is smaller than the
    largest one has the same number of links, as far as it divides, to every other group.
    """
    ports = [port for server in servers for port in server]
    p = settings["ports"] or next(p for p in range(1, 1000) if 2 * p * p * (2 * p * p + 1) >= len(ports))
    a, h = settings["group"] or 2 * p, settings["global"] or p
    groups = math.ceil(len(ports) / (a * p))
    if groups > a * h + 1:
        raise InputError(f"{len(ports)} NICs are more than ({a * h + 1} groups of {a} switches with {p} NICs)", where)
    first, latency_s = len(draft.kinds), settings["latency"]
    check_size(first + groups * a, groups * a * (a - 1 + h), where)
    for i, xy in enumerate(draft.row(groups * a, 1)):
        draft.node(SWITCH, f"group{i // a}.switch{i % a}", xy=xy)
    width = max(port.bandwidth for port in ports)
    for i, port in enumerate(ports):
        draft.join(port.node, first + i // p, port.bandwidth, latency_s)
    for g in range(groups):
        for i, j in combinations(range(a), 2):
            draft.join(first + g * a + i, first + g * a + j, width, latency_s)
        for c in range(a * h // (groups - 1) * (groups - 1) if groups > 1 else 0):
            turn, step = divmod(c, groups - 1)
            back = turn * (groups - 1) + groups - 2 - step
            other = (g + step + 1) % groups
            draft.link(first + g * a + c // h, first + other * a + back // h, width, latency_s)


def _site(draft: Ground, servers: Servers, settings: dict[str, Any], where: str) -> None:
    """Leaf switches, and a spine if they are several, with border routers on top."""
    top = [Port(v, settings["router_bandwidth"]) for v in _two_levels(draft, servers, settings)]
    add_routers(draft, top, settings["routers"], settings["latency"])


def _wan(draft: Ground, clusters: Servers, settings: dict[str, Any], where: str) -> None:
    """Links between the border routers of clusters, as in the family ``sites``."""
    latency_s = settings["wan_latency"]
    latency_s = settings["km"] / FIBRE_KM_PER_S if latency_s is None else latency_s
    routers = min(map(len, clusters))
    for a, b, r, q in wan_links(wan_pairs(len(clusters), settings["wan"]), routers, settings["peers"]):
        draft.join(clusters[a][r].node, clusters[b][q].node, settings["wan_bandwidth"], latency_s)


def add_routers(draft: Ground, below: Sequence[Port], count: int, latency_s: float, site: str = "") -> list[Port]:
    """Add border routers, each joined to nodes at a bandwidth; returns them, with what they are joined at in all."""
    check_size(len(draft.kinds) + count, 2 * len(below) * count, "border routers")
    x, y = ([draft.xy[port.node][axis] for port in below] for axis in (0, 1))
    total = sum(port.bandwidth for port in below)
    routers = []
    for k in range(count):
        xy = (sum(x) / len(x) + 0.6 * (k - (count - 1) / 2), max(y) + 0.8)
        routers.append(Port(draft.node(ROUTER, f"{site}.router{k}".lstrip("."), site, xy), total))
        for port in below:
            draft.join(port.node, routers[-1].node, port.bandwidth, latency_s)
    return routers


RAILS = Fabric(
    "rails", "a leaf switch for all NICs of one number; a spine on request", _rails, (NUMBER, POD, *SPINE, LATENCY)
)
FABRICS = (
    RAILS,
    Fabric("leafspine", "a leaf switch for all NICs of a pod, and a spine", _leafspine, (POD, *SPINE, LATENCY)),
    Fabric(
        "fattree", "three levels of switches of K ports", _fattree,
        (
            Setting("k", partial(whole, least=2), None, "ports of a switch; by default as few as treat servers alike"),
            LATENCY,
        ),
    ),
    Fabric(
        "dragonfly", "groups of switches, all joined to all", _dragonfly,
        (
            Setting("ports", _count, None, "NICs of a switch; by default the fewest that suffice"),
            Setting("group", _count, None, "switches of a group; by default twice the NICs of a switch"),
            Setting("global", _count, None, "links of a switch to other groups; by default its NICs"),
            LATENCY,
        ),
    ),
    Fabric("site", "leaf switches and border routers", _site, (POD, *SPINE, *BORDERS, LATENCY)),
    Fabric("wan", "links between the border routers of clusters", _wan, (*_WAN, *BORDERS), borders=True),
)  # fmt: skip
