"""Links that divide their bandwidth into rates, which stay reserved or change whenever a transfer starts or ends.

A transfer is one pipe with the same rate on each link of its route. What its message costs on a link takes bandwidth
there besides: a link carries ``load`` bytes for each byte of the pipe. Where links are shared, transfers are served
rank after rank: within a rank by progressive filling (weighted max-min), and a lower rank gets what the higher ones
leave.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kernel_physics import Lists, delay_to

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

TIME_TOLERANCE = 1e-11
"""Part of a moment within which transfers end, or become ready, together."""

WEIGHT_TOLERANCE = 1e-12
"""Part of a link's first weight below which the rest is rounding."""


class Transfers(NamedTuple):
    """Transfers over links.

    Attributes:
        sources, dst, route, depends: for each transfer who sends, its receivers, its links, and what it waits for.
        next_offsets, dependents: CSR, for each transfer those that wait for it.
        delay_s: float64[receivers], the latency from the source.
        size_bytes: float64[transfers], what the pipe carries, with what the message counts as.
        load: float64[hops], what a link of a route carries for each byte of the pipe.
        earliest_s: float64[transfers], no transfer starts before.
    """

    sources: Lists
    dst: Lists
    route: Lists
    depends: Lists
    next_offsets: Int64
    dependents: Int64
    delay_s: Float64
    size_bytes: Float64
    load: Float64
    earliest_s: Float64


class Widths(NamedTuple):
    """The bandwidth of links as time passes."""

    first: Float64  # float64[links], bytes/s from the beginning
    change_s: Float64  # float64[changes], ascending, when bandwidths change
    later: Float64  # float64[changes, links], bytes/s from each change on


def reserved(transfers: Transfers, change_s: Float64, rate: Float64) -> tuple[Float64, Float64]:
    """Run transfers of which each has its rate, whoever else is active.

    Args:
        change_s: float64[changes], when rates change.
        rate: float64[changes + 1, transfers], bytes/s before the first change, after it, ...
    Returns:
        start, finish: float64[transfers].
    """
    sources, dst, _, depends, _, _, delay_s, size_bytes, _, earliest_s = transfers
    start, finish = earliest_s.copy(), np.empty(len(size_bytes))
    changes = len(change_s)
    for k in range(len(size_bytes)):
        for e in range(depends.offsets[k], depends.offsets[k + 1]):
            d = depends.values[e]
            start[k] = max(start[k], finish[d] + delay_to(k, d, sources, dst, delay_s))
        at, left = start[k], size_bytes[k]
        c = np.searchsorted(change_s, at, side="right")
        while c < changes and left > rate[c, k] * (change_s[c] - at):
            left -= rate[c, k] * (change_s[c] - at)
            at = change_s[c]
            c += 1
        finish[k] = at + left / rate[c, k] if rate[c, k] > 0 else np.inf
    return start, finish


def run(transfers: Transfers, widths: Widths, rank: Int64, weight: Float64) -> tuple[Float64, Float64]:
    """Run each transfer when it is ready, at the rate that sharing gives it.

    Args:
        rank: int64[transfers], the lowest number is served first.
        weight: float64[transfers], of a transfer within its rank.
    Returns:
        start, finish: float64[transfers], infinite for a transfer that never ran.
    """
    sources, dst, route, depends, next_offsets, dependents, delay_s, size_bytes, load, earliest_s = transfers
    first_width, change_s, later_width = widths
    offsets, links = route.offsets, route.values
    n, link_count = len(size_bytes), len(first_width)
    start, finish = np.full(n, np.inf), np.full(n, np.inf)
    rate, remaining = np.zeros(n), size_bytes.copy()
    width = first_width.copy()
    change = 0
    # active[:count] are the active transfers by rank; those of link e are on[base[e]:base[e] + used[e]], each there by
    # its hop hop_of, and each hop is at place_of
    active, members = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    count = 0
    base, used = _first_places(links, link_count), np.zeros(link_count, dtype=np.int64)
    on, hop_of = np.empty(len(links), dtype=np.int64), np.empty(len(links), dtype=np.int64)
    place_of = np.empty(len(links), dtype=np.int64)
    scratch = (np.zeros(link_count), np.zeros(link_count), np.zeros(link_count, dtype=np.int64))

    missing = depends.offsets[1:] - depends.offsets[:-1]
    ready = earliest_s.copy()
    heap = [(0.0, 0)]
    heap.clear()
    for k in range(n):
        if missing[k] == 0:
            heappush(heap, (ready[k], k))
    now = 0.0
    while count > 0 or len(heap) > 0:
        first = np.inf
        for j in range(count):
            k = active[j]
            if rate[k] > 0.0:
                first = min(first, remaining[k] / rate[k])
        until = now + first
        if len(heap) > 0:
            until = min(until, heap[0][0])
        if change < len(change_s):
            until = min(until, change_s[change])
        if until == np.inf:
            break
        slack = TIME_TOLERANCE * until
        passed = max(until - now, 0.0)
        # those that end now, or within rounding of it, end together
        kept = 0
        for j in range(count):
            k = active[j]
            remaining[k] -= rate[k] * passed
            if remaining[k] > rate[k] * slack:
                active[kept] = k
                kept += 1
                continue
            finish[k] = until
            for i in range(offsets[k], offsets[k + 1]):
                # the last transfer of the link takes its place
                link, place = links[i], place_of[i]
                used[link] -= 1
                last = base[link] + used[link]
                on[place], hop_of[place] = on[last], hop_of[last]
                place_of[hop_of[last]] = place
            for i in range(next_offsets[k], next_offsets[k + 1]):
                m = dependents[i]
                ready[m] = max(ready[m], until + delay_to(m, k, sources, dst, delay_s))
                missing[m] -= 1
                if missing[m] == 0:
                    heappush(heap, (ready[m], m))
        count = kept
        now = until
        while len(heap) > 0 and heap[0][0] <= now + slack:
            _, k = heappop(heap)
            start[k] = max(now, ready[k])
            j = count
            while j > 0 and rank[active[j - 1]] > rank[k]:
                active[j] = active[j - 1]
                j -= 1
            active[j] = k
            count += 1
            for i in range(offsets[k], offsets[k + 1]):
                link = links[i]
                place = base[link] + used[link]
                place_of[i] = place
                on[place], hop_of[place] = k, i
                used[link] += 1
        while change < len(change_s) and change_s[change] <= now:
            width[:] = later_width[change]
            change += 1
        _share(active, count, rank, weight, rate, width.copy(), offsets, links, load, base, on, used, members, scratch)
    return start, finish


def _first_places(links: Int32, link_count: int) -> Int64:
    """int64[links + 1], where the places of each link begin if it has one for each hop over it."""
    base = np.zeros(link_count + 1, dtype=np.int64)
    for link in links:
        base[link + 1] += 1
    for link in range(link_count):
        base[link + 1] += base[link]
    return base


def _share(
    active: Int64, count: int, rank: Int64, weight: Float64, rate: Float64, left: Float64, offsets: Int64, links: Int32,
    load: Float64, base: Int64, on: Int64, used: Int64, members: Int64,
    scratch: tuple[Float64, Float64, Int64],
) -> None:  # fmt: skip
    """Set the rates of ``active[:count]`` rank after rank, each from what the ranks before it leave.

    Args:
        rate: float64[transfers], bytes/s; set here.
        left: float64[links], bytes/s; reduced by what is given away.
        offsets, links, load: the routes, and what their links carry for each byte of the transfer.
        base, on, used: the active transfers of link e are ``on[base[e]:base[e] + used[e]]``.
        members: int64[transfers], room for the transfers of one rank.
        scratch: see :func:`_fill`.
    """
    a = 0
    while a < count:
        b = a + 1
        while b < count and rank[active[b]] == rank[active[a]]:
            b += 1
        if b == a + 1:
            k = active[a]
            most = np.inf
            for i in range(offsets[k], offsets[k + 1]):
                most = min(most, left[links[i]] / load[i])
            most = max(most, 0.0)
            rate[k] = most
            for i in range(offsets[k], offsets[k + 1]):
                left[links[i]] -= most * load[i]
        else:
            for j in range(a, b):
                members[j - a] = active[j]
                rate[active[j]] = -1.0
            _fill(members, b - a, weight, rate, left, offsets, links, load, base, on, used, scratch)
        a = b


def _fill(
    members: Int64, count: int, weight: Float64, rate: Float64, left: Float64, offsets: Int64, links: Int32,
    load: Float64, base: Int64, on: Int64, used: Int64, scratch: tuple[Float64, Float64, Int64],
) -> None:  # fmt: skip
    """Divide ``left`` among ``members[:count]``, weighted max-min; arguments as for :func:`_share`.

    All rates rise together in proportion to the weights until some link is full, which fixes the rates of its members.

    Args:
        rate: -1 for each member; set here.
        scratch: float64[links] of zeros, float64[links], int64[links].
    """
    weight_on, first_weight, open_links = scratch
    open_count = 0
    for j in range(count):
        k = members[j]
        for i in range(offsets[k], offsets[k + 1]):
            link = links[i]
            if weight_on[link] == 0.0:
                open_links[open_count] = link
                open_count += 1
            weight_on[link] += weight[k] * load[i]
    for j in range(open_count):
        first_weight[open_links[j]] = weight_on[open_links[j]]
    while True:
        # the link that is full first; a weight within rounding of 0 is 0
        tightest, level = -1, np.inf
        kept = 0
        for j in range(open_count):
            link = open_links[j]
            if weight_on[link] > WEIGHT_TOLERANCE * first_weight[link]:
                open_links[kept] = link
                kept += 1
                if left[link] < level * weight_on[link]:
                    tightest, level = link, left[link] / weight_on[link]
            else:
                weight_on[link] = 0.0
        open_count = kept
        if tightest < 0:
            break
        level = max(level, 0.0)
        for i in range(base[tightest], base[tightest] + used[tightest]):
            k = on[i]
            if rate[k] < 0.0:
                given = level * weight[k]
                rate[k] = given
                for e in range(offsets[k], offsets[k + 1]):
                    left[links[e]] -= given * load[e]
                    weight_on[links[e]] -= weight[k] * load[e]
        left[tightest] = 0.0
        weight_on[tightest] = 0.0
