"""Ways to do an AllReduce where messages cost, and estimates of what they take.

A *design* is a subgroup (:mod:`.subgroups`), whose elements own the chunks, and stages. A chunk is summed over each
*stage*, coordinate by coordinate from the innermost to the outermost, and copied back the same way. Ranks that differ
in the owners' part of a coordinate send to the owner. Those that differ in the rest of it sum up a tree
(:mod:`.postal`). The outermost stages may be *meetings*, after which all ranks there have the sum: these take half as
many hops, and more bytes. The data may be cut into several parts, of which each has its trees in other ranks than the
part before, so that all ports are as busy.
"""

from __future__ import annotations

from math import log2, prod
from typing import NamedTuple

import numpy as np

from ...model.arrays import Int64
from ...schedule.best import PER_HALF
from .chains import Digits
from .postal import meeting, tree
from .subgroups import Coordinate, Links, Orders, owners, subgroups

MOST_PARTS = 64
"""Parts into which the data of each owner is cut, at most."""

MOST_ROWS = 140_000
"""Transfers of the representatives, at most, if the data is cut into several parts."""

MOST_WAITS = 3_000_000
"""Dependencies of a design, at most, about."""

WIDTHS = (2, 1 << 30)
"""Children that ranks of a tree have at most: trees of two are even, those without a limit end soonest alone."""

ROUND = 2
"""Decimals of a latency in units of a message."""


class Stage(NamedTuple):
    """Ranks that differ in a part of one coordinate.

    Attributes:
        ranks: how many there are.
        step: by how much of the coordinate they differ.
        rest: whether they are the rest of the coordinate, not what owners have of it.
    """

    coordinate: Coordinate
    ranks: int
    step: int
    rest: bool


class Design(NamedTuple):
    """How an AllReduce may be done.

    Attributes:
        stages: the outermost first.
        met: how many of them are meetings.
        width: children in trees, at most.
        rows: transfers of the representatives.
        seconds: the estimate.
    """

    orders: Orders
    stages: tuple[Stage, ...]
    met: int
    parts: int
    width: int
    rows: int
    seconds: float

    @property
    def turn(self) -> float:
        """Designs are scheduled from the lowest on: those with few messages, and few to plan, come sooner."""
        return self.seconds * self.surcharge * float(PER_HALF ** log2(self.rows))

    @property
    def surcharge(self) -> float:
        """Times its completion that it counts for its messages."""
        return float(PER_HALF ** log2(self.rows * prod(self.orders)))


def designs(links: Links, digits: Digits, size_bytes: int) -> list[Design]:
    """All designs, but that in which all ranks own chunks."""
    out = []
    for orders in subgroups(links.symmetry, digits):
        if orders == tuple(links.symmetry.orders.tolist()):
            continue
        stages = _stages(links, orders)
        ranks, each = prod(stage.ranks for stage in stages), owners(orders, digits)
        copies = links.copies(orders)
        outer = next((k for k, stage in enumerate(stages) if not stage.rest), len(stages))
        for met in range(outer + 1):
            roots = prod(stage.ranks for stage in stages[:met])
            for width in WIDTHS if outer > met else WIDTHS[1:]:
                for parts in (1 << k for k in range(MOST_PARTS.bit_length())):
                    if size_bytes < each * parts:
                        break
                    chunk_bytes = -(-size_bytes // (each * parts))
                    seconds, messages = _estimate(links, stages, copies, met, width, parts, orders, chunk_bytes)
                    rows = parts * (2 * (ranks - roots) + roots * messages)
                    waits = parts * roots * messages * (ranks // roots + messages) if met else 0
                    if (parts > 1 and rows > MOST_ROWS) or waits > MOST_WAITS:
                        break
                    out.append(Design(orders, stages, met, parts, width, rows, seconds))
    return out


def _stages(links: Links, orders: Orders) -> tuple[Stage, ...]:
    """The stages of a subgroup, the outermost first."""
    out = []
    for c in links.coordinates:
        if not c.joined:
            out.append(Stage(c, c.order, 1, False))
            continue
        rest = c.order // orders[c.digit]
        both = Stage(c, rest, 1, True), Stage(c, orders[c.digit], rest, False)
        out += [stage for stage in both if stage.ranks > 1]
    return tuple(out)


def _estimate(
    links: Links, stages: tuple[Stage, ...], copies: Int64, met: int, width: int, parts: int, orders: Orders,
    chunk_bytes: int,
) -> tuple[float, int]:  # fmt: skip
    """Seconds that a design takes, about, and how many messages each rank gets in meetings.

    The way of one chunk through idle ports, and what the busiest orbit of links carries besides.
    """
    message_s = links.message_s(chunk_bytes)
    images = prod(orders) * parts / links.sizes
    way_s, more_s, messages, holders = 0.0, np.zeros(len(message_s)), 0, 1
    roots = prod(stage.ranks for stage in stages[:met])
    for number, stage in enumerate(stages):
        c = stage.coordinate
        one_s = float((copies * message_s)[c.orbits].max())
        lag = round(c.latency_s / one_s, ROUND)
        sent = 2 * holders * (stage.ranks - 1)
        if number < met:
            circle = meeting(stage.ranks, lag)
            messages += len(circle.states)
            sent, units, own = roots * len(circle.states), circle.time, float(len(circle.states))
        elif not c.joined:
            depth = int(c.trees[0].depth.max())
            units, own = 2 * depth * (1 + lag), 2.0 * depth
        elif stage.rest:
            units = 2 * tree(stage.ranks, lag, width).time
            own = units
        else:
            units, own = 2 * (1 + lag), 2.0
        holders *= stage.ranks
        way_s += units * one_s
        # what owners do not differ in, and parts neither, stands still until the stage of that coordinate
        still = prod(inner.ranks for k, inner in enumerate(stages) if inner.rest and k > max(number, met - 1))
        work_s = max(1.0, still / parts) * images[c.orbits] * sent * c.hops * message_s[c.orbits]
        more_s[c.orbits] += np.maximum(work_s - own * one_s, 0.0)
    return way_s + float(more_s.max()), messages
