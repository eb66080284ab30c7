"""Tests that wait for what another thread does."""

from __future__ import annotations

import threading


def until(holds) -> None:
    """Wait until something holds, at most for a minute."""
    for _ in range(6_000):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it does not hold after a minute")
