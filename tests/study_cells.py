"""What cells of the engines' tests do, where other processes find it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from stretto.studies import run_cell


def dies(cell, seed):
    os.kill(os.getpid(), signal.SIGKILL)


def raises(cell, seed):
    raise ValueError("no such thing")


def waits(cell, seed):
    """Say in a file that it has begun, and go on when somebody has opened the pipe beside it."""
    folder = Path(os.environ["STUDY_CELLS"])
    (folder / f"begun-{cell.size_bytes}-{os.getpid()}").touch()
    with open(folder / "open"):
        return run_cell(cell, seed)
