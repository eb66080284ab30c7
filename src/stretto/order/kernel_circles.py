"""Circles through all machines: short ones, and how short one can be at best.

Short ones by exchanges of two edges, and by moving up to three machines elsewhere (2-opt and or-opt), where a machine
looks at its nearest ones alone. The bound is by trees (Held and Karp, Operations Research 18, 1970).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

ROUNDS = 150
"""How often the prices of machines change. Half as many leave the bound about 0.5 % lower."""

FIRST_STEP, LAST_STEP = 0.1, 1e-4
"""By what part of the mean pair's length a price changes for each edge too many, at first and at last."""


NEAR = 10
"""Machines that a machine looks at."""

GAIN = 1e-12
"""By what part of the edges that go a circle must become shorter: gains by rounding alone could go on for ever."""


def shorten(order: Int64, length: Float64, near: Int64) -> None:
    """Make a circle shorter in place until no exchange helps.

    Args:
        length: float64[machines, machines], symmetric.
        near: int64[machines, few], the nearest machines of each.
    """
    n = len(order)
    at = np.empty(n, dtype=np.int64)
    for i in range(n):
        at[order[i]] = i
    improved = True
    while improved:
        improved = False
        for a in range(n):
            while _exchange(a, order, at, length, near) or _move(a, order, at, length, near):
                improved = True


def _exchange(a: int, order: Int64, at: Int64, length: Float64, near: Int64) -> bool:
    """Join ``a`` to a near machine and turn the part between round, if the circle is shorter then."""
    n = len(order)
    for step in (1, -1):
        b = order[(at[a] + step) % n]
        for k in range(near.shape[1]):
            c = near[a, k]
            if length[a, c] >= length[a, b]:
                break
            d = order[(at[c] + step) % n]
            gone = length[a, b] + length[c, d]
            gain = gone - length[a, c] - length[b, d]
            if gain > GAIN * gone and b != c and d != a:
                # a b ... c d becomes a c ... b d; backward, d c ... b a becomes d b ... c a
                first, last = (at[b], at[c]) if step == 1 else (at[c], at[b])
                _turn(first, last, order, at)
                return True
    return False


def _turn(first: int, last: int, order: Int64, at: Int64) -> None:
    """Turn the part from one place to another round, across the end of the array if need be."""
    n = len(order)
    for _ in range(((last - first) % n + 1) // 2):
        u, v = order[first], order[last]
        order[first], order[last] = v, u
        at[v], at[u] = first, last
        first, last = (first + 1) % n, (last - 1) % n


def _move(a: int, order: Int64, at: Int64, length: Float64, near: Int64) -> bool:
    """Move ``a``, with up to two machines that follow, next to a near machine, if the circle is shorter then."""
    n = len(order)
    if n < 8:
        return False
    for count in range(1, 4):
        i = at[a]
        before, last, after = order[(i - 1) % n], order[(i + count - 1) % n], order[(i + count) % n]
        gone = length[before, a] + length[last, after]
        taken = gone - length[before, after]
        for k in range(near.shape[1]):
            c = near[a, k]
            if length[a, c] >= taken:
                break
            if (at[c] - i) % n < count:
                continue
            # a next to c: either c a ... last d, or d last ... a c
            for step in (1, -1):
                d = order[(at[c] + step) % n]
                if (at[d] - i) % n < count:
                    continue
                gain = taken - (length[c, a] + length[last, d] - length[c, d])
                if gain > GAIN * (gone + length[c, d]):
                    _put(i, count, c, step, order, at)
                    return True
    return False


def _put(i: int, count: int, c: int, step: int, order: Int64, at: Int64) -> None:
    """Take ``count`` machines from the place ``i`` on, and put them after ``c``, or (step -1) in reverse before it."""
    n = len(order)
    part = np.empty(count, dtype=np.int64)
    for k in range(count):
        part[k] = order[(i + k) % n]
    # close the gap by moving what is between the part and its new place
    v = i
    if (at[c] - i) % n <= n // 2:
        moved = (at[c] - i) % n - count + (1 if step == 1 else 0)
        for _ in range(moved):
            u = order[(v + count) % n]
            order[v] = u
            at[u] = v
            v = (v + 1) % n
    else:
        v = (i + count - 1) % n
        moved = (i - at[c]) % n - (1 if step == 1 else 0)
        for _ in range(moved):
            u = order[(v - count) % n]
            order[v] = u
            at[u] = v
            v = (v - 1) % n
        v = (v - count + 1) % n
    for k in range(count):
        u = part[k] if step == 1 else part[count - 1 - k]
        order[(v + k) % n] = u
        at[u] = (v + k) % n


def shortest_circle_bound(length: Float64) -> float:
    """A length that no circle through all machines is below.

    A circle is a tree on all machines but the first, and two edges at that one. Each machine has two edges of a circle,
    so a price that is added to all edges at a machine makes every circle longer by twice the price, and may lift the
    shortest tree by more. Prices rise where the tree has more than two edges, and fall where it has fewer.

    Args:
        length: float64[machines, machines], symmetric.
    """
    n = len(length)
    if n < 3:
        return float(length[0, n - 1] + length[n - 1, 0])
    price, degree = np.zeros(n), np.zeros(n)
    last = np.zeros(n)
    near, to = np.zeros(n), np.zeros(n, dtype=np.int64)
    inside = np.zeros(n, dtype=np.bool_)
    scale = length.sum() / (n * (n - 1))
    best = -np.inf
    for k in range(ROUNDS):
        total = _tree(length, price, degree, near, to, inside)
        best = max(best, total - 2.0 * price.sum())
        step = scale * FIRST_STEP * (LAST_STEP / FIRST_STEP) ** (k / ROUNDS)
        for v in range(n):
            price[v] += step * (0.7 * (degree[v] - 2.0) + 0.3 * last[v])
            last[v] = degree[v] - 2.0
    return float(best)


def _tree(
    length: Float64, price: Float64, degree: Float64, near: Float64, to: Int64, inside: NDArray[np.bool_]
) -> float:
    """The priced length of the shortest tree on machines 1 and up (Prim), with two edges at machine 0; and degrees."""
    n = len(length)
    degree[:] = 0.0
    inside[:] = False
    inside[0] = inside[1] = True
    for w in range(2, n):
        near[w], to[w] = length[1, w] + price[1] + price[w], 1
    total = 0.0
    for _ in range(n - 2):
        v = -1
        for w in range(2, n):
            if not inside[w] and (v < 0 or near[w] < near[v]):
                v = w
        inside[v] = True
        total += near[v]
        degree[v] += 1.0
        degree[to[v]] += 1.0
        for w in range(2, n):
            priced = length[v, w] + price[v] + price[w]
            if not inside[w] and priced < near[w]:
                near[w], to[w] = priced, v
    first, second = -1, -1
    for w in range(1, n):
        near[w] = length[0, w] + price[0] + price[w]
        if first < 0 or near[w] < near[first]:
            first, second = w, first
        elif second < 0 or near[w] < near[second]:
            second = w
    degree[0] = 2.0
    degree[first] += 1.0
    degree[second] += 1.0
    return float(total + near[first] + near[second])
