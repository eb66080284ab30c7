"""From a permutation of accelerators to one of all nodes: a switch goes where its neighbours go.

Level by level, away from the accelerators: a node whose neighbours' images are known goes to a node that has just these
images as neighbours. Where several do, such as the spines above all leaves, a node goes to one that the upper part
of the network joins it to, and stays where it is if that is possible.
"""

from __future__ import annotations

import numpy as np

from ..model.arrays import Int64
from .graph import Graph, Hash, components, mixed

MOST_LEVELS = 8
"""Levels of switches above the accelerators of which the components tell nodes with the same neighbours apart."""


def extended(graph: Graph, colours: Hash, above: Hash, mapped: Int64) -> Int64 | None:
    """The image of every node, or None if some node has nowhere to go. It still has to be tested.

    Args:
        colours: uint64[n], refined colours.
        above: uint64[n], see :func:`components_above`.
        mapped: int64[accelerators], the image of each of ``graph.accelerators``.
    """
    image = np.full(graph.count, -1, dtype=np.int64)
    image[graph.accelerators] = mapped
    name = mixed(np.arange(graph.count) + 1)
    while (image < 0).any():
        done, taken = image >= 0, np.zeros(graph.count, dtype=np.bool_)
        taken[image[done]] = True
        here = graph.neighbour_hash(np.where(done, name[image], name), done)
        there = graph.neighbour_hash(name, taken)
        todo, free = np.flatnonzero(~done & (here != 0)), np.flatnonzero(~taken & (there != 0))
        if not len(todo):
            rest = np.flatnonzero(~done)  # joined to nothing
            if taken[rest].any():
                return None
            image[rest] = rest
            break
        todo = todo[np.lexsort((todo, above[todo], colours[todo], here[todo]))]
        free = free[np.lexsort((free, above[free], colours[free], there[free]))]
        if len(todo) != len(free) or not np.array_equal(here[todo], there[free]):
            return None
        image[todo] = free
    return image


def components_above(graph: Graph) -> Hash:
    """uint64[n], equal for nodes that are joined to each other, on each level, by nodes no nearer to accelerators."""
    level = np.full(graph.count, -1, dtype=np.int64)
    level[graph.accelerators] = 0
    reached = 0
    while reached < MOST_LEVELS:
        fresh = np.concatenate([
            graph.head[(level[graph.tail] == reached) & (level[graph.head] < 0)],
            graph.tail[(level[graph.head] == reached) & (level[graph.tail] < 0)],
        ])  # fmt: skip
        if not len(fresh):
            break
        reached += 1
        level[fresh] = reached
    out = np.zeros(graph.count, dtype=np.uint64)
    for least in range(2, reached + 1):
        upper = (level[graph.tail] >= least) & (level[graph.head] >= least)
        label = components(graph.count, graph.tail[upper], graph.head[upper])
        out += np.where(level >= least, mixed(label * MOST_LEVELS + least), np.uint64(0))
    return out
