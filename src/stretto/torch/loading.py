"""Imports while a process group is made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Do not collect garbage in here: importing modules makes none.

    It makes enough objects for Python to look through all of those of PyTorch again, which takes 0.09 s of CPU each
    time: half of what the imports of a group, and of the planners, took.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
