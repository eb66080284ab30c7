"""The memory of one node's chunks while a program runs.

A chunk has versions (see :mod:`stretto.lower`). A version grows by its arrivals in their fixed order, in the memory
of its base if nothing else needs that, and is freed when it has been sent to and copied by everyone who needs it.
An arrival is received into the caller's output where that is free, and a sum is added while it arrives if it is next
in the order: most bytes are never copied and never stored twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..lower import NOTHING, Steps
from .pool import Pool

Array = NDArray[Any]
Reduce = Callable[..., Any]


def as_bytes(array: Array) -> memoryview:
    """The bytes of a contiguous array."""
    return array.data.cast("B") if array.size else memoryview(b"")


class Slot:
    """One chunk at one node."""

    def __init__(self, buffers: Buffers, chunk: int) -> None:
        self.versions, self.final, held, size = buffers.steps.chunks[chunk]
        self.size = size if buffers.sizes is None else int(buffers.sizes[chunk])
        self.reduce, self.dtype = buffers.reduce, np.dtype(buffers.dtype)
        self.pool, self.output = buffers.pool, buffers.outputs.get(chunk)
        self.input = buffers.inputs.get(chunk) if held else None
        self.arrays: list[Array | None] = [None] * len(self.versions)
        # of a version that is being built: its memory, and how many of its arrivals are in it
        self.out: list[Array | None] = [None] * len(self.versions)
        self.put = [0] * len(self.versions)
        self.users = [0] * len(self.versions)
        self.versions_with: dict[int, list[int]] = {}
        self.payloads: dict[int, Array] = {}
        self.left: dict[int, int] = {}
        for i, version in enumerate(self.versions):
            if version.base != NOTHING:
                self.users[version.base] += 1
            for row in version.adds:
                if row < 0:
                    self.users[~row] += 1
                    continue
                self.versions_with.setdefault(row, []).append(i)
                self.left[row] = self.left.get(row, 0) + 1
        if self.final is not None:
            self.users[self.final] += 1
        # an input may be changed only if it is also the output
        self.in_place = (
            self.input is not None and self.output is not None and np.may_share_memory(self.input, self.output)
        )
        self.frozen = None if self.in_place else self.input
        self.output_free = self.output is not None and not self.in_place

    def begin(self) -> None:
        """Build the versions that need nothing but what the node holds at first."""
        if self.versions and self.input is not None:
            self.arrays[0] = self.input
            self._follow(0)

    def next_on(self, row: int) -> int | None:
        """The version to which an arrival can be added at once, since it is next in the order; else None."""
        i = self._only_sum(row)
        return i if i is not None and self.versions[i].adds[self.put[i]] == row else None

    def comes_early(self, row: int) -> bool:
        """Whether an arrival must be stored only because other arrivals have to be added before it."""
        return self._only_sum(row) is not None and self.next_on(row) is None

    def _only_sum(self, row: int) -> int | None:
        """The version that alone still needs an arrival, if its base exists and arrivals are missing from it."""
        if self.left.get(row) != 1:
            return None
        (i,) = self.versions_with[row]
        base = self.versions[i].base
        begins = base != NOTHING and self.arrays[base] is not None and self.put[i] < len(self.versions[i].adds)
        return i if begins else None

    def memory(self, row: int, copies: bool) -> Array:
        """Where to receive an arrival: the output if the bytes may stay there, else memory from the pool."""
        if copies and self.output_free and self.left.get(row) == 1 and self.output is not None:
            self.output_free = False
            return self.output
        return self.pool.take(self.size, self.dtype)

    def add(self, i: int, low: int, piece: Array) -> None:
        """Add elements, from index ``low`` on, of the arrival that is next on version i."""
        sum_before, out = self._places(i)
        high = low + len(piece)
        self.reduce(sum_before[low:high], piece, out=out[low:high])

    def finish_row(self, row: int) -> None:
        """Note that a whole arrival has been added."""
        (i,) = self.versions_with[row]
        self._places(i)  # an empty arrival has never called add()
        self.left[row] = 0
        self.put[i] += 1
        self._grow(i)

    def arrive(self, row: int, payload: Array) -> None:
        """Take a whole arrival, which is in memory from :meth:`memory`."""
        if row not in self.left:
            return
        self.payloads[row] = payload
        for i in self.versions_with[row]:
            self._grow(i)

    def take(self, row: int, copies: bool, content: memoryview) -> None:
        """Take a whole arrival from memory that is not ours: store it, or add it to the sum in which it is next."""
        of = self.versions_with.get(row, ())
        if len(of) == 1 and self.versions[of[0]] == (NOTHING, (row,)):  # it is all of the one version that has it
            i = of[0]
            self.arrays[i] = array = self.memory(row, copies)
            as_bytes(array)[:] = content
            self.put[i], self.left[row] = 1, 0
            if len(self.versions) > 1:
                self._follow(i)
            return
        version = self.next_on(row)
        array = self.memory(row, copies) if version is None else self.pool.take(self.size, self.dtype)
        as_bytes(array)[:] = content
        if version is None:
            self.arrive(row, array)
            return
        self.add(version, 0, array)
        self.pool.give(array)
        self.finish_row(row)

    def release(self, version: int) -> None:
        """Note that one user of a version no longer needs it."""
        self.users[version] -= 1
        if self.users[version] == 0:
            self._free(self.arrays[version])
            self.arrays[version] = None

    def finish(self) -> None:
        """Put the final version into the output, after everything has been sent."""
        if self.final is None or self.output is None:
            return
        array = self.arrays[self.final]
        assert array is not None, "a run ends when all versions are complete"
        if array is not self.output and not (array is self.input and array.ctypes.data == self.output.ctypes.data):
            self.output[:] = array
        self.release(self.final)

    def _grow(self, i: int) -> None:
        """Apply to version i the arrivals that are next in its order; once it is complete, continue its successors."""
        version = self.versions[i]
        base = None if version.base == NOTHING else self.arrays[version.base]
        if self.arrays[i] is not None or (version.base != NOTHING and base is None):
            return
        while self.put[i] < len(version.adds) and self._has(version.adds[self.put[i]]):
            self._put(i, version.adds[self.put[i]])
            self.put[i] += 1
        if self.put[i] < len(version.adds):
            return
        self.arrays[i], self.out[i] = self.out[i], None
        if version.base != NOTHING:
            if base is self.arrays[i]:
                self.arrays[version.base] = None  # the base's memory becomes this version's
            self.release(version.base)
        self._follow(i)

    def _has(self, part: int) -> bool:
        """Whether a whole arrival, or another version, is there to be added."""
        return part in self.payloads if part >= 0 else self.arrays[~part] is not None

    def _put(self, i: int, row: int) -> None:
        """Copy or add a whole arrival, or another version, to version i."""
        if row < 0:
            sum_before, out = self._places(i)
            self.reduce(sum_before, self.arrays[~row], out=out)
            self.release(~row)
            return
        payload = self.payloads[row]
        self.left[row] -= 1
        last = self.left[row] == 0
        if last:
            del self.payloads[row]
        if self.versions[i].base == NOTHING and not self.put[i]:
            self.out[i] = payload if last else payload.copy()
            return
        sum_before, out = self._places(i)
        self.reduce(sum_before, payload, out=out)
        if last:
            self._free(payload)

    def _places(self, i: int) -> tuple[Array, Array]:
        """Where version i is now, and where it continues: memory that it may change."""
        base, out = self.versions[i].base, self.out[i]
        sum_before = self.arrays[base] if base != NOTHING and not self.put[i] else out
        assert sum_before is not None, "a version grows from its base, or from its first arrival"
        if out is None:
            if self.users[base] == 1 and sum_before is not self.frozen:
                out = sum_before
            elif self.output is not None and self.output_free:
                out, self.output_free = self.output, False
            else:
                out = self.pool.take(self.size, self.dtype)
            self.out[i] = out
        return sum_before, out

    def _follow(self, i: int) -> None:
        """Continue the versions that waited for version i."""
        for j, version in enumerate(self.versions):
            if version.base == i or ~i in version.adds:
                self._grow(j)

    def _free(self, array: Array | None) -> None:
        if array is None or not array.size:
            return
        if array is self.output or (array is self.input and self.in_place):
            self.output_free = True
        else:
            self.pool.give(array)


@dataclass
class Buffers:
    """All chunks of one node during a run."""

    steps: Steps
    inputs: Mapping[int, Array]  # for each chunk that the node holds at first, its content
    # for each chunk that the node wants, the memory of the result; may be that of the input
    outputs: Mapping[int, Array]
    sizes: Mapping[int, int] | NDArray[np.int64] | None  # bytes of chunks by their numbers, if not the workload's
    dtype: Any
    reduce: Reduce  # a function such as ``numpy.add``
    pool: Pool = field(default_factory=Pool)  # gives the memory of arrivals

    def __post_init__(self) -> None:
        self.slots = {chunk: Slot(self, chunk) for chunk in self.steps.chunks}
        for send in self.steps.sends.values():
            self.slots[send.chunk].users[send.version] += len(send.to)

    def begin(self) -> None:
        for slot in self.slots.values():
            slot.begin()

    def content(self, chunk: int, version: int) -> Array:
        array = self.slots[chunk].arrays[version]
        assert array is not None, "a transfer waits for all that its version consists of"
        return array

    def finish(self) -> None:
        for slot in self.slots.values():
            slot.finish()
        self.pool.forget()
