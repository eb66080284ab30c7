"""Point-to-point messages beside the collectives: ordered for each peer and tag, never queued behind a collective.

Every peer has a connection of its own for messages, with a thread that sends and a thread that receives. A message is
sent at once while the peer keeps less than ``MOST_EARLY`` bytes for which it has no receive yet. Beyond that a message
is only announced, and the receiver pulls it when a receive wants it: so no message waits behind another one that
nobody wants, and a receive may take what any peer announces. Both sides regularly say that they are alive. A process
that leaves because another one is at fault says so first.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterable
from enum import IntEnum
from queue import Empty, SimpleQueue
from typing import NamedTuple

from ..model.errors import PeerFailed
from ..model.topology import printable
from .channel import Forged, Wire
from .inbox import Done, Early, Inbox, Receive
from .mesh import GRACE_S, LATE, LINGER_S, LOOK_S, on_the_way
from .wire import TEXT_BYTES, fill, receive

_HEAD = struct.Struct("!BxxxxxxxqQQ")
MOST_BYTES = 1 << 40
MOST_EARLY = 1 << 28
"""The most bytes of messages, headers counted, to send to a peer that has no receive for them yet."""
PING, SILENT = 1 / 8, 1 / 2
"""Parts of the timeout: between two pings; after which a silent peer is at fault. ``SILENT`` is below 1, so that a
process that waits here fails before the collectives of its peers give it up."""
NOTE_BYTES = 1 << 10
"""The most bytes of a note."""
END_S = 5.0
"""Seconds to wait for a thread that has nothing left to do."""
_NOTHING = memoryview(b"")


class Word(IntEnum):
    """What a header says; it has a tag, a number and a length, which are 0 where they mean nothing."""

    MESSAGE = 1
    """A message of this tag and length follows."""
    ANNOUNCE = 2
    """A message of this tag and length waits at the sender under this number."""
    PULL = 3
    """Send what waits under this number."""
    PULLED = 4
    """The message of this number follows."""
    TAKEN = 5
    """Receives have taken messages of this length together, headers counted."""
    BLAME = 6
    """The sender leaves; what follows names who is at fault."""
    PING = 7
    """The sender is alive."""
    NOTE = 8
    """A note of this tag follows."""


class Offer(NamedTuple):
    """A message that was announced, and since when."""

    tag: int
    payload: memoryview
    done: Done
    since: float


class Messages:
    """The messages to and from one peer.

    Args:
        sock: a connected socket, used for nothing else.
        name: the peer's name for error messages.
        timeout_s: seconds within which a message must come, or be wanted; for half of which the peer may be silent, and
            for which it may take nothing, while somebody waits for it.
        inbox: where messages meet receives; all peers of a rank share one.
    """

    def __init__(self, sock: Wire, name: str, timeout_s: float, inbox: Inbox | None = None) -> None:
        self.sock, self.name, self.timeout_s = sock, name, timeout_s
        sock.settimeout(timeout_s * PING)
        self.inbox = inbox or Inbox()
        self.outgoing: SimpleQueue[tuple[Word, int, int, memoryview, Done] | None] = SimpleQueue()
        # guarded by the lock of the inbox: bytes that may still be sent early; messages announced to the peer; receives
        # of messages that it announced, and of one that is arriving; bytes of its early messages that are kept, and of
        # those that were taken since it was told
        self.credit = MOST_EARLY
        self.offers: dict[int, Offer] = {}
        self.numbers = 0
        self.pulled: dict[int, Receive] = {}
        self.coming: list[Receive] = []
        self.early_bytes = self.taken = 0
        self.failure: PeerFailed | None = None
        loops = (self._send_all, self._receive_all)
        self.threads = [threading.Thread(target=loop, name=f"messages of {name}", daemon=True) for loop in loops]
        for thread in self.threads:
            thread.start()

    def send(self, tag: int, payload: memoryview, done: Done) -> None:
        """Send a message; ``done`` is called when the memory may be used again."""
        cost = len(payload) + _HEAD.size
        with self.inbox.lock:
            failure = self.failure
            if failure is None and cost <= self.credit:
                self.credit -= cost
                self.outgoing.put((Word.MESSAGE, tag, 0, payload, done))
            elif failure is None:
                self.numbers += 1
                self.offers[self.numbers] = Offer(tag, payload, done, time.monotonic())
                self.outgoing.put((Word.ANNOUNCE, tag, self.numbers, payload, _ignore))
        if failure is not None:
            done(self.failure_of(f"the message with tag {tag} to {self.name}"))

    def note(self, tag: int, payload: bytes) -> None:
        """Send a short message to the listener that the peer has for this tag (:attr:`.inbox.Inbox.listeners`).

        It goes at once, however much the peer keeps unread. Nobody tells whether it has come.
        """
        self.outgoing.put((Word.NOTE, tag, 0, memoryview(payload), _ignore))

    def receive(self, tag: int, into: memoryview, done: Done) -> None:
        """Receive the next message of this peer with this tag; ``done`` is called when it has arrived."""
        ask(self.inbox, [self], Receive(tag, into, done, self, self.timeout_s))

    def blame(self, failure: PeerFailed) -> threading.Event:
        """Tell the peer who is at fault, so that it does not blame this process for leaving.

        Returns:
            An event that is set once this has been sent.
        """
        text, sent = f"{failure.peer}\n{failure.reason}".encode()[:TEXT_BYTES], threading.Event()
        self.outgoing.put((Word.BLAME, 0, 0, memoryview(text), lambda failure: sent.set()))
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

    def drop(self) -> None:
        """End the connection at once, whatever is under way; :meth:`leave` does the rest."""
        with self.inbox.lock:
            self.failure = self.failure or PeerFailed(self.name, "the group was destroyed")
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def leave(self) -> None:
        """End both threads: the sending one when it has sent all, or after a moment. Every waiting receive fails."""
        self.outgoing.put(None)
        self.threads[0].join(GRACE_S)
        self.drop()
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(END_S)

    def hand(self, early: Early, call: Receive) -> None:
        """Give a receive an early message: its bytes are here, or are asked for."""
        failure = self._wrong_size(early.length, call)
        if early.content is not None:
            if failure is None:
                call.into[:] = early.content
            self._took(early.length)
        elif failure is None and early.number is not None and (failure := self._pull(early.number, call)) is None:
            return
        self._end(call, failure)

    def _pull(self, number: int, call: Receive) -> PeerFailed | None:
        """Ask for a message that was announced; returns why that cannot be."""
        with self.inbox.lock:
            if self.failure is not None:
                return self.failure_of(f"the message with tag {call.tag} from {self.name}")
            self.pulled[number] = call
        self.outgoing.put((Word.PULL, 0, number, _NOTHING, _ignore))
        return None

    def _end(self, call: Receive, failure: PeerFailed | None = None) -> None:
        call.came_from = self
        call.done(failure)

    def failure_of(self, transfer: str) -> PeerFailed | None:
        """The failure that ended this connection, for a message that waited."""
        return self.failure and PeerFailed(self.failure.peer, self.failure.reason, transfer)

    def _wrong_size(self, length: int, call: Receive) -> PeerFailed | None:
        """The failure of a receive whose message has another length."""
        if length == len(call.into):
            return None
        where, due = f"the message with tag {call.tag} from {self.name}", f"where {len(call.into)} were due"
        return PeerFailed(self.name, f"it sent {length} bytes with tag {call.tag} {due}", where)

    def _took(self, length: int) -> None:
        """Count an early message that was taken; when they are many tell the sender, who may then send more early."""
        with self.inbox.lock:
            self.early_bytes -= length + _HEAD.size
            self.taken += length + _HEAD.size
            if self.taken >= MOST_EARLY // 4:
                self.outgoing.put((Word.TAKEN, 0, self.taken, _NOTHING, _ignore))
                self.taken = 0

    # --- sending ----------------------------------------------------------------------------------

    def _send_all(self) -> None:
        while True:
            try:
                item = self.outgoing.get(timeout=self.timeout_s * PING)
            except Empty:
                item = Word.PING, 0, 0, _NOTHING, _ignore
            if item is None:
                return
            word, tag, number, payload, done = item
            try:
                self._put(memoryview(_HEAD.pack(word, tag, number, len(payload))))
                if word is not Word.ANNOUNCE:
                    self._put(payload)
            except (OSError, PeerFailed) as error:
                if not isinstance(error, PeerFailed):
                    self.threads[1].join(GRACE_S)  # the receiving thread learns why
                    error = PeerFailed(self.name, f"a message could not be sent ({error})")
                self.failure = self.failure or error
                done(self.failure_of(f"the message with tag {tag} to {self.name}"))
            else:
                done(None)
            del item, payload, done  # a message that was sent must keep no tensor alive

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
            why = str(error) if isinstance(error, Forged) else "it died, or left the group"
            failure = error if isinstance(error, PeerFailed) else PeerFailed(self.name, why)
        with self.inbox.lock:
            self.failure = self.failure or failure
            calls = [*self.inbox.fail(self), *self.pulled.values(), *self.coming]
            offers = list(self.offers.values())
            self.pulled, self.offers = {}, {}
        for call in calls:
            call.done(self.failure_of(f"the message with tag {call.tag} from {self.name}"))
        for offer in offers:
            offer.done(self.failure_of(f"the message with tag {offer.tag} to {self.name}"))

    def _receive(self, word: int, tag: int, number: int, length: int) -> None:
        """Receive what follows a header."""
        if word == Word.PING:
            self._watch(0.0)
        elif word == Word.BLAME and length <= TEXT_BYTES:
            text = receive(self.sock, length, self._watch)
            peer, _, reason = text.decode(errors="replace").partition("\n")
            raise PeerFailed(printable(peer), f"{printable(reason)} (as {self.name} says)")
        elif word == Word.NOTE and length <= NOTE_BYTES and tag in self.inbox.listeners:
            self.inbox.listeners[tag](bytes(receive(self.sock, length, self._watch)))
        elif word == Word.TAKEN:
            with self.inbox.lock:
                self.credit = min(MOST_EARLY, self.credit + number)
        elif word == Word.PULL and number in self.offers:
            with self.inbox.lock:
                offer = self.offers.pop(number)
            self.outgoing.put((Word.PULLED, offer.tag, number, offer.payload, offer.done))
        elif word == Word.PULLED and number in self.pulled:
            with self.inbox.lock:
                call = self.pulled.pop(number)
            self._fill(call, length)
        elif word == Word.ANNOUNCE and length <= MOST_BYTES:
            self._announced(Early(self, tag, length, number))
        elif word == Word.MESSAGE and length <= MOST_BYTES:
            self._come(Early(self, tag, length))
        else:
            raise PeerFailed(self.name, f"it sent a message of {length} bytes with tag {tag} and kind {word}")

    def _announced(self, early: Early) -> None:
        """Take note of a message that was announced; if a receive waits for it, ask for it."""
        with self.inbox.lock:
            call = self.inbox.come(early)
        if call is not None:
            self.hand(early, call)

    def _come(self, early: Early) -> None:
        """Receive the message that follows its header."""
        cost = early.length + _HEAD.size
        with self.inbox.lock:
            call = self.inbox.come(early)
            self.early_bytes += cost
            if call is None and self.early_bytes > MOST_EARLY:
                self.inbox.forget(early)
                raise PeerFailed(self.name, f"it sent {early.length} bytes with tag {early.tag} that nobody asked for")
        if call is not None:
            self._fill(call, early.length)
            self._took(early.length)
            return
        try:
            content = receive(self.sock, early.length, self._watch)
        except (OSError, PeerFailed):
            with self.inbox.lock:
                self.inbox.forget(early)
                self.coming = [early.receive] if early.receive else []
            raise
        with self.inbox.lock:
            early.content = content
        if early.receive is not None:  # it was added while the message arrived
            self.hand(early, early.receive)

    def _fill(self, call: Receive, length: int) -> None:
        """Receive a message into its place."""
        self.coming = [call]
        failure = self._wrong_size(length, call)
        if failure is not None:
            raise failure
        fill(self.sock, call.into, self._watch)
        self.coming = []
        self._end(call)

    def _watch(self, silent_s: float) -> None:
        """Fail because of a peer that has been silent, or has not sent or wanted a message, for too long."""
        with self.inbox.lock:
            receives = [*self.inbox.waiting_for(self), *self.pulled.values(), *self.coming]
            offers = list(self.offers.values())
        if not receives and not offers:
            return
        if silent_s > self.timeout_s * SILENT:
            raise PeerFailed(self.name, f"it has said nothing for {self.timeout_s * SILENT:g} s")
        now = time.monotonic()
        for call in receives:
            if now - call.since > call.timeout_s * LATE:
                within = f"within the timeout of {call.timeout_s:g} s"
                if call.source is not None or call in self.coming:
                    raise PeerFailed(self.name, f"it is alive, but has not sent {within}")
                if self.inbox.withdraw(call):
                    call.done(PeerFailed("all ranks", f"none has sent {within}", f"the message with tag {call.tag}"))
        for offer in offers:
            if now - offer.since > self.timeout_s * LATE:
                what = f"has not received the message with tag {offer.tag}"
                raise PeerFailed(self.name, f"it is alive, but {what} within the timeout of {self.timeout_s:g} s")


def ask(inbox: Inbox, peers: Iterable[Messages], call: Receive) -> None:
    """Let a receive wait for a message of one of these peers."""
    with inbox.lock:
        early = inbox.post(call)
        ready = early is not None and (early.number is not None or early.content is not None)
        failed = next((p for p in peers if p.failure is not None), None) if early is None else None
        if failed is not None:
            inbox.drop(call)
    if ready and early is not None:
        early.source.hand(early, call)
    if failed is not None:
        call.done(failed.failure_of(f"the message with tag {call.tag} from {failed.name}"))


def _ignore(failure: PeerFailed | None) -> None:
    pass
