"""Collectives on a grid of ranks by moves that all ranks make alike, in all dimensions at the same time.

In a *move* every rank sends the rank at some offset what it has and that rank lacks, in one message. In a cluster one
dimension leads across servers and the other one inside them, over ports of their own, so a rank can send two messages
at once. On a torus the offsets are those of the neighbours, each over a port of its own. And while a message is on its
way, its sender can send others. So the moves of an AllGather are like the messages of a broadcast in the postal model
(Bar-Noy and Kipnis, Mathematical Systems Theory 1994): what has come is sent on at once, in every direction. Algorithms
that go dimension by dimension, or step after step, leave ports idle.

Since all ranks act alike, the blocks of all ranks go the ways on which that of cell 0 reaches all cells. The moves by
which all are reached soonest are searched for (:mod:`.kernel_gossip`). ReduceScatter is the same backwards in time. In
an AllToAll a block goes the way on which the offset from its origin to its goal was reached. An AllReduce of small data
is a search of its own, where a message has a single sum, which cannot be taken apart any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, prod
from typing import NamedTuple

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64, Int64
from ..model.kinds import BY_NAME
from ..model.plan import COPY, REDUCE
from . import kernel_gossip
from .algorithms import Algorithm, Step
from .job_loads import Candidate

STATES, ALIKE = 256, 2
"""States that a search keeps after each decision, and how many of these may be of equal worth, at most. 32 to 512
states change AllGather of 1 KB on h100:16 by 2 %, AllReduce of 1 KB on h100:8 by 5 %."""

GROWTHS = 0.7, 0.25, 0.1
"""With which late cells count less, as multiples of the growth in a grid without end; each is a search. The first suits
small data, where 0.4 to 1 differ by up to 10 %. The last ones suit data whose bytes fill links."""

MOST_EXCHANGED = 8
"""Neighbours that exchange their data before the moves of an AllReduce, at most."""

WORK = 1e7
"""Steps of the kernel's inner loops in a search, at most, about: it decides how many states are kept in large grids."""


class Line(NamedTuple):
    """What a message takes along one dimension."""

    latency_s: float
    message_s: float
    s_per_byte: float
    port: int  # messages that leave over the same link have the same one


class Direction(NamedTuple):
    """Where a message may lead."""

    offset: tuple[int, ...]  # in each dimension
    line: Line


class Move(NamedTuple):
    """A message from each rank."""

    to: Int64  # int64[cells], where it leads from each cell
    reached: Int64  # int64[any], the cells that it reaches from cell 0, or from where that has led


def gossips(
    kind: str, shape: Sequence[int], rank: Int64, lines: Sequence[Direction], block_bytes: float
) -> Iterator[Candidate]:
    """The algorithms of a collective by moves.

    Args:
        rank: int64[cells], the rank at each cell, the last dimension fastest.
        lines: where messages may lead.
        block_bytes: of a block: of an AllReduce the data divided by the ranks.
    """
    ranks, traits, words = len(rank), BY_NAME[kind], "messages of each rank, in all dimensions at once"
    if traits.pieces == "pair":
        # a message has the blocks of all offsets that are reached through it: as a block does not grow, others suit too
        for bytes_ in (block_bytes, block_bytes / ranks):
            steps = _exchanged(_moves(shape, lines, bytes_, False)[0], shape, rank)
            if steps:
                yield candidate(kind, steps, 1, f"{len(steps)} {words}")
        return
    gathered = [_moves(shape, each, block_bytes, False) for each in _halves(shape, lines, traits.reduces)]
    gathered_s = max(end_s for _, end_s in gathered)
    if gathered_s == inf:
        return
    back, gather = ([_gathered(move, shape, rank) for move in moves] for moves, _ in (gathered[0], gathered[-1]))
    scatter = [Step(s.block, s.dst, s.src, REDUCE) for s in reversed(back)] if traits.reduces else []
    steps = scatter + (gather if traits.reduces_to_all or not traits.reduces else [])
    blocks = ranks if traits.reduces_to_all else 1
    if block_bytes >= 1 or blocks == 1:
        yield candidate(kind, steps, blocks, f"{len(steps)} {words}")
    if traits.reduces_to_all:
        steps, carried, end_s = list[Step](), list[tuple[int, ...]](), 2 * gathered_s
        for count in _parts(shape, lines):
            found = _exchanged_first(shape, rank, lines, block_bytes * ranks, count, end_s)
            steps, carried, end_s = min((steps, carried, end_s), found, key=lambda each: each[2])
        summary = f"{len(steps)} messages of each rank with whole sums, in all dimensions at once"
        if steps:
            yield candidate(kind, steps, 1, summary)._replace(carried=carried)


def _halves(shape: Sequence[int], lines: Sequence[Direction], reduces: bool) -> list[Sequence[Direction]]:
    """Where messages may lead backwards in time, for sums, and where forward; once where that is alike."""
    turned = [Direction(tuple(-by % n for by, n in zip(offset, shape, strict=True)), line) for offset, line in lines]
    forth, back = ({(offset, line._replace(port=0)) for offset, line in each} for each in (lines, turned))
    return [turned, lines] if reduces and forth != back else [lines]


def candidate(kind: str, steps: list[Step], blocks: int, summary: str) -> Candidate:
    """An algorithm of steps each of which begins as soon as what it sends is there."""
    kinds, cut = {kind: lambda n, b: steps}, lambda kind, n, piece: blocks
    algorithm = Algorithm("gossip", summary, "", kinds, cut)
    return Candidate(algorithm, np.zeros(len(steps), dtype=np.int64), np.ones(len(steps), dtype=np.bool_))


def _exchanged_first(
    shape: Sequence[int], rank: Int64, lines: Sequence[Direction], size_bytes: float, count: int, within_s: float
) -> tuple[list[Step], list[tuple[int, ...]], float]:
    """The steps of an AllReduce in which ``count`` neighbours along the last dimension exchange their data first.

    Then all neighbours have the same, and the moves are those of a smaller grid.

    Returns:
        The steps; for each the earlier ones of which it sends on what they brought, and -1 if also what was there; and
        when they end, about, seconds; infinite if that is not before ``within_s``.
    """
    last = lines[-1].line
    smaller = (*shape[:-1], shape[-1] // count)
    first_s = (count - 1) * (last.message_s + size_bytes * last.s_per_byte) + last.latency_s * (count > 1)
    left = [Direction((*offset[:-1], offset[-1] // count), line) for offset, line in lines if offset[-1] % count == 0]
    moves, end_s = _moves(smaller, left, size_bytes, True, within_s - first_s)
    cells = np.arange(prod(smaller))
    to = [(cells[:, None] * count + (np.arange(count) + k) % count).ravel() for k in range(1, count)]
    carried: list[tuple[int, ...]] = [(-1,)] * (count - 1)
    by = np.full(len(cells), -1)
    for number, move in enumerate(moves, start=count - 1):
        taken = np.unique(by[np.argsort(move.to)[move.reached]]).tolist()
        carried.append((*range(count - 1 if taken[0] < 0 else 0), *taken))
        to.append((move.to[:, None] * count + np.arange(count)).ravel())
        by[move.reached] = number
    return [Step(0 * rank, rank, rank[each], REDUCE) for each in to], carried, first_s + end_s


def _parts(shape: Sequence[int], lines: Sequence[Direction]) -> list[int]:
    """How many neighbours along the last dimension may exchange their data first, where all of them are joined: its
    divisors, up to :data:`MOST_EXCHANGED`; the largest first, after which a small search follows."""
    count = shape[-1]
    joined = sum(1 for offset, _ in lines if not any(offset[:-1])) == count - 1
    most = min(count, MOST_EXCHANGED) if joined else 1
    return [part for part in range(most, 0, -1) if count % part == 0]


def _moves(
    shape: Sequence[int], lines: Sequence[Direction], block_bytes: float, sums: bool, within_s: float = inf
) -> tuple[list[Move], float]:
    """The moves by which all cells are reached soonest, in the order in which they start; and when that is, seconds.

    There are none, and this is infinite, if no search finds any by which that is before ``within_s``.

    Args:
        sums: whether a message has the bytes of one block, the sum of what it takes along.
    """
    cells = np.arange(prod(shape))
    if len(cells) == 1:
        return [], 0.0
    if {d for offset, _ in lines for d in np.flatnonzero(offset)} != {d for d, count in enumerate(shape) if count > 1}:
        return [], inf
    # along one of several dimensions either all goes along, or what has come along this one alone
    several = [len(shape) > np.count_nonzero(offset) == 1 for offset, _ in lines]
    of = [(d, alone) for d, more in enumerate(several) for alone in (False, True)[: 1 + more]]
    to = np.array([_moved(cells, shape, lines[d].offset) for d, _ in of])
    takes = np.array([(cells == _along(cells, shape, lines[d].offset)) | (not alone) for d, alone in of])
    each = np.array([(line.port, line.message_s, line.s_per_byte * block_bytes, line.latency_s) for _, line in lines])
    port, message_s, cell_s, latency_s = each[[d for d, _ in of]].T.copy()
    growth, share = _growth(port, message_s + cell_s, latency_s)
    busy_s, cell_s = (message_s + cell_s, 0 * cell_s) if sums else (message_s, cell_s)
    moves = (to, takes, port.astype(np.int64), busy_s, cell_s, latency_s)
    a_state = 2.0 * to.size * np.log2(len(cells))
    states = int(np.clip(WORK / a_state, 1, STATES))
    search = at_speed(kernel_gossip.search, len(GROWTHS) * states * a_state)
    soonest_s, found = inf, list[Move]()
    for times in GROWTHS:
        end_s, by = search(*moves, sums, share, times * growth, states, ALIKE, 4 * len(cells), min(within_s, soonest_s))
        if end_s < inf:
            soonest_s, codes = end_s, np.unique(by[1:]).tolist()
            found = [Move(to[code % len(of)], np.flatnonzero(by == code)) for code in codes]
    return found, soonest_s


def _growth(port: Float64, busy_s: Float64, latency_s: Float64) -> tuple[float, Float64]:
    """The rate x at which the cells of a grid without end are reached, as exp(x t); and the share of each port in it.

    A cell that is reached at time t sends at t, t + m, ... messages of m seconds, which arrive m + l later each. So the
    sum of exp(-x (k m + l)) over all k from 1 on and all ports is 1.

    Args:
        port, busy_s, latency_s: [moves], the port of each, m and l.
    """

    def shares(x: float) -> Float64:
        share = np.zeros(int(port.max()) + 1)
        np.maximum.at(share, port.astype(np.int64), np.exp(-x * (busy_s + latency_s)) / -np.expm1(-x * busy_s))
        return share

    low, high = 0.0, 1.0
    while shares(high).sum() > 1:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if shares(middle).sum() > 1 else (low, middle)
    return high, shares(high)


def _moved(cells: Int64, shape: Sequence[int], offset: Sequence[int]) -> Int64:
    """The cells at an offset from others, around the grid."""
    places = np.unravel_index(cells, shape)
    moved = [(place + by) % n for place, by, n in zip(places, offset, shape, strict=True)]
    return np.ravel_multi_index(moved, shape).astype(np.int64)


def _along(cells: Int64, shape: Sequence[int], offset: Sequence[int]) -> Int64:
    """The cells at the coordinates of others in the dimensions of an offset, and at 0 in the rest."""
    places = np.unravel_index(cells, shape)
    return np.ravel_multi_index([place * (by != 0) for place, by in zip(places, offset, strict=True)], shape).astype(
        np.int64
    )


def _sums(shape: Sequence[int], first: Int64, second: Int64) -> Int64:
    """int64[first, second], the cells at one's coordinates and the other's together, around the grid."""
    place = [
        (a[:, None] + b) % n
        for a, b, n in zip(np.unravel_index(first, shape), np.unravel_index(second, shape), shape, strict=True)
    ]
    return np.ravel_multi_index(place, shape).astype(np.int64)


def _gathered(move: Move, shape: Sequence[int], rank: Int64) -> Step:
    """The step of an AllGather: each block comes to the cells that the move reaches from its origin."""
    dst = _sums(shape, np.arange(len(rank)), move.reached)
    back = np.argsort(move.to)
    return Step(np.repeat(rank, len(move.reached)), rank[back[dst]].ravel(), rank[dst].ravel(), COPY)


def _exchanged(moves: Sequence[Move], shape: Sequence[int], rank: Int64) -> list[Step]:
    """The steps of an AllToAll: the block for the cell at an offset goes where that offset was reached from."""
    cells = np.arange(len(rank))
    at = cells.copy()  # where the block for each offset is before this move ends, relative to its origin
    steps: list[Step] = []
    for move in reversed(moves):
        here = np.flatnonzero(np.isin(at, move.reached))
        dst, goal = _sums(shape, cells, at[here]), _sums(shape, cells, here)
        at[here] = np.argsort(move.to)[at[here]]
        src, block = _sums(shape, cells, at[here]), rank[:, None] * len(rank) + rank[goal]
        steps.append(Step(block.ravel(), rank[src].ravel(), rank[dst].ravel(), COPY))
    return steps[::-1]
