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
from .mesh import GRACE_S, LINGER_S, LOOK_S, on_the_way
from .wire import TEXT_BYTES, fill, receive

_HEAD = struct.Struct("!qQ")
_BLAME, _PING = -1, -2
"""Tags of what is not a message: the sender leaves and names who is at fault; the sender is alive."""
MOST_BYTES = 1 << 40
MOST_EARLY = 1 << 28
"""The most bytes of messages to keep for which there is no receive yet."""
PING, SILENT, LATE = 1 / 8, 1 / 2, 2.0
"""Parts of the timeout: between two pings; after which a silent peer is at fault; after which a living peer that does
not send an awaited message is at fault. ``SILENT`` is below 1, so that a process that waits here fails before the
collectives of its peers give it up."""
END_S = 5.0
"""Seconds to wait for a thread that has nothing left to do."""

Done = Callable[[PeerFailed | None], None]


class Call(NamedTuple):
    """A call of :meth:`Messages.receive` that waits, and since when."""

    tag: int
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
        self.receives: dict[int, deque[Call]] = defaultdict(deque)
        self.early: dict[int, deque[bytearray]] = defaultdict(deque)
        self.early_bytes = 0
        self.changed = threading.Condition()
        self.failure: PeerFailed | None = None
        loops = (self._send_all, self._receive_all)
        self.threads = [threading.Thread(target=loop, name=f"messages of {name}", daemon=True) for loop in loops]
        for thread in self.threads:
            thread.start()

    def send(self, tag: int, payload: memoryview, done: Done) -> None:
        """Send a message; ``done`` is called when the memory may be used again."""
        self.outgoing.put((tag, payload, done))

    def receive(self, tag: int, into: memoryview, done: Done) -> None:
        """Receive the next message with this tag; ``done`` is called when it has arrived."""
        call = Call(tag, into, done, time.monotonic())
        with self.changed:
            message = self.early[tag].popleft() if self.early[tag] else None
            if message is None and self.failure is None:
                self.receives[tag].append(call)
            self.early_bytes -= len(message or b"")
            self.changed.notify()
            failure = self.failure
        if message is not None:
            self._deliver(message, call)
        elif failure is not None:
            done(self._failure_of(f"the message with tag {tag} from {self.name}"))

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
            self.threads[1].join(LOOK_S)
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

    def _failure_of(self, transfer: str) -> PeerFailed | None:
        """The failure that ended this connection, for a message that waited."""
        return self.failure and PeerFailed(self.failure.peer, self.failure.reason, transfer)

    def _wrong_size(self, length: int, call: Call) -> PeerFailed | None:
        """The failure of a receive whose message has another length."""
        if length == len(call.into):
            return None
        due = f"with tag {call.tag} where {len(call.into)} were due"
        return PeerFailed(self.name, f"it sent {length} bytes {due}")

    def _deliver(self, message: bytearray, call: Call) -> None:
        """End a receive whose message arrived before it."""
        failure = self._wrong_size(len(message), call)
        if failure is None:
            call.into[:] = message
        call.done(failure)

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
                if not isinstance(error, PeerFailed):
                    self.threads[1].join(GRACE_S)  # the receiving thread learns why
                    error = PeerFailed(self.name, f"a message could not be sent ({error})")
                self.failure = self.failure or error
                done(self._failure_of(f"the message with tag {tag} to {self.name}"))
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
                self._receive(*_HEAD.unpack(receive(self.sock, _HEAD.size, self._watch)))
        except (OSError, PeerFailed) as error:
            failure = error if isinstance(error, PeerFailed) else PeerFailed(self.name, "it died, or left the group")
        with self.changed:
            self.failure = self.failure or failure
            waiting = [call for queue in self.receives.values() for call in queue]
            self.receives.clear()
        for tag, _, done, _ in waiting:
            done(self._failure_of(f"the message with tag {tag} from {self.name}"))

    def _receive(self, tag: int, length: int) -> None:
        """Receive what follows a header."""
        if tag == _PING and length == 0:
            return
        if tag == _BLAME and length <= TEXT_BYTES:
            text = receive(self.sock, length, self._watch)
            peer, _, reason = text.decode(errors="replace").partition("\n")
            raise PeerFailed(printable(peer), f"{printable(reason)} (as {self.name} says)")
        if tag < 0 or length > MOST_BYTES:
            raise PeerFailed(self.name, f"it sent a message of {length} bytes with tag {tag}")
        with self.changed:
            self.changed.wait_for(
                lambda: bool(self.receives[tag]) or self.early_bytes + length <= MOST_EARLY or self.failure is not None
            )
            if self.failure is not None:
                raise self.failure
            first = self.receives[tag][0] if self.receives[tag] else None
            self.early_bytes += 0 if first else length
        if first is not None:
            failure = self._wrong_size(length, first)
            if failure is not None:
                raise failure
            fill(self.sock, first.into, self._watch)
            with self.changed:
                self.receives[tag].popleft()
            first.done(None)
            return
        message = receive(self.sock, length, self._watch)
        with self.changed:
            if not self.receives[tag]:
                self.early[tag].append(message)
                return
            first = self.receives[tag].popleft()  # it was added while the message arrived
            self.early_bytes -= length
        self._deliver(message, first)

    def _watch(self, silent_s: float) -> None:
        """Fail the receives that wait for a peer which has been silent, or has not sent their message, for too long."""
        with self.changed:
            since = min((call.since for queue in self.receives.values() for call in queue), default=None)
        if since is None:
            return
        if silent_s > self.timeout_s * SILENT:
            raise PeerFailed(self.name, f"it has said nothing for {self.timeout_s * SILENT:g} s")
        if time.monotonic() - since > self.timeout_s * LATE:
            raise PeerFailed(self.name, f"it is alive, but has not sent for {self.timeout_s * LATE:g} s")
