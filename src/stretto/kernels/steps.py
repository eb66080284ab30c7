"""Links and pipes whose bandwidth changes with time, for planners that heed it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


class Steps(NamedTuple):
    """When each link or pipe changes (CSR, by ``offsets``), and how long it takes a byte from then on.

    Attributes:
        at_s: float64[steps], ascending for each.
        per_byte_s: float64[steps], seconds a byte; infinite while it has failed.
    """

    offsets: Int64
    at_s: Float64
    per_byte_s: Float64


def sending_s(i: int, t: float, size_bytes: float, per_byte_s: float, steps: Steps) -> float:
    """Seconds for which link or pipe ``i`` sends from ``t``; infinite if it fails for good before the last byte.

    Args:
        per_byte_s: seconds a byte before its first step.
    """
    a, b = steps.offsets[i], steps.offsets[i + 1]
    if a == b or size_bytes == 0:
        return size_bytes * per_byte_s
    j = a + np.searchsorted(steps.at_s[a:b], t, side="right")
    at, left = t, size_bytes
    each = steps.per_byte_s[j - 1] if j > a else per_byte_s
    while j < b:
        room = (steps.at_s[j] - at) / each
        if left <= room:
            break
        left -= room
        at, each = steps.at_s[j], steps.per_byte_s[j]
        j += 1
    seconds: float = at - t + left * each
    return seconds
