"""One transfer on its way in: into memory that is kept, or piece by piece onto the sum that it is the next part of."""

from __future__ import annotations

from .buffers import Slot, as_bytes

PIECE_BYTES = 1 << 18
"""How much of a sum is received before it is added: little enough to be in a core's cache still."""


class Landing:
    """The bytes of one row as they come.

    Attributes:
        got: how many have come, by whole pieces.
        ahead: how many of the frame that is being received are to come.
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
        """The target, of ``count`` bytes, is full."""
        if self.version is not None:
            self.slot.add(self.version, self.got // self.slot.itemsize, self.array[: count // self.slot.itemsize])
        self.got += count
        self.ahead -= count

    def finish(self) -> None:
        """All has come."""
        if self.version is None:
            self.slot.arrive(self.row, self.array)
        else:
            self.slot.pool.give(self.array)
            self.slot.added(self.row)
