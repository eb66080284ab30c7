"""What the nodes of a plan do, transfer by transfer: which versions of a chunk they need, and what waits for what.

A state of a chunk at a node is the arrivals that made it, as an ascending list of *receives*. All lists are parts of
one array, from a begin to an end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bool = NDArray[np.bool_]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]

NOTHING = -1

APART = -1
"""Stands before the receives of a version that begins with them, apart from what the node holds."""


class Slots(NamedTuple):
    """The chunks of each node: what is done with a chunk at a node is of one slot.

    Attributes:
        of_send, of_receive: int64[sends], int64[receives], the slot of each.
        send_offsets, sends, receive_offsets, receives: CSR, the sends and the receives of each slot, ascending.
        held, wanted: bool[slots].
        copies: bool[receives], whether a receive replaces what was there.
        forwards: bool[sends], whether a send carries receives alone.
    """

    of_send: Int64
    of_receive: Int64
    send_offsets: Int64
    sends: Int64
    receive_offsets: Int64
    receives: Int64
    held: Bool
    wanted: Bool
    copies: Bool
    forwards: Bool


def states(slots: Slots, cause_offsets: Int64, causes: Int64) -> tuple[Int64, Int64]:
    """What each send carries: the receives of its slot for which it waits, without those that a later copy replaced
    (all writes but sums are ordered).

    Args:
        cause_offsets, causes: CSR, for each send the receives at its node for which it waits.
    Returns:
        CSR, for each send the receives, ascending; before them APART where they do not add to what the node holds.
    """
    count = len(cause_offsets) - 1
    offsets = np.zeros(count + 1, dtype=np.int64)
    values = np.empty(len(causes) + count, dtype=np.int64)
    end = 0
    for i in range(count):
        begin = end
        ordered = True
        for p in range(cause_offsets[i], cause_offsets[i + 1]):
            if slots.of_receive[causes[p]] == slots.of_send[i]:
                values[end] = causes[p]
                ordered = ordered and (end == begin or values[end - 1] < values[end])
                end += 1
        if not ordered:
            values[begin:end].sort()
            kept = begin
            for p in range(begin + 1, end):
                if values[p] != values[kept]:
                    kept += 1
                    values[kept] = values[p]
            end = kept + 1
        last = end - 1
        while last > begin and not slots.copies[values[last]]:
            last -= 1
        if last > begin:
            for p in range(last, end):
                values[begin + p - last] = values[p]
            end -= last - begin
        if slots.forwards[i] and not (end > begin and slots.copies[values[begin]]):
            for p in range(end, begin, -1):
                values[p] = values[p - 1]
            values[begin] = APART
            end += 1
        offsets[i + 1] = end
    return offsets, values[:end]


def order_of(values: Int64, a: int, a_end: int, b: int, b_end: int) -> int:
    """-1, 0 or 1: short lists come before long ones, and equally long ones by their first different value."""
    if a_end - a != b_end - b:
        return -1 if a_end - a < b_end - b else 1
    for i in range(a_end - a):
        if values[a + i] != values[b + i]:
            return -1 if values[a + i] < values[b + i] else 1
    return 0


def is_part(values: Int64, a: int, a_end: int, b: int, b_end: int) -> bool:
    """Whether all values of the ascending list a are in the ascending list b."""
    while a < a_end:
        while b < b_end and values[b] < values[a]:
            b += 1
        if b == b_end or values[b] != values[a]:
            return False
        a += 1
        b += 1
    return True


def versions(
    slots: Slots, state_offsets: Int64, state_values: Int64
) -> tuple[Int32, Int32, Int64, Int32, Int64, Int64]:
    """The states of its chunk that each slot needs, each as an earlier one plus arrivals.

    Version 0 is what the node holds at first. The others are ordered by how many arrivals made them, then by the
    first different one. A version extends the last earlier one that is part of it.

    Args:
        state_offsets, state_values: of :func:`states`.
    Returns:
        int32[sends], the version that each send carries; int32[slots], the version that the node must end with, or
        NOTHING; CSR offsets of the versions of each slot; int32[versions], the version that each extends, or NOTHING
        if it begins with an arrival; CSR, the receives that each version adds.
    """
    count = len(slots.held)
    values = np.concatenate((state_values, slots.receives))
    shift = len(state_values)
    of_send = np.zeros(len(slots.of_send), dtype=np.int32)
    final = np.full(count, NOTHING, dtype=np.int32)
    offsets = np.zeros(count + 1, dtype=np.int64)
    most = 2 * count + len(slots.sends)
    base = np.empty(most, dtype=np.int32)
    add_offsets = np.zeros(most + 1, dtype=np.int64)
    adds = np.empty(len(values), dtype=np.int64)
    # of the versions of one slot
    begins, ends = np.zeros(len(slots.sends) + 2, dtype=np.int64), np.zeros(len(slots.sends) + 2, dtype=np.int64)
    found = added = 0
    for s in range(count):
        first, last = slots.send_offsets[s], slots.send_offsets[s + 1]
        if last > first or slots.wanted[s]:
            all_begin, all_end = shift + slots.receive_offsets[s], shift + slots.receive_offsets[s + 1]
            for p in range(all_end - 1, all_begin, -1):
                if slots.copies[values[p]]:
                    all_begin = p
                    break
            known = 1
            begins[0] = ends[0] = 0
            # first all states in their order, then which of them each send carries
            for turn in range(2):
                for p in range(first, last + 1):
                    if p < last:
                        a, a_end = state_offsets[slots.sends[p]], state_offsets[slots.sends[p] + 1]
                    else:
                        a, a_end = all_begin, all_end
                    if p == last and not slots.wanted[s]:
                        continue
                    low, high = 0, known
                    while low < high:
                        middle = (low + high) // 2
                        if order_of(values, begins[middle], ends[middle], a, a_end) < 0:
                            low = middle + 1
                        else:
                            high = middle
                    if turn == 1:
                        if p < last:
                            of_send[slots.sends[p]] = low
                        else:
                            final[s] = low
                    elif low == known or order_of(values, begins[low], ends[low], a, a_end) != 0:
                        for i in range(known, low, -1):
                            begins[i], ends[i] = begins[i - 1], ends[i - 1]
                        begins[low], ends[low] = a, a_end
                        known += 1
            for i in range(known):
                below = i - 1
                apart = ends[i] > begins[i] and values[begins[i]] == APART
                while below >= 0 and not (
                    is_part(values, begins[below], ends[below], begins[i], ends[i])
                    and apart == (ends[below] > begins[below] and values[begins[below]] == APART)
                ):
                    below -= 1
                replaced = False
                b, b_end = (begins[below], ends[below]) if below >= 0 else (0, 0)
                for p in range(begins[i], ends[i]):
                    if b < b_end and values[b] == values[p]:
                        b += 1
                    elif values[p] != APART:
                        adds[added] = values[p]
                        added += 1
                        replaced = replaced or slots.copies[values[p]]
                begins_anew = replaced or (apart and below < 0) or (below == 0 and not slots.held[s])
                base[found] = NOTHING if begins_anew else below
                found += 1
                add_offsets[found] = added
        offsets[s + 1] = found
    return of_send, final, offsets, base[:found], add_offsets[: found + 1], adds[:added]


def wakes(cause_offsets: Int64, causes: Int64, count: int) -> tuple[Int64, Int64, Int64]:
    """Which sends wait for each of ``count`` receives.

    Args:
        cause_offsets, causes: CSR, for each send the receives for which it waits; one may be named twice.
    Returns:
        CSR, for each receive the sends, ascending; int64[sends], for how many receives each waits.
    """
    sends = len(cause_offsets) - 1
    waits = np.zeros(sends, dtype=np.int64)
    offsets = np.zeros(count + 2, dtype=np.int64)
    seen = np.full(count, -1, dtype=np.int64)
    for i in range(sends):
        for p in range(cause_offsets[i], cause_offsets[i + 1]):
            if seen[causes[p]] != i:
                seen[causes[p]] = i
                waits[i] += 1
                offsets[causes[p] + 2] += 1
    for r in range(count):
        offsets[r + 2] += offsets[r + 1]
    values = np.empty(offsets[count + 1], dtype=np.int64)
    seen[:] = -1
    for i in range(sends):
        for p in range(cause_offsets[i], cause_offsets[i + 1]):
            r = causes[p]
            if seen[r] != i:
                seen[r] = i
                values[offsets[r + 1]] = i
                offsets[r + 1] += 1
    return offsets[:-1], values, waits


def number_ways(node: Int64, peer: Int64, way: UInt64, alone: Bool, nodes: int, most: int) -> Int32:
    """int32[rows], the number of each row's way among those between its node and its peer, as they come; below
    ``most``, so that further ways share these numbers.

    Args:
        node, peer: of each row, below ``nodes``; rows of one node follow each other.
        alone: whether a row has a way; the number of others is 0.
    """
    number = np.zeros(len(node), dtype=np.int32)
    before = np.empty(len(node), dtype=np.int64)
    of_node, latest, known = np.full(nodes, -1), np.empty(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    for i in range(len(node)):
        if not alone[i]:
            continue
        p = peer[i]
        if of_node[p] != node[i]:
            of_node[p], latest[p], known[p] = node[i], -1, 0
        j = latest[p]
        while j >= 0 and way[j] != way[i]:
            j = before[j]
        if j >= 0:
            number[i] = number[j]
        else:
            number[i] = known[p] % most
            known[p] += 1
            before[i] = latest[p]
            latest[p] = i
    return number


def rounds(
    order: Int64, depend_offsets: Int64, depends: Int64, route_offsets: Int64, route: Int64, links: int
) -> Int64:
    """For each transfer the first round after those of its dependencies and of those before it on a link of its route.

    Args:
        order: the transfers, each after its dependencies.
        depend_offsets, depends, route_offsets, route: CSR, the dependencies and the links of each transfer.
    """
    made = np.zeros(len(order), dtype=np.int64)
    used = np.full(links, -1, dtype=np.int64)
    for k in order:
        first = 0
        for p in range(depend_offsets[k], depend_offsets[k + 1]):
            first = max(first, made[depends[p]] + 1)
        for p in range(route_offsets[k], route_offsets[k + 1]):
            first = max(first, used[route[p]] + 1)
        made[k] = first
        for p in range(route_offsets[k], route_offsets[k + 1]):
            used[route[p]] = first
    return made
