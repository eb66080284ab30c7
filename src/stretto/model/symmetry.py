"""Symmetry of a network: permutations of its nodes that map every link to a link of the same kind.

A :class:`Symmetry` is a commutative group by its generators. An *orbit* is what the group maps to each other. An orbit
of accelerators has one accelerator for each element of the group, or it is a single accelerator that every element
leaves where it is; others are between, where nothing depends on them. Whatever one accelerator of an orbit does, the
others do in their place.

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
        number: Any = 0
        for digit, order, stride in zip(self._digits, self.orders.tolist(), self.strides.tolist(), strict=True):
            exponent = digit[a] + digit[b]
            number = number + (exponent - order * (exponent >= order)) * stride
        return np.asarray(number, dtype=np.int64)

    def inverse(self, elements: NDArray[Any]) -> Int64:
        """int64[...], the number of the element that undoes each."""
        return self.element(-self.exponents(elements))

    def image(self, elements: NDArray[Any], nodes: NDArray[Any]) -> Int32:
        """int32[...], where each element maps each node; arrays of shapes that broadcast."""
        elements, nodes = np.broadcast_arrays(elements, nodes)
        if "images_of_firsts" in self.__dict__ or elements.size >= self.size * len(self._moved):
            # what maps an orbit's first node to this one, and then the element
            both = self.product(elements, self.from_first[nodes])
            orbit = self._moved_orbit[nodes]
            images = self.images_of_firsts[orbit, both] if len(self._moved) else nodes
            return np.where(orbit >= 0, images, nodes).astype(np.int32, copy=False)
        return self._image_by_generators(elements, nodes)

    def _image_by_generators(self, elements: NDArray[Any], nodes: NDArray[Any]) -> Int32:
        """See :meth:`image`; for few nodes, for whom a table of all answers is not worth it."""
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
        free = np.bincount(self.node_orbits)[self.node_orbits] == self.size
        return np.where(free, self.from_first, -1)

    @cached_property
    def from_first(self) -> Int64:
        """int64[nodes], the least element that maps the first node of its orbit to each node."""
        out = np.zeros(self.topology.node_count, dtype=np.int64)
        elements = np.arange(self.size)[::-1]
        for images in self.images_of_firsts:
            out[images[::-1]] = elements  # of several elements that map to one node the last one here stays
        return out

    @cached_property
    def images_of_firsts(self) -> Int32:
        """int32[orbits, elements], where each element maps the first node of each orbit of several nodes."""
        images = self._moved[:, None]
        # the exponent of the last generator counts least
        for powers, order in zip(self._powers[::-1], self.orders[::-1].tolist(), strict=True):
            rows, before = images.shape
            out = np.empty((rows, order, before), dtype=np.int32)
            out[:, 0] = images
            reached = 1
            for power in powers:
                more = min(reached, order - reached)
                out[:, reached : reached + more] = power[out[:, :more]]
                reached += more
            images = out.reshape(rows, order * before)
        return images

    def elements_to(self, nodes: NDArray[Any], node: int) -> tuple[Int64, Int64]:
        """For every element that maps one of ``nodes`` to ``node`` the index of that one, and the element, in the order
        of both; int64 each."""
        at = np.flatnonzero(self.node_orbits[nodes] == self.node_orbits[node])
        one = self.product(self.from_first[node], self._to_first[nodes[at]])
        orbit = self._moved_orbit[node]
        stay = np.arange(self.size)  # the elements that leave the orbit's nodes where they are
        if orbit >= 0:
            stay = np.flatnonzero(self.images_of_firsts[orbit] == self.node_orbits[node])
        if len(stay) == 1:
            return at, one
        return np.repeat(at, len(stay)), np.sort(self.product(one[:, None], stay), axis=1).ravel()

    @cached_property
    def _to_first(self) -> Int64:
        """int64[nodes], an element that maps each node to the first one of its orbit."""
        return self.inverse(self.from_first)

    @cached_property
    def _moved(self) -> Int32:
        """int32[orbits], the first node of each orbit of several nodes."""
        return np.flatnonzero(np.bincount(self.node_orbits) > 1).astype(np.int32)

    @cached_property
    def _moved_orbit(self) -> Int64:
        """int64[nodes], the number of each node's orbit among those of several nodes; -1 for a node that stays."""
        number = np.full(self.topology.node_count, -1)
        number[self._moved] = np.arange(len(self._moved))
        orbit: Int64 = number[self.node_orbits]
        return orbit

    @cached_property
    def _digits(self) -> list[Int32]:
        """For each generator int32[elements], the exponent of each element."""
        return [np.ascontiguousarray(e, dtype=np.int32) for e in self.exponents(np.arange(self.size)).T]

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
