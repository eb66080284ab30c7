"""How much of the data goes by which chain: a linear program over orbits of links.

Minimise the time for which the busiest orbit of links works, plus the time that chains take to fill. A column is a
chain, a row an orbit. Where one chain keeps no orbit much busier than any mix must, nothing is solved. Each chain of a
mix has messages of its own, which the program does not count, so one chain alone is an answer, too.
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ...model.arrays import Float64
from ...solvers import INFINITY, Model, solve

NEAR = 1.005
"""Times the least time of any mix: chains that take no more are taken alone."""

LEAST_SHARE = 0.01
"""Share of the data below which a chain is left out."""

EVEN = 1e-3
"""What the largest share costs where shares are to be even, as a share of the time. An exchange by chains that begin
along one dimension leaves the links of the others idle at first; by chains that load links alike AllToAll on a torus
ends at the bound (docs/contributors/planners/symmetric.md)."""


class Columns(NamedTuple):
    """The chains of one half of a collective, its sums or its copies.

    Attributes:
        load_s: float64[chains, orbits], for how long all data by one chain keeps each orbit of links.
        fill_s: float64[chains], what the first bytes take to the last rank.
    """

    load_s: Float64
    fill_s: Float64


def mixes(halves: list[Columns], even: bool = False) -> list[list[Float64]]:
    """Mixes worth trying: of each, for each half float64[chains], the shares of the data that go by each chain.

    The first one is the best without a mix.

    Args:
        even: whether of the best mixes the one is taken whose largest share is least, see :data:`EVEN`.
    """
    least_s = float(sum(half.load_s.min(axis=0) for half in halves).max()) + sum(float(h.fill_s.min()) for h in halves)
    best, best_s = (0,) * len(halves), np.inf
    for choice in product(*(range(len(half.fill_s)) for half in halves)):
        busy_s = sum(half.load_s[k] for half, k in zip(halves, choice, strict=True)).max()
        end_s = float(busy_s + sum(half.fill_s[k] for half, k in zip(halves, choice, strict=True)))
        if end_s < best_s * (1 - 1e-9):
            best, best_s = choice, end_s
    alone = [np.eye(len(half.fill_s))[k] for half, k in zip(halves, best, strict=True)]
    solved = None if best_s <= NEAR * least_s else _solved(halves, best_s, even)
    return [alone] if solved is None else [alone, solved]


def _solved(halves: list[Columns], unit_s: float, even: bool) -> list[Float64] | None:
    """The shares with the least time, in units of ``unit_s``; None if they take no less than a unit."""
    model = Model()
    busiest = model.columns(1, upper=INFINITY, cost=1.0)
    largest = model.columns(1, cost=EVEN if even else 0.0)
    columns = []
    orbits = halves[0].load_s.shape[1]
    entries: list[tuple[Any, ...]] = [(np.arange(orbits), np.repeat(busiest, orbits), -1.0)]
    for half in halves:
        share = model.columns(len(half.fill_s), cost=half.fill_s / unit_s)
        columns.append(share)
        row, chain = np.indices((orbits, len(share)))
        entries.append((row.ravel(), share[chain.ravel()], half.load_s.T.ravel() / unit_s))
        model.rows(1, 1.0, 1.0, (np.zeros(len(share), dtype=np.int64), share, 1.0))
        each = np.arange(len(share))
        model.rows(len(share), -INFINITY, 0.0, (each, share, 1.0), (each, np.repeat(largest, len(share)), -1.0))
    model.rows(orbits, -INFINITY, 0.0, *entries)
    answer = solve(model)
    if answer.x is None or answer.objective is None or answer.objective > 1 / NEAR:
        return None
    out = []
    for share in columns:
        part = np.where(answer.x[share] < LEAST_SHARE, 0.0, answer.x[share])
        out.append(part / part.sum())
    return out
