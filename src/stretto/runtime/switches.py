"""Optical circuit switches as the controller drives them, one turn of a plane at a time.

A vendor's switch is driven by a command (:class:`CommandSwitch`), a program that gets the circuits of each turn in the
form of cross-connect lists. Without hardware a turn takes its time and nothing else (:class:`TimedSwitch`).
"""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import threading
from typing import Any, Protocol

from ..model.circuits import Change
from ..model.errors import InputError

COMMAND_VARIABLE = "STRETTO_SWITCH"
"""The environment variable that names the command of :class:`CommandSwitch`."""
END_S = 2.0
"""Seconds that a command gets to end when its input has closed."""


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
        self.asked: set[int] = set()
        self.lock = threading.Lock()

    def turn(self, plane: int, turn: Change, seconds: float) -> None:
        process = self._process(plane)
        line = {"switch": plane, "break": turn.breaks, "make": turn.makes, "keep": turn.keeps}
        answer = ""
        assert process.stdin is not None
        assert process.stdout is not None
        self.asked.add(plane)
        with contextlib.suppress(OSError, ValueError):
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline().strip()
        self.asked.discard(plane)
        if answer != "up":
            raise SwitchFailed(answer or f"{self.words[0]} ended without an answer")

    def _process(self, plane: int) -> subprocess.Popen[str]:
        with self.lock:
            if plane not in self.running:
                pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
                try:
                    self.running[plane] = subprocess.Popen([*self.words, str(plane)], **pipes)
                except OSError as error:
                    raise SwitchFailed(f"{self.words[0]} could not be started: {error.strerror}") from None
            return self.running[plane]

    def close(self) -> None:
        with self.lock:
            running, self.running = self.running, {}
        for plane, process in running.items():
            if plane in self.asked:
                process.terminate()  # it may hang, and never read that its input has ended
            with contextlib.suppress(OSError):
                assert process.stdin is not None
                process.stdin.close()
        for process in running.values():
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def switch_of(command: str | None) -> Switch:
    """The switch that a command turns, or one without hardware."""
    return CommandSwitch(command) if command else TimedSwitch()
