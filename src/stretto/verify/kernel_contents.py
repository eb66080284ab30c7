"""The verifier's loop over what transfers carry: who holds what, and in which order it was written."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kernel_referee import Lists, Violation

Bool = NDArray[np.bool_]
Int8 = NDArray[np.int8]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]
Float64 = NDArray[np.float64]

COPY, REDUCE = 0, 1
"""What a transfer does at its receiver."""


class Writes(NamedTuple):
    """What transfers read and write. A slot is a (chunk, node) pair.

    Attributes:
        chunk: int32[transfers].
        op: int8[transfers], copy or reduce.
        sources: for each transfer the nodes that send.
        src_slot: int64[sources], the slots that it reads.
        dst: for each transfer its receivers.
        dst_slot: int64[receivers], the slots that it writes.
        forwards: int8[transfers], 1 where a transfer carries what others brought, apart from what else is there.
        depends, dependents: for each transfer those it waits for, and those that wait for it.
    """

    chunk: Int32
    op: Int8
    sources: Lists
    src_slot: Int64
    dst: Lists
    dst_slot: Int64
    forwards: Int8
    depends: Lists
    dependents: Lists


def _happened_before(
    a: int, b: int, dep_offsets: Int64, dep_values: Int32, next_offsets: Int64, followers: Int32, seen: Int64,
    stamp: int, back: Int64, forth: Int64,
) -> bool:  # fmt: skip
    """Whether transfer ``b`` depends on ``a``, directly or not.

    The search follows what ``b`` waits for and what waits for ``a`` in turn, the shorter list first, until they meet: a
    copy that comes down a tree leads straight to its root, and so does a sum that goes up.

    Args:
        seen: int64[transfers], marks of earlier searches, which are below twice ``stamp``.
        back, forth: int64[transfers + 1], room for the two lists.
    """
    behind, before = 2 * stamp, 2 * stamp + 1
    seen[b], seen[a] = behind, before
    back[0], forth[0] = b, a
    backs, forths = 1, 1
    while backs > 0 and forths > 0:
        if backs <= forths:
            backs -= 1
            k = back[backs]
            for i in range(dep_offsets[k], dep_offsets[k + 1]):
                d = dep_values[i]
                if seen[d] == before:
                    return True
                if d > a and seen[d] != behind:
                    seen[d] = behind
                    back[backs] = d
                    backs += 1
        else:
            forths -= 1
            k = forth[forths]
            for i in range(next_offsets[k], next_offsets[k + 1]):
                m = followers[i]
                if seen[m] == behind:
                    return True
                if m < b and seen[m] != before:
                    seen[m] = before
                    forth[forths] = m
                    forths += 1
    return False


def contents(writes: Writes, reduces: Bool, adds_at: Bool, state: UInt64, number: Float64) -> Violation:
    """Does every transfer have what it sends, and does every write follow those before it?

    A transfer carries what its slot held at first and what those of its dependencies that wrote to the slot have
    brought. A write that happened before it and is not among its dependencies would be in the buffer all the same: that
    is a violation, unless the transfer forwards: then it carries what its dependencies have brought, and nothing else.

    Args:
        reduces: bool[chunks], whether a chunk is summed.
        adds_at: bool[nodes], which nodes can sum. The others may have several partial sums, but send each on by itself.
        state: uint64[slots], what each slot holds at first; changed to what it holds at the end.
        number: float64[slots], how many contributions that is, 0 for nothing; changed likewise. Where contributions are
            counted again and again the fingerprints wrap around, and these numbers do not.
    """
    chunk, op, sources, src_slot, dst, dst_slot, forwards, depends, dependents = writes
    dst_offsets, dep_offsets, dep_values = dst.offsets, depends.offsets, depends.values
    next_offsets, followers = dependents.offsets, dependents.values
    n = len(chunk)
    initial, initially = state.copy(), number.copy()
    value, count = np.zeros(n, dtype=np.uint64), np.zeros(n)
    copied = np.full(len(state), -1, dtype=np.int64)  # the last copy into a slot
    newest = np.full(len(state), -1, dtype=np.int64)  # its newest write, as an index into dst_slot
    older = np.full(len(dst_slot), -1, dtype=np.int64)  # the write before it
    writer = np.empty(len(dst_slot), dtype=np.int64)
    listed = np.full(n, -1, dtype=np.int64)
    seen = np.full(n, -1, dtype=np.int64)
    back, forth = np.empty(n + 1, dtype=np.int64), np.empty(n + 1, dtype=np.int64)
    stamp = 0
    for k in range(n):
        marked = False
        for j in range(sources.offsets[k], sources.offsets[k + 1]):
            s = src_slot[j]
            held, holds = initial[s], initially[s]
            if forwards[k]:
                held, holds = np.uint64(0), 0.0
            carried, parts = held, holds
            if newest[s] >= 0:
                if not marked:
                    marked = True
                    for i in range(dep_offsets[k], dep_offsets[k + 1]):
                        listed[dep_values[i]] = k
                i, brought = newest[s], -1
                while i >= 0:
                    w = writer[i]
                    if listed[w] == k:
                        if brought >= 0 and not adds_at[sources.values[j]]:
                            return 29, k, w, j
                        brought = w
                        if op[w] == COPY:
                            carried = carried - held + value[w]
                            parts = parts - holds + count[w]
                            break
                        carried = carried + value[w]
                        parts += count[w]
                    elif not forwards[k]:
                        stamp += 1
                        if _happened_before(
                            w, k, dep_offsets, dep_values, next_offsets, followers, seen, stamp, back, forth
                        ):
                            return 12, k, w, j
                    i = older[i]
                if parts == 0:
                    return 12, k, writer[newest[s]], j
            if parts == 0:
                return 11, k, -1, j
            value[k] += carried
            count[k] += parts
        adds = op[k] == REDUCE
        if not reduces[chunk[k]] and (adds or sources.offsets[k + 1] - sources.offsets[k] > 1):
            return 13, k, -1, sources.offsets[k]
        for i in range(dst_offsets[k], dst_offsets[k + 1]):
            w = dst_slot[i]
            j = newest[w]
            while j >= 0:
                # sums commute; any other pair of writes must be ordered
                if not (adds and writer[j] != copied[w]):
                    stamp += 1
                    if not _happened_before(
                        writer[j], k, dep_offsets, dep_values, next_offsets, followers, seen, stamp, back, forth
                    ):
                        return 14, k, writer[j], sources.offsets[k]
                if writer[j] == copied[w]:
                    break
                j = older[j]
            writer[i] = k
            older[i] = newest[w]
            newest[w] = i
            if adds:
                state[w] = state[w] + value[k]
                number[w] += count[k]
            else:
                state[w] = value[k]
                number[w] = count[k]
                copied[w] = k
    return 0, -1, -1, -1
