"""Chains of cosets: the ways in which data comes from one rank to all others, phase by phase.

The coordinates of a rank are the exponents of the element that maps the first rank to it. A *phase* changes some of
them: whoever has a chunk passes it on to all ranks that differ from it in these coordinates alone, its coset. Over a
switch it sends to each of them; where few of them are joined, or where they are many, along a tree, which is the same
everywhere. A *chain* is phases that change each coordinate once. It delivers each chunk to each rank once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from ...model.arrays import Int64
from ...model.symmetry import Symmetry
from .routes import Routes

MOST_DIGITS = 4
"""Coordinates that chains tell apart: 75 chains. The smallest of more are joined."""

MOST_TRIED = 1 << 22
"""Pairs of a rank and a step that the search for a tree over neighbours may look at."""

Digits = tuple[int, ...]
"""Generators whose exponents a phase changes."""


@dataclass(frozen=True, eq=False)
class Phase:
    """A tree over the elements of a coset's subgroup.

    Attributes:
        elements: int64[ranks], the elements, the identity first.
        parent: int64[ranks], the place of each element's parent in ``elements``, which is before it; 0 for the first.
        step: int64[ranks], the element by which each differs from its parent.
    """

    elements: Int64
    parent: Int64
    step: Int64

    @property
    def size(self) -> int:
        return len(self.elements)

    @cached_property
    def depth(self) -> Int64:
        """int64[ranks], the steps to each element."""
        depth, node = np.zeros(self.size, dtype=np.int64), np.arange(self.size)
        while node.any():
            depth += node > 0
            node = self.parent[node]
        return depth

    @cached_property
    def below(self) -> Int64:
        """int64[ranks], how many elements are reached through each, itself included."""
        count, node = np.zeros(self.size, dtype=np.int64), np.arange(self.size)
        while node.any():
            count += np.bincount(node, node > 0, self.size).astype(np.int64)
            node = self.parent[node]
        return count


Chain = tuple[Phase, ...]


def chains_of(symmetry: Symmetry, digits: Digits, routes: Routes, most_children: int) -> list[Chain]:
    """The chains over these digits whose phases routes serve.

    Args:
        most_children: ranks in a coset beyond which its phases have trees of two levels.
    """
    blocks: list[Digits] = [(k,) for k in digits if symmetry.orders[k] > 1]
    while len(blocks) > MOST_DIGITS:
        blocks.sort(key=lambda block: int(np.prod(symmetry.orders[list(block)])))
        blocks[:2] = [tuple(sorted(blocks[0] + blocks[1]))]
    blocks.sort()
    phases: dict[Digits, list[Phase]] = {}

    def found(sets: Digits) -> list[Phase]:
        if sets not in phases:
            inside = tuple(sorted(k for number in sets for k in blocks[number]))
            phases[sets] = phases_of(symmetry, inside, routes, most_children, one=len(sets) == 1)
        return phases[sets]

    out: list[Chain] = []
    for order in _partitions(tuple(range(len(blocks)))):
        ways = [found(sets) for sets in order]
        if all(ways):
            # all phases with their first trees, or all with their mirrored ones
            out += [tuple(trees[min(way, len(trees) - 1)] for trees in ways) for way in range(max(map(len, ways)))]
    return out


def _partitions(digits: Digits) -> Iterator[tuple[Digits, ...]]:
    """All ordered partitions of a set."""
    if not digits:
        yield ()
    for count in range(1, len(digits) + 1):
        for first in combinations(digits, count):
            for rest in _partitions(tuple(k for k in digits if k not in first)):
                yield (first, *rest)


def phases_of(symmetry: Symmetry, digits: Digits, routes: Routes, most_children: int, one: bool) -> list[Phase]:
    """The trees over the subgroup of some digits: one where all are joined; else, of ``one`` coordinate, one over
    neighbours and its mirror; none where routes do not join them."""
    grid = np.indices(tuple(symmetry.orders[list(digits)].tolist())).reshape(len(digits), -1)
    elements = (grid * symmetry.strides[list(digits)][:, None]).sum(axis=0)
    joined = routes.reached[elements]
    if joined[1:].all():
        return [direct_phase(symmetry, elements, most_children)]
    steps = elements[joined]
    if not one or not len(steps) or len(steps) * len(elements) > MOST_TRIED:
        return []
    trees = [_tree(symmetry, elements, order) for order in (steps, steps[::-1])]
    return [tree for tree in trees if tree is not None]


def direct_phase(symmetry: Symmetry, elements: Int64, most_children: int) -> Phase:
    """A phase in which whoever has a chunk sends it to each of ``elements``, the identity first; if these are more than
    ``most_children``, over a tree of two levels."""
    number, width = np.arange(len(elements)), len(elements)
    if len(elements) - 1 > most_children:
        width = int(np.ceil(np.sqrt(len(elements))))
    return tree_phase(symmetry, elements, np.where(number % width > 0, number - number % width, 0))


def tree_phase(symmetry: Symmetry, elements: Int64, parent: Int64) -> Phase:
    """A phase over a tree, by the place of each element's parent."""
    return Phase(elements, parent, symmetry.product(elements, symmetry.inverse(elements[parent])))


def _tree(symmetry: Symmetry, elements: Int64, steps: Int64) -> Phase | None:
    """A tree of fewest hops by these steps; of several parents the first one that comes by the first step."""
    place = np.full(symmetry.size, -1)
    place[0] = 0
    order, parents, by = [np.zeros(1, dtype=np.int64)], [np.zeros(1, dtype=np.int64)], [np.zeros(1, dtype=np.int64)]
    known = 1
    frontier = np.zeros(1, dtype=np.int64)
    while len(frontier):
        reached = symmetry.product(frontier[None], steps[:, None]).ravel()
        new, first = np.unique(reached, return_index=True)
        fresh = place[new] < 0
        new, first = new[fresh], np.sort(first[fresh])
        new = reached[first]
        parents.append(place[frontier[first % len(frontier)]])
        by.append(steps[first // len(frontier)])
        place[new] = known + np.arange(len(new))
        known += len(new)
        order.append(new)
        frontier = new
    if known < len(elements):
        return None
    return Phase(np.concatenate(order), np.concatenate(parents), np.concatenate(by))
