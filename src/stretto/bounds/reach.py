"""Bounds by cuts in time: bytes that enter late cannot reach all ranks, and bytes that enter early are no full sums.

Let T be the end, and take a link e = (x, y) into a set S. A byte that begins to cross it at time t

- can hold what node u outside contributes only if t >= d(u, x), and
- can still serve rank v inside only if t + latency(e) + d(y, v) <= T,

where d is the least latency from node to node. For each byte of a piece, every pair (u, v) of a contribution and a rank
that wants it must be served by some byte that crosses. Let the pair weigh a(u) b(v), for any weights a and b. Then a
link serves at time t at most a weight of bandwidth(e) A(t) C(T - t) a second, where A(t) is the weight of all that a
byte there can hold, and C(T - t) the weight of all whom it can still serve. So

    sum over links of bandwidth(e) x (integral over t of A(t) C(T - t)) >= sum over pieces of bytes a(all) b(all)

which is a lower bound on T. A and C grow in steps, so the integral is a sum of *hinges*: a step of height m at t1 in A
and one of height c at t2 in C add m c (T - t1 - t2) where that is positive.

A piece that is copied has one holder, and a link carries one piece at a time. So pieces of equal weight count as one
piece, which is there when the first of them is. In an AllReduce, a byte that leaves a node that adds
(:attr:`Topology.adds`) can be a sum of all that has come there; one that leaves another switch or router holds what a
single node has sent.

Where each piece has one holder and one rank that wants it (AllToAll), a link serves at time t a pair whose holder's
pieces can have come and whose other rank can still be reached. With a and b 0 or 1 the bytes between those that weigh 1
cross in hinges that begin with the first such pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from ..model.arrays import Bool, Float64, Int32, Int64
from ..model.collective import Collective
from ..model.topology import Topology
from .exact import bytes_between

MOST_HINGES = 200_000
"""Most hinges in one sum; combinations of weights that need more are left out."""

LEVELS = 4
"""How many weights are tried on each side: 1 for all nodes, or only for those that are far enough away."""


@dataclass(frozen=True)
class Reach:
    """A bound by one cut and its weights."""

    seconds: float
    # the nodes outside whose contributions (or pieces) weigh 1; those of all others weigh nothing
    holders: tuple[int, ...]
    receivers: tuple[int, ...]  # the nodes inside that weigh 1; all others weigh nothing


def reach_bound(topology: Topology, collective: Collective, inside: Bool, near: Float64, far: Float64) -> Reach | None:
    """When an AllGather, Broadcast, AllReduce or AllToAll can end at the earliest, by one cut; None if it says nothing.

    Args:
        inside: bool[nodes], the set that bytes must enter.
        near, far: float64[nodes, nodes], least seconds from node to node: ``near`` for a byte, ``far`` for a chunk that
            is stored on the way. They are equal where chunks may be cut however finely.
    """
    c = collective
    between = bytes_between(c)
    if between is None and (c.reduces != c.traits.reduces_to_all or not (c.wanted.lengths == len(c.ranks)).all()):
        return None
    links = np.flatnonzero(~inside[topology.src] & inside[topology.dst])
    within = c.ranks[inside[c.ranks]]
    if not len(links) or not len(within) or len(within) == len(c.ranks):
        return None
    # a byte that enters where nothing is stored can be the last one of a chunk: it goes on as it comes
    entries = topology.dst[links]
    stores = topology.store_and_forward[entries]
    way = np.where(stores[:, None], far[entries[:, None], within], near[entries[:, None], within])
    served = topology.latency_s[links][:, None] + way
    if between is not None:
        return _between(topology, c, links, inside, far, served, between)
    bandwidth = topology.bandwidth[links][:, None, None]
    receivers = [(some, int(some.sum()), served[:, None, some]) for some in farther(served.min(axis=0))]
    best: tuple[float, Int32, Bool] | None = None
    for holders, held, needed in _held(topology, c, links, ~inside, far):
        for some, count, way in receivers:
            if held.size * count <= MOST_HINGES:
                at = held[:, :, None] + way
                slope = np.broadcast_to(bandwidth, at.shape)
                seconds = c.start_s + least(at.ravel(), slope.ravel(), needed * count)
                if best is None or seconds > best[0]:
                    best = seconds, holders, some
    return None if best is None else Reach(best[0], tuple(best[1].tolist()), tuple(within[best[2]].tolist()))


def _between(
    topology: Topology, c: Collective, links: Int64, inside: Bool, distance: Float64, served: Float64, between: Int64
) -> Reach | None:
    """The same where each piece goes from one rank to another one.

    Args:
        between: int64[ranks, ranks], bytes.
        served: float64[links, ranks inside], seconds from the beginning of a link to a rank.
    """
    here = inside[c.ranks]
    within, without, size = c.ranks[here], c.ranks[~here], between[~here][:, here]
    sends, receives = size.any(axis=1), size.any(axis=0)
    size, without, within, served = size[sends][:, receives], without[sends], within[receives], served[:, receives]
    if not size.size:
        return None
    come = distance[without[:, None], topology.src[links]]
    bandwidth = topology.bandwidth[links]
    receivers = [(last, served[:, last].min(axis=1)) for last in farther(served.min(axis=0))]
    best: tuple[float, Bool, Bool] | None = None
    for first in farther(come.min(axis=1)):
        sent, ready = size[first], come[first].min(axis=0)
        for last, way in receivers:
            needed = float(sent[:, last].sum())
            if not needed:
                continue
            seconds = c.start_s + least(ready + way, bandwidth, needed)
            if best is None or seconds > best[0]:
                best = seconds, first, last
    return None if best is None else Reach(best[0], tuple(without[best[1]].tolist()), tuple(within[best[2]].tolist()))


def _held(
    topology: Topology, c: Collective, links: Int64, outside: Bool, distance: Float64
) -> list[tuple[Int32, Float64, float]]:
    """For each weight: its nodes, when links can hold 1, 2, ... of them (float64[links, steps]), the bytes needed."""
    found = []
    if c.reduces:
        nodes = c.ranks[outside[c.ranks]]
        come = distance[nodes[:, None], topology.src[links]].min(axis=1)
        for some in farther(come):
            found.append((nodes[some], _sums(topology, links, nodes[some], distance), float(c.size_bytes) * some.sum()))
        return found
    # a link carries one piece at a time, so it serves from when the first of them is there, and one piece only
    nodes = c.ranks[c.holders.values[c.holders.offsets[:-1]]]
    own = np.flatnonzero((c.holders.lengths == 1) & outside[nodes])
    if len(own):
        come = distance[nodes[own][:, None], topology.src[links]]
        for some in farther(come.min(axis=1)):
            size = float(c.piece_bytes[own[some]].sum())
            found.append((np.unique(nodes[own[some]]), come[some].min(axis=0)[:, None], size))
    return found


def _sums(topology: Topology, links: Int64, without: Int32, distance: Float64) -> Float64:
    """float64[links, contributions]: from when on a byte at the beginning of each link can hold 1, 2, ... of them."""
    at = topology.src[links]
    times = np.sort(distance[without[:, None], at].T, axis=1)
    passing, senders = np.flatnonzero(~topology.adds[at]), np.flatnonzero(topology.adds)
    if not len(passing):
        return times
    # when each sender has 1, 2, ... of them; a byte that is only passed on comes from one sender
    had = np.sort(distance[without[:, None], senders], axis=0)
    for k in passing.tolist():
        times[k] = (had + distance[senders, at[k]]).min(axis=1)
    return times


def farther(far: Float64) -> list[Bool]:
    """Weights of 0 and 1 (as bool): 1 for all, or for those that are at least as far away as some threshold."""
    return [far >= level * (1 - 1e-12) for level in thresholds(far, LEVELS)]


def thresholds(values: Float64, count: int) -> list[float]:
    """The least and the largest value, and others evenly between them by rank: at most ``count``, each once."""
    return sorted(set(np.sort(values)[_ranks(len(values), count)].tolist()))


@cache
def _ranks(values: int, count: int) -> Int64:
    """int64[count]: places in a sorted list of ``values`` numbers, evenly apart, the first and the last among them."""
    return np.rint((values - 1) * np.linspace(0.0, 1.0, count)).astype(np.int64)


def least(at: Float64, slope: Float64, needed: float) -> float:
    """The least T where the hinges ``slope x max(T - at, 0)`` add up to what is needed; 0 if there are none."""
    comes = np.isfinite(at)
    if not comes.all():
        at, slope = at[comes], slope[comes]
    if not len(at):
        return 0.0
    order = np.argsort(at)
    at, slope = at[order], slope[order]
    rate = np.cumsum(slope)
    value = rate * at - np.cumsum(slope * at)
    last = int(np.searchsorted(value, needed, side="right")) - 1
    return float(at[last] + (needed - value[last]) / rate[last])
