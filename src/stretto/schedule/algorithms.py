"""Fixed algorithms: patterns of steps that carry out a collective, blind to the topology.

In a *step* every rank sends to at most one rank and receives from at most one (but for :mod:`.dissemination`, to a few
and from as many); who sends to whom is a *pairing*. An
algorithm cuts each piece of the collective into *blocks*, and says for each step which blocks go from which rank to
which, and whether they are copied or summed. :func:`lower` makes transfers of that. Each has the number of its step as
its ``group``, and depends on the earlier writes to what it sends or overwrites, and on nothing else.

Ring: Patarasuk, Yuan 2009. Recursive doubling: Thakur, Rabenseifner, Gropp 2005. Halving and
doubling: Rabenseifner 2004, with distances that double (SWOT, figure 3: 1, 2, 4, ...). AllToAll:
pairwise exchange, and those of :mod:`.dissemination`. All
pairs: the pairwise exchange of sums of Thakur, Rabenseifner, Gropp 2005, and its reverse. Binomial trees: there, too.
Two trees: Sanders, Speck, Träff 2009, in :mod:`.two_trees`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..model.arrays import Int8, Int32, Int64, Ragged, offsets_of
from ..model.chunks import cut
from ..model.collective import Workload
from ..model.kinds import BY_NAME
from ..model.plan import COPY, REDUCE
from .dissemination import MOST_RADIX, Copies, bruck, exchanges, halving_gather
from .two_trees import descent, slice_count


class Step(NamedTuple):
    """Blocks that are sent at the same time; each rank sends to one partner, and receives from one."""

    block: Int64  # int[rows], the number of the block: piece * blocks in a piece + index in the piece
    src: Int64  # int[rows], ranks
    dst: Int64
    op: int  # COPY or REDUCE


@dataclass(frozen=True)
class Algorithm:
    """A pattern for any number of ranks."""

    name: str
    summary: str
    paper: str
    kinds: dict[str, Callable[[int, int], list[Step]]]  # by kind of collective: steps for numbers of ranks and blocks
    blocks: Callable[[str, int, int], int] = lambda kind, n, piece: 1  # of each piece, for ranks and bytes of a piece
    serves: Callable[[str, int], str | None] = lambda kind, n: None  # a reason to refuse a number of ranks, or None
    relays: tuple[int, ...] = ()  # nodes that its steps number after the ranks
    at_once: bool = False  # whether a rank may copy a block to several others in one step
    root: int = 0  # of rooted kinds the rank that its steps are for; for another one all ranks are moved on

    def nodes(self, ranks: Int32) -> Int32:
        """The nodes that its steps number: the ranks, then the relays."""
        return np.concatenate((ranks, np.array(self.relays, dtype=ranks.dtype)))

    def steps(self, kind: str, ranks: int, piece_bytes: int = 1, root: int = 0) -> list[Step]:
        """The steps of a collective whose pieces have ``piece_bytes`` each; ``root`` counts for rooted kinds alone."""
        blocks = self.blocks(kind, ranks, piece_bytes)
        steps = self.kinds[kind](ranks, blocks)
        on = (root - self.root) % ranks if BY_NAME[kind].rooted else 0
        if not on:
            return steps
        moved = 0 if BY_NAME[kind].whole else on * blocks
        return [
            Step((s.block + moved) % (ranks * blocks) if moved else s.block, (s.src + on) % ranks,
                 (s.dst + on) % ranks, s.op)
            for s in steps
        ]  # fmt: skip


class Lowered(NamedTuple):
    """An algorithm's transfers, by step."""

    workload: Workload  # the collectives with their pieces cut into the algorithm's blocks
    chunk: Int32  # int32[transfers]
    src: Int32  # int32[transfers], nodes
    dst: Int32
    group: Int32  # int32[transfers], the step
    op: Int8  # int8[transfers]
    depends: Ragged  # for each transfer the earlier ones that wrote what it sends or overwrites


# --- lowering -----------------------------------------------------------------------------------


def lower(algorithm: Algorithm, workload: Workload) -> Lowered:
    """The transfers of an algorithm for each collective of a workload, one after the other.

    Where the pieces of a collective are already cut into c chunks each, every block is cut into c chunks.
    """
    finer, columns, depends = [], [], []
    steps_before = chunks_before = rows_before = 0
    for c in workload.collectives:
        n, piece = len(c.ranks), int(c.piece_bytes.max())
        chunks = c.chunk_count // len(c.piece_bytes)
        fine = cut(c, algorithm.blocks(c.kind, n, piece) * chunks)
        steps = algorithm.steps(c.kind, n, piece, max(c.root, 0))
        nodes = algorithm.nodes(fine.ranks)
        chunk, src, dst, step, op = _rows(steps, chunks, len(nodes))
        waits = _dependencies(chunk, src, dst, step, op, len(nodes))
        columns.append((chunk + chunks_before, nodes[src], nodes[dst], step + steps_before, op))
        depends.append(waits.with_values(waits.values + rows_before))
        finer.append(fine)
        steps_before += len(steps)
        chunks_before += fine.chunk_count
        rows_before += len(chunk)
    *rows, ops = (np.concatenate(column) for column in zip(*columns, strict=True))
    chunks_of, senders, receivers, group = (column.astype(np.int32) for column in rows)
    return Lowered(
        Workload(tuple(finer)), chunks_of, senders, receivers, group, ops.astype(np.int8), Ragged.concatenate(depends)
    )


def _rows(steps: list[Step], chunks: int, ranks: int) -> list[Int64]:
    """chunk, src, dst (ranks), step and op of each transfer, by step, sender, distance to the receiver and chunk."""
    parts = []
    for number, step in enumerate(steps):
        order = np.lexsort((step.block, (step.dst - step.src) % ranks, step.src))
        rows = np.repeat(order, chunks)
        chunk = step.block[rows] * chunks + np.tile(np.arange(chunks), len(order))
        parts.append((chunk, step.src[rows], step.dst[rows], np.full(len(rows), number), np.full(len(rows), step.op)))
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _dependencies(chunk: Int64, src: Int64, dst: Int64, step: Int64, op: Int64, ranks: int) -> Ragged:
    """For each transfer the writes of earlier steps to what it sends, and to what it overwrites.

    Of the writes to one place only the last copy counts, and what was summed onto it since.
    """
    rows = len(chunk)
    written, sent = chunk * ranks + dst, chunk * ranks + src
    order = np.lexsort((np.arange(rows), written))
    steps = int(step.max(initial=0)) + 1
    key = written[order] * steps + step[order]
    # for each write the last copy up to it: writes to that slot before this copy count no more
    first = np.concatenate(([True], np.diff(written[order]) != 0)) if rows else np.zeros(0, dtype=np.bool_)
    fresh = np.maximum.accumulate(np.where(first | (op[order] == COPY), np.arange(rows), 0))

    def writes(slot: Int64) -> tuple[Int64, Int64]:
        low = np.searchsorted(key, slot * steps)
        high = np.searchsorted(key, slot * steps + step)
        return np.where(high > low, fresh[np.maximum(high - 1, 0)], high), high

    low, high = writes(sent)
    over_low, over_high = writes(written)
    over_low = np.where(op == COPY, over_low, over_high)
    count, over = high - low, over_high - over_low
    owner = np.repeat(np.arange(rows), count + over)
    place = np.arange(len(owner)) - offsets_of(count + over)[owner]
    at = np.where(place < count[owner], low[owner] + place, over_low[owner] + place - count[owner])
    return Ragged.from_lengths(count + over, order[at])


# --- the algorithms -----------------------------------------------------------------------------


def _ring_scatter(n: int, blocks: int) -> list[Step]:
    """Partial sums go round: after n - 1 steps rank v has the whole sum of block v."""
    v = np.arange(n)
    return [Step((v - 1 - s) % n, v, (v + 1) % n, REDUCE) for s in range(n - 1)]


def _ring_gather(n: int, blocks: int) -> list[Step]:
    v = np.arange(n)
    return [Step((v - s) % n, v, (v + 1) % n, COPY) for s in range(n - 1)]


def _levels(n: int) -> int:
    return n.bit_length() - 1


def _halving(n: int, blocks: int) -> list[Step]:
    """Step s: exchange with rank ^ 2^s; each rank keeps the blocks whose numbers agree with its own in bit s."""
    return [_with_distance(n, s, 1 << s, REDUCE) for s in range(_levels(n))]


def _doubling(n: int, blocks: int) -> list[Step]:
    """Halving in reverse: each rank sends to rank ^ 2^s all blocks that it has, which agree with it in bits 0 to s."""
    return [_with_distance(n, s, 0, COPY) for s in reversed(range(_levels(n)))]


def _with_distance(n: int, s: int, differs: int, op: int) -> Step:
    """Each rank sends to rank ^ 2^s the blocks whose numbers differ from its own, in bits 0 to s, by ``differs``."""
    block, v = np.meshgrid(np.arange(n), np.arange(n))
    sends = ((block ^ v) & ((2 << s) - 1)) == differs
    return Step(block[sends], v[sends], v[sends] ^ (1 << s), op)


def _exchange(n: int, blocks: int) -> list[Step]:
    """Step s: everyone sends the whole sum that it has so far to rank ^ 2^s."""
    v = np.arange(n)
    return [Step(np.zeros(n, dtype=np.int64), v, v ^ (1 << s), REDUCE) for s in range(_levels(n))]


def _folded(steps: Callable[[int, int], list[Step]]) -> Callable[[int, int], list[Step]]:
    """For ranks that are no power of two: the surplus ranks hand in their data first, and get the result last."""

    def folded(n: int, blocks: int) -> list[Step]:
        power = 1 << _levels(n)
        if power == n:
            return steps(n, blocks)
        block, extra = (a.ravel() for a in np.meshgrid(np.arange(blocks), np.arange(power, n)))
        first = Step(block, extra, extra - power, REDUCE)
        return [first, *steps(power, blocks), Step(block, extra - power, extra, COPY)]

    return folded


def _power_of_two(kind: str, n: int) -> str | None:
    if BY_NAME[kind].reduces_to_all or n & (n - 1) == 0:
        return None
    return f"its {kind} needs a power of two of ranks, not {n}"


def _pairwise(n: int, blocks: int) -> list[Step]:
    """Step s: everyone sends to rank + s the block that is for that rank."""
    v = np.arange(n)
    return [Step(v * n + (v + s) % n, v, (v + s) % n, COPY) for s in range(1, n)]


def _direct_scatter(n: int, blocks: int) -> list[Step]:
    """Step s: everyone sends to rank + s its part of the block that that rank sums up."""
    v = np.arange(n)
    return [Step((v + s) % n, v, (v + s) % n, REDUCE) for s in range(1, n)]


def _direct_gather(n: int, blocks: int) -> list[Step]:
    v = np.arange(n)
    return [Step(v, v, (v + s) % n, COPY) for s in range(1, n)]


def _two_trees(n: int, blocks: int) -> list[Step]:
    """Sums go up both trees (the steps down, backwards), then results go down."""
    down = descent(n, blocks // 2)
    return [Step(block, dst, src, REDUCE) for block, src, dst in reversed(down)] + [
        Step(block, src, dst, COPY) for block, src, dst in down
    ]


def _binomial(n: int, blocks: int) -> list[Step]:
    """Step s: each of the first 2^s ranks, which have the data, sends it to rank + 2^s."""
    steps = []
    for distance in (1 << s for s in range((n - 1).bit_length())):
        v = np.arange(min(distance, n - distance))
        steps.append(Step(np.zeros(len(v), dtype=np.int64), v, v + distance, COPY))
    return steps


def _binomial_scatter(n: int, blocks: int) -> list[Step]:
    """A rank that has the pieces of the 2d ranks from its own on sends those of the last d to the first of these."""
    steps = []
    for distance in (1 << s for s in reversed(range((n - 1).bit_length()))):
        piece = np.arange(n)[(np.arange(n) & distance) > 0]
        to = piece - (piece & (distance - 1))
        steps.append(Step(piece, to - distance, to, COPY))
    return steps


def _steps(copies: Callable[[int], list[Copies]]) -> Callable[[int, int], list[Step]]:
    return lambda n, blocks: [Step(*each, COPY) for each in copies(n)]


def _backwards(steps: Callable[[int, int], list[Step]], op: int) -> Callable[[int, int], list[Step]]:
    return lambda n, blocks: [Step(s.block, s.dst, s.src, op) for s in reversed(steps(n, blocks))]


def _two_slices(n: int, piece: int) -> int:
    """How many slices NCCL would cut the two halves into, both together."""
    return 2 * min(slice_count(piece / 2, (n - 1).bit_length()), max(piece // 2, 1))


def _a_block_a_rank(kind: str, n: int, piece: int) -> int:
    """Pieces are cut where the sum of each must come to all."""
    return n if BY_NAME[kind].reduces_to_all else 1


RING = Algorithm(
    "ring",
    "Everyone sends to the next rank, all the time",
    "Patarasuk and Yuan, JPDC 2009",
    {
        "allgather": _ring_gather,
        "reducescatter": _ring_scatter,
        "allreduce": lambda n, blocks: _ring_scatter(n, blocks) + _ring_gather(n, blocks),
    },
    _a_block_a_rank,
)

RECURSIVE_DOUBLING = Algorithm(
    "recursive-doubling",
    "Exchange everything with ranks at distances that are powers of two",
    "Thakur, Rabenseifner and Gropp, IJHPCA 2005",
    {"allgather": _doubling, "allreduce": _folded(_exchange)},
    serves=_power_of_two,
)

RABENSEIFNER = Algorithm(
    "rabenseifner",
    "Halving and doubling: each step exchanges half as much, then twice as much",
    "Rabenseifner, ICCS 2004",
    {
        "reducescatter": _halving,
        "allgather": _doubling,
        "allreduce": _folded(lambda n, blocks: _halving(n, blocks) + _doubling(n, blocks)),
    },
    lambda kind, n, piece: _a_block_a_rank(kind, 1 << _levels(n), piece),
    _power_of_two,
)

PAIRWISE = Algorithm(
    "pairwise",
    "Step s: everyone sends its block for rank + s there",
    "Thakur, Rabenseifner and Gropp, IJHPCA 2005",
    {"alltoall": _pairwise},
)

ALL_PAIRS = Algorithm(
    "all-pairs",
    "Every block goes straight to the rank that sums it up, and from there to everyone",
    "Thakur, Rabenseifner and Gropp, IJHPCA 2005; allpairs of Cowan et al., ASPLOS 2023",
    {
        "reducescatter": _direct_scatter,
        "allgather": _direct_gather,
        "allreduce": lambda n, blocks: _direct_scatter(n, blocks) + _direct_gather(n, blocks),
    },
    _a_block_a_rank,
)

BRUCK = Algorithm(
    "bruck",
    "Blocks travel by powers of two: few steps, more bytes",
    "Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE TPDS 1997",
    {"alltoall": _steps(bruck(2))},
)


def dissemination(radix: int) -> Algorithm:
    """Exchanges at distances that are powers of a radix. A larger one has fewer steps, of more messages."""
    gather = _steps(halving_gather(radix))
    scatter = _backwards(gather, REDUCE)
    return Algorithm(
        f"dissemination-{radix}" if radix > 2 else "dissemination",
        f"Exchange with ranks at distances that are powers of {radix}, among any number of ranks",
        "Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE TPDS 1997",
        {
            "allgather": gather,
            "reducescatter": scatter,
            "allreduce": lambda n, blocks: scatter(n, blocks) + gather(n, blocks),
            "alltoall": _steps(bruck(radix)),
        },
        _a_block_a_rank,
    )


DISSEMINATION = dissemination(2)


def exchange(factors: Sequence[int]) -> Algorithm:
    """AllReduce by exchanges of whole sums, in each step in groups of as many ranks as its factor says."""
    groups = " and ".join(map(str, factors))

    def steps(n: int, blocks: int) -> list[Step]:
        return [Step(*each, REDUCE) for each in exchanges(factors)(n)]

    return Algorithm(
        "exchange", f"Exchange everything in groups of {groups}", RECURSIVE_DOUBLING.paper, {"allreduce": steps}
    )


TWO_TREES = Algorithm(
    "two-trees",
    "Sums go up two binary trees and come down, slice after slice, half of the data on each",
    "Sanders, Speck and Träff, Parallel Computing 2009; slices as NVIDIA NCCL 2.20",
    {"allreduce": _two_trees},
    lambda kind, n, piece: _two_slices(n, piece),
)

BINOMIAL = Algorithm(
    "binomial",
    "From or to the root along a binomial tree: in each step twice as many ranks take part",
    "Thakur, Rabenseifner and Gropp, IJHPCA 2005",
    {
        "broadcast": _binomial,
        "reduce": _backwards(_binomial, REDUCE),
        "scatter": _binomial_scatter,
        "gather": _backwards(_binomial_scatter, COPY),
    },
)

ALGORITHMS = {
    a.name: a for a in (RING, RECURSIVE_DOUBLING, RABENSEIFNER, TWO_TREES, PAIRWISE, BRUCK, ALL_PAIRS, BINOMIAL)
}

WHERE_MESSAGES_COST = ALGORITHMS | {a.name: a for a in map(dissemination, range(2, MOST_RADIX + 1))}
"""These, and what pays where a step sends several blocks in one message."""
