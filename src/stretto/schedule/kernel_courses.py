"""Messages in an order, in which each starts as soon as its links are free and what it carries is there.

A *copy* of chunk c to node v has the number ``c * nodes + v``, and the *sum* that node v sends of chunk c has this
number and ``chunks * nodes`` more. For whom: :mod:`stretto.schedule.kernel_rerouting`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bool = NDArray[np.bool_]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

NEVER = 1e30
"""Seconds; a moment that never comes."""

ROUNDED = 1 + 1e-12
"""Times a moment up to which another one is the same."""


FEW_MOVED = 16
"""Places that messages move on average until they are sorted anew as a whole."""


class Ways(NamedTuple):
    """The ways from nodes to others."""

    src: Int64  # int64[ways], the first source
    dst: Int64  # int64[ways], the first receiver
    offsets: Int64  # CSR, the links of each way
    links: Int64
    late_s: Float64  # float64[links of ways], how much later than its source each link carries the bytes
    latency_s: Float64  # float64[ways]
    goal_offsets: Int64  # CSR, the receivers of each way
    goals: Int64
    out_offsets: Int64  # CSR, the ways that leave each node
    out: Int64
    message_s: Float64  # float64[links], what a message costs
    per_byte: Float64  # float64[links], seconds a byte


class Case(NamedTuple):
    """What is to be copied where."""

    size: Float64  # float64[chunks], bytes
    source: Bool  # bool[copies], whether the node has the chunk without a copy
    wanted: Int64  # int64[copies], 1 where a copy must come
    children: Int64  # int64[copies], how many sums of the chunk the node receives


class Course(NamedTuple):
    """Messages and what they carry; each message has a list of its transfers."""

    via: Int64  # int64[transfers], the message of each, -1 for none
    next: Int64  # int64[transfers], the next one in its message, -1 for none
    before: Int64  # int64[transfers]
    head: Int64  # int64[messages], the first transfer of each, -1 for none
    way: Int64  # int64[messages]
    start_s: Float64  # float64[messages]
    end_s: Float64  # float64[messages]
    order: Int64  # int64[messages], the messages by start
    came_s: Float64  # float64[transfers], when each copy has come; when the last sum has come to the node
    missing: Int64  # int64[copies], how many sums have not come


class Slots(NamedTuple):
    """The messages of each way and of each link, by start."""

    of_way: Int64  # CSR
    way_messages: Int64
    of_link: Int64  # CSR
    link_messages: Int64
    hop: Int64  # int64[uses of links], the place of the link among those of ways
    free_s: Float64  # float64[links]


def put(course: Course, t: int, m: int) -> None:
    """Put a transfer into a message."""
    course.via[t], course.next[t], course.before[t] = m, course.head[m], -1
    if course.head[m] >= 0:
        course.before[course.head[m]] = t
    course.head[m] = t


def take_out(course: Course, t: int) -> None:
    """Take a copy out of its message."""
    if course.before[t] >= 0:
        course.next[course.before[t]] = course.next[t]
    else:
        course.head[course.via[t]] = course.next[t]
    if course.next[t] >= 0:
        course.before[course.next[t]] = course.before[t]
    course.via[t], course.came_s[t] = -1, NEVER


def ready_s(at: int, case: Case, course: Course) -> float:
    """From when on a node has what it sends of a chunk, seconds."""
    came_s: float = course.came_s[at]
    if case.source[at]:
        came_s = NEVER if course.missing[at] else course.came_s[len(case.source) + at]
    return came_s


def run(count: int, ways: Ways, case: Case, course: Course, free_s: Float64, scale_s: float) -> tuple[float, float]:
    """Start each message as early as possible, in their order.

    Returns:
        The lateness, in which late copies count most, and the completion; ``NEVER`` where something is sent before it
        has come.
    """
    nodes, copies = len(ways.out_offsets) - 1, len(case.source)
    # calls with tuples of arrays in the inner loop would take as long as all else
    offsets, links, message_s, per_byte = ways.offsets, ways.links, ways.message_s, ways.per_byte
    source, came, missing = case.source, course.came_s, course.missing
    free_s[:] = 0.0
    missing[:] = case.children
    came[copies:] = 0.0
    late, completion_s = 0.0, 0.0
    for k in range(count):
        m = course.order[k]
        p = course.way[m]
        src, dst, first, last = ways.src[p], ways.dst[p], offsets[p], offsets[p + 1]
        start_s, size, wanted = 0.0, 0.0, 0
        t = course.head[m]
        while t >= 0:
            # what is sent: of a copy what its source has, of a sum what the node has summed
            c = t // nodes if t < copies else (t - copies) // nodes
            at = c * nodes + src if t < copies else t - copies
            counts = t - c * nodes == dst if t < copies else at - c * nodes == src
            if t < copies and not source[at]:
                start_s = max(start_s, came[at])
            else:
                start_s = max(start_s, NEVER if missing[at] else came[copies + at])
            size += case.size[c] if counts else 0.0
            wanted += case.wanted[t] if t < copies else 0
            t = course.next[t]
        if start_s >= NEVER:
            return NEVER, NEVER
        takes_s = 0.0
        for i in range(first, last):
            takes_s = max(takes_s, message_s[links[i]] + size * per_byte[links[i]])
            start_s = max(start_s, free_s[links[i]] - ways.late_s[i])
        for i in range(first, last):
            free_s[links[i]] = start_s + ways.late_s[i] + takes_s
        course.start_s[m], course.end_s[m] = start_s, start_s + takes_s
        came_s = start_s + takes_s + ways.latency_s[p]
        t = course.head[m]
        while t >= 0:
            if t < copies:
                came[t] = came_s
            else:
                at = (t - copies) // nodes * nodes + dst
                missing[at] -= 1
                came[copies + at] = max(came[copies + at], came_s)
            t = course.next[t]
        if wanted:
            completion_s = max(completion_s, came_s)
            part = came_s / scale_s
            for _ in range(4):
                part *= part
            late += wanted * part
    return late, completion_s


def duration_s(p: int, size: float, ways: Ways) -> float:
    """How long a message keeps the links of its way, seconds."""
    takes_s = 0.0
    for i in range(ways.offsets[p], ways.offsets[p + 1]):
        e = ways.links[i]
        takes_s = max(takes_s, ways.message_s[e] + size * ways.per_byte[e])
    return takes_s


def sort_by_start(count: int, course: Course) -> None:
    """Sort messages by start; most are sorted already, or far from their places."""
    order, start_s, moved = course.order, course.start_s, 0
    for i in range(1, count):
        m, j = order[i], i - 1
        while j >= 0 and start_s[order[j]] > start_s[m]:
            order[j + 1] = order[j]
            j -= 1
        order[j + 1] = m
        moved += i - 1 - j
        if moved > FEW_MOVED * count:
            order[:count] = order[:count][np.argsort(start_s[order[:count]], kind="mergesort")]
            return


def list_by_links(count: int, ways: Ways, course: Course, slots: Slots) -> None:
    """List the messages of each way and of each link."""
    of_way, of_link = slots.of_way, slots.of_link
    of_way[:], of_link[:] = 0, 0
    for k in range(count):
        p = course.way[course.order[k]]
        of_way[p] += 1
        for i in range(ways.offsets[p], ways.offsets[p + 1]):
            of_link[ways.links[i]] += 1
    for p in range(len(of_way) - 1):
        of_way[p + 1] += of_way[p]
    for e in range(len(of_link) - 1):
        of_link[e + 1] += of_link[e]
    for k in range(count - 1, -1, -1):
        m = course.order[k]
        p = course.way[m]
        of_way[p] -= 1
        slots.way_messages[of_way[p]] = m
        for i in range(ways.offsets[p], ways.offsets[p + 1]):
            e = ways.links[i]
            of_link[e] -= 1
            slots.link_messages[of_link[e]], slots.hop[of_link[e]] = m, i


def gap_s(p: int, from_s: float, takes_s: float, ways: Ways, course: Course, slots: Slots) -> float:
    """The first moment from which all links of a way are free for so long, seconds."""
    start_s, moved = from_s, True
    while moved:
        moved = False
        for i in range(ways.offsets[p], ways.offsets[p + 1]):
            e, late_s = ways.links[i], ways.late_s[i]
            j = _first_later(e, (start_s + late_s) * ROUNDED, ways, course, slots)
            while j < slots.of_link[e + 1]:
                m, other_s = slots.link_messages[j], ways.late_s[slots.hop[j]]
                if course.end_s[m] + other_s > (start_s + late_s) * ROUNDED:
                    if (course.start_s[m] + other_s) * ROUNDED >= start_s + late_s + takes_s:
                        break
                    start_s, moved = course.end_s[m] + other_s - late_s, True
                j += 1
    return start_s


def _first_later(e: int, at_s: float, ways: Ways, course: Course, slots: Slots) -> int:
    """The first message of a link, by its place, that keeps the link beyond a moment; on a link messages follow each
    other."""
    low, high = slots.of_link[e], slots.of_link[e + 1]
    while low < high:
        middle = (low + high) // 2
        if course.end_s[slots.link_messages[middle]] + ways.late_s[slots.hop[middle]] <= at_s:
            low = middle + 1
        else:
            high = middle
    first: int = low
    return first


def next_message(p: int, from_s: float, course: Course, slots: Slots) -> int:
    """The first message of a way that starts at a moment or later, -1 for none."""
    low, high = slots.of_way[p], slots.of_way[p + 1]
    while low < high:
        middle = (low + high) // 2
        if course.start_s[slots.way_messages[middle]] < from_s:
            low = middle + 1
        else:
            high = middle
    found: int = slots.way_messages[low] if low < slots.of_way[p + 1] else -1
    return found
