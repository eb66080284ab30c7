"""When links are free that are reserved for a time: the calendars of :mod:`.multicast`.

A calendar is a list of segments in the order of time; those of all links are in the same arrays. What the tree that is
growing takes is kept apart, in :class:`Reservations`, until the tree is whole. A *pipe* is a path of links that carry
the same bytes at the same time, each link later than the one before by its latency.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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
    """When links are reserved for the trees that are whole.

    Attributes:
        head, tail: int64[links], the first and the last segment of each link, -1 for none.
        start, end: float64[segments].
        following: int64[segments], the next segment of the same link, -1 after the last.
    """

    head: Int64
    tail: Int64
    start: Float64
    end: Float64
    following: Int64


class Reservations(NamedTuple):
    """When links are reserved for the tree that is growing.

    Attributes:
        head: int64[links], the latest reservation of each link, -1 for none.
        link, start, end, following: of each reservation its link, its time, and an earlier one of its link (-1: none).
    """

    head: Int64
    link: list[int]
    start: list[float]
    end: list[float]
    following: list[int]


class Routes(NamedTuple):
    """The links of many pipes, one pipe after the other, and how much later than its first link each link begins."""

    link: list[int]
    offset: list[float]


def seconds_on(size: float, per_byte: float, whole: bool) -> float:
    """Time that ``size`` bytes occupy a link (in slots, rounded up, if ``whole``)."""
    seconds: float = np.ceil(size * per_byte - 1e-9) if whole else size * per_byte
    return seconds


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


def reserve(begin: float, finish: float, link: int, least: float, calendars: Calendars, count: int) -> int:
    """Enter ``[begin, finish)`` in a link's calendar, merging over gaps below ``least``.

    Args:
        count: segments so far; the arrays of ``calendars`` have room for one more.
    Returns:
        The new count.
    """
    head, tail, start, end, following = calendars
    last = tail[link]
    if last >= 0 and begin >= start[last]:
        if begin - end[last] < least:
            end[last] = max(end[last], finish)
            return count
        start[count], end[count], following[count] = begin, finish, -1
        following[last] = count
        tail[link] = count
        return count + 1
    before = -1
    i = head[link]
    while i >= 0 and start[i] <= begin:
        before = i
        i = following[i]
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


def gap_in_tree(t: float, d: float, link: int, reservations: Reservations) -> float:
    """The first time from ``t`` at which the tree that is growing leaves the link free for ``d`` seconds."""
    i = reservations.head[link]
    if i < 0:
        return t
    start, end, following = reservations.start, reservations.end, reservations.following
    while i >= 0:
        if t < end[i] and t + d > start[i] * SLACK:
            t = end[i]
            i = reservations.head[link]
        else:
            i = following[i]
    return t


def slots_early(hops: int, whole: bool) -> float:
    """How many slots before its turn a pipe may come to its link number ``hops``.

    Latencies are rounded up to slots, but bytes come when they come.
    """
    return float(hops) if whole else 0.0


def pipe_start(
    t: float,
    d: float,
    whole: bool,
    routes: Routes,
    first: int,
    length: int,
    calendars: Calendars,
    reservations: Reservations,
) -> float:
    """The first time from ``t`` at which every link of a pipe is free for ``d`` seconds, each in its turn.

    Args:
        first, length: where the pipe's links are among the routes.
    """
    path, offset = routes
    moved = True
    while moved:
        moved = False
        for i in range(first, first + length):
            link = path[i]
            early = slots_early(i - first, whole)
            late = offset[i] - early
            s = gap(t + late, d + early, link, calendars)
            s = gap_in_tree(s, d + early, link, reservations)
            if s - (t + late) > EPS * abs(s):
                t = s - late
                moved = True
    return t


def grown(array: NDArray[Any], needed: int) -> NDArray[Any]:
    """``array`` with room for ``needed`` entries or twice as many as before."""
    larger = np.empty(max(needed, 2 * len(array)), dtype=array.dtype)
    larger[: len(array)] = array
    return larger
