"""Exchanges in networks that are products of small graphs: meshes, tori, clusters on rails.

In a Cartesian product of graphs a node is a cell of a grid, and its neighbours differ from it in one coordinate, by an
edge of that dimension's graph: of a path in a mesh, of a cycle in a torus, of a complete graph where a switch joins
all. Which edges belong to which dimension follows from distances alone (Feder, Product graph representations, Journal
of Graph Theory 1992): two edges belong to the same one if they are in the relation of Djoković and Winkler, or if they
meet in a node that is the only one between their other ends.

An AllToAll goes along one dimension after the other, from neighbour to neighbour, all that goes the same way in one
message; so do other collectives (:mod:`.spreading`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from ..model.arrays import Bool, Float64, Int64
from ..model.plan import COPY
from .algorithms import Step
from .gossip import candidate
from .graphs import hops_between, parts_of
from .job_loads import Candidate

MOST_EDGES = 1500
"""Edges of a network that is looked at, at most: each two are compared."""


class Product(NamedTuple):
    """A network as a product.

    Attributes:
        shape: the nodes of each dimension's graph.
        place: int64[dimensions, nodes], the coordinates of each node.
        following: for each dimension int64[2, from, to], the next coordinate on a shortest way; the second one takes
            another way where two are as short.
        far: for each dimension int64[from, to], the hops of that way.
        hops: from all nodes to all others, added up.
    """

    shape: tuple[int, ...]
    place: Int64
    following: list[Int64]
    far: list[Int64]
    hops: int

    @property
    def node(self) -> Int64:
        """int64[shape], the node at all coordinates."""
        node = np.empty(self.shape, dtype=np.int64)
        node[tuple(self.place)] = np.arange(self.place.shape[1])
        return node

    @property
    def several(self) -> bool:
        """Whether two ways are as short anywhere."""
        return any((both[0] != both[1]).any() for both in self.following)


def product_of(joined: Bool) -> Product | None:
    """The product that a network is; None if it is none and no path or cycle either, not connected, or too large.

    Args:
        joined: bool[nodes, nodes], whether there is an edge.
    """
    joined = joined & joined.T
    ends = np.argwhere(np.triu(joined, 1))
    if not 0 < len(ends) <= MOST_EDGES:
        return None
    far = hops_between(joined)
    if np.isinf(far).any():
        return None
    dimension, place = _dimensions(joined, ends, far), []
    if not dimension.any() and joined.sum(axis=0).max() > 2:
        return None
    for d in range(dimension.max() + 1):
        place.append(parts_of(len(joined), *ends[dimension != d].T))
    places = np.array(place, dtype=np.int64)
    shape = tuple((places.max(axis=1) + 1).tolist())
    if np.prod(shape) != len(joined) or len(np.unique(places, axis=1).T) != len(joined):
        return None
    following, far_along = [], []
    for d, count in enumerate(shape):
        graph = np.zeros((count, count), dtype=np.bool_)
        a, b = places[d, ends[dimension == d]].T
        graph[a, b] = graph[b, a] = True
        following.append(_next(graph))
        far_along.append(hops_between(graph).astype(np.int64))
    return Product(shape, places, following, far_along, int(far.sum()))


def _dimensions(joined: Bool, ends: Int64, far: Float64) -> Int64:
    """int64[edges], the number of the dimension of each."""
    (u, v), between = ends.T, joined.astype(np.int64) @ joined
    apart = far[np.ix_(u, u)] + far[np.ix_(v, v)] != far[np.ix_(u, v)] + far[np.ix_(v, u)]
    lone = (between == 1) & ~joined
    for mine, other in ((u, v), (v, u)):
        for theirs, end in ((u, v), (v, u)):
            apart |= (mine[:, None] == theirs) & lone[np.ix_(other, end)]
    return parts_of(len(ends), *np.nonzero(np.triu(apart | apart.T, 1)))


def _next(graph: Bool) -> Int64:
    """int64[2, from, to], the next node on a shortest way: the first one round the graph, and the last one."""
    order = _round(graph)
    far = hops_between(graph)
    turn = np.argsort(order)
    # how far on round the graph each neighbour is
    on = (turn[None, :] - turn[:, None]) % len(graph)
    nearer = graph[:, :, None] & (far[None, :, :] == far[:, None, :] - 1)
    first = np.where(nearer, on[:, :, None], len(graph)).argmin(axis=1)
    last = np.where(nearer, on[:, :, None], -1).argmax(axis=1)
    return np.stack((first, last))


def _round(graph: Bool) -> Int64:
    """int64[nodes], the nodes in an order in which neighbours follow each other, as far as that goes."""
    order, left = [int(graph.sum(axis=0).argmin())], np.ones(len(graph), dtype=np.bool_)
    left[order[0]] = False
    while left.any():
        further = graph[order[-1]] & left
        order.append(int(np.flatnonzero(further if further.any() else left)[0]))
        left[order[-1]] = False
    return np.array(order)


def exchanges_in_turn(product: Product, block_bytes: float, most: float) -> Iterator[Candidate]:
    """AllToAlls along one dimension after the other.

    A part of each block begins with each dimension, so that the links of all dimensions are busy; half of each part
    goes another way round where two are as short.

    Args:
        most: blocks that may be sent in all, over all steps.
    """
    axes = range(len(product.shape))
    chains = [(*axes[first:], *axes[:first]) for first in axes]
    for others in ((0,), (0, 1)) if product.several else ((0,),):
        parts = len(chains) * len(others)
        if parts > block_bytes or parts * product.hops > most:
            return
        found = [_in_turn(product, chain, other) for chain in chains for other in others]
        steps = [
            step._replace(block=step.block * parts + part)
            for together in zip_longest(*found)
            for part, step in enumerate(together)
            if step is not None
        ]
        summary = f"from neighbour to neighbour, one dimension after the other, in {parts} orders"
        yield candidate("alltoall", steps, parts, summary)


def _in_turn(product: Product, chain: tuple[int, ...], other: int) -> list[Step]:
    """The steps along one dimension after the other; in each all blocks go on that are not yet where they should be."""
    node = product.node
    origin, goal = np.divmod(np.arange(node.size**2), node.size)
    here, steps = product.place[:, origin], []
    for axis in chain:
        to = product.place[axis, goal]
        while len(moved := np.flatnonzero(here[axis] != to)):
            src = node[tuple(here[:, moved])]
            here[axis, moved] = product.following[axis][other][here[axis, moved], to[moved]]
            steps.append(Step(moved, src, node[tuple(here[:, moved])], COPY))
    return steps
