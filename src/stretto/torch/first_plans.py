"""The first plan of a shape: one that an earlier run has kept, or one that is made at once.

Which plans earlier runs have kept on disk, rank 0 says at the first call of a group. The first plan of another shape is
made by one rank of each machine, the *maker*, for all ranks of the group on that machine. Every rank could make it by
itself, and all make the same. But the ranks of a machine share its cores, and planners take longer to load than to
plan. So the lowest rank of a machine sends its plans to the others there, beside the collectives. A rank that the maker
keeps waiting plans by itself.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from collections import deque
from enum import IntEnum
from typing import NamedTuple

from ..choose.kept import Kept, packed, unpacked
from ..choose.library import Library, Recipe
from ..choose.requests import Shape, code_digest
from ..model.errors import PeerFailed
from ..model.kinds import KINDS
from ..model.plan import Plan
from ..runtime.messages import Messages
from .links import Links
from .loading import uncollected

WAIT_S = 0.3
"""Seconds for which a rank waits for a maker that has not begun: about what loading the planners and planning take."""

MOST_S = 10.0
"""Seconds for which a rank waits for a maker that has begun: more than planning takes, but for very large groups."""

LOOK_S = 0.05
"""Seconds between two looks at whether the maker is there, for a rank that waits."""

TAG = -4
"""Of the notes and the plans; those of programs are not negative."""

_INDEX = "plans"
_NOTE = struct.Struct("!B?BxIQQ")  # word, direct, kind, root, size, length


class Word(IntEnum):
    """What a note of the maker says of a shape."""

    BEGUN = 1
    """It makes the plan now."""
    MADE = 2
    """A message with the plan follows; of length 0: it could not make one."""


class _Note(NamedTuple):
    word: Word
    shape: Shape
    direct: bool
    length: int


class FirstPlans:
    """The first plans of a group at one rank; one thread asks for them.

    Args:
        kept: the plans on disk; they are read at rank 0 alone.
    """

    def __init__(self, library: Library, links: Links, kept: Kept) -> None:
        self._library, self._links, self._kept = library, links, kept
        self._keeps = library.rank == 0 and library.effort is not None and kept.folder is not None
        self._names: dict[Shape, str] | None = None  # of the requests whose plans were kept
        self._told = False
        self._heard = threading.Condition()
        self._notes: deque[_Note] = deque()
        self._given: dict[tuple[Shape, bool], bytes] = {}
        self._given_up: set[tuple[Shape, bool]] = set()
        self._closed = False
        links.inbox.listeners[TAG] = self._hear

    def has(self, kind: str, size_bytes: int, root: int, direct: bool) -> bool:
        """Whether :meth:`recipe` has answered before."""
        return self._library.has(kind, size_bytes, root, direct)

    def kept(self, shape: Shape) -> bool:
        """Whether the plan of a shape is one that was kept."""
        return shape in (self._names or {})

    def recipe(self, kind: str, size_bytes: int, root: int, direct: bool = False) -> Recipe:
        """How to run a collective by the first plan of its shape."""
        return self._library.recipe(kind, size_bytes, root, direct, self._plan)

    def load(self) -> None:
        """Connect and measure, and load what the first call needs at this rank: planners, if it makes plans."""
        with uncollected():
            if self._links.here()[0] == self._library.rank:
                from ..choose.quick import load_planners

                load_planners()
        if self._keeps:
            code_digest()
        self._links.ready()
        if self._library.rank == 0:
            self._tell_kept()

    def close(self) -> None:
        """Wait for nothing any more."""
        with self._heard:
            self._closed = True
            self._heard.notify_all()

    def _plan(self, shape: Shape, direct: bool) -> Plan:
        return (None if direct else self._found(shape)) or self._shared(shape, direct)

    def _found(self, shape: Shape) -> Plan | None:
        """The plan that was kept."""
        if self._names is None:
            self._names = self._begin()
        name = self._names.get(shape)
        return unpacked(self._links.told(f"{_INDEX}/{shape.name}", 0), name) if name else None

    def _begin(self) -> dict[Shape, str]:
        """The names of the requests whose plans were kept by earlier runs, by shape, as rank 0 tells."""
        if self._library.rank == 0 and not self._told:
            self._tell_kept()
        names = json.loads(self._links.told(_INDEX, 0))
        return {shape: name for text, name in names.items() if (shape := Shape.named(text)) is not None}

    def _tell_kept(self) -> None:
        """Tell all ranks which plans were kept, at rank 0, which knows the network."""
        self._told, names = True, {}
        if self._keeps:
            request = self._library.request(Shape(KINDS[0], 0, 0))
            for name in self._kept.shapes(request.network):
                shape = Shape.named(name.removeprefix(f"{request.network}-"))
                content = self._kept.find(name)
                if shape is not None and content is not None:
                    names[shape.name] = name
                    self._links.tell(f"{_INDEX}/{shape.name}", content)
        self._links.tell(_INDEX, json.dumps(names).encode())

    # --- plans that one rank makes for others -----------------------------------------------------

    def _shared(self, shape: Shape, direct: bool) -> Plan:
        """The plan that the maker of this machine makes."""
        maker, *others = self._links.here()
        if maker == self._library.rank:
            return self._make(shape, direct, [self._links.everyone()[r] for r in others])
        content = self._await(self._links.everyone()[maker], shape, direct)
        plan = unpacked(content, shape.name) if content else None
        return self._library.first_plan(shape, direct) if plan is None else plan

    def _make(self, shape: Shape, direct: bool, others: list[Messages]) -> Plan:
        """Make a plan, and send it to others."""
        for messages in others:
            messages.note(TAG, _packed_note(Word.BEGUN, shape, direct))
        content = b""
        try:
            plan = self._library.first_plan(shape, direct)
            if others:
                content = packed(shape.name, plan)
        finally:
            for messages in others:
                messages.note(TAG, _packed_note(Word.MADE, shape, direct, len(content)))
                if content:
                    messages.send(TAG, memoryview(content), _ignore)
        return plan

    def _await(self, maker: Messages, shape: Shape, direct: bool) -> bytes:
        """The packed plan that the maker sends; empty if this rank is to plan by itself."""
        until = time.monotonic() + WAIT_S
        while (shape, direct) not in self._given:
            note = self._next(maker, until)
            if note is None:
                self._given_up.add((shape, direct))
                return b""
            if note.word == Word.MADE:
                content, what = _received(maker, note.length), (note.shape, note.direct)
                if what in self._given_up:
                    self._given_up.remove(what)
                else:
                    self._given[what] = content
            elif (note.shape, note.direct) == (shape, direct):
                until = time.monotonic() + MOST_S
        return self._given.pop((shape, direct))

    def _next(self, maker: Messages, until: float) -> _Note | None:
        """The next note; None if it does not come in time, or no more come."""
        with self._heard:
            while not self._notes:
                left_s = until - time.monotonic()
                if left_s <= 0 or self._closed or self._links.left or maker.failure is not None:
                    return None
                self._heard.wait(min(left_s, LOOK_S))
            return self._notes.popleft()

    def _hear(self, note: bytes) -> None:
        """Take note of what the maker says; called in the thread that receives from it."""
        word, direct, kind, root, size, length = _NOTE.unpack(note)
        with self._heard:
            self._notes.append(_Note(Word(word), Shape(KINDS[kind % len(KINDS)], size, root), direct, length))
            self._heard.notify_all()


def _packed_note(word: Word, shape: Shape, direct: bool, length: int = 0) -> bytes:
    return _NOTE.pack(word, direct, KINDS.index(shape.kind), shape.root, shape.size_bytes, length)


def _received(maker: Messages, length: int) -> bytes:
    """The next message of the maker; empty if none comes."""
    content, ended = bytearray(length), threading.Event()
    failures: list[PeerFailed | None] = []

    def done(failure: PeerFailed | None) -> None:
        failures.append(failure)
        ended.set()

    if length:
        maker.receive(TAG, memoryview(content), done)
        ended.wait()  # a peer that dies, or is silent, fails the receive
    return b"" if any(failures) else bytes(content)


def _ignore(failure: PeerFailed | None) -> None:
    """A rank that is not there any more needs no plan."""
