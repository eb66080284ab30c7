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


def shorten(trees: Branchings, edges: RankEdges, length: Float64, spare: Int64, most_changes: int) -> None:
    """Give nodes nearer parents, as long as the sum of the squares of all arrivals falls.

    The new edge is one that has room left, or one that another tree with as many copies swaps for the old edge.

    Args:
        trees: ``via`` is changed in place, and so is ``spare``.
        length: float64[edges].
        spare: int64[edges], how many more trees each edge has room for.
        most_changes: how many changes may be looked at.
    """
    via, copies = trees
    tail, _, _, _, _, offsets, into = edges
    rows, nodes = via.shape
    arrival = np.zeros((rows, nodes))
    below = np.empty(nodes, dtype=np.bool_)
    other_below = np.empty(nodes, dtype=np.bool_)
    order = np.empty(nodes, dtype=np.int64)
    for i in range(rows):
        _arrivals(via[i], tail, length, order, arrival[i])
    quiet = 0
    for step in range(1 << 40):
        if quiet >= rows * nodes or most_changes <= 0:
            break
        i, y = (step // nodes) % rows, step % nodes
        quiet += 1
        old = via[i, y]
        if old < 0:
            continue
        marked = False
        for k in range(offsets[y], offsets[y + 1]):
            e = into[k]
            sooner = arrival[i, y] - arrival[i, tail[e]] - length[e]
            if sooner <= 1e-9 * arrival[i, y]:
                continue
            if not marked:
                _descendants(via[i], tail, y, below)
                marked = True
            most_changes -= 1
            if below[tail[e]]:
                continue
            gain = copies[i] * _gain(arrival[i], below, sooner)
            other = -1
            if spare[e] >= copies[i]:
                spare[e] -= copies[i]
                spare[old] += copies[i]
            else:
                for j in range(rows):
                    if via[j, y] != e or copies[j] != copies[i] or j == i:
                        continue
                    most_changes -= 1
                    _descendants(via[j], tail, y, other_below)
                    later = arrival[j, tail[old]] + length[old] - arrival[j, y]
                    loss = -copies[j] * _gain(arrival[j], other_below, -later)
                    if not other_below[tail[old]] and gain - loss > 1e-9 * gain:
                        other = j
                        break
                if other < 0:
                    continue
                via[other, y] = old
                _arrivals(via[other], tail, length, order, arrival[other])
            via[i, y] = e
            _arrivals(via[i], tail, length, order, arrival[i])
            quiet = 0
            break


def _gain(arrival: Float64, below: Bool, sooner: float) -> float:
    """By how much the sum of the squares of arrivals falls if the nodes ``below`` are reached sooner."""
    total = 0.0
    for v in range(len(arrival)):
        if below[v]:
            total += sooner * (2 * arrival[v] - sooner)
    return total


def _descendants(via: Int64, tail: Int64, root: int, below: Bool) -> None:
    """Mark the nodes that a tree reaches through ``root``, and ``root`` itself."""
    nodes = len(via)
    below[:] = False
    for v in range(nodes):
        w = v
        while w != root and via[w] >= 0:
            w = tail[via[w]]
        below[v] = w == root


def _arrivals(via: Int64, tail: Int64, length: Float64, order: Int64, arrival: Float64) -> None:
    """When a tree reaches each node."""
    for v in range(len(via)):
        hops, w = 0, v
        while via[w] >= 0:
            order[hops] = w
            hops += 1
            w = tail[via[w]]
        distance = 0.0
        for k in range(hops - 1, -1, -1):
            distance += length[via[order[k]]]
        arrival[v] = distance
