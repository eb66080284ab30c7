"""The last answers to reads, for the time without a database: plans that are published are served on.

An instance remembers what it has answered itself, so a job that asks for its plan again and again gets it on from the
same instance. What it remembers is what was true when it could read the store last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from .calls import Answer

MOST_BYTES = 64_000_000
"""Bytes of answers that are remembered at most; those that were asked for longest ago are forgotten first."""


@dataclass
class Remembered:
    """Answers by what was asked. Threads share it."""

    most_bytes: int = MOST_BYTES
    _answers: OrderedDict[Hashable, Answer] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, asked: Hashable, answer: Answer) -> None:
        """Remember an answer in the place of the one before."""
        size = len(answer.body)
        self.forget(asked)
        with self._lock:
            if size <= self.most_bytes and asked not in self._answers:
                self._answers[asked] = answer
                self._bytes += size
            while self._bytes > self.most_bytes:
                self._bytes -= len(self._answers.popitem(last=False)[1].body)

    def forget(self, asked: Hashable) -> None:
        """There is no such answer any more."""
        with self._lock:
            if asked in self._answers:
                self._bytes -= len(self._answers.pop(asked).body)

    def last(self, asked: Hashable) -> Answer | None:
        """The last answer; None if there is none."""
        with self._lock:
            return self._answers.get(asked)
