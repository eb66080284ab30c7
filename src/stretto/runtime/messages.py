"""Point-to-point messages beside the collectives: by peer and tag, in the order of each, never behind a collective.

Every peer has a connection of its own for them, a thread that sends and a thread that receives. What comes before it
is asked for is kept, up to a limit; beyond that the sender waits.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from queue import SimpleQueue

from ..errors import PeerFailed
from ..topology import printable
from .mesh import GRACE_S
from .wire import TEXT_BYTES

_HEAD = struct.Struct("!qQ")
_BLAME = -1
"""The tag under which a process says which other one is at fault for its leaving."""
MOST_BYTES = 1 << 40
MOST_KEPT = 1 << 28
"""Bytes that are kept for receives that have not been asked for."""

Done = Callable[[PeerFailed | None], None]


class Messages:
    """The messages to and from one peer.

    Args:
        sock: a blocking socket, used for nothing else.
        name: the peer, for messages.
    """

    def __init__(self, sock: socket.socket, name: str) -> None:
        self.sock, self.name = sock, name
        sock.settimeout(None)
        self.outgoing: SimpleQueue[tuple[int, memoryview, Done] | None] = SimpleQueue()
        self.asked: dict[int, deque[tuple[memoryview, Done]]] = defaultdict(deque)
        self.kept: dict[int, deque[bytearray]] = defaultdict(deque)
        self.kept_bytes = 0
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
        """Ask for the next message with this tag."""
        with self.changed:
            if self.failure is None and not self.kept[tag]:
                self.asked[tag].append((into, done))
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
        """Tell the peer who is at fault, so that it blames nobody who only left because of that; set when sent."""
        text, sent = f"{failure.peer}\n{failure.reason}".encode()[:TEXT_BYTES], threading.Event()
        self.outgoing.put((_BLAME, memoryview(text), lambda failure: sent.set()))
        return sent

    def close(self) -> None:
        """Send what was asked for, if the peer takes it, and close."""
        self.leave()
        self.sock.close()

    def leave(self) -> None:
        """End both threads, the one that sends when it has sent or a moment later; whatever waits fails."""
        self.outgoing.put(None)
        self.threads[0].join(GRACE_S)
        with self.changed:
            self.failure = self.failure or PeerFailed(self.name, "the group was destroyed")
            self.changed.notify_all()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(GRACE_S)

    def _failed(self, transfer: str) -> PeerFailed | None:
        """What ended this, naming a message that waited for it."""
        return self.failure and PeerFailed(self.failure.peer, self.failure.reason, transfer)

    def _unequal(self, came: int, due: int, tag: int) -> PeerFailed:
        return PeerFailed(self.name, f"it sent {came} bytes with tag {tag} where {due} were due")

    def _send_all(self) -> None:
        while (item := self.outgoing.get()) is not None:
            tag, payload, done = item
            try:
                self.sock.sendall(_HEAD.pack(tag, len(payload)))
                self.sock.sendall(payload)
            except OSError as error:
                self.threads[1].join(GRACE_S)  # it reads why
                self.failure = self.failure or PeerFailed(self.name, f"a message could not be sent ({error})")
                done(self._failed(f"the message with tag {tag} to {self.name}"))
            else:
                done(None)

    def _receive_all(self) -> None:
        try:
            while True:
                head = bytearray(_HEAD.size)
                self._fill(memoryview(head))
                tag, length = _HEAD.unpack(head)
                if tag == _BLAME and length <= TEXT_BYTES:
                    text = bytearray(length)
                    self._fill(memoryview(text))
                    peer, _, reason = text.decode(errors="replace").partition("\n")
                    raise PeerFailed(printable(peer), f"{printable(reason)} (as {self.name} says)")
                if length > MOST_BYTES:
                    raise PeerFailed(
                        self.name, f"it sent a message of {length} bytes; at most {MOST_BYTES} are allowed"
                    )
                self._receive_one(tag, length)
        except (OSError, PeerFailed) as error:
            failure = error if isinstance(error, PeerFailed) else PeerFailed(self.name, "it died, or left the group")
        with self.changed:
            self.failure = self.failure or failure
            waiting = [(tag, done) for tag, queue in self.asked.items() for _, done in queue]
            self.asked.clear()
        for tag, done in waiting:
            done(self._failed(f"the message with tag {tag} from {self.name}"))

    def _receive_one(self, tag: int, length: int) -> None:
        with self.changed:
            self.changed.wait_for(
                lambda: bool(self.asked[tag]) or self.kept_bytes + length <= MOST_KEPT or self.failure is not None
            )
            if self.failure is not None:
                raise self.failure
            into, done = self.asked[tag].popleft() if self.asked[tag] else (None, None)
            if into is None:
                self.kept_bytes += length
        if into is not None and done is not None:
            if len(into) != length:
                failure = self._unequal(length, len(into), tag)
                done(failure)
                raise failure
            try:
                self._fill(into)
            except OSError:
                with self.changed:
                    self.asked[tag].appendleft((into, done))  # it is told with all others that wait
                raise
            done(None)
            return
        message = bytearray(length)
        self._fill(memoryview(message))
        with self.changed:
            if not self.asked[tag]:
                self.kept[tag].append(message)
                return
            into, done = self.asked[tag].popleft()  # asked for while it came
            self.kept_bytes -= length
        if len(into) != length:
            done(self._unequal(length, len(into), tag))
            return
        into[:] = message
        done(None)

    def _fill(self, target: memoryview) -> None:
        while len(target):
            count = self.sock.recv_into(target)
            if not count:
                raise ConnectionError("closed")
            target = target[count:]
