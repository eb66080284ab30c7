"""Shallow trees for AllReduce, priced: hubs that take turns, where splitting switches off gives deep trees.

Through a switch all ranks are next to each other, and a tree that costs least hangs all of them on the one whose link
is cheapest. So trees are made one after another, each of least price where links cost the more the more they carry
(as with the exponential prices of Plotkin, Shmoys and Tardos, "Fast approximation algorithms for fractional packing and
covering problems", Math. Oper. Res. 1995); ranks are roots in turn, and are unlike only as hubs. Then a linear program
gives each tree its share.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from .. import kernels
from ..bounds import distances
from ..collective import Collective
from ..topology import Topology
from .forest_budget import divided
from .forest_trees import Forest, Routed, Segment

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
    ranks, count = c.ranks.astype(np.int64), min(TREES, most)
    inner = np.setdiff1d(np.flatnonzero(topology.transit), ranks)
    steps = 2.0 * count * (len(inner) * topology.node_count**2 + 10 * len(ranks) ** 2)
    if not len(inner) or steps > WORK:
        return None
    usable = np.zeros(topology.node_count, dtype=np.bool_)
    usable[ranks], usable[inner] = True, True
    used = np.flatnonzero(usable[topology.src] & usable[topology.dst])
    columns = ("src", "dst", "bandwidth", "latency_s")
    net = replace(topology, **{name: getattr(topology, name)[used] for name in columns})
    far = distances(net, part)[np.ix_(ranks, ranks)]
    if not np.isfinite(far).all():
        return None
    length = net.latency_s + part / net.bandwidth
    found = kernels.load("arborescences", steps).priced(
        net.src.astype(np.int64), net.dst.astype(np.int64), 1 / (net.bandwidth * busiest_s(topology, known)),
        NEARNESS / length.mean() * length, inner, ranks, np.arange(count) % len(ranks),
        NEARNESS / length.mean() * far, STEEP,
    )  # fmt: skip
    place, offsets, links = found[0].tolist(), found[1].tolist(), used[found[2]].tolist()
    nodes, row, trees = ranks.tolist(), 0, []
    for k, both in enumerate(place):
        routed = []
        for parents in both:
            ways = [tuple(links[a:b]) for a, b in pairwise(offsets[row : row + len(nodes) + 1])]
            row += len(nodes)
            below = [j for j, i in enumerate(parents) if i >= 0]
            routed.append(Routed({nodes[j]: nodes[parents[j]] for j in below}, {nodes[j]: ways[j] for j in below}))
        trees.append((nodes[k % len(nodes)], Segment(Fraction(1, count), routed[1], routed[0])))
    return divided(topology, trees)


def busiest_s(topology: Topology, forest: Forest) -> float:
    """How long the busiest link carries a byte of the whole, seconds."""
    load = np.zeros(topology.link_count)
    for root, some in forest.segments.items():
        for segment in some:
            share = float(forest.share[root] * segment.share)
            for tree in (segment.up, segment.down):
                for way in tree.links.values() if tree is not None else ():
                    load[list(way)] += share
    return float((load / topology.bandwidth).max())
