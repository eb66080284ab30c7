"""Out-trees that share the edges of a directed network are made shallower: nodes get other parents."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kernel_packing import RankEdges

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]


class Branchings(NamedTuple):
    """Out-trees, some of them several times."""

    via: Int64  # int64[trees, nodes], the edge through which each tree comes to each node, -1 at its root
    copies: Int64  # int64[trees], how many equal trees each row stands for


class Shape(NamedTuple):
    """Out-trees by their nodes' children: lists that are linked both ways, -1 at their ends."""

    first: Int64  # int64[trees, nodes], the first child
    after: Int64  # int64[trees, nodes], the next child of the same parent
    before: Int64  # int64[trees, nodes], the one before it


def shorten(trees: Branchings, edges: RankEdges, length: Float64, spare: Int64, most_steps: int) -> None:
    """Give nodes nearer parents, as long as the sum of the squares of all arrivals falls.

    The new edge is one that has room left, or one that another tree with as many copies swaps for the old edge.

    Args:
        trees: ``via`` is changed in place, and so is ``spare``.
        length: float64[edges].
        spare: int64[edges], how many more trees each edge has room for.
        most_steps: how many nodes may be looked at, to see what a change moves.
    """
    via, copies = trees
    tail, _, _, _, _, offsets, into = edges
    rows, nodes = via.shape
    arrival = np.zeros((rows, nodes))
    none = np.full((rows, nodes), -1)
    shape = Shape(none, none.copy(), none.copy())
    below, other_below = np.empty(nodes, dtype=np.int64), np.empty(nodes, dtype=np.int64)
    for i in range(rows):
        for v in range(nodes):
            if via[i, v] >= 0:
                _link(shape, i, tail[via[i, v]], v)
        for root in range(nodes):
            if via[i, root] < 0:
                for k in range(1, _descendants(shape, i, root, below)):
                    edge = via[i, below[k]]
                    arrival[i, below[k]] = arrival[i, tail[edge]] + length[edge]
    quiet = 0
    for step in range(1 << 40):
        if quiet >= rows * nodes or most_steps <= 0:
            break
        i, y = (step // nodes) % rows, step % nodes
        quiet += 1
        old = via[i, y]
        if old < 0:
            continue
        count = 0
        for k in range(offsets[y], offsets[y + 1]):
            e = into[k]
            sooner = arrival[i, y] - arrival[i, tail[e]] - length[e]
            if sooner <= 1e-9 * arrival[i, y]:
                continue
            if not count:
                count = _descendants(shape, i, y, below)
                most_steps -= count
            if _is_below(via[i], tail, tail[e], y):
                continue
            gain = copies[i] * _gain(arrival[i], below[:count], sooner)
            if spare[e] >= copies[i]:
                spare[e] -= copies[i]
                spare[old] += copies[i]
            else:
                other = -1
                for j in range(rows):
                    if via[j, y] != e or copies[j] != copies[i] or j == i or _is_below(via[j], tail, tail[old], y):
                        continue
                    others = _descendants(shape, j, y, other_below)
                    most_steps -= others
                    later = arrival[j, tail[old]] + length[old] - arrival[j, y]
                    loss = -copies[j] * _gain(arrival[j], other_below[:others], -later)
                    if gain - loss > 1e-9 * gain:
                        other = j
                        break
                if other < 0:
                    continue
                _move(trees, shape, arrival, other, y, old, tail, other_below[:others], -later)
            _move(trees, shape, arrival, i, y, e, tail, below[:count], sooner)
            quiet = 0
            break


def _gain(arrival: Float64, below: Int64, sooner: float) -> float:
    """By how much the sum of the squares of arrivals falls if the nodes ``below`` are reached sooner."""
    total = 0.0
    for v in below:
        total += sooner * (2 * arrival[v] - sooner)
    return total


def _move(
    trees: Branchings, shape: Shape, arrival: Float64, i: int, y: int, edge: int, tail: Int64, below: Int64,
    sooner: float,
) -> None:  # fmt: skip
    """Let tree ``i`` come to ``y`` through another edge, and so reach the nodes ``below`` it sooner."""
    old = tail[trees.via[i, y]]
    before, after = shape.before[i, y], shape.after[i, y]
    if before >= 0:
        shape.after[i, before] = after
    else:
        shape.first[i, old] = after
    if after >= 0:
        shape.before[i, after] = before
    trees.via[i, y] = edge
    _link(shape, i, tail[edge], y)
    for v in below:
        arrival[i, v] -= sooner


def _link(shape: Shape, i: int, parent: int, v: int) -> None:
    """Make ``v`` the first child of ``parent``."""
    first = shape.first[i, parent]
    shape.first[i, parent], shape.after[i, v], shape.before[i, v] = v, first, -1
    if first >= 0:
        shape.before[i, first] = v


def _descendants(shape: Shape, i: int, root: int, below: Int64) -> int:
    """List the nodes that tree ``i`` reaches through ``root``, parents first, ``root`` itself the first of all.

    Returns:
        How many there are.
    """
    below[0] = root
    count, k = 1, 0
    while k < count:
        v = shape.first[i, below[k]]
        while v >= 0:
            below[count] = v
            count += 1
            v = shape.after[i, v]
        k += 1
    return count


def _is_below(via: Int64, tail: Int64, node: int, top: int) -> bool:
    """Whether a tree reaches a node through another, or they are the same."""
    while node != top and via[node] >= 0:
        node = tail[via[node]]
    return node == top
