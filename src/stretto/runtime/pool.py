"""Memory for arrivals, reused from run to run: a fresh page costs as much as filling it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

GRAIN_BYTES = 1 << 16
"""Blocks have a multiple of this number of bytes; smaller ones a power of two."""
LEAST_BYTES = 1 << 6
MOST_KEPT = 1 << 27
"""The most bytes that a pool keeps for reuse."""


class Pool:
    """Blocks of memory that are not in use, by size.

    Attributes:
        lent: each array in use and its block, by the array's identity.
    """

    def __init__(self) -> None:
        self.free: dict[int, list[NDArray[np.uint8]]] = defaultdict(list)
        self.lent: dict[int, tuple[NDArray[Any], NDArray[np.uint8]]] = {}
        self.kept_bytes = 0

    def take(self, size: int, dtype: Any) -> NDArray[Any]:
        """An array of ``size`` bytes with arbitrary content."""
        whole = _block_bytes(size)
        if self.free[whole]:
            block = self.free[whole].pop()
            self.kept_bytes -= whole
        else:
            block = np.empty(whole, dtype=np.uint8)
        array: NDArray[Any] = block[:size].view(dtype)
        self.lent[id(array)] = array, block
        return array

    def give(self, array: NDArray[Any]) -> None:
        """Take back an array that is no longer in use; an array that is not the pool's is ignored."""
        _, block = self.lent.pop(id(array), (None, None))
        if block is not None and self.kept_bytes + block.size <= MOST_KEPT:
            self.free[block.size].append(block)
            self.kept_bytes += block.size

    def forget(self) -> None:
        """Leave the arrays that are still in use to their users."""
        self.lent.clear()


def _block_bytes(size: int) -> int:
    """The size of the block for an array of ``size`` bytes."""
    if size >= GRAIN_BYTES:
        return -(-size // GRAIN_BYTES) * GRAIN_BYTES
    return max(LEAST_BYTES, 1 << max(0, size - 1).bit_length())
