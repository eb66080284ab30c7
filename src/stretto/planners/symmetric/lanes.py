"""When transfers start, where each class of routes has a share of its links for itself.

Fixed shares waste nothing while every class has something to send, which many parts see to, and leave no transfer
waiting for two links at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...model.arrays import Bool, Float64, Int64, Ragged
from ...model.symmetry import Symmetry
from ...schedule.in_lanes import starts_in_lanes
from ...schedule.moments import ends
from .times import Times

TIGHT = 0.9
"""Share of the time of the busiest orbit from which on an orbit counts as busy."""

SMALL = 0.1
"""Share of the work of busy orbits up to which a class of transfers may be hastened."""

HASTE = 8.0
"""How many times sooner than others a hastened class may be done."""


def schedules(
    symmetry: Symmetry, route: Ragged, depends: Ragged, size_bytes: Int64, turn: Float64, slower: Sequence[float]
) -> list[Times]:
    """Starts and ends of transfers, for each way to share links.

    Transfers whose routes cross the same orbits of links are a class, which has a share of these links for itself
    (:func:`lanes`) and carries one after the other. Of those that wait for it the one of the earliest part goes first,
    of equal ones that with the longest chain after it. Were links given to one transfer at a time, those that are slow
    elsewhere, as on the way to a slow NIC, would keep others waiting.

    Args:
        route, depends: of each transfer.
        size_bytes: int64[transfers].
        turn: float64[transfers], where in its owner's data the chunk of each is, from 0 to 1.
        slower: see :func:`lanes`.
    """
    t, owners = symmetry.topology, route.owners
    link, size = route.values, size_bytes[owners]
    busy_s = symmetry.copies[link] * (size / t.bandwidth[link] + t.message_s[link])
    lag_s = np.bincount(owners, t.latency_s[link], route.rows).astype(np.float64)
    orbit = np.unique(symmetry.link_orbits[link], return_inverse=True)[1].reshape(-1)
    lane = _classes(route, orbit)
    found = []
    for share in lanes(lane[owners], orbit, busy_s, slower):
        seconds = route.reduced(np.maximum, busy_s / share)
        start = starts_in_lanes(lane, seconds, lag_s, depends, turn)
        finish = ends(start, seconds)
        found.append(Times(start, finish, float((finish + lag_s).max(initial=0.0))))
    return found


def _classes(route: Ragged, orbit: Int64) -> Int64:
    """int64[routes], a number for each sequence of orbits."""
    place = np.arange(len(orbit)) - route.offsets[route.owners]
    out = np.zeros(route.rows, dtype=np.int64)
    for number in range(int(place.max(initial=0)) + 1):
        here = np.full(route.rows, -1, dtype=np.int64)
        at = place == number
        here[route.owners[at]] = orbit[at]
        out = np.unique(out * (int(orbit.max()) + 2) + here + 1, return_inverse=True)[1].reshape(-1)
    return out


def lanes(lane: Int64, orbit: Int64, busy_s: Float64, slower: Sequence[float]) -> Iterator[Float64]:
    """The share of its orbit of links that the class of each hop has, for each way to hasten some classes.

    All classes end as early as others let them, if none is ever idle. Classes that have little to do on busy orbits,
    such as hops to a server that no element moves, may be hastened: these are few long hops, for which chunks wait.

    Args:
        lane, orbit, busy_s: int64[hops], int64[hops], float64[hops], the class of each, its orbit, and for how long it
            keeps the whole of it.
        slower: by which shares of the time other classes may end later than they must, for the sake of those.
    Yields:
        float64[hops].
    """
    orbits = int(orbit.max()) + 1
    pairs, of = np.unique(lane * orbits + orbit, return_inverse=True)
    of = of.reshape(-1)
    group, place = np.divmod(pairs, orbits)
    work_s = np.bincount(of, busy_s).astype(np.float64)
    load_s = np.bincount(place, work_s)
    part = np.zeros(int(group.max()) + 1)
    np.maximum.at(part, group, np.where(load_s[place] >= TIGHT * load_s.max(), work_s / load_s.max(), 0.0))
    little = ((part <= SMALL) & (part > 0))[group]
    for by in slower:
        small = little & (by > 0 and not little.all())
        seconds = _seconds(group, place, work_s, small, load_s.max() * (1 + by), len(part))
        yield (work_s / seconds[group])[of] * (1 - 1e-9)


def _seconds(group: Int64, place: Int64, work_s: Float64, small: Bool, longest_s: float, groups: int) -> Float64:
    """float64[groups], seconds until each class is done.

    Args:
        group, place, work_s: see :func:`_filled`.
        small: bool[pairs], those of classes that are hastened.
        longest_s: when the others are done at the latest.
    """
    orbits = int(place.max()) + 1
    kept = np.bincount(place[~small], work_s[~small] / longest_s, orbits).astype(np.float64)
    hastened_s = _filled(group[small], place[small], work_s[small], 1.0 - kept, groups)
    seconds = np.where(hastened_s > 0, np.maximum(hastened_s, longest_s / HASTE), 0.0)
    used = np.bincount(place[small], work_s[small] / seconds[group[small]], orbits).astype(np.float64)
    seconds += _filled(group[~small], place[~small], work_s[~small], 1.0 - used, groups)
    return seconds


def _filled(group: Int64, place: Int64, work_s: Float64, free: Float64, groups: int) -> Float64:
    """float64[groups], seconds until each class is done, where each gets as much of its links as any other, and more
    where others have no use for it; 0 for classes without work.

    Args:
        group, place, work_s: of each pair of a class and an orbit the time for which it needs the whole orbit.
        free: float64[orbits], the part of each that there is to share.
    """
    seconds, free = np.zeros(groups), free.astype(np.float64)
    waiting = np.zeros(groups, dtype=np.bool_)
    waiting[group] = True
    while waiting.any():
        on = waiting[group]
        open_s = np.bincount(place[on], work_s[on], len(free))
        ends_s = open_s / np.maximum(free, 1e-12)
        latest_s = ends_s.max()
        now = np.unique(group[on & (ends_s >= latest_s * (1 - 1e-9))[place]])
        seconds[now], waiting[now] = latest_s, False
        settled = np.isin(group, now)
        free -= np.bincount(place[settled], work_s[settled], len(free)) / latest_s
    return seconds
