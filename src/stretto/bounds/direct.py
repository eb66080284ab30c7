"""A bound for AllToAll where messages cost: each pair has messages of its own, or its data is stored on the way.

Let each link e into a node that stores have a weight y_e. A message of L bytes keeps e busy for m_e + L / b_e. So the
time in which a plan ends is no less than the sum over these links of y_e times how long e is busy, divided by the sum
of all y_e. Besides comes what passes until anything can come over any of them.

What u has for w crosses a link into w. It comes in messages that begin at u, which are of no other pair. Or a node v
stores it before, and then it crosses a link into v, too. Let y_e / b_e be the same, a_v, on all links into v. Then the
s bytes of a pair add to the sum the less of

    s a_w + the least y_e m_e of any e into w      and      s (a_v + ... + a_w), the least of all ways that are stored,

and if a part of them goes one way and the rest another, each adds its share at least. Messages to a node that stores
what is not for it are not counted: they carry data of many pairs.

Where a switch copies a message to several ranks, each of them gets it by a last link of its own.
"""

from __future__ import annotations

import numpy as np

from ..model.arrays import Float64
from ..model.collective import Collective, Workload
from ..model.topology import Topology
from ..model.units import format_time
from .late import reached
from .latency import distances
from .messages import cost_at_ends
from .model import Bound

MOST_NODES = 256
"""Nodes that store, up to which ways between any two are sought."""

ROUNDING = 1e-9
"""Share by which this bound differs from another one that is the same but for rounding."""


def direct_bound(topology: Topology, workload: Workload, from_s: float) -> Bound | None:
    """The best bound of any collective; None where it says nothing.

    Args:
        from_s: seconds, another bound; this one is given only if it is larger.
    """
    stores = topology.store_and_forward
    if topology.planes or topology.changes or not cost_at_ends(topology) or stores.sum() > MOST_NODES:
        return None
    found = [(c.start_s + _least_s(topology, c), c) for c in workload.collectives if _of_pairs(c)]
    if not found:
        return None
    seconds, c = max(found, key=lambda each: each[0])
    if seconds - c.start_s <= (from_s - c.start_s) * (1 + ROUNDING):
        return None
    links = np.flatnonzero(stores[topology.dst])
    cost = format_time(float(topology.message_s[links].min()))
    words = f"data of {len(c.piece_bytes)} pairs, each in a message of {cost} of its own or stored on the way"
    return Bound(seconds, "messages", words, tuple(np.flatnonzero(stores).tolist()), tuple(links.tolist()))


def _of_pairs(c: Collective) -> bool:
    """Whether each piece goes from one rank to one other."""
    alone = (c.holders.lengths == 1).all() and (c.wanted.lengths == 1).all()
    return bool(c.traits.pieces == "pair" and alone and not c.reduces)


def _least_s(topology: Topology, c: Collective) -> float:
    stores = np.flatnonzero(topology.store_and_forward)
    into = np.flatnonzero(topology.store_and_forward[topology.dst])
    at = np.searchsorted(stores, topology.dst[into])
    width = np.bincount(at, topology.bandwidth[into], len(stores))
    size = np.zeros((len(stores), len(stores)))
    rank = np.searchsorted(stores, c.ranks)
    np.add.at(size, (rank[c.holders.values], rank[c.wanted.values]), c.piece_bytes)
    np.fill_diagonal(size, 0.0)
    joined = reached(topology, stores)
    opens_s = distances(topology, 0.0)[stores].min(axis=0)[topology.src[into]] + topology.latency_s[into]
    least_s = np.full(len(stores), np.inf)
    np.minimum.at(least_s, at, topology.bandwidth[into] * topology.message_s[into])
    best_s = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        # all nodes of equal weight, or all bytes
        for byte_s in (1 / width, np.where(width > 0, 1 / width.sum(), np.inf)):
            alone_s = np.where(joined, byte_s, np.inf)
            np.fill_diagonal(alone_s, np.inf)
            direct_s = size * alone_s + byte_s * least_s
            stored_s = size * _stored(alone_s)
            busy_s = np.where(size > 0, np.minimum(direct_s, stored_s), 0.0).sum()
            best_s = max(best_s, float(busy_s / np.where(width > 0, byte_s * width, 0.0).sum()))
    return best_s + float(opens_s.min())


def _stored(alone: Float64) -> Float64:
    """float64[nodes, nodes], the length of the shortest way from node to node of two steps or more.

    Args:
        alone: float64[nodes, nodes], the length of each step.
    """
    shortest = alone.copy()
    for v in range(len(alone)):
        np.minimum(shortest, shortest[:, v : v + 1] + shortest[v], out=shortest)
    np.fill_diagonal(shortest, np.inf)
    found = np.full_like(alone, np.inf)
    for v in range(len(alone)):
        np.minimum(found, alone[:, v : v + 1] + shortest[v], out=found)
    return found
