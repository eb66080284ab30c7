"""Switch removal: a network of ranks alone in which trees reach the same rates, and the way back.

At a switch w an edge (u, w) and an edge (w, t) can be split off together: both lose an amount and (u, t) gains it,
as a path through w. Where what enters w equals what leaves it, this can go on until nothing is left of w without
narrowing any cut that matters (Mader 1978; Bang-Jensen, Frank and Jackson 1995; for AllGather Zhao et al.,
"ForestColl"). How much may be split off is found by min-cuts: all of it is tried, and a cut that has become too
narrow by d says that d less is possible, since no cut loses more than the amount.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from ...model.arrays import Int32, Int64
from ...model.errors import Unsupported
from ...model.topology import Topology
from .forest import aligned
from .rates import TreeCheck, TreeCounts

Route = tuple[int, ...]
"""Links in the order in which bytes take them."""


@dataclass
class RankNetwork:
    """A network of ranks alone (once every other node is split off)."""

    topology: Topology
    # for an edge (u, t) the paths that make it up, each with its amount
    paths: dict[tuple[int, int], deque[tuple[int, Route]]]

    def capacity(self, edge: tuple[int, int]) -> int:
        """The amount that an edge has left."""
        return sum(amount for amount, _ in self.paths.get(edge, ()))

    def take(self, edge: tuple[int, int], amount: int) -> list[tuple[int, Route]]:
        """Remove an amount from an edge: paths that add up to it, a single one if any is wide enough."""
        paths = self.paths[edge]
        single = next((p for p in paths if p[0] == amount), None) or next((p for p in paths if p[0] > amount), None)
        if single is not None:
            paths.remove(single)
            if single[0] > amount:
                paths.append((single[0] - amount, single[1]))
            return [(amount, single[1])]
        taken = []
        while amount:
            width, path = paths.popleft()
            used = min(width, amount)
            if width > used:
                paths.appendleft((width - used, path))
            taken.append((used, path))
            amount -= used
        return taken

    def give(self, edge: tuple[int, int], amount: int, path: Route) -> None:
        """Add a path to an edge."""
        self.paths.setdefault(edge, deque()).append((amount, self._straight(path)))

    def _straight(self, path: Route) -> Route:
        """The path without loops that lead back to a node that it has passed."""
        src, dst = self.topology.src, self.topology.dst
        ahead = {int(src[link]): link for link in path}  # the link by which each node is left for the last time
        end, node = int(dst[path[-1]]), int(src[path[0]])
        links = []
        while node != end:
            links.append(ahead[node])
            node = int(dst[ahead[node]])
        return tuple(links)


def without_switches(topology: Topology, ranks: Int32, trees: TreeCounts) -> RankNetwork:
    """Split off every node that is not a rank.

    Args:
        trees: which exist in the topology; at a node that is not a rank their capacities let as much enter as leave.
    """
    network = RankNetwork(topology, {})
    for link in np.flatnonzero(trees.capacity).tolist():
        network.give((int(topology.src[link]), int(topology.dst[link])), int(trees.capacity[link]), (link,))
    for w in np.setdiff1d(np.arange(topology.node_count), ranks).tolist():
        _remove(network, w, ranks, trees.roots)
    return network


def _remove(network: RankNetwork, w: int, ranks: Int32, roots: Int64) -> None:
    """Split off node w."""
    into = sorted(u for u, t in network.paths if t == w and network.capacity((u, w)))
    out = sorted(t for u, t in network.paths if u == w and network.capacity((w, t)))
    nodes = network.topology.node_count
    turns = [(u, t) for u in into for t in sorted(out, key=lambda t: (t - u) % nodes) if u != t]
    edges = sorted({edge for edge in network.paths if network.capacity(edge)}.union(turns))
    tail, head = np.array(edges).T
    capacity = np.array([network.capacity(edge) for edge in edges])
    check = TreeCheck(tail, head, capacity, ranks, roots, nodes)
    arc = dict(zip(edges, check.arcs.forward.tolist(), strict=False))
    # pairs that lead back where they came from come last: they carry nothing
    for u, t in [*turns, *((u, u) for u in into if u in out)]:
        amount = min(network.capacity((u, w)), network.capacity((w, t)))
        change = np.zeros_like(check.capacity)
        change[[arc[u, w], arc[w, t]]] = -1
        if u != t:
            change[arc[u, t]] = 1
        while amount > 0 and (lacking := check.lacking(check.capacity + amount * change, len(turns))):
            amount -= lacking
        check.capacity += max(amount, 0) * change
        if amount <= 0:
            continue
        first, second = network.take((u, w), amount), network.take((w, t), amount)
        for part, (into_w, out_of_w) in aligned(first, second) if u != t else ():
            network.give((u, t), part, into_w + out_of_w)
    if any(network.capacity((u, w)) for u in into) or any(network.capacity((w, t)) for t in out):
        raise Unsupported("a switch that gets more or less than it sends cannot be split off")
    for edge in [edge for edge in network.paths if w in edge]:
        del network.paths[edge]
