"""The capacities of links in slots (section 1.2, definitions 1 to 3, and equation (7))."""

from __future__ import annotations

import numpy as np

from ...model.arrays import Int64
from ...model.topology import Topology

SHORT = 1e-9
"""Share of a chunk that may be missing in its last slot, so that roundings need no slot of their own."""


def busy_slots(topology: Topology, chunk_bytes: float, slot_s: float, slots: int) -> Int64:
    """int64[slots + 1, links], for how many slots a chunk that is sent in each slot keeps each link busy.

    Equation (7) has a capacity for each link and slot. A chunk keeps its link until the slots since it was sent have
    carried it whole; one that is not carried within ``slots`` stays longer than that.
    """
    if not topology.changes:
        constant = np.ceil(chunk_bytes / topology.bandwidth / slot_s - SHORT).astype(np.int64)
        return np.broadcast_to(constant, (slots + 1, topology.link_count))
    carried = np.array([topology.changes.carried_bytes(topology.bandwidth, k * slot_s) for k in range(slots + 1)])
    needed = carried + chunk_bytes * (1 - SHORT)
    ends = [np.searchsorted(column, goal) for column, goal in zip(carried.T, needed.T, strict=True)]
    busy: Int64 = np.array(ends).T - np.arange(slots + 1)[:, None]
    return busy
