"""Ways along a line of ranks: the messages by which all of them hear from all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...model.arrays import Bool, Float64, Int64
from ...model.symmetry import Symmetry
from .routes import Routes

RADICES = 2, 3, 4, 8
"""By how much, at most, what a rank has grows while it waits for nothing; those that are less than all of a line."""


class Move(NamedTuple):
    """A message that all ranks of a line send alike.

    Attributes:
        step: the exponent of the generator by which the receiver differs from the sender.
        taken: int64[any], those by which the sender differs from the owners of what it takes along.
        halves: which halves of that it takes; where data is not halved there is one.
    """

    step: int
    taken: Int64
    halves: tuple[int, ...]


class Line(NamedTuple):
    """How ranks that differ in one coordinate alone gather what each of them has.

    Attributes:
        sent: float64[moves], how many chunks each takes along.
        message_s, chunk_s: float64[links], for how long the messages and the chunks keep the links of each orbit, at
            the orbit's first link.
        latency_s: of the moves that wait for each other.
    """

    name: str
    moves: Sequence[Move]
    sent: Float64
    message_s: Float64
    chunk_s: Float64
    latency_s: float


def lines(
    symmetry: Symmetry, digit: int, reached: Bool, routes: Routes, block_bytes: float, pairs: bool, halved: bool
) -> Iterator[Line]:
    """The ways along a coordinate over ranks that routes lead to.

    Args:
        digit: the generator.
        block_bytes: of the chunk of each rank, or of each pair of ranks.
        halved: whether the data is in two halves, which may go different ways.
    """
    order, stride, net = int(symmetry.orders[digit]), int(symmetry.strides[digit]), symmetry.topology
    for name, levels, moves in along(order, halved):
        steps = np.array([move.step for move in moves]) * stride
        if not reached[steps].all():
            continue
        sent = np.array([len(move.taken) * len(move.halves) for move in moves]) / (1 + halved)
        chunks = passed(order, moves) / (1 + halved) if pairs else sent
        route = routes.links.take(steps)
        link = route.values
        orbit, copies = symmetry.link_orbits[link], symmetry.copies[link]
        chunk_s = chunks[route.owners] * (block_bytes / net.bandwidth[link])
        message_s, byte_s = (
            np.bincount(orbit, copies * each, net.link_count).astype(np.float64)
            for each in (net.message_s[link], chunk_s)
        )
        yield Line(name, moves, sent, message_s, byte_s, levels * float(routes.latency_s[steps].max()))


def along(order: int, halved: bool) -> Iterator[tuple[str, int, list[Move]]]:
    """The ways along a line of ranks: a name, how many messages wait for each other, and the moves."""
    both = (0, 1) if halved else (0,)
    for radix in (*(r for r in RADICES if r < order), order):
        moves, width, levels = list[Move](), 1, 0
        while width < order:
            steps = range(width, min(radix * width, order), width)
            moves += [Move(step, np.arange(min(width, order - step)), both) for step in steps]
            width, levels = width * radix, levels + 1
        yield "direct" if radix == order else f"radix {radix}", levels, moves
    if order > 2:
        around = list[Move]()
        for there in range(order // 2):
            around += [Move(1, np.array([there]), both), Move(order - 1, np.array([-there % order]), both)]
        if order % 2 == 0:  # to the rank on the other side a half goes either way, or all goes one way
            around[-2:] = [move._replace(halves=each) for move, each in zip(around[-2:], ((0,), both[1:]), strict=True)]
        yield "ring", order // 2, [move for move in around if move.halves]


def passed(order: int, moves: Sequence[Move]) -> Int64:
    """int64[moves], for how many halves of what goes to each rank of a line each move is on the way."""
    by, before = np.full((2, order), -1), np.zeros((2, order), dtype=np.int64)
    for number, (step, taken, halves) in enumerate(moves):
        for half in halves:
            by[half, (taken + step) % order], before[half, (taken + step) % order] = number, taken
    through = np.zeros(len(moves), dtype=np.int64)
    for half in range(1 + max(max(move.halves) for move in moves)):
        at = np.arange(1, order)
        while len(at):
            through += np.bincount(by[half, at], minlength=len(moves))
            at = before[half, at]
            at = at[at > 0]
    return through
