"""Frames of messages (:mod:`.lines`): a head, then at most a piece of a message; and the streams that they are of."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple, Protocol

from ..model.errors import PeerFailed
from .inbox import Done
from .wire import TEXT_BYTES

HEAD = struct.Struct("!BxxxIqQQ")
"""A frame begins with a word, the number of the stream at its receiver, a tag, a number and a length; these are 0 where
they mean nothing."""
PIECE_BYTES = 1 << 20
"""The most bytes of a message in one frame."""
MOST_BYTES = 1 << 40
NOTE_BYTES = 1 << 10
"""The most bytes of a note."""


class Word(IntEnum):
    """What a frame says."""

    MESSAGE = 1
    """A message of this tag and length begins; more of it comes in frames of ``PART``."""
    ANNOUNCE = 2
    """A message of this tag and length waits at the sender under this number."""
    PULL = 3
    """Send what waits under this number."""
    PULLED = 4
    """The message of this number begins."""
    TAKEN = 5
    """Receives have taken messages of this length together, headers counted."""
    BLAME = 6
    """The sender leaves; what follows names who is at fault."""
    PING = 7
    """The sender is alive; of no stream."""
    NOTE = 8
    """A note of this tag follows."""
    PART = 9
    """More of the message that has begun."""
    LEAVE = 10
    """The sender has left the group."""


LIMIT = {
    Word.MESSAGE: MOST_BYTES, Word.ANNOUNCE: MOST_BYTES, Word.PULLED: MOST_BYTES, Word.PULL: 0, Word.TAKEN: 0,
    Word.BLAME: TEXT_BYTES, Word.PING: 0, Word.NOTE: NOTE_BYTES, Word.PART: PIECE_BYTES, Word.LEAVE: 0,
}  # fmt: skip
"""The largest length that a frame of each word may name."""


class Item(NamedTuple):
    """Something to send; ``done`` is called when the kernel has it, or with why it will not."""

    word: Word
    tag: int
    number: int
    length: int
    payload: memoryview
    done: Done


class Stream(Protocol):
    """One group's end of a line."""

    name: str
    timeout_s: float
    peer_number: int

    def begin(self, word: Word, tag: int, number: int, length: int) -> memoryview:
        """Take a frame; returns where the bytes that follow it go."""

    def end(self) -> None:
        """These bytes are here."""

    def ended(self, failure: PeerFailed) -> None:
        """The line has ended."""

    def look(self, silent_s: float) -> None:
        """Look for what has waited for too long; the line has been silent for some seconds."""


class _Gone:
    """Takes the frames of streams that have left."""

    name, timeout_s, peer_number = "", 60.0, 0

    def begin(self, word: Word, tag: int, number: int, length: int) -> memoryview:
        return memoryview(b"")

    def end(self) -> None:
        pass

    def ended(self, failure: PeerFailed) -> None:
        pass

    def look(self, silent_s: float) -> None:
        pass


GONE: Stream = _Gone()
"""Where frames of streams go that have left, or that nobody wants."""
