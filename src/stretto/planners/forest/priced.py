"""Shallow trees by price: hubs that take turns, where splitting switches off gives deep trees.

Through a switch all ranks are next to each other, and a tree of least cost hangs all of them on the rank whose port is
cheapest. So trees are grown one after another, each of least price, where a link costs the more the more it carries
already (as with the exponential prices of Plotkin, Shmoys and Tardos, "Fast approximation algorithms for fractional
packing and covering problems", Math. Oper. Res. 1995). Ranks are roots in turn; only as hubs do they differ. Then a
linear program gives each tree its share (:mod:`.division`).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ...bounds import distances
from ...kernels import at_speed
from ...model.arrays import Int64, Ragged
from ...model.collective import Collective
from ...model.topology import Topology
from ...schedule.trees import Trees
from . import kernel_arborescences
from .division import divide_data
from .forest import Forest
from .kernel_arborescences import Links, Nodes
from .relays import find_relays

MOST_TREES = 128
"""Trees that are grown at most."""

STEEPNESS = 0.1
"""How prices fall: a link less busy than the busiest one by what 1 / STEEPNESS trees take has a 16th of the price."""

LENGTH_PRICE = 0.3
"""What the mean length of a link costs, relative to the cheapest link: of trees of similar cost shallow ones are
taken."""

MOST_WORK = 2e8
"""Steps of the kernel's inner loop beyond which no trees are grown."""


def priced_forest(topology: Topology, c: Collective, like: Forest, part_bytes: float, most: int) -> Forest | None:
    """A forest of shallow trees for an AllReduce; None where no node passes bytes on, or there are no such trees.

    Args:
        like: a forest that tells how busy trees make links.
        part_bytes: what a tree carries at a time; the time that this takes on a link counts as length, as latency
            does.
        most: how many trees there may be.
    """
    if not (topology.transit.any() or find_relays(topology, c.ranks).any()):
        return None
    trees = priced_trees(topology, c, like, part_bytes, most, LENGTH_PRICE)
    return None if trees is None else divide_data(topology, trees, None)


def pricing_work(topology: Topology, c: Collective, most: int) -> float:
    """Steps of the kernel's inner loop that growing ``most`` trees takes, about."""
    nodes, inner = _nodes(topology, c)
    relays = len(nodes) - len(c.ranks)
    return 2.0 * most * (len(inner) * topology.node_count**2 + 10 * len(nodes) ** 2 * (1 + relays))


def priced_trees(
    topology: Topology, c: Collective, like: Forest, part_bytes: float, most: int, length_price: float
) -> Forest | None:
    """Trees of equal shares; None where ranks do not reach each other, or growing trees would be too much work.

    For an AllReduce pairs of trees, whose roots are the cheapest nodes in turn where there are relays, else all ranks;
    for other collectives trees of the roots of ``like`` in turn.
    """
    count = min(MOST_TREES, most)
    work = pricing_work(topology, c, count)
    if work > MOST_WORK:
        return None
    nodes, inner = _nodes(topology, c)
    usable = np.zeros(topology.node_count, dtype=np.bool_)
    usable[nodes], usable[inner] = True, True
    used = np.flatnonzero(usable[topology.src] & usable[topology.dst])
    net = topology.with_links(used)
    far = distances(net, part_bytes)[np.ix_(nodes, nodes)]
    if not np.isfinite(far[: len(c.ranks), : len(c.ranks)]).all():
        return None
    both, place = c.traits.reduces_to_all, {v: k for k, v in enumerate(nodes.tolist())}
    roots = np.array([place[v] for v in (c.ranks.tolist() if both else like.root_share)], dtype=np.int64)
    chosen = np.full(count, -1) if both and len(nodes) > len(c.ranks) else roots[np.arange(count) % len(roots)]
    kinds = np.array([kind for kind in (0, 1) if both or kind == c.reduces])
    far = np.ascontiguousarray(far.T) if c.reduces and not both else far  # else the kernel is compiled for both layouts
    length = net.latency_s + part_bytes / net.bandwidth
    price = length_price / length.mean()
    seconds = 1 / (net.bandwidth * like.seconds_per_byte(topology))
    parents, offsets, links = at_speed(kernel_arborescences.priced_trees, work)(
        Links(net.src.astype(np.int64), net.dst.astype(np.int64), seconds, price * length),
        Nodes(nodes, len(c.ranks), inner, price * np.where(np.isfinite(far), far, 0.0)),
        chosen, kinds, STEEPNESS,
    )  # fmt: skip
    root, routes = nodes[np.argmax(parents[:, 0] == -1, axis=1)], Ragged(offsets, used[links].astype(np.int32))
    hops = np.arange(parents.size).reshape(parents.shape)
    ways = []
    for k in range(len(kinds)):
        toward, hop = np.full((count, topology.node_count), -1), np.zeros((count, topology.node_count), dtype=np.int64)
        toward[:, nodes], hop[:, nodes] = np.where(parents[:, k] >= 0, nodes[parents[:, k]], -1), hops[:, k]
        ways.append(Trees(root, toward, hop, routes))
    share = [Fraction(1, count)] * count
    return Forest(ways[1], ways[0], share) if both else Forest.one_way(ways[0], c.reduces, share)


def _nodes(topology: Topology, c: Collective) -> tuple[Int64, Int64]:
    """The nodes that trees are made of, first the ranks, then the relays; and nodes that only pass bytes on."""
    nodes = np.concatenate((c.ranks, np.flatnonzero(find_relays(topology, c.ranks)))).astype(np.int64)
    return nodes, np.setdiff1d(np.flatnonzero(topology.transit), nodes)
