"""Outlines of programs of moves: along which coordinates data goes, in which order and how, and how long that takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from ...model.arrays import Float64, Int64
from ...model.symmetry import Symmetry
from .lines import Line

BATCHES = 1, 2, 3, 4, 6, 8, 12, 16, 32
"""Parts in which what has come along one coordinate goes on along the next."""

MOST_MOVES = 1_000
"""Moves of a program, at most."""

MOST_OUTLINES = 4_000
"""Outlines of programs that are looked at, at most: 0.2 s of CPU."""

FILLING = 0.5
"""Share of the time for which moves follow each other that links are not busy, where coordinates are taken in turns.
With 0 AllGather of 256 MB on tpuv4:4x4x8 ends at 1.15 of the bound, with 0.25 at 1.04, 0.5 at 1.05, 1 at 1.07
(``stretto plan allgather -t tpuv4:4x4x8 --size 256MB -p symmetric``)."""

Stage = tuple[int, Line, int]
"""A generator, how moves go along it, and in how many batches."""


class Outline(NamedTuple):
    """Stages of a program, and what they take, about.

    Attributes:
        sizes: float64[arrivals], the chunks that have come together, in the order in which they do.
        total_s: float64[links], for how long the links of each orbit are busy, at its first link.
        path_s: for how long moves follow each other: all along the first coordinate, then those of the last batches.
        moves: how many there are.
    """

    stages: tuple[Stage, ...]
    sizes: Float64
    total_s: Float64
    path_s: float
    moves: int

    def end_s(self, turns: int) -> float:
        """When it ends, about, if as many parts of the data go along the coordinates in turns, so that all links are
        busy alike once there is enough to send."""
        busy = self.total_s[self.total_s > 0]
        if turns == 1 or not len(busy):
            return max(float(busy.max(initial=0.0)), self.path_s)
        return max(turns * float(busy.mean()) + FILLING * self.path_s, self.path_s)

    def further(self, symmetry: Symmetry, digit: int, line: Line, pairs: bool) -> Iterator[Outline]:
        """With a further stage, in each number of batches that makes a difference."""
        came, known = float(self.sizes.sum()), set[int]()
        for parts in BATCHES if self.stages else BATCHES[:1]:
            batch = np.bincount(batches(self.sizes, parts), self.sizes)
            batch = batch[batch > 0]
            moves = self.moves + len(batch) * len(line.moves)
            if len(batch) in known or moves > MOST_MOVES:
                continue
            known.add(len(batch))
            chunk_s = (symmetry.size // int(symmetry.orders[digit]) if pairs else came) * line.chunk_s
            path_s = float((line.message_s + chunk_s * (batch[-1] / came)).max()) + line.latency_s
            sizes = (batch[:, None] * np.append(1.0, line.sent)).ravel()
            total_s = self.total_s + len(batch) * line.message_s + chunk_s
            yield Outline((*self.stages, (digit, line, parts)), sizes, total_s, self.path_s + path_s, moves)


def batches(sizes: Float64 | Int64, parts: int) -> Int64:
    """int64[arrivals], the batch of each of what comes, of about equal sizes."""
    number: Int64 = ((np.cumsum(sizes) - sizes) * parts // sizes.sum()).astype(np.int64)
    return number


def soonest(
    symmetry: Symmetry, lines: Mapping[int, Sequence[Line]], order: Sequence[int], turns: int, most: int, pairs: bool
) -> list[Outline]:
    """The outlines of programs that end first by an estimate, the soonest first.

    Args:
        lines: the ways along the coordinate of each generator.
        order: the generators, in the order in which data goes along them; none for any order.
        turns: how many parts of the data go in as many orders at the same time.
        most: how many outlines are asked for.
    """
    found: list[Outline] = []
    worst_s, looked = inf, 0
    waiting = [Outline((), np.ones(1), np.zeros(symmetry.topology.link_count), 0.0, 0)]
    while waiting and looked < MOST_OUTLINES:
        outline = waiting.pop()
        done = len(outline.stages)
        if done == len(lines):
            found = sorted([*found, outline], key=lambda each: each.end_s(turns))[:most]
            worst_s = found[-1].end_s(turns) if len(found) == most else inf
            continue
        left = order[done : done + 1] or [k for k in lines if k not in {digit for digit, _, _ in outline.stages}]
        further = [each for k in left for line in lines[k] for each in outline.further(symmetry, k, line, pairs)]
        looked += len(further)
        # those that may end first are gone on with first; with one part a further stage never makes one end sooner, and
        # what its estimate leaves out with several parts was not better
        further.sort(key=lambda each: -each.end_s(turns))
        waiting += [each for each in further if each.end_s(turns) < worst_s]
    return found
