"""Max-flows and min-cuts in integers (Dinic, SIAM J. Comput. 1970), and what bounds and trees ask of them.

A network is arcs in CSR: those of node v are ``offsets[v]:offsets[v + 1]``, arc a leads to ``to[a]``,
and ``pair[a]`` is its reverse, which starts with a capacity of its own (zero, or that of the opposite link).
"""

import numpy as np


def _push(offsets, to, pair, residual, source, target, most):
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


def first_violated(offsets, to, pair, capacity, sinks, begin, target, need, unlimited):
    """The first of ``sinks[begin:]`` from which less than ``need`` can flow to ``target``.

    A sink that has passed is joined to ``target`` without limit (in ``capacity``, kept for the next call): every cut
    that parts it from there is known to be wide enough, so only cuts that keep the two together are left to try.
    This makes all later flows short, as Hao and Orlin (J. Algorithms 1994) do for plain min-cuts.

    Returns:
        Its index (the count of sinks if none), bool[nodes], its side of the cut, and what the cut lets through.
    """
    for i in range(begin, len(sinks)):
        residual = capacity.copy()
        flow, level = _push(offsets, to, pair, residual, sinks[i], target, need)
        if flow < need:
            return i, level >= 0, flow
        for a in range(offsets[sinks[i]], offsets[sinks[i] + 1]):
            if to[a] == target:
                capacity[a] = unlimited
    return len(sinks), np.zeros(len(offsets) - 1, dtype=np.bool_), need


def grow(
    offsets, to, pair, capacity, target, homes, arcs, left, tail, head, far, out_offsets, out, count, reserved,
    order, size, arrival, via,
):  # fmt: skip
    """Grow equal out-trees, edge by edge, until they reach all nodes or no edge can be taken by all of them.

    An edge can be taken as often as leaves enough for all other trees still to grow. Of those that all can take, the
    one is taken that ends nearest to the root.

    Args:
        capacity: of a network that leads back from every node to ``target``, see :mod:`stretto.planners.forest.pack`;
            changed in place, as ``left`` is.
        homes: int64[nodes], the arc from each node to the target.
        arcs, left, tail, head, far: of each edge its arc, how many trees may still take it, its ends and its length.
        out_offsets, out: the edges that leave each node.
        count: how many trees.
        reserved: what all other trees take together.
        order: int64[nodes], the nodes that have been reached, ``size`` of them, changed in place, as are
        arrival, via: float64[nodes], int64[nodes], how far each is from the root, and the edge that leads there.
    Returns:
        How many nodes are reached; the edge that most of the trees can take, where not all can, or -1; and how many.
    """
    nodes = len(order)
    inside = np.zeros(nodes, dtype=np.bool_)
    front = np.empty(len(tail), dtype=np.int64)
    looked = np.full(len(tail), -1, dtype=np.int64)
    ahead = 0
    for i in range(size):
        inside[order[i]] = True
        for k in range(out_offsets[order[i]], out_offsets[order[i] + 1]):
            front[ahead] = out[k]
            ahead += 1
    while size < nodes:
        kept = 0
        for i in range(ahead):
            if not inside[head[front[i]]] and left[front[i]] > 0:
                front[kept] = front[i]
                kept += 1
        ahead = kept
        best, most = -1, 0
        while most < count:
            chosen, chosen_far, wide = -1, 0.0, False
            for i in range(ahead):
                e = front[i]
                if looked[e] == size or min(count, left[e]) <= most or (wide and left[e] < count):
                    continue
                there = arrival[tail[e]] + far[e]
                if chosen < 0 or (not wide and left[e] >= count) or there < chosen_far:
                    chosen, chosen_far, wide = e, there, left[e] >= count
            if chosen < 0:
                break
            looked[chosen] = size
            limit = min(count, left[chosen])
            residual = capacity.copy()
            residual[homes[tail[chosen]]] = reserved + limit
            flow, _ = _push(offsets, to, pair, residual, head[chosen], target, reserved + limit)
            if flow - reserved > most:
                best, most = chosen, flow - reserved
        if most < count:
            return size, best, most
        left[best] -= count
        capacity[arcs[best]] = left[best]
        order[size], inside[head[best]], via[head[best]] = head[best], True, best
        arrival[head[best]] = arrival[tail[best]] + far[best]
        for k in range(out_offsets[head[best]], out_offsets[head[best] + 1]):
            front[ahead] = out[k]
            ahead += 1
        size += 1
    return size, -1, count
