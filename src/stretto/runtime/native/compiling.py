"""Compile the loop in the background: ``python -m stretto.runtime.native.compiling``, at the lowest priority.

It takes half a minute of CPU, once on a machine, which nobody who trains should wait for. One such process of a machine
compiles at a time; the others end.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_STARTED: list[subprocess.Popen[bytes]] = []
"""The process that this one has started, if any."""


def start() -> None:
    """Let a process compile the loop, which does not end with this one; once."""
    if _STARTED:
        return
    root = str(Path(__file__).parents[3])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    with suppress(OSError):  # then the loop in Python goes on serving
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path, "STRETTO_KERNELS": "compiled"}, start_new_session=True,
        )  # fmt: skip
        _STARTED.append(process)


def main() -> None:
    """Compile the loop, unless another process does."""
    with suppress(OSError):
        os.nice(19)
    with open(__file__) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        from .engine import hold, let_go

        if hold() is not None:
            let_go()


if __name__ == "__main__":
    main()
