"""Max-flows and min-cuts in integers (Dinic, SIAM J. Comput. 1970), and what bounds and trees ask of them.

A network is arcs in CSR: node v has the arcs ``offsets[v]:offsets[v + 1]``, arc a leads to ``to[a]``, and ``pair[a]``
is its reverse, which starts with a capacity of its own (zero, or the capacity of the opposite link).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bool = NDArray[np.bool_]
Int64 = NDArray[np.int64]


def push(
    offsets: Int64, to: Int64, pair: Int64, residual: Int64, source: int, target: int, most: int
) -> tuple[int, Int64]:
    """The flow from source to target, no more than ``most``; what is left of capacities in ``residual``.

    Returns:
        The flow, and int64[nodes]: not negative where the last search came from ``source``. Where the flow is
        below ``most`` that is the source's side of a min-cut, the smallest one.
    """
    nodes = len(offsets) - 1
    level = np.full(nodes, -1, dtype=np.int64)
    cursor = np.zeros(nodes, dtype=np.int64)
    queue = np.zeros(nodes, dtype=np.int64)
    path = np.zeros(nodes + 1, dtype=np.int64)
    flow = 0
    while flow < most:
        level[:] = -1
        level[source] = 0
        queue[0] = source
        head, tail = 0, 1
        while head < tail and level[target] < 0:
            v = queue[head]
            head += 1
            for a in range(offsets[v], offsets[v + 1]):
                w = to[a]
                if residual[a] > 0 and level[w] < 0:
                    level[w] = level[v] + 1
                    queue[tail] = w
                    tail += 1
        if level[target] < 0:
            break
        cursor[:] = offsets[:nodes]
        depth, v = 0, source
        while flow < most:
            if v == target:
                width = most - flow
                for i in range(depth):
                    width = min(width, residual[path[i]])
                flow += width
                first = depth
                for i in range(depth - 1, -1, -1):
                    residual[path[i]] -= width
                    residual[pair[path[i]]] += width
                    if residual[path[i]] == 0:
                        first = i
                depth = min(first, depth)
                v = source if depth == 0 else to[path[depth - 1]]
                continue
            moved = False
            while cursor[v] < offsets[v + 1]:
                a = cursor[v]
                if residual[a] > 0 and level[to[a]] == level[v] + 1:
                    path[depth] = a
                    depth += 1
                    v = to[a]
                    moved = True
                    break
                cursor[v] += 1
            if not moved:
                if depth == 0:
                    break
                level[v] = -2  # a dead end
                depth -= 1
                v = to[pair[path[depth]]]
                cursor[v] += 1
    if flow < most:
        for v in range(nodes):
            level[v] = max(level[v], -1)
    return flow, level


def first_violated(
    offsets: Int64, to: Int64, pair: Int64, capacity: Int64, sinks: Int64, begin: int, target: int, need: int,
    unlimited: int | np.int64,
) -> tuple[int, Bool, int]:  # fmt: skip
    """The first of ``sinks[begin:]`` from which less than ``need`` can flow to ``target``.

    A sink that has passed is joined to ``target`` without limit (in ``capacity``, kept for the next call): every cut
    that parts it from there is known to be wide enough, so only cuts that keep the two together are left to try.
    This makes all later flows short, as Hao and Orlin (J. Algorithms 1994) do for plain min-cuts.

    Returns:
        The index of the sink (the count of sinks if all pass); bool[nodes], its side of the cut; and what the cut lets
        through.
    """
    for i in range(begin, len(sinks)):
        residual = capacity.copy()
        flow, level = push(offsets, to, pair, residual, sinks[i], target, need)
        if flow < need:
            return i, level >= 0, flow
        for a in range(offsets[sinks[i]], offsets[sinks[i] + 1]):
            if to[a] == target:
                capacity[a] = unlimited
    return len(sinks), np.zeros(len(offsets) - 1, dtype=np.bool_), need
