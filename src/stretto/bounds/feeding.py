"""Few chunks that one node must feed into several servers: a bound for copies where messages cost.

It is for plans whose messages carry one chunk each.

One piece of X bytes goes from its holder h to ranks of several groups (servers or sites) other than its own. Let no
switch copy, and let nodes but accelerators store nothing. Let there be K chunks, the largest of y bytes and the
smallest of z: y K >= X and z >= X - (K - 1) y. Each chunk enters each group, by a message over a link e into the
group, which a message of c bytes keeps for m_e + c / b_e. A message is *early* if all ranks of the group can still
get the chunk in the time D(c) that the shortest ways to them take. Other messages tell a part of the group at the
most, so a chunk enters by an early one or by two. So the links into a group are needed for

    K m + X / b until D(z) before the end; or for m + z / b more, until the end.

1. Until another node than h can send a chunk of z bytes, h alone sends. What crosses until then comes over the links
   out of h that lead there. So the links into groups have less time than there is until then, all together.
2. The largest chunk enters each group early, from h or from another node, which has had to store it; or late, by two
   messages, beside all other chunks. What h alone can send in time has to pass the links out of h.

Both hold for messages that share links, since only the time of all together counts. If y is large, (2) does not hold;
if it is small, there are many chunks or z is large, and (1) does not. T is no sooner than where both hold for some K.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..model.arrays import Float64, Int64
from ..model.collective import Collective
from ..model.topology import Topology
from .latency import distances

MOST_CHUNKS = 16
"""Chunks up to which this is looked at; with more, each is small, and the other bounds say nearly as much."""

MOST_NODES = 300
"""Nodes up to which this is looked at."""

SAMPLES = 9
"""Sizes of a chunk for which shortest ways are computed."""

ROUNDS = 40
"""Halvings while the largest chunk is looked for."""

NEAR = 1e-5
"""By what share the bound may be below the best of its kind."""


def feeding_bound(net: Topology, c: Collective, from_s: float) -> float | None:
    """Seconds after the start that no plan can beat; None where that is no more than ``from_s``, or nothing is said.

    Args:
        net: messages cost where they begin and end, no switch copies, and only accelerators store.
        c: is copied, from one holder for each piece.
    """
    if len(c.piece_bytes) != 1 or net.node_count > MOST_NODES:
        return None
    feed = _Feed.of(
        net, int(c.ranks[c.holders.values[0]]), c.ranks[c.wanted.values].astype(np.int64), float(c.piece_bytes[0])
    )
    if feed is None or feed.possible(from_s):
        return None
    low_s, high_s = from_s, 2 * from_s
    while not feed.possible(high_s):
        low_s, high_s = high_s, 2 * high_s
        if not np.isfinite(high_s):
            return None  # what is counted here says that there is no plan
    while high_s - low_s > NEAR * low_s:
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (low_s, middle_s) if feed.possible(middle_s) else (middle_s, high_s)
    return low_s


@dataclass(frozen=True)
class _Feed:
    """A holder and the links into groups, sorted by group.

    Attributes:
        size: float64[samples], bytes of a chunk.
        begin_s: float64[samples, links], from when on the holder can send a chunk over a link.
        relay_s: float64[samples, links], from when on another node can.
        early_s: float64[2, 2, samples - 1, links], what is left, at the least, when an early message leaves a link, for
            the ranks that are farthest from its end at the lower and at the upper end of an interval between two sizes;
            and that at both of its ends.
        late_s: float64[links], what is left when any message leaves it.
        group: int64[links], from 0 on.
        out_message_s, out_width: of the best link out of the holder.
        outs: how many links of the holder lead to these.
        faster: the time that a message takes on a link into a group, at most, as a multiple of what it takes there.
    """

    piece: float
    size: Float64
    begin_s: Float64
    relay_s: Float64
    early_s: Float64
    late_s: Float64
    message_s: Float64
    width: Float64
    group: Int64
    out_message_s: float
    out_width: float
    outs: int
    faster: float

    @classmethod
    def of(cls, net: Topology, holder: int, wanting: Int64, piece: float) -> _Feed | None:
        """None where all ranks are in the holder's group, or it has no link that leads to others."""
        site = np.unique(np.array(net.sites), return_inverse=True)[1]
        groups = np.setdiff1d(np.unique(site[wanting]), site[holder])
        entering = np.flatnonzero((site[net.src] != site[net.dst]) & np.isin(site[net.dst], groups))
        entering = entering[np.argsort(site[net.dst[entering]], kind="stable")]
        near, stores = distances(net, 0.0), net.store_and_forward
        passed = distances(net.with_links(~stores[net.src]), 0.0)
        leads = ~stores[net.dst] & (passed[net.dst][:, net.src[entering]] < np.inf).any(axis=1)
        outs = np.flatnonzero((net.src == holder) & (leads | np.isin(np.arange(net.link_count), entering)))
        if not len(groups) or not len(outs) or not np.isin(groups, site[net.dst[entering]]).all():
            return None
        size = piece * np.linspace(0.0, 1.0, SAMPLES)
        begin_s, relay_s, ways_s = [], [], []
        others = np.flatnonzero(stores & (np.arange(net.node_count) != holder))
        src, dst = net.src[entering], net.dst[entering]
        for chunk in size.tolist():
            stored_s = np.where(stores[net.dst], net.message_s + chunk / net.bandwidth, 0.0)
            way_s = distances(replace(net, latency_s=net.latency_s + stored_s), 0.0)
            begin_s.append(way_s[holder, src])
            relay_s.append((way_s[holder, others, None] + near[np.ix_(others, src)]).min(axis=0))
            ways_s.append(way_s)
        arrive_s = np.where(stores & (site == site[dst][:, None]), near[dst] + net.latency_s[entering, None], np.inf)
        ranks = [wanting[site[wanting] == g] for g in groups]
        group = np.searchsorted(groups, site[dst])
        late_s = arrive_s.min(axis=1)
        faster = max(
            (net.message_s[entering, None] / net.message_s[outs]).max(),
            (net.bandwidth[outs] / net.bandwidth[entering, None]).max(),
        )
        return cls(
            piece, size, np.array(begin_s), np.array(relay_s), _early(ways_s, arrive_s, ranks, group), late_s,
            net.message_s[entering], net.bandwidth[entering], group, float(net.message_s[outs].min()),
            float(net.bandwidth[outs].max()), len(outs), float(faster),
        )  # fmt: skip

    def possible(self, end_s: float) -> bool:
        """Whether nothing that is counted here says that no plan ends by then."""
        for count in range(1, MOST_CHUNKS + 1):
            if not self._fits(end_s, count, 0.0):
                return False  # nor with more chunks
            largest = self._largest(end_s, count)
            smallest = max(0.0, self.piece - (count - 1) * largest)
            if count * largest >= self.piece and self._fits(end_s, count, smallest):
                return True
        return True

    def _at(self, known: Float64, chunk: float) -> Float64:
        """What is known for some sizes, at another one: no more than that, as shortest ways are concave in it."""
        below, share = self._place(chunk)
        return _between(known[below], known[below + 1], share)

    def _early_at(self, chunk: float) -> Float64:
        """``early_s`` for a size, or less. That to the farthest rank is not concave in it, those to two are."""
        below, share = self._place(chunk)
        return np.asarray(_between(self.early_s[:, 0, below], self.early_s[:, 1, below], share).max(axis=0))

    def _place(self, chunk: float) -> tuple[int, float]:
        """The interval between two sizes where a chunk's is, and its place there, from 0 to 1."""
        at = min(chunk / self.piece * (SAMPLES - 1), SAMPLES - 1.0)
        below = min(int(at), SAMPLES - 2)
        return below, at - below

    def _fits(self, end_s: float, count: int, smallest: float) -> bool:
        """Whether the links have time for that many chunks (1)."""
        early_s, late_s = end_s - self._early_at(smallest), end_s - self.late_s
        begin_s, relay_s = self._at(self.begin_s, smallest), self._at(self.relay_s, smallest)
        alone_s = float(min(relay_s.min(), late_s.max()))
        before = self._by_group(np.maximum(np.minimum(alone_s, late_s) - begin_s, 0.0))
        from_s = np.maximum(begin_s, alone_s)
        message_s, width = self._best
        more_s = message_s + smallest / width
        early, late = (self._by_group(np.maximum(until_s - from_s, 0.0)) for until_s in (early_s, late_s))
        after = np.maximum(early, late - more_s) - count * message_s - self.piece / width
        tightest = np.argsort(before + after, kind="stable")
        shared = np.minimum(np.cumsum(before[tightest]), self.outs * self.faster * (alone_s - begin_s.min()))
        return bool((shared + np.cumsum(after[tightest]) >= 0).all())

    def _largest(self, end_s: float, count: int) -> float:
        """The most bytes that the largest chunk can have (2)."""
        low, high = 0.0, self.piece
        if self._enters(end_s, count, high):
            return high
        for _ in range(ROUNDS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._enters(end_s, count, middle) else (low, middle)
        return high

    def _enters(self, end_s: float, count: int, chunk: float) -> bool:
        """Whether a chunk can enter each group."""
        message_s, width = self._best
        begin_s, until_s = self._at(self.begin_s, chunk), end_s - self._early_at(chunk)
        takes_s = self.message_s + chunk / self.width
        relayed = self._by_group((self._at(self.relay_s, chunk) + takes_s <= until_s).astype(np.float64)) > 0
        window_s = self._by_group(np.maximum(end_s - self.late_s - self.begin_s[0], 0.0))
        late = (count + 1) * message_s + (self.piece + chunk) / width <= window_s
        fed = ~(relayed | late)
        if not fed.any():
            return True
        direct = self._by_group((begin_s + takes_s <= until_s).astype(np.float64)) > 0
        out_s = fed.sum() * (self.out_message_s + chunk / self.out_width)
        return bool(direct[fed].all() and out_s <= self.outs * (until_s - begin_s)[fed[self.group]].max())

    @property
    def _best(self) -> tuple[Float64, Float64]:
        """float64[groups] each: the cost of a message and the bandwidth of the best links into each group."""
        firsts = np.flatnonzero(np.diff(self.group, prepend=-1))
        return np.minimum.reduceat(self.message_s, firsts), np.maximum.reduceat(self.width, firsts)

    def _by_group(self, values: Float64) -> Float64:
        """The sums over the links into each group."""
        return np.bincount(self.group, values).astype(np.float64)


def _early(ways_s: list[Float64], arrive_s: Float64, ranks: list[Int64], group: Int64) -> Float64:
    """float64[2, 2, samples - 1, links]: ``early_s`` of :class:`_Feed`.

    Args:
        ways_s: float64[nodes, nodes] for each size of a chunk, the lengths of shortest ways.
        arrive_s: float64[links, nodes], from when a message leaves a link until it ends at a node of the group.
        ranks: of each group, those that want the piece.
    """
    every, early_s = np.arange(arrive_s.shape[1]), np.empty((2, 2, len(ways_s) - 1, len(group)))
    for k in range(len(ways_s) - 1):
        for upper in (0, 1):
            far = [own[ways_s[k + upper][:, own].argmax(axis=1)] for own in ranks]
            for end in (0, 1):
                last_s = np.stack([ways_s[k + end][every, last] for last in far])
                early_s[upper, end, k] = (arrive_s + last_s[group]).min(axis=1)
    return early_s


def _between(low: Float64, high: Float64, share: float) -> Float64:
    """Values between two, on straight lines; infinite where there is no way, whatever the size."""
    return low + share * np.subtract(high, low, out=np.zeros_like(low), where=np.isfinite(low))
