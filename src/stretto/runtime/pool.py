"""Memory for arrivals, reused from run to run: a fresh page costs as much as filling it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

GRAIN_BYTES = 1 << 16
MOST_KEPT = 1 << 27
"""The most bytes that a pool keeps for reuse."""


class Pool:
    """Blocks of memory that are not in use, by size."""

    def __init__(self) -> None:
        self.free: dict[int, list[NDArray[np.uint8]]] = defaultdict(list)
        self.lent: dict[int, NDArray[np.uint8]] = {}
        self.kept_bytes = 0

    def take(self, size: int, dtype: Any) -> NDArray[Any]:
        """An array of ``size`` bytes with arbitrary content."""
        grains = -(-size // GRAIN_BYTES) * GRAIN_BYTES
        if self.free[grains]:
            block = self.free[grains].pop()
            self.kept_bytes -= grains
        else:
            block = np.empty(grains, dtype=np.uint8)
        array: NDArray[Any] = block[:size].view(dtype)
        self.lent[array.ctypes.data] = block
        return array

    def give(self, array: NDArray[Any]) -> None:
        """Take back an array that is no longer in use; an array that is not the pool's is ignored."""
        block = self.lent.pop(array.ctypes.data, None)
        if block is not None and self.kept_bytes + block.size <= MOST_KEPT:
            self.free[block.size].append(block)
            self.kept_bytes += block.size

    def forget(self) -> None:
        """Leave the arrays that are still in use to their users."""
        self.lent.clear()
