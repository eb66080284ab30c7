"""Where the messages of all peers meet the receives that wait for them, whoever comes first.

Messages of one peer with one tag are received in the order in which they were sent. A receive that names no peer takes
the message that came first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ..model.errors import PeerFailed

Done = Callable[[PeerFailed | None], None]


class Receive:
    """A receive that waits.

    Attributes:
        into: where the message goes.
        source: the peer that it must come from; None for any.
        since: when it was asked for. timeout_s: seconds within which the message must come.
        came_from: the peer whose message it got.
    """

    __slots__ = ("came_from", "done", "into", "since", "source", "tag", "timeout_s")

    def __init__(self, tag: int, into: memoryview, done: Done, source: Any, timeout_s: float) -> None:
        self.tag, self.into, self.done, self.source, self.timeout_s = tag, into, done, source, timeout_s
        self.since = time.monotonic()
        self.came_from: Any = None


class Early:
    """A message for which there was no receive when it was announced, or came.

    Attributes:
        number: what the sender calls it, if it was only announced; None if its bytes follow the header.
        content: those bytes, once all have come.
        receive: the receive that takes it.
    """

    __slots__ = ("content", "length", "number", "receive", "source", "tag")

    def __init__(self, source: Any, tag: int, length: int, number: int | None = None) -> None:
        self.source, self.tag, self.length, self.number = source, tag, length, number
        self.content: memoryview | None = None
        self.receive: Receive | None = None


class Inbox:
    """The receives and the early messages of one rank; ``lock`` guards them, and what peers change with them.

    Attributes:
        listeners: by tag what is called with each note of a peer, in the thread that receives from it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.listeners: dict[int, Callable[[bytes], None]] = {}
        self.waiting: dict[int, list[Receive]] = {}
        self.early: dict[int, list[Early]] = {}

    def post(self, receive: Receive) -> Early | None:
        """The early message that a receive gets; None if the receive must wait. The caller has the lock."""
        for early in self.early.get(receive.tag, ()):
            if receive.source is None or receive.source is early.source:
                _remove(self.early, receive.tag, early)
                early.receive = receive
                return early
        self.waiting.setdefault(receive.tag, []).append(receive)
        return None

    def come(self, early: Early) -> Receive | None:
        """The receive that gets a message which has come; None if the message must wait. The caller has the lock."""
        for receive in self.waiting.get(early.tag, ()):
            if receive.source is None or receive.source is early.source:
                _remove(self.waiting, early.tag, receive)
                early.receive = receive
                return receive
        self.early.setdefault(early.tag, []).append(early)
        return None

    def forget(self, early: Early) -> None:
        """Drop a message that will not come, if no receive has taken it. The caller has the lock."""
        if early in self.early.get(early.tag, ()):
            _remove(self.early, early.tag, early)

    def waiting_for(self, source: Any) -> list[Receive]:
        """The receives that wait for a message of a peer, or of any. The caller has the lock."""
        return [r for queue in self.waiting.values() for r in queue if r.source is None or r.source is source]

    def drop(self, receive: Receive) -> bool:
        """Take out a receive that waits; False if it does not. The caller has the lock."""
        if receive not in self.waiting.get(receive.tag, ()):
            return False
        _remove(self.waiting, receive.tag, receive)
        return True

    def withdraw(self, receive: Receive) -> bool:
        """Take back a receive; False if its message has come, or is coming."""
        with self.lock:
            return self.drop(receive)

    def fail(self, source: Any) -> list[Receive]:
        """Take out the receives that wait for a peer that has failed, or for any. The caller has the lock."""
        failed = self.waiting_for(source)
        for receive in failed:
            self.drop(receive)
        return failed


def _remove(queues: dict[int, list[Any]], tag: int, item: Any) -> None:
    """Take something out of the queue of a tag; an empty queue goes, since programs may use any number of tags."""
    queues[tag].remove(item)
    if not queues[tag]:
        del queues[tag]
