"""The handle of the process that makes better plans (:mod:`.planning_process`): one for each process that asks.

It is started by the first request. If it dies, the request that it was at is given up, and the next one starts another
process, up to ``MOST_DEATHS`` times.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .requests import PlanRequest

MOST_DEATHS = 3
"""Planners' processes that may die before no more are started."""

END_S = 5.0
"""Seconds to wait for the thread that reads answers, when this process ends."""

Answered = Callable[[bytes | None, str], None]
"""Called with the packed answer, or with None and the reason."""


class Planner:
    """Asks the planner's process; any thread may."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        # by name of the request what is written to the process, and who waits for the answer; in the order of asking
        self._asked: dict[str, tuple[str, list[Answered]]] = {}
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._deaths = 0
        self._closed = False

    def ask(self, request: PlanRequest, answered: Answered) -> None:
        """Ask for the better plan of a request; ``answered`` is called once, in a thread of this object."""
        name = request.name
        line = json.dumps({"name": name, "request": request.to_json()}) + "\n"
        with self._lock:
            known = name in self._asked
            waiting = self._asked.setdefault(name, (line, []))[1]
            waiting.append(answered)
            reason = self._reason()
            if reason is None and not known:
                self._write([line])
        if reason is not None:
            self._end([name], reason)

    def close(self) -> None:
        """End the process. What is asked for gets no answer any more."""
        with self._lock:
            self._closed = True
            self._asked.clear()
            process, reader = self._process, self._reader
        if os.getpid() == self._owner and process is not None:
            process.kill()
            if reader is not None and reader is not threading.current_thread():
                reader.join(END_S)

    def _reason(self) -> str | None:
        """Why no process can be asked; None if one can. The caller has the lock."""
        if self._closed:
            return "this process ends"
        if self._deaths >= MOST_DEATHS:
            return f"the planner's process has died {MOST_DEATHS} times"
        return None if sys.executable else "there is no Python to start"

    def _write(self, lines: list[str]) -> None:
        """Send requests to the process, which is started if there is none. The caller has the lock."""
        if self._process is None:
            self._process = _start()
            self._reader = threading.Thread(
                target=self._read, args=(self._process,), name="answers of the planner's process", daemon=True
            )
            self._reader.start()
        assert self._process.stdin is not None
        try:
            self._process.stdin.writelines(lines)
            self._process.stdin.flush()
        except OSError:
            pass  # it has ended: who reads its answers notices, and asks another one

    def _read(self, process: subprocess.Popen[str]) -> None:
        """Pass on the answers of a process until it ends."""
        assert process.stdout is not None
        for text in process.stdout:
            answer: dict[str, Any] = json.loads(text)
            content = base64.b64decode(answer["content"]) if "content" in answer else None
            self._end([answer["name"]], answer.get("failed", ""), content)
        code = process.wait()
        with self._lock:
            self._process = None
            given_up: list[str] = []
            if code and not self._closed and self._asked:
                self._deaths += 1
                given_up = list(self._asked)[: None if self._deaths >= MOST_DEATHS else 1]
            left = [line for name, (line, _) in self._asked.items() if name not in given_up]
            if left and not self._closed:
                self._write(left)
        self._end(given_up, f"the planner's process has ended with exit status {code}")

    def _end(self, names: list[str], reason: str, content: bytes | None = None) -> None:
        """Give an answer to those who wait for it."""
        with self._lock:
            waiting = [each for name in names for each in self._asked.pop(name, ("", []))[1]]
        for answered in waiting:
            answered(content, reason)


def _start() -> subprocess.Popen[str]:
    """A planner's process, with one thread for each library that would take all cores."""
    root = str(Path(__file__).parents[2])
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "stretto.choose.planning_process"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, **threads, "PYTHONPATH": path},
        start_new_session=True,  # an interrupt from the keyboard is for the ranks
    )  # fmt: skip


_PLANNER: Planner | None = None
_LOCK = threading.Lock()


def planner() -> Planner:
    """The planner of this process; a forked process has one of its own."""
    global _PLANNER
    with _LOCK:
        if _PLANNER is None or _PLANNER._owner != os.getpid():
            _PLANNER = Planner()
            atexit.register(_PLANNER.close)
        return _PLANNER
