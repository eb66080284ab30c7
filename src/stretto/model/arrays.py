"""Array types, and lists of different lengths in two arrays (CSR)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Int8 = NDArray[np.int8]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]


def offsets_of(lengths: NDArray[Any]) -> Int64:
    """int64[lists + 1], where each of consecutive lists begins, and where the last one ends."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def distinct(values: ArrayLike) -> NDArray[Any]:
    """The values of an array, ascending, each once: ``numpy.unique`` without the module for masked arrays, whose import
    takes hundredths of a second of each rank that is given its first plan."""
    ordered = np.sort(values, axis=None)
    first = np.ones(len(ordered), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def places_of(values: NDArray[Any]) -> Int64:
    """int64[values], for each value its place among the distinct ones, ascending.

    ``numpy.unique(values, return_inverse=True)[1]`` of one row takes twice as long where there are few values.
    """
    order = values.argsort()
    ordered = values[order]
    step = np.zeros(len(values), dtype=np.int64)
    step[1:] = ordered[1:] != ordered[:-1]
    number = np.empty(len(values), dtype=np.int64)
    number[order] = step.cumsum()
    return number


class Ragged(NamedTuple):
    """Lists of different lengths as CSR: list i is ``values[offsets[i]:offsets[i + 1]]``."""

    offsets: Int64
    values: Int32

    def __repr__(self) -> str:
        return f"<Ragged: {self.rows} lists, {len(self.values)} values>"

    @classmethod
    def of(cls, lists: Sequence[Sequence[int] | Int32]) -> Ragged:
        """From a sequence of sequences."""
        lengths = np.fromiter((len(x) for x in lists), dtype=np.int64, count=len(lists))
        offsets = offsets_of(lengths)
        if all(isinstance(x, (list, tuple)) for x in lists):
            return cls(offsets, np.fromiter(chain.from_iterable(lists), dtype=np.int32, count=int(offsets[-1])))
        return cls(offsets, np.concatenate([np.asarray(x, dtype=np.int32) for x in lists]))

    @classmethod
    def single(cls, values: Sequence[int] | NDArray[Any]) -> Ragged:
        """One value in each list."""
        array = np.asarray(values, dtype=np.int32)
        return cls(np.arange(len(array) + 1, dtype=np.int64), array)

    @classmethod
    def wide(cls, offsets: Int64, values: NDArray[Any]) -> Ragged:
        """Lists of values of a type of their own: int64, where int32 is too small."""
        return cls(offsets, values)

    @classmethod
    def empty(cls, rows: int) -> Ragged:
        """``rows`` lists with nothing in them."""
        return cls(np.zeros(rows + 1, dtype=np.int64), np.zeros(0, dtype=np.int32))

    @classmethod
    def from_lengths(cls, lengths: NDArray[Any], values: NDArray[Any]) -> Ragged:
        """Consecutive lists of the given lengths; a mask of bool gives lists of one value or none."""
        return cls(offsets_of(lengths), values.astype(np.int32, copy=False))

    @classmethod
    def grouped(cls, owner: NDArray[Any], values: NDArray[Any], rows: int | None = None) -> Ragged:
        """For each of ``rows`` owners (by default as many as the largest asks for) its values, in their order.

        Args:
            owner: int[values], the list to which each value belongs.
        """
        lengths = np.bincount(owner, minlength=rows or 0)
        return cls.from_lengths(lengths, values[np.argsort(owner, kind="stable")])

    @classmethod
    def concatenate(cls, parts: Sequence[Ragged]) -> Ragged:
        """The lists of the first part, then those of the next, and so on."""
        if len(parts) == 1:
            return parts[0]
        return cls.from_lengths(np.concatenate([p.lengths for p in parts]), np.concatenate([p.values for p in parts]))

    def __getitem__(self, i: Any) -> Any:
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    @property
    def rows(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int64:
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def owners(self) -> Int64:
        """int64[values], the index of the list that each value belongs to."""
        return np.arange(self.rows).repeat(self.lengths)

    def take(self, indexes: NDArray[Any]) -> Ragged:
        """The lists at ``indexes``, in that order."""
        lengths = self.lengths[indexes]
        offsets = offsets_of(lengths)
        at = np.repeat(self.offsets[:-1][indexes] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Ragged(offsets, self.values[at])

    def reduced(self, operation: np.ufunc, entries: NDArray[Any]) -> NDArray[Any]:
        """For each list ``operation`` (``np.add``, ``np.minimum``, ...) over its entries, of which each value has one.

        No list is empty, unless all are.
        """
        return operation.reduceat(entries, self.offsets[:-1]) if len(entries) else entries

    def mask(self, columns: int) -> Bool:
        """bool[lists, columns], whether each list holds each value."""
        held = np.zeros((self.rows, columns), dtype=np.bool_)
        held[self.owners, self.values] = True
        return held

    def with_values(self, values: NDArray[Any]) -> Ragged:
        """Lists of the same lengths with other values."""
        return Ragged(self.offsets, values.astype(np.int32, copy=False))

    def reversed(self) -> Ragged:
        """Each list from its end."""
        ends = np.repeat(self.offsets[:-1] + self.offsets[1:] - 1, self.lengths)
        return Ragged(self.offsets, self.values[ends - np.arange(len(self.values))])

    def turned(self, rows: int | None = None) -> Ragged:
        """For each of ``rows`` values (by default as many as there are lists) the lists that hold it, ascending."""
        return Ragged.grouped(self.values, self.owners, self.rows if rows is None else rows)
