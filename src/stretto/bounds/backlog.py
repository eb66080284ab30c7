"""What servers lack of what has left the first one: a bound for copies where messages cost.

It is for plans whose messages carry one chunk each.

One piece goes from its holder to k other servers (or sites, or nodes). Let no switch copy, and let one link lead out of
each server and one in. A message of a chunk of c_j bytes takes x_j = m + c_j / b or longer on each of these links,
where m is the least cost and b the largest bandwidth of any. Let X be the sum of x_j over all chunks. Let M be the mean
moment at which a link works on a message.

1. The link into server v is done by the end T, so the sum over j of x_j M_vj is at most X (T - X / 2).
2. The link out of the holder's server sends each chunk once at least, so there the same sum is X^2 / 2 or more.
3. Between the first message of a chunk out of the holder's server and the message into server v lie the messages that
   bring the chunk there, one after the other: the i-th server to be told is told d_i x_j later, or more. Telling
   between servers is that of LogP (Karp, Sahay, Santos and Schauser, SPAA 1993): a server first has to pass the chunk
   on from where its link in ends to where its link out begins.

The mean over v gives T >= X + (mean of d) (sum of x_j^2) / X. The holder's server may send a chunk several times: then
its other chunks leave later, and T is less than this by (largest x_j)^2 H / (k X) at most. H is what the best ways to
divide servers among messages of the holder gain (:func:`gained`). The proof is in docs/contributors/bounds.md.

If chunks are few they are large, and so is the second term; if they are many they cost m each. The largest chunk takes
as long as telling all servers of it. The last chunks have to reach all ranks of the last server: either they are small,
or the link into it is idle before the end. The bound is the least over the number of chunks, the largest one and this
idle time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import heappop, heappush

import numpy as np

from ..model.arrays import Float64, Int64
from ..model.collective import Collective
from ..model.topology import Topology
from .latency import distances

MOST_NODES = 300
"""Nodes up to which this is looked at."""

COUNT_STEP = 0.005
"""Share by which numbers of chunks that are looked at together differ, at the most."""

LARGEST_STEPS = (200, 1000)
"""Intervals of the size of the largest chunk: for all numbers of chunks, and then where these make the bound least.
Broadcast of 1 MB on ndv2:10 for msccl takes at least 121.85 us; 200 intervals alone say 121.79."""

BEYOND = 1.02
"""Numbers of chunks are looked at as far as their messages alone take this many times the rough bound."""

IDLE_STEPS = 160
"""Intervals of the time for which links into servers are idle before the end."""

MOST_DIVIDED = 12
"""Servers up to which all ways to divide them among messages of the holder are tried."""


def backlog_bound(net: Topology, c: Collective) -> float | None:
    """Seconds after the start that no plan can beat; None where this says nothing.

    Args:
        net: messages cost, no switch copies, and only accelerators store.
        c: is copied, from one holder for each piece.
    """
    if len(c.piece_bytes) != 1 or net.node_count > MOST_NODES:
        return None
    site = np.unique(np.array(net.sites), return_inverse=True)[1].ravel().astype(np.int64)
    found = [_Servers.of(net, c, group) for group in (site, np.arange(net.node_count))]
    return max((servers.least_s() for servers in found if servers is not None), default=None)


@dataclass(frozen=True)
class _Servers:
    """Servers with one link out and one in, and the piece that they get.

    Two times are that of a chunk of no bytes, and what each byte adds.

    Attributes:
        count: servers that want the piece.
        message_s, byte_s: of a message on the links between servers, at least.
        between_s: latency from where a link out begins to where a link in ends, at least.
        pass_s: from the end of a server's link in to the beginning of its link out.
        first_s: from the holder to the beginning of its server's link out.
        last_s: from the end of a link in until all ranks of the server have a chunk, in the mean over servers.
        soonest_s: the same of a chunk of no bytes, in the server where it is shortest.
    """

    bytes_: float
    count: int
    message_s: float
    byte_s: float
    between_s: float
    pass_s: tuple[float, float]
    first_s: float
    last_s: tuple[float, float]
    soonest_s: float

    @classmethod
    def of(cls, net: Topology, c: Collective, site: Int64) -> _Servers | None:
        """None where some server has no link in or out, or several, or fewer than two others want the piece.

        Args:
            site: int64[nodes], the server of each node, if it stores.
        """
        storing = np.flatnonzero(net.store_and_forward)
        group = np.where(net.store_and_forward, site, -1)
        holder, wanting = int(c.ranks[c.holders.values[0]]), c.ranks[c.wanted.values]
        told = np.setdiff1d(np.unique(site[wanting]), site[holder])
        ends = net.src.astype(np.int64), net.dst.astype(np.int64)
        out, into = (_single(group, a, b) for a, b in (ends, ends[::-1]))
        if len(told) < 2 or out is None or into is None or site[holder] not in out:
            return None
        senders = np.setdiff1d(np.unique(site[storing]), site[holder])
        relays = [g for g in senders.tolist() if g in out and g in into]
        if not set(told.tolist()) <= set(into) or not relays:
            return None
        used = np.array([*out.values(), *into.values()])
        piece = float(c.piece_bytes[0])
        near, ways = distances(net.with_links(~net.store_and_forward[net.src]), 0.0), []
        for size in (0.0, piece):
            stored_s = np.where(net.store_and_forward[net.dst], net.message_s + size / net.bandwidth, 0.0)
            ways.append(distances(replace(net, latency_s=net.latency_s + stored_s), 0.0))
        leaving, entering = (np.array([*links.values()]) for links in (out, into))
        between = near[np.ix_(net.dst[leaving], net.src[entering])] + net.latency_s[entering]
        between += net.latency_s[leaving, None]
        own = np.array([*out])[:, None] == np.array([*into])
        passing = [min(way[net.dst[into[g]], net.src[out[g]]] for g in relays) for way in ways]
        last = [[way[net.dst[into[g]], wanting[site[wanting] == g]].max() for way in ways] for g in told.tolist()]
        first_s = ways[0][holder, net.src[out[int(site[holder])]]]
        return cls(
            piece, len(told), float(net.message_s[used].min()), 1 / float(net.bandwidth[used].max()),
            float(np.where(own, np.inf, between).min()), _affine(passing, piece),
            float(first_s), _together([_affine(way, piece) for way in last]),
            float(min(none_s for none_s, _ in last)),
        )  # fmt: skip

    def least_s(self) -> float:
        """The bound: the least over numbers of chunks."""
        best, count, rough = np.inf, 1, list[tuple[float, int, int]]()
        while (all_s := self.bytes_ * self.byte_s + count * self.message_s) < BEYOND * best:
            most = max(count, int(count * (1 + COUNT_STEP)))
            rough.append((self._with(count, most, LARGEST_STEPS[0], False), count, most))
            best, count = min(best, rough[-1][0]), most + 1
        least_s = all_s  # with that many chunks or more
        for rough_s, count, most in sorted(rough):
            if rough_s < least_s:
                least_s = min(least_s, max(rough_s, self._with(count, most, LARGEST_STEPS[1], True)))
        return float(least_s)

    def _with(self, least: int, most: int, steps: int, exact: bool) -> float:
        """Seconds for a number of chunks between these.

        Args:
            steps: intervals of the size of the largest chunk.
            exact: whether to try all ways to divide servers among messages of the holder.
        """
        total_s = self.bytes_ * self.byte_s + least * self.message_s
        mean_s = total_s / most
        largest = mean_s * np.geomspace(1.0, total_s / mean_s, steps + 1)
        idle = mean_s * np.linspace(0.0, 1.0, IDLE_STEPS + 1)
        low, high = largest[:-1, None], largest[1:, None]
        squares = _least_squares(total_s, most, low, high, self._caps(idle[1:], most, mean_s))
        mean, again, last = np.array([self._told(x, exact) for x in largest[1:].tolist()]).T[:, :, None]
        later_s = (mean * squares - again * high**2) / total_s
        idle_s = idle[:-1] * np.maximum(0.0, 1 - self.last_s[1] / self.byte_s * high / total_s)
        mean_end_s = total_s + np.maximum(later_s, 0.0) + idle_s + self.last_s[0]
        # any server may be told last, also the one whose ranks then have the chunk soonest
        return float(np.maximum(mean_end_s, last * low + self.soonest_s).min()) + self.between_s + self.first_s

    def _caps(self, idle_s: Float64, most: int, mean_s: float) -> Float64:
        """float64[chunks, idle times]: the most that the smallest chunks can take, ascending, if no link into a server
        is idle for longer than that before the end; as many as may be below the mean."""
        slower, total = self.last_s[1] / self.byte_s, np.zeros(len(idle_s))
        caps = list[Float64]()
        while slower and len(caps) < most - 2 and (not caps or caps[-1].min() < mean_s):
            caps.append(self.message_s + (idle_s + total) / slower)
            total = total + caps[-1]
        return np.array(caps).reshape(-1, len(idle_s))

    def _told(self, largest_s: float, exact: bool) -> tuple[float, float, float]:
        """The mean of d where no message between servers takes longer than ``largest_s``, and what the holder gains for
        each server by sending chunks again; and when the last server is told of a chunk, in messages, if no other chunk
        is sent."""
        most = (largest_s - self.message_s) / self.byte_s
        takes_s = np.array([self.message_s, largest_s])
        pass_s = self.pass_s[0] + self.pass_s[1] * np.array([0.0, most]) + self.between_s
        wait = float(np.min(pass_s / takes_s))
        told = told_after(self.count, wait)
        again = gained(told) / self.count if exact else float(told.var()) / 2
        return float(told.mean()), again, float(told_after(self.count + 1, wait, 0.0)[-1])


def _least_squares(total_s: float, count: int, low: Float64, high: Float64, caps: Float64) -> Float64:
    """float64[any, idle times]: the least sum of squares of ``count`` times that add up to a total.

    The largest is between two limits, and the smallest ones are capped: these take what they may, the others are equal.
    """
    least = np.full(np.broadcast_shapes(low.shape, caps.shape[1:]), total_s**2 / count)
    if count < 2:
        return least
    settled = np.zeros(least.shape, dtype=np.bool_)
    sum_, squares = np.zeros(caps.shape[1]), np.zeros(caps.shape[1])
    for k in range(len(caps) + 1):
        others = max(1, count - 1 - k)
        large = np.clip((total_s - sum_) / (others + 1), low, high)
        each = np.maximum(total_s - sum_ - large, 0.0) / others
        fits = ~settled & (each <= caps[k]) if k < len(caps) else ~settled
        least = np.where(fits, np.maximum(least, squares + large**2 + others * each**2), least)
        settled |= fits
        if k < len(caps):
            sum_, squares = sum_ + caps[k], squares + caps[k] ** 2
    return least


def told_after(count: int, wait: float, first_wait: float | None = None) -> Float64:
    """float64[count], ascending: when servers are told of a chunk, after the first one of them, in messages.

    Args:
        wait: from when a server is told until it can send.
        first_wait: the same of the first server, where that is another time.
    """
    told, turns = [0.0], [(wait if first_wait is None else first_wait) + 1]
    while len(told) < count:
        at = heappop(turns)
        told.append(at)
        heappush(turns, at + 1)
        heappush(turns, at + wait + 1)
    return np.array(told)


def gained(told: Float64) -> float:
    """H: what the holder can gain at the most by sending chunks to several servers itself, in messages x servers.

    A chunk for which the servers are divided into trees changes the number of trees of i servers or more from 1, by
    g_i. If several chunks change by g in all, that costs |g|^2 / 2, and gains the sum of - d_i g_i.
    """
    count = len(told)
    if count > MOST_DIVIDED:
        return float(told.var()) * count / 2
    changes, costs = _changes(count)
    alone = costs + changes @ told
    return abs(_least_change(changes[alone < 0], alone[alone < 0], np.zeros(count)))


@lru_cache(maxsize=MOST_DIVIDED)
def _changes(count: int) -> tuple[Float64, Float64]:
    """float64[ways, count] and float64[ways]: g of each way to divide ``count`` servers, and what that alone costs."""
    sizes = np.arange(1, count + 1)
    changes = np.array([[(np.array(trees) >= i).sum() - 1.0 for i in sizes] for trees in _divisions(count, count)])
    return changes, (changes**2).sum(axis=1) / 2


def _least_change(changes: Float64, alone: Float64, already: Float64) -> float:
    """The least that chunks divided in some ways add to what others, divided before them, cost."""
    least, adds = 0.0, alone + changes @ already
    for way in np.flatnonzero(adds < 0).tolist():
        after = _least_change(changes[way:], alone[way:], already + changes[way])
        least = min(least, float(adds[way]) + after)
    return least


def _divisions(count: int, largest: int) -> Iterator[tuple[int, ...]]:
    """All ways to divide servers into trees of at most ``largest``, in descending order."""
    if count == 0:
        yield ()
    for first in range(min(count, largest), 0, -1):
        yield from ((first, *rest) for rest in _divisions(count - first, first))


def _single(group: Int64, near: Int64, far: Int64) -> dict[int, int] | None:
    """The link of each group that leads from it (or into it) to what is no part of it; None if some have several."""
    links = np.flatnonzero((group[near] >= 0) & (group[near] != group[far]))
    owners = group[near[links]]
    return dict(zip(owners.tolist(), links.tolist(), strict=True)) if len(np.unique(owners)) == len(owners) else None


def _together(each: list[tuple[float, float]]) -> tuple[float, float]:
    """The mean for a chunk of no bytes, and the least for each byte."""
    none, more = np.array(each).T
    return float(none.mean()), float(more.min())


def _affine(seconds: list[float], size: float) -> tuple[float, float]:
    """The way of a chunk of no bytes, and more for each byte: shortest ways are concave in the size, so between these
    two none is shorter."""
    none, all_ = seconds
    return none, (all_ - none) / size if np.isfinite(all_) else 0.0
