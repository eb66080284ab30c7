"""How ranks lie in servers, which are what faster or far shorter links join, or sites: as a grid, or with gateways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from ..kernels import at_speed
from ..kernels import matching as matching_kernel
from ..model.arrays import Bool, Float64, Int32, Int64, distinct
from ..model.collective import Collective, Workload
from ..model.topology import ACCELERATOR, Topology
from .by_servers import Gateways
from .clusters import clusters_of
from .graphs import parts_of
from .pipes import Network, build_network

MOST_ACCELERATORS = 1_024
"""Accelerators joined by switches or routers among which servers are looked for, at most: it takes the routes between
any two. Those of 4,096 take minutes and more than 16 GB."""

FAR_APART = 5.0
"""Servers are sites far apart if the latency between any two is at least this many times the longest inside one. In
nearly all networks of benchmarks/heldout_networks.py it is less than 4 or more than 6 times."""

FAR_S = 10e-6
"""Latency from which a link may lead to another site: that of 2 km of fibre. What is shorter is in one machine room."""

AS_NEAR = 1.01
"""Times the least latency between servers up to which others are as near: on rails, ranks of one rail."""


def server_labels(topology: Topology, network: Network, ranks: Int32) -> list[Int64]:
    """int64[nodes] each: the server of every node, for each way to see servers in which ranks are in several, and some
    of them beside each other."""
    levels = clusters_of(network, topology.node_count, topology.bandwidth).of
    site = np.unique(np.array(topology.sites), return_inverse=True)[1].ravel()
    found: dict[bytes, Int64] = {}
    near = (label for label in _near(network, topology.node_count) if 2 * len(distinct(label[ranks])) <= len(ranks))
    for label in (*levels[:-1], *near, site):
        _, first, server = np.unique(label[ranks], return_index=True, return_inverse=True)
        if 1 < len(first) < len(ranks):
            # servers by their first ranks: others may number the same servers in another order
            found.setdefault(first[server.ravel()].tobytes(), label)
    return list(found.values())


def _near(network: Network, nodes: int) -> Iterator[Int64]:
    """int64[nodes] each: components of the pipes up to a latency, where the next longer ones lead far away."""
    latency_s = np.unique(network.latency_s)
    far = (latency_s[1:] >= FAR_APART * latency_s[:-1]) & (latency_s[1:] >= FAR_S)
    for most_s in latency_s[:-1][far].tolist():
        near = network.latency_s <= most_s
        yield at_speed(matching_kernel.components, float(len(near)))(network.src[near], network.dst[near], nodes)


def too_many(topology: Topology) -> str | None:
    """Why there are too many accelerators to look for servers among them; None if there are not."""
    if len(topology.accelerators) <= MOST_ACCELERATORS or (topology.forwarding == ACCELERATOR).all():
        return None
    return f"there are more than {MOST_ACCELERATORS:,} accelerators, joined by switches or routers"


@lru_cache(4)
def sites_apart(topology: Topology, c: Collective) -> list[tuple[Int64, float]]:
    """For each way to see servers or sites: int64[nodes], the server of every node, and the least latency between two
    servers as a multiple of the longest inside one. Both latencies include what a message costs."""
    if too_many(topology):
        return []
    work = float(len(topology.accelerators)) * topology.link_count
    network = build_network(topology.delayed, float(c.size_bytes), True, work)
    found = []
    for label in server_labels(topology, network, c.ranks):
        inside = label[network.src] == label[network.dst]
        between_s, inside_s = network.latency_s[~inside].min(initial=np.inf), network.latency_s[inside].max(initial=0.0)
        found.append((label, float(between_s / inside_s) if inside_s else np.inf))
    return found


def are_far_apart(topology: Topology, workload: Workload) -> bool:
    """Whether the ranks of the only collective are in sites so far apart that what happens inside takes little time."""
    c, *others = workload.collectives
    return not others and not topology.planes and any(apart >= FAR_APART for _, apart in sites_apart(topology, c))


def grids(ranks: Int32, labels: Sequence[Int64]) -> Iterator[tuple[Int64, int]]:
    """Grids of the numbers of ranks, and which dimension leads from server to server: servers of equal sizes by places,
    places by servers, and all ranks in a line."""
    for label in labels:
        _, server, count = np.unique(label[ranks], return_inverse=True, return_counts=True)
        if (count == count[0]).all():
            by_server = np.argsort(server.ravel(), kind="stable").reshape(len(count), -1)
            yield by_server, 0
            yield by_server.T, 1
    yield np.arange(len(ranks)), -1


def gateways(
    topology: Topology, network: Network, ranks: Int32, labels: Sequence[Int64], cells: bool = False
) -> Iterator[Gateways]:
    """Gateways of servers that are not cells of a grid, since their sizes differ or few of their ranks reach others.

    Accelerators outside the collective (relays) that reach other servers may be gateways, too.

    Args:
        cells: whether to name those of cells of a grid, too.
    """
    others = np.setdiff1d(topology.accelerators, ranks)
    nodes = np.concatenate((ranks, others))
    number = np.full(topology.node_count, -1)
    number[nodes] = np.arange(len(nodes))
    ends = np.stack((number[network.src], number[network.dst]))
    found = set[bytes]()
    for label in labels:
        names = np.unique(label[ranks])
        server = np.where(np.isin(label[nodes], names), np.searchsorted(names, label[nodes]), -1)
        for count in dict.fromkeys((len(ranks), len(nodes))):
            leads = ((ends >= 0) & (ends < count) & (server[ends] >= 0)).all(axis=0)
            leads &= server[ends[0]] != server[ends[1]]
            for lanes in _lanes(ends, network.latency_s, leads, server[:count], len(names)):
                own = [np.flatnonzero(server[: len(ranks)] == each) for each in range(len(names))]
                own = [np.union1d(each, lanes[:, k]) for k, each in enumerate(own)]
                grid = lanes.max() < len(ranks) and {len(each) for each in own} == {len(lanes)}
                if (cells or not grid) and (key := server.tobytes() + lanes.tobytes()) not in found:
                    found.add(key)
                    yield Gateways(own, lanes, len(ranks), tuple(others.tolist()))


def _lanes(ends: Int64, latency_s: Float64, leads: Bool, server: Int64, servers: int) -> Iterator[Int64]:
    """int64[lanes, servers] each: gateways that reach each other, in few lanes and in many.

    Args:
        ends: int64[2, pipes], the nodes that pipes join.
        leads: bool[pipes], which lead from server to server.
        server: int64[nodes], -1 for none.
    """
    if not leads.any():
        return
    near = leads & (latency_s <= AS_NEAR * latency_s[leads].min())
    for joined in (leads, near):
        part = parts_of(len(server), *ends[:, joined])
        inside = np.unique(part[server >= 0] * servers + server[server >= 0])
        whole = np.flatnonzero(np.bincount(inside // servers) == servers)
        members = [[np.flatnonzero((part == k) & (server == s)) for s in range(servers)] for k in whole]
        for lanes in (min, max, lambda sizes: 1):
            counts = [lanes(list(map(len, each))) for each in members]
            rows = [np.stack([np.resize(m, n) for m in each], 1) for each, n in zip(members, counts, strict=True)]
            if rows:
                yield np.concatenate(rows)
