"""How short a circle through all machines can be at best, by trees (Held and Karp, Operations Research 18, 1970)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

ROUNDS = 150
"""How often the prices of machines change. Half as many leave the bound about 0.5 % lower."""

FIRST_STEP, LAST_STEP = 0.1, 1e-4
"""By what part of the mean pair's length a price changes for each edge too many, at first and at last."""


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
