"""The process that makes better plans: ``python -m stretto.choose.planning_process``, started by :mod:`.planning`.

It reads requests from its input, one JSON object a line, and writes an answer a line. It has the lowest priority, so
that it takes the processor's time that nobody else wants; one such process of a machine plans at a time, and finds on
disk what another one has made meanwhile. It ends when its input ends, or when nothing was asked for a while.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

from ..model.errors import StrettoError
from .better import better_plan
from .kept import Kept, packed
from .requests import PlanRequest

IDLE_S = 60.0
"""Seconds without a request after which the process ends: it holds about 200 MB."""

LOCK = "planning.lock"


def main() -> None:
    """Answer the requests on the standard input until it ends."""
    with suppress(OSError):
        os.nice(19)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    requests: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    kept = Kept.from_environment()
    with suppress(Empty, BrokenPipeError):
        while True:
            line = json.loads(requests.get(timeout=IDLE_S))
            answers.write(json.dumps({"name": line["name"], **_answer(line, kept)}) + "\n")
            answers.flush()
    os._exit(0)


def _read(requests: SimpleQueue[str]) -> None:
    """Take requests as they come, so that who asks need not wait; the process ends with who started it."""
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


def _answer(line: dict[str, Any], kept: Kept) -> dict[str, str]:
    """The answer to a request: the packed plan, or why there is none."""
    name = line["name"]
    try:
        content = kept.find(name)
        if content is None:
            with _alone(kept):
                content = kept.find(name) or packed(name, better_plan(PlanRequest.from_json(line["request"])))
                kept.keep(name, content)
    except StrettoError as error:
        return {"failed": str(error)}
    except Exception as error:  # a planner with a bug must not end the others
        return {"failed": f"{type(error).__name__}: {error}"}
    return {"content": base64.b64encode(content).decode()}


@contextmanager
def _alone(kept: Kept) -> Iterator[None]:
    """Wait until no other process plans for this folder."""
    if kept.folder is None:
        yield
        return
    try:
        kept.folder.mkdir(parents=True, exist_ok=True)
        lock = open(kept.folder / LOCK, "w")  # noqa: SIM115
    except OSError:
        yield
        return
    with lock:
        with suppress(OSError):  # not every file system has locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    main()
