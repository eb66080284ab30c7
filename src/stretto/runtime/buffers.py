"""What the chunks of one node hold while a program runs.

A chunk has versions (see :mod:`stretto.lower`); one is made when all that it is made of is there, in the memory
of its base if nobody else needs that, and is forgotten when it was sent to all and copied by all.
Arrivals land in the caller's output where that is free: most bytes are never copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..lower import NOTHING, Program

Array = NDArray[Any]
Reduce = Callable[..., Any]


def as_bytes(array: Array) -> memoryview:
    """The bytes of a contiguous array."""
    return array.data.cast("B") if array.size else memoryview(b"")


class Slot:
    """One chunk at one node."""

    def __init__(
        self,
        program: Program,
        chunk: int,
        given: Array | None,
        home: Array | None,
        reduce: Reduce,
        size: int,
        dtype: Any,
    ) -> None:
        self.versions, self.final = program.versions.get(chunk, ()), program.final.get(chunk)
        self.reduce, self.size, self.dtype, self.home = reduce, size, dtype, home
        self.arrays: list[Array | None] = [None] * len(self.versions)
        self.users = [0] * len(self.versions)
        self.missing = [len(v.adds) + (v.base != NOTHING) for v in self.versions]
        self.wanted_by: dict[int, list[int]] = {}
        self.payloads: dict[int, Array] = {}
        self.left: dict[int, int] = {}
        for i, version in enumerate(self.versions):
            if version.base != NOTHING:
                self.users[version.base] += 1
            for row in version.adds:
                self.wanted_by.setdefault(row, []).append(i)
                self.left[row] = self.left.get(row, 0) + 1
        if self.final is not None:
            self.users[self.final] += 1
        # an input that is also the output may be changed, any other may not
        self.frozen = given if given is not None and (home is None or not np.may_share_memory(given, home)) else None
        self.home_free = home is not None and (given is None or self.frozen is not None)
        self.given = given

    def begin(self) -> list[int]:
        """Make what can be made of what the node holds at first; the versions that are there."""
        if self.versions and self.given is not None:
            self.arrays[0] = self.given
            return [0, *self._follow(0)]
        return []

    def room(self, row: int, copies: bool) -> Array:
        """Where the bytes of an arrival go: home if they may stay there, else memory of their own."""
        if copies and self.home_free and self.left.get(row) == 1 and self.home is not None:
            self.home_free = False
            return self.home
        return np.empty(self.size // np.dtype(self.dtype).itemsize, dtype=self.dtype)

    def arrive(self, row: int, payload: Array) -> list[int]:
        """Take what arrived; the versions that it completes."""
        if row not in self.left:
            return []
        self.payloads[row] = payload
        made: list[int] = []
        for i in self.wanted_by[row]:
            self.missing[i] -= 1
            if self.missing[i] == 0:
                made += self._make(i)
        return made

    def used(self, version: int) -> None:
        """One who needed a version needs it no longer."""
        self.users[version] -= 1
        if self.users[version] == 0:
            self._free(self.arrays[version])
            self.arrays[version] = None

    def finish(self) -> None:
        """Put the final version into the output, when all has been sent."""
        if self.final is None or self.home is None:
            return
        array = self.arrays[self.final]
        assert array is not None, "a run ends when all versions are made"
        if array.ctypes.data != self.home.ctypes.data:
            self.home[:] = array

    def _make(self, i: int) -> list[int]:
        version, array, own = self.versions[i], None, False
        if version.base != NOTHING:
            array = self.arrays[version.base]
            own = self.users[version.base] == 1 and array is not self.frozen
        for row in version.adds:
            array, own = self._put(array, own, row), True
        if version.base != NOTHING:
            if self.arrays[version.base] is array:
                self.arrays[version.base] = None  # its memory lives on in this version
            self.used(version.base)
        self.arrays[i] = array
        return [i, *self._follow(i)]

    def _put(self, array: Array | None, own: bool, row: int) -> Array:
        """Put an arrival on what is there so far, in memory that is this version's own."""
        payload = self.payloads[row]
        self.left[row] -= 1
        last = self.left[row] == 0
        if last:
            del self.payloads[row]
        if array is None:
            return payload if last else payload.copy()
        out = array if own else payload if last else np.empty_like(payload)
        if self.home is not None and self.home_free and not own:
            out, self.home_free = self.home, False
        self.reduce(array, payload, out=out)
        if last and out is not payload:
            self._free(payload)
        return out

    def _follow(self, i: int) -> list[int]:
        """The versions that only waited for version i."""
        made: list[int] = []
        for j, version in enumerate(self.versions):
            if version.base == i:
                self.missing[j] -= 1
                if self.missing[j] == 0:
                    made += self._make(j)
        return made

    def _free(self, array: Array | None) -> None:
        if array is not None and self.home is not None and array.size and np.may_share_memory(array, self.home):
            self.home_free = True


class Buffers:
    """All chunks of one node during a run.

    Args:
        inputs: for each chunk that the node holds at first, its content.
        outputs: for each chunk that it wants, where the result goes; may be the same memory.
        sizes: bytes of each chunk.
        reduce: such as ``numpy.add``.
    """

    def __init__(
        self,
        program: Program,
        inputs: Mapping[int, Array],
        outputs: Mapping[int, Array],
        sizes: NDArray[np.int64],
        dtype: Any,
        reduce: Reduce,
    ) -> None:
        self.program, self.inputs, self.outputs = program, inputs, outputs
        self.sizes, self.dtype, self.reduce = sizes, dtype, reduce
        self.slots: dict[int, Slot] = {}
        chunks = {*program.versions, *(r.chunk for r in program.receives.values())}
        for chunk in sorted(chunks):
            self.slots[chunk] = Slot(
                program, chunk, inputs.get(chunk) if chunk in program.held else None, outputs.get(chunk), reduce,
                int(sizes[chunk]), dtype,
            )  # fmt: skip
        for send in program.sends.values():
            self.slots[send.chunk].users[send.version] += len(send.to)

    def begin(self) -> None:
        for slot in self.slots.values():
            slot.begin()

    def content(self, chunk: int, version: int) -> Array:
        array = self.slots[chunk].arrays[version]
        assert array is not None, "a transfer waits for all that made what it sends"
        return array

    def finish(self) -> None:
        for slot in self.slots.values():
            slot.finish()
