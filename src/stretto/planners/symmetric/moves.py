"""Messages that all ranks send alike, each with several chunks: for middle sizes, where messages cost.

A *move* is a message from every rank to the one that differs from it by some element of the group. It takes along
chunks that have come by earlier moves. What the moves do to the chunk of one owner they do to all, so a program of
moves among 512 GPUs is found with the work for one chunk. It goes coordinate by coordinate: along each, ranks send what
they have straight to all others, or in fewer messages that grow (Bruck et al., IEEE TPDS 1997), or around a circle.
What has come along one coordinate goes on along the next one in batches, so that links of both are busy at the same
time. ReduceScatter is AllGather with time reversed, AllReduce is both, and in an AllToAll the data for a rank goes as
the chunk of an AllGather would go there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from ...model.arrays import Bool, Float64, Int64, Ragged, distinct
from ...model.plan import COPY, REDUCE
from ...model.symmetry import Symmetry
from .routes import Routes
from .times import Table, Times, schedule

RADICES = 2, 3, 4, 8
"""By how much, at most, what a rank has grows while it waits for nothing; those that are less than all of a line."""

BATCHES = 1, 2, 3, 4, 6, 8, 12, 16, 32
"""Parts in which what has come along one coordinate goes on along the next."""

MOST_LINES = 3
"""Coordinates of more than one rank, at most."""

MOST_MOVES = 1_000
"""Moves of a program, at most."""

MOST_OUTLINES = 4_000
"""Outlines of programs that are looked at, at most: 0.2 s of CPU."""

MOST_TRIED = 24
"""Programs whose moves are scheduled: those that end first by an estimate."""


class Line(NamedTuple):
    """How ranks that differ in one coordinate alone gather what each of them has.

    Attributes:
        moves: of each the exponent of its step, and those by which its sender differs from the owners of what it takes.
        message_s, chunk_s: float64[links], for how long the messages and the chunks keep the links of each orbit, at
            the orbit's first link.
        latency_s: of the moves that wait for each other.
    """

    name: str
    moves: Sequence[tuple[int, Int64]]
    message_s: Float64
    chunk_s: Float64
    latency_s: float


class Program(NamedTuple):
    """Moves by which a chunk comes from its owner to all ranks.

    Attributes:
        step: int64[moves], the element by which the receiver differs from the sender.
        taken: for each move the elements by which its sender differs from the owners of what it takes along.
        by, before: int64[elements], the move that brings a chunk there, and where it comes from; -1 for the owner.
    """

    summary: str
    step: Int64
    taken: Ragged
    by: Int64
    before: Int64

    @property
    def waits(self) -> Ragged:
        """For each move those that bring what it takes along."""
        brought = self.by[self.taken.values]
        came, count = brought >= 0, len(self.step)
        pairs = distinct(self.taken.owners[came] * count + brought[came])
        return Ragged.grouped(pairs // count, pairs % count, count)


class Hops(NamedTuple):
    """What the moves of a program do to the data of one owner, hop by hop.

    Attributes:
        move: int64[hops].
        at: int64[hops], the element by which the sender differs from the owner.
        goal: int64[hops], in an AllToAll the element by which the rank that the data is for does, else 0.
        waits: for each hop the one that brings what it sends on, if any.
    """

    move: Int64
    at: Int64
    goal: Int64
    waits: Ragged


class Found(NamedTuple):
    """A program with its times.

    Attributes:
        sums, copies: whether its moves sum, with time reversed, and whether they copy; sums come first.
        times: of the moves of both; those of sums from the last to the first.
    """

    program: Program
    hops: Hops
    sums: bool
    copies: bool
    times: Times

    @property
    def each(self) -> tuple[int, int]:
        """The transfers and the messages of each rank."""
        halves = self.sums + self.copies
        return halves * len(self.hops.move), halves * len(self.program.step)


def best_moves(
    symmetry: Symmetry, digits: Sequence[int], table: Table, block_bytes: int, halves: tuple[bool, bool], pairs: bool
) -> Found | None:
    """The program that ends first; None where ranks are not joined along each coordinate.

    Args:
        digits: the generators that move ranks.
        block_bytes: of the largest chunk.
        halves: whether its moves sum, and whether they copy.
        pairs: whether there is a chunk for each other rank.
    """
    routes = [r for r, used in zip((table.inward, table.outward), halves, strict=True) if used]
    reached: Bool = np.logical_and.reduce([r.reached for r in routes])
    lines = {
        k: list(_lines(symmetry, k, reached, routes[-1], block_bytes, pairs)) for k in digits if symmetry.orders[k] > 1
    }
    if len(lines) > MOST_LINES:
        return None
    best: Found | None = None
    for outline in _soonest(symmetry, lines, pairs):
        program = _program(symmetry, outline)
        hops = _hops(symmetry, program, pairs)
        size = np.bincount(hops.move, minlength=len(program.step)) * block_bytes
        found = Found(program, hops, *halves, _times(symmetry, program, size, table, halves))
        if best is None or found.times.completion_s < best.times.completion_s:
            best = found
    return best


Stage = tuple[int, Line, int]
"""A generator, how moves go along it, and in how many batches."""


class _Outline(NamedTuple):
    """Stages of a program, and what they take, about.

    Attributes:
        sizes: int64[arrivals], the chunks that have come together, in the order in which they do.
        total_s: float64[links], for how long the links of each orbit are busy, at its first link.
        path_s: for how long moves follow each other: all along the first coordinate, then those of the last batches.
        moves: how many there are.
    """

    stages: tuple[Stage, ...]
    sizes: Int64
    total_s: Float64
    path_s: float
    moves: int

    @property
    def end_s(self) -> float:
        """When it ends at least, about."""
        return max(float(self.total_s.max()), self.path_s)

    def further(self, symmetry: Symmetry, digit: int, line: Line, pairs: bool) -> Iterator[_Outline]:
        """With a further stage, in each number of batches that makes a difference."""
        came, known = int(self.sizes.sum()), set[int]()
        taken = np.array([len(each) for _, each in line.moves])
        for parts in BATCHES if self.stages else BATCHES[:1]:
            batch = np.bincount(_batches(self.sizes, parts), self.sizes)
            batch = batch[batch > 0].astype(np.int64)
            moves = self.moves + len(batch) * len(taken)
            if len(batch) in known or moves > MOST_MOVES:
                continue
            known.add(len(batch))
            chunk_s = (symmetry.size // int(symmetry.orders[digit]) if pairs else came) * line.chunk_s
            path_s = float((line.message_s + chunk_s * (batch[-1] / came)).max()) + line.latency_s
            sizes = (batch[:, None] * np.append(1, taken)).ravel()
            total_s = self.total_s + len(batch) * line.message_s + chunk_s
            yield _Outline((*self.stages, (digit, line, parts)), sizes, total_s, self.path_s + path_s, moves)


def _batches(sizes: Int64, parts: int) -> Int64:
    """int64[arrivals], the batch of each of what comes, of about equal sizes."""
    number: Int64 = (np.cumsum(sizes) - sizes) * parts // sizes.sum()
    return number


def _soonest(symmetry: Symmetry, lines: dict[int, list[Line]], pairs: bool) -> list[_Outline]:
    """The outlines of :data:`MOST_TRIED` programs that end first by an estimate, the soonest first."""
    found: list[_Outline] = []
    worst_s, looked = inf, 0
    waiting = [_Outline((), np.ones(1, dtype=np.int64), np.zeros(symmetry.topology.link_count), 0.0, 0)]
    while waiting and looked < MOST_OUTLINES:
        outline = waiting.pop()
        left = [k for k in lines if k not in {digit for digit, _, _ in outline.stages}]
        if not left:
            found = sorted([*found, outline], key=lambda each: each.end_s)[:MOST_TRIED]
            worst_s = found[-1].end_s if len(found) == MOST_TRIED else inf
            continue
        further = [each for k in left for line in lines[k] for each in outline.further(symmetry, k, line, pairs)]
        looked += len(further)
        # those that may end first are gone on with first; a further stage never makes one end sooner
        further.sort(key=lambda each: -each.end_s)
        waiting += [each for each in further if each.end_s < worst_s]
    return found


def _lines(
    symmetry: Symmetry, digit: int, reached: Bool, routes: Routes, block_bytes: float, pairs: bool
) -> Iterator[Line]:
    """The ways along a coordinate over ranks that routes lead to."""
    order, stride, net = int(symmetry.orders[digit]), int(symmetry.strides[digit]), symmetry.topology
    for name, levels, moves in _along(order):
        steps = np.array([step for step, _ in moves]) * stride
        if not reached[steps].all():
            continue
        chunks = _passed(order, moves) if pairs else np.array([len(taken) for _, taken in moves])
        route = routes.links.take(steps)
        link = route.values
        orbit, copies = symmetry.link_orbits[link], symmetry.copies[link]
        chunk_s = chunks[route.owners] * (block_bytes / net.bandwidth[link])
        message_s, byte_s = (
            np.bincount(orbit, copies * each, net.link_count).astype(np.float64)
            for each in (net.message_s[link], chunk_s)
        )
        yield Line(name, moves, message_s, byte_s, levels * float(routes.latency_s[steps].max()))


def _along(order: int) -> Iterator[tuple[str, int, list[tuple[int, Int64]]]]:
    """The ways along a line of ranks: a name, how many messages wait for each other, and the moves."""
    for radix in (*(r for r in RADICES if r < order), order):
        moves, width, levels = list[tuple[int, Int64]](), 1, 0
        while width < order:
            steps = range(width, min(radix * width, order), width)
            moves += [(step, np.arange(min(width, order - step))) for step in steps]
            width, levels = width * radix, levels + 1
        yield "direct" if radix == order else f"radix {radix}", levels, moves
    if order > 2:
        around = list[tuple[int, Int64]]()
        for there in range(order // 2):
            around += [(1, np.array([there])), (order - 1, np.array([-there % order]))]
        yield "ring", order // 2, around[: order - 1]


def _passed(order: int, moves: Sequence[tuple[int, Int64]]) -> Int64:
    """int64[moves], for how many ranks of a line what goes there takes each move."""
    by, before = np.full(order, -1), np.zeros(order, dtype=np.int64)
    for number, (step, taken) in enumerate(moves):
        by[(taken + step) % order], before[(taken + step) % order] = number, taken
    passed, at = np.zeros(len(moves), dtype=np.int64), np.arange(1, order)
    while len(at):
        passed += np.bincount(by[at], minlength=len(moves))
        at = before[at]
        at = at[at > 0]
    return passed


def _program(symmetry: Symmetry, outline: _Outline) -> Program:
    arrivals, steps, taken_by = [np.zeros(1, dtype=np.int64)], list[int](), list[list[int]]()
    by, before = np.full(symmetry.size, -1), np.full(symmetry.size, -1)
    for digit, line, parts in outline.stages:
        lengths, stride = np.array([len(each) for each in arrivals]), int(symmetry.strides[digit])
        batch, came = _batches(lengths, parts), list[Int64]()
        for number in distinct(batch).tolist():
            there = np.concatenate([each for each, own in zip(arrivals, batch.tolist(), strict=True) if own == number])
            came.append(there)
            for step, taken in line.moves:
                sent = symmetry.product(there[:, None], taken * stride).ravel()
                to = symmetry.product(sent, np.array(step * stride))
                by[to], before[to] = len(steps), sent
                steps.append(step * stride)
                taken_by.append(sent.tolist())
                came.append(to)
        arrivals = came
    words = [f"{line.name} in {parts}" if parts > 1 else line.name for _, line, parts in outline.stages]
    return Program(", then ".join(words), np.array(steps), Ragged.of(taken_by), by, before)


def _hops(symmetry: Symmetry, program: Program, pairs: bool) -> Hops:
    """What the moves do to the data of one owner."""
    if not pairs:
        move, at = program.taken.owners, program.taken.values.astype(np.int64)
        brings = np.full(symmetry.size, -1)
        brings[symmetry.product(at, program.step[move])] = np.arange(len(at))
        came = brings[at]
        return Hops(move, at, np.zeros_like(at), Ragged.from_lengths(came >= 0, came[came >= 0]))
    # back from each goal
    goal = np.arange(1, symmetry.size)
    there, moves, ats, goals, next_hop = goal.copy(), list[Int64](), list[Int64](), list[Int64](), list[Int64]()
    count = 0
    while len(there):
        source = program.before[there]
        moves.append(program.by[there])
        ats.append(source)
        goals.append(goal)
        more = source > 0
        waits = np.full(len(there), -1)
        waits[more] = count + len(there) + np.arange(int(more.sum()))
        next_hop.append(waits)
        count += len(there)
        there, goal = source[more], goal[more]
    came = np.concatenate(next_hop)
    waits_for = Ragged.from_lengths(came >= 0, came[came >= 0])
    return Hops(np.concatenate(moves), np.concatenate(ats), np.concatenate(goals), waits_for)


def _times(symmetry: Symmetry, program: Program, size: Int64, table: Table, halves: tuple[bool, bool]) -> Times:
    """When the moves are made: sums from the last move to the first, then copies."""
    waits, count = program.waits, len(program.step)
    routes, sizes, ops, owners, values = list[Ragged](), list[Int64](), list[int](), list[Int64](), list[Int64]()
    sums, copies = halves
    if sums:
        routes.append(table.inward.links.take(program.step[::-1]))
        sizes.append(size[::-1])
        owners.append(count - 1 - waits.values.astype(np.int64))
        values.append(count - 1 - waits.owners)
        ops += [REDUCE] * count
    if copies:
        first = len(ops)
        routes.append(table.outward.links.take(program.step))
        sizes.append(size)
        owners.append(first + waits.owners)
        values.append(first + waits.values.astype(np.int64))
        ops += [COPY] * count
    if sums and copies:
        # what an owner copies waits for all sums that come to it
        own = np.flatnonzero(np.bincount(program.taken.owners, program.taken.values == 0, count))
        owners.append(np.repeat(count + own, len(own)))
        values.append(np.tile(count - 1 - own, len(own)))
    depends = Ragged.grouped(np.concatenate(owners), np.concatenate(values), len(ops))
    op = np.array(ops, dtype=np.int8)
    return schedule(
        symmetry, Ragged.concatenate(routes), op, depends, np.zeros(len(op), dtype=np.int64), np.concatenate(sizes)
    )
