"""Notes between two ranks whose link is dead: other ranks pass them on."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from ..choose.dead_links import DeadPairs
from ..runtime.inbox import Inbox
from ..runtime.messages import Messages

TAG = -5
"""Of notes that are passed on; those of programs are not negative."""
_HEAD = struct.Struct("!Iq")  # the rank for which a note is, and its tag there


class Relays:
    """Sends notes at one rank, and passes on those of others.

    Args:
        everyone: gives the messages to and from each rank that this one reaches.
    """

    def __init__(self, rank: int, size: int, dead: DeadPairs, inbox: Inbox,
                 everyone: Callable[[], Mapping[int, Messages]]) -> None:  # fmt: skip
        self._rank, self._everyone, self._inbox = rank, everyone, inbox
        self._next = first_hops(rank, size, dead)
        inbox.listeners[TAG] = self._pass_on

    def note(self, to: int, tag: int, payload: bytes) -> None:
        """As :meth:`.Messages.note`, to a rank that may be out of reach."""
        over = self._next[to]
        if over == to:
            self._everyone()[to].note(tag, payload)
        else:
            self._everyone()[over].note(TAG, _HEAD.pack(to, tag) + payload)

    def _pass_on(self, note: bytes) -> None:
        to, tag = _HEAD.unpack_from(note)
        if to != self._rank:
            self.note(to, tag, note[_HEAD.size :])
        elif tag != TAG and tag in self._inbox.listeners:
            self._inbox.listeners[tag](note[_HEAD.size :])


def first_hops(rank: int, size: int, dead: DeadPairs) -> dict[int, int]:
    """For each other rank the first one on a shortest way there, over ranks whose links are not dead."""
    first, ahead = {r: r for r in range(size) if r != rank and frozenset((rank, r)) not in dead}, list[int]()
    ahead += first
    for a in ahead:  # which grows
        for b in range(size):
            if b != rank and b not in first and frozenset((a, b)) not in dead:
                first[b] = first[a]
                ahead.append(b)
    return first
