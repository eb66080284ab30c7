"""Optical circuit switches as the controller drives them, one turn of a plane at a time.

A vendor's switch is driven by a command (:class:`CommandSwitch`), a program that gets the circuits of each turn in the
form of cross-connect lists. Without hardware a turn takes its time and nothing else (:class:`TimedSwitch`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import threading
import time
from typing import IO, Any, Protocol

from ..model.circuits import Change
from ..model.errors import InputError

COMMAND_VARIABLE = "STRETTO_SWITCH"
"""The environment variable that names the command of :class:`CommandSwitch`."""
END_S = 2.0
"""Seconds that the programs of all planes get to end when their input has closed."""


class SwitchFailed(Exception):
    """A switch could not turn; says why."""


class Switch(Protocol):
    """What turns planes. Planes turn at the same time, each in a thread of its own."""

    def turn(self, plane: int, turn: Change, seconds: float) -> None:
        """Turn a plane; returns when its circuits are up.

        Args:
            turn: the circuits to break, to make and to keep, by their ports.
            seconds: how long the plan expects a turn to take, in real time; 0 where a plane joined nothing before.
        Raises:
            SwitchFailed: the circuits are not up.
        """

    def close(self) -> None:
        """End turns that are under way, and let the switch go."""


class TimedSwitch:
    """A switch without hardware: a turn takes its time."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def turn(self, plane: int, turn: Change, seconds: float) -> None:
        if self.closed.wait(seconds):
            raise SwitchFailed("it was closed while it turned")

    def close(self) -> None:
        self.closed.set()


class CommandSwitch:
    """A switch that a program turns. It is started once for each plane, with the plane's number as its last argument.

    For each turn it reads a line from its input, ``{"switch": 0, "break": [[0, 1]], "make": [[0, 2]], "keep": []}``:
    the ports of circuits, the one that sends first, as ``stretto export --to cross-connects`` writes them. It answers
    with a line when the circuits are up: ``up``, or else what went wrong.

    Args:
        command: the program and its arguments, as a shell would take them.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        try:
            self.words = shlex.split(command)
        except ValueError as error:
            raise InputError(f"is no command: {error}", command) from None
        if not self.words:
            raise InputError("names no program", "the command of the switch")
        self.running: dict[int, subprocess.Popen[str]] = {}
        self.turning: set[int] = set()
        self.closed = False
        self.lock = threading.Lock()

    def turn(self, plane: int, turn: Change, seconds: float) -> None:
        process = self._begin(plane)
        line = {"switch": plane, "break": turn.breaks, "make": turn.makes, "keep": turn.keeps}
        answer = ""
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline().strip()
        with self.lock:
            self.turning.discard(plane)
            if self.closed:
                _close(process.stdin)
                _close(process.stdout)
        if answer != "up":
            raise SwitchFailed(answer or f"{self.words[0]} ended without an answer")

    def _begin(self, plane: int) -> subprocess.Popen[str]:
        """The program of a plane, which turns from now on."""
        with self.lock:
            if self.closed:
                raise SwitchFailed("it was closed before it turned")
            if plane not in self.running:
                pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
                try:
                    # in a session of its own, so that what it starts ends with it
                    self.running[plane] = subprocess.Popen([*self.words, str(plane)], start_new_session=True, **pipes)
                except OSError as error:
                    raise SwitchFailed(f"{self.words[0]} could not be started: {error.strerror}") from None
            self.turning.add(plane)
            return self.running[plane]

    def close(self) -> None:
        with self.lock:
            self.closed = True
            running, self.running = self.running, {}
            busy = set(self.turning)
        for plane, process in running.items():
            if plane in busy:  # it may hang, and never read that its input has ended
                _signal(process, signal.SIGTERM)
            else:
                _close(process.stdin)
        deadline = time.monotonic() + END_S
        for plane, process in running.items():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
                hangs = plane in busy  # what it started may have its output still
            except subprocess.TimeoutExpired:
                hangs = True
            if hangs:
                _signal(process, signal.SIGKILL)
                process.wait()
            if plane not in busy:
                _close(process.stdout)


def _close(pipe: IO[str] | None) -> None:
    with contextlib.suppress(OSError):
        assert pipe is not None
        pipe.close()


def _signal(process: subprocess.Popen[str], number: int) -> None:
    """Send a signal to a program and to those that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def switch_of(command: str | None) -> Switch:
    """The switch that a command turns, or one without hardware."""
    return CommandSwitch(command) if command else TimedSwitch()
