"""Lets in those who prove themselves, however many others come to the same listeners.

Whoever has not proven anything is a *stranger*. Strangers have a bounded number of places and a bounded time; one more
takes the place of the oldest one of the address from which most of them are. A peer that lost its place so calls again
(:mod:`.connect`), so strangers can delay peers and cannot keep them out.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from types import TracebackType

from ..model.errors import PeerFailed
from .channel import Wire
from .credentials import Credentials
from .handshake import Dropped, End, shake

HANDSHAKE_S = 10.0
"""Seconds for a whole handshake, at the end that accepts."""
MOST_STRANGERS = 64
"""Handshakes that a process has in progress at once, at most; each has a thread."""
MOST_THREADS = 2 * MOST_STRANGERS
"""Threads at once, those counted that are about to end because their stranger lost its place."""
LOOK_S = 0.05
"""Seconds until the next look when there are too many threads."""


class _Stranger:
    """A handshake in progress.

    Attributes:
        host: the address that it comes from; "" on this machine.
        given_up: whether it lost its place. proven: whether it may no longer lose it.
    """

    def __init__(self, sock: socket.socket, host: str) -> None:
        self.sock, self.host, self.since = sock, host, time.monotonic()
        self.given_up = self.proven = False


class Door:
    """Accepts connections and has a thread shake hands with each, so that a silent stranger delays nobody.

    Args:
        listeners: sockets that listen; they stay the caller's.
    Attributes:
        last_failure: why the last one who failed was turned away; "" before.
    """

    def __init__(self, node: int, listeners: Sequence[socket.socket], credentials: Credentials) -> None:
        self.node, self.credentials, self.last_failure = node, credentials, ""
        self._came: SimpleQueue[tuple[End, Wire]] = SimpleQueue()
        self._strangers: list[_Stranger] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._ear, self._bell = socket.socketpair()
        self._bell.setblocking(False)
        self._selector = selectors.DefaultSelector()
        for listener in listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, listener)
        self._selector.register(self._ear, selectors.EVENT_READ)

    def next(self, deadline: float) -> tuple[End, Wire] | None:
        """The next one who has proven to belong to the group, and what to send and receive over; None at the deadline,
        a moment of the monotonic clock."""
        while True:
            with contextlib.suppress(Empty):
                return self._came.get_nowait()
            now = time.monotonic()
            self._give_up_overdue(now)
            if now >= deadline:
                return None
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            if len(self._threads) >= MOST_THREADS:
                self._threads[0].join(LOOK_S)
                continue
            for key, _ in self._selector.select(min(deadline, self._due()) - now):
                if key.data is None:
                    self._ear.recv(1 << 12)
                else:
                    self._let_in(key.data)

    def _due(self) -> float:
        """When the oldest stranger's time is over."""
        with self._lock:
            return min((s.since for s in self._strangers), default=float("inf")) + HANDSHAKE_S

    def _give_up_overdue(self, now: float) -> None:
        with self._lock:
            for stranger in [s for s in self._strangers if now - s.since >= HANDSHAKE_S]:
                self._give_up(stranger)

    def _let_in(self, listener: socket.socket) -> None:
        """Begin the handshake with whoever comes next."""
        try:
            sock, address = listener.accept()
        except OSError:  # it has gone again
            return
        stranger = _Stranger(sock, address[0] if address else "")
        with self._lock:
            if len(self._strangers) >= MOST_STRANGERS:
                hosts = Counter(s.host for s in self._strangers)
                crowd = max(hosts, key=hosts.__getitem__)
                self._give_up(next(s for s in self._strangers if s.host == crowd))
            self._strangers.append(stranger)
        where = f"{address[0]}:{address[1]}" if address else "a process of this machine"
        thread = threading.Thread(target=self._greet, args=(stranger, where), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _give_up(self, stranger: _Stranger) -> None:
        """Take a stranger's place away; its thread ends. The caller has the lock."""
        stranger.given_up = True
        self._strangers.remove(stranger)
        with contextlib.suppress(OSError):
            stranger.sock.shutdown(socket.SHUT_RDWR)

    def _greet(self, stranger: _Stranger, where: str) -> None:
        def admit() -> None:
            with self._lock:
                if stranger.given_up:
                    raise Dropped(where, "it took too long, or too many others came")
                stranger.proven = True
                self._strangers.remove(stranger)

        try:
            self._came.put(
                shake(stranger.sock, self.credentials, self.node, None, where, within_s=HANDSHAKE_S, admitted=admit)
            )
        except PeerFailed as failure:
            if not isinstance(failure, Dropped) or not self.last_failure:  # others say more
                self.last_failure = str(failure)
        finally:
            with self._lock:
                if stranger in self._strangers:
                    self._strangers.remove(stranger)
            with contextlib.suppress(OSError):  # nobody listens any more, or it has been rung already
                self._bell.send(b"!")

    def __enter__(self) -> Door:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Turn away all who are still here."""
        with self._lock:
            for stranger in list(self._strangers):
                self._give_up(stranger)
        self._selector.close()
        for thread in self._threads:
            thread.join()
        with contextlib.suppress(Empty):
            while True:
                self._came.get_nowait()[1].close()
        self._ear.close()
        self._bell.close()
