"""The same links in two networks of the same nodes, of which one lacks some or has them in another order."""

from __future__ import annotations

import numpy as np

from ..model.arrays import Int64
from ..model.topology import Topology


def links_there(old: Topology, new: Topology) -> Int64:
    """int64[links of the old one], the number that each link has in the new network, -1 for none."""
    number: dict[tuple[int, int, int], int] = {}
    for link, key in enumerate(_parallel(new)):
        number[key] = link
    return np.array([number.get(key, -1) for key in _parallel(old)], dtype=np.int64)


def _parallel(topology: Topology) -> list[tuple[int, int, int]]:
    """For each link its ends, and how many links between these come before it."""
    seen: dict[tuple[int, int], int] = {}
    keys = []
    for ends in zip(topology.src.tolist(), topology.dst.tolist(), strict=True):
        seen[ends] = seen.get(ends, -1) + 1
        keys.append((*ends, seen[ends]))
    return keys
