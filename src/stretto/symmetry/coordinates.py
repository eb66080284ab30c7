"""Coordinates of accelerators from what joins them, and the shift of each coordinate.

Accelerators that links of one kind join, through switches of one colour, are a block: a server, a rail, a rack, a pod.
Each way to divide the accelerators into blocks (a *partition*) becomes a coordinate: the number of the block, among the
blocks that look alike. Where a partition divides the blocks of a coarser one, blocks are numbered in each
coarser block; where partitions cross, as servers and rails do, each is numbered by itself. What is left has numbers
inside its block. A shift adds one to a coordinate. The numbers in a block are arbitrary, so a shift is a guess,
which :meth:`~.graph.Graph.is_automorphism` confirms or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Bool, Float64, Int64
from ..model.topology import ACCELERATOR
from .extend import components_above, extended
from .graph import Graph, Hash, components, mixed

MOST_LINK_SETS = 64
"""How many sets of links are tried as those that join the accelerators of a block. Networks with more kinds of links
have little symmetry."""

MOST_ORDERS = 4
"""How many orders are tried for the shift of one coordinate, where some classes of equal blocks have more blocks than
others."""


@dataclass(frozen=True, eq=False)
class Shift:
    """A verified permutation that adds one to a coordinate, of the given order."""

    image: Int64  # int64[n]
    order: int
    digit: int  # which coordinate it shifts


def shifts(graph: Graph, colours: Hash, structure: Hash) -> list[Shift]:
    """Verified shifts of coordinates, of each coordinate the largest order first.

    Args:
        colours: uint64[n], refined colours, with those of the caller.
        structure: uint64[n], refined colours of the network alone.
    """
    coordinates = _Coordinates(graph, colours)
    for label in _partitions(graph, structure):
        coordinates.divide(label)
    coordinates.divide(np.arange(len(graph.accelerators)))
    coordinates.merge()
    above = components_above(graph)
    found = []
    for digit, side in enumerate(coordinates.sides):
        for order in _orders(side):
            mapped = coordinates.shifted(digit, order)
            image = None if mapped is None else extended(graph, colours, above, mapped)
            if image is not None and np.array_equal(colours[image], colours) and graph.is_automorphism(image):
                if np.array_equal(power(image, order), np.arange(graph.count)):
                    found.append(Shift(image, order, digit))
    return found


def free_shifts(graph: Graph, found: list[Shift], counted: Bool, partly: bool = False) -> list[Shift]:
    """The shifts, at most one of each coordinate, that together leave the fewest orbits of accelerators.

    They commute. Of an accelerator that counts, all their products have different images, or all leave it where it is.

    Args:
        partly: whether it is enough that all products have different images of one accelerator that counts.
    """
    if not found:
        return []
    by_digit: dict[int, list[Shift | None]] = {}
    for shift in found:
        by_digit.setdefault(shift.digit, [None]).append(shift)
    accelerators = graph.accelerators[counted[graph.accelerators]]
    moved = np.array([shift.image[accelerators] != accelerators for shift in found])
    patterns, times = np.unique(moved, axis=1, return_counts=True)
    row = {id(shift): patterns[k] for k, shift in enumerate(found)}
    best: tuple[float, list[Shift]] = (float(len(accelerators)), [])
    for choice in product(*by_digit.values()):
        chosen = [shift for shift in choice if shift is not None]
        orbit = np.ones(len(times))
        for shift in chosen:
            orbit *= np.where(row[id(shift)], shift.order, 1)
        size = np.prod([shift.order for shift in chosen])
        orbits = float((times / orbit).sum())
        if (
            orbits < best[0]
            and ((orbit == size).any() if partly else ((orbit == 1) | (orbit == size)).all())
            and all(commute(a.image, b.image) for k, a in enumerate(chosen) for b in chosen[:k])
        ):
            best = (orbits, chosen)
    return best[1]


def commute(a: Int64, b: Int64) -> bool:
    """Whether two permutations commute."""
    return np.array_equal(a[b], b[a])


def power(image: Int64, exponent: int) -> Int64:
    """A permutation applied ``exponent`` times."""
    out = np.arange(len(image))
    while exponent:
        if exponent & 1:
            out = image[out]
        image, exponent = image[image], exponent >> 1
    return out


def _orders(side: Int64) -> list[int]:
    """Orders to try for the shift of a coordinate whose side is given for each accelerator, the largest first."""
    sides = np.unique(side[side > 1])
    if not len(sides):
        return []
    common = int(np.gcd.reduce(sides))
    return sorted({*sides[-MOST_ORDERS:].tolist(), *([common] if common > 1 else [])}, reverse=True)


class _Coordinates:
    """Coordinates of accelerators. Partitions are added one after the other, coarse ones first."""

    def __init__(self, graph: Graph, colours: Hash) -> None:
        self.accelerators = graph.accelerators
        self.colour = mixed(colours[self.accelerators])
        self.division = np.zeros(len(self.accelerators), dtype=np.int64)  # by all partitions so far
        self.partitions: list[Int64] = []
        self.digits: list[Int64] = []  # the number of each accelerator's block
        self.sides: list[Int64] = []  # how many blocks look like it, and are numbered with it
        self.kinds: list[Hash] = []

    def divide(self, label: Int64) -> None:
        """Add a partition, int64[accelerators]: the label of each accelerator's block."""
        both = _numbered(self.division * (int(label.max()) + 1) + label)
        if both.max() == self.division.max():
            return
        parent = np.zeros_like(label)
        for coarse in self.partitions:
            if _refines(label, coarse):
                parent = _numbered(parent * (int(coarse.max()) + 1) + coarse)
        digit, side, kind = self._ranked(label, parent)
        inside = self._ranked(both, self.division)
        if not np.array_equal(side, inside[1]):
            digit, side, kind = inside
        self.division = both
        self.partitions.append(label)
        self.digits.append(digit)
        self.sides.append(side)
        self.kinds.append(kind)

    def merge(self) -> None:
        """Make one coordinate of two that tell different accelerators apart, such as those of two kinds of servers."""
        columns = list(zip(self.digits, self.sides, self.kinds, strict=True))
        self.digits, self.sides, self.kinds = [], [], []
        for digit, side, kind in columns:
            for k, other in enumerate(self.sides):
                if not ((other > 1) & (side > 1)).any():
                    self.digits[k] = self.digits[k] + digit
                    self.sides[k] = np.maximum(other, side)
                    self.kinds[k] = mixed(self.kinds[k] + kind)
                    break
            else:
                self.digits.append(digit)
                self.sides.append(side)
                self.kinds.append(kind)

    def _ranked(self, block: Int64, parent: Int64) -> tuple[Int64, Int64, Hash]:
        """For each accelerator the number of its block among the equal blocks of its parent, how many equal blocks the
        parent has, and a hash of what the block looks like."""
        blocks, first, at = np.unique(block, return_index=True, return_inverse=True)
        at = at.reshape(-1)
        looks = np.zeros(len(blocks), dtype=np.uint64)
        np.add.at(looks, at, self.colour)
        order = np.lexsort((first, looks, parent[first]))
        alike = np.ones(len(blocks), dtype=np.bool_)
        alike[1:] = (looks[order][1:] != looks[order][:-1]) | (parent[first[order]][1:] != parent[first[order]][:-1])
        group = np.cumsum(alike) - 1
        starts, sizes = np.flatnonzero(alike), np.bincount(group)
        rank, side = np.empty(len(blocks), dtype=np.int64), np.empty(len(blocks), dtype=np.int64)
        rank[order], side[order] = np.arange(len(blocks)) - starts[group], sizes[group]
        return rank[at], side[at], looks[at]

    def _keys(self, digits: list[Int64]) -> Hash:
        """uint64[accelerators], hashes of what accelerators look like and of their coordinates."""
        key = self.colour
        for digit, kind in zip(digits, self.kinds, strict=True):
            key = mixed(mixed(key + kind) ^ digit.astype(np.uint64))
        return key

    def shifted(self, digit: int, order: int) -> Int64 | None:
        """int64[accelerators], the accelerator whose coordinate is the next one, in cycles of ``order``.

        Where the number of equal blocks is no multiple of ``order``, accelerators stay where they are. None where there
        is no accelerator with the next coordinate.
        """
        digits, side = list(self.digits), self.sides[digit]
        old = digits[digit]
        following = np.where(old % order == order - 1, old - order + 1, old + 1)
        digits[digit] = np.where(side % order == 0, following, old)
        keys, wanted = self._keys(self.digits), self._keys(digits)
        by_key = np.argsort(keys)
        at = np.minimum(np.searchsorted(keys, wanted, sorter=by_key), len(keys) - 1)
        to = by_key[at]
        return self.accelerators[to] if np.array_equal(keys[to], wanted) else None


def _numbered(label: NDArray[Any]) -> Int64:
    """The same labels, numbered from 0."""
    return np.unique(label, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _refines(fine: Int64, coarse: Int64) -> bool:
    """Whether each block of ``fine`` lies in one block of ``coarse``."""
    of = np.zeros(int(fine.max()) + 1, dtype=np.int64)
    of[fine] = coarse
    return np.array_equal(of[fine], coarse)


def _partitions(graph: Graph, structure: Hash) -> list[Int64]:
    """Partitions of the accelerators into blocks that sets of links join, the coarsest first."""
    found: dict[bytes, Int64] = {}
    count = len(graph.accelerators)
    for number, links in enumerate(_link_sets(graph, structure)):
        if number == MOST_LINK_SETS:
            break
        label = _numbered(components(graph.count, graph.tail[links], graph.head[links])[graph.accelerators])
        if 0 < label.max() < count - 1:
            first = np.unique(label, return_index=True)[1]
            label = np.argsort(np.argsort(first))[label]
            found.setdefault(label.tobytes(), label)
    return sorted(found.values(), key=lambda label: int(label.max()))


def _link_sets(graph: Graph, structure: Hash) -> Iterator[Bool]:
    """bool[arcs]: sets of links that may join blocks.

    Links that lead to accelerators, one kind alone, then with kinds of links above them, one after the other; all links
    but those at one kind of switches; all links that have at least some bandwidth. The kinds of links are told apart by
    what their ends are and by their properties, then also by the refined colours of switches, then by these alone.
    Groups of nodes are joined as if by links: by themselves, and together with each set.
    """
    grouped = bool(graph.to_groups.any())
    if grouped:
        yield graph.to_groups
    for chosen in _sets_of_links(graph, structure):
        yield chosen & ~graph.to_groups
        if grouped:
            yield chosen | graph.to_groups


def _sets_of_links(graph: Graph, structure: Hash) -> Iterator[Bool]:
    """The same without groups."""
    served = graph.base == ACCELERATOR
    refined = np.where(served, 0, 1 + _numbered(structure))
    same = np.zeros_like(graph.arc_kind)
    for looks, properties in ((graph.base, graph.arc_kind), (refined, graph.arc_kind), (refined, same)):
        low, high = np.minimum(looks[graph.tail], looks[graph.head]), np.maximum(looks[graph.tail], looks[graph.head])
        kind = _numbered((low * (int(looks.max()) + 1) + high) * (int(properties.max()) + 1) + properties)
        if kind.max() >= MOST_LINK_SETS:
            continue
        first = np.unique(kind, return_index=True)[1]
        ends = np.stack([low[first], high[first]])
        below = np.flatnonzero(ends[0] == 0).tolist()
        yield from (kind == k for k in below)
        for k in below:
            yield from _upward(kind, k, ends, graph.bandwidth[first])
        yield from ((low != c) & (high != c) for c in np.unique(looks[~served]).tolist())
    for bandwidth in np.unique(graph.bandwidth)[::-1].tolist():
        yield graph.bandwidth >= bandwidth


def _upward(kind: Int64, lowest: int, ends: Int64, bandwidth: Float64) -> Iterator[Bool]:
    """bool[arcs]: a kind of links at accelerators, and above it one kind of links more at a time, wide ones first."""
    used, reached = {lowest}, {*ends[:, lowest].tolist()} - {0}
    while True:
        beside = [
            k for k in range(ends.shape[1]) if k not in used and ends[0, k] > 0 and reached & {*ends[:, k].tolist()}
        ]
        if not beside:
            return
        widest = max(beside, key=lambda k: (set(ends[:, k].tolist()) <= reached, bandwidth[k]))
        used.add(widest)
        reached |= {*ends[:, widest].tolist()}
        yield np.isin(kind, list(used))
