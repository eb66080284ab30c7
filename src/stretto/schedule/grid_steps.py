"""Fixed algorithms on a grid of ranks, dimension by dimension, all dimensions at the same time.

Ranks are the cells of a grid; only those of a *line*, which differ in one coordinate alone, exchange
data. A ReduceScatter along one dimension after another leaves each rank its own piece summed; AllGather
goes back the same way; an AllToAll brings each block, dimension by dimension, to where its target is.
Each such *phase* is an algorithm of :mod:`.algorithms` in every line at once. Data is cut into as many
*parts* as there are dimensions, and part j begins with dimension j, so that every dimension is busy in
every phase (SWOT, section 6, on planes partitioned by dimension; multi-dimensional rings as in Sack and
Gropp, PPoPP 2012).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from ..model.arrays import Int64
from ..model.kinds import BY_NAME
from .algorithms import ALGORITHMS, RECURSIVE_DOUBLING, WHERE_MESSAGES_COST, Algorithm, Step

HALVES = {"reducescatter": ("reducescatter",), "allgather": ("allgather",), "alltoall": ("alltoall",),
          "allreduce": ("reducescatter", "allgather")}  # fmt: skip
"""By kind the passes over all dimensions that make it up."""


class Phased(NamedTuple):
    """An algorithm, and where each of its steps belongs.

    A step begins after the one before it in its phase and part, or the last of the phase before in its part and in its
    dimension.
    """

    algorithm: Algorithm
    after: list[list[int]]  # for each step those that end before it begins
    dimension: Int64  # int64[steps], along which each goes


def line_algorithms(kind: str, dims: Sequence[int]) -> list[str]:
    """The algorithms that can carry out every phase of a collective."""
    passes = HALVES.get(kind, ())
    return [
        a.name
        for a in ALGORITHMS.values()
        if passes and all(p in a.kinds and all(a.serves(p, n) is None for n in dims) for p in passes)
    ]


def on_grid(kind: str, dims: Sequence[int], rank: Int64, parts: int, line: str | Sequence[str]) -> Phased:
    """The steps of a collective on a grid.

    Args:
        dims: cells along each dimension; cells are numbered with the last dimension fastest.
        rank: int64[cells], the rank at each.
        parts: into how many the data is cut; part j begins with dimension j.
        line: the algorithm in a line, or in the lines of each dimension.
    """
    steps: list[Step] = []
    after: list[list[int]] = []
    dimension: list[int] = []
    of_part: dict[int, int] = {}
    of_dimension: dict[int, int] = {}
    grid = _Grid(tuple(dims), rank, parts)
    lines = [line] * len(dims) if isinstance(line, str) else line
    for name in HALVES[kind]:
        backwards = BY_NAME[kind].reduces_to_all and not BY_NAME[name].reduces
        for phase in range(len(dims)):
            last_of_dimension = dict(of_dimension)
            for part in range(parts):
                order = [(part + t) % len(dims) for t in range(len(dims))]
                order = order[::-1] if backwards else order
                d = order[phase]
                before = {m[key] for m, key in ((of_part, part), (last_of_dimension, d)) if key in m}
                for step in WHERE_MESSAGES_COST[lines[d]].steps(name, dims[d]):
                    steps.append(grid.lifted(name, step, order, phase, part))
                    after.append(sorted(before))
                    dimension.append(d)
                    before = {len(steps) - 1}
                of_part[part] = of_dimension[d] = len(steps) - 1
    blocks = parts * (len(rank) if BY_NAME[kind].reduces_to_all else 1)
    summary = f"{' and '.join(dict.fromkeys(lines))} in every line, dimension by dimension"
    made = Algorithm("by-dimension", summary, "", {kind: lambda n, b: steps}, lambda k, n, piece: blocks)
    return Phased(made, after, np.array(dimension))


def exchanged_last(
    dims: Sequence[int], rank: Int64, lines: Sequence[str], exchange: Algorithm = RECURSIVE_DOUBLING
) -> Algorithm:
    """AllReduce on a grid where the last dimension exchanges whole sums, instead of a ReduceScatter and an AllGather.

    Halving and doubling between two ranks sends as many bytes as an exchange of whole sums, in twice the steps, but
    halves what follows. So at the end, where nothing follows, exchanges are better. (Rabenseifner, ICCS 2004, has both
    ends of this.)

    Args:
        dims, rank: as of :func:`on_grid`.
        lines: the algorithms in the lines of the other dimensions.
        exchange: the AllReduce of a block among the ranks of the last one.
    """
    *first, last = dims
    grid, blocks = _Grid(tuple(dims), rank, 1), rank.reshape(-1, last)[:, 0]
    order = list(range(len(dims)))
    scatter, gather = list[Step](), list[Step]()
    for d, n in enumerate(first):
        line = WHERE_MESSAGES_COST[lines[d]]
        scatter += [grid.lifted("reducescatter", step, order, d, 0) for step in line.steps("reducescatter", n)]
        back = [grid.lifted("allgather", step, order[::-1], len(first) - d, 0) for step in line.steps("allgather", n)]
        gather = [*back, *gather]
    whole = exchange.steps("allreduce", last)
    sums = [grid.lifted("reducescatter", step, order, len(first), 0) for step in whole]
    number = np.full(len(rank), -1)
    number[blocks] = np.arange(len(blocks))
    kept = [(step, number[step.block] >= 0) for step in (*scatter, *sums, *gather)]
    steps = [Step(number[s.block[k]], s.src[k], s.dst[k], s.op) for s, k in kept]
    summary = f"{' and '.join(dict.fromkeys(lines))} in every line, dimension by dimension, then " if first else ""
    summary += exchange.summary.lower()
    return Algorithm("by-dimension", summary, "", {"allreduce": lambda n, b: steps}, lambda k, n, piece: len(blocks))


class _Grid(NamedTuple):
    dims: tuple[int, ...]
    rank: Int64
    parts: int

    def lifted(self, kind: str, step: Step, order: Sequence[int], phase: int, part: int) -> Step:
        """A step of a line of dimension ``order[phase]`` in all lines, with every block that is meant by one there."""
        d, done, later = order[phase], order[:phase], order[phase + 1 :]
        n = self.dims[d]
        stride = self._stride(d)
        lines = self._offsets([e for e in range(len(self.dims)) if e != d])
        if BY_NAME[kind].pieces == "pair":
            # from a to z: a has not moved along what comes later, z is reached along what is done
            a = self._cells(step.block // n, lines, d, later, self._offsets(done))
            z = self._cells(step.block % n, lines, d, done, self._offsets(later))
            cells = len(self.rank)
            piece = self.rank[a][..., :, None] * cells + self.rank[z][..., None, :]
            piece = piece.reshape(*piece.shape[:2], -1)
        else:
            agree, free = (done, later) if BY_NAME[kind].reduces else (later, done)
            piece = self.rank[self._cells(step.block, lines, d, agree, self._offsets(free))]
        src, dst = (self.rank[lines + stride * v[:, None]][..., None] + 0 * piece for v in (step.src, step.dst))
        return Step((piece * self.parts + part).ravel(), src.ravel(), dst.ravel(), step.op)

    def _stride(self, d: int) -> int:
        return prod(self.dims[d + 1 :])

    def _offsets(self, free: Sequence[int]) -> Int64:
        """int64[cells], those whose coordinates outside ``free`` are 0."""
        cells = np.zeros(1, dtype=np.int64)
        for d in free:
            cells = (cells[:, None] + self._stride(d) * np.arange(self.dims[d])).ravel()
        return cells

    def _cells(self, at: Int64, lines: Int64, d: int, agree: Sequence[int], offsets: Int64) -> Int64:
        """int64[rows, lines, offsets]: coordinate ``at`` along d, the line's own along ``agree``, offsets elsewhere."""
        own = np.zeros_like(lines)
        for e in agree:
            own += lines // self._stride(e) % self.dims[e] * self._stride(e)
        cells: Int64 = (at * self._stride(d))[:, None, None] + own[None, :, None] + offsets
        return cells
