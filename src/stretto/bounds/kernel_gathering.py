"""What messages can have brought to each place by each step of time: the inner loop of :mod:`.gathering_places`.

The words are those of that module. P, F and C are the limits of :mod:`.gathering`: what messages have brought that have
left a link, what a place can have, and what each of its bytes counts as.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bool = NDArray[np.bool_]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


def fill(
    most: float, step_s: float, message_s: Float64, bandwidth: Float64, takes: Int64, late: Int64, begins: Int64,
    sender: Int64, near: Int64, first: Int64, place: Int64, into: Float64, members: Bool, own: Float64, each: Float64,
) -> Float64:  # fmt: skip
    """float64[steps, places]: how much each place can have at the end of each step.

    As time passes, ``own`` and ``each`` do not fall. So P, F and C do not, either.

    Args:
        most: that no place has more.
        step_s: seconds of a step.
        message_s, bandwidth: float64[entries], of the link.
        takes: int64[entries], steps of a message without bytes; 0 where messages cost next to nothing.
        late: int64[entries], steps from the link to the place.
        begins: int64[entries + 1], the first pair of each entry.
        sender, near: int64[pairs], a node that sends to the entry, and in how many steps.
        first: int64[entries + 1], the first way of each entry.
        place, into: int64[ways] and float64[ways], a place to which entries of this kind lead, and how many.
        members: bool[groups, nodes].
        own: float64[steps, places], what each has if nothing comes.
        each: float64[steps, places], what each byte at a place counts as, at most; no rows where messages take no room
            for bytes.
    """
    steps, places = own.shape
    entries, nodes = len(late), members.shape[1]
    room_for_all = len(each) == 0
    left = np.zeros((entries, steps))  # P
    shown = np.zeros((entries, steps))  # F(x - d)
    counted = np.ones((entries, steps))  # C(x - d)
    had = np.zeros((steps, places))
    for k in range(steps):
        had[k] = own[k]
        for e in range(entries):
            if not room_for_all:
                counted[e, k] = _shown(each, k, begins[e], begins[e + 1], sender, near)
            if takes[e] == 0 and room_for_all:
                left[e, k] = most if late[e] == 0 else 0.0
            elif takes[e] == 0:
                left[e, k] = step_s * bandwidth[e] * counted[e, k] + (left[e, k - 1] if k > 0 else 0.0)
            elif room_for_all:
                x = k + 1 - takes[e]
                left[e, k] = left[e, x] + shown[e, x] if x >= 0 else 0.0
            else:
                left[e, k] = _brought(left[e], shown[e], counted[e], k, takes[e], message_s[e], bandwidth[e], step_s)
            if k >= late[e]:
                for way in range(first[e], first[e + 1]):
                    had[k, place[way]] += into[way] * left[e, k - late[e]]
        for v in range(places):
            had[k, v] = min(had[k, v], most)
        for group in range(len(members)):
            for v in range(nodes):
                if members[group, v]:
                    had[k, v] = min(had[k, v], had[k, nodes + group])
        for e in range(entries):
            shown[e, k] = _shown(had, k, begins[e], begins[e + 1], sender, near)
            if takes[e] == 0 and room_for_all and shown[e, k] > 0:
                left[e, k] = most
    return had


def _shown(had: Float64, k: int, begin: int, end: int, sender: Int64, near: Int64) -> float:
    """The most that a node that sends to an entry can have had, when a message begins there."""
    most = 0.0
    for pair in range(begin, end):
        if k >= near[pair]:
            most = max(most, had[k - near[pair], sender[pair]])
    return most


def _brought(
    left: Float64, shown: Float64, counted: Float64, k: int, takes: int, message_s: float, bandwidth: float,
    step_s: float,
) -> float:  # fmt: skip
    """What messages have brought that have left a link by the end of step ``k``, at most: the last one began at x."""
    most = 0.0
    for x in range(k + 1 - takes, -1, -1):
        if left[x] + shown[x] <= most:  # so is it for all that begin sooner
            break
        room = ((k + 1 - x) * step_s - message_s) * bandwidth
        most = max(most, left[x] + min(shown[x], room * counted[x]))
    return most
