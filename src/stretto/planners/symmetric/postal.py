"""Trees and meetings where a message keeps a port for a while and arrives later: the postal model.

Time is counted in messages: a port sends one in a unit of time, and it arrives ``lag`` units after that. A tree over
equal ranks then reaches most of them by a time if every rank that has the chunk sends to a new rank as soon as its port
is free (Bar-Noy and Kipnis, Mathematical Systems Theory 1994; Karp, Sahay, Santos and Schauser, SPAA 1993). With no lag
that is the binomial tree, with a long one all ranks hear from the root.

In a *meeting* all ranks end with the sum. Ranks are on a circle, and each has the sum of a window of it that begins
with itself. At any moment all windows are equally long. A rank gets the window that begins where its own ends, from
the rank there, as it was when the message was sent, and so on until its window is the whole circle.
"""

from __future__ import annotations

from functools import lru_cache
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from ...model.arrays import Int64

DIGITS = 6
"""Decimals to which moments are rounded: moments that differ by less are the same."""

MOST_FILLERS = 8
"""Windows that fill up a circle, at most, after those that grow as fast as they can: 2,048 ranks need 6."""


class Shape(NamedTuple):
    """A tree over ``size`` ranks, numbered in the order in which they are reached.

    Attributes:
        parent: int64[size], the parent of each; 0 for the root, which is the first.
        time: units of time until the last rank is reached.
    """

    parent: Int64
    time: float

    @property
    def root_children(self) -> int:
        """How many children the root has."""
        return int((self.parent[1:] == 0).sum())


@lru_cache(maxsize=512)
def tree(size: int, lag: float, most_children: int) -> Shape:
    """The tree that reaches its ranks soonest, where no rank has more than ``most_children``."""
    parent = np.zeros(size, dtype=np.int64)
    known, last = 1, 0.0
    senders: dict[float, list[tuple[Int64, Int64]]] = {1 + lag: [(np.zeros(1, np.int64), np.zeros(1, np.int64))]}
    moments = [1 + lag]
    while known < size:
        now = heappop(moments)
        each = senders.pop(now)
        who, sent = (np.concatenate([pair[k] for pair in each]) for k in (0, 1))
        reached = np.arange(known, min(known + len(who), size))
        parent[reached] = who[: len(reached)]
        known, last = known + len(reached), now
        open_ = sent + 1 < most_children
        after = (1.0, who[open_], sent[open_] + 1), (1 + lag, reached, np.zeros_like(reached))
        for later, nodes, count in after:
            moment = round(now + later, DIGITS)
            if len(nodes) and moment not in senders:
                senders[moment] = []
                heappush(moments, moment)
            if len(nodes):
                senders[moment].append((nodes, count))
    return Shape(parent, last)


class Meeting(NamedTuple):
    """How windows grow until they have ``size`` ranks.

    Attributes:
        states: for each message that a rank gets, one after another, how many messages its sender had got before it
            sent it; those that it got later are not in it.
        windows: for each message how long the windows are before it.
        time: units of time until the last message arrives.
    """

    states: tuple[int, ...]
    windows: tuple[int, ...]
    time: float


@lru_cache(maxsize=512)
def meeting(size: int, lag: float) -> Meeting:
    """The meeting of ``size`` ranks that ends soonest of those tried.

    Windows grow as fast as they can for a number of messages, each number is tried; then the fewest windows are taken
    that fill up the circle.
    """
    best = Meeting((), (), 0.0 if size == 1 else np.inf)
    grown: list[int] = []
    while True:
        windows, moments = _windows(grown, lag)
        if windows[-1] > size or best.time <= moments[-1]:
            return best
        for more in _fillings(windows, size - windows[-1]):
            states = (*grown, *more)
            lengths, ends = _windows(states, lag)
            if ends[-1] < best.time:
                best = Meeting(states, tuple(lengths[:-1]), ends[-1])
        # the largest window that a rank can have sent so that it comes with the next message
        next_s = max(moments[-1] + 1, 1 + lag)
        grown.append(max(k for k, moment in enumerate(moments) if moment + 1 + lag <= next_s + 1e-9))


def _windows(states: list[int] | tuple[int, ...], lag: float) -> tuple[list[int], list[float]]:
    """How long windows are after each number of messages, and since when."""
    windows, moments = [1], [0.0]
    for state in states:
        soonest = 1 + lag if len(moments) == 1 else moments[-1] + 1
        windows.append(windows[-1] + windows[state])
        moments.append(max(soonest, moments[state] + 1 + lag))
    return windows, moments


def _fillings(windows: list[int], rest: int) -> list[tuple[int, ...]]:
    """The fewest of all windows, and the fewest of the first few, that are ``rest`` long together: as the numbers of
    messages after which ranks have them, ascending; none where that takes more than :data:`MOST_FILLERS`."""
    out = []
    for known in range(1, len(windows) + 1):
        reached = [1]  # for each number of windows, the lengths that they can have, as bits
        mask = (1 << (rest + 1)) - 1
        while not reached[-1] >> rest & 1 and len(reached) <= MOST_FILLERS:
            longer = 0
            for window in windows[:known]:
                longer |= reached[-1] << window
            reached.append(longer & mask)
        if not reached[-1] >> rest & 1:
            continue
        chosen, left = [], rest
        for lengths in reached[-2::-1]:
            state = next(
                k for k in range(known - 1, -1, -1) if left >= windows[k] and lengths >> (left - windows[k]) & 1
            )
            chosen.append(state)
            left -= windows[state]
        out.append(tuple(sorted(chosen)))
    return out
