"""How far anything must travel: bounds by latency."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..kernels import at_speed
from ..kernels import paths as paths_kernel
from ..model.arrays import Float64
from ..model.collective import Collective, Workload
from ..model.errors import Unsupported
from ..model.memory import too_much
from ..model.topology import Topology
from .model import Bound

PAIR_BYTES = 24
"""Memory for each pair of nodes: two tables of distances, and one at work."""


def weights(topology: Topology, chunk_bytes: float) -> Float64:
    """float64[links]: latency, plus the time of a chunk where the chunk must be stored before it goes on."""
    stores = topology.store_and_forward
    return topology.latency_s + np.where(stores[topology.dst], chunk_bytes / topology.bandwidth, 0.0)


def distances(topology: Topology, chunk_bytes: float) -> Float64:
    """float64[nodes, nodes]: least seconds from node to node for a chunk of that size, or for a byte (0)."""
    reason = too_much(float(topology.node_count) ** 2, "distances between nodes", PAIR_BYTES)
    if reason is not None:
        raise Unsupported(f"bounds do not serve {topology.name}: {reason}")
    src, dst = topology.src.astype(np.int64), topology.dst.astype(np.int64)
    weight = weights(topology, chunk_bytes)
    whole = [plane for plane in topology.planes if len(plane.nodes) == topology.node_count]
    for plane in topology.planes:
        # a plane can join any two of its nodes; a way over several planes takes at least their latencies
        if len(plane.nodes) < topology.node_count:
            ends = np.repeat(plane.nodes, len(plane.nodes)), np.tile(plane.nodes, len(plane.nodes))
            src, dst = np.concatenate((src, ends[0])), np.concatenate((dst, ends[1]))
            weight = np.concatenate((weight, np.full(len(ends[0]), plane.latency_s)))
    order = np.argsort(src, kind="stable")
    offsets = np.searchsorted(src[order], np.arange(topology.node_count + 1)).astype(np.int64)
    work = float(topology.node_count) * len(src)
    distance: Float64 = at_speed(paths_kernel.all_pairs, work)(offsets, order.astype(np.int32), dst, weight)
    if whole:
        distance = np.minimum(distance, min(plane.latency_s for plane in whole))
    np.fill_diagonal(distance, 0.0)
    return distance


def message_distances(topology: Topology, chunk_bytes: float) -> Float64:
    """float64[nodes, nodes]: the same, where each message on the way also takes its cost.

    A node that stores has a message no sooner than the cost of the link on which it comes has passed since it left. A
    way from a node that stores nothing begins amid a message: the rest of this one takes latency alone. So does what a
    message takes until it comes to a node that stores nothing.
    """
    delayed = topology.delayed
    distance = distances(delayed, chunk_bytes)
    passing = np.flatnonzero(~topology.store_and_forward)
    if delayed is topology or not len(passing):
        return distance
    stores = topology.store_and_forward
    rest = distances(replace(topology, planes=()).with_links(~stores[topology.src]), chunk_bytes)
    for v in passing.tolist():
        ends = np.flatnonzero(stores & np.isfinite(rest[v]))
        onward = (rest[v, ends, None] + distance[ends]).min(axis=0, initial=np.inf)
        distance[v] = np.minimum(rest[v], onward)
    return distance


def latency_path(topology: Topology, workload: Workload, distance: Float64, chunk_bytes: float) -> Bound | None:
    """The bound by the longest way that anything must travel."""
    worst, ends = -1.0, (0, 0)
    for c in workload.collectives:
        far, holder, rank = _farthest(c, distance[np.ix_(c.ranks, c.ranks)])
        if c.start_s + far > worst:
            worst, ends = c.start_s + far, (int(c.ranks[holder]), int(c.ranks[rank]))
    if not np.isfinite(worst) or worst < 0:
        return None
    nodes, links = path(topology, ends, distance[ends[0]], chunk_bytes)
    words = "→".join(topology.names[v] for v in nodes)
    return Bound(worst, "latency path", f"the way {words}", nodes, links)


def _farthest(c: Collective, between: Float64) -> tuple[float, int, int]:
    """The largest distance from a rank that wants a piece to its nearest holder (or, of a sum, to any).

    Args:
        between: float64[ranks, ranks].
    Returns:
        The distance, the holder's rank, the wanting rank.
    """
    if (c.holders.lengths == 1).all():
        holder, rank = c.holders.values[c.wanted.owners], c.wanted.values
        k = int(np.argmax(between[holder, rank]))
        return float(between[holder[k], rank[k]]), int(holder[k]), int(rank[k])
    best = (-1.0, 0, 0)
    for piece in range(len(c.piece_bytes)):
        holders, wanted = c.holders[piece], c.wanted[piece]
        block = between[np.ix_(holders, wanted)]
        chosen = block.argmax(axis=0) if c.reduces else block.argmin(axis=0)
        reach = block[chosen, np.arange(len(wanted))]
        k = int(np.argmax(reach))
        if reach[k] > best[0]:
            best = float(reach[k]), int(holders[chosen[k]]), int(wanted[k])
    return best


def path(
    topology: Topology, ends: tuple[int, int], distance: Float64, chunk_bytes: float
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The nodes and links of a shortest path, walked back from its end.

    Args:
        distance: float64[nodes], from the first end.
    """
    weight = weights(topology, chunk_bytes)
    nodes: list[int] = [ends[1]]
    links: list[int] = []
    while nodes[-1] != ends[0]:
        v = nodes[-1]
        choices = topology.in_links[v]
        if not len(choices):
            return ends, ()
        slack = distance[topology.src[choices]] + weight[choices]
        link = int(choices[int(np.argmin(slack))])
        if len(links) > topology.node_count or slack.min() > distance[v] * (1 + 1e-9):
            return ends, ()  # over a plane
        links.append(link)
        nodes.append(int(topology.src[link]))
    return tuple(nodes[::-1]), tuple(links[::-1])


def delayed_between_stores(topology: Topology) -> Topology:
    """The network where messages cost nothing, and where links between nodes that store have their cost as latency.

    What comes through a switch or a router may pay for its message there while it waits for a slower link before.
    """
    stores = topology.store_and_forward
    cost_s = np.where(stores[topology.src] & stores[topology.dst], topology.message_s, 0.0)
    return replace(topology, message_s=cost_s).delayed


def with_message_latency(topology: Topology) -> Topology:
    """The network where messages cost nothing, and where each link has their cost as latency: for what crosses it.

    A link that is busy with messages for some time carries bytes for that time less the cost of one.
    """
    return replace(topology, latency_s=topology.latency_s + topology.message_s, message_s=np.zeros(topology.link_count))
