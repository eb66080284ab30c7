"""The handle of the process that plans (:mod:`.planner`): the leader has one. If it dies, another one is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .database import GONE_AFTER_S
from .planner import Settings

AGAIN_S = 1.0
"""Seconds after which a process that has died is followed by another."""

END_S = 5.0
"""Seconds to wait for the thread that reads, at the end."""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class PlanningProcess:
    """Plans in a process of its own from :meth:`start` to :meth:`stop`.

    Args:
        database: its URL.
        gone_after_s: seconds in which it must answer.
        on_event: called with what the planner tells, in a thread of this object.
    """

    def __init__(
        self, database: str, settings: Settings, on_event: Callable[[dict[str, Any]], None],
        gone_after_s: float = GONE_AFTER_S,
    ) -> None:  # fmt: skip
        how = {
            "effort": settings.effort, "planner": settings.planner, "least_gain": settings.least_gain,
            "threshold": settings.sensitivity.threshold, "hold_s": settings.sensitivity.hold_s,
            "keep": asdict(settings.keep),
        }  # fmt: skip
        self._said = {"database": database, "gone_after_s": gone_after_s, "settings": how}
        self._on_event = on_event
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether it is between :meth:`start` and :meth:`stop`."""
        return self._thread is not None

    def start(self, term: int) -> None:
        """Plan for the leader of a term."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._serve, args=(term, self._stopped), name="events of the planner's process", daemon=True
        )
        self._thread.start()

    def kick(self) -> None:
        """Say that there is news."""
        with self._lock:
            if self._process is not None and self._process.stdin is not None:
                with suppress(OSError, ValueError):
                    self._process.stdin.write("\n")
                    self._process.stdin.flush()

    def stop(self) -> None:
        """End the process, even in the middle of a plan."""
        self._stopped.set()
        with self._lock:
            if self._process is not None:
                self._process.kill()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(END_S)
            self._thread = None

    def _serve(self, term: int, stopped: threading.Event) -> None:
        """Pass on what the process tells, and start another one where it dies."""
        while not stopped.is_set():
            try:
                process = _start()
            except OSError as error:  # no memory or no process is left for it now
                self._on_event({"event": "died", "reason": str(error)})
                stopped.wait(AGAIN_S)
                continue
            assert process.stdin is not None and process.stdout is not None
            with suppress(OSError):  # before anybody can tell it of news: its first line says how it is to plan
                process.stdin.write(json.dumps({**self._said, "term": term}) + "\n")
                process.stdin.flush()
            with self._lock:
                self._process = process
            if stopped.is_set():
                process.kill()
            for line in process.stdout:
                self._on_event(json.loads(line))
            with self._lock:
                self._process = None
                with suppress(OSError):
                    process.stdin.close()
            process.stdout.close()
            code = process.wait()
            if not stopped.is_set():
                self._on_event({"event": "died", "code": code})
                stopped.wait(AGAIN_S)


def _start() -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "stretto.service.planner"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, **dict.fromkeys(THREADS, "1"), "PYTHONPATH": path},
        start_new_session=True,  # an interrupt from the keyboard is for the server, which ends this process
    )  # fmt: skip
