"""Which of equally quick routes each of some pairs takes, so that no link has much more to carry than another one."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels.draws import noise

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

LANE = 0.1
"""How much what a link carries of one lane counts besides what it carries of all."""

NEAR = 1e-9
"""Relative difference up to which links are as busy: their loads are sums that are rounded."""


class Options(NamedTuple):
    """The routes of each pair."""

    offsets: Int64  # int64[pairs + 1], of the routes of each
    begins: Int64  # int64[routes + 1], where the links of each begin
    links: Int64  # int64[any]


def choose(options: Options, byte_s: Float64, before_s: Float64, order: Int64, sweeps: int) -> tuple[Int64, Float64]:
    """For each pair and each of some lanes the number of its route; and what each link carries then.

    Pair after pair takes the route whose busiest link is the least busy, of equal ones that whose links are together,
    of equal ones any. Then each chooses anew, until no link carries more than one that its pairs cannot avoid. They
    start lane by lane, and if that is not enough with all lanes of a pair at a time.

    Args:
        byte_s: float64[links], seconds of a byte.
        before_s: float64[links], what each link carries of other lanes, for a byte of each pair.
        order: int64[lanes, pairs], in which pairs choose lane by lane.
        sweeps: how often each pair chooses from either start, at most.
    Returns:
        int64[pairs, lanes], -1 where nothing joins a pair; and float64[links].
    """
    (lanes, pairs), count = order.shape, len(byte_s)
    busy_s, lane_s = np.zeros(count), np.zeros((lanes, count))
    chosen = np.full((pairs, lanes), -1)
    least_s, best_s, best_sum = _unavoidable(options, byte_s, before_s, lanes), inf, inf
    best, best_busy_s = chosen.copy(), busy_s.copy()
    draw = 0
    for sweep in range(2 * sweeps):
        lane_by_lane = sweep < sweeps
        if sweep == sweeps:
            busy_s[:], lane_s[:], chosen[:] = 0.0, 0.0, -1
        for turn in range(pairs * lanes):
            place, lane = (turn % pairs, turn // pairs) if lane_by_lane else (turn // lanes, turn % lanes)
            k = order[lane, place] if lane_by_lane else place
            if options.offsets[k] == options.offsets[k + 1]:  # nothing joins them
                continue
            if chosen[k, lane] >= 0:
                _carry(options, chosen[k, lane], busy_s, lane_s[lane], byte_s, -1.0)
            most, together, alike = inf, inf, 0
            for route in range(options.offsets[k], options.offsets[k + 1]):
                worst, total = 0.0, 0.0
                for link in options.links[options.begins[route] : options.begins[route + 1]]:
                    load = busy_s[link] + byte_s[link] + LANE * lane_s[lane, link] + before_s[link]
                    worst = max(worst, load)
                    total += load
                if worst > most * (1 + NEAR):
                    continue
                if worst >= most * (1 - NEAR):
                    if total > together * (1 + NEAR):
                        continue
                    if total < together * (1 - NEAR):
                        alike = 0
                else:
                    alike = 0
                most, together, alike = worst, total, alike + 1
                draw += 1
                if noise(draw, alike) * alike < 1:
                    chosen[k, lane] = route
            _carry(options, chosen[k, lane], busy_s, lane_s[lane], byte_s, 1.0)
        both_s = before_s + busy_s
        now_s, now_sum = both_s.max(), (both_s * both_s).sum()
        for lane in range(lanes):
            now_s += LANE * lane_s[lane].max()
        if now_s < best_s * (1 - NEAR) or (now_s <= best_s * (1 + NEAR) and now_sum < best_sum * (1 - NEAR)):
            best_s, best_sum, best[:], best_busy_s[:] = now_s, now_sum, chosen, busy_s
        if best_s <= least_s * (1 + LANE) * (1 + NEAR):
            break
    return best, best_busy_s


def _unavoidable(options: Options, byte_s: Float64, before_s: Float64, lanes: int) -> float:
    """What the busiest of the links carries that are the first or the last one of all routes of their pairs."""
    load_s, least_s = before_s.copy(), 0.0
    for k in range(len(options.offsets) - 1):
        first, end = options.offsets[k], options.offsets[k + 1]
        if first == end:
            continue
        for from_end in range(2):
            link = options.links[options.begins[first + from_end] - from_end]
            shared = True
            for route in range(first, end):
                shared &= options.links[options.begins[route + from_end] - from_end] == link
            if shared:
                load_s[link] += lanes * byte_s[link]
                least_s = max(least_s, load_s[link])
    return least_s


def _carry(options: Options, route: int, busy_s: Float64, lane_s: Float64, byte_s: Float64, times: float) -> None:
    """Add a byte over a route to what its links carry, or take it away."""
    for link in options.links[options.begins[route] : options.begins[route + 1]]:
        busy_s[link] += times * byte_s[link]
        lane_s[link] += times * byte_s[link]
