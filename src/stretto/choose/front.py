"""Time against money: plans of one request, of which none is both faster and cheaper than another.

Planners know no prices. They are asked on networks that leave them only what money should be spent on, and their plans
are then run on the network itself:

- *Narrowed links.* A linear program says which bytes per second each link carries in the fastest trees or flows for a
  budget (:func:`stretto.bounds.priced.fastest_within`). Links with a price get that bandwidth, and no more; links that
  the program does not use are left out. A plan that is nearly as fast as the program cannot spend much more than that.
- *No expensive links.* For each price the network without links above it. This needs no program, so it serves every
  collective.
- *Cheapest paths.* Each chunk over the paths whose prices add up to the least.

Each plan is verified and simulated on the network itself. What the bounds allow stands beside it: the least cost of any
plan, and the least time of any plan that costs no more than this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..bounds import bounds
from ..bounds.money import Merged, least_tree_usd, least_usd, merged
from ..bounds.priced import fastest_within, least_seconds
from ..model.arrays import Bool, Float64
from ..model.collective import Workload
from ..model.errors import StrettoError
from ..model.plan import Plan
from ..model.reach import find_unreachable
from ..model.symmetric import SymmetricPlan
from ..model.topology import Topology
from ..model.units import format_usd
from ..simulate import simulate
from ..verify import verify

PROGRAM_STEPS = 2e6
"""Microseconds of CPU, counted, that each linear program may take."""

LEAST_LOAD = 1e-5
"""Links that a program uses less than this share of the busiest one's bandwidth are left out."""

ABOVE_LEAST = 1e-4
"""By what share the lowest budget is above the least cost of trees, so that the program has a solution."""

ALIKE = 1e-6
"""Costs and times that differ by less than this share count as equal."""

USD_PER_GB_S = 1e3
"""Seconds for which a price of one USD a GB stands where paths are chosen by price. A latency of 1 ms then weighs as
much as 1e-6 USD a GB, less than any difference of prices."""

PlanBy = Callable[[str, Topology], Plan]
"""Makes the plan of a planner on a network."""


@dataclass(frozen=True, eq=False)
class Point:
    """One plan of a front.

    Attributes:
        plan: the plan, verified.
        completion_s, cost_usd: what the simulator says.
        bound_s: the time that no plan beats that costs no more.
        how: which network the planner was asked on.
    """

    plan: Plan
    completion_s: float
    cost_usd: float
    bound_s: float
    how: str


@dataclass(frozen=True, eq=False)
class Front:
    """Plans by cost, the cheapest first: each is faster than all cheaper ones.

    Attributes:
        points: the plans.
        least_usd: what no plan can cost less than.
    """

    points: tuple[Point, ...]
    least_usd: float


def front(topology: Topology, workload: Workload, planner: str, plan_by: PlanBy, count: int) -> Front:
    """Plans of one request that trade time for money.

    Args:
        planner: asked on each network.
        plan_by: makes the plans.
        count: how many budgets and how many limits of prices are tried.
    Returns:
        The plans that no other one beats in both time and money; one plan where nothing has a price.
    """
    fastest = plan_by(planner, topology)
    plans = [(fastest, "the network itself")]
    if topology.usd_per_byte.any() and not topology.planes:
        line = simulate(fastest)
        for spec, net, kept, how in _networks(topology, workload, line.cost_usd, planner, count):
            plan = _asked(spec, net, plan_by)
            if plan is not None:
                plans.append((_on(plan, topology, kept), how))
    measured = []
    for plan, how in plans:
        if verify(plan).ok:
            line = simulate(plan)
            measured.append((line.cost_usd, line.completion_s, how, plan))
    chosen = [measured[k] for k in _unbeaten([(cost, seconds) for cost, seconds, _, _ in measured])]
    limits = _limits_s(topology, workload, [cost for cost, *_ in chosen])
    points = [
        Point(plan, seconds, cost, limit_s, how)
        for (cost, seconds, how, plan), limit_s in zip(chosen, limits, strict=True)
    ]
    return Front(tuple(points), least_usd(topology, workload))


def _asked(spec: str, net: Topology, plan_by: PlanBy) -> Plan | None:
    """The plan on a network, None where the planner refuses it."""
    try:
        return plan_by(spec, net)
    except StrettoError:
        return None


def _networks(
    topology: Topology, workload: Workload, fastest_usd: float, planner: str, count: int
) -> Iterator[tuple[str, Topology, Bool, str]]:
    """Networks to plan on, each with the planner to ask, which links of the given one it has, and what it is."""
    everything = np.ones(topology.link_count, dtype=np.bool_)
    by_price = topology.latency_s + topology.usd_per_byte * 1e9 * USD_PER_GB_S
    yield "shortest-path", replace(topology, latency_s=by_price), everything, "cheapest paths"
    prices = np.unique(topology.usd_per_byte)[1:-1]
    for price in prices[np.unique(np.linspace(0, len(prices) - 1, count).astype(int))] if len(prices) else ():
        kept = topology.usd_per_byte <= price
        net = topology.with_links(kept)
        if all(find_unreachable(net, c) is None for c in workload.collectives):
            yield planner, net, kept, f"links of up to {price * 1e9:.4g} USD a GB"
    if len(workload.collectives) == 1:
        for usd, load, of_links in _loads(topology, workload, fastest_usd, count):
            kept = topology.usd_per_byte == 0
            used = of_links.links[load > LEAST_LOAD * load.max()]
            width = topology.bandwidth.copy()
            priced = used[topology.usd_per_byte[used] > 0]
            kept[priced] = True
            width[of_links.links] = np.where(kept[of_links.links], np.maximum(load, 1.0), width[of_links.links])
            width = np.where(topology.usd_per_byte > 0, np.minimum(width, topology.bandwidth), topology.bandwidth)
            net = replace(topology, bandwidth=width).with_links(kept)
            if find_unreachable(net, workload.collectives[0]) is None:
                yield planner, net, kept, f"links narrowed for {format_usd(usd)}"


def _loads(
    topology: Topology, workload: Workload, fastest_usd: float, count: int
) -> Iterator[tuple[float, Float64, Merged]]:
    """For each budget what the fastest trees or flows within it send over the links of the merged network, bytes/s."""
    (c,) = workload.collectives
    net = merged(topology, c)
    least = least_tree_usd(net, c) * (1 + ABOVE_LEAST)
    # times fall steeply just above the least cost, so budgets are closer to each other there
    for k in range(count):
        usd = least + max(fastest_usd - least, 0.0) * (k / count) ** 2
        fluid = fastest_within(net, c, usd, PROGRAM_STEPS, relaxed=False)
        if fluid is not None:
            yield usd, fluid.load, net


def _on(plan: Plan, topology: Topology, kept: Bool) -> Plan:
    """A plan for some links of a network, some of them narrower, on the network itself: in ready order if it
    then ends sooner."""
    if isinstance(plan, SymmetricPlan):
        plan = plan.expand()
    route = plan.route.with_values(np.flatnonzero(kept)[plan.route.values].astype(plan.route.values.dtype))
    plan = replace(plan, topology=topology, route=route)
    if plan.start_s is None:
        return plan
    ready = replace(plan, sharing="ready-order", start_s=None, finish_s=None)
    return min((ready, plan), key=lambda each: simulate(each).completion_s)


def _unbeaten(values: list[tuple[float, float]]) -> list[int]:
    """Which of (cost, seconds) no other one beats, by cost; of equal ones the first."""
    chosen: list[int] = []
    for k in sorted(range(len(values)), key=lambda k: (values[k], k)):
        if not chosen or values[k][1] < values[chosen[-1]][1] * (1 - ALIKE):
            if chosen and values[k][0] <= values[chosen[-1]][0] * (1 + ALIKE):
                chosen.pop()
            chosen.append(k)
    return chosen


def _limits_s(topology: Topology, workload: Workload, costs: list[float]) -> list[float]:
    """For each cost the time that no plan beats that costs no more, seconds."""
    least_s = bounds(topology, workload)[0].seconds
    priced = topology.usd_per_byte.any() and not topology.planes and len(workload.collectives) == 1
    if not priced or topology.changes:
        return [least_s] * len(costs)
    (c,) = workload.collectives
    budgets = [cost * (1 + ALIKE) for cost in costs]
    return [
        max(least_s, c.start_s + limit_s) for limit_s in least_seconds(merged(topology, c), c, budgets, PROGRAM_STEPS)
    ]
