"""How fast sums can grow where messages cost: a node learns from few messages at a time.

For one byte of a sum let K_v(t) be how many contributions node v can have by time t. They came in messages, each over
some link e into v, and each holds what its sender s had when it began. On the link every message takes at least a
time g, so of the messages that have come by t the i-th last began to cross it no later than t - i g. A message also
takes its cost m, and the latency d(s, e) of the way to v whose last link is e. So

    K_v(t) <= 1 + sum over links e into v, and i = 1, 2, ..., of the largest K_s(t - d(s, e) - max(m, i g)) of any s

where K is 0 before the start. A rank that wants the sum of n contributions does not have it before K_v(t) >= n. Where
all links are alike this is the optimal summation of LogP (Karp, Sahay, Santos and Schauser, SPAA 1993).

Time is cut into steps. For a whole step the largest values are taken that occur in it, so K is never too small.

Fluid sharing may count a message as the bytes that the slowest link of its route carries in its cost
(docs/physics.md), so g is the time of the fewest bytes that a message counts as on any link of a way that ends with e.
Where switches sum, a message may have several senders: then nothing is said.
"""

from __future__ import annotations

import numpy as np

from ..model.arrays import Float64, Int64
from ..model.collective import Workload
from ..model.topology import Topology
from ..model.units import format_time
from .latency import distances
from .model import Bound

GRAIN = 32
"""Steps of time in the shortest time of a message. Twice as many raise the bound by 1 to 3 % and double its cost."""

MOST_STEPS = 1000
"""Steps of time that are looked at: those of 31 messages one after the other."""

MOST_ENTRIES = 50_000
"""Pairs of a sender and a link up to which K is computed, as among 111 ranks of a torus."""


def growth_bound(topology: Topology, workload: Workload, from_s: float) -> Bound | None:
    """The bound by messages for sums; None where it says nothing.

    Args:
        from_s: seconds, another bound; where this one cannot be better it is not computed.
    """
    sums = [c for c in workload.collectives if c.reduces]
    if not sums or topology.planes or topology.reduces.any() or not topology.message_s.all():
        return None
    links, senders = np.flatnonzero(topology.adds[topology.dst]), np.flatnonzero(topology.adds)
    if len(links) * len(senders) > MOST_ENTRIES:
        return None
    near = distances(topology, 0.0)
    way_s = near[np.ix_(senders, topology.src[links])] + topology.latency_s[links]
    way_s[senders[:, None] == topology.dst[links]] = np.inf
    step_s = float((way_s.min(axis=0) + topology.message_s[links]).min()) / GRAIN
    if not step_s * MOST_STEPS > from_s:
        return None
    most = max(int(c.holders.lengths.max()) for c in sums)
    grown = _grown(topology, links, senders, way_s, step_s, most)
    ends = []
    for c in sums:
        pieces = np.repeat(c.holders.lengths, c.wanted.lengths)
        at = np.searchsorted(senders, c.ranks[c.wanted.values])
        ends.append((c.start_s + step_s * int((grown[:, at] < pieces).sum(axis=0).max()), int(pieces.max())))
    seconds, count = max(ends)
    words = f"a message takes {format_time(step_s * GRAIN)} or more, and {count} contributions come in few at a time"
    return Bound(seconds, "messages", words, tuple(topology.accelerators.tolist()), tuple(links.tolist()))


def _grown(topology: Topology, links: Int64, senders: Int64, way_s: Float64, step_s: float, most: int) -> Float64:
    """float64[steps, senders]: K, at the most, in each step of time, until all senders have ``most``.

    Args:
        way_s: float64[senders, links], d.
    """
    gap_s = _fewest_bytes(topology)[links] / topology.bandwidth[links]
    count = np.minimum(MOST_STEPS * step_s / gap_s + 1, most).astype(np.int64)
    link = np.repeat(np.arange(len(links)), count)
    i = np.arange(len(link)) - np.repeat(np.cumsum(count) - count, count) + 1
    ago = np.maximum(topology.message_s[links][link], i * gap_s[link]) / step_s
    into = np.searchsorted(senders, topology.dst[links])[link]
    grown, sent = np.zeros((MOST_STEPS, len(senders))), np.zeros((MOST_STEPS, len(links)))
    every = np.arange(len(senders))[:, None]
    far = np.where(np.isfinite(way_s), way_s / step_s, np.inf)
    for step in range(MOST_STEPS):
        # a way or a cost may be shorter than a step, but not both: what is sent on long ways comes first
        for long in (True, False):
            at = _last_step(step, far)
            sent[step] = np.where(at >= 0, grown[np.maximum(at, 0), every], 0.0).max(axis=0)
            if long:
                at = _last_step(step, ago)
                came = at >= 0
                grown[step] = 1.0 + np.bincount(into[came], sent[at[came], link[came]], len(senders))
        if grown[step].min() >= most:
            return grown[: step + 1]
    return grown


def _fewest_bytes(topology: Topology) -> Float64:
    """float64[links]: the fewest bytes that a message counts as on any link of a route, up to each link."""
    fewest = topology.message_s * topology.bandwidth
    passed = ~topology.adds[topology.src]
    while True:
        into = np.full(topology.node_count, np.inf)
        np.minimum.at(into, topology.dst, fewest)
        fewer = np.where(passed, np.minimum(fewest, into[topology.src]), fewest)
        if (fewer == fewest).all():
            return fewer
        fewest = fewer


def _last_step(step: int, ago: Float64) -> Int64:
    """The last step that has a moment which is ``ago`` steps before one of this step."""
    last: Int64 = np.maximum(np.ceil(step + 1 - ago) - 1, -1.0).astype(np.int64)
    return last
