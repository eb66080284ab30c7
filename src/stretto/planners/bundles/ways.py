"""Which node may send a bundle to which, and over which links: one way for each port of the sender."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...model.arrays import Int32, Int64, Ragged
from ...model.topology import Topology
from ...schedule.routes import Routes, routes_from
from .kernel_trees import Ways


def nodes_of(topology: Topology, ranks: Int32, root: int) -> Int64:
    """int64[nodes]: the root, the other ranks, and other nodes that store, which may pass data on (relays)."""
    relays = np.setdiff1d(np.flatnonzero(topology.store_and_forward), ranks)
    return np.concatenate(([root], ranks[ranks != root], relays)).astype(np.int64)


def ways_among(topology: Topology, nodes: Int64, may_fork: bool) -> tuple[Ways, Ragged]:
    """The ways between nodes, and the links of each.

    Args:
        may_fork: whether a message may go to several nodes where those that it passes copy.
    """
    number = np.full(topology.node_count, -1)
    number[nodes] = np.arange(len(nodes))
    found = [(a, b, links) for a, b, links in _ways(topology, number, nodes.tolist()) if b != nodes[0]]
    routes = Ragged.of([links for _, _, links in found])
    src, dst = number[np.array([ends[:2] for ends in found], dtype=np.int64).reshape(-1, 2)].T
    latency_s = topology.latency_s[routes.values]
    until_s = np.cumsum(latency_s) - latency_s
    inner = np.ones(len(routes.values), dtype=np.bool_)
    inner[routes.offsets[:-1]] = False
    stiff = inner & ~topology.replicates[topology.src[routes.values]]
    forks = may_fork & (np.bincount(routes.owners, stiff, routes.rows) == 0)
    into = Ragged.grouped(dst, np.arange(len(dst)), len(nodes))
    ways = Ways(
        src.copy(), dst.copy(), routes.offsets, routes.values.astype(np.int64),
        until_s - np.repeat(until_s[routes.offsets[:-1]], routes.lengths), topology.route_latency_s(routes), forks,
        into.offsets, into.values.astype(np.int64), topology.message_s, 1 / topology.bandwidth,
    )  # fmt: skip
    return ways, routes


def _ways(topology: Topology, number: Int64, nodes: list[int]) -> Iterator[tuple[int, int, list[int]]]:
    """From each node by each of its links to each other node that transit nodes lead to, the quickest way."""
    onward: dict[int, Routes] = {}
    for node in nodes:
        for link in topology.out_links[node].tolist():
            port = int(topology.dst[link])
            if number[port] >= 0:
                yield node, port, [link]
            elif topology.transit[port]:
                routes = onward.setdefault(port, routes_from(topology, port, metric="latency"))
                for goal in routes.links:
                    if number[goal] >= 0 and goal != node:
                        yield node, goal, [link, *routes.links_to(goal)]
