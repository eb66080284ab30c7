"""Messages that all ranks send alike, each with several chunks: for middle sizes, where messages cost.

A *move* is a message from every rank to the one that differs from it by some element of the group. It takes along
chunks that have come by earlier moves. What the moves do to the chunk of one owner they do to all, so a program of
moves among 512 GPUs is found with the work for one chunk. It goes coordinate by coordinate: along each, ranks send what
they have straight to all others, or in fewer messages that grow (Bruck et al., IEEE TPDS 1997), or around a circle.
What has come along one coordinate goes on along the next one in batches, so that links of both are busy at the same
time; and parts of the data take the coordinates in turns, so that no links wait for the first one. ReduceScatter is
AllGather with time reversed, AllReduce is both, and in an AllToAll the data for a rank goes as the chunk of an
AllGather would go there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import permutations, product
from math import inf
from typing import NamedTuple

import numpy as np

from ...kernels import at_speed
from ...model.arrays import Bool, Float64, Int64, Ragged, distinct, offsets_of
from ...model.plan import COPY, REDUCE
from ...model.symmetry import Symmetry
from ...schedule.best import CHUNK_SHARE, surcharge
from . import kernel_exchange
from .kernel_exchange import Options
from .lines import Line, lines
from .outlines import Outline, batches, soonest
from .routes import Routes
from .times import Table, Times, schedule

MOST_LINES = 3
"""Coordinates of more than one rank, at most."""

SHARES = 48
"""The share of the data in each turn is a multiple of 1 / SHARES, at least one."""

UNEVEN_GAIN = 1.01
"""Times by which the busiest link must have less to do for shares to be uneven."""

MOST_TRIED, MOST_TRIED_IN_PARTS = 24, 8
"""Programs whose moves are scheduled: those that end first by an estimate; the second of each way in which data is in
several parts."""


class Program(NamedTuple):
    """Moves by which the parts of a chunk come from its owner to all ranks.

    Attributes:
        parts: of each chunk.
        step: int64[moves], the element by which the receiver differs from the sender.
        taken: for each move the places of what it takes along: the part times all elements, and the element by which
            the sender differs from the owner.
        by, before: int64[places], the move that brings a part there, and from which place; -1 for the owner.
    """

    summary: str
    parts: int
    step: Int64
    taken: Ragged
    by: Int64
    before: Int64


class Hops(NamedTuple):
    """What the moves of a program do to the data of one owner, hop by hop.

    Attributes:
        move: int64[hops].
        part: int64[hops], of the owner's chunk.
        at: int64[hops], the element by which the sender differs from the owner.
        goal: int64[hops], in an AllToAll the element by which the rank that the data is for does, else 0.
        waits: for each hop the one that brings what it sends on, if any.
    """

    move: Int64
    part: Int64
    at: Int64
    goal: Int64
    waits: Ragged

    def between_moves(self, count: int) -> Ragged:
        """For each move those that bring what it takes along."""
        pairs = distinct(self.move[self.waits.owners] * count + self.move[self.waits.values])
        return Ragged.grouped(pairs // count, pairs % count, count)


class Found(NamedTuple):
    """A program with its times.

    Attributes:
        step: int64[moves], of the moves that take something along, see :class:`Program`.
        shares: float64[parts], of each chunk.
        sums, copies: whether its moves sum, with time reversed, and whether they copy; sums come first.
        times: of the moves of both; those of sums from the last to the first.
    """

    summary: str
    step: Int64
    shares: Float64
    hops: Hops
    sums: bool
    copies: bool
    times: Times

    @property
    def each(self) -> tuple[int, int]:
        """The transfers and the messages of each rank."""
        phases = self.sums + self.copies
        return phases * len(self.hops.move), phases * len(self.step)

    def handled_s(self, symmetry: Symmetry) -> float:
        """The completion with what hosts do for messages and for further chunks of them, as plans are compared by."""
        costs_s, (transfers, messages) = symmetry.topology.message_s, self.each
        further_s = 2 * (transfers - messages) * CHUNK_SHARE * float(costs_s[costs_s > 0].mean())  # at both ends
        return self.times.completion_s * surcharge(messages * symmetry.size) + further_s


def best_moves(
    symmetry: Symmetry, digits: Sequence[int], table: Table, block_bytes: int, phases: tuple[bool, bool], pairs: bool,
    most_transfers: float = inf,
) -> Found | None:  # fmt: skip
    """The program that is preferred; None where ranks are not joined along each coordinate.

    Args:
        digits: the generators that move ranks.
        block_bytes: of the largest chunk.
        phases: whether its moves sum, and whether they copy.
        pairs: whether there is a chunk for each other rank.
        most_transfers: of all ranks, at most.
    """
    routes = [r for r, used in zip((table.inward, table.outward), phases, strict=True) if used]
    reached: Bool = np.logical_and.reduce([r.reached for r in routes])
    digits = [k for k in digits if symmetry.orders[k] > 1]
    if len(digits) > MOST_LINES:
        return None
    best: Found | None = None
    for turns, halved in product(dict.fromkeys((1, len(digits))), (False, True)):
        parts = turns * (1 + halved)
        ways = {k: list(lines(symmetry, k, reached, routes[-1], block_bytes / turns, pairs, halved)) for k in digits}
        if halved and not any(len(move.halves) == 1 for each in ways.values() for line in each for move in line.moves):
            continue
        for outlines in _in_turns(symmetry, ways, turns, MOST_TRIED if parts == 1 else MOST_TRIED_IN_PARTS, pairs):
            program = _program(symmetry, outlines, 1 + halved)
            for hops in _all_hops(symmetry, program, table, pairs):
                shares = _shares(symmetry, program, hops, routes[-1], 1 + halved)
                # the smallest chunk may have a byte less than the largest
                fits = len(shares) == 1 or part_bytes(np.array([block_bytes - 1]), shares).min() > 0
                if not fits or sum(phases) * len(hops.move) * symmetry.size > most_transfers:
                    continue
                used, move = np.unique(hops.move, return_inverse=True)
                step, hops = program.step[used], hops._replace(move=move.ravel())
                times = _times(symmetry, step, hops, _most_bytes(block_bytes, shares), table, phases)
                found = Found(program.summary, step, shares, hops, *phases, times)
                if best is None or found.handled_s(symmetry) < best.handled_s(symmetry):
                    best = found
    return best


def _in_turns(
    symmetry: Symmetry, ways: dict[int, list[Line]], turns: int, most: int, pairs: bool
) -> Iterator[Sequence[Outline]]:
    """Outlines that take the coordinates in turns: each begins with another one, so that all links are busy."""
    first, *others = ways
    orders = [(first, *rest) for rest in permutations(others)] if turns > 1 else [()]
    for order in orders:
        turned = [order[k:] + order[:k] for k in range(turns)]
        yield from zip(*(soonest(symmetry, ways, each, turns, most, pairs) for each in turned), strict=False)


def _program(symmetry: Symmetry, outlines: Sequence[Outline], halves: int) -> Program:
    """The program in which as many parts go by each outline as data has halves."""
    n, steps, taken_by, words = symmetry.size, list[int](), list[list[int]](), list[str]()
    by, before = np.full((2, len(outlines) * halves * n), -1)
    for number, outline in enumerate(outlines):
        arrivals = [n * (halves * number + np.arange(halves))]
        for digit, line, count in outline.stages:
            lengths, stride = np.array([len(each) for each in arrivals]), int(symmetry.strides[digit])
            batch, came = batches(lengths, count), list[Int64]()
            for own in distinct(batch).tolist():
                there = np.concatenate([each for each, of in zip(arrivals, batch.tolist(), strict=True) if of == own])
                came.append(there)
                for step, sent, to in _sent(symmetry, line, stride, there, halves):
                    by[to], before[to] = len(steps), sent
                    steps.append(step)
                    taken_by.append(sent.tolist())
                    came.append(to)
            arrivals = came
        named = [f"{line.name} in {count}" if count > 1 else line.name for _, line, count in outline.stages]
        words.append(", then ".join(named) + ", in halves" * (halves > 1))
    return Program("; ".join(words), len(outlines) * halves, np.array(steps), Ragged.of(taken_by), by, before)


def _sent(symmetry: Symmetry, line: Line, stride: int, there: Int64, halves: int) -> Iterator[tuple[int, Int64, Int64]]:
    """The moves along a line of what has come to some places: the step of each, the places it takes along, and those
    that it brings that to."""
    n = symmetry.size
    part, at = (each[:, None] for each in np.divmod(there, n))
    ends = np.cumsum([len(move.taken) for move in line.moves])
    by = stride * np.concatenate([move.taken for move in line.moves])
    step = np.repeat([stride * move.step for move in line.moves], np.diff(ends, prepend=0))
    sent = symmetry.product(at, by)
    to = part * n + symmetry.product(sent, step)
    sent += part * n
    for move, first, end in zip(line.moves, [0, *ends.tolist()], ends.tolist(), strict=False):
        rows = slice(None) if len(move.halves) == halves else np.isin(part[:, 0] % halves, move.halves)
        if len(taken := sent[rows, first:end].ravel()):
            yield stride * move.step, taken, to[rows, first:end].ravel()


def _hops(symmetry: Symmetry, program: Program) -> Hops:
    """What the moves do to the data of one owner that is for all."""
    move, place = program.taken.owners, program.taken.values.astype(np.int64)
    part, at = np.divmod(place, symmetry.size)
    brings = np.full(len(program.by), -1)
    brings[part * symmetry.size + symmetry.product(at, program.step[move])] = np.arange(len(at))
    came = brings[place]
    return Hops(move, part, at, np.zeros_like(at), Ragged.from_lengths(came >= 0, came[came >= 0]))


def _all_hops(symmetry: Symmetry, program: Program, table: Table, pairs: bool) -> Iterator[Hops]:
    """What the moves do to the data of one owner. Of pairs all parts go to each goal, or all that is for a goal goes as
    one of the parts would go there: so that links are busy alike, or goal after goal in turn, which may take fewer
    messages."""
    if not pairs:
        yield _hops(symmetry, program)
        return
    hops = _hops_to_goals(symmetry, program)
    yield hops
    if program.parts > 1:
        for chosen in (_dealt(symmetry, program, hops, table), np.arange(symmetry.size) % program.parts):
            kept = np.flatnonzero(hops.part == chosen[hops.goal])
            place = np.full(len(hops.move), -1)
            place[kept] = np.arange(len(kept))
            waits = hops.waits.take(kept)
            move, at, goal = (column[kept] for column in (hops.move, hops.at, hops.goal))
            yield Hops(move, np.zeros_like(move), at, goal, waits.with_values(place[waits.values]))


def _hops_to_goals(symmetry: Symmetry, program: Program) -> Hops:
    """The hops of each part to each goal, back from there."""
    n = symmetry.size
    there = np.delete(np.arange(len(program.by)), n * np.arange(program.parts))
    goal, columns, next_hop, count = there % n, list[tuple[Int64, ...]](), list[Int64](), 0
    while len(there):
        source = program.before[there]
        columns.append((program.by[there], source // n, source % n, goal))
        more = source % n > 0
        waits = np.full(len(there), -1)
        waits[more] = count + len(there) + np.arange(int(more.sum()))
        next_hop.append(waits)
        count += len(there)
        there, goal = source[more], goal[more]
    came = np.concatenate(next_hop)
    move, part, at, goal = (np.concatenate(each) for each in zip(*columns, strict=True))
    return Hops(move, part, at, goal, Ragged.from_lengths(came >= 0, came[came >= 0]))


def _dealt(symmetry: Symmetry, program: Program, hops: Hops, table: Table) -> Int64:
    """int64[elements], as which part the chunk for each goal goes, so that orbits of links are busy alike."""
    n, parts, topology = symmetry.size, program.parts, symmetry.topology
    route = table.outward.links.take(program.step[hops.move])
    link, option = route.values, (hops.goal * parts + hops.part)[route.owners]
    order = np.argsort(option, kind="stable")
    options = Options(
        np.arange(n + 1) * parts, np.full(n * parts, 1 / parts), offsets_of(np.bincount(option, minlength=n * parts)),
        symmetry.link_orbits[link][order].astype(np.int64),
        (symmetry.copies[link] / topology.bandwidth[link])[order],
    )  # fmt: skip
    deal = at_speed(kernel_exchange.deal, float(parts * len(option)))
    number: Int64 = deal(np.ones(n, dtype=np.int64), options, np.ones(topology.link_count)) % parts
    return number


def _shares(symmetry: Symmetry, program: Program, hops: Hops, routes: Routes, halves: int) -> Float64:
    """float64[parts], the shares of the data with which the busiest link has least to do; 1 of data in one part."""
    parts = int(hops.part.max()) + 1
    even = np.full(parts, 1 / parts)
    turns = parts // halves
    if turns < 2 or hops.goal.any():
        return even
    route = routes.links.take(program.step[hops.move])
    link, turn = route.values, hops.part[route.owners] // halves
    busy_s = np.zeros((turns, symmetry.topology.link_count))
    np.add.at(busy_s, (turn, symmetry.link_orbits[link]), symmetry.copies[link] / symmetry.topology.bandwidth[link])
    tried = _divisions(turns)
    most_s = (tried @ busy_s).max(axis=1)
    gains = most_s.min() * UNEVEN_GAIN < (busy_s.sum(axis=0) / turns).max()
    return np.repeat(tried[most_s.argmin()], halves) / halves if gains else even


@cache
def _divisions(turns: int) -> Float64:
    """float64[divisions, turns], the shares of data in each turn that are tried."""
    counts = np.array([c for c in product(range(1, SHARES), repeat=turns - 1) if sum(c) < SHARES])
    return np.column_stack((counts, SHARES - counts.sum(axis=1))) / SHARES


def part_bytes(size: Int64, shares: Float64) -> Int64:
    """int64[chunks, parts], the bytes of each part of chunks of these sizes."""
    edges: Int64 = np.floor(np.outer(size, np.append(0.0, np.cumsum(shares[:-1])))).astype(np.int64)
    parts: Int64 = np.diff(edges, append=size[:, None])
    return parts


def _most_bytes(block_bytes: int, shares: Float64) -> Int64:
    """int64[parts], the bytes of each part of the largest chunk, or of one with a byte less."""
    if len(distinct(shares)) == 1:
        return np.full(len(shares), -(-block_bytes // len(shares)))
    most: Int64 = part_bytes(np.array([block_bytes - 1, block_bytes]), shares).max(axis=0)
    return most


def _times(
    symmetry: Symmetry, step: Int64, hops: Hops, chunk_bytes: Int64, table: Table, phases: tuple[bool, bool]
) -> Times:
    """When the moves are made: sums from the last move to the first, then copies.

    Args:
        chunk_bytes: int64[parts].
        phases: whether the moves sum, and whether they copy.
    """
    count, waits = len(step), hops.between_moves(len(step))
    size = np.zeros(count, dtype=np.int64)
    np.add.at(size, hops.move, chunk_bytes[hops.part])
    routes, sizes, ops, owners, values = list[Ragged](), list[Int64](), list[int](), list[Int64](), list[Int64]()
    sums, copies = phases
    if sums:
        routes.append(table.inward.links.take(step[::-1]))
        sizes.append(size[::-1])
        owners.append(count - 1 - waits.values.astype(np.int64))
        values.append(count - 1 - waits.owners)
        ops += [REDUCE] * count
    if copies:
        first = len(ops)
        routes.append(table.outward.links.take(step))
        sizes.append(size)
        owners.append(first + waits.owners)
        values.append(first + waits.values.astype(np.int64))
        ops += [COPY] * count
    if sums and copies:
        # what an owner copies waits for all sums of that part that come to it
        own = np.flatnonzero(hops.at == 0)
        copied, summed = np.nonzero(hops.part[own][:, None] == hops.part[own])
        pairs = distinct(hops.move[own[copied]] * count + hops.move[own[summed]])
        owners.append(count + pairs // count)
        values.append(count - 1 - pairs % count)
    depends = Ragged.grouped(np.concatenate(owners), np.concatenate(values), len(ops))
    op = np.array(ops, dtype=np.int8)
    return schedule(
        symmetry, Ragged.concatenate(routes), op, depends, np.zeros(len(op), dtype=np.int64), np.concatenate(sizes)
    )
