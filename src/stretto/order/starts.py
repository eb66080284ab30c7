"""Orders from which the search starts: by the cost of messages between pairs of machines alone."""

from __future__ import annotations

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64, Int64
from . import kernel_circles
from .problem import Problem


def pair_costs(problem: Problem) -> tuple[Float64, Float64]:
    """float64[machines, machines] twice: seconds that a message keeps its slowest link, and those until it has arrived.

    The message is the one between machines of which most bytes are sent.
    """
    k, n = problem.kinds, problem.machines.count
    between = np.flatnonzero(k.src != k.dst)
    which = between[np.argmax((k.size_bytes * k.sent)[between])]
    gpu = problem.net.gpu
    a, b = np.divmod(np.arange(n * n), n)
    last = problem.machines.counts - 1
    src, dst = gpu[a, np.minimum(k.src_gpu[which], last[a])], gpu[b, np.minimum(k.dst_gpu[which], last[b])]
    apart = a != b
    seconds, whole = np.zeros(n * n), np.zeros(n * n)
    pairs = problem.machines.pairs(src[apart], dst[apart], np.full(apart.sum(), k.size_bytes[which]))
    seconds[apart], whole[apart] = pairs.seconds, pairs.seconds + pairs.latency_s
    return seconds.reshape(n, n), whole.reshape(n, n)


def starts(problem: Problem) -> list[Int64]:
    """Orders by clusters, and short circles that begin from clusters, nearest neighbours and the cheapest pairs.

    A circle is short by the sum of its pairs' times until arrival (what goes round waits for all of them in turn), or
    by the sum of high powers of the times on the slowest link (what keeps on going waits for the slowest pair).
    """
    seconds, whole = pair_costs(problem)
    orders = []
    for cost in (whole, (seconds / max(float(seconds.max()), 1e-30)) ** SLOWEST_POWER):
        clusters = clustered(cost)
        orders += [clusters, circle(clusters, cost), circle(nearest(cost), cost), circle(joined(cost), cost)]
    return [seated(problem, order) for order in orders]


def circle(order: Int64, cost: Float64) -> Int64:
    """A shorter circle, by exchanges from this one; a pair costs the mean of both ways."""
    n = len(order)
    shorter = order.copy()
    if n > 3:
        length = (cost + cost.T) / 2
        apart = np.where(np.eye(n, dtype=np.bool_), np.inf, length)
        near = apart.argsort(axis=1, kind="stable")[:, : min(kernel_circles.NEAR, n - 1)]
        at_speed(kernel_circles.shorten, 2000.0 * n)(shorter, length, near)
    return shorter


SLOWEST_POWER = 8
"""Power by which the slowest pair of a circle counts most."""


def seated(problem: Problem, order: Int64) -> Int64:
    """The order in which each number has a machine of the size that it must have, the nearest in the given order."""
    counts, seats = problem.machines.counts, problem.seats
    if np.ptp(counts) == 0:
        return order
    fitting = np.empty_like(order)
    for size in np.unique(counts):
        fitting[seats == size] = order[counts[order] == size]
    return fitting


NEAR = 12
"""Machines that are looked at from each end of a path at a time."""


def nearest(cost: Float64) -> Int64:
    """Go on to the machine that is reached at least cost, from the first one on."""
    n = len(cost)
    order, free = [0], np.ones(n, dtype=np.bool_)
    free[0] = False
    for _ in range(n - 1):
        ahead = np.where(free, cost[order[-1]], np.inf)
        order.append(int(ahead.argmin()))
        free[order[-1]] = False
    return np.array(order, dtype=np.int64)


def joined(cost: Float64) -> Int64:
    """Join machines to paths, the cheapest pair first, until there is one path.

    Of each machine at the end of a path only the nearest few that begin one are looked at, again and again.
    """
    n = len(cost)
    after, before, end = np.full(n, -1), np.full(n, -1), np.arange(n)
    while (after < 0).sum() > 1:
        lasts, firsts = np.flatnonzero(after < 0), np.flatnonzero(before < 0)
        part = np.where(end[lasts][:, None] == firsts, np.inf, cost[np.ix_(lasts, firsts)])
        near = part.argsort(axis=1, kind="stable")[:, : min(NEAR, len(firsts) - 1)]
        rows = np.repeat(np.arange(len(lasts)), near.shape[1])
        rank = np.argsort(part[rows, near.ravel()], kind="stable")
        for a, b in zip(lasts[rows[rank]].tolist(), firsts[near.ravel()[rank]].tolist()):
            # a ends a path, b begins another one; end[] of either end of a path is its other end
            if after[a] < 0 and before[b] < 0 and end[a] != b:
                first, last = end[a], end[b]
                after[a], before[b] = b, a
                end[first], end[last] = last, first
    v = int(np.flatnonzero(before < 0)[0])
    order = []
    while v >= 0:
        order.append(v)
        v = int(after[v])
    return np.array(order, dtype=np.int64)


def clustered(cost: Float64) -> Int64:
    """Merge the nearest clusters, with those ends of theirs next to each other that are nearest.

    The distance of clusters is that of their nearest machines, both ways (single linkage): a cluster is what is joined
    by links of some quality, so that sites and pods stay together at every level.
    """
    n = len(cost)
    apart = np.maximum(cost, cost.T)
    rows, columns = np.triu_indices(n, 1)
    rank = np.argsort(apart[rows, columns], kind="stable")
    paths = {v: [v] for v in range(n)}
    of = np.arange(n)
    for i in rank.tolist():
        a, b = int(of[rows[i]]), int(of[columns[i]])
        if a == b:
            continue
        left, right = paths[a], paths.pop(b)
        ways = [
            (apart[x[-1], y[0]], k)
            for k, (x, y) in enumerate([(left, right), (left, right[::-1]), (left[::-1], right), (right, left)])
        ]
        k = min(ways)[1]
        paths[a] = [left + right, left + right[::-1], left[::-1] + right, right + left][k]
        of[right] = a
        if len(paths) == 1:
            break
    return np.array(next(iter(paths.values())), dtype=np.int64)
