"""Ranks that are joined to few neighbours: where all ranks look alike, and in products of graphs."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...model.arrays import Int32, Int64, Ragged
from ...model.topology import Topology
from ...schedule.gossip import Direction, Line
from ...schedule.products import Product, product_of
from ...schedule.ways import ways_of
from ...symmetry import find_symmetry

MOST_DIRECTIONS = 32
"""Directions in which a rank has neighbours, at most."""

MOST_IN_PRODUCT = 128
"""Ranks and relays up to which a product of graphs is looked for."""


class Neighbours(NamedTuple):
    """Ranks as the cells of a grid.

    Attributes:
        shape: the cells in each dimension.
        rank: int64[cells], the number of the rank at each cell, the last dimension fastest.
        directions: where every rank is joined to another one.
    """

    shape: tuple[int, ...]
    rank: Int64
    directions: list[Direction]


def neighbours(topology: Topology, ranks: Int32) -> Neighbours | None:
    """The neighbours of ranks, if the network looks alike from each of them and these are few; else None."""
    return _neighbours(topology, ranks.tobytes())


@lru_cache(4)
def _neighbours(topology: Topology, nodes: bytes) -> Neighbours | None:
    ranks = np.frombuffer(nodes, dtype=np.int32)
    others = np.zeros(topology.node_count, dtype=np.int64)
    others[ranks] = 1
    symmetry = find_symmetry(topology, others)
    if symmetry is None or symmetry.size != len(ranks):
        return None
    at = symmetry.image(np.arange(symmetry.size), ranks[0])
    order = np.argsort(ranks)
    rank = order[np.searchsorted(ranks[order], at).clip(max=len(ranks) - 1)]
    if not np.array_equal(ranks[rank], at):
        return None
    routes = ways_of(topology).between(np.stack((np.repeat(at[:1], len(at) - 1), at[1:]), axis=1))
    joined = [(element, np.array(way)) for element, way in enumerate(routes, start=1) if way]
    if not 0 < len(joined) <= MOST_DIRECTIONS:
        return None
    ports = {int(port): k for k, port in enumerate(np.unique([symmetry.link_orbits[way[0]] for _, way in joined]))}
    directions = [
        Direction(
            tuple(symmetry.exponents(np.array(element)).tolist()),
            Line(
                float(topology.latency_s[way].sum()),
                float(topology.message_s[way].max()),
                float(1 / topology.bandwidth[way].min()),
                ports[int(symmetry.link_orbits[way[0]])],
            ),
        )
        for element, way in joined
    ]
    return Neighbours(tuple(symmetry.orders.tolist()), rank, directions)


def product_among(topology: Topology, ranks: Int32) -> Product | None:
    """The product of graphs that joins the ranks; None if they are joined otherwise, or many."""
    return _product(topology, ranks.tobytes())


def lines_of(topology: Topology, product: Product, nodes: Int32) -> tuple[list[Line], bool]:
    """What a message between neighbours takes along each dimension of a product, at most, and whether that is alike for
    all neighbours along each."""
    lines, are_alike = [], True
    for axis, far in enumerate(product.far):
        place, beside = product.place[axis], np.delete(product.place, axis, axis=0)
        alike = (beside[:, :, None] == beside[:, None, :]).all(axis=0)
        pairs = np.argwhere(alike & (far[place[:, None], place] == 1))
        link = Ragged.of(ways_of(topology).between(nodes[pairs])).values
        costs = np.stack((topology.latency_s[link], topology.message_s[link], 1 / topology.bandwidth[link]))
        are_alike &= bool((costs == costs[:, :1]).all())
        latency_s, message_s, s_per_byte = costs.max(axis=1).tolist()
        lines.append(Line(latency_s, message_s, s_per_byte, axis))
    return lines, are_alike


@lru_cache(4)
def _product(topology: Topology, nodes: bytes) -> Product | None:
    ranks = np.frombuffer(nodes, dtype=np.int32)
    if len(ranks) > MOST_IN_PRODUCT:
        return None
    ways, nodes = ways_of(topology), ranks.tolist()
    joined = np.array([[ways.join(a, b) for b in nodes] for a in nodes])
    np.fill_diagonal(joined, False)
    return product_of(joined)
