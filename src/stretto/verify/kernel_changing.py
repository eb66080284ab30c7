"""The verifier's loops over transfers on links whose bandwidth changes with time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kernel_referee import ROUTER, Lists

Int8 = NDArray[np.int8]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


class Widths(NamedTuple):
    """The bandwidth of links: before all steps, and from each step on (``offsets`` has the steps of each link)."""

    first: Float64
    offsets: Int64
    at_s: Float64
    bandwidth: Float64


class Pieces(NamedTuple):
    """Times of transfers in which no link of their route changes (``offsets``: of each transfer), at the source.

    Attributes:
        begin_s, end_s: float64[pieces].
        part: float64[pieces], what part of the transfer could have passed until the end of the piece, from its first.
    """

    offsets: Int64
    begin_s: Float64
    end_s: Float64
    part: Float64


def pieces_of(
    route: Lists, hop_s: Float64, load_bytes: Float64, begin_s: Float64, end_s: Float64, widths: Widths
) -> Pieces:
    """Divide the times of transfers at the steps of their links.

    Args:
        hop_s, load_bytes: float64[hops], how much later than its source each link carries a transfer, and how much.
        begin_s, end_s: float64[transfers].
    """
    first, steps, at_s, bandwidth = widths
    n = len(begin_s)
    offsets = np.zeros(n + 1, dtype=np.int64)
    begins, ends, parts = [0.0], [0.0], [0.0]
    begins.clear()
    ends.clear()
    parts.clear()
    cuts = [0.0]
    for k in range(n):
        cuts.clear()
        cuts.append(begin_s[k])
        for i in range(route.offsets[k], route.offsets[k + 1]):
            own = at_s[steps[route.values[i]] : steps[route.values[i] + 1]]
            low = np.searchsorted(own, begin_s[k] + hop_s[i], side="right")
            for at in own[low:]:
                if at - hop_s[i] >= end_s[k]:
                    break
                cuts.append(max(at - hop_s[i], begin_s[k]))
        cuts.append(max(end_s[k], begin_s[k]))
        cuts.sort()
        part = 0.0
        for j in range(len(cuts) - 1):
            if cuts[j + 1] <= cuts[j]:
                continue
            middle = cuts[j] + (cuts[j + 1] - cuts[j]) / 2
            speed = np.inf
            for i in range(route.offsets[k], route.offsets[k + 1]):
                link = route.values[i]
                step = np.searchsorted(at_s[steps[link] : steps[link + 1]], middle + hop_s[i], side="right")
                width = bandwidth[steps[link] + step - 1] if step > 0 else first[link]
                speed = min(speed, width / load_bytes[i])
            part += speed * (cuts[j + 1] - cuts[j])
            begins.append(cuts[j])
            ends.append(cuts[j + 1])
            parts.append(part)
        offsets[k + 1] = len(begins)
    return Pieces(offsets, np.array(begins), np.array(ends), np.array(parts))


def _passed(t: float, k: int, pieces: Pieces) -> float:
    """The part of transfer ``k`` that has left its source by ``t``."""
    a, b = pieces.offsets[k], pieces.offsets[k + 1]
    if a == b or t <= pieces.begin_s[a]:
        return 0.0
    whole = pieces.part[b - 1]
    if t >= pieces.end_s[b - 1] or not whole > 0:
        return 1.0
    j = a + np.searchsorted(pieces.end_s[a:b], t, side="right")
    before: float = pieces.part[j - 1] if j > a else 0.0
    length = pieces.end_s[j] - pieces.begin_s[j]
    passed: float = (before + (pieces.part[j] - before) * (t - pieces.begin_s[j]) / length) / whole
    return passed


def left_before_it_came(
    sources: Lists, chunk: Int32, dst: Lists, depends: Lists, kind: Int8, delay_s: Float64, pieces: Pieces,
    rounding_s: float, tolerance: float,
) -> tuple[int, int]:  # fmt: skip
    """The first transfer that a node which cuts through sends on faster than it comes, and what brings it; or -1, -1.

    What has come and what has left are linear within pieces, so they are compared where pieces begin and end.

    Args:
        kind: int8[nodes], how each node sends on. delay_s: float64[receivers], latency from the source.
        rounding_s, tolerance: seconds by which either may be early or late, and the part by which it may lead.
    """
    sends = np.full(len(kind), -1, dtype=np.int64)
    for k in range(len(chunk)):
        routers = 0
        for i in range(sources.offsets[k], sources.offsets[k + 1]):
            if kind[sources.values[i]] == ROUTER:
                routers += 1
                sends[sources.values[i]] = k
        for e in range(depends.offsets[k], depends.offsets[k + 1] if routers > 0 else 0):
            d = depends.values[e]
            if chunk[d] != chunk[k]:
                continue
            delay = -1.0
            for i in range(dst.offsets[d], dst.offsets[d + 1]):
                if sends[dst.values[i]] == k:
                    delay = max(delay, delay_s[i])
            if delay < 0:
                continue
            for i in range(pieces.offsets[k], pieces.offsets[k + 1]):
                t = pieces.end_s[i]
                if _passed(t - rounding_s, k, pieces) > _passed(t - delay + rounding_s, d, pieces) + tolerance:
                    return k, d
            for i in range(pieces.offsets[d], pieces.offsets[d + 1]):
                t = pieces.end_s[i] + delay
                if _passed(t - rounding_s, k, pieces) > _passed(t - delay + rounding_s, d, pieces) + tolerance:
                    return k, d
    return -1, -1


class Load(NamedTuple):
    """What links carry, as events link by link and in order of time.

    Attributes:
        link, time_s: int64[events], float64[events].
        change: float64[events], bytes/s that come (positive) or go (negative).
        excess: float64[events], bytes that come at once.
        limit: float64[events], bytes/s that the link can carry from then on; -1 where that does not change.
        first, allowed: float64[links], bytes/s at first, and bytes by which each link may be ahead, in all.
    """

    link: Int64
    time_s: Float64
    change: Float64
    excess: Float64
    limit: Float64
    first: Float64
    allowed: Float64


def crowded(load: Load) -> int:
    """The event from which a link first carries more than it can, -1 if none does.

    The excess over the limit of the moment collects as in a queue: it grows while the link carries more and drains
    while it carries less. Its largest value is the largest excess of any interval over what the link can carry in it.
    """
    link, time_s, change, more, limits, first, allowed = load
    worst, worst_s = -1, np.inf
    begun, active, carried, excess, limit = 0, 0, 0.0, 0.0, 0.0
    for i in range(len(link)):
        if i == 0 or link[i] != link[i - 1]:
            active, carried, excess, limit = 0, 0.0, 0.0, first[link[i]]
        else:
            excess = max(0.0, excess + (carried - limit) * (time_s[i] - time_s[i - 1]))
        if limits[i] >= 0:
            limit = limits[i]
        if change[i] > 0:
            active += 1
        elif change[i] < 0:
            active -= 1
        carried = carried + change[i] if active > 0 else 0.0
        if excess == 0.0 and (more[i] > 0 or carried > limit):
            begun = i
        excess += more[i]
        if excess > allowed[link[i]] and time_s[begun] < worst_s:
            worst, worst_s = begun, time_s[begun]
    return worst
