"""How fast sums can grow where messages cost: a node learns from few messages at a time.

For one byte of a sum let K_v(t) be how many contributions node v can have by time t. They came in messages, each over
some link e into v, and each holds what its sender s had when it began. On the link every message takes at least a
time g, so of the messages that have come by t the i-th last began to cross it no later than t - i g. A message also
takes its cost m, and the latency d(s, e) of the way to v whose last link is e. So

    K_v(t) <= c_v + sum over links e into v, and i = 1, 2, ..., of the largest K_s(t - d(s, e) - max(m, i g)) of any s

where c_v is 1 if v contributes, else 0, and K is 0 before the start. A rank that wants the sum of n contributions does
not have it before K_v(t) >= n. Where all links are alike this is the optimal summation of LogP (Karp, Sahay, Santos and
Schauser, SPAA 1993).

Among many nodes s is taken to be the nearest to a link, and to have as much as any node.

Time is cut into steps. For a whole step the largest values are taken that occur in it, so K is never too small.

The time g is that of the fewest bytes that a message may count as there (:func:`.messages.fewest_bytes`).
Where switches sum, a message may have several senders: then nothing is said.
"""

from __future__ import annotations

import numpy as np

from ..model.arrays import Float64, Int64
from ..model.collective import Workload
from ..model.topology import Topology
from ..model.units import format_time
from .latency import distances
from .messages import fewest_bytes
from .model import Bound

GRAIN = 32
"""Steps of time in the shortest time of a message. Twice as many raise the bound by 1 to 3 % and double its cost."""

MOST_STEPS = 1000
"""Steps of time that are looked at: those of 31 messages one after the other."""

MOST_ENTRIES = 50_000
"""Pairs of a sender and a link up to which each sender is looked at by itself, as among 111 ranks of a torus."""


def growth_bound(topology: Topology, workload: Workload, from_s: float) -> Bound | None:
    """The bound by messages for sums; None where it says nothing.

    Args:
        from_s: seconds, another bound; where this one cannot be better it is not computed.
    """
    sums = [c for c in workload.collectives if c.reduces]
    if not sums or topology.planes or topology.reduces.any() or not topology.message_s.all():
        return None
    links, senders = np.flatnonzero(topology.adds[topology.dst]), np.flatnonzero(topology.adds)
    near = distances(topology, 0.0)
    way_s = near[np.ix_(senders, topology.src[links])] + topology.latency_s[links]
    way_s[senders[:, None] == topology.dst[links]] = np.inf
    step_s = float((way_s.min(axis=0) + topology.message_s[links]).min()) / GRAIN
    if not step_s * MOST_STEPS > from_s:
        return None
    most = max(int(c.holders.lengths.max()) for c in sums)
    if way_s.size > MOST_ENTRIES:
        way_s = way_s.min(axis=0, keepdims=True)
    own = np.isin(senders, np.concatenate([c.ranks for c in sums])).astype(np.float64)
    grown = _grown(topology, links, senders, own, way_s, step_s, most)
    ends = []
    for c in sums:
        pieces = np.repeat(c.holders.lengths, c.wanted.lengths)
        at = np.searchsorted(senders, c.ranks[c.wanted.values])
        ends.append((c.start_s + step_s * int((grown[:, at] < pieces).sum(axis=0).max()), int(pieces.max())))
    seconds, count = max(ends)
    words = f"a message takes {format_time(step_s * GRAIN)} or more, and {count} contributions come in few at a time"
    return Bound(seconds, "messages", words, tuple(topology.accelerators.tolist()), tuple(links.tolist()))


def _grown(
    topology: Topology, links: Int64, senders: Int64, own: Float64, way_s: Float64, step_s: float, most: int
) -> Float64:
    """float64[steps, senders]: K, at the most, in each step of time, until all senders have ``most``.

    Args:
        own: float64[senders], 1 for those that contribute.
        way_s: float64[senders, links], d; or float64[1, links], the shortest of any sender.
    """
    gap_s = fewest_bytes(topology)[links] / topology.bandwidth[links]
    count = np.minimum(MOST_STEPS * step_s / gap_s + 1, most).astype(np.int64)
    link = np.repeat(np.arange(len(links)), count)
    i = np.arange(len(link)) - np.repeat(np.cumsum(count) - count, count) + 1
    ago = np.maximum(topology.message_s[links][link], i * gap_s[link]) / step_s
    into = np.searchsorted(senders, topology.dst[links])[link]
    grown, sent = np.zeros((MOST_STEPS, len(senders))), np.zeros((MOST_STEPS, len(links)))
    every = np.arange(len(way_s))[:, None]
    known = grown if len(way_s) == len(senders) else np.zeros((MOST_STEPS, 1))
    far = np.where(np.isfinite(way_s), way_s / step_s, np.inf)
    for step in range(MOST_STEPS):
        # a way or a cost may be shorter than a step, but not both: what is sent on long ways comes first
        for long in (True, False):
            at = _last_step(step, far)
            sent[step] = np.where(at >= 0, known[np.maximum(at, 0), every], 0.0).max(axis=0)
            if long:
                at = _last_step(step, ago)
                came = at >= 0
                grown[step] = own + np.bincount(into[came], sent[at[came], link[came]], len(senders))
                known[step] = grown[step] if known is grown else grown[step].max()
        if grown[step][own > 0].min() >= most:
            return grown[: step + 1]
    return grown


def _last_step(step: int, ago: Float64) -> Int64:
    """The last step that has a moment which is ``ago`` steps before one of this step."""
    last: Int64 = np.maximum(np.ceil(step + 1 - ago) - 1, -1.0).astype(np.int64)
    return last
