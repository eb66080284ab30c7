"""When each transfer of a run may go, and how late each arrives, as a record of the compiled loop
(:mod:`.kernel_layout`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...lower import Program
from ...model.arrays import Int64
from ..pacing import AHEAD_S, segment_bytes
from . import kernel_layout as at
from .records import WORD, words

NANOSECONDS = 1e9
MOST = 1 << 62
"""A number that stands for what is longer than any run, or faster than any link."""


def pacing_of(program: Program, pace: float | None, started_at: float | None, delays: Mapping[int, float]) -> Int64:
    """The record; arguments as of :func:`..execute.execute`."""
    sends, receives = program.sends, program.receives
    start_s = sends.start_s * (pace or 0.0)
    rate = sends.rate / pace if pace is not None else np.full(len(sends), math.inf)
    finite = np.isfinite(rate)
    columns: dict[int, NDArray[Any]] = {
        at.T_ORDER: np.argsort(start_s, kind="stable"),
        at.T_START: start_s * NANOSECONDS,
        at.T_RATE: np.where(finite, np.maximum(rate, 1.0), 0.0),
        at.T_SEGMENT: np.array([segment_bytes(r) for r in rate.tolist()]),
        at.T_DUE: words(len(sends.to.values)),
        at.T_DELAY: np.array([delays.get(row, 0.0) for row in receives.row.tolist()]) * NANOSECONDS,
        at.T_LATE: words(len(receives)),
        at.T_LATE_AT: words(len(receives)),
    }
    header = words(at.PACING_WORDS // WORD)
    header[at.ORIGIN // WORD] = 0 if started_at is None else int(started_at * NANOSECONDS)
    header[at.KEEPS_TIMES // WORD] = pace is not None
    header[at.AHEAD_NS // WORD] = AHEAD_S * NANOSECONDS if program.plan.sharing == "timed" else -1
    used = len(header)
    for which, values in columns.items():
        header[which // WORD] = used * WORD
        used += len(values)
    return np.concatenate([header, *(np.minimum(values, MOST).astype(np.int64) for values in columns.values())])
