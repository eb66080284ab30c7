"""A demand matrix as a sum of matchings, few of them: what planes hold one after the other.

By Birkhoff and von Neumann a matrix whose rows and columns add up to at most T is covered by matchings
of durations that add up to T, but it may take some n^2 of them. Here each costs a turn, worth ``cost``
bytes of the time in which a plane could send. With r the bytes of a row or column (a *line*) that are
left and d the number of its entries, whatever is still to come takes at least

    F = max over lines of r + cost d

bytes of one plane's time, so a matching of duration t should lower F by t + cost. Each round takes the
matching that is heaviest where F is nearly reached (Kuhn 1955, by SciPy), then the duration, of those
at which one of its entries ends, at which F falls most for what it costs. No padding is made: an entry
that is shorter than the duration ends early, and its ports are idle. Compare Solstice (Liu et al.,
CoNEXT 2015), which halves durations, and Eclipse (Venkatakrishnan et al., SIGMETRICS 2016), which
takes the most bytes for the time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...model.arrays import Float64, Int64

SHARPNESS = (8.0, 100.0)
"""How fast the weight of a line falls with its distance from F, as an exponent; neither is best for all matrices."""

MOST_DURATIONS = 64
"""Durations of a matching that are compared, evenly among those at which one of its entries ends."""


class Matching(NamedTuple):
    """Circuits that are joined at the same time, and what goes over each."""

    src: Int64  # [circuits], ranks; none twice in either
    dst: Int64  # [circuits], ranks; none twice in either
    sent: Int64  # [circuits], bytes

    @property
    def longest(self) -> int:
        """Bytes on the circuit that carries most."""
        return int(self.sent.max())


def decompositions(demand: Int64, cost: float) -> list[list[Matching]]:
    """Several ways to send a matrix by matchings, the best by sum of durations and costs first.

    Args:
        demand: int64[ranks, ranks]; the diagonal is not sent.
        cost: what one more matching takes of a plane's time, in bytes.
    """
    left = demand.copy()
    np.fill_diagonal(left, 0)
    ways = [shifts(left)]
    for sharpness in SHARPNESS:
        for whole in (False, True):
            if spent(ways[0], cost) <= least(left, cost) * (1 + 1e-9):
                return ways  # even demands take the least by shifts
            ways.append(_by_rounds(left, cost, sharpness, whole))
            ways.sort(key=lambda matchings: spent(matchings, cost))
    return ways


def spent(matchings: list[Matching], cost: float) -> float:
    """What a decomposition takes of one plane's time, in bytes."""
    return sum(m.longest for m in matchings) + cost * len(matchings)


def least(demand: Int64, cost: float) -> float:
    """F of the module: no decomposition takes less."""
    return float(max(line.max() for line in _lines(demand, cost)))


def shifts(demand: Int64) -> list[Matching]:
    """The matchings of pairwise exchange: rank i to rank i + s, each entry whole, the longest first."""
    n = len(demand)
    matchings = []
    for s in range(1, n):
        src = np.flatnonzero(demand[np.arange(n), (np.arange(n) + s) % n])
        if len(src):
            matchings.append(Matching(src, (src + s) % n, demand[src, (src + s) % n]))
    return sorted(matchings, key=lambda matching: -matching.longest)


def _lines(left: Int64, cost: float) -> tuple[Float64, Float64]:
    """r + cost d of each row, and of each column."""
    rows, columns = (left.sum(axis) + cost * (left > 0).sum(axis) for axis in (1, 0))
    return rows, columns


def _by_rounds(demand: Int64, cost: float, sharpness: float, whole: bool) -> list[Matching]:
    """One matching after the other; ``whole`` never cuts an entry."""
    from scipy.optimize import linear_sum_assignment

    left, matchings = demand.copy(), []
    while left.any():
        rows, columns = _lines(left, cost)
        most = max(rows.max(), columns.max())
        urgent = np.add.outer(*(np.exp(sharpness * (line / most - 1)) for line in (rows, columns)))
        src, dst = linear_sum_assignment(np.where(left > 0, (left + cost) * urgent, 0.0), maximize=True)
        joined = left[src, dst] > 0
        src, dst = src[joined].astype(np.int64), dst[joined].astype(np.int64)
        entry = left[src, dst]
        longest = int(entry.max()) if whole else _duration(entry, rows, columns, src, dst, cost)
        sent = np.minimum(entry, longest)
        left[src, dst] -= sent
        matchings.append(Matching(src, dst, sent))
    return sorted(matchings, key=lambda matching: -matching.longest)


def _duration(entry: Int64, rows: Float64, columns: Float64, src: Int64, dst: Int64, cost: float) -> int:
    """How long to hold a matching: where F falls most for what it costs, the longest of equals."""
    ends = np.unique(entry)
    if len(ends) > MOST_DURATIONS:
        ends = ends[np.linspace(0, len(ends) - 1, MOST_DURATIONS).astype(np.int64)]
    falls = np.minimum(entry, ends[:, None]) + cost * (entry <= ends[:, None])
    after = []
    for line, at in ((rows, src), (columns, dst)):
        table = np.repeat(line[None], len(ends), axis=0)
        table[:, at] -= falls
        after.append(table.max(axis=1))
    worth = (max(rows.max(), columns.max()) - np.maximum(*after)) / (ends + cost)
    return int(ends[np.flatnonzero(worth >= worth.max() * (1 - 1e-9))[-1]])
