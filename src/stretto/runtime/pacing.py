"""Which transfer sends its next segment on a connection, and when.

Unpaced transfers go one after the other, the highest priority first; where links are shared fairly they take turns.
A paced one has a token bucket: its next segment may go when the last one should have left at its rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .wire import SEGMENT_BYTES

SEGMENT_S = 0.004
"""How much a paced transfer sends at once, seconds of its rate."""
LEAST_SEGMENT = 1 << 12
WHOLE_BYTES = 64
"""Segments are cut at multiples of this, which no element crosses."""


@dataclass
class Outgoing:
    """One transfer to one peer: what is left of it, and when that may go on."""

    row: int
    left: memoryview
    rate: float
    priority: float
    next_at: float
    turns: int = 0
    finished: bool = False

    def segment(self, now: float) -> memoryview:
        """The next piece to send."""
        size = SEGMENT_BYTES
        if math.isfinite(self.rate):
            size = min(size, max(LEAST_SEGMENT, int(self.rate * SEGMENT_S) // WHOLE_BYTES * WHOLE_BYTES))
        piece, self.left = self.left[:size], self.left[size:]
        self.finished = not len(self.left)
        if math.isfinite(self.rate):
            # what comes late does not make up for more than one segment
            self.next_at = max(self.next_at, now - SEGMENT_S) + len(piece) / self.rate
        self.turns += 1
        return piece


class Queue:
    """The transfers that wait for one connection.

    Attributes:
        wake_at: when the next paced transfer may go on, infinite if none waits for time.
        under_way: the transfer whose segment is being written.
    """

    def __init__(self, take_turns: bool) -> None:
        self.take_turns = take_turns
        self.waiting: list[Outgoing] = []
        self.wake_at = math.inf
        self.under_way: Outgoing | None = None

    def put(self, out: Outgoing) -> None:
        self.waiting.append(out)

    def next(self, now: float) -> tuple[Outgoing, memoryview] | None:
        """The transfer that goes next and its piece, None if none may go yet."""
        may = [o for o in self.waiting if o.next_at <= now]
        self.wake_at = min((o.next_at for o in self.waiting if o.next_at > now), default=math.inf)
        if not may:
            return None
        chosen = min(may, key=lambda o: (-o.priority, o.turns if self.take_turns else 0))
        piece = chosen.segment(now)
        if chosen.finished:
            self.waiting.remove(chosen)
        return chosen, piece
