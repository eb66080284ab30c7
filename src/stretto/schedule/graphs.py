"""Parts and distances of small graphs, by the kernels of planners: SciPy's take 0.2 s of CPU to load."""

from __future__ import annotations

import numpy as np

from ..kernels import at_speed
from ..kernels.matching import components
from ..kernels.paths import all_pairs
from ..model.arrays import Bool, Float64, Int64


def parts_of(count: int, a: Int64, b: Int64) -> Int64:
    """int64[nodes], the part of a graph in which each of ``count`` nodes is, if pairs (a, b) join nodes both ways.

    Parts are numbered from 0 on, by the first node in each.
    """
    ends = np.ascontiguousarray(a, dtype=np.int64), np.ascontiguousarray(b, dtype=np.int64)
    lowest = at_speed(components, float(len(a)))(*ends, count)
    return np.unique(lowest, return_inverse=True)[1].reshape(-1)


def hops_between(joined: Bool) -> Float64:
    """float64[nodes, nodes], the fewest edges from node to node; infinite where there is no way.

    Args:
        joined: bool[nodes, nodes], whether an edge leads from node to node.
    """
    tail, head = np.nonzero(joined)
    offsets = np.searchsorted(tail, np.arange(len(joined) + 1))
    every = np.arange(len(tail), dtype=np.int32)
    work = float(len(joined)) * len(tail)
    return at_speed(all_pairs, work)(offsets, every, np.ascontiguousarray(head), np.ones(len(tail)))
