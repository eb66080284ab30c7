"""Matching in a network that looks the same from every node: what one node gets, and when, is what all get.

Each chunk that a node gets is named by its *displacement* from its source. A link carries at each moment what its
images carry, displaced. So matching costs one n-th for n nodes, and many more orders can be tried.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.draws import noise

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

SLACK = 1 + 4e-15
LACKS, HELD = -1, -9


class Cayley(NamedTuple):
    """A network as a Cayley graph; every node has a link for each generator.

    Attributes:
        sides: int64[digits], the sides of the digits of nodes, the lowest digit first.
        onward: int64[generators, nodes], where the link of each generator leads from each node.
        latency_s, per_byte: float64[generators], seconds, and seconds a byte, of these links.
    """

    sides: Int64
    onward: Int64
    latency_s: Float64
    per_byte: Float64


class Rules(NamedTuple):
    """How orders are tried."""

    seed: int  # from which the order of ties is drawn
    tries: int  # orders that are tried at most
    scarce: float  # for how many copies a link counts that could bring the same chunk to a node
    enough_s: float  # a schedule that ends by then is not searched further
    window: int  # chunks among which a link chooses
    tick_s: float  # moments closer than this count as the same


def match(group: Cayley, part_bytes: Float64, begin_s: float, rules: Rules) -> tuple[Int64, Float64]:
    """Bring a node every part of what all other nodes hold, each part over one of the links that enter the node.

    Args:
        part_bytes: float64[parts], what each node holds.
        begin_s: before which nothing starts.
    Returns:
        int64[4, deliveries]: generator, displacement, part and parent of each, in the order of arrival; the parent
            brought the part to the node before, -1 if that node holds it. None if not all parts can be brought.
        float64[2, deliveries]: when the first byte leaves and the last one arrives.
    """
    _, tries, _, enough_s, _, _ = rules
    best_rows, best_times = np.empty((4, 0), dtype=np.int64), np.empty((2, 0))
    best_end = np.inf
    for k in range(tries):
        rows, times = _match_in_order(group, part_bytes, begin_s, rules, k)
        if rows.shape[1] == 0:
            return rows, times
        end = times[1].max()
        if end < best_end:
            best_end, best_rows, best_times = end, rows, times
        if best_end <= enough_s:
            break
    return best_rows, best_times


def _match_in_order(
    group: Cayley, part_bytes: Float64, begin_s: float, rules: Rules, number: int
) -> tuple[Int64, Float64]:
    """What :func:`match` returns, for one order of ties."""
    _, onward, latency_s, per_byte = group
    seed, _, scarce, _, window_size, tick_s = rules
    (count, nodes), parts = onward.shape, len(part_bytes)
    total = (nodes - 1) * parts
    # an item is a displacement and a part, as displacement * parts + part
    came = np.full(nodes * parts, LACKS, dtype=np.int64)  # by item, the delivery that brought it
    near = np.zeros(nodes * parts, dtype=np.int64)  # by item, over how many links it could come
    copies = np.zeros(parts, dtype=np.int64)
    held = np.empty(nodes * parts, dtype=np.int64)  # items in the order in which they came
    window = np.empty((count, window_size), dtype=np.int64)
    filled, cursor = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    due, free, turn = np.zeros(count), np.full(count, begin_s), np.empty(count)
    rows, times = np.empty((4, total), dtype=np.int64), np.empty((2, total))
    least = part_bytes.min()
    for j in range(parts):
        came[j] = HELD
        held[j] = j
        for p in range(count):
            near[onward[p, 0] * parts + j] += 1
    for p in range(count):
        turn[p] = noise(seed + number, p + 1)
    # some orders prefer other deliveries than the next to arrive, or count no copies that other links could bring
    ahead = 1.0 if number % 4 < 2 else noise(seed + number, 0) * 2.0 - 0.5
    weight = scarce if number % 2 == 0 else 0.0
    done, size = 0, parts
    while done < total:
        p = 0
        for q in range(1, count):
            if due[q] < due[p] or (due[q] == due[p] and turn[q] < turn[p]):
                p = q
        if due[p] == np.inf:
            return np.empty((4, 0), dtype=np.int64), np.empty((2, 0))
        kept = 0
        for i in range(filled[p]):
            if came[onward[p, window[p, i] // parts] * parts + window[p, i] % parts] == LACKS:
                window[p, kept] = window[p, i]
                kept += 1
        while kept < window_size and cursor[p] < size:
            h = held[cursor[p]]
            cursor[p] += 1
            if came[onward[p, h // parts] * parts + h % parts] == LACKS:
                window[p, kept] = h
                kept += 1
        filled[p] = kept
        if kept == 0:
            due[p] = np.inf
            continue
        first = came[window[p, 0]]
        start = max(free[p], begin_s if first < 0 else times[1, first])
        took_s = latency_s[p] + part_bytes[window[p, 0] % parts] * per_byte[p]
        now = np.floor((start + ahead * took_s) / tick_s + 0.5)
        if now > due[p]:
            due[p] = now
            continue
        value, chosen = np.inf, window[p, 0]
        for i in range(kept):
            h = window[p, i]
            if came[h] >= 0 and times[1, came[h]] > start * SLACK:
                break
            x = onward[p, h // parts] * parts + h % parts
            rare = copies[h % parts] + weight * near[x] + noise(seed + number, x)
            if rare < value:
                value, chosen = rare, h
        j = chosen % parts
        x = onward[p, chosen // parts]
        free[p] = start + part_bytes[j] * per_byte[p]
        last = free[p] + latency_s[p]
        rows[0, done], rows[1, done], rows[2, done] = p, x, j
        rows[3, done] = max(came[chosen], -1)
        times[0, done], times[1, done] = start, last
        came[x * parts + j] = done
        copies[j] += 1
        held[size] = x * parts + j
        size += 1
        done += 1
        due[p] = max(now, np.floor((free[p] + ahead * (latency_s[p] + least * per_byte[p])) / tick_s + 0.5))
        for q in range(count):
            y = onward[q, x] * parts + j
            near[y] += 1
            if due[q] == np.inf and came[y] == LACKS:
                then = last + ahead * (latency_s[q] + part_bytes[j] * per_byte[q])
                due[q] = max(now, np.floor(then / tick_s + 0.5))
    return rows, times
