"""``monitored_barrier``: a barrier by messages whose failure names the ranks that did not come."""

from __future__ import annotations

import struct
import threading
import time

from ..model.errors import PeerFailed
from ..runtime.inbox import Receive
from ..runtime.mesh import LATE
from ..runtime.messages import Messages, ask
from .links import Links

_COME, _ANSWER = -1, -2
"""Tags; a program's own are not negative."""
_TEXT = struct.Struct("!Q248s")
"""The number of the barrier, and why it failed, if it did."""
_NOTED, _FROM = -6, struct.Struct("!Ib")
"""The tag of what is said to a rank whose link is dead, by way of others (:mod:`.relays`); who says it, and the tag
that it would have else."""


class MonitoredBarrier:
    """The monitored barriers of one rank."""

    def __init__(self, rank: int, links: Links) -> None:
        self._rank, self._links, self._number = rank, links, 0
        self._notes: dict[tuple[int, int], bytes] = {}
        self._noted = threading.Condition()
        links.hear(_NOTED, self._hear)

    def pass_all(self, timeout_s: float, wait_all_ranks: bool) -> None:
        """Return when all ranks have called this.

        Raises:
            PeerFailed: somebody did not come in time. Rank 0 names the first, or all if it shall wait for all; those
                that came repeat what it says.
        """
        self._number += 1
        if timeout_s <= 0:
            raise PeerFailed(f"rank {self._rank}", f"Rank {self._rank} timed out in monitoredBarrier at once")
        until = time.monotonic() + timeout_s
        self._links.connect()
        if self._rank == 0:
            self._count(until, timeout_s, wait_all_ranks)
        else:
            self._put(0, _COME, "")
            text = self._get(0, _ANSWER, until + (LATE - 1) * timeout_s)  # rank 0 says first who did not come
            if text is None:
                raise PeerFailed("rank 0", f"it has not answered in monitoredBarrier within {timeout_s:g} s")
            if text:
                raise PeerFailed("rank 0", f"{text} (rank {self._rank} has reached it)")

    def _count(self, until: float, timeout_s: float, wait_all_ranks: bool) -> None:
        """Wait for all others, and answer those that have come."""
        others = range(1, self._links.count)
        came: list[int] = []
        missing: list[int] = []
        for r in others:
            (missing if self._get(r, _COME, until) is None else came).append(r)
            if missing and not wait_all_ranks:
                break
        text = ""
        if missing:
            named = f"Rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
            text = f"{named} failed to pass monitoredBarrier within {timeout_s:g} s"
        for r in others:
            if r not in missing:
                self._put(r, _ANSWER, text)
        if missing:
            raise PeerFailed(named.lower(), text)

    def _put(self, rank: int, tag: int, text: str) -> None:
        """Say something to a rank."""
        content, peer = _TEXT.pack(self._number, text.encode()[:248]), self._links.everyone().get(rank)
        if peer is None:
            self._links.relays.note(rank, _NOTED, _FROM.pack(self._rank, tag) + content)
        else:
            peer.send(tag, memoryview(content), lambda failure: None)

    def _get(self, rank: int, tag: int, until: float) -> str | None:
        """What a rank says in this barrier; None if it says nothing in time."""
        peer = self._links.everyone().get(rank)
        return self._note_of(rank, tag, until) if peer is None else self._message_of(peer, tag, until)

    def _hear(self, note: bytes) -> None:
        """Take note of what a rank says by way of others; called in the thread that receives."""
        with self._noted:
            self._notes[_FROM.unpack_from(note)] = note[_FROM.size :]
            self._noted.notify_all()

    def _note_of(self, rank: int, tag: int, until: float) -> str | None:
        def came() -> str | None:
            note = self._notes.get((rank, tag))
            return None if note is None else self._said(note)

        with self._noted:
            while (text := came()) is None:
                if not self._noted.wait(max(0.0, until - time.monotonic())):
                    return came()
        return text

    def _message_of(self, peer: Messages, tag: int, until: float) -> str | None:
        while True:
            into, ended = bytearray(_TEXT.size), threading.Event()
            failures: list[PeerFailed | None] = []

            def done(
                failure: PeerFailed | None, failures: list[PeerFailed | None] = failures, ended: threading.Event = ended
            ) -> None:
                failures.append(failure)
                ended.set()

            receive = Receive(tag, memoryview(into), done, peer, float("inf"))
            ask(self._links.inbox, [peer], receive)
            if not ended.wait(max(0.0, until - time.monotonic())) and self._links.inbox.withdraw(receive):
                return None
            ended.wait()
            if failures[0] is not None:
                return None
            if (text := self._said(into)) is not None:
                return text

    def _said(self, content: bytes | bytearray) -> str | None:
        """What is said in this barrier; None if it is of one that has failed."""
        number, text = _TEXT.unpack(content)
        return bytes(text).rstrip(b"\0").decode(errors="replace") if number == self._number else None
