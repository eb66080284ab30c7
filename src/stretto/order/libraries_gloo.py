"""What gloo sends, as PyTorch's backend "gloo" calls it, and by the algorithms that other callers choose.

Facts from pytorch/gloo at 70dc3602: gloo/allreduce.cc (ring, bcube), allgather.cc, broadcast.cc, reduce.cc,
alltoall.cc, gather.cc, scatter.cc, allreduce_halving_doubling.h. PyTorch asks for no algorithm, and gets the ring for
an AllReduce of any size. In AllReduce and Reduce rank v sends to v - 1, in AllGather to v + 1. ReduceScatter is an
AllReduce of which each rank keeps its piece. ``tests/test_order_gloo.py`` compares this with the bytes that gloo of
PyTorch 2.13 puts on each cable of an emulated network.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..model.errors import Unsupported
from ..model.kinds import BY_NAME
from ..model.plan import COPY, REDUCE
from ..schedule.algorithms import ALGORITHMS as PATTERNS
from ..schedule.algorithms import Step
from .exchanges import down, halved, highest_bit, in_a_row, reversed_bits
from .patterns import (
    Part,
    Pattern,
    backwards,
    from_root,
    ring_copies,
    ring_sums,
    ring_sums_and_copies,
    to_root,
    together,
)
from .traffic import Layout, Traffic

SEGMENT_BYTES = 1 << 20
"""Bytes of a segment at most (kMaxSegmentSize of AllReduce and Reduce)."""
LEAST_SEGMENTS = 2
"""Segments of what a rank sends in a step of a ring, at least; AllGather has no more."""
IN_FLIGHT = 2
"""Segments that a rank of a ring sends before it waits for the first that it receives."""


Algorithm = Callable[[int, int, int], Pattern]
"""The pattern for a number of ranks, the bytes of the full buffer, and the root's rank."""


def gloo(layout: Layout, kind: str, size_bytes: int, root: int = 0) -> Traffic:
    """What PyTorch's backend "gloo" sends for a buffer of ``size_bytes``."""
    return _traffic(ALGORITHMS, layout, kind, size_bytes, root)


def halving_doubling(layout: Layout, kind: str, size_bytes: int, root: int = 0) -> Traffic:
    """The same with gloo's AllreduceHalvingDoubling for AllReduce."""
    return _traffic(HALVING_DOUBLING, layout, kind, size_bytes, root)


def bcube(layout: Layout, kind: str, size_bytes: int, root: int = 0) -> Traffic:
    """The same with gloo's algorithm BCUBE for AllReduce."""
    return _traffic(BCUBE, layout, kind, size_bytes, root)


def _traffic(algorithms: dict[str, Algorithm], layout: Layout, kind: str, size_bytes: int, root: int) -> Traffic:
    if kind not in algorithms:
        raise Unsupported(f"gloo has no {kind}; it has {', '.join(sorted(algorithms))}")
    piece_bytes = size_bytes if BY_NAME[kind].whole else size_bytes / layout.ranks
    return algorithms[kind](layout.ranks, size_bytes, root).traffic(piece_bytes)


def _segments(ranks: int, size_bytes: int) -> int:
    """Segments of each rank's share of the buffer."""
    return max(LEAST_SEGMENTS, math.ceil(math.ceil(size_bytes / SEGMENT_BYTES) / ranks))


def _allreduce(ranks: int, size_bytes: int, root: int) -> Pattern:
    steps = ring_sums_and_copies(ranks, place=0, by=-1)
    return Pattern("ring", (Part(steps, segments=_segments(ranks, size_bytes), in_flight=IN_FLIGHT),), ranks)


def _reducescatter(ranks: int, size_bytes: int, root: int) -> Pattern:
    whole = _allreduce(ranks, size_bytes, root)
    return Pattern("ring of all_reduce", whole.parts)


def _allgather(ranks: int, size_bytes: int, root: int) -> Pattern:
    return Pattern("ring", (Part(ring_copies(ranks, begins=0, by=1), segments=LEAST_SEGMENTS, in_flight=IN_FLIGHT),))


def _reduce(ranks: int, size_bytes: int, root: int) -> Pattern:
    ring = Part(ring_sums(ranks, ends=0, by=-1), segments=_segments(ranks, size_bytes), in_flight=IN_FLIGHT)
    return Pattern("ring, then gather", (ring, Part([to_root(ranks, root, np.arange(ranks), COPY)])), ranks)


def _broadcast(ranks: int, size_bytes: int, root: int) -> Pattern:
    return Pattern("binomial tree", (Part(from_root(down(ranks, highest_bit), root, ranks), tree=True),))


def _alltoall(ranks: int, size_bytes: int, root: int) -> Pattern:
    return Pattern("all at once", (Part([together(PATTERNS["pairwise"].steps("alltoall", ranks))]),))


def _gather(ranks: int, size_bytes: int, root: int) -> Pattern:
    return Pattern("all at once", (Part([to_root(ranks, root, np.arange(ranks), COPY)]),))


def _scatter(ranks: int, size_bytes: int, root: int) -> Pattern:
    return Pattern("all at once", (Part(backwards([to_root(ranks, root, np.arange(ranks), COPY)], COPY)),))


# --- the algorithms that other callers choose ---------------------------------------------------


def hypercube(ranks: int) -> Pattern:
    """AllReduce by BCUBE: in groups of 2 as long as the number of ranks is even, then among all that are left."""
    groups, rest = [], ranks
    while rest % 2 == 0:
        groups.append(2)
        rest //= 2
    groups += [rest] if rest > 1 else []
    v, distance, width = np.arange(ranks), 1, ranks
    first = np.zeros(ranks, dtype=np.int64)
    steps = []
    for group in groups:
        place, width = v // distance % group, width // group
        others = [(place + other) % group for other in range(1, group)]
        rows = [in_a_row(v, v + (to - place) * distance, first + to * width, width, REDUCE) for to in others]
        steps.append(together(rows))
        first, distance = first + place * width, distance * group
    copies = [Step(s.block, s.dst, s.src, COPY) for s in reversed(steps)]
    return Pattern("bcube", (Part(steps + copies),), ranks)


def binary_blocks(ranks: int) -> Pattern:
    """AllReduce by AllreduceHalvingDoubling: ranks form blocks by the binary digits of their count, the largest first.

    Each block halves and sums for itself, smallest distance first. A smaller block hands its sums to the next larger
    one and gets the total back; then each block doubles. Rank v of a block of 2^b keeps the part whose number is v's
    lowest b bits in reverse.
    """
    levels = ranks.bit_length() - 1
    chunks = 1 << levels
    sizes = [1 << b for b in reversed(range(ranks.bit_length())) if ranks >> b & 1]
    begins = np.concatenate(([0], np.cumsum(sizes)[:-1])).tolist()
    members = list(zip(begins, sizes, strict=True))
    halving = [together([halved(a, size, s, chunks) for a, size in members if size >> s > 1]) for s in range(levels)]
    up = []
    for place in reversed(range(1, len(sizes))):
        small, large = sizes[place], sizes[place - 1]
        times, part = large // small, chunks // large
        v = np.repeat(np.arange(small), times)
        number = reversed_bits(v, small) * times + np.tile(np.arange(times), small)
        goal = begins[place - 1] + reversed_bits(number, large)
        up.append(in_a_row(begins[place] + v, goal, number * part, part, REDUCE))
    steps = halving + up
    copies = [Step(s.block, s.dst, s.src, COPY) for s in reversed(steps)]
    return Pattern("halving doubling", (Part(steps + copies, tree=True),), chunks)


ALGORITHMS: dict[str, Algorithm] = {
    "allreduce": _allreduce,
    "reducescatter": _reducescatter,
    "allgather": _allgather,
    "reduce": _reduce,
    "broadcast": _broadcast,
    "alltoall": _alltoall,
    "gather": _gather,
    "scatter": _scatter,
}
"""What PyTorch uses, by kind of collective."""
HALVING_DOUBLING = {**ALGORITHMS, "allreduce": lambda ranks, size_bytes, root: binary_blocks(ranks)}
BCUBE = {**ALGORITHMS, "allreduce": lambda ranks, size_bytes, root: hypercube(ranks)}
