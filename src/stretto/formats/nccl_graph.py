"""Graphs of NCCL (``NCCL_GRAPH_DUMP_FILE``, ``NCCL_GRAPH_FILE``): the rings and trees of its channels, as data.

The form is that of NVIDIA/nccl at 01afd20, src/graph/search.cc (ncclTopoGetXmlFromGraph) and xml.cc. A file has the
GPUs of one server (or of one NVLink fabric); NCCL joins servers by their numbers, rings from each to the next and trees
as a double binary tree over servers (src/graph/connect.cc, trees.cc).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ..model.errors import Fault, InputError
from ..model.topology import Topology
from ..topologies.values import count, named, parse_xml, read_text, real, shown, tag

RING, TREE = 0, 1
"""The numbers of the graphs that are read (``id``, src/init.cc)."""
SPLIT_TREE, PLAIN_TREE = 2, 3
"""Patterns of trees in which the second GPU has both children, or the first has both. In others the second has the
first child and the first the second (ncclTopoPreset in connect.cc)."""
MOST_CHANNELS = 1024


class Channel(NamedTuple):
    """Where a channel is in the file."""

    graph: int
    channel: int

    def __str__(self) -> str:
        return f"graph {self.graph}, channel {self.channel}"


class Graph(NamedTuple):
    """A graph: for each channel the GPUs of a server in their order, by their place among those of the server.

    Attributes:
        alternates: whether every second server has the channels in pairs the other way round (``crossnic`` 2).
        passes_gpus: whether the way to a card may lead through the memory of another GPU (``typeinter`` PXN).
        intra, inter: the bandwidth that each channel claims inside a server and between servers, bytes/s.
    """

    id: int
    pattern: int
    alternates: bool
    passes_gpus: bool
    intra: float
    inter: float
    channels: tuple[tuple[int, ...], ...]


Tree = dict[int, int]
"""For each node of the topology the one above it, -1 for the root."""


def read_graph(path: str, id: int, gpus: int) -> Graph:
    """One graph of a file, for servers of a given number of GPUs.

    Raises:
        InputError: the file is none of NCCL's graphs, or has none of this number.
        Fault: a channel leaves GPUs out or has one twice.
    """
    root = parse_xml(read_text(path), path)
    if tag(root) != "graphs":
        raise InputError("has no <graphs>; is it a file of NCCL_GRAPH_DUMP_FILE?", path)
    found = [g for g in named(root, "graph") if g.get("id") == str(id)]
    if not found:
        raise InputError(f"has no graph with id {id} ({('ring', 'tree')[id]})", path)
    element, where = found[0], f"{path}, graph {id}"
    intra, inter = (real(element.get(f"speed{side}"), f"speed{side}", where) * 1e9 for side in ("intra", "inter"))
    listed = [_gpus(channel, where) for channel in named(element, "channel")]
    said = count(element.get("nchannels"), "nchannels", where, 0, MOST_CHANNELS)
    if said != len(listed) or not listed:
        raise Fault(f"graph {id}: says {said} channels and has {len(listed)}", None, "channels", path)
    known = sorted({g for channel in listed for g in channel})
    place = {g: i for i, g in enumerate(known)}
    for c, channel in enumerate(listed):
        _check(channel, known, gpus, Channel(id, c), path)
    channels = tuple(tuple(place[g] for g in channel) for channel in listed)
    alternates = element.get("crossnic") == "2" and len(channels) % 2 == 0
    pattern, passes_gpus = count(element.get("pattern"), "pattern", where, 0, 9), element.get("typeinter") == "PXN"
    return Graph(id, pattern, alternates, passes_gpus, intra, inter, channels)


def _gpus(channel: Any, where: str) -> list[int]:
    """The GPUs of a channel: ranks where the file has them, else numbers of devices."""
    gpus = []
    for gpu in named(channel, "gpu"):
        text = gpu.get("rank", gpu.get("dev"))
        try:
            gpus.append(int(text, 10 if "rank" in gpu.attrib else 16))
        except (TypeError, ValueError):
            raise InputError(f"a gpu has the rank or dev {shown(text)}, which is no number", where) from None
    return gpus


def _check(channel: list[int], known: list[int], gpus: int, at: Channel, path: str) -> None:
    """Every GPU of the server stands once in a channel."""
    twice = [g for g, times in Counter(channel).items() if times > 1]
    lost = [g for g in known if g not in channel]
    if twice or lost:
        words = [f"visits gpu {twice[0]} {channel.count(twice[0])} times"] if twice else []
        words += [f"never visits gpu {lost[0]}"] if lost else []
        raise Fault(" and ".join(words), at, "ring" if at.graph == RING else "tree", path)
    if len(channel) != gpus:
        raise InputError(f"{at}: has {len(channel)} gpus, and a server of the topology has {gpus}", path)


def servers_of(topology: Topology, path: str) -> list[list[int]]:
    """The accelerators of each server, in the order of ranks; one server where no site is named."""
    servers: dict[str, list[int]] = {}
    for v in topology.accelerators.tolist():
        servers.setdefault(topology.sites[v], []).append(v)
    if len({len(nodes) for nodes in servers.values()}) > 1:
        raise InputError(
            f"is one graph for all servers, and those of {topology.name} have different numbers of GPUs", path
        )
    return list(servers.values())


def rings_of(graph: Graph, servers: Sequence[Sequence[int]]) -> list[list[int]]:
    """For each channel the nodes of its ring: those of one server after the other, in the order of servers."""
    rings = []
    for c in range(len(graph.channels)):
        ring = []
        for s, server in enumerate(servers):
            ring += [server[i] for i in graph.channels[c ^ 1 if graph.alternates and s % 2 else c]]
        rings.append(ring)
    return rings


def trees_of(graph: Graph, servers: Sequence[Sequence[int]]) -> list[Tree]:
    """The two trees of each channel: chains inside servers, hung below each other as a double binary tree."""
    trees = []
    for channel in graph.channels:
        first = 0 if graph.pattern == PLAIN_TREE else min(1, len(channel) - 1)
        second = min(1, len(channel) - 1) if graph.pattern == SPLIT_TREE else 0
        for mirrored in (False, True):
            tree: Tree = {}
            for s, server in enumerate(servers):
                for a, b in pairwise(channel):
                    tree[server[b]] = server[a]
                above, is_first = _above(len(servers), s, mirrored)
                child = first if is_first else second
                tree[server[channel[0]]] = -1 if above < 0 else servers[above][channel[child]]
            trees.append(tree)
    return trees


def _above(servers: int, server: int, mirrored: bool) -> tuple[int, bool]:
    """The server above one in the first or second of two binary trees, -1 for none; whether it is its first child."""
    if not mirrored:
        return _above_in_one(servers, server)
    if servers % 2:
        up, is_first = _above_in_one(servers, (server - 1) % servers)
        return (-1 if up < 0 else (up + 1) % servers), is_first
    up, is_first = _above_in_one(servers, servers - 1 - server)
    return (-1 if up < 0 else servers - 1 - up), is_first


def _above_in_one(servers: int, server: int) -> tuple[int, bool]:
    if server == 0:
        return -1, True
    bit = server & -server
    up = (server ^ bit) | (bit << 1)
    if up >= servers:
        up = server ^ bit
    return up, server < up
