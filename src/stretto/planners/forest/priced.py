"""Shallow trees for AllReduce, priced: hubs that take turns, where splitting switches off gives deep trees.

Through a switch all ranks are next to each other, and a tree that costs least hangs all of them on the one whose link
is cheapest. So trees are made one after another, each of least price where links cost the more the more they carry
(as with the exponential prices of Plotkin, Shmoys and Tardos, "Fast approximation algorithms for fractional packing and
covering problems", Math. Oper. Res. 1995); ranks are roots in turn, and are unlike only as hubs. Then a linear program
gives each tree its share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from ...bounds import distances
from ...kernels import at_speed
from ...model.collective import Collective
from ...model.topology import Topology
from . import kernel_arborescences
from .budget import divided
from .relays import find_relays
from .trees import Forest, Routed, Segment

TREES = 128
"""How many are made, at most."""

STEEP = 0.1
"""How prices fall: a link that is less busy by what 1 / STEEP trees take has a 16th of the price."""

NEARNESS = 0.3
"""What the mean length of a link costs, relative to the cheapest one: of trees that cost about as much shallow ones."""

WORK = 2e8
"""Steps that may be spent."""


def priced_forest(topology: Topology, c: Collective, known: Forest, part: float, most: int = TREES) -> Forest | None:
    """Other trees for an AllReduce; None where nothing passes on, or ranks do not reach each other over what does.

    Args:
        known: a forest, which tells how busy trees make links.
        part: bytes that travel at a time; their time is a length, as latency is.
        most: how many trees there may be.
    """
    if not (topology.transit.any() or find_relays(topology, c.ranks).any()):
        return None
    trees = priced_trees(topology, c, known, part, most, NEARNESS)
    return None if trees is None else divided(topology, trees)


def priced_trees(
    topology: Topology, c: Collective, known: Forest, part: float, most: int, nearness: float
) -> list[tuple[int, Segment]] | None:
    """Trees with their roots; None where there are none, or finding them were too much work.

    Of an AllReduce pairs, of roots that are cheapest in turn if these need not be ranks, else of all; of other
    collectives as many of each root that the known forest has.
    """
    relays = np.flatnonzero(find_relays(topology, c.ranks))
    nodes, count = np.concatenate((c.ranks, relays)).astype(np.int64), min(TREES, most)
    inner = np.setdiff1d(np.flatnonzero(topology.transit), nodes)
    steps = 2.0 * count * (len(inner) * topology.node_count**2 + 10 * len(nodes) ** 2 * (1 + len(relays)))
    if steps > WORK:
        return None
    usable = np.zeros(topology.node_count, dtype=np.bool_)
    usable[nodes], usable[inner] = True, True
    used = np.flatnonzero(usable[topology.src] & usable[topology.dst])
    columns = ("src", "dst", "bandwidth", "latency_s")
    net = replace(topology, **{name: getattr(topology, name)[used] for name in columns})
    far = distances(net, part)[np.ix_(nodes, nodes)]
    if not np.isfinite(far[: len(c.ranks), : len(c.ranks)]).all():
        return None
    length = net.latency_s + part / net.bandwidth
    both, place = c.kind == "allreduce", {v: k for k, v in enumerate(nodes.tolist())}
    roots = np.array([place[v] for v in (c.ranks.tolist() if both else known.segments)], dtype=np.int64)
    # in the direction of sums that are not copied, an out-tree is an in-tree
    src, dst, far = (net.dst, net.src, far.T) if c.reduces and not both else (net.src, net.dst, far)
    whole_s = busiest_s(topology, known) / float(sum(known.share.values()))
    parents, offsets, links = at_speed(kernel_arborescences.priced, steps)(
        src.astype(np.int64), dst.astype(np.int64), 1 / (net.bandwidth * whole_s),
        nearness / length.mean() * length, inner, nodes, len(c.ranks),
        np.full(count, -1) if both and len(relays) else roots[np.arange(count) % len(roots)], both,
        nearness / length.mean() * np.where(np.isfinite(far), far, 0.0), STEEP,
    )  # fmt: skip
    made = _routed(nodes.tolist(), parents.tolist(), offsets.tolist(), used[links].tolist())
    share = Fraction(1, count)
    if both:
        return [(root, Segment(share, up, down)) for root, (down, up) in made]
    if c.reduces:
        return [(root, Segment(share, _reversed(tree), None)) for root, (tree,) in made]
    return [(root, Segment(share, None, tree)) for root, (tree,) in made]


def _reversed(tree: Routed) -> Routed:
    """With the ways toward the root."""
    return Routed(tree.parent, {v: way[::-1] for v, way in tree.links.items()})


def _routed(
    nodes: list[int], parents: list[list[list[int]]], offsets: list[int], links: list[int]
) -> Iterator[tuple[int, list[Routed]]]:
    """What the kernel made: each root with its out-tree, and with its in-tree, if it has one."""
    row = 0
    for trees in parents:
        routed = []
        for tree in trees:
            ways = [tuple(links[a:b]) for a, b in pairwise(offsets[row : row + len(nodes) + 1])]
            row += len(nodes)
            below = [j for j, i in enumerate(tree) if i >= 0]
            routed.append(Routed({nodes[j]: nodes[tree[j]] for j in below}, {nodes[j]: ways[j] for j in below}))
        yield nodes[trees[0].index(-1)], routed


def busiest_s(topology: Topology, forest: Forest) -> float:
    """How long the busiest link carries a byte of the whole, seconds, or of a share of one."""
    load = np.zeros(topology.link_count)
    for root, some in forest.segments.items():
        for segment in some:
            share = float(forest.share[root] * segment.share)
            for tree in (segment.up, segment.down):
                for way in tree.links.values() if tree is not None else ():
                    load[list(way)] += share
    return float((load / topology.bandwidth).max())
