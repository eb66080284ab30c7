"""Put transfers one after the other into what links have free, see :mod:`stretto.schedule.insertion`.

The calendar of a link is a doubly linked list of segments in the order of time; each says how much of the link's
bandwidth is in use from its beginning until the next segment begins. The first segment of link ``e`` has number ``e``
and begins at 0; the last one is always free.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bool = NDArray[np.bool_]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

INSTANT = 1e-12
"""Share of a moment within which two moments are one."""

FULL = 1e-9
"""Share of a link's bandwidth that is not worth counting as free, or by which two segments may differ and be joined."""


class Transfers(NamedTuple):
    """Transfers to be placed.

    Attributes:
        seconds, release_s: float64[transfers], how long each takes, and before when none starts.
        route_offsets, links: CSR, the links of each transfer.
        delay_s, rate: float64[hops], how much later than the transfer starts each link carries it, and how much of the
            link's bandwidth it takes, bytes/s.
        depend_offsets, depends: CSR, for each transfer those it waits for; all have lower numbers.
        lag_s: float64[depends], how much later than its source the waiting transfer's source has each byte.
        streams: bool[depends], whether the waiting transfer may begin with the first byte (at a router).
    """

    seconds: Float64
    release_s: Float64
    route_offsets: Int64
    links: Int64
    delay_s: Float64
    rate: Float64
    depend_offsets: Int64
    depends: Int64
    lag_s: Float64
    streams: Bool


class Calendars(NamedTuple):
    """Segments of all links.

    Attributes:
        at, used: float64[segments], when each begins and how much is in use, bytes/s.
        after, before: int64[segments], the segments after and before it on its link; -1 for none.
        hint: int64[links], the segment that was looked at last.
        segments: int64[1], how many there are.
    """

    at: Float64
    used: Float64
    after: Int64
    before: Int64
    hint: Int64
    segments: Int64


def place(
    order: Int64, transfers: Transfers, width: Float64, base: Calendars, work: Calendars, now: float, start: Float64
) -> None:  # fmt: skip
    """Place transfers in this order, each at the first moment at which it may start and all of its links have room.

    Args:
        order: int64[placed], each transfer after those that it waits for.
        width: float64[links], bandwidths.
        base: what is in use; it grows by what is placed.
        work: room for as many segments.
        now: no transfer starts before.
        start: float64[transfers]; the starts of those placed are written into it.
    """
    seconds, release_s, offsets, links, delay_s, rate, depend_offsets, depends, lag_s, streams = transfers
    shortest, least = np.full(len(width), np.inf), np.full(len(width), np.inf)
    for k in order:
        for i in range(offsets[k], offsets[k + 1]):
            shortest[links[i]] = min(shortest[links[i]], seconds[k])
            least[links[i]] = min(least[links[i]], rate[i])
    _compact(base, work, width, shortest, least)
    for k in order:
        t = max(release_s[k], now)
        for i in range(depend_offsets[k], depend_offsets[k + 1]):
            d = depends[i]
            came = start[d] + seconds[d] + lag_s[i]
            if streams[i]:
                came = max(start[d] + lag_s[i], came - seconds[k])
            t = max(t, came)
        moved = True
        while moved:
            moved = False
            for i in range(offsets[k], offsets[k + 1]):
                e = links[i]
                begin = t + delay_s[i]
                later = _fit(begin, seconds[k], rate[i], width[e] * (1 + FULL), _segment(e, begin, work), work)
                if later > begin + INSTANT * begin:
                    t = later - delay_s[i]
                    moved = True
        start[k] = t
        for i in range(offsets[k], offsets[k + 1]):
            e = links[i]
            begin, end = t + delay_s[i], t + delay_s[i] + seconds[k]
            _use(e, begin, end, rate[i], width[e], base)
            first, last = _use(e, begin, end, rate[i], width[e], work)
            _close(last, shortest[e], least[e], width[e], e, work)
            _close(first, shortest[e], least[e], width[e], e, work)


def use(rows: Int64, transfers: Transfers, width: Float64, base: Calendars, start: Float64) -> None:
    """Enter transfers whose starts are given."""
    for k in rows:
        for i in range(transfers.route_offsets[k], transfers.route_offsets[k + 1]):
            e = transfers.links[i]
            begin = start[k] + transfers.delay_s[i]
            _use(e, begin, begin + transfers.seconds[k], transfers.rate[i], width[e], base)


def moments(start: Float64, depend_offsets: Int64, depends: Int64) -> Float64:
    """float64[transfers]: the start of each or of the latest transfer that it waits for, whichever is later."""
    moment = start.copy()
    for k in range(len(start)):
        for i in range(depend_offsets[k], depend_offsets[k + 1]):
            moment[k] = max(moment[k], moment[depends[i]])
    return moment


def _compact(base: Calendars, work: Calendars, width: Float64, shortest: Float64, least: Float64) -> None:
    """Copy calendars; what has too little room for every transfer, or for too short a time, counts as full."""
    count = len(width)
    for e in range(len(width)):
        work.hint[e] = e
        tail, i = -1, e
        while i >= 0:
            blocked = base.used[i] + least[e] > width[e] * (1 + FULL)
            begin, j = base.at[i], i
            # the run of segments with room, or the one without
            while not blocked and j >= 0 and base.used[j] + least[e] <= width[e] * (1 + FULL):
                j = base.after[j]
            if not blocked and j >= 0 and base.at[j] - begin < shortest[e] * (1 - FULL):
                blocked = True
            elif blocked:
                j = base.after[i]
            while i != j:
                used = width[e] if blocked else base.used[i]
                if tail < 0:
                    work.at[e], work.used[e], work.before[e], work.after[e] = base.at[i], used, -1, -1
                    tail = e
                elif work.used[tail] != used:
                    work.at[count], work.used[count], work.before[count], work.after[count] = base.at[i], used, tail, -1
                    work.after[tail] = count
                    tail = count
                    count += 1
                i = base.after[i]
    work.segments[0] = count


def _segment(link: int, t: float, calendars: Calendars) -> int:
    """The segment of a link in which a moment lies."""
    at, after, before = calendars.at, calendars.after, calendars.before
    i, late = calendars.hint[link], t + INSTANT * t
    while at[i] > late and before[i] >= 0:
        i = before[i]
    while after[i] >= 0 and at[after[i]] <= late:
        i = after[i]
    calendars.hint[link] = i
    return int(i)


def _fit(t: float, seconds: float, rate: float, most: float, i: int, calendars: Calendars) -> float:
    """The first moment from ``t``, which lies in segment ``i``, on from which a rate is free for some seconds."""
    at, used, after = calendars.at, calendars.used, calendars.after
    while i >= 0 and at[i] < (t + seconds) * (1 - INSTANT):
        if used[i] + rate > most:
            while used[i] + rate > most:
                i = after[i]
            t = at[i]
        else:
            i = after[i]
    return t


def _use(link: int, begin: float, end: float, rate: float, width: float, calendars: Calendars) -> tuple[int, int]:
    """Take a rate of a link from ``begin`` to ``end``; the segments before and after what was taken."""
    at, used, after, before = calendars.at, calendars.used, calendars.after, calendars.before
    i = _segment(link, begin, calendars)
    if at[i] < begin * (1 - INSTANT):
        i = _split(i, begin, calendars)
    first, j = before[i], i
    while j >= 0 and at[j] < end * (1 - INSTANT):
        if after[j] < 0 or at[after[j]] > end * (1 + INSTANT):
            _split(j, end, calendars)
        used[j] += rate
        if used[j] > width * (1 - FULL):
            used[j] = width
        j = after[j]
    last = j
    # join what is alike
    k = i
    while k >= 0:
        then = after[k]
        if before[k] >= 0 and abs(used[before[k]] - used[k]) <= FULL * width:
            if k == last:
                last = before[k]
            _drop(k, link, calendars)
        if k == j:
            break
        k = then
    return first, last


def _split(i: int, t: float, calendars: Calendars) -> int:
    """Divide a segment at a moment; the number of the later part."""
    at, used, after, before = calendars.at, calendars.used, calendars.after, calendars.before
    n = calendars.segments[0]
    calendars.segments[0] = n + 1
    at[n], used[n], after[n], before[n] = t, used[i], after[i], i
    if after[i] >= 0:
        before[after[i]] = n
    after[i] = n
    return int(n)


def _drop(k: int, link: int, calendars: Calendars) -> None:
    """Join a segment with the one before it, which has as much in use."""
    after, before = calendars.after, calendars.before
    p = before[k]
    after[p] = after[k]
    if after[k] >= 0:
        before[after[k]] = p
    if calendars.hint[link] == k:
        calendars.hint[link] = p


def _close(i: int, shortest: float, least: float, width: float, link: int, calendars: Calendars) -> None:
    """Count a segment as full if it is between full ones and too short for every transfer."""
    at, used, after, before = calendars.at, calendars.used, calendars.after, calendars.before
    most = width * (1 + FULL)
    if i < 0 or used[i] + least > most or after[i] < 0 or at[after[i]] - at[i] >= shortest * (1 - FULL):
        return
    if used[after[i]] + least <= most or (before[i] >= 0 and used[before[i]] + least <= most):
        return
    used[i] = width
    if abs(used[after[i]] - width) <= FULL * width:
        _drop(after[i], link, calendars)
    if before[i] >= 0 and abs(used[before[i]] - width) <= FULL * width:
        _drop(i, link, calendars)
