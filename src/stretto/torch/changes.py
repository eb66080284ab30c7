"""What ranks tell each other about a change of plans, and what each knows about the use of a shape (:mod:`.plans`)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum

from ..choose.library import Recipe
from ..choose.requests import Shape
from ..model.kinds import KINDS

RATIO_UNIT, MOST_RATIO = 1 << 20, 1000.0
"""A note has a ratio in these parts of one, and at most this one."""

NEVER = 2**63
"""The number of a call that never comes: all go on by the old plan."""

SLACK = 2
"""Calls of a shape that a rank may begin by the old plan after it has counted. One round of notes takes about as long
as a collective, so with 2 hardly a call waits; more would only put off the better plan."""

TAG = -3
"""Of the notes; those of programs are not negative."""

NOTE = struct.Struct("!BBxxIIQQ")  # word, kind, rank, root, size, number


class Word(IntEnum):
    """What a note says."""

    PREPARE = 1
    READY = 2
    UNABLE = 3
    COUNT = 4
    COUNTED = 5
    CHANGE = 6
    WAITING = 7
    SUSPECT = 8
    SLOW = 9
    FAST = 10
    GAVE = 11
    """What a link gave, for a controller: in the place of the shape the link's ends, and its bytes/s."""


def note_of(word: Word, shape: Shape, rank: int, number: int) -> bytes:
    """A note of a rank about a shape."""
    return NOTE.pack(word, KINDS.index(shape.kind), rank, shape.root, shape.size_bytes, number)


@dataclass
class Use:
    """The use of a shape at this rank.

    Attributes:
        shape: the shape.
        recipe: the plan of now; None before the first call.
        begun: the calls that have begun.
        limit: if rank 0 has counted, the calls that may begin before it says more.
        next, change_at: the better plan, and the calls after which it is used.
        waits: whether rank 0 has proposed yet another plan, which is prepared after that.
    """

    shape: Shape
    recipe: Recipe | None = None
    begun: int = 0
    limit: int | None = None
    next: Recipe | None = None
    change_at: int | None = None
    waits: bool = False


@dataclass
class Round:
    """What rank 0 has heard about the better plan of a shape."""

    ready: set[int] = field(default_factory=set)
    unable: set[int] = field(default_factory=set)
    counts: dict[int, int] = field(default_factory=dict)

    def hear(self, word: Word, rank: int, number: int, size: int) -> tuple[Word, int] | None:
        """Note what a rank says; what all ranks are told once all ``size`` have said so."""
        if word in (Word.READY, Word.UNABLE):
            (self.ready if word == Word.READY else self.unable).add(rank)
            if len(self.ready) + len(self.unable) < size:
                return None
            return (Word.CHANGE, NEVER) if self.unable else (Word.COUNT, 0)
        self.counts[rank] = number
        return (Word.CHANGE, max(self.counts.values()) + SLACK) if len(self.counts) == size else None
