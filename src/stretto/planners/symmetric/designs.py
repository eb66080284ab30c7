"""Ways to do an AllReduce where messages cost, and estimates of what they take.

A *design* is a subgroup (:mod:`.subgroups`), whose elements own the chunks, and stages. A chunk is summed over each
*stage*, coordinate by coordinate from the innermost to the outermost, and copied back the same way. Ranks that differ
in the owners' part of a coordinate send to the owner. Those that differ in the rest of it sum up a tree
(:mod:`.postal`). The outermost stages may be *meetings*, after which all ranks there have the sum: these take half as
many hops, and more bytes. The data may be cut into several parts, of which each has its trees in other ranks than the
part before, so that all ports are as busy. Parts may also take the coordinates in turns, as on a torus, where each part
uses the links along one coordinate at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import log2, prod
from typing import NamedTuple

import numpy as np

from ...model.arrays import Float64, Int64
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
        ways: the stages, the outermost first; where there are several, parts take them in turns.
        met: how many of the stages are meetings.
        width: children in trees, at most.
        rows: transfers of the representatives.
        seconds: the estimate.
    """

    orders: Orders
    ways: tuple[tuple[Stage, ...], ...]
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
    out: list[Design] = []
    for orders in subgroups(links.symmetry, digits):
        if orders == tuple(links.symmetry.orders.tolist()):
            continue
        turns = [_stages(links, orders, turn) for turn in range(len(links.coordinates))]
        out += _of_ways(links, orders, owners(orders, digits), turns[:1], size_bytes)
        if len(turns) > 1 and links.alike:
            out += _of_ways(links, orders, owners(orders, digits), turns, size_bytes)
    return out


def _of_ways(
    links: Links, orders: Orders, each: int, ways: list[tuple[Stage, ...]], size_bytes: int
) -> Iterator[Design]:
    """The designs of some ways in a subgroup, for any number of meetings and parts, and all widths of trees.

    Args:
        each: how many ranks own a chunk of a part.
    """
    stages, copies = ways[0], links.copies(orders)
    ranks = prod(stage.ranks for stage in stages)
    most_met = next((k for k, stage in enumerate(stages) if not stage.rest), len(stages)) if len(ways) == 1 else 0
    for met in range(most_met + 1):
        roots = prod(stage.ranks for stage in stages[:met])
        trees = any(stage.rest for stage in stages[met:])
        for width, exponent in product(WIDTHS if trees else WIDTHS[1:], range(MOST_PARTS.bit_length())):
            parts = len(ways) << exponent
            if size_bytes < each * parts:
                continue
            estimate = _Estimate(links, orders, copies, -(-size_bytes // (each * parts)), parts / len(ways))
            found = [estimate.of(stages, met, width) for stages in ways]
            messages = found[0].messages
            rows = parts * (2 * (ranks - roots) + roots * messages)
            waits = parts * roots * messages * (ranks // roots + messages)
            if (exponent and rows > MOST_ROWS) or waits > MOST_WAITS:
                continue
            seconds = max(one.way_s for one in found) + float(np.sum([one.more_s for one in found], axis=0).max())
            yield Design(orders, tuple(ways), met, parts, width, rows, seconds)


def _stages(links: Links, orders: Orders, turn: int) -> tuple[Stage, ...]:
    """The stages of a subgroup, the outermost first, or that of coordinate ``turn``."""
    out = []
    for c in links.coordinates[turn:] + links.coordinates[:turn]:
        if not c.joined:
            out.append(Stage(c, c.order, 1, False))
            continue
        rest = c.order // orders[c.digit]
        both = Stage(c, rest, 1, True), Stage(c, orders[c.digit], rest, False)
        out += [stage for stage in both if stage.ranks > 1]
    return tuple(out)


class _Estimated(NamedTuple):
    """What parts that go one way take.

    Attributes:
        way_s: of one chunk through idle ports.
        more_s: float64[orbits], what each orbit of links carries besides.
        messages: how many each rank gets in meetings.
    """

    way_s: float
    more_s: Float64
    messages: int


class _Estimate(NamedTuple):
    """Estimates for chunks of one size.

    Attributes:
        copies: see :meth:`.subgroups.Links.copies`.
        parts: how many go each way.
    """

    links: Links
    orders: Orders
    copies: Int64
    chunk_bytes: int
    parts: float

    def of(self, stages: tuple[Stage, ...], met: int, width: int) -> _Estimated:
        message_s = self.links.message_s(self.chunk_bytes)
        images = prod(self.orders) * self.parts / self.links.sizes
        way_s, more_s, messages, holders = 0.0, np.zeros(len(message_s)), 0, 1
        roots = prod(stage.ranks for stage in stages[:met])
        for number, stage in enumerate(stages):
            c = stage.coordinate
            one_s = float((self.copies * message_s)[c.orbits].max())
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
            work_s = max(1.0, still / self.parts) * images[c.orbits] * sent * c.hops * message_s[c.orbits]
            more_s[c.orbits] += np.maximum(work_s - own * one_s * min(1.0, self.parts), 0.0)
        return _Estimated(way_s, more_s, messages)
