"""Which of equally short paths an exchange takes: pipes have classes, and those of the lowest class go first."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ....model.arrays import Int64
from ....schedule.pipes import Network

MOST_NEIGHBOURS = 8
"""Neighbours of a node up to which its squares are looked at."""

Pair = tuple[int, int]


class PairClasses:
    """Classes of unordered pairs of nodes; the lowest pair of each class stands for it."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self.lower = {pair: pair for pair in pairs}

    def of(self, v: int, w: int) -> Pair:
        """The pair that stands for the class of a pair."""
        pair = min(v, w), max(v, w)
        while self.lower[pair] != pair:
            self.lower[pair] = pair = self.lower[self.lower[pair]]
        return pair

    def join(self, one: Pair, other: Pair) -> None:
        """Make the classes of two pairs one."""
        low, high = sorted((self.of(*one), self.of(*other)))
        self.lower[high] = low


def colour_pairs(network: Network) -> Int64:
    """int64[pipes], a proper colouring of the pairs that pipes join, cheap ones first: what is summed before what."""
    colours = np.zeros(len(network.src), dtype=np.int64)
    taken: dict[int, set[int]] = {}
    pairs: dict[tuple[int, int], int] = {}
    for p in np.argsort(np.round(network.cost_s / network.cost_s.max(), 6), kind="stable").tolist():
        a, b = int(network.src[p]), int(network.dst[p])
        key = (min(a, b), max(a, b))
        if key not in pairs:
            colour = 0
            while colour in taken.setdefault(a, set()) or colour in taken.setdefault(b, set()):
                colour += 1
            pairs[key] = colour
            taken[a].add(colour)
            taken[b].add(colour)
        colours[p] = pairs[key]
    return colours


def parallel_pipes(network: Network) -> Int64:
    """int64[pipes], equal for pairs that are opposite sides of a square without diagonals, and so on from square to
    square: on a hypercube the dimensions."""
    ends = list(zip(network.src.tolist(), network.dst.tolist(), strict=True))
    pairs = sorted({(min(a, b), max(a, b)) for a, b in ends})
    beside: dict[int, set[int]] = {}
    for a, b in pairs:
        beside.setdefault(a, set()).add(b)
        beside.setdefault(b, set()).add(a)
    classes = PairClasses(pairs)
    for a, b in pairs:
        if max(len(beside[a]), len(beside[b])) <= MOST_NEIGHBOURS:
            for c in beside[a] - beside[b] - {b}:
                for d in (beside[b] & beside[c]) - beside[a] - {a}:
                    classes.join((a, b), (c, d))
    number = {pair: k for k, pair in enumerate(pairs)}
    return np.array([number[classes.of(a, b)] for a, b in ends], dtype=np.int64)
