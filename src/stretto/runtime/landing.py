"""A transfer that is arriving: it is stored, or added piece by piece to the sum in which it is next."""

from __future__ import annotations

from .buffers import Slot, as_bytes

PIECE_BYTES = 1 << 18
"""Bytes of a sum to receive before adding them: few enough to be still in a core's cache."""


class Landing:
    """The arriving bytes of one row.

    Attributes:
        got: bytes received, counted in whole pieces.
        ahead: bytes that are still to come of the frame that is being received.
    """

    def __init__(self, slot: Slot, row: int, copies: bool) -> None:
        self.slot, self.row = slot, row
        self.version = slot.next_on(row)
        if self.version is None:
            self.array = slot.room(row, copies)
        else:
            self.array = slot.pool.take(min(slot.size, PIECE_BYTES), slot.dtype)
        self.memory = as_bytes(self.array)
        self.got = self.ahead = 0

    def target(self) -> memoryview:
        """Where the next bytes of the frame go."""
        at = self.got if self.version is None else 0
        return self.memory[at : at + self.ahead]

    def filled(self, count: int) -> None:
        """Take note that the target, of ``count`` bytes, is full."""
        if self.version is not None:
            self.slot.add(self.version, self.got // self.slot.itemsize, self.array[: count // self.slot.itemsize])
        self.got += count
        self.ahead -= count

    def finish(self) -> None:
        """Hand over the row, which has arrived whole."""
        if self.version is None:
            self.slot.arrive(self.row, self.array)
        else:
            self.slot.pool.give(self.array)
            self.slot.added(self.row)
