"""Symmetry of a network: permutations of its nodes that map every link to a link of the same kind.

A :class:`Symmetry` is a commutative group by its generators. An *orbit* is what the group maps to each other. An orbit
of accelerators has one accelerator for each element of the group, or it is a single accelerator that every element
leaves where it is. Whatever one accelerator of an orbit does, the others do in their place.

Elements are numbered by their exponents in mixed radix; the exponent of the last generator counts least. Element 0
is the identity. This file trusts the generators. :mod:`stretto.verify.symmetric` does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Int32, Int64
from .topology import Topology


@dataclass(frozen=True, eq=False)
class Symmetry:
    """A commutative group of permutations of a network's nodes.

    Attributes:
        topology: the network.
        generators: int32[generators, nodes], the image of every node under each generator.
        orders: int64[generators], after how many times each generator has mapped every node to itself.
    """

    topology: Topology
    generators: Int32
    orders: Int64

    def __repr__(self) -> str:
        return f"<Symmetry of {self.topology.name}: {self.size} elements, orders {self.orders.tolist()}>"

    @cached_property
    def size(self) -> int:
        """How many elements the group has."""
        return int(np.prod(self.orders))

    @cached_property
    def strides(self) -> Int64:
        """int64[generators], by how much an element's number grows with the exponent of each generator."""
        ends: Int64 = np.cumprod(self.orders[::-1])[::-1]
        return np.append(ends[1:], 1).astype(np.int64)

    def exponents(self, elements: NDArray[Any]) -> Int64:
        """int64[..., generators], the exponents of elements by their numbers."""
        digits: Int64 = np.asarray(elements, dtype=np.int64)[..., None] // self.strides % self.orders
        return digits

    def element(self, exponents: NDArray[Any]) -> Int64:
        """int64[...], the numbers of elements by their exponents, [..., generators], of any size and sign."""
        number: Int64 = (np.asarray(exponents) % self.orders * self.strides).sum(axis=-1)
        return number

    def product(self, a: NDArray[Any], b: NDArray[Any]) -> Int64:
        """int64[...], the number of the element that does both, for arrays of elements."""
        return self.element(self.exponents(a) + self.exponents(b))

    def inverse(self, elements: NDArray[Any]) -> Int64:
        """int64[...], the number of the element that undoes each."""
        return self.element(-self.exponents(elements))

    def image(self, elements: NDArray[Any], nodes: NDArray[Any]) -> Int32:
        """int32[...], where each element maps each node; arrays of shapes that broadcast."""
        elements, nodes = np.broadcast_arrays(elements, nodes)
        out = nodes.astype(np.int32)
        for powers, digit in zip(self._powers, np.moveaxis(self.exponents(elements), -1, 0), strict=True):
            for bit, power in enumerate(powers):
                out = np.where(digit >> bit & 1, power[out], out)
        return out

    def image_of_links(self, elements: NDArray[Any], links: NDArray[Any]) -> Int32:
        """int32[...], where each element maps each link; arrays of shapes that broadcast."""
        return self.links_between(
            self.image(elements, self.topology.src[links]), self.image(elements, self.topology.dst[links])
        )

    def links_between(self, src: NDArray[Any], dst: NDArray[Any]) -> Int32:
        """int32[...], the link that leads from each node to the other, -1 where there is none."""
        keys, links = self._by_ends
        key = np.asarray(src, dtype=np.int64) * self.topology.node_count + dst
        at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        return np.where(keys[at] == key, links[at], -1).astype(np.int32)

    @cached_property
    def node_orbits(self) -> Int32:
        """int32[nodes], for each node the first node of its orbit."""
        return _orbits(self.generators, self.orders)

    @cached_property
    def link_orbits(self) -> Int32:
        """int32[links], for each link the first link of its orbit."""
        t = self.topology
        images = self.links_between(self.generators[:, t.src], self.generators[:, t.dst])
        return _orbits(images, self.orders)

    @cached_property
    def copies(self) -> Int64:
        """int64[links], how many elements map a link to itself. A link of its orbit carries this number of images of a
        hop at the same time."""
        sizes = np.bincount(self.link_orbits, minlength=self.topology.link_count)
        return self.size // sizes[self.link_orbits]

    @cached_property
    def place(self) -> Int64:
        """int64[nodes], for each node of an orbit that has a node for each element the element that maps the orbit's
        first node to it; -1 for all other nodes."""
        out = np.full(self.topology.node_count, -1, dtype=np.int64)
        every = np.arange(self.size)
        for first in np.flatnonzero(np.bincount(self.node_orbits) == self.size):
            out[self.image(every, np.array(first))] = every
        return out

    @cached_property
    def _powers(self) -> list[list[Int32]]:
        """For each generator its powers 1, 2, 4, ... as permutations, up to its order."""
        out = []
        for generator, order in zip(self.generators, self.orders.tolist(), strict=True):
            powers = [generator]
            while 1 << len(powers) < order:
                powers.append(powers[-1][powers[-1]])
            out.append(powers)
        return out

    @cached_property
    def _by_ends(self) -> tuple[Int64, Int64]:
        """The key of every link's end nodes, ascending, and the links in that order."""
        t = self.topology
        key = t.src.astype(np.int64) * t.node_count + t.dst
        order = np.argsort(key)
        return key[order], order


def _orbits(permutations: Int32, orders: Int64) -> Int32:
    """int32[things], the least thing to which the group of commuting ``permutations`` maps each thing."""
    least = np.arange(permutations.shape[1], dtype=np.int32)
    for permutation, order in zip(permutations, orders.tolist(), strict=True):
        power, reached = permutation, 1
        while reached < order:
            least = np.minimum(least, least[power])
            power, reached = power[power], 2 * reached
    return least
