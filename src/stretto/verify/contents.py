"""What nodes hold: everything sent is there, writes are ordered, and every rank ends with exactly what it wants.

Sums are followed as fingerprints: each contribution is a 64-bit hash, a sum is the sum of the hashes, and a complete
sum must equal that over all holders, and have as many contributions. A wrong set of that many contributions passes with
a probability of 2^-64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import at_speed
from ..model.arrays import Float64, Int64, Ragged
from ..model.plan import Plan
from . import kernel_contents
from .findings import CODES, Finding, about

UInt64 = NDArray[np.uint64]

STEPS_A_TRANSFER = 4.0
"""Steps of the kernel's inner loop for each transfer, about."""

LARGEST_TABLE = 1 << 24
"""Most (chunk, node) pairs that are numbered without sorting those that a plan touches."""


def wrong_contents(plan: Plan) -> Finding | None:
    """The first transfer that sends what is not there or writes out of order; else the first rank without its chunk."""
    work = plan.workload
    slots = _Slots(plan)
    state, number = slots.initial()
    writes = kernel_contents.Writes(
        chunk=plan.chunk, op=plan.op, sources=plan.sources,
        src_slot=slots.of(plan.chunk[plan.sources.owners], plan.sources.values), dst=plan.dst,
        dst_slot=slots.of(plan.chunk[plan.dst.owners], plan.dst.values),
        forwards=np.zeros(plan.transfer_count, dtype=np.int8) if plan.forwards is None else plan.forwards,
        depends=plan.depends, dependents=plan.dependents,
    )  # fmt: skip
    with np.errstate(over="ignore"):  # fingerprints wrap around
        code, k, other, at = at_speed(kernel_contents.contents, STEPS_A_TRANSFER * plan.transfer_count)(
            writes, work.chunk_reduces, plan.topology.adds, state, number
        )
    if code:
        name, k = CODES[code], int(k)
        other_words = plan.describe(int(other)) if other >= 0 else ""
        node = int(plan.sources.values[at])
        words = {
            "not-held": f"sends what {plan.topology.names[node]} does not have",
            "missing-dependency": f"does not depend on {other_words}, which brought or changed what it sends",
            "reduce-of-copy": "adds to a chunk that is not to be summed",
            "no-reduction": f"sends the sum of what {other_words} and others brought to "
            f"{plan.topology.names[node]}, which cannot sum",
            "unordered-writes": f"and {other_words} write to the same chunk at the same node, "
            "and neither waits for the other",
        }[name]
        return about(plan, name, k, words, node=node)
    wanted = work.chunk_wanted
    ends = slots.of(wanted.owners, wanted.values)
    complete, parts = slots.complete()
    bad = np.flatnonzero((state[ends] != complete[wanted.owners]) | (number[ends] != parts[wanted.owners]))
    if not len(bad):
        return None
    chunk, node = int(wanted.owners[bad[0]]), int(wanted.values[bad[0]])
    what = "never gets" if number[ends[bad[0]]] == 0 else "ends with a wrong sum of"
    return Finding("incomplete", f"{plan.topology.names[node]} {what} chunk {chunk}", chunk=chunk, node=node)


class _Slots:
    """Numbers the slots, (chunk, node) pairs, that a plan touches, and says what they hold at first and must hold."""

    def __init__(self, plan: Plan) -> None:
        self.nodes = plan.topology.node_count
        self.holders: Ragged = plan.workload.chunk_holders
        self.reduces = plan.workload.chunk_reduces
        self.keys: Int64 | None = None
        self.count = plan.workload.chunk_count * self.nodes
        if self.count > LARGEST_TABLE:
            wanted = plan.workload.chunk_wanted
            parts = [
                self._key(plan.chunk[plan.sources.owners], plan.sources.values),
                self._key(plan.chunk[plan.dst.owners], plan.dst.values),
                self._key(wanted.owners, wanted.values),
                self._key(self.holders.owners, self.holders.values),
            ]
            self.keys = np.unique(np.concatenate(parts))
            self.count = len(self.keys)

    def _key(self, chunk: NDArray[Any], node: NDArray[Any]) -> Int64:
        key: Int64 = chunk.astype(np.int64) * self.nodes + node
        return key

    def of(self, chunk: NDArray[Any], node: NDArray[Any]) -> Int64:
        """int64, the slots of these pairs."""
        key = self._key(chunk, node)
        return key if self.keys is None else np.searchsorted(self.keys, key).astype(np.int64)

    def initial(self) -> tuple[UInt64, Float64]:
        """uint64[slots], the contribution of each holder, 0 elsewhere, and float64[slots], how many that is."""
        state, number = np.zeros(self.count, dtype=np.uint64), np.zeros(self.count)
        held = self.of(self.holders.owners, self.holders.values)
        state[held] = self._contributions()
        number[held] = 1.0
        return state, number

    def complete(self) -> tuple[UInt64, Int64]:
        """uint64[chunks], what a rank that wants the chunk must end with; int64[chunks], of how many contributions."""
        totals = self.holders.reduced(np.add, self._contributions())
        return np.where(self.reduces, totals, np.uint64(1)), np.where(self.reduces, self.holders.lengths, 1)

    def _contributions(self) -> UInt64:
        """uint64[holders of chunks], a hash for each summand, 1 for what is only copied."""
        chunk, node = self.holders.owners.astype(np.uint64), self.holders.values.astype(np.uint64)
        # splitmix64
        x = (chunk * np.uint64(self.nodes) + node + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
        return np.where(self.reduces[self.holders.owners], x, np.uint64(1))
