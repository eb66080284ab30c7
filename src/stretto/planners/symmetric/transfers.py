"""What happens to representative chunks on a chain: transfers by elements of the group.

A transfer is a route of :class:`~.routes.Routes`, by its element ``step``, mapped by the element ``near``. A copy goes
from the rank of ``near`` to that of ``near + step``, a sum the other way. All data of the owner, the rank of element 0,
is told in this one frame.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...model.arrays import Int8, Int64, Ragged
from ...model.plan import COPY, REDUCE
from ...model.symmetry import Symmetry
from .chains import Chain
from .postal import Meeting


class Transfers(NamedTuple):
    """Transfers of representative chunks, each after those that it depends on."""

    chunk: Int64  # int64[transfers], which representative, counted within these
    near: Int64  # int64[transfers], the element that maps the route
    step: Int64  # int64[transfers], the element whose route it is
    op: Int8  # int8[transfers], COPY or REDUCE
    depends: Ragged

    @property
    def total(self) -> int:
        return len(self.near)


def copies(symmetry: Symmetry, chain: Chain, roots: Int64 | None = None) -> Transfers:
    """One chunk is copied from some ranks that have it to all ranks.

    Args:
        roots: int64[ranks], the elements of these ranks; the owner alone by default. Their products with those of the
            chain's phases are all ranks.
    """
    holders = np.zeros(1, dtype=np.int64) if roots is None else roots
    brought = np.full(symmetry.size, -1, dtype=np.int64)  # the transfer that brings the chunk to each element
    none = np.zeros(0, dtype=np.int64)
    near, step, waits, count = [none], [none], [none], 0
    for phase in chain:
        at = symmetry.product(holders[:, None], phase.elements)
        new = at[:, 1:].ravel()
        brought[new] = count + np.arange(len(new))
        count += len(new)
        near.append(at[:, phase.parent[1:]].ravel())
        waits.append(brought[near[-1]])
        step.append(np.tile(phase.step[1:], len(holders)))
        holders = at.ravel()
    after = np.concatenate(waits)
    depends = Ragged.from_lengths(after >= 0, after[after >= 0])
    zeros = np.zeros(count, dtype=np.int64)
    return Transfers(zeros, np.concatenate(near), np.concatenate(step), zeros.astype(np.int8) + COPY, depends)


def sums(symmetry: Symmetry, chain: Chain, roots: Int64 | None = None) -> Transfers:
    """One chunk is summed over all ranks at its owner: its copies with time reversed. With several ``roots`` each of
    them gets the sum of a part of the ranks."""
    forth = copies(symmetry, chain, roots)
    last = forth.total - 1
    waits = Ragged.grouped(last - forth.depends.values, last - forth.depends.owners, forth.total)
    op = np.full(forth.total, REDUCE, dtype=np.int8)
    return Transfers(forth.chunk, forth.near[::-1], forth.step[::-1], op, waits)


class Circle(NamedTuple):
    """A meeting of ranks that differ in one coordinate, from 0 to one less than the circle's ranks.

    Attributes:
        digit: the coordinate.
        ranks: how many there are.
    """

    digit: int
    ranks: int
    meeting: Meeting


def sums_then_copies(
    symmetry: Symmetry, inward: Chain, outward: Chain, roots: Int64 | None = None, circles: tuple[Circle, ...] = ()
) -> Transfers:
    """One chunk is summed at its owner and copied to all ranks from there; or it is summed at several ``roots``, which
    then meet on circles until each of them has the whole sum."""
    roots = np.zeros(1, dtype=np.int64) if roots is None else roots
    first, then = sums(symmetry, inward, roots), copies(symmetry, outward, roots)
    place = np.full(symmetry.size, -1, dtype=np.int64)
    place[roots] = np.arange(len(roots))
    to_root = np.flatnonzero(place[first.near] >= 0)
    # int64[roots, transfers], what arrives at each root: as much at one as at the others
    arriving = to_root[np.argsort(place[first.near[to_root]], kind="stable")].reshape(len(roots), -1)
    met, arriving = _met(symmetry, roots, circles, first.total, arriving)
    starting = then.depends.lengths == 0
    lengths = np.where(starting, arriving.shape[1], then.depends.lengths)
    values = np.empty(int(lengths.sum()), dtype=np.int64)
    from_root = np.repeat(starting, lengths)
    values[from_root] = arriving[place[then.near[starting]]].ravel()
    values[~from_root] = first.total + met.total + then.depends.values
    depends = [first.depends, met.depends, Ragged.from_lengths(lengths, values)]
    return _joined([first, met, then], Ragged.concatenate(depends))


def _met(
    symmetry: Symmetry, roots: Int64, circles: tuple[Circle, ...], before: int, arriving: Int64
) -> tuple[Transfers, Int64]:
    """The transfers of meetings, after ``before`` others, and all that has then arrived at each root."""
    place = np.full(symmetry.size, -1, dtype=np.int64)
    place[roots] = np.arange(len(roots))
    exponents, count = symmetry.exponents(roots), len(roots)
    near, step, waits = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)], [Ragged.empty(0)]
    for circle in circles:
        known = arriving.shape[1]
        for state, window in zip(circle.meeting.states, circle.meeting.windows, strict=True):
            onward = exponents.copy()
            onward[:, circle.digit] = (onward[:, circle.digit] + window) % circle.ranks
            sender = symmetry.element(onward)
            sent = arriving[place[sender], : known + state]
            near.append(roots)
            step.append(symmetry.product(sender, symmetry.inverse(roots)))
            waits.append(Ragged.from_lengths(np.full(count, sent.shape[1]), sent.ravel()))
            rows = before + (len(near) - 2) * count + np.arange(count)
            arriving = np.column_stack([arriving, rows])
    total = (len(near) - 1) * count
    op = np.full(total, REDUCE, dtype=np.int8)
    zeros = np.zeros(total, dtype=np.int64)
    return Transfers(zeros, np.concatenate(near), np.concatenate(step), op, Ragged.concatenate(waits)), arriving


def exchange(symmetry: Symmetry, chain: Chain, goals: Int64) -> Transfers:
    """A chunk for each of ``goals`` goes from element 0 to that element; one phase of the chain after another."""
    chunk, near, step, turn = [], [], [], []
    here, passed = np.zeros(len(goals), dtype=np.int64), 0
    for phase in chain:
        place = _places(symmetry, phase.elements, goals)
        node = place  # on the way through the phase's tree, from its end
        while node.any():
            moved = np.flatnonzero(node)
            chunk.append(moved)
            near.append(symmetry.product(here[moved], phase.elements[phase.parent[node[moved]]]))
            step.append(phase.step[node[moved]])
            turn.append(passed + phase.depth[node[moved]])
            node = phase.parent[node]
        passed += int(phase.depth.max())
        here = symmetry.product(here, phase.elements[place])
    all_chunks, all_near, all_steps = (np.concatenate(column) for column in (chunk, near, step))
    order = np.lexsort((np.concatenate(turn), all_chunks))
    all_chunks = all_chunks[order]
    follows = np.diff(all_chunks, prepend=-1) == 0
    depends = Ragged.from_lengths(follows, np.flatnonzero(follows) - 1)
    op = np.full(len(order), COPY, dtype=np.int8)
    return Transfers(all_chunks, all_near[order], all_steps[order], op, depends)


def _places(symmetry: Symmetry, elements: Int64, goals: Int64) -> Int64:
    """For each goal the place of its component among the elements of a phase."""
    digits = symmetry.exponents(elements).any(axis=0)
    place = np.zeros(symmetry.size, dtype=np.int64)
    place[elements] = np.arange(len(elements))
    return place[symmetry.element(np.where(digits, symmetry.exponents(goals), 0))]


def in_parts(each: list[tuple[Transfers, int, int]]) -> tuple[Transfers, Int64]:
    """Transfers of several parts, each with the transfers of its chain.

    Args:
        each: for each chain its transfers, how many representatives these have, and how many parts go by it.
    Returns:
        all transfers, and for each the number of its part.
    """
    rows, parts, first_chunk, first, number = [], [], 0, 0, 0
    waits = []
    for transfers, chunks, count in each:
        for _ in range(count):
            rows.append(transfers._replace(chunk=transfers.chunk + first_chunk))
            waits.append(transfers.depends.with_values(transfers.depends.values + first))
            parts.append(np.full(transfers.total, number))
            first_chunk, first, number = first_chunk + chunks, first + transfers.total, number + 1
    return _joined(rows, Ragged.concatenate(waits)), np.concatenate(parts)


def _joined(each: list[Transfers], depends: Ragged) -> Transfers:
    """The transfers of all, with these dependencies."""
    chunk, near, step = (np.concatenate([getattr(t, name) for t in each]) for name in ("chunk", "near", "step"))
    return Transfers(chunk, near, step, np.concatenate([t.op for t in each]), depends)
