"""Local search for an order: exchange two machines, move one, or turn a part round, while the cost falls.

The cost of an order adds up what its phases take. A phase takes what its fullest link needs, times how often it is
sent, or what going round takes where each time waits for the time before. The fullest link enters by a norm of high
power over all links, which also sees the second fullest, and which changes by the messages alone that a move touches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kernel_cost import Net, link_s, pass_route

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

SQUARINGS = 5
"""The norm's power is 2 to this: 32. Then 500 equally full links count 1.2 times one."""

HOT = 24
"""Machines at the fullest links whose moves are tried before those of all others."""

GAIN = 1e-9
"""Part of the cost by which it must fall."""


class Entries(NamedTuple):
    """Messages of a phase.

    Attributes:
        phase: int64[entries].
        src, src_gpu, dst, dst_gpu: int64[entries], numbers of machines, and of the GPUs in them.
        size_bytes: float64[entries].
        touching: CSR, the entries that start or end at each number.
    """

    phase: Int64
    src: Int64
    src_gpu: Int64
    dst: Int64
    dst_gpu: Int64
    size_bytes: Float64
    offsets: Int64
    touching: Int64


class Phases(NamedTuple):
    """What each phase's time is made of.

    Attributes:
        times: float64[phases], how often it is sent.
        lag: float64[phases], how many times before it the time is that each time waits for; 0 if it waits for none.
        depth: float64[phases], the messages of the longest chain within one time.
        entries: float64[phases], how many it has.
    """

    times: Float64
    lag: Float64
    depth: Float64
    entries: Float64


class State(NamedTuple):
    """The sums of an order.

    Attributes:
        load: float64[phases, links], seconds.
        power: float64[phases], the sum of powers over links, and over messages where the phase is sent once.
        through: float64[phases], the seconds of all messages, with latency.
        scale: float64[phases], the seconds to which powers refer.
        changed, was: int64[changes] and float64[changes], the loads that a move has changed, in order: the place in
            ``load`` and what was there. changes: int64[1], how many; beyond the room for them none are kept.
    """

    load: Float64
    power: Float64
    through: Float64
    scale: Float64
    changed: Int64
    was: Float64
    changes: Int64


def cost(state: State, phases: Phases) -> float:
    """Seconds, about."""
    total = 0.0
    for p in range(len(phases.times)):
        total += phase_cost(p, state, phases)
    return total


def phase_cost(p: int, state: State, phases: Phases) -> float:
    """Seconds of one phase."""
    norm: float = max(state.power[p], 0.0)
    for _ in range(SQUARINGS):
        norm = np.sqrt(norm)
    norm *= state.scale[p]
    mean = state.through[p] / phases.entries[p]
    # going round, each message is one of those that a time far ahead waits for
    pace: float = max(norm, mean / phases.lag[p]) if phases.lag[p] > 0 else norm
    total: float = phases.times[p] * pace + phases.depth[p] * mean
    return total


def power_of(x: float) -> float:
    for _ in range(SQUARINGS):
        x *= x
    return x


def put(e: int, sign: float, order: Int64, entries: Entries, phases: Phases, net: Net, state: State) -> None:
    """Add an entry to the sums, or take it out."""
    p = entries.phase[e]
    a = net.gpu[order[entries.src[e]], entries.src_gpu[e]]
    b = net.gpu[order[entries.dst[e]], entries.dst_gpu[e]]
    seconds, latency = pass_route(a, b, entries.size_bytes[e], net)
    state.through[p] += sign * (seconds + latency)
    scale = state.scale[p]
    if phases.times[p] == 1.0:
        state.power[p] += sign * power_of((seconds + latency) / scale)
    v, row = a, net.row[b]
    while v != b:
        link = net.table[row, v]
        old = state.load[p, link]
        new = max(old + sign * link_s(link, entries.size_bytes[e], net), 0.0)
        state.load[p, link] = new
        if state.changes[0] < len(state.was):
            state.changed[state.changes[0]] = p * state.load.shape[1] + link
            state.was[state.changes[0]] = old
        state.changes[0] += 1
        state.power[p] += power_of(new / scale) - power_of(old / scale)
        v = net.link_dst[link]


def rebuild(order: Int64, entries: Entries, phases: Phases, net: Net, state: State) -> float:
    """Compute the sums afresh, with the largest load of each phase as its scale. Returns the cost."""
    state.load[:] = 0.0
    state.scale[:] = 1e-30
    for e in range(len(entries.phase)):
        p = entries.phase[e]
        a = net.gpu[order[entries.src[e]], entries.src_gpu[e]]
        b = net.gpu[order[entries.dst[e]], entries.dst_gpu[e]]
        seconds, latency = pass_route(a, b, entries.size_bytes[e], net)
        v, row = a, net.row[b]
        while v != b:
            link = net.table[row, v]
            state.load[p, link] += link_s(link, entries.size_bytes[e], net)
            state.scale[p] = max(state.scale[p], state.load[p, link])
            v = net.link_dst[link]
        if phases.times[p] == 1.0:
            state.scale[p] = max(state.scale[p], seconds + latency)
    for e in range(len(entries.phase)):
        p = entries.phase[e]
        v = net.gpu[order[entries.src[e]], entries.src_gpu[e]]
        b = net.gpu[order[entries.dst[e]], entries.dst_gpu[e]]
        row = net.row[b]
        while v != b:
            link = net.table[row, v]
            state.load[p, link] = 0.0
            v = net.link_dst[link]
    state.power[:] = 0.0
    state.through[:] = 0.0
    for e in range(len(entries.phase)):
        put(e, 1.0, order, entries, phases, net, state)
    return cost(state, phases)


def touch(
    low: int, high: int, whole: bool, sign: float, order: Int64, entries: Entries, phases: Phases, net: Net,
    state: State, stamp: Int64, mark: int,
) -> int:  # fmt: skip
    """Add or take out all entries at the numbers ``low`` and ``high``, or (``whole``) at those between, too."""
    steps = 0
    position = low
    while position <= high:
        for i in range(entries.offsets[position], entries.offsets[position + 1]):
            e = entries.touching[i]
            if stamp[e] != mark:
                stamp[e] = mark
                put(e, sign, order, entries, phases, net, state)
                steps += 1
        position = position + 1 if whole or position == high else high
    return steps


def restore(power: Float64, through: Float64, state: State) -> bool:
    """Take back what a move has changed of the sums; False if that was more than there is room for."""
    if state.changes[0] > len(state.was):
        return False
    links = state.load.shape[1]
    for i in range(state.changes[0] - 1, -1, -1):
        at = state.changed[i]
        state.load[at // links, at % links] = state.was[i]
    state.power[:], state.through[:] = power, through
    return True


def rearrange(order: Int64, how: int, i: int, j: int) -> None:
    """Exchange the machines at two numbers (0), move the first to the second (1), or turn round what is between (2)."""
    if how == 0:
        order[i], order[j] = order[j], order[i]
    elif how == 1:
        machine = order[i]
        step = 1 if j > i else -1
        at = i
        while at != j:
            order[at] = order[at + step]
            at += step
        order[j] = machine
    else:
        low, high = min(i, j), max(i, j)
        while low < high:
            order[low], order[high] = order[high], order[low]
            low += 1
            high -= 1


def undo(order: Int64, how: int, i: int, j: int) -> None:
    """Take a move back."""
    if how == 1:
        rearrange(order, 1, j, i)
    else:
        rearrange(order, how, i, j)


def hottest(order: Int64, entries: Entries, phases: Phases, net: Net, state: State, heat: Float64) -> None:
    """Fill in float64[machines], the load of the fullest link that messages of each number pass, over all times."""
    heat[:] = 0.0
    for e in range(len(entries.phase)):
        p = entries.phase[e]
        v = net.gpu[order[entries.src[e]], entries.src_gpu[e]]
        b = net.gpu[order[entries.dst[e]], entries.dst_gpu[e]]
        row = net.row[b]
        most = 0.0
        while v != b:
            link = net.table[row, v]
            most = max(most, state.load[p, link])
            v = net.link_dst[link]
        share = most * phases.times[p]
        heat[entries.src[e]] = max(heat[entries.src[e]], share)
        heat[entries.dst[e]] = max(heat[entries.dst[e]], share)


def descend(
    order: Int64, shape: Int64, entries: Entries, phases: Phases, net: Net, state: State, budget: float
) -> tuple[float, float]:
    """Improve an order in place until no move helps, or the steps are spent.

    Args:
        shape: int64[machines], GPUs of each machine: a number keeps the count of its machine.
        budget: messages that may be added or taken out.
    Returns:
        The cost, and the steps spent.
    """
    n = len(order)
    stamp, heat = np.zeros(len(entries.phase), dtype=np.int64), np.zeros(n)
    power, through = state.power.copy(), state.through.copy()
    mark = 0
    best = rebuild(order, entries, phases, net, state)
    spent = 3.0 * len(entries.phase)
    turns = 0
    uniform = shape.min() == shape.max()
    while spent < budget:
        hottest(order, entries, phases, net, state, heat)
        spent += len(entries.phase)
        positions = np.argsort(-heat, kind="mergesort")
        if turns == 0:
            positions = positions[:HOT]
        improved = False
        for i in positions:
            least, how_best, j_best = best * (1.0 - GAIN), -1, -1
            for how in range(3 if uniform else 1):
                for j in range(n):
                    if i == j or shape[order[i]] != shape[order[j]] or (how > 0 and abs(i - j) < 2):
                        continue
                    low, high = min(i, j), max(i, j)
                    power[:], through[:] = state.power, state.through
                    state.changes[0] = 0
                    mark += 1
                    spent += touch(low, high, how > 0, -1.0, order, entries, phases, net, state, stamp, mark)
                    rearrange(order, how, i, j)
                    mark += 1
                    spent += touch(low, high, how > 0, 1.0, order, entries, phases, net, state, stamp, mark)
                    now = cost(state, phases)
                    if now < least:
                        least, how_best, j_best = now, how, j
                    undo(order, how, i, j)
                    if not restore(power, through, state):
                        rebuild(order, entries, phases, net, state)
                        spent += 3.0 * len(entries.phase)
                    if spent > budget:
                        break
                if spent > budget:
                    break
            if how_best >= 0:
                rearrange(order, how_best, i, j_best)
                now = rebuild(order, entries, phases, net, state)
                spent += 3.0 * len(entries.phase)
                if now < best * (1.0 - GAIN):
                    best = now
                    improved = True
                    break
                undo(order, how_best, i, j_best)
                best = rebuild(order, entries, phases, net, state)
            if spent > budget:
                break
        if improved:
            turns = 0
        elif turns == 0 and n > HOT:
            turns = 1
        else:
            break
    return best, spent
