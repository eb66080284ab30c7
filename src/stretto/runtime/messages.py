"""Point-to-point messages beside the collectives: ordered for each peer and tag, never queued behind a collective.

Every peer has a connection of its own for messages, with a thread that sends and a thread that receives. A message that
arrives before somebody asks for it is kept, up to a limit; beyond that the sender waits. Both sides regularly say that
they are alive. A process that leaves because another one is at fault says so first.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from ..model.errors import PeerFailed
from ..model.topology import printable
from .mesh import GRACE_S, LINGER_S, on_the_way
from .wire import TEXT_BYTES

_HEAD = struct.Struct("!qQ")
_BLAME, _PING = -1, -2
"""Tags that are no messages: the sender leaves and names who is at fault; the sender is alive."""
MOST_BYTES = 1 << 40
MOST_KEPT = 1 << 28
"""The most bytes to keep for receives that nobody has asked for yet."""
PING, SILENT, LATE = 1 / 8, 1 / 2, 2.0
"""Parts of the timeout: between two pings; after which a silent peer is at fault; after which a living peer that does
not send an awaited message is at fault. ``SILENT`` is below 1, so that a process that waits here fails before the
collectives of its peers give it up."""

END_S = 5.0
"""Seconds to wait for a thread that has nothing left to do."""

Done = Callable[[PeerFailed | None], None]


class Asked(NamedTuple):
    """A receive that waits, and the moment since when."""

    into: memoryview
    done: Done
    since: float


class Messages:
    """The messages to and from one peer.

    Args:
        sock: a connected socket, used for nothing else.
        name: the peer's name for error messages.
        timeout_s: seconds for which the peer may be silent, or take nothing, while somebody waits for it.
    """

    def __init__(self, sock: socket.socket, name: str, timeout_s: float) -> None:
        self.sock, self.name, self.timeout_s = sock, name, timeout_s
        sock.settimeout(timeout_s * PING)
        self.outgoing: SimpleQueue[tuple[int, memoryview, Done] | None] = SimpleQueue()
        self.asked: dict[int, deque[Asked]] = defaultdict(deque)
        self.kept: dict[int, deque[bytearray]] = defaultdict(deque)
        self.kept_bytes = 0
        self.changed = threading.Condition()
        self.failure: PeerFailed | None = None
        self.heard_at = time.monotonic()
        loops = (self._send_all, self._receive_all)
        self.threads = [threading.Thread(target=loop, name=f"messages of {name}", daemon=True) for loop in loops]
        for thread in self.threads:
            thread.start()

    def send(self, tag: int, payload: memoryview, done: Done) -> None:
        """Send a message; ``done`` is called when the memory may be used again."""
        self.outgoing.put((tag, payload, done))

    def receive(self, tag: int, into: memoryview, done: Done) -> None:
        """Ask for the next message with this tag."""
        with self.changed:
            if self.failure is None and not self.kept[tag]:
                self.asked[tag].append(Asked(into, done, time.monotonic()))
                self.changed.notify()
                return
            message = self.kept[tag].popleft() if self.kept[tag] else None
            self.kept_bytes -= len(message or b"")
            self.changed.notify()
        if message is None:
            done(self._failed(f"the message with tag {tag} from {self.name}"))
        elif len(message) != len(into):
            done(self._unequal(len(message), len(into), tag))
        else:
            into[:] = message
            done(None)

    def blame(self, failure: PeerFailed) -> threading.Event:
        """Tell the peer who is at fault, so that it does not blame this process for leaving.

        Returns:
            An event that is set once this has been sent.
        """
        text, sent = f"{failure.peer}\n{failure.reason}".encode()[:TEXT_BYTES], threading.Event()
        self.outgoing.put((_BLAME, memoryview(text), lambda failure: sent.set()))
        return sent

    def close(self) -> None:
        """Send the messages that are queued, if the peer takes them, and close once they are acknowledged."""
        self.outgoing.put(None)
        self.threads[0].join(GRACE_S)
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + LINGER_S
        while self.threads[1].is_alive() and on_the_way(self.sock) and time.monotonic() < deadline:
            self.threads[1].join(0.002)
        self.leave()
        self.sock.close()

    def leave(self) -> None:
        """End both threads: the sending one when it has sent all, or after a moment. Every waiting receive fails."""
        self.outgoing.put(None)
        self.threads[0].join(GRACE_S)
        with self.changed:
            self.failure = self.failure or PeerFailed(self.name, "the group was destroyed")
            self.changed.notify_all()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(END_S)

    def _failed(self, transfer: str) -> PeerFailed | None:
        """The failure that ended this connection, for a message that waited."""
        return self.failure and PeerFailed(self.failure.peer, self.failure.reason, transfer)

    def _unequal(self, came: int, due: int, tag: int) -> PeerFailed:
        return PeerFailed(self.name, f"it sent {came} bytes with tag {tag} where {due} were due")

    # --- sending ----------------------------------------------------------------------------------

    def _send_all(self) -> None:
        while True:
            try:
                item = self.outgoing.get(timeout=self.timeout_s * PING)
            except Empty:
                item = _PING, memoryview(b""), lambda failure: None
            if item is None:
                return
            tag, payload, done = item
            try:
                self._put(memoryview(_HEAD.pack(tag, len(payload))))
                self._put(payload)
            except (OSError, PeerFailed) as error:
                own = error if isinstance(error, PeerFailed) else None
                if own is None:
                    self.threads[1].join(GRACE_S)  # the receiving thread learns why
                self.failure = self.failure or own or PeerFailed(self.name, f"a message could not be sent ({error})")
                done(self._failed(f"the message with tag {tag} to {self.name}"))
            else:
                done(None)

    def _put(self, payload: memoryview) -> None:
        moved_at = time.monotonic()
        while len(payload):
            try:
                payload = payload[self.sock.send(payload) :]
                moved_at = time.monotonic()
            except TimeoutError:
                if time.monotonic() - moved_at > self.timeout_s:
                    raise PeerFailed(self.name, f"it has taken nothing for {self.timeout_s:g} s") from None

    # --- receiving --------------------------------------------------------------------------------

    def _receive_all(self) -> None:
        try:
            while True:
                head = bytearray(_HEAD.size)
                self._fill(memoryview(head))
                self._receive(*_HEAD.unpack(head))
        except (OSError, PeerFailed) as error:
            failure = error if isinstance(error, PeerFailed) else PeerFailed(self.name, "it died, or left the group")
        with self.changed:
            self.failure = self.failure or failure
            waiting = [(tag, asked.done) for tag, queue in self.asked.items() for asked in queue]
            self.asked.clear()
        for tag, done in waiting:
            done(self._failed(f"the message with tag {tag} from {self.name}"))

    def _receive(self, tag: int, length: int) -> None:
        """Receive what follows a header."""
        if tag == _PING and length == 0:
            return
        if tag == _BLAME and length <= TEXT_BYTES:
            text = bytearray(length)
            self._fill(memoryview(text))
            peer, _, reason = text.decode(errors="replace").partition("\n")
            raise PeerFailed(printable(peer), f"{printable(reason)} (as {self.name} says)")
        if tag < 0 or length > MOST_BYTES:
            raise PeerFailed(self.name, f"it sent a message of {length} bytes with tag {tag}")
        with self.changed:
            self.changed.wait_for(
                lambda: bool(self.asked[tag]) or self.kept_bytes + length <= MOST_KEPT or self.failure is not None
            )
            if self.failure is not None:
                raise self.failure
            asked = self.asked[tag][0] if self.asked[tag] else None
            self.kept_bytes += 0 if asked else length
        self.heard_at = time.monotonic()
        if asked is not None:
            if len(asked.into) != length:
                raise self._unequal(length, len(asked.into), tag)
            self._fill(asked.into)
        else:
            message = bytearray(length)
            self._fill(memoryview(message))
        with self.changed:
            if asked is None and not self.asked[tag]:
                self.kept[tag].append(message)
                return
            first = self.asked[tag].popleft()
        if asked is None:  # somebody asked for it while it arrived
            self.kept_bytes -= length
            if len(first.into) != length:
                first.done(self._unequal(length, len(first.into), tag))
                return
            first.into[:] = message
        first.done(None)

    def _fill(self, target: memoryview) -> None:
        while len(target):
            try:
                count = self.sock.recv_into(target)
            except TimeoutError:
                self._look()
                continue
            if not count:
                raise ConnectionError("closed")
            self.heard_at = time.monotonic()
            target = target[count:]

    def _look(self) -> None:
        """Fail the receives that wait for a peer which has been silent, or has not sent their message, for too long."""
        now = time.monotonic()
        with self.changed:
            since = min((asked.since for queue in self.asked.values() for asked in queue), default=None)
        if since is None:
            return
        if now - self.heard_at > self.timeout_s * SILENT:
            raise PeerFailed(self.name, f"it has said nothing for {self.timeout_s * SILENT:g} s")
        if now - since > self.timeout_s * LATE:
            raise PeerFailed(self.name, f"it is alive, but has not sent for {self.timeout_s * LATE:g} s")
