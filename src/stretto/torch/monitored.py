"""``monitored_barrier``: a barrier by messages whose failure names the ranks that did not come."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Mapping

from ..choose.dead_links import dead_words
from ..model.errors import PeerFailed, Unsupported
from ..runtime.inbox import Receive
from ..runtime.mesh import LATE
from ..runtime.messages import Messages, ask
from .links import Links

_COME, _ANSWER = -1, -2
"""Tags; a program's own are not negative."""
_TEXT = struct.Struct("!Q248s")
"""The number of the barrier, and why it failed, if it did."""


class MonitoredBarrier:
    """The monitored barriers of one rank."""

    def __init__(self, rank: int, links: Links) -> None:
        self._rank, self._links, self._number = rank, links, 0

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
        peers = self._links.everyone()
        if self._links.pairs:
            raise Unsupported(f"in monitored_barrier rank 0 counts all, and {dead_words(self._links.pairs)}")
        if self._rank == 0:
            self._count(peers, until, timeout_s, wait_all_ranks)
        else:
            _put(peers[0], _COME, self._number, "")
            text = self._get(peers[0], _ANSWER, until + (LATE - 1) * timeout_s)  # rank 0 says first who did not come
            if text is None:
                raise PeerFailed("rank 0", f"it has not answered in monitoredBarrier within {timeout_s:g} s")
            if text:
                raise PeerFailed("rank 0", f"{text} (rank {self._rank} has reached it)")

    def _count(self, peers: Mapping[int, Messages], until: float, timeout_s: float, wait_all_ranks: bool) -> None:
        """Wait for all others, and answer those that have come."""
        came: list[int] = []
        missing: list[int] = []
        for r in sorted(peers):
            (missing if self._get(peers[r], _COME, until) is None else came).append(r)
            if missing and not wait_all_ranks:
                break
        text = ""
        if missing:
            named = f"Rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
            text = f"{named} failed to pass monitoredBarrier within {timeout_s:g} s"
        for r in sorted(peers):
            if r not in missing:
                _put(peers[r], _ANSWER, self._number, text)
        if missing:
            raise PeerFailed(named.lower(), text)

    def _get(self, peer: Messages, tag: int, until: float) -> str | None:
        """What a peer says in this barrier; None if it says nothing in time."""
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
            number, text = _TEXT.unpack(into)
            if number == self._number:  # others are of barriers that have failed
                return bytes(text).rstrip(b"\0").decode(errors="replace")


def _put(peer: Messages, tag: int, number: int, text: str) -> None:
    peer.send(tag, memoryview(_TEXT.pack(number, text.encode()[:248])), lambda failure: None)
