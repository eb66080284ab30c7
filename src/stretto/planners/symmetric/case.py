"""A request as the planner by symmetry sees it: with the symmetry of its network, or why that does not serve."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...model.arrays import Bool, Int32
from ...model.collective import Collective, Workload
from ...model.symmetry import Symmetry
from ...model.topology import Topology
from ...symmetry import find_symmetry
from .chains import Digits
from .several import Several, several


class Case(NamedTuple):
    """A request as the planner sees it.

    Attributes:
        at: int32[elements], the rank to which each element maps the first rank of the first collective.
        digits: the generators that map each collective to itself.
        members: bool[elements], which ranks are of the first collective.
    """

    symmetry: Symmetry
    workload: Workload
    at: Int32
    digits: Digits
    members: Bool

    @property
    def first(self) -> Collective:
        return self.workload.collectives[0]


def case_of(topology: Topology, workload: Workload) -> Case | Several | str:
    """The request, or why the planner does not serve it."""
    if topology.planes or topology.changes:
        return "it plans over links whose bandwidths do not change"
    first = workload.collectives[0]
    alike = {(c.kind, c.size_bytes, len(c.ranks), c.start_s, c.weight) for c in workload.collectives}
    if len(alike) > 1:
        return "its collectives differ in kind, size, start or weight"
    ranks = np.concatenate([c.ranks for c in workload.collectives])
    if len(np.unique(ranks)) < len(ranks):
        return "a node is a rank of two collectives"
    roots = np.array([c.ranks[c.root] for c in workload.collectives if c.traits.rooted], dtype=np.int32)
    collective = np.full(topology.node_count, -1, dtype=np.int64)
    for number, c in enumerate(workload.collectives):
        collective[c.ranks] = number
    # a buffer that one rank has, or gets, can be dealt out to some ranks, and nothing is asked of the others
    partly = first.traits.whole and first.traits.rooted
    symmetry = _found(topology, collective.tobytes(), roots.tobytes(), partly)
    if symmetry is None:
        return "no symmetry was found that maps ranks to ranks"
    if symmetry.size != len(ranks) or (symmetry.place[ranks] < 0).any():
        return several(symmetry, workload)
    at = symmetry.image(np.arange(symmetry.size), first.ranks[0])
    digits = tuple(k for k, g in enumerate(symmetry.generators) if (collective[g[ranks]] == collective[ranks]).all())
    if np.prod(symmetry.orders[list(digits)]) != len(first.ranks):
        return "its symmetry does not map collectives to collectives"
    outside = np.delete(symmetry.exponents(np.arange(symmetry.size)), digits, axis=1)
    return Case(symmetry, workload, at, digits, np.equal(outside.any(axis=1), False))


@lru_cache(maxsize=4)
def _found(topology: Topology, collectives: bytes, roots: bytes, partly: bool) -> Symmetry | None:
    """The symmetry of a network that maps ranks to ranks, roots to roots, and collectives to collectives.

    Args:
        collectives: int64[nodes], the collective of each node, -1 for nodes without a rank.
        roots: int32[roots].
        partly: see :func:`~stretto.symmetry.find_symmetry`.
    """
    collective = np.frombuffer(collectives, dtype=np.int64)
    colours = (collective >= 0).astype(np.int64)
    colours[np.frombuffer(roots, dtype=np.int32)] = 2
    groups = collective if collective.max() > 0 else None
    return find_symmetry(topology, colours, collective >= 0, groups, partly=partly)
