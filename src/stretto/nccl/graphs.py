"""Rings, trees and multicast heads of a server, as NCCL's graph files hold them (``NCCL_GRAPH_FILE``).

NCCL searches them on the server alone (src/graph/search.cc): channels of one speed, from a ladder of speeds, whose
number times speed is largest. The speeds here are the same, and rings inside the server are those of
:mod:`stretto.planners.nccl.rings`, with bandwidths as NCCL counts them. What NCCL cannot see is the network between
servers. Here the ways of channels are routed over the topology (:mod:`.fabric`), and the speed of a channel is no more
than what they leave it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np

from ..model.errors import Unsupported
from ..model.topology import SWITCH, Topology
from ..planners.nccl.rings import find_rings
from ..schedule.effort import Budget
from ..topologies.nccl_xml import parse
from .fabric import Fabric
from .generations import Generation
from .paths import Paths
from .server import Server, topology_xml

RING, BALANCED_TREE, TREE, NVLS = 4, 1, 3, 5
"""Patterns of a graph (src/include/graph.h)."""

MOST_CHANNELS = 32
"""Channels of a ring graph (MAXCHANNELS / 2 of NCCL 2.30)."""

HOPPER = 90
"""The compute capability from which NVSwitches multicast for NCCL (NVLS)."""


@dataclass(frozen=True)
class Channel:
    """GPUs in turn, and the network cards by which data enters and leaves, if any; by their number in the server."""

    gpus: tuple[int, ...]
    nets: tuple[int, ...] = ()


@dataclass(frozen=True)
class Graph:
    """One graph: channels of one speed.

    Attributes:
        id: 0 of rings, 1 of trees, 3 of multicast heads.
        intra, inter: speed of a channel inside a server and between servers, GB/s.
        latency_us: what a step between servers takes beyond NCCL's own figure, microseconds.
        type_intra, type_inter: the worst path between GPUs, and between a GPU and a network card: NVL, PIX, PXB, PXN,
            PHB or SYS, as NCCL calls them.
    """

    id: int
    pattern: int
    crossnic: int
    intra: float
    inter: float
    latency_us: float
    type_intra: str
    type_inter: str
    channels: tuple[Channel, ...]

    @property
    def total(self) -> float:
        """GB/s of all channels."""
        return len(self.channels) * self.intra


@dataclass(frozen=True)
class Graphs:
    """The graphs of a server; ``nvls`` is None where its NVSwitches do not multicast for NCCL."""

    ring: Graph
    tree: Graph
    nvls: Graph | None

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """All that there are."""
        return tuple(g for g in (self.ring, self.tree, self.nvls) if g is not None)


@dataclass(frozen=True)
class Found:
    """What NCCL should use, and what it would take by itself.

    Attributes:
        graphs: with the network between servers as the topology has it.
        by_nics: with a network that carries what network cards do, at once: what NCCL takes for granted.
    """

    graphs: Graphs
    by_nics: Graphs


def find_graphs(topology: Topology, servers: Sequence[Sequence[int]], server: Server) -> Found:
    """The graphs of each of equal servers.

    Args:
        servers: the GPUs' nodes of each server, in the order of ranks.
    Raises:
        Unsupported: GPUs, or servers, are joined by nothing that NCCL can use.
    """
    inside = _Inside(server)
    if len(servers) == 1:
        graphs = _one_server(inside)
        return Found(graphs, graphs)
    fabric = Fabric(topology, servers, server)
    rings = [
        max(found, key=lambda g: (g.total, g.intra))
        for style in (_same_nics, _alternating)
        if (found := [g for w in server.generation.inter if (g := style(inside, w))])
    ]
    carried = [_carried(ring, fabric) for ring in rings]
    if not any(ring.intra > 0 for ring in carried):
        raise Unsupported("no channel leads from one server to the next over network cards and switches alone")
    unaware = max(rings, key=lambda g: g.total)
    best = max(carried, key=lambda g: (round(g.total, 6), g.crossnic == unaware.crossnic))
    return Found(_several(inside, best, fabric), _several(inside, unaware, None))


def _carried(graph: Graph, fabric: Fabric | None) -> Graph:
    """A graph at the speed and latency that the network between servers allows it."""
    if fabric is None:
        return graph
    share, latency_s = fabric.share([c.nets for c in graph.channels], swapped=graph.crossnic == 2)
    between = min(graph.inter, share)
    intra = between if graph.id == 0 else min(graph.intra, 2 * between)
    return replace(graph, intra=intra, inter=between, latency_us=fabric.beyond_us(latency_s))


def _several(inside: _Inside, ring: Graph, fabric: Fabric | None) -> Graphs:
    """The graphs of several servers whose rings are found."""
    ring = _doubled(ring, inside.server.generation)
    tree = _carried(_tree(inside, ring), fabric)
    nvls = _nvls(inside, True)
    return Graphs(ring, tree, nvls and _carried(nvls, fabric))


class _Inside:
    """A server with the bandwidths that NCCL counts, and room for channels.

    Attributes:
        orders: for each speed the rings of GPUs, by their numbers, that fit side by side.
    """

    def __init__(self, server: Server) -> None:
        self.server, self.paths = server, Paths(server)
        self.view = parse(ElementTree.fromstring(topology_xml(server)), "NCCL's topology file")
        fast = np.array(
            [_is_fast(self.view, a, b) for a, b in zip(self.view.src, self.view.dst, strict=True)], dtype=np.bool_
        )
        self.nvlinks = self.view.with_links(fast)
        self.route = _routes(self.nvlinks, len(server.gpus))
        hops = zip(range(len(server.gpus)), [*range(1, len(server.gpus)), 0], strict=True)
        self.fits_nvlink = all(hop in self.route for hop in hops)
        self._orders: dict[float, list[tuple[int, ...]]] = {}
        most = min((self.paths.nic_width(k) for k in range(len(server.nics))), default=0.0)
        self.nic_speed = max((w for w in server.generation.inter if w <= most + 1e-9), default=0.0)

    def orders(self, speed: float) -> list[tuple[int, ...]]:
        """Rings of this speed inside the server, over NVLinks if there are any of them, otherwise over PCIe."""
        if speed not in self._orders:
            ranks = self.view.accelerators.astype(np.int64)
            self._orders[speed] = [(0,)] * MOST_CHANNELS if len(ranks) == 1 else []
            for net in (self.nvlinks, self.view) if len(ranks) > 1 else ():
                if not _joined(net, len(ranks)):
                    continue
                rings = find_rings(net, ranks, Budget(), (speed * 1e9,))
                if not rings.relayed and rings.bandwidth >= speed * 1e9 * (1 - 1e-9):
                    self._orders[speed] = [ring.order for ring in rings.rings]
                    break
        return self._orders[speed]

    def ways_round(self, order: tuple[int, ...]) -> list[tuple[int, ...]]:
        """A ring, after its reverse where an NVSwitch has as much room for that."""
        return [order[::-1], order] if self.server.to_switch[0] else [order]

    def closes(self, order: tuple[int, ...]) -> bool:
        """Whether a chain closes over NVLinks, and backwards too, so that it may begin anywhere."""
        return all(
            hop in self.route and hop[::-1] in self.route for hop in zip(order, order[1:] + order[:1], strict=True)
        )

    def fit(self, channels: Sequence[Channel], speed: float) -> bool:
        """Whether chains of GPUs have room on NVLinks at this speed, each hop by its shortest way."""
        left = self.nvlinks.bandwidth / 1e9 + 1e-6
        for channel in channels:
            for hop in pairwise(channel.gpus):
                if hop not in self.route:
                    return False
                left[list(self.route[hop])] -= speed
        return bool((left >= 0).all())

    def graph(self, pattern: int, crossnic: int, speed: float, channels: Sequence[Channel]) -> Graph:
        """A graph of channels, with the types of its paths."""
        hops = {hop for c in channels for hop in pairwise(c.gpus)}
        ends = {(c.gpus[0], c.nets[0]) for c in channels if c.nets} | {
            (c.gpus[-1], c.nets[1]) for c in channels if c.nets
        }
        intra = self.paths.worst([self.paths.between(a, b) for a, b in hops] or ["LOC"])
        inter = self.paths.worst([self.paths.to_nic(g, k) for g, k in ends] or ["PIX"])
        return Graph(0 if pattern == RING else 1, pattern, crossnic, speed, speed, 0.0, intra, inter, tuple(channels))


def _is_fast(view: Topology, a: int, b: int) -> bool:
    """Whether a link is an NVLink: between GPUs, or a GPU and an NVSwitch."""
    return all(view.is_accelerator[v] or view.names[v].startswith("nvswitch") for v in (a, b))


def _joined(net: Topology, gpus: int) -> bool:
    """Whether the first GPU reaches all others, and they it: links of a server lead both ways."""
    reached, edge = {0}, [0]
    while edge:
        edge = [w for v in edge for w in set(net.dst[net.out_links[v]].tolist()) - reached]
        reached |= set(edge)
    return reached >= set(range(gpus))


def _routes(net: Topology, gpus: int) -> dict[tuple[int, int], tuple[int, ...]]:
    """For two GPUs the links of a way over NVLinks without another GPU: one link, or two at an NVSwitch."""
    routes: dict[tuple[int, int], tuple[int, ...]] = {}
    for a in range(gpus):
        for link in net.out_links[a].tolist():
            b = int(net.dst[link])
            if net.kind[b] == SWITCH:
                routes |= {
                    (a, int(net.dst[e])): (link, e)
                    for e in net.out_links[b].tolist()
                    if (a, int(net.dst[e])) not in routes
                }
    for a in range(gpus):
        routes |= {(a, int(net.dst[e])): (e,) for e in net.out_links[a].tolist() if net.kind[net.dst[e]] != SWITCH}
    return routes


def _one_server(inside: _Inside) -> Graphs:
    """Rings that close inside the server, and trees along them."""
    generation = inside.server.generation
    found = [
        inside.graph(RING, 0, w, [Channel(_rotated(o, 0)) for o in orders])
        for w in generation.intra
        if (orders := inside.orders(w))
    ]
    if not found or len(inside.server.gpus) == 1:
        raise Unsupported("one server whose GPUs no ring joins: NCCL has nothing to arrange there")
    ring = _doubled(max(found, key=lambda g: (g.total, g.intra)), generation)
    tree = replace(ring, id=1, pattern=BALANCED_TREE)
    return Graphs(ring, tree, _nvls(inside, False))


def _same_nics(inside: _Inside, speed: float) -> Graph | None:
    """Rings that leave the server by the network card by which they enter it; the last GPU may reach it over NVLink."""
    if speed > inside.nic_speed:
        return None
    room = [int(inside.paths.nic_width(k) / speed + 1e-9) for k in range(len(inside.server.nics))]
    turns = [k for lap in range(max(room)) for k in range(len(room)) if lap < room[k]]
    orders = inside.orders(speed)[:MOST_CHANNELS]
    count = min(len(orders), len(turns))
    wide = (w for w in inside.server.generation.inter if w > speed and len(inside.orders(w)) >= count)
    orders = inside.orders(next(wide, speed))
    channels: list[Channel] = []
    starts = Counter[int]()
    for nic, order in zip(turns, orders[:count], strict=False):
        last = inside.paths.senders(nic)
        chains = [
            c for ring in inside.ways_round(order) for g in inside.paths.receivers(nic) for c in (_rotated(ring, g),)
        ]
        chain = min(chains, key=lambda c: (c[-1] not in last, starts[c[0]]))
        starts[chain[0]] += 1
        channels.append(Channel(chain, (nic, nic)))
    return inside.graph(RING, 0, speed, channels) if channels else None


def _alternating(inside: _Inside, speed: float) -> Graph | None:
    """Pairs of rings, one the reverse of the other: one enters by a network card and leaves by its neighbour.

    In every second server NCCL swaps the two, so that data stays on its rail.
    """
    nics = range(len(inside.server.nics))
    if speed > inside.nic_speed or len(nics) < 2 or not inside.fits_nvlink:
        return None
    order = tuple(range(len(inside.server.gpus)))
    orders = inside.orders(speed) or [order]
    room = {k: int(inside.paths.nic_width(k) / speed + 1e-9) for k in nics}
    channels: list[Channel] = []
    for a, b in [(k, k + 1) for _ in range(max(room.values())) for k in nics[:-1:2]]:
        if min(room[a], room[b]) < 1 or len(channels) + 2 > MOST_CHANNELS:
            continue
        base = orders[len(channels) // 2 % len(orders)]
        chains = [_rotated(ring, g) for ring in (tuple(reversed(base)), base) for g in inside.paths.receivers(a)]
        chain = next((c for c in chains if c[-1] in inside.paths.senders(b)), None)
        if chain is None:
            continue
        pair = [Channel(chain, (a, b)), Channel(chain[::-1], (b, a))]
        ends = chain[-1] in inside.paths.receivers(b) and chain[0] in inside.paths.senders(a)
        if ends and inside.fit([*channels, *pair], speed):
            channels += pair
            room[a], room[b] = room[a] - 1, room[b] - 1
    return inside.graph(RING, 2, speed, channels) if channels else None


def _rotated(order: tuple[int, ...], first: int) -> tuple[int, ...]:
    at = order.index(first)
    return order[at:] + order[:at]


def _doubled(graph: Graph, generation: Generation) -> Graph:
    """Each channel twice at half the speed, where NCCL does so (ncclTopoDupChannels): a channel is a multiprocessor."""
    n = len(graph.channels)
    if graph.intra < 25 or (generation.sm > 80 and graph.intra < 50 and n > 4):
        return graph
    channels = (graph.channels * 2)[:MOST_CHANNELS]
    parts = -(-len(channels) // n)
    return replace(graph, channels=channels, intra=graph.intra / parts, inter=graph.inter / parts)


def _tree(inside: _Inside, ring: Graph) -> Graph:
    """Chains along the rings, from the network card on. Where the second GPU is as near to it, it takes one child."""
    channels = []
    starts = Counter[tuple[int, int]]()
    for ring_channel in ring.channels:
        order, nic = ring_channel.gpus, ring_channel.nets[0]
        local = inside.paths.local(nic)
        ways = [order[::-1], order] if inside.closes(order) else [order]
        chains = [_rotated(way, g) for way in ways for g in local if inside.closes(way) or g == way[0]] or [order]
        chain = min(
            chains, key=lambda c: (c[1:2] != () and c[1] not in local, starts[c[0], nic], c[0] != order[0], c != order)
        )
        starts[chain[0], nic] += 1
        channels.append(Channel(chain, (nic, nic)))
    balanced = all(len(c.gpus) > 1 and c.gpus[1] in inside.paths.local(c.nets[0]) for c in channels)
    old = inside.server.generation.sm < HOPPER and len(channels[0].gpus) > 1
    pattern = BALANCED_TREE if balanced or old else TREE
    room = Counter(c.nets[0] for c in channels)
    most = min(inside.paths.nic_width(k) / n for k, n in room.items())
    ladder = [w for w in inside.server.generation.inter if inside.fit(channels, w)]
    inter = max((w for w in ladder if w <= most + 1e-9), default=ring.inter)
    graph = inside.graph(pattern, 0, inter, channels)
    ends = [inside.paths.to_nic(g, c.nets[0]) for c in channels for g in c.gpus[: 2 if pattern == BALANCED_TREE else 1]]
    # half of what leaves a server does so from the second GPU: where that is not at the card, NVLinks carry it
    most = inter if pattern == BALANCED_TREE and not balanced else 2 * inter + 1e-9
    intra = max((w for w in ladder if w <= most), default=inter)
    return replace(graph, intra=intra, type_inter=inside.paths.worst(ends))


def _nvls(inside: _Inside, several: bool) -> Graph | None:
    """A head for each GPU that multicasts in the server: it takes twice what the others take of the NVSwitch."""
    server = inside.server
    if server.generation.sm < HOPPER or not all(server.to_switch) or len(server.gpus) < 2:
        return None
    heads = [Channel((inside.paths.receivers(k)[0],), (k, k)) for k in range(len(server.nics))] if several else []
    channels = list({c.gpus: c for c in reversed(heads)}.values())[::-1] or [
        Channel((g,)) for g in range(len(server.gpus))
    ]
    room = min(server.to_switch) * server.generation.counted / 1e9 / (len(channels) + 1)
    ladder = [w for w in server.generation.inter if w <= inside.nic_speed] if several else list(server.generation.intra)
    intra = max((w for w in ladder if w <= room + 1e-6), default=ladder[-1])
    inter = min(
        (w for w in ladder if w >= 2 * intra), default=ladder[0]
    )  # NCCL raises it to twice the other, where it can
    return Graph(3, NVLS, 0, intra, inter, 0.0, "NVL", "PIX", tuple(channels))


# --- as XML ---------------------------------------------------------------------------------------


def graphs_xml(graphs: Graphs) -> str:
    """The graphs as a file for ``NCCL_GRAPH_FILE``.

    GPUs and network cards are named by their number in the server, and not by rank, so that one file serves all.
    """
    root = ElementTree.Element("graphs", version="1")
    for graph in graphs.graphs:
        element = ElementTree.SubElement(
            root, "graph", id=str(graph.id), pattern=str(graph.pattern), crossnic=str(graph.crossnic),
            nchannels=str(len(graph.channels)), speedintra=f"{graph.intra:.6g}", speedinter=f"{graph.inter:.6g}",
            latencyinter=f"{graph.latency_us:.6g}", typeintra=graph.type_intra, typeinter=graph.type_inter,
            samechannels=str(int(len({c.gpus for c in graph.channels}) == 1)),
        )  # fmt: skip
        for c in graph.channels:
            channel = ElementTree.SubElement(element, "channel")
            for k in c.nets[:1]:
                ElementTree.SubElement(channel, "net", dev=f"{k:#x}")
            for g in c.gpus:
                ElementTree.SubElement(channel, "gpu", dev=f"{g:#x}")
            for k in c.nets[1:]:
                ElementTree.SubElement(channel, "net", dev=f"{k:#x}")
    ElementTree.indent(root, " ")
    return ElementTree.tostring(root, encoding="unicode") + "\n"
