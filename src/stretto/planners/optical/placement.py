"""Matchings on planes where no step waits for another: which plane holds which, and for how long.

The parts of an AllToAll do not depend on each other, so the matchings of a decomposition are jobs on
K machines. A job may be cut: the rest goes to another plane at the same time, since a node has a port
on each. Each part costs its plane a latency and, but for the first, a turn. Jobs are placed whole, the
longest first (Graham 1969), or plane after plane is filled up to a level and what is beyond is cut off
(McNaughton 1959); the one that ends first is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...model.arrays import Bool, Float64, Int64
from .instance import FREE
from .matchings import Matching

HALVINGS = 40
"""Halvings of the interval in which the level is searched."""


class Planes(NamedTuple):
    """What carries the matchings."""

    bandwidth: Float64  # [planes], bytes/s
    latency_s: Float64  # [planes]
    turn_s: Float64  # [planes]
    free: Bool  # [planes], those that join nothing and take their first matching before time zero
    partner: Int64  # [planes, ranks], whom each rank sends to at first, -1 for none


class Part(NamedTuple):
    """Bytes ``low`` to ``high`` of each circuit of a matching, on a plane that is ready for it at ``start_s``."""

    matching: int
    plane: int
    low: int
    high: int
    start_s: float


def place(matchings: list[Matching], planes: Planes) -> tuple[list[Part], float]:
    """Where and when each matching is held, in the order of matchings, and when the last part has arrived, seconds."""
    lengths = [matching.longest for matching in matchings]
    first = _first_turns(matchings, planes)
    best = _whole(lengths, first, planes)
    low, high = 0.0, best[1]
    for _ in range(HALVINGS):
        level = (low + high) / 2
        parts = _filled(lengths, first, planes, level)
        if parts is None:
            low = level
        else:
            high = level
            best = min(best, (parts, level), key=lambda placement: placement[1])
    parts, _ = best
    ends = [p.start_s + (p.high - p.low) / planes.bandwidth[p.plane] + planes.latency_s[p.plane] for p in parts]
    return parts, float(max(ends))


def _first_turns(matchings: list[Matching], planes: Planes) -> Float64:
    """float64[matchings, planes], how long a plane needs before a matching that is its first."""
    joined = [[planes.free[p] or (to[m.src] == m.dst).all() for p, to in enumerate(planes.partner)] for m in matchings]
    return np.where(np.array(joined), 0.0, planes.turn_s)


def _whole(lengths: list[int], first: Float64, planes: Planes) -> tuple[list[Part], float]:
    """No matching is cut; each goes where it ends first."""
    now, used = np.zeros(len(planes.bandwidth)), np.zeros(len(planes.bandwidth), dtype=np.bool_)
    parts = []
    for number, length in enumerate(lengths):
        start = now + np.where(used, planes.turn_s, first[number])
        end = start + length / planes.bandwidth + planes.latency_s
        p = int(np.argmin(end))
        parts.append(Part(number, p, 0, length, float(start[p])))
        now[p], used[p] = end[p], True
    return parts, float(now.max())


def _filled(lengths: list[int], first: Float64, planes: Planes, level: float) -> list[Part] | None:
    """Plane after plane is filled up to ``level``, seconds; None where the last does not suffice."""
    p, now, fresh, parts = 0, 0.0, True, []
    for number, length in enumerate(lengths):
        low = 0
        while low < length:
            if p == len(planes.bandwidth):
                return None
            start = now + float(first[number, p] if fresh else planes.turn_s[p])
            room = int((level - start - planes.latency_s[p]) * planes.bandwidth[p])
            if room < 1:
                p, now, fresh = p + 1, 0.0, True
                continue
            high = min(length, low + room)
            parts.append(Part(number, p, low, high, start))
            now, fresh = start + (high - low) / planes.bandwidth[p] + planes.latency_s[p], False
            low = high
    return parts


def direct_bound(demand: Int64, planes: Planes) -> float:
    """Seconds before which no plan ends that sends all bytes straight from their source.

    A rank with d partners is joined to each at least once. Beyond a first circuit on each plane every one
    costs a plane its turn and latency; the bytes are carried in what is left of all planes' time:

        sum over planes of B (T - first turn - L)+ >= bytes + (d - K)+ min B (R + L)

    On planes that are alike a rank needs ceil(d / K) circuits of one of them, and before a second one could
    have carried a byte each plane has one circuit, so that partners have whole planes.
    """
    extra = float((planes.bandwidth * (planes.turn_s + planes.latency_s)).min())
    best = 0.0
    for volume, partner in ((demand, planes.partner), (demand.T, _reversed(planes.partner))):
        for rank in np.flatnonzero((volume > 0).any(axis=1)).tolist():
            at_first = partner[:, rank]
            held = (at_first != FREE) & (volume[rank, at_first] > 0)
            start = planes.latency_s + np.where(planes.free | held, 0.0, planes.turn_s)
            partners = int((volume[rank] > 0).sum())
            needed = float(volume[rank].sum()) + max(partners - len(start), 0) * extra
            best = max(best, _level(needed, planes.bandwidth, start), _by_circuits(volume[rank], planes))
    return best


def _by_circuits(volume: Int64, planes: Planes) -> float:
    """When a rank could have sent what it has for each, by the circuits that this takes; 0 where planes differ."""
    if any((column != column[0]).any() for column in (planes.bandwidth, planes.latency_s, planes.turn_s)):
        return 0.0
    width, latency, turn = (float(column[0]) for column in (planes.bandwidth, planes.latency_s, planes.turn_s))
    entries, k = volume[volume > 0].astype(np.float64), len(planes.bandwidth)
    if len(entries) > k:
        # ceil(d / K) circuits of one plane, however the entries are divided
        return -(-len(entries) // k) * (latency + turn) - turn
    whole = np.ones(len(entries))
    for _ in range(k - len(entries)):
        whole[np.argmax(entries / whole)] += 1
    return min(2 * latency + turn, latency + float((entries / whole).max()) / width)


def _reversed(partner: Int64) -> Int64:
    """int64[planes, ranks], from whom each rank receives."""
    sender = np.full_like(partner, FREE)
    plane, rank = np.nonzero(partner != FREE)
    sender[plane, partner[plane, rank]] = rank
    return sender


def _level(volume: float, width: Float64, start: Float64) -> float:
    """When planes that begin at ``start`` have carried ``volume`` bytes between them."""
    order = np.argsort(start, kind="stable")
    until = (volume + np.cumsum(width[order] * start[order])) / np.cumsum(width[order])
    return float(until[np.flatnonzero(until >= start[order])[-1]])
