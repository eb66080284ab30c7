"""Outlines of programs of moves: along which coordinates data goes, in which order and how, and how long that takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from ...model.arrays import Bool, Float64, Int64
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
        total_s: float64[orbits], for how long the links of each orbit are busy that lines use.
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

    def batched(self) -> list[tuple[int, Float64]]:
        """Numbers of parts in which what has come may go on, each that makes a difference, and the sizes of batches."""
        found: dict[int, tuple[int, Float64]] = {}
        for parts in BATCHES if self.stages else BATCHES[:1]:
            batch: Float64 = np.bincount(batches(self.sizes, parts), self.sizes).astype(np.float64)
            batch = batch[batch > 0]
            found.setdefault(len(batch), (parts, batch))
        return list(found.values())

    def further(
        self, symmetry: Symmetry, digit: int, line: Line, used: Bool, pairs: bool, batched: list[tuple[int, Float64]]
    ) -> Iterator[Outline]:
        """With a further stage, in each number of batches.

        Args:
            used: bool[links], the first ones of the orbits that lines use.
        """
        came, message_s, each_s = float(self.sizes.sum()), line.message_s[used], line.chunk_s[used]
        for parts, batch in batched:
            moves = self.moves + len(batch) * len(line.moves)
            if moves > MOST_MOVES:
                continue
            chunk_s = (symmetry.size // int(symmetry.orders[digit]) if pairs else came) * each_s
            path_s = float((message_s + chunk_s * (batch[-1] / came)).max()) + line.latency_s
            sizes = (batch[:, None] * np.append(1.0, line.sent)).ravel()
            total_s = self.total_s + len(batch) * message_s + chunk_s
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
    found: list[tuple[float, Outline]] = []
    worst_s, looked = inf, 0
    used = np.any([(line.message_s > 0) | (line.chunk_s > 0) for each in lines.values() for line in each], axis=0)
    waiting = [(0.0, Outline((), np.ones(1), np.zeros(used.sum()), 0.0, 0))]
    while waiting and looked < MOST_OUTLINES:
        end_s, outline = waiting.pop()
        done = len(outline.stages)
        if done == len(lines):
            found = sorted([*found, (end_s, outline)], key=lambda each: each[0])[:most]
            worst_s = found[-1][0] if len(found) == most else inf
            continue
        left = order[done : done + 1] or [k for k in lines if k not in {digit for digit, _, _ in outline.stages}]
        batched = outline.batched()
        each_way = (outline.further(symmetry, k, line, used, pairs, batched) for k in left for line in lines[k])
        further = [(each.end_s(turns), each) for way in each_way for each in way]
        looked += len(further)
        # those that may end first are gone on with first; with one part a further stage never makes one end sooner, and
        # what its estimate leaves out with several parts was not better
        further.sort(key=lambda each: -each[0])
        waiting += [each for each in further if each[0] < worst_s]
    return [outline for _, outline in found]
