"""How soon a collective can end for a given amount of money, by bandwidth alone.

Links may have prices. Two linear programs on the merged network of :mod:`.money` say which bytes go over which link:

- What is copied or summed: the program of :mod:`.trees` with a row for the money. Every cut must let in what nodes
  inside lack; of an AllReduce every cut lets contributions out, and every node gets once more (see :mod:`.money`).
- What is neither: a flow from each node to those that want its bytes.

No link carries more than its bandwidth, and the bytes over all links cost no more than the budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ..model.arrays import Float64
from ..model.collective import Collective
from .money import Merged
from .trees import Extra, tree_rates_within

ROUNDING = 1e-6
"""By what share a linear program's time is lowered before it counts as a bound; HiGHS keeps rows to 1e-7."""

MOST_UNKNOWNS = 6_000
"""Unknowns of a program of flows (sources times links) up to which it is solved; that takes about a second."""

NOTHING = 1e-12
"""Share of all bytes: a link over which not even that share is affordable may carry it all the same, since HiGHS takes
no coefficients above 1e15, as the link's price would have in the row for the money. A bound becomes no higher by it."""

PRICE_WEIGHT = 1e-6
"""What all bytes over the dearest links count beside the time, so that of equally fast flows a cheap one is taken. A
bound has no such weight."""


@dataclass(frozen=True)
class Fluid:
    """The fastest way within a budget: its time, and the bytes/s on each link of the merged network."""

    seconds: float
    load: Float64


def fastest_within(net: Merged, c: Collective, most_usd: float, steps: float, relaxed: bool) -> Fluid | None:
    """The fastest fluid way within a budget; None where no program serves the collective, or solving it takes more.

    Args:
        most_usd: what the whole collective may cost, US dollars.
        steps: what the program of trees may take, see :func:`.trees.tree_rates_within`.
        relaxed: True for a time that no plan beats; False for one that trees or flows reach.
    """
    if len(np.unique(net.node[c.ranks])) < 2:
        return None
    if not c.reduces and (c.holders.lengths == 1).all() and (c.wanted.lengths == 1).all():
        return _flows(net, c, most_usd, relaxed)
    traits = c.traits
    if not traits.general or (traits.rooted and not traits.whole):
        return None
    return _trees(net, c, most_usd, steps, relaxed)


def least_seconds(net: Merged, c: Collective, most_usd: Iterable[float], steps: float) -> list[float]:
    """For each budget the time that no plan within it beats, by bandwidth alone; 0 where no program gives one."""
    found = (fastest_within(net, c, usd, steps, relaxed=True) for usd in most_usd)
    return [fluid.seconds * (1 - ROUNDING) if fluid is not None else 0.0 for fluid in found]


def _trees(net: Merged, c: Collective, most_usd: float, steps: float, relaxed: bool) -> Fluid | None:
    ranks, held = np.unique(net.node[c.ranks], return_counts=True)
    extra = Extra(most_usd / c.size_bytes, relaxed)
    shares: Float64 | None = None
    turned = net.topology
    if not c.traits.reduces_to_all:
        shares = held.astype(np.float64) if c.root < 0 else (ranks == net.node[c.ranks[c.root]]).astype(np.float64)
        if c.reduces:
            turned = replace(turned, src=turned.dst, dst=turned.src)
    rates = tree_rates_within(steps, turned, ranks.astype(np.int32), shares, extra)
    if rates is None or rates.rate <= 0:
        return None
    return Fluid(c.size_bytes / rates.rate, rates.copies + rates.sums)


def _flows(net: Merged, c: Collective, most_usd: float, relaxed: bool) -> Fluid | None:
    """The fastest flows: for each source the bytes over each link, and the time as the last unknown."""
    from ..solvers import INFINITY, Model, solve

    topology = net.topology
    source, goal = (net.node[c.ranks[rows.values]] for rows in (c.holders, c.wanted))
    crossing = source != goal
    sources, row = np.unique(source[crossing], return_inverse=True)
    links, nodes = topology.link_count, topology.node_count
    if not len(sources) or len(sources) * links > MOST_UNKNOWNS:
        return None
    unit = float(c.piece_bytes[crossing].sum())
    wanted = np.zeros((len(sources), nodes))
    np.add.at(wanted, (row, goal[crossing]), c.piece_bytes[crossing] / unit)
    wanted[np.arange(len(sources)), sources] = -wanted.sum(axis=1)
    price = topology.usd_per_byte * unit
    affordable = price * NOTHING <= most_usd
    price = np.where(affordable, price / max(most_usd, 1e-300), 0.0)
    model, fastest = Model(), float(topology.bandwidth.max())
    dear = (0.0 if relaxed else PRICE_WEIGHT) * np.tile(
        topology.usd_per_byte / max(float(topology.usd_per_byte.max()), 1e-300), len(sources)
    )
    most = np.tile(np.where(affordable, INFINITY, NOTHING), len(sources))
    flow = model.columns(len(sources) * links, 0.0, most, dear)
    time = model.columns(1, 0.0, INFINITY, 1.0)
    every = np.arange(len(flow))
    of_source, link = np.divmod(every, links)
    model.rows(
        len(sources) * nodes, wanted.ravel(), wanted.ravel(),
        (of_source * nodes + topology.dst[link], flow, 1.0), (of_source * nodes + topology.src[link], flow, -1.0),
    )  # fmt: skip
    width = topology.bandwidth / fastest
    model.rows(links, -INFINITY, 0.0, (link, flow, 1.0), (np.arange(links), np.repeat(time, links), -width))
    model.rows(1, -INFINITY, 1.0, (np.zeros(len(flow), dtype=np.int64), flow, price[link]))
    found = solve(model)
    if found.x is None or found.x[time[0]] <= 0:
        return None
    seconds = float(found.x[time[0]]) * unit / fastest
    carried = np.maximum(found.x[flow].reshape(len(sources), links).sum(axis=0), 0.0) * unit
    return Fluid(seconds, carried / seconds)
