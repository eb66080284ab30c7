"""Point-to-point messages beside the collectives: ordered for each peer and tag, never queued behind a collective.

A message is sent at once while the peer keeps less than ``MOST_EARLY`` bytes for which it has no receive yet. Beyond
that a message is only announced, and the receiver pulls it when a receive wants it: so no message waits behind another
one that nobody wants, and a receive may take what any peer announces. Both sides regularly say that they are alive. A
process that leaves because another one is at fault says so first. All groups share one connection with each peer
(:mod:`.lines`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from ..model.errors import PeerFailed
from ..model.topology import printable
from . import message_frames
from .channel import Wire
from .inbox import Done, Early, Inbox, Receive
from .lines import LEFT, Line
from .mesh import GRACE_S, LATE
from .message_frames import HEAD, Item, Word
from .telling import beside
from .wire import TEXT_BYTES

MOST_EARLY = 1 << 28
"""The most bytes of messages, headers counted, to send to a peer that has no receive for them yet."""
SILENT = 1 / 2
"""Part of the timeout after which a silent peer is at fault. It is below 1, so that a process that waits here fails
before the collectives of its peers give it up."""
_NOTHING = memoryview(b"")
Waits = TypeVar("Waits")


class Offer(NamedTuple):
    """A message that was announced, and since when."""

    tag: int
    payload: memoryview
    done: Done
    since: float


class Messages:
    """The messages to and from one peer in one group.

    Args:
        line: the connection with the peer, held for this; or a connected socket, used for nothing else.
        name: the peer's name for error messages.
        timeout_s: seconds within which a message must come, or be wanted; for half of which the peer may be silent
            while somebody waits for it.
        inbox: where messages meet receives; all peers of a rank share one.
        number, peer_number: what the peer calls this stream in its frames, and the other way round.
    """

    def __init__(
        self, line: Line | Wire, name: str, timeout_s: float, inbox: Inbox | None = None, number: int = 0,
        peer_number: int = 0,
    ) -> None:  # fmt: skip
        self.name, self.timeout_s = name, timeout_s
        self.inbox = inbox or Inbox()
        self.number, self.peer_number = number, peer_number
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
        # of the frame, and of the message, that is being received
        self._frame, self._message = (Word.PING, 0, _NOTHING), _NOTHING
        self._early: Early | None = None
        self._since = time.monotonic()
        self._content = _NOTHING
        self._released = False
        self.line = line if isinstance(line, Line) else Line(line)
        self.line.attach(number, self)

    def send(self, tag: int, payload: memoryview, done: Done) -> None:
        """Send a message; ``done`` is called when the memory may be used again."""
        cost = len(payload) + HEAD.size
        with self.inbox.lock:
            if self.failure is None and cost <= self.credit:
                self.credit -= cost
                sent = self._queue(Word.MESSAGE, tag, 0, len(payload), payload, done)
            elif self.failure is None:
                self.numbers += 1
                self.offers[self.numbers] = Offer(tag, payload, done, time.monotonic())
                sent = self._queue(Word.ANNOUNCE, tag, self.numbers, len(payload)) or self.failure is None
            else:
                sent = False
        if not sent:
            done(self._unsent(tag))
        self.line.push()

    def _unsent(self, tag: int) -> PeerFailed:
        """Why a message cannot be sent any more."""
        where = f"the message with tag {tag} to {self.name}"
        return self.failure_of(where) or PeerFailed(self.name, LEFT, where)

    def _queue(
        self, word: Word, tag: int = 0, number: int = 0, length: int = 0, payload: memoryview = _NOTHING,
        done: Done | None = None,
    ) -> bool:  # fmt: skip
        """Queue a frame, which :meth:`Line.push` sends; False if the connection has ended."""
        return self.line.queue(self, Item(word, tag, number, length, payload, done or _ignore))

    def note(self, tag: int, payload: bytes) -> None:
        """Send a short message to the listener that the peer has for this tag (:attr:`.inbox.Inbox.listeners`).

        It goes at once, however much the peer keeps unread. Nobody tells whether it has come.
        """
        self._queue(Word.NOTE, tag, 0, len(payload), memoryview(payload))
        self.line.push()

    def receive(self, tag: int, into: memoryview, done: Done) -> None:
        """Receive the next message of this peer with this tag; ``done`` is called when it has arrived."""
        ask(self.inbox, [self], Receive(tag, into, done, self, self.timeout_s))

    def blame(self, failure: PeerFailed) -> threading.Event:
        """Tell the peer who is at fault, so that it does not blame this process for leaving.

        Returns:
            An event that is set once this has been sent.
        """
        text, sent = f"{failure.peer}\n{failure.reason}".encode()[:TEXT_BYTES], threading.Event()
        if not self._queue(Word.BLAME, 0, 0, len(text), memoryview(text), lambda failure: sent.set()):
            sent.set()
        self.line.push()
        return sent

    def close(self) -> None:
        """Send what is queued, if the peer takes it, and leave; the connection of the last group is closed once all is
        acknowledged."""
        self._leave(lingers=True)

    def leave(self) -> None:
        """End the stream when all has been sent, or after a moment. Every waiting receive fails."""
        self._leave(lingers=False)

    def _leave(self, lingers: bool) -> None:
        if (
            self.line.board is not None and self.line.board.is_here()
        ):  # as where Python collects a group in the thread that serves all of them
            beside(partial(self._leave, lingers))
            return
        self.line.wait_sent(self, GRACE_S)
        self.drop()
        with self.inbox.lock:
            released, self._released = self._released, True
        if not released:
            self.line.release(lingers)

    def drop(self) -> None:
        """End the stream at once, whatever is under way."""
        items = self.line.detach(self.number)
        self._fail(PeerFailed(self.name, "the group was destroyed"), [item.done for item in items])

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
        self._queue(Word.PULL, 0, number)
        self.line.push()
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
            self.early_bytes -= length + HEAD.size
            self.taken += length + HEAD.size
            told, self.taken = (self.taken, 0) if self.taken >= MOST_EARLY // 4 else (0, self.taken)
        if told:
            self._queue(Word.TAKEN, 0, told)
            self.line.push()

    # --- for the connection's thread --------------------------------------------------------------

    def begin(self, word: Word, tag: int, number: int, length: int) -> memoryview:
        """Take a frame; returns where the bytes that follow it go."""
        self._frame = word, tag, _NOTHING
        if word is Word.PART:
            self._meet_receive()
            target, self._message = self._message[:length], self._message[length:]
            return target
        if word is Word.BLAME or (word is Word.NOTE and tag in self.inbox.listeners):
            self._frame = word, tag, memoryview(bytearray(length))
            return self._frame[2]
        if word is Word.TAKEN:
            with self.inbox.lock:
                self.credit = min(MOST_EARLY, self.credit + number)
        elif word is Word.LEAVE:
            self.ended(PeerFailed(self.name, LEFT))
        elif word is Word.PULL and (offer := self._take(self.offers, number)) is not None:
            if not self._queue(Word.PULLED, offer.tag, number, len(offer.payload), offer.payload, offer.done):
                offer.done(self._unsent(offer.tag))
            self.line.push()
        elif word is Word.PULLED and (call := self._take(self.pulled, number)) is not None:
            return self._come(call, length)
        elif word is Word.ANNOUNCE:
            self._announced(Early(self, tag, length, number))
        elif word is Word.MESSAGE:
            return self._message_of(Early(self, tag, length))
        elif self.failure is None:
            self._wrong(f"it sent a message of {length} bytes with tag {tag} and kind {word}")
        return _NOTHING

    def _take(self, numbered: dict[int, Waits], number: int) -> Waits | None:
        """Take out what waits under a number; None if nothing does (any more: another thread may end the stream)."""
        with self.inbox.lock:
            return numbered.pop(number, None)

    def end(self) -> None:
        """These bytes are here."""
        word, tag, content = self._frame
        self._frame = Word.PING, 0, _NOTHING
        if word is Word.BLAME:
            peer, _, reason = bytes(content).decode(errors="replace").partition("\n")
            self.ended(PeerFailed(printable(peer), f"{printable(reason)} (as {self.name} says)"))
        elif word is Word.NOTE and tag in self.inbox.listeners:
            self.inbox.listeners[tag](bytes(content))
        elif word in (Word.MESSAGE, Word.PULLED, Word.PART) and not len(self._message):
            self._whole()

    def ended(self, failure: PeerFailed) -> None:
        """Nothing more comes, or can be sent."""
        self._fail(failure, [])

    def look(self, silent_s: float) -> None:
        """Fail because of a peer that has been silent, or has not sent or wanted a message, for too long."""
        with self.inbox.lock:
            receives = [*self.inbox.waiting_for(self), *self.pulled.values(), *self.coming]
            offers = list(self.offers.values())
        if self.failure is not None or not (receives or offers):
            return
        now = time.monotonic()
        if min(silent_s, now - self._since) > self.timeout_s * SILENT:
            self._wrong(f"it has said nothing for {self.timeout_s * SILENT:g} s")
            return
        for call in receives:
            if now - call.since > call.timeout_s * LATE:
                within = f"within the timeout of {call.timeout_s:g} s"
                if call.source is not None or call in self.coming:
                    self._wrong(f"it is alive, but has not sent {within}")
                    return
                if self.inbox.withdraw(call):
                    why = PeerFailed("all ranks", f"none has sent {within}", f"the message with tag {call.tag}")
                    beside(partial(call.done, why))
        for offer in offers:
            if now - offer.since > self.timeout_s * LATE:
                what = f"has not received the message with tag {offer.tag}"
                self._wrong(f"it is alive, but {what} within the timeout of {self.timeout_s:g} s")
                return

    def _wrong(self, reason: str) -> None:
        """End the stream because of the peer, and tell it that."""
        items = self.line.detach(self.number)
        self._fail(PeerFailed(self.name, reason), [item.done for item in items])

    def _fail(self, failure: PeerFailed, unsent: Iterable[Done]) -> None:
        """Everything that waits has failed; the first failure counts."""
        with self.inbox.lock:
            self.failure = self.failure or failure
            calls = [*self.inbox.fail(self), *self.pulled.values(), *self.coming]
            offers = list(self.offers.values())
            self.pulled, self.offers, self.coming = {}, {}, []
            if self._early is not None:
                self.inbox.forget(self._early)
                self._early = None
        dones = [(c.done, self.failure_of(f"the message with tag {c.tag} from {self.name}")) for c in calls]
        dones += [(o.done, self.failure_of(f"the message with tag {o.tag} to {self.name}")) for o in offers]
        dones += [(done, self.failure_of(f"a message to {self.name}")) for done in unsent]
        if dones:
            beside(partial(_call_all, dones))

    def _announced(self, early: Early) -> None:
        """Take note of a message that was announced; if a receive waits for it, ask for it."""
        with self.inbox.lock:
            call = self.inbox.come(early)
        if call is not None:
            self.hand(early, call)

    def _message_of(self, early: Early) -> memoryview:
        """Where a message goes that begins to come."""
        cost = early.length + HEAD.size
        with self.inbox.lock:
            call = self.inbox.come(early)
            self.early_bytes += cost
            too_much = call is None and self.early_bytes > MOST_EARLY
            if too_much:
                self.inbox.forget(early)
        if too_much:
            self._wrong(f"it sent {early.length} bytes with tag {early.tag} that nobody asked for")
            return _NOTHING
        self._early = early
        if call is not None:
            return self._come(call, early.length)
        self._content = np.empty(early.length, dtype=np.uint8).data
        return self._first(self._content)

    def _meet_receive(self) -> None:
        """Let the rest of an early message go to the receive that has been asked for meanwhile."""
        early = self._early
        with self.inbox.lock:
            call = early.receive if early is not None and not self.coming else None
            if early is None or call is None or len(call.into) != early.length:
                return
            self.coming = [call]
        came = early.length - len(self._message)
        call.into[:came] = self._content[:came]
        self._message = call.into[came:]

    def _come(self, call: Receive, length: int) -> memoryview:
        """Where a message goes for which there is a receive."""
        failure = self._wrong_size(length, call)
        with self.inbox.lock:
            self.coming = [call]
        if failure is not None:
            self._wrong(failure.reason)
            return _NOTHING
        return self._first(call.into)

    def _first(self, memory: memoryview) -> memoryview:
        """What the first frame of a message has of it."""
        first = message_frames.PIECE_BYTES
        target, self._message = memory[:first], memory[first:]
        return target

    def _whole(self) -> None:
        """The message that was coming is here."""
        with self.inbox.lock:
            early, self._early = self._early, None
            coming, self.coming = self.coming, []
            if early is not None and not coming:
                early.content = self._content
        if coming:
            if early is not None:
                self._took(early.length)
            self._end(coming[0])
        elif early is not None and early.receive is not None:  # it was added while the message arrived
            self.hand(early, early.receive)


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


def _call_all(calls: Iterable[tuple[Done, PeerFailed | None]]) -> None:
    for done, failure in calls:
        done(failure)
