"""The code of the loop, and how it is compiled in the background, at the lowest priority:
``python -m stretto.runtime.native.compiling``.

Compiling takes half a minute of CPU, once on a machine, which nobody who trains should wait for. One such process of a
machine compiles at a time; the others end.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from ...kernels import at_speed, dispatcher, keeps, ready
from . import kernel_engine, machine_code

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


def is_compiled() -> bool:
    """Whether the loop is compiled, in a file that is soon loaded, and may be used."""
    refused = not sys.platform.startswith("linux") or os.environ.get("STRETTO_KERNELS") == "python"
    return not refused and machine_code.load() is not None


def code(compiles: bool) -> machine_code.Serve | None:
    """The loop from its file, or as Numba keeps it; None where it was never compiled, unless its first call may compile
    it."""
    serve = machine_code.load()
    if serve is not None:
        return serve
    if ready(kernel_engine.serve, 0):
        machine_code.keep(dispatcher(kernel_engine.serve))
    elif not compiles:
        if keeps(kernel_engine.serve):  # else each job would compile it for nobody
            start()
        return None
    return at_speed(kernel_engine.serve, float("inf"))


def compile_here() -> None:
    """Compile the loop in this process, if its file is missing, and write the file. Numba compiles only with
    ``STRETTO_KERNELS=compiled``."""
    from .engine import hold, let_go

    if hold() is not None:
        let_go()  # which waits until it is compiled
        code(compiles=False)


def main() -> None:
    """Compile the loop, unless another process does."""
    with suppress(OSError):
        os.nice(19)
    with open(__file__) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        compile_here()


if __name__ == "__main__":
    main()
