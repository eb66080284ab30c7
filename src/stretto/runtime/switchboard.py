"""The thread that serves all connections for messages of a process (:mod:`.lines`), with one selector."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .lines import Line

END_S = 5.0
"""Seconds to wait for the thread, which calls those who wait for messages."""


class Switchboard:
    """The thread that serves the lines of a process; it ends with the last of them."""

    def __init__(self) -> None:
        self.owner, self.closed = os.getpid(), False
        self._lines: set[Line] = set()
        self._calls: deque[Callable[[], None]] = deque()
        self._again: set[Line] = set()
        self._watched: dict[Line, int] = {}
        self._selector = selectors.DefaultSelector()
        self._told, self._tell = socket.socketpair()
        for end in (self._told, self._tell):
            end.setblocking(False)
        self._thread = threading.Thread(target=self._serve, name="stretto-messages", daemon=True)
        self._thread.start()

    def add(self, line: Line) -> None:
        self._lines.add(line)
        self.watch(line)

    def remove(self, line: Line) -> None:
        """Serve a line no more; returns when the thread does not use it any longer."""
        left = threading.Event()

        def leave() -> None:
            self._forget(line)
            left.set()

        with _BOARD_LOCK:
            if line not in self._lines or os.getpid() != self.owner:
                return
            self._lines.remove(line)
            self._calls.append(
                leave
            )  # before the next line: once it is closed the thread ends when nothing is to be called
            last = self.closed = not self._lines
            self._wake()
        if not self.is_here():
            left.wait(END_S)
            if last:
                self._thread.join(END_S)

    def is_here(self) -> bool:
        """Whether this is the thread, which must wait for nothing."""
        return self._thread is threading.current_thread()

    def watch(self, line: Line) -> None:
        """Look at what a line waits for."""
        self.call(partial(self._register, line))

    def unwatch(self, line: Line) -> None:
        self.call(partial(self._forget, line))

    def again(self, line: Line) -> None:
        """Read more of a line although the kernel tells nothing of it. Only in the thread."""
        self._again.add(line)

    def look_soon(self, line: Line) -> None:
        """A line has got another stream."""
        self.call(partial(setattr, line, "look_at", 0.0))

    def call(self, call: Callable[[], None]) -> None:
        """Let the thread call something."""
        self._calls.append(call)
        self._wake()

    def _wake(self) -> None:
        if os.getpid() == self.owner:
            with contextlib.suppress(OSError):  # a full socket wakes the thread as well, and one that is gone needs not
                self._tell.send(b"\0")

    def _register(self, line: Line) -> None:
        """Register with the selector what a line waits for."""
        c = line.connection
        if c.broken:
            line.read()  # that tells why
            c.unsent.clear()
        if line.failure is not None or line not in self._lines:
            self._forget(line)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if c.unsent else 0)
        before = self._watched.get(line, 0)
        if before != events:
            (self._selector.modify if before else self._selector.register)(c.sock, events, line)
            self._watched[line] = events
        if c.pending:
            self._again.add(line)

    def _forget(self, line: Line) -> None:
        if self._watched.pop(line, 0):
            self._selector.unregister(line.connection.sock)
        self._again.discard(line)

    def _serve(self) -> None:
        self._selector.register(self._told, selectors.EVENT_READ, None)
        while not self.closed or self._calls:
            lines = [line for line in tuple(self._lines) if line.failure is None]
            wake = min((line.look_at for line in lines), default=math.inf)
            left_s = 0.0 if self._again or self._calls else wake - time.monotonic()
            for key, mask in self._selector.select(None if left_s == math.inf else max(0.0, left_s)):
                self._guard(partial(self._serve_line, key.data, mask))
            more, self._again = self._again, set()
            for line in more:
                self._guard(line.read)
            while self._calls:
                self._guard(self._calls.popleft())
            for line in lines:
                if line.failure is None and time.monotonic() >= line.look_at:
                    line.look_at = math.inf
                    self._guard(partial(self._look, line))
        self._selector.close()
        self._told.close()
        self._tell.close()

    def _serve_line(self, line: Line | None, mask: int) -> None:
        if line is None:
            with contextlib.suppress(BlockingIOError):
                self._told.recv(1 << 12)
            return
        if mask & selectors.EVENT_READ:
            line.read()
        if mask & selectors.EVENT_WRITE:
            line.push()
            self._register(line)

    def _look(self, line: Line) -> None:
        line.look_at = time.monotonic() + line.look()

    def _guard(self, call: Callable[[], None]) -> None:
        """Call something; a callback that raises an exception must not end the messages of all groups."""
        try:
            call()
        except Exception:
            traceback.print_exc()


_BOARD: Switchboard | None = None
_BOARD_LOCK = threading.RLock()


def serves_here() -> bool:
    """Whether this is the thread that serves all messages of this process, which must wait for nothing."""
    return _BOARD is not None and _BOARD.is_here()


def switchboard_with(line: Line) -> Switchboard:
    """The switchboard of this process, which serves a line from now on."""
    global _BOARD
    with _BOARD_LOCK:
        if _BOARD is None or _BOARD.closed or _BOARD.owner != os.getpid():
            _BOARD = Switchboard()
        _BOARD.add(line)
        return _BOARD
