"""Over which links the GPUs of an NCCL channel reach each other, with the way through the card of another GPU (PXN).

A GPU may reach a network card by way of a GPU beside it: it writes to that GPU's memory over NVLink, and the card sends
from there (the path type PXN of NVIDIA/nccl at 01afd20, src/graph/paths.cc). That GPU's program takes no part, so data
passes it as it passes a switch, and takes bandwidth of its links.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..model.arrays import Float64
from ..model.errors import Fault, InputError
from ..model.topology import SWITCH, Topology, make_topology
from ..model.units import format_bandwidth
from .nccl_graph import Channel, Graph
from .routes import Routes

Edges = list[list[tuple[int, int]]]
"""For each channel the pairs of nodes between which it sends."""

TOLERANCE = 0.005
"""Part of a bandwidth by which claims may exceed it: files have rounded numbers."""


class Joins:
    """The links between the GPUs of a graph's channels.

    Attributes:
        topology: the network; GPUs that data passes have two switches before them (:func:`passable`).
    """

    def __init__(self, topology: Topology, graph: Graph, edges: Edges, path: str) -> None:
        """Look for all ways.

        Raises:
            Fault: two GPUs of a channel are not joined.
        """
        direct = Routes(topology, path)
        beside: dict[tuple[int, int], int] = {}
        for c, pairs in enumerate(edges):
            for a, b in pairs:
                if not _joined(direct, a, b):
                    beside[a, b] = _gpu_beside(topology, graph, direct, a, b, Channel(graph.id, c), path)
        self.topology, passing = passable(topology, sorted(set(beside.values())))
        routes = Routes(self.topology, path) if beside else direct
        self._links = {
            (a, b): (*routes.between(a, v)[:-1], passing[v], *routes.between(v, b)[1:]) for (a, b), v in beside.items()
        }
        self._links |= {(a, b): routes.between(a, b) for pairs in edges for a, b in pairs if (a, b) not in beside}

    def of(self, a: int, b: int) -> tuple[int, ...]:
        """The links from one GPU to the next one of a channel."""
        return self._links[a, b]

    def speeds(self, graph: Graph, edges: Edges) -> str:
        """What the channels claim on each link together, against what it carries, as a note.

        Args:
            edges: for each channel the pairs that its bandwidth counts for.
        """
        net = self.topology
        claimed: Float64 = np.zeros(net.link_count)
        for channel in edges:
            for a, b in channel:
                claimed[list(self.of(a, b))] += graph.intra if net.sites[a] == net.sites[b] else graph.inter
        share = claimed / net.bandwidth
        worst = int(np.argmax(share))
        said = f"{format_bandwidth(claimed[worst])} on {net.link_name(worst)}, which carries"
        channels = "1 channel claims" if len(edges) == 1 else f"{len(edges)} channels claim"
        words = f"{channels} {said} {format_bandwidth(float(net.bandwidth[worst]))}"
        return f"{words}: {share[worst]:.0%} of it" if share[worst] <= 1 + TOLERANCE else f"{words}: more than there is"


def _joined(routes: Routes, a: int, b: int) -> bool:
    try:
        routes.between(a, b)
    except InputError:
        return False
    return True


def _gpu_beside(topology: Topology, graph: Graph, routes: Routes, a: int, b: int, at: Channel, path: str) -> int:
    """The GPU in the server of ``a`` through whose card it reaches ``b``; Fault if there is none that may be used."""
    server: list[int] = [v for v in topology.accelerators.tolist() if v != a and topology.sites[v] == topology.sites[a]]
    ways = [v for v in server if graph.passes_gpus and topology.sites[a] != topology.sites[b]]
    ways = [v for v in ways if _joined(routes, a, v) and _joined(routes, v, b)]
    if not ways:
        names = topology.names
        words = f"goes from {names[a]} to {names[b]}, which {topology.name} joins only through other GPUs"
        raise Fault(words, at, "link", path)
    return ways[0]


def passable(topology: Topology, gpus: list[int]) -> tuple[Topology, dict[int, int]]:
    """The network where data may pass some GPUs without being stored, and for each of these the link that passes it.

    Such a GPU gets two switches: all its links come in at the first and leave from the second, and these two are joined
    with it and with each other. So what passes it and what it sends and receives itself share its links.
    """
    if not gpus:
        return topology, {}
    n, links = topology.node_count, topology.link_count
    enters = {v: n + 2 * i for i, v in enumerate(gpus)}
    leaves = {v: n + 2 * i + 1 for i, v in enumerate(gpus)}
    dst = [enters.get(v, v) for v in topology.dst.tolist()]
    src = [leaves.get(v, v) for v in topology.src.tolist()]
    inner = [pair for v in gpus for pair in ((enters[v], v), (v, leaves[v]), (enters[v], leaves[v]))]
    width = [float(topology.bandwidth[topology.in_links[v]].sum() + topology.bandwidth[topology.out_links[v]].sum())
             for v in gpus for _ in range(3)]  # fmt: skip
    none = np.zeros(len(inner))
    more = np.column_stack((np.array(inner, dtype=np.float64), width, none))
    table = np.column_stack((src, dst, topology.bandwidth, topology.latency_s))
    names = [f"{topology.names[v]} {way}" for v in gpus for way in ("in", "out")]
    added = make_topology(
        topology.name, [*topology.kind.tolist(), *[SWITCH] * len(names)], np.concatenate((table, more)),
        message_s=np.concatenate((topology.message_s, none)), message_basis=topology.message_basis,
        usd_per_byte=np.concatenate((topology.usd_per_byte, none)), names=[*topology.names, *names],
        sites=[*topology.sites, *(topology.sites[v] for v in gpus for _ in range(2))],
        replicates=[*topology.replicates.tolist(), *[False] * len(names)],
        transit=[*topology.transit.tolist(), *[True] * len(names)],
        reduces=[*topology.reduces.tolist(), *[False] * len(names)], notes=topology.notes,
    )  # fmt: skip
    return replace(added, geographic=topology.geographic), {v: links + 3 * i + 2 for i, v in enumerate(gpus)}
