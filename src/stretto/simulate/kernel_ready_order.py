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

TIME_TOLERANCE = 1e-12
"""Part of a moment by which two reservations of a link may overlap."""

RATE_TOLERANCE = 1e-9
"""Part of a link's bandwidth by which reservations may exceed it."""


class Transfers(NamedTuple):
    """Transfers, and after them events (turns of planes, barriers) that use no link.

    Attributes:
        chunk: int32[transfers].
        src: int32[transfers], the sending node; an event has the node after the last.
        dst, route, depends: for each transfer its receivers, its links, and what it waits for.
        earliest_s: float64[transfers], no transfer starts before.
        seconds: float64[transfers], how long each keeps a link.
        rate: float64[transfers], bytes/s meanwhile.
    """

    chunk: Int32
    src: Int32
    dst: Lists
    route: Lists
    depends: Lists
    earliest_s: Float64
    seconds: Float64
    rate: Float64


def run(transfers: Transfers, links: Links, forwarding: Int8, exclusive: bool) -> tuple[Float64, Float64, Float64, int]:
    """Start each transfer when its dependencies and its links let it.

    Args:
        forwarding: int8[nodes], how each node sends on what it gets.
        exclusive: whether a link serves one transfer at a time; otherwise as many as its bandwidth has room for.
    Returns:
        start: float64[transfers]. arrival: float64[receivers]. hop: float64[hops], how much later than its source
        each link of a route carries the bytes. done: the number of transfers that ran.
    """
    chunk, src, dst, route, depends, earliest_s, seconds, rate = transfers
    n = len(src)
    hop, delay = delays(src, dst, route, links, len(forwarding))
    next_offsets, dependents = _dependents(depends)
    missing = depends.offsets[1:] - depends.offsets[:-1]
    start = np.full(n, np.inf)
    arrival = np.zeros(len(dst.values))

    free = np.zeros(len(links.src))
    most_uses = 1 if exclusive else len(route.values) + 1
    first_use = np.full(len(links.src), -1, dtype=np.int64)
    next_use = np.empty(most_uses, dtype=np.int64)
    use_start, use_end, use_rate = np.empty(most_uses), np.empty(most_uses), np.empty(most_uses)
    uses = 0

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
                t = max(t, free[route.values[i]] - hop[i])
            for i in range(first, end):
                free[route.values[i]] = t + hop[i] + seconds[k]
        else:
            t = _first_room(
                t, seconds[k], rate[k], route.values[first:end], hop[first:end], links.bandwidth,
                first_use, next_use, use_start, use_end, use_rate,
            )  # fmt: skip
            for i in range(first, end):
                link = route.values[i]
                use_start[uses], use_end[uses] = t + hop[i], t + hop[i] + seconds[k]
                use_rate[uses], next_use[uses] = rate[k], first_use[link]
                first_use[link] = uses
                uses += 1
        start[k] = t
        done += 1
        everywhere = t + seconds[k]
        for i in range(dst.offsets[k], dst.offsets[k + 1]):
            arrival[i] = t + delay[i] + seconds[k]
            everywhere = max(everywhere, arrival[i])
        for i in range(next_offsets[k], next_offsets[k + 1]):
            m = dependents[i]
            # a transfer that does not go to the node is known there when it has arrived everywhere
            when = everywhere
            for j in range(dst.offsets[k], dst.offsets[k + 1]):
                if dst.values[j] == src[m]:
                    when = arrival[j]
                    if forwarding[src[m]] == CUTS_THROUGH and chunk[k] == chunk[m]:
                        when = cut_through_start(t, arrival[j], delay[j], seconds[m])
            ready[m] = max(ready[m], when)
            missing[m] -= 1
            if missing[m] == 0:
                heappush(heap, (ready[m], m))
    return start, arrival, hop, done


def _dependents(depends: Lists) -> tuple[Int64, Int64]:
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


def _first_room(
    now: float, seconds: float, rate: float, route: Int32, hop: Float64, bandwidth: Float64,
    first_use: Int64, next_use: Int64, use_start: Float64, use_end: Float64, use_rate: Float64,
) -> float:  # fmt: skip
    """The first moment from ``now`` at which every link of a route has ``rate`` to spare for ``seconds``.

    Args:
        route, hop: of one transfer: its links, and how much later than its source each carries the bytes.
        first_use, next_use: the reservations of each link, as a linked list that ends with -1; those that ended before
            ``now`` are taken out, since no later transfer starts before.
        use_start, use_end, use_rate: float64[reservations].
    """
    t = now
    moved = True
    while moved:
        moved = False
        for i in range(len(route)):
            link = route[i]
            j = first_use[link]
            before = -1
            while j >= 0:
                if use_end[j] <= now:
                    if before < 0:
                        first_use[link] = next_use[j]
                    else:
                        next_use[before] = next_use[j]
                else:
                    before = j
                j = next_use[j]
            s = _room_on_link(
                t + hop[i], seconds, rate, bandwidth[link], first_use[link], next_use, use_start, use_end, use_rate
            )
            if s > t + hop[i]:
                t = s - hop[i]
                moved = True
    return t


def _room_on_link(
    t: float, seconds: float, rate: float, bandwidth: float,
    head: int, next_use: Int64, use_start: Float64, use_end: Float64, use_rate: Float64,
) -> float:  # fmt: skip
    """``t`` if a link has ``rate`` to spare from then for ``seconds``; else a later moment at which to try again.

    Between the ends of reservations the load does not fall, so only these moments are worth another try.
    """
    end = t + seconds
    slack = TIME_TOLERANCE * max(abs(end), seconds)
    peak = 0.0
    again = np.inf
    counted = False
    i = head
    while i >= 0:
        if use_start[i] < end - slack and use_end[i] > t + slack:
            # the load can peak only where a reservation starts, or (looked at once) at t
            at = max(use_start[i], t)
            load = 0.0
            j = -1 if counted and at == t else head
            counted = counted or at == t
            while j >= 0:
                if use_start[j] <= at + slack and use_end[j] > at + slack:
                    load += use_rate[j]
                j = next_use[j]
            peak = max(peak, load)
            again = min(again, use_end[i])
        i = next_use[i]
    if peak + rate <= bandwidth * (1 + RATE_TOLERANCE):
        return t
    return again
