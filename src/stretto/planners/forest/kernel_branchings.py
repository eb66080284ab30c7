"""Out-trees that share the edges of a directed network are made shallow: a node gets another parent.

Trees are given by the edge through which each comes to each node, -1 at its root.
"""

import numpy as np


def shorten(via, count, tail, length, spare, offsets, into, work):
    """Give nodes nearer parents, while the sum of the squares of all arrivals falls.

    The new edge is one that has room left, or one that another tree of the same count gives for the old one.

    Args:
        via: int64[trees, nodes], changed in place, as ``spare`` is.
        count: int64[trees], how many equal trees each stands for.
        tail: int64[edges], where each edge comes from; length: float64[edges].
        spare: int64[edges], for how many more trees each has room.
        offsets, into: the edges that lead to each node.
        work: how many changes may be looked at.
    """
    trees, nodes = via.shape
    arrival = np.zeros((trees, nodes))
    below = np.empty(nodes, dtype=np.bool_)
    theirs = np.empty(nodes, dtype=np.bool_)
    order = np.empty(nodes, dtype=np.int64)
    for i in range(trees):
        _arrivals(via[i], tail, length, order, arrival[i])
    quiet = 0
    for step in range(1 << 40):
        if quiet >= trees * nodes or work <= 0:
            break
        i, y = (step // nodes) % trees, step % nodes
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
            work -= 1
            if below[tail[e]]:
                continue
            gain = count[i] * _gained(arrival[i], below, sooner)
            other = -1
            if spare[e] >= count[i]:
                spare[e] -= count[i]
                spare[old] += count[i]
            else:
                for j in range(trees):
                    if via[j, y] != e or count[j] != count[i] or j == i:
                        continue
                    work -= 1
                    _descendants(via[j], tail, y, theirs)
                    later = arrival[j, tail[old]] + length[old] - arrival[j, y]
                    if not theirs[tail[old]] and count[j] * _gained(arrival[j], theirs, -later) + gain > 1e-9 * gain:
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


def _gained(arrival, below, sooner):
    """By how much the sum of the squares of arrivals falls if some come sooner."""
    total = 0.0
    for v in range(len(arrival)):
        if below[v]:
            total += sooner * (2 * arrival[v] - sooner)
    return total


def _descendants(via, tail, root, below):
    """Which nodes a tree reaches through ``root``, itself among them."""
    nodes = len(via)
    below[:] = False
    for v in range(nodes):
        w = v
        while w != root and via[w] >= 0:
            w = tail[via[w]]
        below[v] = w == root


def _arrivals(via, tail, length, order, arrival):
    """When a tree reaches each node."""
    for v in range(len(via)):
        hops, w = 0, v
        while via[w] >= 0:
            order[hops] = w
            hops += 1
            w = tail[via[w]]
        at = 0.0
        for k in range(hops - 1, -1, -1):
            at += length[via[order[k]]]
        arrival[v] = at
