"""When links are free that are reserved for a time: the calendars of :mod:`.trees`.

A calendar is a list of segments in the order of time, those of all links in the same arrays; what the tree that is
growing takes is in lists of its own.
"""

import numpy as np

INF = np.inf
EPS = 1e-12
SLACK = 1 + EPS


def seconds_on(size, per_byte, whole):
    """Time that ``size`` bytes occupy a link (in slots, rounded up, if ``whole``)."""
    if whole:
        return np.ceil(size * per_byte - 1e-9)
    return size * per_byte


def gap(t, d, link, head, tail, seg_start, seg_end, seg_next):
    """The first time from ``t`` at which the link's calendar has ``d`` seconds free."""
    i = tail[link]
    if i < 0 or t >= seg_end[i]:
        return t
    if t >= seg_start[i]:
        return seg_end[i]
    i = head[link]
    while i >= 0:
        if t + d <= seg_start[i] * SLACK:
            return t
        if t < seg_end[i]:
            t = seg_end[i]
        i = seg_next[i]
    return t


def reserve(start, end, link, least, head, tail, seg_start, seg_end, seg_next, count):
    """Enter ``[start, end)`` in the calendar, merging over gaps below ``least``; the new count."""
    last = tail[link]
    if last >= 0 and start >= seg_start[last]:
        if start - seg_end[last] < least:
            seg_end[last] = max(seg_end[last], end)
            return count
        seg_start[count], seg_end[count], seg_next[count] = start, end, -1
        seg_next[last] = count
        tail[link] = count
        return count + 1
    before = -1
    i = head[link]
    while i >= 0 and seg_start[i] <= start:
        before = i
        i = seg_next[i]
    if before >= 0 and start - seg_end[before] < least:
        seg_end[before] = max(seg_end[before], end)
        if i >= 0 and seg_start[i] - seg_end[before] < least:
            seg_end[before] = max(seg_end[before], seg_end[i])
            seg_next[before] = seg_next[i]
            if tail[link] == i:
                tail[link] = before
        return count
    if i >= 0 and seg_start[i] - end < least:
        seg_start[i] = start
        return count
    seg_start[count], seg_end[count], seg_next[count] = start, end, i
    if before >= 0:
        seg_next[before] = count
    else:
        head[link] = count
    if i < 0:
        tail[link] = count
    return count + 1


def own_gap(t, d, link, own_head, own_next, own_start, own_end):
    """The first time from ``t`` clear of what this chunk's own tree has taken of the link so far."""
    i = own_head[link]
    while i >= 0:
        if t < own_end[i] and t + d > own_start[i] * SLACK:
            t = own_end[i]
            i = own_head[link]
        else:
            i = own_next[i]
    return t


def slots_early(hops, whole):
    """How many slots before its turn a pipe may come to its link number ``hops``.

    Latencies are rounded up to slots, but bytes come when they come.
    """
    return float(hops) if whole else 0.0


def pipe_start(
    t, d, whole, path, offset, first, length,
    head, tail, seg_start, seg_end, seg_next, own_head, own_next, own_start, own_end,
):  # fmt: skip
    """The first time from ``t`` at which every link of the pipe is free for ``d``, in its turn."""
    moved = True
    while moved:
        moved = False
        for i in range(first, first + length):
            link = path[i]
            early = slots_early(i - first, whole)
            late = offset[i] - early
            s = gap(t + late, d + early, link, head, tail, seg_start, seg_end, seg_next)
            s = own_gap(s, d + early, link, own_head, own_next, own_start, own_end)
            if s - (t + late) > EPS * abs(s):
                t = s - late
                moved = True
    return t


def shared_start(
    ready, d, whole, u, path, offset, first, length,
    link_pass, pass_src, pass_start, pass_seconds, link_src, replicates,
    head, tail, seg_start, seg_end, seg_next, own_head, own_next, own_start, own_end,
):  # fmt: skip
    """``(start, pass)`` of a pass of u under way that this path can branch off from, or (INF, -1)."""
    p = link_pass[path[first]]
    if p < 0 or pass_src[p] != u or pass_start[p] < ready or pass_seconds[p] < d:
        return INF, -1
    k = 1
    while k < length and link_pass[path[first + k]] == p:
        k += 1
    if k >= length or not replicates[link_src[path[first + k]]]:
        return INF, -1
    for i in range(first + k, first + length):
        link = path[i]
        early = slots_early(i - first, whole)
        at = pass_start[p] + offset[i] - early
        s = gap(at, pass_seconds[p] + early, link, head, tail, seg_start, seg_end, seg_next)
        s = own_gap(s, pass_seconds[p] + early, link, own_head, own_next, own_start, own_end)
        if s - at > EPS * abs(s):
            return INF, -1
    return pass_start[p], p


def grown(array, needed):
    """``array`` with room for ``needed`` entries."""
    if needed <= len(array):
        return array
    larger = np.empty(max(needed, 2 * len(array)), dtype=array.dtype)
    larger[: len(array)] = array
    return larger
