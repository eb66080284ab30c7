"""What fits into this machine's memory: requests and files that do not are refused before they fill it."""

from __future__ import annotations

import os
import resource
from functools import cache

from .units import format_size

TRANSFER_BYTES = 300
"""Bytes that planning, verifying and simulating need for each transfer, about (`benchmarks/scaling.py --largest`)."""


@cache
def memory_bytes() -> int:
    """The memory that this process may have: that of the machine, or a limit of its own where that is less."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return machine_bytes() if soft == resource.RLIM_INFINITY else min(machine_bytes(), soft)


@cache
def machine_bytes() -> int:
    """The memory that all processes may have together: of this machine, or of its container where that is less."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            limits.append(int(file.read()))
    except (OSError, ValueError):  # no such limit
        pass
    return min(limits)


def too_much(count: float, what: str, bytes_each: float = TRANSFER_BYTES) -> str | None:
    """The reason, in one line, why ``count`` things do not fit into memory; None if they do."""
    if count * bytes_each <= memory_bytes():
        return None
    need, have = format_size(count * bytes_each), format_size(memory_bytes())
    return f"{count:.3g} {what} need about {need} of memory, and there are {have}"
