"""Steps that MPI libraries have in common: trees, doubling and halving, and numbers of ranks other than powers of two.

Blocks are counted as in :class:`.patterns.Part`. Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication
Operations in MPICH", IJHPCA 2005, describes most of them; which library sends in which order is said where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..model.arrays import Int64
from ..model.plan import COPY, REDUCE
from ..schedule.algorithms import ALGORITHMS, Step
from .patterns import renumbered

# --- trees ----------------------------------------------------------------------------------------


def highest_bit(v: int) -> int:
    """Parent in a binomial tree in which rank 0 sends to 1, then 0 and 1 to 2 and 3, and so on."""
    return v - (1 << (v.bit_length() - 1))


def lowest_bit(v: int) -> int:
    """Parent in a binomial tree in which each subtree is ranks in a row."""
    return v & (v - 1)


def knomial(radix: int) -> Callable[[int], int]:
    """Parent in a k-nomial tree: the lowest digit that is not zero, to that base, becomes zero."""

    def parent(v: int) -> int:
        unit = 1
        while v % (radix * unit) == 0:
            unit *= radix
        return v // (radix * unit) * (radix * unit)

    return parent


def binary(v: int) -> int:
    """Parent in Open MPI's binary tree: with 2^l ranks on a level, rank v has the children v + 2^l and v + 2 * 2^l."""
    level = (v + 1).bit_length() - 1
    above = 1 << (level - 1)
    return v - above if v - above < 2 * above - 1 else v - 2 * above


def chain(v: int) -> int:
    """Parent in a chain: the rank before."""
    return v - 1


def down(ranks: int, parent: Callable[[int], int], whole: bool = True) -> list[Step]:
    """From rank 0 down a tree, level by level.

    Args:
        parent: of each other rank, a lower number.
        whole: whether all get the buffer (a Broadcast), or each subtree the pieces of its ranks (a Scatter).
    """
    above = [-1, *(parent(v) for v in range(1, ranks))]
    level, below = [0] * ranks, [[v] for v in range(ranks)]
    for v in range(1, ranks):
        level[v] = level[above[v]] + 1
    for v in reversed(range(1, ranks)):
        below[above[v]] += below[v]
    steps = []
    for depth in range(1, max(level) + 1):
        rows = [(b, above[v], v) for v in range(ranks) if level[v] == depth for b in ([0] if whole else below[v])]
        steps.append(_step(rows, COPY))
    return steps


def halves_down(ranks: int, whole: bool = True) -> list[Step]:
    """Down the tree of :func:`lowest_bit`, farthest first: who has the data sends to rank + 2^s, for s from the top."""
    steps = ALGORITHMS["binomial"].steps("scatter", ranks)
    if not whole:
        return steps
    ends = (np.unique(np.stack((s.src, s.dst)), axis=1) for s in steps)
    return [Step(np.zeros_like(src), src, dst, COPY) for src, dst in ends]


def _step(rows: Sequence[tuple[int, int, int]], op: int) -> Step:
    """A step of rows (block, sender, receiver)."""
    block, src, dst = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return Step(block, src, dst, op)


def one_by_one(ranks: int, root: int, pieces: bool, op: int, last_first: bool = False) -> list[Step]:
    """A step for each other rank, which sends the root its piece, or all that it has."""
    others = [v for v in range(ranks) if v != root]
    return [_step([(v if pieces else 0, v, root)], op) for v in (reversed(others) if last_first else others)]


# --- exchanges ----------------------------------------------------------------------------------


def exchanged_sums(ranks: int, blocks: int = 1) -> list[Step]:
    """Step s: everyone sends all that it has summed up to rank ^ 2^s; for a power of two of ranks."""
    block, v = (a.ravel() for a in np.meshgrid(np.arange(blocks), np.arange(ranks)))
    return [Step(block, v, v ^ (1 << s), REDUCE) for s in range(ranks.bit_length() - 1)]


def halving_and_doubling(ranks: int) -> list[Step]:
    """AllReduce of a power of two of ranks by halves, quarters, and so on, at distances 1, 2, 4; then back."""
    return ALGORITHMS["rabenseifner"].steps("allreduce", ranks)


def in_a_row(src: Int64, dst: Int64, first: Int64, width: int, op: int) -> Step:
    """Each sender sends ``width`` blocks, from ``first`` on."""
    block = (first[:, None] + np.arange(width)).ravel()
    return Step(block, np.repeat(src, width), np.repeat(dst, width), op)


def reversed_bits(v: Int64, size: int) -> Int64:
    """The lowest bits of each number, those below ``size``, in reverse."""
    bits = size.bit_length() - 1
    return sum(((v >> b & 1) << (bits - 1 - b) for b in range(bits)), np.zeros_like(v))


def halved(begin: int, size: int, s: int, chunks: int) -> Step:
    """Step s of a ReduceScatter of ``size`` ranks from ``begin`` on: each sends rank ^ 2^s the half it does not keep.

    At last rank v has, of ``chunks`` chunks in a row, the part whose number is v's bits in reverse.
    """
    v = np.arange(size)
    part = chunks >> (s + 1)
    first = reversed_bits(v & ((1 << s) - 1), 1 << s) * (part * 2)
    return in_a_row(begin + v, begin + (v ^ (1 << s)), first + np.where(v >> s & 1, 0, part), part, REDUCE)


def sums_at(power: int, root: int) -> tuple[list[Step], list[Step]]:
    """Reduce among a power of two by halves, each of as many blocks: the steps that sum up, and those that bring the
    sums to the root, where in each step those leave whose last bit that differs from the root's is the step's."""
    halving = [halved(0, power, s, power) for s in range(power.bit_length() - 1)]
    gather = []
    for s in reversed(range(len(halving))):
        step = halving[s]
        sends = (step.dst ^ root) >> s == 1
        gather.append(Step(step.block[sends], step.dst[sends], step.src[sends], COPY))
    return halving, gather


def nearest_last_halving(ranks: int) -> list[Step]:
    """ReduceScatter of a power of two of ranks: half of the buffer to rank ^ ranks / 2, at last a piece to rank ^ 1."""
    steps = []
    block, v = (a.ravel() for a in np.meshgrid(np.arange(ranks), np.arange(ranks)))
    for s in reversed(range(ranks.bit_length() - 1)):
        sends = (block >> s) == ((v >> s) ^ 1)
        steps.append(Step(block[sends], v[sends], v[sends] ^ (1 << s), REDUCE))
    return steps


def doubled_pieces(ranks: int) -> list[Step]:
    """AllGather of a power of two of ranks: step s sends rank ^ 2^s the pieces of 2^s ranks in a row."""
    block, v = (a.ravel() for a in np.meshgrid(np.arange(ranks), np.arange(ranks)))
    steps = []
    for s in range(ranks.bit_length() - 1):
        sends = (block >> s) == (v >> s)
        steps.append(Step(block[sends], v[sends], v[sends] ^ (1 << s), COPY))
    return steps


def bruck_pieces(ranks: int) -> list[Step]:
    """AllGather of any number of ranks: step s sends rank - 2^s as many of the pieces from its own on as that lacks."""
    steps = []
    for s in range((ranks - 1).bit_length()):
        place, v = (a.ravel() for a in np.meshgrid(np.arange(min(1 << s, ranks - (1 << s))), np.arange(ranks)))
        steps.append(Step((v + place) % ranks, v, (v - (1 << s)) % ranks, COPY))
    return steps


def neighbor_exchange(ranks: int) -> list[Step]:
    """AllGather of an even number of ranks: pairs exchange pieces, then in turn with the neighbours on both sides what
    came last, two pieces each time."""
    v = np.arange(ranks)
    near = np.where(v % 2, (v - 1) % ranks, (v + 1) % ranks)
    far = np.where(v % 2, (v + 1) % ranks, (v - 1) % ranks)
    steps = [Step(v, v, near, COPY)]
    first = v - v % 2  # the first of the two pieces that a rank sends next
    for s in range(1, ranks // 2):
        to = far if s % 2 else near
        block = np.concatenate((first, first + 1)) % ranks
        steps.append(Step(block, np.tile(v, 2), np.tile(to, 2), COPY))
        first = first[to]
    return steps


def every_block(step: Step, blocks: int) -> Step:
    """The step with a number of blocks in place of each one."""
    block = np.tile(np.arange(blocks), len(step.src))
    return Step(block, np.repeat(step.src, blocks), np.repeat(step.dst, blocks), step.op)


# --- other numbers than powers of two --------------------------------------------------------------


def power_below(ranks: int) -> int:
    """The largest power of two that is not above."""
    return 1 << (ranks.bit_length() - 1)


def members(ranks: int, odd: bool) -> Int64:
    """The ranks that take part in a power of two: of the first pairs, as many as are too many, the odd or even one."""
    over = ranks - power_below(ranks)
    return np.concatenate((2 * np.arange(over) + odd, np.arange(2 * over, ranks)))


def folded(ranks: int, steps: Callable[[int], list[Step]], blocks: int) -> list[Step]:
    """An AllReduce among a power of two: even ranks of the first pairs hand in all they have, and get the result."""
    power = power_below(ranks)
    if power == ranks:
        return steps(ranks)
    block, even = (a.ravel() for a in np.meshgrid(np.arange(blocks), 2 * np.arange(ranks - power)))
    inner = renumbered(steps(power), members(ranks, odd=True))
    return [Step(block, even, even + 1, REDUCE), *inner, Step(block, even + 1, even, COPY)]


def folded_pieces(ranks: int, steps: Callable[[int], list[Step]], owner: Callable[[Int64, int], Int64]) -> list[Step]:
    """A ReduceScatter among a power of two: the even ranks of the first pairs hand in all, and get their piece at last.

    Args:
        steps: for a power of two of ranks, each of which sums a block, which is the pieces of the ranks it stands for.
        owner: which of these ranks has each block at last, and sends the pieces to whom they belong.
    """
    power = power_below(ranks)
    over, inner = ranks - power, members(ranks, odd=True)
    first = np.concatenate((2 * np.arange(over), np.arange(2 * over, ranks)))  # the first piece of each block
    width = np.where(np.arange(power) < over, 2, 1)
    out = []
    if over:
        block, even = (a.ravel() for a in np.meshgrid(np.arange(ranks), 2 * np.arange(over)))
        out.append(Step(block, even, even + 1, REDUCE))
    for step in steps(power):
        rows = np.repeat(np.arange(len(step.block)), width[step.block])
        second = np.concatenate(([False], rows[1:] == rows[:-1]))
        out.append(Step(first[step.block[rows]] + second, inner[step.src[rows]], inner[step.dst[rows]], step.op))
    piece = np.arange(ranks)
    at = inner[owner(np.searchsorted(first, piece, side="right") - 1, power)]
    moves = at != piece
    return [*out, Step(piece[moves], at[moves], piece[moves], COPY)]


def folded_by_halves(ranks: int, steps: Callable[[int], list[Step]], blocks: int) -> list[Step]:
    """Likewise, but a pair exchanges halves, sums them, and the odd rank hands its half in; the even one takes part."""
    power = power_below(ranks)
    if power == ranks:
        return steps(ranks)
    half = max(blocks // 2, 1)
    low, even = (a.ravel() for a in np.meshgrid(np.arange(half), 2 * np.arange(ranks - power)))
    high, same = (a.ravel() for a in np.meshgrid(np.arange(half, blocks), 2 * np.arange(ranks - power)))
    block_of, src, dst = (np.concatenate(c) for c in ((low, high), (even + 1, same), (even, same + 1)))
    block, whole = (a.ravel() for a in np.meshgrid(np.arange(blocks), 2 * np.arange(ranks - power)))
    inner = renumbered(steps(power), members(ranks, odd=False))
    return [
        Step(block_of, src, dst, REDUCE),
        Step(high, same + 1, same, COPY),
        *inner,
        Step(block, whole, whole + 1, COPY),
    ]
