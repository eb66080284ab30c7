"""RateAlloc: constant rates by a convex program (WAN paper, section III-D1, eq. 10).

Every flow has a rate b. On a link a group reserves the highest rate of its flows there (eq. 8), and reservations fit
the link (eq. 9). The mean over collectives of the time of their slowest group is minimised. Flows of one group on one
route have the same rate at the optimum, so they are one variable, a *kind* of flows. A reservation for one kind is its
rate.
"""

from __future__ import annotations

import numpy as np

from ...model.arrays import Float64, Int64, Ragged
from ...model.plan import Plan
from ...solvers import conic
from .. import Request
from .flows import READING, Flows, flow_refiner, flows_of, with_meta, with_rates


@flow_refiner("rate-alloc", "Wang, Craps, Li, section III-D1", (READING,))
def rate_alloc(plan: Plan, request: Request, *, reading: str = "reserved") -> Plan:
    """Constant rates that minimise the mean completion of a convex model.

    Raises:
        Infeasible: Clarabel did not converge, or the net stopped it.
    """
    flows = flows_of(plan)
    rate, value = allocate(flows, request.budget.stop.limit_s)
    return with_meta(with_rates(plan, flows.group, rate, reading), surrogate_s=value)


def allocate(flows: Flows, time_limit_s: float | None = None) -> tuple[Float64, float]:
    """float64[flows], the rates b of eq. (10), and the minimum, seconds."""
    kind, example = _kinds(flows)
    size = np.bincount(kind, weights=flows.size)
    group = flows.group[example]
    routes = flows.plan.route.take(example)
    # in these units rates and the times of groups are near 1
    unit = float(np.median(flows.proportional(np.ones(flows.groups))))
    volume = float(np.bincount(flows.group, weights=flows.size).mean())
    kind_rate, value = _solve(routes, size / volume, group, flows, flows.width / unit, time_limit_s)
    rate = kind_rate[kind] * unit
    return rate * _fit(flows, rate), value * volume / unit


def _kinds(flows: Flows) -> tuple[Int64, Int64]:
    """int64[flows] and int64[kinds]: the kind of each flow, by group and route; and a flow of each kind."""
    numbers: dict[tuple[int, bytes], int] = {}
    routes = flows.plan.route
    keys = [(group, routes[f].tobytes()) for f, group in enumerate(flows.group.tolist())]
    kind = np.array([numbers.setdefault(key, len(numbers)) for key in keys])
    return kind, np.unique(kind, return_index=True)[1]


def _solve(
    routes: Ragged, size: Float64, group: Int64, flows: Flows, width: Float64, time_limit_s: float | None
) -> tuple[Float64, float]:
    """float64[kinds], rates, and the minimum. Variables: b and u = 1/b by kind, E by shared pair, T."""
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
    answer = conic.solve(cost, (row, column, value), limits, (np.arange(n), n + np.arange(n)), time_limit_s)
    return answer.x[:n], answer.value


def _fit(flows: Flows, rate: Float64) -> Float64:
    """float64[flows], at most 1: the factor that shrinks rates which overfill a link by rounding."""
    asks = np.zeros(len(flows.pair_link))
    np.maximum.at(asks, flows.pair, rate[flows.owner])
    total = np.bincount(flows.pair_link, weights=asks, minlength=len(flows.width))
    over = np.minimum(flows.width / np.where(total > 0, total, flows.width), 1.0)
    return flows.least(over[flows.link])
