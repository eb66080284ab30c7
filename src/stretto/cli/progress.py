"""Progress on stderr, for a person who waits at a terminal: what is being done, for how long, and the time left.

Commands and the library say what they do with :func:`doing`, :func:`waiting` and :func:`show_progress`. A thread draws
it in one line once a command has taken a second, and again every half second, whether there is news or not. Nothing is
drawn where stderr is no terminal, and nothing with ``--json``. What may take minutes writes lines there,
:func:`show_tenths`, so that a log is not silent.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from ..model.arrays import Int64

PATIENCE_S = 1.0
"""Seconds of a command after which progress is drawn."""
REDRAW_S = 0.5
LATE = 3.0
"""Times what parts took until now after which a part is unlike them, so that they do not say how long it takes."""
MOST_PARTS = 9999
"""Parts that are named by their number; of more, as steps of work, the percentage is said."""

_ERASE = "\r\033[K"


class Progress:
    """One line on a terminal.

    Args:
        stream: the terminal.
        now: seconds of a clock that never goes back.
    """

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._now, self._lock, self._process = stream, now, threading.Lock(), os.getpid()
        self._began_s = now()
        self._what: str | None = None
        self._due_s: float | None = None
        self._at_most = False
        self._counted: Callable[[], int] | None = None
        self._drawn = False
        self._count(0, 0)

    def _count(self, done: int, total: int) -> None:
        """Count from here: the speed is that of what is done from now on."""
        self._counted = None
        self._first, self._done, self._total = done, done, total
        self._first_s = self._done_s = self._now()

    def tell(self, done: int, total: int, what: str) -> None:
        """Say what is being done now, and how many of how many parts are done; ``total`` is 0 if they are not known."""
        with self._lock:
            if total != self._total or done < self._done:
                self._count(done, total)
            elif done > self._done:
                self._done, self._done_s = done, self._now()
            self._due_s = self._counted = None
            self._what = what if done < total or not total else None
        self.draw()

    def watch(self, counted: Callable[[], int], total: int, what: str) -> None:
        """Say what is being done; the number of parts that are done is asked for whenever the line is drawn."""
        self.tell(counted(), total, what)
        with self._lock:
            self._counted = counted

    def wait(self, what: str, seconds: float | None, at_most: bool = False) -> None:
        """Say what takes about, or at most, this number of seconds from now on; None if what was said last holds."""
        with self._lock:
            self._count(0, 0)
            self._what = what
            if seconds is not None:
                self._due_s, self._at_most = self._now() + seconds, at_most
        self.draw()

    def draw(self) -> None:
        """Draw the line, if the command has taken long enough."""
        with self._lock:
            if self._counted is not None and (done := self._counted()) > self._done:
                self._done, self._done_s = done, self._now()
            if self._what is None:
                self._erase()
            elif self._now() - self._began_s >= PATIENCE_S and self._process == os.getpid():
                columns = columns_of(self._stream)
                self._stream.write(_ERASE + fitting(self._what, self.facts(), columns - 1))
                self._stream.flush()
                self._drawn = True

    def facts(self) -> str:
        """How many parts are done, the time since the command began, and the time left."""
        now = self._now()
        facts = []
        if self._total > MOST_PARTS:
            facts.append(f"{100 * self._done / self._total:.0f} %")
        elif self._total > 1:
            facts.append(f"{self._done}/{self._total}")
        facts.append(rounded(now - self._began_s))
        left_s = self.left_s()
        if left_s is not None and self._due_s is not None and self._at_most:
            facts.append(f"at most about {rounded(max(left_s, 1.0))} left")
        elif left_s is not None:
            facts.append(f"about {rounded(left_s)} left" if left_s >= 1 else "nearly done")
        return ", ".join(facts)

    def left_s(self) -> float | None:
        """Seconds left: as was said, or if the parts that are left take as long as those that were done; else None."""
        if self._due_s is not None:
            left_s = self._due_s - self._now()
            return left_s if left_s > 0 else None
        if self._done == self._first:
            return None
        done, left = self._done - self._first, self._total - self._done
        each_s, part_s = (self._done_s - self._first_s) / done, self._now() - self._done_s
        if part_s <= LATE * each_s:
            return max(0.0, each_s * left - part_s)
        # this part is unlike those before it: it counts as one that ends now, and of the last one nothing is known
        return (self._now() - self._first_s) / (done + 1) * (left - 1) or None

    def clear(self) -> None:
        """Leave the line to what is printed next, until more is told."""
        with self._lock:
            self._what = None
            self._erase()

    def _erase(self) -> None:
        if self._drawn and self._process == os.getpid():
            self._stream.write(_ERASE)
            self._stream.flush()
        self._drawn = False


class Tenths:
    """Lines in a log: one at the beginning, and one whenever another tenth of the parts is done.

    Args:
        name: what has the parts.
        now: seconds of a clock that never goes back.
    """

    def __init__(self, name: str, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._name, self._stream = name, stream
        self._progress = Progress(io.StringIO(), now)
        self._tenths = -1

    def __call__(self, done: int, total: int, what: str) -> None:
        """Say how many parts are done, and the last one of them."""
        self._progress.tell(done, total, what)
        tenths = 10 * done // total if total else 10
        if tenths > self._tenths and done < total:
            self._stream.write(f"{self._name}: {what} ({self._progress.facts()})\n")
            self._stream.flush()
        self._tenths = max(tenths, self._tenths)


def columns_of(stream: TextIO) -> int:
    """The width of the terminal that a stream is: stdout and stderr may be two, or one of them a pipe."""
    with suppress(OSError, ValueError):
        if not os.environ.get("COLUMNS"):
            return os.get_terminal_size(stream.fileno()).columns or shutil.get_terminal_size().columns
    return shutil.get_terminal_size().columns


def rounded(seconds: float) -> str:
    """A time as it is said while one waits: ``12 s``, ``3 min``, ``2.5 h``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.1f} h"


def fitting(what: str, facts: str, columns: int) -> str:
    """One line of this number of columns or fewer: facts are kept, and what is being done is cut."""
    line = f"{what} ({facts})"
    if len(line) <= columns:
        return line
    room = columns - len(facts) - 6
    return f"{what[:room]}... ({facts})" if room >= 8 else facts[: max(columns, 0)]


_shown: Progress | None = None
_log: TextIO | None = None
"""Where lines go of what may take minutes: stderr, if it is no terminal."""


@contextmanager
def shown(words: Sequence[str]) -> Iterator[None]:
    """Show progress within a command, unless its ``words`` ask for JSON or stderr is no terminal."""
    global _shown, _log
    if "--json" in words:
        yield
        return
    if not sys.stderr.isatty():
        _log = sys.stderr
        try:
            yield
        finally:
            _log = None
        return
    _shown = line = Progress(sys.stderr)
    ended = threading.Event()

    def redraw() -> None:
        while not ended.wait(REDRAW_S):
            line.draw()

    thread = threading.Thread(target=redraw, name="stretto-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        _shown = None
        ended.set()
        thread.join()
        line.clear()


def doing(what: str) -> None:
    """Say what a command does now, where its parts are not counted."""
    show_progress(0, 0, what)


def waiting(what: str, seconds: float) -> None:
    """Say what a command waits for, and for about how long."""
    if _shown is not None:
        _shown.wait(what, seconds)


class _Listener:
    """What commands give the library as its progress, see :mod:`stretto.model.progress`."""

    def __call__(self, done: int, total: int, what: str) -> None:
        """Say what is being done, and how many of how many parts are done."""
        if _shown is not None:
            _shown.tell(done, total, what)

    def at_most(self, what: str, seconds: float | None) -> None:
        """Say what is being done, and how long it takes at most; None if what was said last holds."""
        if _shown is not None:
            _shown.wait(what, seconds, at_most=True)

    def counting(self, counted: Int64, before: int, total: int, what: str) -> None:
        """Say what a kernel does, which counts its parts."""
        if _shown is not None:
            _shown.watch(lambda: before + int(counted[0]), total, what)


show_progress = _Listener()


def show_tenths(name: str) -> Callable[[int, int, str], None]:
    """The progress of work that may take minutes: lines where stderr is no terminal, else as all progress."""
    return show_progress if _log is None else Tenths(name, _log)


def say(text: str) -> None:
    """Say where a command that may take minutes writes, before it begins; nothing with ``--json``."""
    from .tables import to_terminal  # which clears the line

    stream = _log if _shown is None else sys.stderr
    if stream is not None:
        clear()
        stream.write(to_terminal(text, stream) + "\n")
        stream.flush()


def clear() -> None:
    """Take the line away, before something is printed."""
    if _shown is not None:
        _shown.clear()
