"""Lets a benchmark end quietly where its reader has seen enough: ``python benchmarks/heldout.py | head``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


def run(main: Callable[[], object]) -> None:
    """Call ``main``; where nobody reads what it prints any more, end as ``stretto`` does."""
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is flushed at exit
        sys.exit(0)
