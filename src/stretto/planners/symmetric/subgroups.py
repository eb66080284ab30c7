"""Subgroups of a network's group, and how ranks lie in their cosets: who owns the chunks where messages cost.

If the group maps each chunk to another one, each rank owns a chunk, and each rank sends as many messages as there are
ranks. Chunks for the elements of a *subgroup* are fewer and larger. Of each coordinate the subgroup has every second,
third, ... shift: ``order`` of them, which are the *owners'* part of the coordinate. The others are the *rest*: the
first ``rest`` ranks of the coordinate, from which the subgroup's shifts make all of it.

What a subgroup costs is estimated without planning: how many messages cross each orbit of links, and how long a
message and its kind of tree take over it (:class:`Links`).
"""

from __future__ import annotations

from functools import cached_property
from itertools import product
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from ...model.arrays import Bool, Float64, Int64
from ...model.symmetry import Symmetry
from .chains import Digits, Phase, phases_of
from .routes import Routes

Orders = tuple[int, ...]
"""The order of a subgroup in each coordinate."""

MOST_SUBGROUPS = 600
"""Subgroups that are looked at, at most; an estimate takes some 50 us."""


def subgroup(symmetry: Symmetry, orders: Orders) -> Symmetry:
    """The subgroup that has, of each generator, the powers whose order divides that."""
    t, every = symmetry.topology, np.arange(symmetry.topology.node_count)
    kept = [k for k, order in enumerate(orders) if order > 1]
    steps = [int(symmetry.orders[k]) // orders[k] * int(symmetry.strides[k]) for k in kept]
    images = [symmetry.image(np.array(step), every) for step in steps]
    if not kept:  # the identity alone
        return Symmetry(t, every[None].astype(np.int32), np.ones(1, dtype=np.int64))
    return Symmetry(t, np.array(images, dtype=np.int32), np.array([orders[k] for k in kept], dtype=np.int64))


def subgroups(symmetry: Symmetry, digits: Digits) -> list[Orders]:
    """The orders of subgroups worth looking at: of all coordinates but one they have all shifts or none.

    They have all shifts of coordinates other than ``digits``.
    """
    whole = tuple(symmetry.orders.tolist())
    out: dict[Orders, None] = {}
    for choice in product((False, True), repeat=len(digits)):
        orders = list(whole)
        for digit, all_ in zip(digits, choice, strict=True):
            orders[digit] = whole[digit] if all_ else 1
        out[tuple(orders)] = None
        for digit in digits:
            for order in divisors(whole[digit]):
                out[(*orders[:digit], order, *orders[digit + 1 :])] = None
        if len(out) > MOST_SUBGROUPS:
            break
    return list(out)


def divisors(number: int) -> list[int]:
    """The numbers that divide ``number``, ascending."""
    return [k for k in range(1, number + 1) if gcd(k, number) == k]


class Coordinate(NamedTuple):
    """The links between ranks that differ in one coordinate.

    Attributes:
        digit: the generator.
        order: its order.
        joined: whether there are routes between all of these ranks.
        trees: where there are not, trees over neighbours.
        orbits: int64[any], the orbits of links on these routes, as :class:`Links` numbers them.
        hops: float64[any], how many links of each a route has, on average.
        latency_s: of the longest route.
    """

    digit: int
    order: int
    joined: bool
    trees: list[Phase]
    orbits: Int64
    hops: Float64
    latency_s: float


class Links:
    """Orbits of links on routes between ranks, under the whole group and under subgroups.

    Attributes:
        coordinates: the outermost first.
        first: int64[orbits], the first link of each.
    """

    def __init__(self, symmetry: Symmetry, digits: Digits, routes: Routes, most_children: int) -> None:
        self.symmetry = symmetry
        self.first = np.unique(routes.orbits).astype(np.int64)
        self.coordinates = []
        for digit in digits:
            order = int(symmetry.orders[digit])
            if order == 1:
                continue
            elements = np.arange(order) * int(symmetry.strides[digit])
            joined = bool(routes.reached[elements[1:]].all())
            trees = [] if joined else phases_of(symmetry, (digit,), routes, most_children, one=True)
            steps = elements[1:] if joined else np.unique(np.concatenate([elements[:0], *(t.step[1:] for t in trees)]))
            links = routes.links.take(steps)
            orbit = np.searchsorted(self.first, symmetry.link_orbits[links.values])
            hops = np.bincount(orbit, minlength=len(self.first)) / max(len(steps), 1)
            used = np.flatnonzero(hops)
            latency_s = float(routes.latency_s[steps].max(initial=0.0))
            self.coordinates.append(Coordinate(digit, order, joined, trees, used, hops[used], latency_s))

    @property
    def serves(self) -> bool:
        """Whether there are routes or trees between the ranks of each coordinate."""
        return all(c.joined or c.trees for c in self.coordinates)

    @property
    def alike(self) -> bool:
        """Whether routes along all coordinates are as long and as wide, as on a torus."""
        t = self.symmetry.topology
        byte_s = self.symmetry.copies[self.first] / t.bandwidth[self.first]
        return len({(c.latency_s, float(byte_s[c.orbits].max())) for c in self.coordinates}) == 1

    @cached_property
    def sizes(self) -> Int64:
        """int64[orbits], the links of each."""
        return np.bincount(self.symmetry.link_orbits)[self.first]

    @cached_property
    def _stabilisers(self) -> list[Int64]:
        """For each orbit the exponents of the elements that map its first link to itself."""
        every = np.arange(self.symmetry.size)[:, None]
        same: Bool = self.symmetry.image_of_links(every, self.first) == self.first
        return [self.symmetry.exponents(np.flatnonzero(column)) for column in same.T]

    def copies(self, orders: Orders) -> Int64:
        """int64[orbits], how many elements of a subgroup map a link to itself."""
        step = self.symmetry.orders // np.array(orders)
        return np.array([int((each % step == 0).all(axis=1).sum()) for each in self._stabilisers])

    def message_s(self, size_bytes: float) -> Float64:
        """float64[orbits], for how long a message keeps a link."""
        t = self.symmetry.topology
        busy_s: Float64 = size_bytes / t.bandwidth[self.first] + t.message_s[self.first]
        return busy_s


def owners(orders: Orders, digits: Digits) -> int:
    """How many ranks of one collective own a chunk."""
    return prod(orders[digit] for digit in digits)
