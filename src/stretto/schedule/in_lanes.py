"""List schedules of transfers where each has a lane, a part of its links that no other lane uses."""

from __future__ import annotations

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64, Int64, Ragged
from . import kernel_dispatch
from .kernel_dispatch import Jobs

KERNEL_STEPS = 500.0
"""Steps of the kernels' inner loops for each transfer."""


def starts_in_lanes(lane: Int64, seconds: Float64, lag_s: Float64, depends: Ragged, turn: Float64) -> Float64:
    """Starts of transfers where each lane carries one transfer at a time.

    Of the transfers that wait for a lane, the one with the lowest ``turn`` goes first; of equal turns, the one with the
    longest chain of transfers after it.

    Args:
        lane: int64[transfers], from 0.
        seconds, lag_s: float64[transfers], for how long each keeps its lane, and from source to receiver.
        depends: of each transfer, on earlier ones.
    """
    after, count = depends.turned(), len(lane)
    work, waiting = KERNEL_STEPS * count, after.values.astype(np.int64)
    chain_s = at_speed(kernel_dispatch.longest_chains, work)(seconds + lag_s, after.offsets, waiting)
    rank = np.empty(count, dtype=np.int64)
    rank[np.lexsort((-chain_s, turn))] = np.arange(count)
    jobs = Jobs(seconds, lag_s, np.zeros(count), after.offsets, waiting, depends.lengths)
    start: Float64 = at_speed(kernel_dispatch.schedule_single_links, work)(rank, jobs, lane, int(lane.max()) + 1)
    return start
