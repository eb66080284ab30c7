"""Ways between nodes without accelerators in between, for plans whose transfers are given by their ends."""

from __future__ import annotations

from functools import lru_cache

from ..model.arrays import Int32, Int64
from ..model.topology import Topology
from .branching import branching
from .routes import Routes, routes_from


class Ways:
    """The links from one node to another: that which joins them, or the quickest route through switches and routers."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._direct = {
            ends: i for i, ends in enumerate(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))
        }
        self._from: dict[int, Routes] = {}
        self._found: dict[tuple[int, int], list[int]] = {}

    def between(self, pairs: Int32 | Int64) -> list[list[int]]:
        """For each pair (src, dst) the links, [] if none."""
        return [self.one(a, b) for a, b in pairs.tolist()]

    def one(self, a: int, b: int) -> list[int]:
        """The links from one node to another, [] if none."""
        if (a, b) not in self._found:
            self._found[a, b] = self._links(a, b)
        return self._found[a, b]

    def to_all(self, node: int, others: tuple[int, ...]) -> list[list[int]]:
        """From a node to several others: the links of one way that branches, or of a way to each of them."""
        ways = [self._links(node, other) for other in others]
        branches = branching(self._topology, ways)
        return ways if branches is None else [branches]

    def _links(self, a: int, b: int) -> list[int]:
        if (a, b) in self._direct:
            return [self._direct[a, b]]
        if a not in self._from:
            self._from[a] = routes_from(self._topology, a, metric="latency")
        return self._from[a].links_to(b)


@lru_cache(1)
def ways_of(topology: Topology) -> Ways:
    """The ways of a network: those that are found to say whether a request is served are there for its plan."""
    return Ways(topology)
