"""Bytes on trees whose ends each want something else, and which way each part of a piece goes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


class Options(NamedTuple):
    """The ways that each piece may go, and for how long all of it by one way would keep orbits of links."""

    begin: Int64  # CSR, for each piece its ways
    share: Float64  # float64[ways], how much of the piece should go by each
    entries: Int64  # CSR, for each way the orbits that it passes
    orbit: Int64
    seconds: Float64


def through(node: Int64, before: Int64, wanted: Float64) -> Float64:
    """float64[hops], the bytes that pass each hop of a tree.

    Args:
        node, before: as :func:`.kernel_trees.grow` returns them.
        wanted: float64[nodes], the bytes that each node wants.
    """
    below, out = wanted.copy(), np.zeros(len(node))
    for i in range(len(node) - 1, -1, -1):
        out[i] = below[node[i]]
        below[before[i]] += below[node[i]]
    return out


def deal(parts: Int64, options: Options, weight: Float64) -> Int64:
    """int64[parts of all pieces], the way of each part, so that orbits are kept for as long as shares say.

    Part after part takes the way after which orbits differ least from what shares say of all parts so far.

    Args:
        parts: int64[pieces], the parts of each.
        weight: float64[orbits], how much the square of a difference counts.
    """
    begin, share, entries, orbit, seconds = options
    first, total = np.zeros(len(parts), dtype=np.int64), 0
    for k in range(len(parts)):
        first[k] = total
        total += parts[k]
    out = np.zeros(total, dtype=np.int64)
    ahead = np.zeros(len(weight))  # how much longer each orbit is kept than shares say
    for turn in range(parts.max()):
        for k in range(len(parts)):
            if turn >= parts[k]:
                continue
            scale = 1.0 / parts[k]
            for way in range(begin[k], begin[k + 1]):
                for e in range(entries[way], entries[way + 1]):
                    ahead[orbit[e]] -= share[way] * seconds[e] * scale
            best, chosen = np.inf, begin[k]
            for way in range(begin[k], begin[k + 1]):
                cost = 0.0
                for e in range(entries[way], entries[way + 1]):
                    more = seconds[e] * scale
                    cost += weight[orbit[e]] * more * (2 * ahead[orbit[e]] + more)
                if cost < best:
                    best, chosen = cost, way
            for e in range(entries[chosen], entries[chosen + 1]):
                ahead[orbit[e]] += seconds[e] * scale
            out[first[k] + turn] = chosen
    return out
