"""One order of sums for all ranks: each sum of the same contributions is bracketed alike wherever it is made.

Ranks that exchange sums get the same contributions in unlike orders, and would end with unlike bits. What a transfer
brings is a set of contributions. Where any two such sets of a chunk are disjoint, or one holds the other, the sets are
a tree: a set is the sum of the largest sets in it, in the order of the ranks. So a rank adds what came in the order of
the tree, its own contribution in the middle where that belongs there. What is sent, and after what, stays as it is.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ..model.arrays import Int32, Int64, Ragged, offsets_of
from ..model.plan import COPY, REDUCE, Plan
from ..model.symmetric import SymmetricPlan
from .kernel_programs import NOTHING

MOST_TRANSFERS = 100_000
"""Transfers of a plan up to which its sums are ordered; beyond, ranks add up in the order of transfers. A set of
contributions has a bit for each rank. Exchanges have fewer transfers; other plans add up along trees."""

Tree = dict[int, tuple[int, ...]]
"""For each set of several contributions, as bits by node, those whose sum it is, in order."""


class SumTrees(NamedTuple):
    """How sums are bracketed.

    Attributes:
        of: for each chunk that is exchanged its tree; chunks whose sets are no tree are left out.
        carried: for each transfer the set that it carries.
    """

    of: dict[int, Tree]
    carried: list[int]


_known: WeakKeyDictionary[Plan, SumTrees | None] = WeakKeyDictionary()


def sum_trees(plan: Plan) -> SumTrees | None:
    """The trees of a plan; None where there is no exchange, so that sums of a chunk are made at one rank each."""
    if plan not in _known:
        _known[plan] = _trees_of(plan.expand() if isinstance(plan, SymmetricPlan) else plan) if _swaps(plan) else None
    return _known[plan]


def is_exchange(plan: Plan) -> bool:
    """Whether some chunks that several ranks want are summed at several ranks."""
    part, images = (plan.part, plan.symmetry.size) if isinstance(plan, SymmetricPlan) else (plan, 1)
    sums, work = images * int((part.op == REDUCE).sum()), plan.workload
    if not sums or not any(c.traits.reduces_to_all for c in work.collectives):
        return False
    return sums != sum(c.chunk_count * (len(c.ranks) - 1) for c in work.collectives if c.reduces)


def _swaps(plan: Plan) -> bool:
    return is_exchange(plan) and plan.transfer_count <= MOST_TRANSFERS


def _trees_of(plan: Plan) -> SumTrees:
    """See :func:`sum_trees`."""
    work, op = plan.workload, plan.op.tolist()
    holders = [set(work.chunk_holders[c].tolist()) for c in range(work.chunk_count)]
    arrivals: dict[tuple[int, int], list[int]] = {}  # by chunk and node
    carried: list[int] = []
    forwards = np.zeros(len(op), dtype=np.int8) if plan.forwards is None else plan.forwards
    wrong = {*np.flatnonzero(~(work.chunk_reduces & (work.chunk_wanted.lengths > 1))).tolist()}

    def total(chunk: int, node: int, rows: list[int], forwards: int = 0) -> int:
        """The set that arrivals make of what a node holds; sets that overlap are no sum."""
        copies = [i for i, k in enumerate(rows) if op[k] == COPY]
        made = 0 if forwards or copies or node not in holders[chunk] else 1 << node
        for k in rows[copies[-1] :] if copies else rows:
            if made & carried[k]:
                wrong.add(chunk)
            made |= carried[k]
        return made

    for k, (chunk, src) in enumerate(zip(plan.chunk.tolist(), plan.src.tolist(), strict=True)):
        here = arrivals.get((chunk, src), [])
        waited = {*plan.depends[k].tolist()}
        carried.append(total(chunk, src, [d for d in here if d in waited], int(forwards[k])))
        for node in plan.dst[k].tolist():
            arrivals.setdefault((chunk, node), []).append(k)
    sets: dict[int, set[int]] = {}
    for chunk, made in zip(plan.chunk.tolist(), carried, strict=True):
        sets.setdefault(chunk, set()).add(made)
    for chunk, among in sets.items():
        for node in work.chunk_wanted[chunk].tolist():
            among.add(total(chunk, node, arrivals.get((chunk, node), [])))
    trees = {c: tree for c, among in sets.items() if c not in wrong and (tree := _tree(among)) is not None}
    return SumTrees(trees, carried)


def _tree(sets: set[int]) -> Tree | None:
    """Sets as a tree; None where two of them overlap and neither holds the other."""
    tree: Tree = {}
    roots: list[int] = []
    for whole in sorted(sets, key=int.bit_count):
        inside = [s for s in roots if s & whole]
        if any(s & ~whole for s in inside):
            return None
        roots = [s for s in roots if not s & whole] + [whole]
        if whole.bit_count() > 1:
            rest = whole & ~sum(inside)
            alone = [1 << bit for bit in range(rest.bit_length()) if rest >> bit & 1]
            tree[whole] = tuple(sorted([*inside, *alone], key=lambda s: s & -s))
    return tree


class Versions(NamedTuple):
    """The versions of chunks, as :func:`.kernel_programs.versions` gives them; ``adds`` may name other versions."""

    of_send: Int32
    final: Int32
    offsets: Int64
    base: Int32
    adds: Ragged


class Slot(NamedTuple):
    """A chunk at a node: its tree, what the node contributes alone (0 for nothing), and what its receives bring."""

    tree: Tree
    alone: int
    brings: dict[int, int]


def in_one_order(found: Versions, slots: list[Slot | None], of_send: Int64) -> Versions:
    """The same versions in the order of trees; slots without one are left as they are.

    Args:
        of_send: int64[sends], the slot of each send; below 0 for turns and barriers.
    """
    offsets, base, adds = found.offsets.tolist(), found.base.tolist(), found.adds
    final, counts = found.final.copy(), []
    bases: list[int] = []
    lists: list[list[int]] = []
    number = np.arange(len(base)) - np.repeat(found.offsets[:-1], np.diff(found.offsets))
    for s, slot in enumerate(slots):
        a, b = offsets[s], offsets[s + 1]
        own = [(base[i], adds[i].tolist()) for i in range(a, b)]
        if slot is not None and b > a:
            own, numbers = _Order(slot).rewritten(own)
            number[a:b] = numbers
        bases += [below for below, _ in own]
        lists += [more for _, more in own]
        counts.append(len(own))
    wants = final != NOTHING
    final[wants] = number[found.offsets[:-1][wants] + final[wants]]
    sends, carries = found.of_send.copy(), of_send >= 0
    sends[carries] = number[found.offsets[of_send[carries]] + sends[carries]]
    return Versions(
        sends, final, offsets_of(np.array(counts, dtype=np.int64)), np.array(bases, dtype=np.int32),
        Ragged.of(lists),
    )  # fmt: skip


class _Order:
    """The versions of one chunk at one node. A receive is its number, a version the complement of its number."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.versions: list[tuple[int, list[int]]] = [(NOTHING, [])]
        self.known: dict[frozenset[int], int] = {}

    def rewritten(self, versions: list[tuple[int, list[int]]]) -> tuple[list[tuple[int, list[int]]], list[int]]:
        """The versions in the order of the tree, and for each of those before its number among them."""
        made_of: list[list[int]] = []
        numbers = []
        for i, (base, adds) in enumerate(versions):
            first = made_of[base] if base != NOTHING else []
            made_of.append([*first, *adds] if i else [~0] if self.slot.alone else [])
            numbers.append(~self.version(made_of[i]) if i else 0)
        return self.versions, numbers

    def version(self, parts: list[int]) -> int:
        """The version that consists of these parts."""
        sets = {self.slot.brings[p] if p >= 0 else self.slot.alone: p for p in parts}
        made = self.sum_of(sum(sets), sets)
        return made if made < 0 else self.add([made])

    def sum_of(self, whole: int, sets: dict[int, int]) -> int:
        """A part, or the version that is the sum of several."""
        if whole in sets:
            return sets[whole]
        return self.add([self.sum_of(s, sets) for s in self.slot.tree[whole]])

    def add(self, parts: list[int]) -> int:
        """The version that adds up parts in their order."""
        key = frozenset(parts)
        if key not in self.known:
            if len(parts) > 1 and parts[0] >= 0 > parts[1]:  # a + b = b + a
                parts[:2] = parts[1::-1]
            base, adds = (~parts[0], parts[1:]) if parts[0] < 0 else (NOTHING, parts)
            self.versions.append((base, adds))
            self.known[key] = ~(len(self.versions) - 1)
        return self.known[key]
