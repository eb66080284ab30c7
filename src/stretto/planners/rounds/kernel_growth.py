"""Trees of least price in rounds: each pipe has a price in each round, and what a node has it keeps at no price.

Each tree grows by the cheapest way to the next node that wants the data (Takahashi and Matsuyama, "An approximate
solution for the Steiner problem in graphs", Math. Japonica 1980), in the network expanded over rounds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]


def grow_trees(
    src: Int64, dst: Int64, price: Float64, wanted: Bool, roots: Int64, begins: Int64
) -> tuple[Float64, Int64, Int64]:
    """For each root the tree by which all nodes that want its data have it after the last round.

    Args:
        src, dst: int64[pipes], nodes.
        price: float64[rounds, pipes].
        wanted: bool[trees, nodes], which nodes want the data.
        roots, begins: int64[trees], the node that has the data, and the round before which it has it.
    Returns:
        float64[trees], what each costs, infinite where some node is not reached in time; int64[trees, nodes], the pipe
        by which each node gets the data, -1 for none, and the round in which it does.
    """
    rounds, pipes, nodes = len(price), len(src), wanted.shape[1]
    total = np.zeros(len(roots))
    via = np.full((len(roots), nodes), -1, dtype=np.int64)
    when = np.full((len(roots), nodes), rounds, dtype=np.int64)
    far = np.empty((rounds + 1, nodes))
    last = np.empty((rounds + 1, nodes), dtype=np.int64)
    for k in range(len(roots)):
        begin, has = begins[k], when[k]  # has: the last round in which a node does not yet have the data
        has[roots[k]] = begin - 1
        left = 0
        for v in range(nodes):
            left += wanted[k, v] and v != roots[k]
        for v in range(nodes):
            far[begin, v] = 0.0 if has[v] < begin else np.inf
        first = begin
        while left > 0:
            for t in range(first, rounds):
                for v in range(nodes):
                    far[t + 1, v] = 0.0 if has[v] <= t else far[t, v]
                    last[t + 1, v] = -1
                for e in range(pipes):
                    cost = far[t, src[e]] + price[t, e]
                    if cost < far[t + 1, dst[e]]:
                        far[t + 1, dst[e]], last[t + 1, dst[e]] = cost, e
            goal = -1
            for v in range(nodes):
                if wanted[k, v] and has[v] == rounds and (goal < 0 or far[rounds, v] < far[rounds, goal]):
                    goal = v
            if far[rounds, goal] == np.inf:
                total[k] = np.inf
                break
            v = goal
            for t in range(rounds, begin, -1):
                if has[v] < t:
                    break
                e = last[t, v]
                if e >= 0:
                    if wanted[k, v] and has[v] == rounds:
                        left -= 1
                    via[k, v], has[v] = e, t - 1
                    v, first = src[e], t - 1  # before that round nothing changes
        _without_idle(src, wanted[k], via[k], has, rounds)
        for v in range(nodes):
            if via[k, v] >= 0:
                total[k] += price[has[v], via[k, v]]
    return total, via, when


def _without_idle(src: Int64, wanted: Bool, via: Int64, when: Int64, rounds: int) -> None:
    """Leave out nodes that neither want the data nor pass it on."""
    changed = True
    while changed:
        changed = False
        for v in range(len(via)):
            if via[v] < 0 or wanted[v]:
                continue
            idle = True
            for w in range(len(via)):
                if via[w] >= 0 and src[via[w]] == v:
                    idle = False
            if idle:
                via[v], when[v], changed = -1, rounds, True
