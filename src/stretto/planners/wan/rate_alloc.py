"""RateAlloc: constant rates by a convex program (WAN paper, section III-D1, eq. 10).

Every flow has a rate b; on a link a group reserves the most that one of its flows has there
(eq. 8), and reservations fit the link (eq. 9). Minimised is the mean over collectives of the time
of their slowest group at these rates. Flows of one group on one route have one rate at the
optimum, so they are one variable; a reservation that only one rate asks for is that rate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...model.arrays import Ragged
from ...model.plan import Plan
from ...solvers import conic
from .. import Progress, over_links, refiner
from .flows import KINDS, READING, Flows, flows_of, noted, with_rates

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


@refiner(
    name="rate-alloc",
    collectives=KINDS,
    topologies="any without planes",
    paper="Wang, Craps, Li, section III-D1",
    alone=("ring",),
    options=(READING,),
    serves=over_links,
)
def rate_alloc(
    plan: Plan, *, seed: int = 0, time_limit_s: float | None = None, progress: Progress | None = None,
    reading: str = "reserved",
) -> Plan:  # fmt: skip
    """Constant rates that minimise the mean completion of a convex model.

    Raises:
        Infeasible: Clarabel did not converge within ``time_limit_s``.
    """
    flows = flows_of(plan)
    rate, value = allocate(flows, time_limit_s)
    return noted(with_rates(plan, flows.group, rate, reading), surrogate_s=value)


def allocate(flows: Flows, time_limit_s: float | None = None) -> tuple[Float64, float]:
    """float64[flows], the rates b of (10), and its optimum in seconds."""
    kind, one = _kinds(flows)
    size = np.bincount(kind, weights=flows.size)
    group = flows.group[one]
    routes = flows.route.take(one)
    # units in which rates and the times of groups are near one
    per = float(np.median(flows.proportional(np.ones(flows.groups))))
    volume = float(np.bincount(flows.group, weights=flows.size).mean())
    found, value = _solve(routes, size / volume, group, flows, flows.width / per, time_limit_s)
    rate = found[kind] * per
    return rate * _fit(flows, rate), value * volume / per


def _kinds(flows: Flows) -> tuple[Int64, Int64]:
    """int64[flows], which flows share group and route; and one flow of each kind."""
    numbers: dict[tuple[int, bytes], int] = {}
    kind = np.empty(len(flows.size), dtype=np.int64)
    one: list[int] = []
    for f in range(len(kind)):
        key = int(flows.group[f]), flows.route[f].tobytes()
        if key not in numbers:
            numbers[key] = len(one)
            one.append(f)
        kind[f] = numbers[key]
    return kind, np.array(one)


def _solve(
    routes: Ragged, size: Float64, group: Int64, flows: Flows, width: Float64, limit: float | None
) -> tuple[Float64, float]:
    """Rates by kind of flow. Variables: b and u = 1/b by kind, E of pairs that several kinds use, T."""
    n, k = len(size), flows.collectives
    owners, links = routes.owners, routes.values.astype(np.int64)
    pairs, pair, users = np.unique(links * flows.groups + group[owners], return_inverse=True, return_counts=True)
    shared = users > 1
    reservation = np.empty(len(pairs), dtype=np.int64)
    reservation[shared] = 2 * n + np.arange(shared.sum())
    alone = ~shared[pair]
    reservation[pair[alone]] = owners[alone]
    first_t = 2 * n + int(shared.sum())
    used, link_row = np.unique(pairs // flows.groups, return_inverse=True)
    # rows: sum F u - T <= 0 by group, sum E <= C by link, b - E <= 0 by hop of shared pairs
    hop = np.flatnonzero(~alone)
    g, e = flows.groups, len(used)
    cap = g + e + np.arange(len(hop))
    row = np.concatenate((group, np.arange(g), g + link_row, cap, cap))
    column = np.concatenate((
        n + np.arange(n), first_t + flows.collective, reservation, owners[hop], reservation[pair[hop]],
    ))  # fmt: skip
    value = np.concatenate((size, -np.ones(g), np.ones(len(pairs)), np.ones(len(hop)), -np.ones(len(hop))))
    limits = np.concatenate((np.zeros(g), width[used], np.zeros(len(hop))))
    cost = np.zeros(first_t + k)
    cost[first_t:] = 1.0 / k
    found = conic.solve(cost, (row, column, value), limits, (np.arange(n), n + np.arange(n)), limit)
    return found.x[:n], found.value


def _fit(flows: Flows, rate: Float64) -> Float64:
    """float64[flows], at most 1: by how much to shrink rates that overfill a link by rounding."""
    asks = np.zeros(len(flows.pair_link))
    np.maximum.at(asks, flows.pair, rate[flows.route.owners])
    total = np.bincount(flows.pair_link, weights=asks, minlength=len(flows.width))
    over = np.minimum(flows.width / np.where(total > 0, total, flows.width), 1.0)
    return flows.least(over[flows.route.values])
