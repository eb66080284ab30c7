"""Timed and ready-order plans on links whose bandwidth changes with time: the event loop of such plans.

A transfer that has its route alone advances at each moment as fast as the slowest link of its route lets it; one that
has a share of the route, by that share of it. So its rate follows the links, and when it ends follows from when it
starts. A link carries each byte later than the source by the latency before it, and its changes count when they are.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kernel_physics import Links, Lists, delays
from .kernel_ready_order import CUTS_THROUGH, RATE_TOLERANCE, Room, dependents_of, reserve

Int8 = NDArray[np.int8]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


class Steps(NamedTuple):
    """The bandwidth of links as time passes."""

    first: Float64  # float64[links], bytes/s before the first step of each link
    offsets: Int64  # int64[links + 1], where the steps of each link begin
    at_s: Float64  # float64[steps], ascending for each link
    bandwidth: Float64  # float64[steps], bytes/s from then on


class Moving(NamedTuple):
    """Transfers, and after them events (turns of planes, barriers) that use no link.

    Attributes:
        chunk, sources, dst, route, depends, earliest_s, slack_s: as in :class:`.kernel_ready_order.Transfers`.
        seconds: float64[transfers], how long each event takes.
        load_bytes: float64[hops], what each link of a route carries: the bytes, and those that a message counts as.
        share: float64[transfers], of its route, that each transfer has.
    """

    chunk: Int32
    sources: Lists
    dst: Lists
    route: Lists
    depends: Lists
    earliest_s: Float64
    seconds: Float64
    load_bytes: Float64
    share: Float64
    slack_s: Float64


class Walk(NamedTuple):
    """A route as time passes.

    Attributes:
        route: int32[hops], its links. hop_s: how much later than the source each carries a byte.
        load_bytes: float64[hops], what each carries of one transfer.
        place: int64[hops], the next step of each link, set by :func:`place_at` and moved by :func:`pass_step`.
    """

    route: Int32
    hop_s: Float64
    load_bytes: Float64
    place: Int64


def place_at(t: float, walk: Walk, steps: Steps) -> None:
    """Set a walk to the moment ``t`` at its source."""
    for i in range(len(walk.route)):
        a, b = steps.offsets[walk.route[i]], steps.offsets[walk.route[i] + 1]
        walk.place[i] = a + np.searchsorted(steps.at_s[a:b], t + walk.hop_s[i], side="right")


def speed(walk: Walk, steps: Steps) -> float:
    """The part of the transfer that passes each second now, if it has the route alone."""
    least = np.inf
    for i in range(len(walk.route)):
        link, place = walk.route[i], walk.place[i]
        width = steps.bandwidth[place - 1] if place > steps.offsets[link] else steps.first[link]
        least = min(least, width / walk.load_bytes[i] if walk.load_bytes[i] > 0 else np.inf)
    return least


def next_step(walk: Walk, steps: Steps) -> float:
    """When the next link of the route changes, in time of the source."""
    soonest = np.inf
    for i in range(len(walk.route)):
        if walk.place[i] < steps.offsets[walk.route[i] + 1]:
            soonest = min(soonest, steps.at_s[walk.place[i]] - walk.hop_s[i])
    return soonest


def pass_step(t: float, walk: Walk, steps: Steps) -> None:
    """Move a walk past the steps until ``t``, which is :func:`next_step` or later."""
    for i in range(len(walk.route)):
        end = steps.offsets[walk.route[i] + 1]
        while walk.place[i] < end and steps.at_s[walk.place[i]] - walk.hop_s[i] <= t:
            walk.place[i] += 1


def part_until(start: float, finish: float, walk: Walk, steps: Steps) -> float:
    """The part of a transfer that can pass in a time if it has the route alone; above 1 where there is more room."""
    place_at(start, walk, steps)
    part, at = 0.0, start
    while at < finish:
        until = min(next_step(walk, steps), finish)
        part += speed(walk, steps) * (until - at) if until > at else 0.0
        at = until
        pass_step(until, walk, steps)
    return part


def end_of(start: float, part: float, walk: Walk, steps: Steps) -> float:
    """When ``part`` of a transfer that has the route alone from ``start`` has passed; infinite if never."""
    place_at(start, walk, steps)
    at = start
    while True:
        rate, until = speed(walk, steps), next_step(walk, steps)
        if rate > 0 and part <= rate * (until - at):
            return at + part / rate
        if until == np.inf:
            return np.inf
        part -= rate * (until - at)
        at = until
        pass_step(until, walk, steps)


def shares(route: Lists, hop_s: Float64, load_bytes: Float64, start: Float64, finish: Float64, steps: Steps) -> Float64:
    """float64[transfers], the share of its route by which each would take just from ``start`` to ``finish``."""
    share = np.ones(len(start))
    place = np.empty(len(route.values), dtype=np.int64)
    for k in range(len(start)):
        a, b = route.offsets[k], route.offsets[k + 1]
        if b > a:
            walk = Walk(route.values[a:b], hop_s[a:b], load_bytes[a:b], place[a:b])
            part = part_until(start[k], finish[k], walk, steps)
            if part > 0 and abs(part - 1.0) > RATE_TOLERANCE:
                share[k] = 1.0 / part
    return share


def run(
    transfers: Moving, links: Links, steps: Steps, turn: Float64, forwarding: Int8, exclusive: bool
) -> tuple[Float64, Float64, Float64, Float64, int]:
    """Start each transfer when its dependencies and its links let it.

    Args:
        turn: float64[transfers], by which transfers take their turns, the lowest first; empty for the moments at which
            they become ready.
        forwarding: int8[nodes], how each node sends on what it gets.
        exclusive: whether a link serves one transfer at a time; otherwise as many as its bandwidth has room for.
    Returns:
        start, finish: float64[transfers], finish infinite where a link fails for good. arrival: float64[receivers].
        hop: float64[hops], how much later than its source each link of a route carries the bytes. done: the number of
        transfers that ran.
    """
    chunk, sources, dst, route, depends, earliest_s, seconds, load_bytes, share, slack = transfers
    n = len(seconds)
    hop, delay = delays(sources, dst, route, links, len(forwarding))
    next_offsets, dependents = dependents_of(depends)
    missing = depends.offsets[1:] - depends.offsets[:-1]
    start, finish = np.full(n, np.inf), np.full(n, np.inf)
    arrival = np.zeros(len(dst.values))
    place = np.empty(len(route.values), dtype=np.int64)
    free = np.zeros(len(links.src))
    most = np.full(len(links.src), 2 * max(steps.first.max(), steps.bandwidth.max()))
    segments = len(links.src) + (0 if exclusive else 2 * len(route.values))
    room = (
        np.arange(len(links.src)), np.full(segments, -1, dtype=np.int64), np.full(segments, -np.inf),
        np.zeros(segments), most, np.zeros(len(links.src)), np.array([len(links.src)]),
        np.arange(len(links.src)),
    )  # fmt: skip

    ready = earliest_s.copy()
    heap = [(0.0, 0)]
    heap.clear()
    for k in range(n):
        if missing[k] == 0:
            heappush(heap, (turn[k] if len(turn) > 0 else ready[k], k))
    done, now = 0, -np.inf
    while len(heap) > 0:
        key, k = heappop(heap)
        a, b = route.offsets[k], route.offsets[k + 1]
        walk = Walk(route.values[a:b], hop[a:b], load_bytes[a:b], place[a:b])
        t = ready[k]
        if a == b:
            finish[k] = t + seconds[k]
        elif exclusive:
            for i in range(a, b):
                t = max(t, free[route.values[i]] - hop[i])
            finish[k] = end_of(t, 1.0 / share[k], walk, steps)
            for i in range(a, b):
                free[route.values[i]] = finish[k] + hop[i]
        else:
            now = max(now, key)
            t = _first_room(max(t, now), now, share[k], slack[k], walk, steps, room)
            room = _reserve(t, share[k], slack[k], walk, steps, room)
            finish[k] = end_of(t, 1.0 / share[k], walk, steps)
        start[k] = t
        done += 1
        if finish[k] == np.inf:
            return start, finish, arrival, hop, done
        everywhere = finish[k]
        for i in range(dst.offsets[k], dst.offsets[k + 1]):
            arrival[i] = finish[k] + delay[i]
            everywhere = max(everywhere, arrival[i])
        for follower in range(next_offsets[k], next_offsets[k + 1]):
            m = dependents[follower]
            # a transfer that does not go to a source is known there when it has arrived everywhere
            when = -np.inf
            for j in range(dst.offsets[k], dst.offsets[k + 1]):
                for i in range(sources.offsets[m], sources.offsets[m + 1]):
                    if dst.values[j] != sources.values[i]:
                        continue
                    there = arrival[j]
                    if forwarding[dst.values[j]] == CUTS_THROUGH and chunk[k] == chunk[m]:
                        c, d = route.offsets[m], route.offsets[m + 1]
                        onward = Walk(route.values[c:d], hop[c:d], load_bytes[c:d], place[c:d])
                        there = _cut_through_start(t, finish[k], delay[j], share[k], walk, share[m], onward, steps)
                    when = max(when, there)
            ready[m] = max(ready[m], everywhere if when == -np.inf else when)
            missing[m] -= 1
            if missing[m] == 0:
                heappush(heap, (turn[m] if len(turn) > 0 else ready[m], m))
    return start, finish, arrival, hop, done


def _cut_through_start(
    start: float, finish: float, delay: float, share: float, walk: Walk, onward_share: float, onward: Walk, steps: Steps
) -> float:
    """When a node that cuts through may start to send what it gets, so that no byte leaves before it came.

    At each moment at most the part that has come may have left. Both parts are linear between steps, so the largest
    lead that a start with the first byte would give is at a step, or at the end; the start is put off until then.

    Args:
        start, finish, share, walk: of the transfer to the node, which is there ``delay`` later.
    """
    # all in time of the transfer's source
    there = Walk(onward.route, onward.hop_s + delay, onward.load_bytes, onward.place)
    place_at(start, walk, steps)
    place_at(start, there, steps)
    at, came, left, lead = start, 0.0, 0.0, 0.0
    while at < finish:
        until = min(min(next_step(walk, steps), next_step(there, steps)), finish)
        if until > at:
            came += share * speed(walk, steps) * (until - at)
            left += onward_share * speed(there, steps) * (until - at)
            at = until
        lead = max(lead, left - (came if until < finish else 1.0))
        pass_step(until, walk, steps)
        pass_step(until, there, steps)
    return (end_of(start, lead / onward_share, there, steps) if lead > 0 else start) + delay


def _first_room(t: float, now: float, share: float, slack: float, walk: Walk, steps: Steps, room: Room) -> float:
    """The first moment from ``t`` at which all links of a route have room for a transfer until it ends.

    What the transfer loads a link with at a moment does not depend on when it started. So where there is no room at
    some moment, it cannot be under way then, and starts after it.
    """
    first, after, begin_s = room[0], room[1], room[2]
    for link in walk.route:
        # no later transfer starts before now
        while after[first[link]] >= 0 and begin_s[after[first[link]]] <= now:
            first[link] = after[first[link]]
    while True:
        crowded = _crowded_until(t, share, slack, walk, steps, room)
        if crowded <= t:
            return t
        t = crowded


def _piece(at: float, left: float, walk: Walk, steps: Steps) -> tuple[float, float, float]:
    """A transfer's speed from ``at`` to the next step of its links, or to its end if that comes first.

    Returns:
        The speed, when the piece ends (infinite if the transfer never ends), and what is left of the transfer then.
    """
    rate, until = speed(walk, steps), next_step(walk, steps)
    if rate > 0 and left <= rate * (until - at):
        return rate, at + left / rate, 0.0
    return rate, until, left if until == np.inf else left - rate * (until - at)


def _crowded_until(t: float, share: float, slack: float, walk: Walk, steps: Steps, room: Room) -> float:
    """Until when a link has no room for a transfer that starts at ``t``; ``t`` if all links have room."""
    first, after, begin_s, load, _, _, _, _ = room
    place_at(t, walk, steps)
    at, left = t, 1.0 / share
    while left > 0:
        rate, until, left = _piece(at, left, walk, steps)
        if until == np.inf:
            break
        for i in range(len(walk.route) if rate > 0 else 0):
            link = walk.route[i]
            own = walk.place[i]
            width = steps.bandwidth[own - 1] if own > steps.offsets[link] else steps.first[link]
            asks, begin, end = rate * share * walk.load_bytes[i], at + walk.hop_s[i], until + walk.hop_s[i]
            j = first[link]
            while j >= 0 and begin_s[j] < end - slack:
                over = np.inf if after[j] < 0 else begin_s[after[j]]
                if over > begin + slack and load[j] > 0.0 and load[j] + asks > width * (1 + RATE_TOLERANCE):
                    # until the link or the route changes, it is as crowded
                    moved: float = max(min(over - walk.hop_s[i], next_step(walk, steps)), np.nextafter(t, np.inf))
                    return moved
                j = after[j]
        at = until
        pass_step(until, walk, steps)
    return t


def _reserve(t: float, share: float, slack: float, walk: Walk, steps: Steps, room: Room) -> Room:
    """Add the load of a transfer that starts at ``t``, piece by piece between the steps of its links.

    Returns:
        ``room``, or a copy with more space.
    """
    place_at(t, walk, steps)
    at, left = t, 1.0 / share
    while left > 0:
        rate, until, left = _piece(at, left, walk, steps)
        if until == np.inf:
            break
        if rate > 0 and until > at:
            first, after, begin_s, load, limit, least, used, near = room
            if used[0] + 2 * len(walk.route) > len(after):
                more = len(after) + 2 * len(walk.route)
                after = np.append(after, np.full(more, -1, dtype=np.int64))
                begin_s, load = np.append(begin_s, np.empty(more)), np.append(load, np.zeros(more))
                room = (first, after, begin_s, load, limit, least, used, near)
            for i in range(len(walk.route)):
                begin, end = at + walk.hop_s[i], until + walk.hop_s[i]
                rounding = min(slack, (end - begin) / 4)
                reserve(walk.route[i], begin, end, rate * share * walk.load_bytes[i], rounding, room)
        at = until
        pass_step(until, walk, steps)
    return room
