"""When links are free that are reserved for a time: the calendars of :mod:`.multicast`.

A calendar is a list of segments in the order of time; those of all links are in the same arrays. What the tree that is
growing takes is kept apart, in :class:`Reservations`, until the tree is whole. A *pipe* is a path of links that carry
the same bytes at the same time, each link later than the one before by its latency.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int8 = NDArray[np.int8]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]
INF = np.inf
EPS = 1e-12
SLACK = 1 + EPS


class Calendars(NamedTuple):
    """When links are reserved for the trees that are whole."""

    head: Int64  # int64[links], the first segment of each link, -1 for none
    tail: Int64  # int64[links], the last segment of each link
    start: Float64  # float64[segments]
    end: Float64  # float64[segments]
    following: Int64  # int64[segments], the next segment of the same link, -1 after the last


class Reservations(NamedTuple):
    """When links are reserved for the tree that is growing."""

    latest: Int64  # int64[links], the latest reservation of each link, -1 for none
    rows: list[tuple[int, float, float, int]]  # the link, its time from and to, an earlier one of its link (-1: none)


class Hop(NamedTuple):
    """A link of a pipe. Pipes that begin alike share hops."""

    link: int
    first: int  # the pipe's first link
    before: int  # the hop before it, -1 if it is the first
    place: int  # how many hops are before it
    offset: float  # how much later than the pipe's first link it begins
    seconds: float  # for how long the slowest link up to it is busy
    sending: float  # for how long that link sends: less than ``seconds`` where these are rounded up to slots
    price: float  # the highest of the links up to it


def seconds_on(size: float, per_byte: float, whole: bool) -> float:
    """Time that ``size`` bytes occupy a link (in slots, rounded up, if ``whole``)."""
    seconds: float = np.ceil(size * per_byte - 1e-9) if whole else size * per_byte
    return seconds


def router_ready(first_byte: float, come_by: float, sending: float, whole: bool) -> float:
    """When a router may begin to send for ``sending`` what it gets: so that no byte leaves before it has come.

    What it sends takes as long as the bytes need, however many slots are kept free for it.
    """
    so_early: float = np.ceil(come_by - sending - 1e-9) if whole else come_by - sending
    return max(first_byte, so_early)


def slots_early(hops: int, whole: bool) -> float:
    """How many slots before its turn a pipe may come to its link number ``hops``.

    Latencies are rounded up to slots, but bytes come when they come.
    """
    return float(hops) if whole else 0.0


def gap(t: float, d: float, link: int, calendars: Calendars) -> float:
    """The first time from ``t`` at which the link's calendar has ``d`` seconds free."""
    head, tail, start, end, following = calendars
    i = tail[link]
    if i < 0 or t >= end[i]:
        return t
    if t >= start[i]:
        last_end: float = end[i]
        return last_end
    i = head[link]
    while i >= 0:
        if t + d <= start[i] * SLACK:
            return t
        if t < end[i]:
            t = end[i]
        i = following[i]
    return t


def gap_in_tree(t: float, d: float, link: int, calendars: Calendars, reservations: Reservations) -> float:
    """The same where the tree that is growing leaves the link free for ``d`` seconds, too."""
    t = gap(t, d, link, calendars)
    i = reservations.latest[link]
    while i >= 0:
        _, start, end, earlier = reservations.rows[i]
        if t < end and t + d > start * SLACK:
            t = end
            i = reservations.latest[link]
        else:
            i = earlier
    return t


def pipe_to(last: int, hops: list[Hop]) -> list[int]:
    """The numbers of the hops of the pipe that ends with hop number ``last``, the first one first."""
    pipe = [last] * (hops[last].place + 1)
    for place in range(hops[last].place, 0, -1):
        pipe[place - 1] = hops[pipe[place]].before
    return pipe


def pipe_start(
    t: float, whole: bool, last: int, hops: list[Hop], calendars: Calendars, reservations: Reservations
) -> float:
    """The first time from ``t`` at which every link of a pipe is free, each in its turn, as long as the slowest needs.

    Args:
        last: the number of the pipe's last hop.
    """
    d, pipe, moved = hops[last].seconds, pipe_to(last, hops), True
    while moved:
        moved = False
        for h in pipe:
            hop = hops[h]
            early = slots_early(hop.place, whole)
            late = hop.offset - early
            s = gap_in_tree(t + late, d + early, hop.link, calendars, reservations)
            if s - (t + late) > EPS * abs(s):
                t = s - late
                moved = True
    return t


def reserve(begin: float, finish: float, link: int, least: float, calendars: Calendars, count: int) -> int:
    """Enter ``[begin, finish)`` in a link's calendar, merging over gaps below ``least``.

    Args:
        count: segments so far; the arrays of ``calendars`` have room for one more.
    Returns:
        The new count.
    """
    head, tail, start, end, following = calendars
    before, i = -1, head[link]
    if i >= 0 and begin >= start[tail[link]]:
        before, i = tail[link], -1
    while i >= 0 and start[i] <= begin:
        before, i = i, following[i]
    if before >= 0 and begin - end[before] < least:
        end[before] = max(end[before], finish)
        if i >= 0 and start[i] - end[before] < least:
            end[before] = max(end[before], end[i])
            following[before] = following[i]
            if tail[link] == i:
                tail[link] = before
        return count
    if i >= 0 and start[i] - finish < least:
        start[i] = begin
        return count
    start[count], end[count], following[count] = begin, finish, i
    if before >= 0:
        following[before] = count
    else:
        head[link] = count
    if i < 0:
        tail[link] = count
    return count + 1
