"""Links that serve transfers in the order in which these become ready: the event loop of such plans."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kernel_physics import Links, Lists, cut_through_start, delays

Bool = NDArray[np.bool_]
Int8 = NDArray[np.int8]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

CUTS_THROUGH = 1
"""How a router forwards, see :attr:`stretto.model.topology.Topology.forwarding`."""

RATE_TOLERANCE = 1e-9
"""Part of a link's bandwidth by which reservations may exceed it."""

EQUAL_LOADS = 1e-12
"""Part of a link's bandwidth: loads that differ by less are the same load."""


class Transfers(NamedTuple):
    """Transfers, and after them events (turns of planes, barriers) that use no link.

    Attributes:
        chunk: int32[transfers].
        sources: for each transfer the sending nodes; an event has the node after the last.
        dst, route, depends: for each transfer its receivers, its links, and what it waits for.
        follows: for each transfer those that must have left their senders before it starts.
        served: int32[hops], the link that serves each hop: that of the route, or one that stands for all of its orbit.
        earliest_s: float64[transfers], no transfer starts before.
        seconds: float64[transfers], how long each keeps a link.
        rate: float64[hops], bytes/s meanwhile on each link of a route, with what the message itself costs.
        slack_s: float64[transfers], seconds by which a transfer may overlap others on a link: what rounding may hide.
    """

    chunk: Int32
    sources: Lists
    dst: Lists
    route: Lists
    depends: Lists
    follows: Lists
    served: Int32
    earliest_s: Float64
    seconds: Float64
    rate: Float64
    slack_s: Float64


Room = tuple[Int64, Int64, Float64, Float64, Float64, Float64, Int64, Int64]
"""What links carry from now on: the load of each link as a step function of time, a linked list of segments.

- int64[links], the segment of each link that holds the present moment.
- int64[segments], the segment after each, -1 for none: the last one of a link is empty and has no end.
- float64[segments], when each begins. float64[segments], its load in bytes/s.
- float64[links], bytes/s that loads may reach.
- float64[links], bytes/s of the slowest transfer over each link: a segment without room for it is full.
- int64[1], how many segments there are.
- int64[links], a segment of each link from which later ones are looked for: the one before the last transfer's. Small
  transfers that arrive long after they start would else be looked for through all segments in between.
"""


def run(transfers: Transfers, links: Links, forwarding: Int8, exclusive: bool) -> tuple[Float64, Float64, Float64, int]:
    """Start each transfer when its dependencies and its links let it.

    Args:
        forwarding: int8[nodes], how each node sends on what it gets.
        exclusive: whether a link serves one transfer at a time; otherwise as many as its bandwidth has room for.
    Returns:
        start: float64[transfers]. arrival: float64[receivers]. hop: float64[hops], how much later than its source
        each link of a route carries the bytes. done: the number of transfers that ran.
    """
    chunk, sources, dst, route, depends, follows, served, earliest_s, seconds, rate, slack = transfers
    n = len(seconds)
    hop, delay = delays(sources, dst, route, links, len(forwarding))
    next_offsets, dependents = dependents_of(depends)
    later_offsets, later = dependents_of(follows)
    missing = depends.offsets[1:] - depends.offsets[:-1] + follows.offsets[1:] - follows.offsets[:-1]
    start = np.full(n, np.inf)
    arrival = np.zeros(len(dst.values))

    free = np.zeros(len(links.src))
    segments = len(links.src) + (0 if exclusive else 2 * len(route.values))
    room = (
        np.arange(len(links.src)), np.full(segments, -1, dtype=np.int64), np.full(segments, -np.inf),
        np.zeros(segments), links.bandwidth * (1 + RATE_TOLERANCE), _least(served, rate, links.bandwidth),
        np.array([len(links.src)]), np.arange(len(links.src)),
    )  # fmt: skip

    ready = earliest_s.copy()
    heap = [(0.0, 0)]
    heap.clear()
    for k in range(n):
        if missing[k] == 0:
            heappush(heap, (ready[k], k))
    done = 0
    while len(heap) > 0:
        t, k = heappop(heap)
        first, end = route.offsets[k], route.offsets[k + 1]
        if exclusive:
            for i in range(first, end):
                t = max(t, free[served[i]] - hop[i])
            for i in range(first, end):
                free[served[i]] = t + hop[i] + seconds[k]
        else:
            own, offset = served[first:end], hop[first:end]
            t = _first_room(t, seconds[k], rate[first:end], slack[k], own, offset, room)
            for i in range(len(own)):
                reserve(own[i], t + offset[i], t + offset[i] + seconds[k], rate[first + i], slack[k], room)
        start[k] = t
        done += 1
        everywhere = t + seconds[k]
        for i in range(dst.offsets[k], dst.offsets[k + 1]):
            arrival[i] = t + delay[i] + seconds[k]
            everywhere = max(everywhere, arrival[i])
        for follower in range(next_offsets[k], next_offsets[k + 1]):
            m = dependents[follower]
            # a transfer that does not go to a source is known there when it has arrived everywhere
            when = -np.inf
            for j in range(dst.offsets[k], dst.offsets[k + 1]):
                for i in range(sources.offsets[m], sources.offsets[m + 1]):
                    if dst.values[j] == sources.values[i]:
                        there = arrival[j]
                        if forwarding[dst.values[j]] == CUTS_THROUGH and chunk[k] == chunk[m]:
                            there = cut_through_start(t, arrival[j], delay[j], seconds[m])
                        when = max(when, there)
            ready[m] = max(ready[m], everywhere if when == -np.inf else when)
            missing[m] -= 1
            if missing[m] == 0:
                heappush(heap, (ready[m], m))
        for follower in range(later_offsets[k], later_offsets[k + 1]):
            m = later[follower]
            ready[m] = max(ready[m], t + seconds[k])
            missing[m] -= 1
            if missing[m] == 0:
                heappush(heap, (ready[m], m))
    return start, arrival, hop, done


def dependents_of(depends: Lists) -> tuple[Int64, Int64]:
    """For each transfer those that wait for it, as offsets and values."""
    n = len(depends.offsets) - 1
    offsets = np.zeros(n + 1, dtype=np.int64)
    for i in range(len(depends.values)):
        offsets[depends.values[i] + 1] += 1
    for k in range(n):
        offsets[k + 1] += offsets[k]
    fill = offsets[:n].copy()
    dependents = np.empty(len(depends.values), dtype=np.int64)
    for k in range(n):
        for i in range(depends.offsets[k], depends.offsets[k + 1]):
            d = depends.values[i]
            dependents[fill[d]] = k
            fill[d] += 1
    return offsets, dependents


def _least(links: Int32, rate: Float64, bandwidth: Float64) -> Float64:
    """float64[links], bytes/s of the slowest transfer over each link."""
    least = bandwidth.copy()
    for i in range(len(links)):
        least[links[i]] = min(least[links[i]], rate[i])
    return least


def _first_room(
    now: float, seconds: float, rate: Float64, slack: float, route: Int32, hop: Float64, room: Room
) -> float:
    """The first moment from ``now`` at which every link of a route has ``rate`` to spare for ``seconds``.

    Args:
        rate, route, hop: of one transfer, for each link: its load, the link, and how much later than the source it
            carries the bytes.
    """
    first, after, begin_s, _, _, _, _, _ = room
    t = now
    moved = True
    while moved:
        moved = False
        for i in range(len(route)):
            # no later transfer starts before now
            while after[first[route[i]]] >= 0 and begin_s[after[first[route[i]]]] <= now:
                first[route[i]] = after[first[route[i]]]
            at = _room_on_link(route[i], t + hop[i], seconds, rate[i], slack, room)
            if at > t + hop[i] and at - hop[i] > t:
                t = at - hop[i]
                moved = True
    return t


def _room_on_link(link: int, t: float, seconds: float, rate: float, slack: float, room: Room) -> float:
    """The first moment from ``t`` at which a link has ``rate`` to spare for ``seconds``.

    A transfer that is too fast for the link has room where nobody else is.
    """
    _, after, begin_s, load, limit, _, _, _ = room
    j = _near(link, t, slack, room)
    while after[j] >= 0 and begin_s[after[j]] <= t + slack:
        j = after[j]
    # j is the segment that holds t, and then those after it until the transfer ends
    while after[j] >= 0:
        if load[j] > 0.0 and load[j] + rate > limit[link]:
            t = begin_s[after[j]]
        elif begin_s[after[j]] >= t + seconds - slack:
            break
        j = after[j]
    return t


def reserve(link: int, begin: float, end: float, rate: float, slack: float, room: Room) -> None:
    """Add a load of ``rate`` to a link; a bound within ``slack`` of another one is that one."""
    first, after, _, load, limit, least, _, near = room
    start, j = _segment_at(link, begin, slack, _near(link, begin, slack, room), room)
    _, stop = _segment_at(link, end, slack, j, room)
    while j != stop:
        load[j] += rate
        j = after[j]
    # neighbours that are the same to every transfer become one segment
    j = start if start >= 0 else first[link]
    near[link] = j
    same = EQUAL_LOADS * limit[link]
    while j != stop and after[j] >= 0:
        other = after[j]
        full = load[j] + least[link] > limit[link] and load[other] + least[link] > limit[link]
        if after[other] >= 0 and (full or abs(load[j] - load[other]) <= same):
            load[j] = max(load[j], load[other])
            after[j] = after[other]
            if other == stop:
                break
        else:
            j = other


def _near(link: int, t: float, slack: float, room: Room) -> int:
    """A segment of a link that begins before ``t``: the one that was used last, or the first one."""
    first, _, begin_s, _, _, _, _, near = room
    j: int = near[link]
    k: int = first[link]
    return j if begin_s[k] < begin_s[j] < t - slack else k


def _segment_at(link: int, t: float, slack: float, j: int, room: Room) -> tuple[int, int]:
    """The segment before the one that begins at ``t`` (-1 for none) and that one, which is made if there is none.

    Args:
        j: a segment that begins no later.
    """
    _, after, begin_s, load, _, _, used, _ = room
    before = -1
    while after[j] >= 0 and begin_s[after[j]] <= t + slack:
        before, j = j, after[j]
    if begin_s[j] >= t - slack:
        return before, j
    new = used[0]
    used[0] += 1
    after[new], begin_s[new], load[new] = after[j], t, load[j]
    after[j] = new
    return j, new
