"""The order in which deliveries are made, improved: each is made over the pipe by which it arrives first.

Deliveries are made one after another. Each takes the pipe by which it comes first, from any node that has the chunk by
then, and keeps the links of the pipe busy. So an order decides trees and timetables: who sends for how long to how many
follows from when its links are free. Deliveries are moved in the order, those on the way to the last one more often,
and a move is kept unless it makes the last delivery later.

What is delivered may be a sum, too: a chunk is then one sum of many, and a node that has one part of it may be sent the
other part instead of the whole.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.chunks import Chunks
from ...kernels.draws import noise
from ...kernels.pipes import Lists, Pipes, free_from

Bool = NDArray[np.bool_]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

LACKS, HELD = -1, -9
"""What a node knows of a chunk: nothing, or that it held it at first; else the delivery that brought it."""

PATIENCE = 50
"""Moves in a row without a gain, for each delivery, after which the search ends."""

CRITICAL, ONWARD = 0.5, 0.6
"""Share of the moves that are of the last delivery or one before it, and the probability of each step back to one."""

LEFT_OUT = 0.3
"""Probability that a delivery to a node which does not want it is left out, when it is to be moved."""

DRAWS = 64
"""Random numbers for each move, at most."""

GAIN = 1e-9
"""Share of the completion, or of the mean, by which a move must gain to be counted as a gain."""


class Deliveries(NamedTuple):
    """What is delivered, each row a chunk to a node.

    Attributes:
        chunk, node: int64[deliveries].
        wanted: bool[deliveries], whether the node wants the chunk; else it only passes it on.
        pipe, parent: int64[deliveries], the pipe, and the delivery that brought the chunk to its source, or HELD; -1
            and LACKS where it is not made.
        start_s, arrival_s: float64[deliveries].
        before, piece: int64[deliveries], chunks: a node that has ``before``, and nothing larger, has the chunk once
            ``piece`` comes, which is added; -1 where only the chunk itself can come.
        onto: int64[deliveries], what brought the chunk to which a piece is added, LACKS where the chunk itself comes.
    """

    chunk: Int64
    node: Int64
    wanted: Bool
    pipe: Int64
    parent: Int64
    start_s: Float64
    arrival_s: Float64
    before: Int64
    piece: Int64
    onto: Int64


def improve(
    pipes: Pipes,
    into: Lists,
    link_count: int,
    chunks: Chunks,
    sum_of: Int64,
    made: Deliveries,
    most_looks: float,
    seed: int,
) -> tuple[Int64, float]:
    """Search for an order in which the last delivery comes sooner.

    Args:
        into: the pipes that enter each node.
        sum_of: int64[chunks], what a chunk is a sum of; of one a node is brought larger and larger sums.
        made: the deliveries in the order to begin with; how the best order makes them is written there.
        most_looks: how many pipes may be looked at, about.
    Returns:
        The deliveries that the best order makes, in its order, and how many pipes were looked at.
    """
    count = len(made.chunk)
    order, trial = np.arange(count), np.arange(count)
    nodes = len(into.offsets) - 1
    came = np.full(nodes * len(chunks.size_bytes), LACKS, dtype=np.int64)
    last = np.full(nodes * (sum_of.max() + 1), LACKS, dtype=np.int64)
    copied_s = np.zeros(len(last))
    free = np.zeros(link_count)
    best_s, best_mean, looks = make(order, pipes, into, chunks, sum_of, made, came, last, copied_s, free, np.inf)
    trial_made = copied(made)
    draw, idle = 0, 0
    while looks < most_looks and idle < PATIENCE * count and count > 1 and best_s < np.inf:
        left = move(order[:count], made, trial, seed, draw)
        end_s, mean, looked = make(
            trial[:left], pipes, into, chunks, sum_of, trial_made, came, last, copied_s, free, best_s
        )
        draw += DRAWS
        looks += looked
        gains = end_s < best_s * (1 - GAIN) or (end_s == best_s and mean < best_mean * (1 - GAIN))
        idle = 0 if gains else idle + 1
        if end_s < best_s or (end_s == best_s and mean <= best_mean):
            best_s, best_mean, count = end_s, mean, left
            order[:count] = trial[:count]
            for k in order[:count]:
                made.pipe[k], made.parent[k] = trial_made.pipe[k], trial_made.parent[k]
                made.start_s[k], made.arrival_s[k] = trial_made.start_s[k], trial_made.arrival_s[k]
                made.onto[k] = trial_made.onto[k]
    return order[:count].copy(), looks


def copied(made: Deliveries) -> Deliveries:
    """The same deliveries, to be made in another way."""
    return Deliveries(
        made.chunk, made.node, made.wanted, made.pipe.copy(), made.parent.copy(), made.start_s.copy(),
        made.arrival_s.copy(), made.before, made.piece, made.onto.copy(),
    )  # fmt: skip


def move(order: Int64, made: Deliveries, trial: Int64, seed: int, draw: int) -> int:
    """Write an order with one delivery moved: any to any place, or one on the way to the last delivery forward.

    A delivery to a node that does not want the chunk may be left out instead.

    Args:
        order: the order to begin with; ``made`` says how it makes the deliveries.
        trial: int64[deliveries], written.
        seed, draw: what the choices are drawn from.
    Returns:
        How many deliveries the new order has.
    """
    count = len(order)
    place, places = int(noise(seed, draw) * count), count
    if noise(seed, draw + 1) < CRITICAL:
        late = order[0]
        for k in order:
            if made.arrival_s[k] > made.arrival_s[late]:
                late = k
        step = draw + 4
        while step < draw + DRAWS and noise(seed, step) < ONWARD:
            onto, parent = made.onto[late], made.parent[late]
            late_onto = onto >= 0 and made.arrival_s[onto] >= made.arrival_s[late]
            if not late_onto and parent < 0:
                break
            late = onto if late_onto else parent
            step += 1
        for i in range(count):
            if order[i] == late:
                place = i
        places = max(place, 1)
    k = order[place]
    trial[:place] = order[:place]
    trial[place : count - 1] = order[place + 1 :]
    if not made.wanted[k] and noise(seed, draw + 3) < LEFT_OUT:
        return count - 1
    to = int(noise(seed, draw + 2) * places)
    trial[to + 1 : count] = trial[to : count - 1].copy()
    trial[to] = k
    return count


def make(
    order: Int64,
    pipes: Pipes,
    into: Lists,
    chunks: Chunks,
    sum_of: Int64,
    made: Deliveries,
    came: Int64,
    last: Int64,
    copied_s: Float64,
    free: Float64,
    most_s: float,
) -> tuple[float, float, float]:
    """Make deliveries in order. What a node has larger sums of is not delivered.

    Args:
        came, last, copied_s, free: int64[nodes * chunks], int64[nodes * sums], float64[nodes * sums] and
            float64[links], to work with.
        most_s: when a delivery comes later, the rest is not made.
    Returns:
        When the last wanted delivery comes, infinite where one cannot be made or comes later than ``most_s``; the mean
        of the arrivals to the power 8, which says how many are late; how many pipes were looked at.
    """
    src, _, hop_offsets, hop_links, hop_late_s, latency_s, per_byte_s, _, _, _ = pipes
    size_bytes, begin_s, hold_offsets, hold_nodes = chunks
    chunk_count, sums = len(size_bytes), len(last) // (len(into.offsets) - 1)
    chunk, node, wanted, pipe, parent, start_s, arrival_s, before, piece, onto = made
    for k in range(len(chunk)):
        came[node[k] * chunk_count + chunk[k]] = LACKS
    for c in range(chunk_count):
        for i in range(hold_offsets[c], hold_offsets[c + 1]):
            came[hold_nodes[i] * chunk_count + c] = HELD
    last[:] = LACKS
    copied_s[:] = 0.0
    free[:] = 0.0
    end_s, mean, looks = 0.0, 0.0, 0.0
    for k in order:
        c, v = chunk[k], node[k]
        slot = v * sums + sum_of[c]
        newest = last[slot]
        if newest >= 0 and chunk[newest] > c:
            pipe[k], parent[k], onto[k], arrival_s[k] = -1, LACKS, LACKS, arrival_s[newest]
            continue
        # a copy replaces what was added up here, so it comes after that, and before what is added to it
        after_s = arrival_s[newest] if newest >= 0 else 0.0
        held = came[v * chunk_count + before[k]] if before[k] >= 0 else LACKS
        part, onto_part, least_s = c, LACKS, after_s
        if held != LACKS and (held == newest or newest < 0):
            part, onto_part, least_s = piece[k], held, copied_s[slot]
        soonest, at, by, brought, below = np.inf, 0.0, -1, LACKS, LACKS
        looks += into.offsets[v + 1] - into.offsets[v]
        for i in range(into.offsets[v], into.offsets[v + 1]):
            p = into.values[i]
            w = came[src[p] * chunk_count + part]
            if w != LACKS:
                ready = max(begin_s[c] if w == HELD else arrival_s[w], least_s)
                takes_s = latency_s[p] + size_bytes[c] * per_byte_s[p]
                if max(ready + takes_s, after_s) < soonest:
                    start = max(ready, free_from(p, hop_offsets, hop_links, hop_late_s, free))
                    if max(start + takes_s, after_s) < soonest:
                        soonest, at, by, brought, below = max(start + takes_s, after_s), start, p, w, onto_part
            if part == c:
                continue
            w = came[src[p] * chunk_count + c]
            if w != LACKS:
                ready = max(begin_s[c] if w == HELD else arrival_s[w], after_s)
                takes_s = latency_s[p] + size_bytes[c] * per_byte_s[p]
                if ready + takes_s < soonest:
                    start = max(ready, free_from(p, hop_offsets, hop_links, hop_late_s, free))
                    if start + takes_s < soonest:
                        soonest, at, by, brought, below = start + takes_s, start, p, w, LACKS
        if wanted[k]:
            if soonest > most_s:
                return np.inf, 0.0, looks
            end_s = max(end_s, soonest)
            # products, since powers are rounded in other ways by other machines
            squared = soonest * soonest
            mean += (squared * squared) * (squared * squared)
        pipe[k], parent[k], onto[k], start_s[k], arrival_s[k] = by, brought, below, at, soonest
        if by >= 0:
            came[v * chunk_count + c] = k
            last[slot] = k
            if below == LACKS:
                copied_s[slot] = soonest
            for i in range(hop_offsets[by], hop_offsets[by + 1]):
                free[hop_links[i]] = at + hop_late_s[i] + size_bytes[c] * per_byte_s[by]
    return end_s, mean, looks
