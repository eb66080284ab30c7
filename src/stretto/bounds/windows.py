"""When links into the parts of a network can carry what counts in an AllReduce (:mod:`stretto.bounds.parts`).

For one byte let r be the part that first has all contributions, at time t. Take for each part q a rank ``first[q]`` in
it whose contribution waits longest on its way out, and ``last[q]``, which is served last; T is the end, d the least
latency, a hop leads from one node that stores to another.

Before t, every part q but r has sent a hop with the contribution of ``first[q]``. It begins at node x no sooner than
d(first[q], x). It can be chosen to arrive no later than T - D(q), where D(q) is the largest over ranks w elsewhere of
the least d(b, w) over the nodes b that hops out of q can reach: of the hops with which that contribution leaves q on
its way to w and on its way to r, take the first if it arrives by t; else the other arrives sooner than it.

After t, every part p but r receives a hop with a contribution that it lacked at t, the one that comes last of these on
its way to ``last[p]``: from node y inside that is still to be reached. It arrives no sooner than any rank elsewhere is
away from p: what p had at t has come by then, and of what it lacked take the farthest.

Both can also be told by t: all parts but r have sent by then, so that t is no sooner than all but one can have; and all
but r get something after it, so that it is no later than all but one must.

A link into a part so carries nothing that counts before the earlier ``opens_s`` of the two, nor in the end. Switches
may pass on what comes from any part; what enters a part by one comes to a node that stores a little later.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model.arrays import Bool, Float64, Int32, Int64
from ..model.topology import Topology


@dataclass(frozen=True)
class Windows:
    """Links into parts, each as often as it enters one, and when they can be of use.

    Attributes:
        link: int64[entries].
        opens_s, closes_s: float64[entries], seconds after the start, and before the end.
        first, last: int64[parts], the ranks that make it so.
    """

    link: Int64
    opens_s: Float64
    closes_s: Float64
    first: Int64
    last: Int64


def windows(topology: Topology, ranks: Int32, inside: Bool, near: Float64) -> Windows:
    """The windows of a partition.

    Args:
        inside: bool[parts, nodes], nodes that store in one part at most, each part with a rank.
        near: float64[nodes, nodes], least seconds from node to node.
    """
    src, dst = topology.src.astype(np.int64), topology.dst.astype(np.int64)
    stores = ~topology.is_switch & inside.any(axis=0)
    home = np.where(stores, inside.argmax(axis=0), -1)
    part, link = np.nonzero(inside[:, dst] & ~inside[:, src])
    x, y, latency = src[link], dst[link], topology.latency_s[link]
    count = len(inside)
    first, last, reached = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count)
    left = np.zeros(count)
    for q in range(count):
        own, other = ranks[inside[q, ranks]], ranks[~inside[q, ranks]]
        out, into = np.flatnonzero((home[src] == q) & (home[dst] != q)), np.flatnonzero(part == q)
        first[q] = own[int(np.argmax(near[np.ix_(own, src[out])] @ topology.bandwidth[out]))]
        last[q] = own[int(np.argmax(topology.bandwidth[link[into]] @ near[np.ix_(y[into], own)]))]
        reached[q] = near[np.ix_(other, np.flatnonzero(home == q))].min(axis=1).max()
        if len(out) and stores[dst[out]].all():
            left[q] = near[np.ix_(dst[out], other)].min(axis=0).max()
    stored, comes = np.flatnonzero(stores), np.zeros(len(stores), dtype=bool)  # whether from elsewhere, or by a switch
    comes[dst[stores[dst] & (home[src] != home[dst])]] = True
    has_sent = _all_but_one([near[first[q], stored[home[stored] != q]].min() for q in range(count)])
    must_get = _all_but_one([near[comes & (home == q), last[q]].min() for q in range(count)])
    least_s, most_s = _to_stores(topology, stores)
    # what comes through a switch, or from a node that is in no part, may be of any part but the one it enters
    sent, sent_end, passed = near[first[home[x]], x], left[home[x]], np.flatnonzero(~stores[x])
    sent[passed] = _least_of_others(near[np.ix_(first, x[passed])], part[passed])
    sent_end[passed] = _least_of_others(np.repeat(left[:, None], len(passed), axis=1), part[passed])
    had = np.where(stores[y], np.maximum(reached[part] - latency, 0.0), 0.0)
    had = np.maximum(had, has_sent - latency - most_s[y])
    sent_end = np.maximum(sent_end, must_get + least_s[y])
    opens = np.maximum(np.minimum(sent, had), near[np.ix_(ranks, x)].min(axis=0))
    return Windows(link, opens, latency + np.minimum(sent_end, near[y, last[part]]), first, last)


def _all_but_one(times_s: list[float]) -> float:
    """The second largest: what holds for all but one, whichever it is."""
    return sorted(times_s)[-2]


def _to_stores(topology: Topology, stores: Bool) -> tuple[Float64, Float64]:
    """Least and most seconds from each node until what passes it is stored: 0, or a switch's links, if none goes on."""
    least, most = np.where(stores, 0.0, np.inf), np.zeros(len(stores))
    passes = ~stores[topology.src]
    a, b, latency = topology.src[passes], topology.dst[passes], topology.latency_s[passes]
    np.minimum.at(least, a, latency)
    np.maximum.at(most, a, np.where(stores[b], latency, np.inf))
    return least, most


def _least_of_others(table: Float64, part: Int64) -> Float64:
    """For each column the least of all rows but one."""
    table = table.copy()
    table[part, np.arange(len(part))] = np.inf
    least: Float64 = table.min(axis=0)
    return least
