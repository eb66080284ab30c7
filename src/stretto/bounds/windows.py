"""When links into the parts of a network can carry what counts in an AllReduce (:mod:`stretto.bounds.parts`).

The bound by parts says that every part but one sends something before a moment t and receives something after it. Here
latency says for each link into a part *when* such a transfer can cross it: that is the link's window.

For one byte let r be the part that first has all contributions, t the moment when it has them, and T the end. d is the
least latency; a *hop* leads from one node that adds to another. For each part q take two of its ranks: ``first[q]``,
whose contribution takes longest to leave q, and ``last[q]``, which is served last.

*Before t* every part q but r has sent a hop with the contribution of ``first[q]``.

- It begins at its node x no sooner than d(first[q], x).
- It can be chosen to arrive no later than T - D(q). D(q) is how far the farthest rank elsewhere still is from what has
  left q: the largest, over ranks w elsewhere, of the least d(b, w) over nodes b that hops out of q can reach. For take
  the hop with which the contribution leaves q on its way to w. If it arrives by t, choose it; else choose the hop with
  which the contribution leaves q on its way to r, which arrives sooner.

*After t* every part p but r receives a hop with a contribution that it lacked at t. Of the hops by which this enters p
on its way to ``last[p]`` choose the last.

- From the node y where it ends, ``last[p]`` is still to be reached.
- It arrives no sooner than the farthest rank elsewhere is away from p. For p either had that rank's contribution at t,
  so that it had come by then, or lacked it, and then choose that contribution.

The moment t itself is bounded, too. All parts but r have sent by t, so t is no sooner than all but one can have sent.
All parts but r receive after t, so t is no later than all but one must receive.

So a link into a part carries nothing that counts in the first ``opens_s`` seconds, the less of both cases, nor in the
last ``closes_s``. A switch or router that does not add may pass on what comes from any part. What enters a part by a
switch, for the last time on its way to a node of the part, is stored there a little later; in a router it may wait.
So a router that only one part has inside is taken for a node of that part that adds, too: no plan ends later then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model.arrays import Bool, Float64, Int32, Int64
from ..model.topology import Topology


@dataclass(frozen=True)
class Windows:
    """When links into parts can be of use: an entry for each link and each part that it enters.

    Attributes:
        link: int64[entries].
        opens_s, closes_s: float64[entries]: the window begins so long after the start, and ends so long before the end.
        first, last: int64[parts], the two ranks that were taken for each part.
    """

    link: Int64
    opens_s: Float64
    closes_s: Float64
    first: Int64
    last: Int64


def windows(topology: Topology, ranks: Int32, inside: Bool, near: Float64) -> Windows:
    """The windows of a partition.

    Args:
        inside: bool[parts, nodes]; a node that adds is in one part at most, and each part has a rank.
        near: float64[nodes, nodes], least seconds from node to node.
    """
    src, dst = topology.src.astype(np.int64), topology.dst.astype(np.int64)
    stores = (topology.adds & inside.any(axis=0)) | (topology.is_router & (inside.sum(axis=0) == 1))
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
    stored, comes = np.flatnonzero(stores), np.zeros(len(stores), dtype=bool)  # from another part, or by a switch
    comes[dst[stores[dst] & (home[src] != home[dst])]] = True
    has_sent = _all_but_one([near[first[q], stored[home[stored] != q]].min() for q in range(count)])
    must_get = _all_but_one([near[comes & (home == q), last[q]].min() for q in range(count)])
    least_s, most_s = _to_stores(topology, stores, inside)
    # what comes through a switch, or from a node in no part, may come from any part but the one that it enters
    sent, sent_end, passed = near[first[home[x]], x], left[home[x]], np.flatnonzero(~stores[x])
    sent[passed] = _least_of_others(near[np.ix_(first, x[passed])], part[passed])
    sent_end[passed] = _least_of_others(np.repeat(left[:, None], len(passed), axis=1), part[passed])
    had = np.maximum(np.maximum(reached[part], has_sent) - latency - most_s[part, y], 0.0)
    sent_end = np.maximum(sent_end, must_get + least_s[y])
    opens = np.maximum(np.minimum(sent, had), near[np.ix_(ranks, x)].min(axis=0))
    return Windows(link, opens, latency + np.minimum(sent_end, near[y, last[part]]), first, last)


def _all_but_one(times_s: list[float]) -> float:
    """The second largest: by then all but one have, whichever that one is."""
    return sorted(times_s)[-2]


def _to_stores(topology: Topology, stores: Bool, inside: Bool) -> tuple[Float64, Float64]:
    """Seconds from each node until what passes it is stored for a part.

    Returns:
        float64[nodes], at the least, wherever it is stored: 0 at a node that stores, else the least latency of a link.
        float64[parts, nodes], at the most, on ways inside a part: 0 at a node that stores, else the most latency of a
        switch's links; infinite where one of them leads to another switch or a router, and at a router.
    """
    least, most = np.where(stores, 0.0, np.inf), np.where(inside & ~stores, -np.inf, 0.0)
    passes = np.flatnonzero(~stores[topology.src])
    a, b, latency = topology.src[passes], topology.dst[passes], topology.latency_s[passes]
    np.minimum.at(least, a, latency)
    part, link = np.nonzero(inside[:, a] & inside[:, b])
    stored = stores[b] & topology.is_switch[a]
    np.maximum.at(most, (part, a[link]), np.where(stored, latency, np.inf)[link])
    return least, np.where(np.isneginf(most), np.inf, most)


def _least_of_others(table: Float64, part: Int64) -> Float64:
    """For each column the least of all rows but ``part[column]``."""
    table = table.copy()
    table[part, np.arange(len(part))] = np.inf
    least: Float64 = table.min(axis=0)
    return least
