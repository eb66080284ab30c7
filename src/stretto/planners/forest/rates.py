"""Whole numbers of trees: how many each root has, and how many each link can carry.

The rates come from :mod:`stretto.bounds`: exactly where every node that is not a rank gets as much as it sends, else
from a linear program that evens them out. Rates with a small common measure stay exact; others are rounded down to
units of the widest link, so that trees still exist.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...bounds import bottleneck, tree_rates_within
from ...bounds.exact import Arcs, near_first
from ...model.arrays import Bool, Float64, Int32, Int64, Ragged
from ...model.collective import Collective
from ...model.errors import Unsupported
from ...model.topology import Topology

MOST_EXACT_UNITS = 1 << 14
"""Units of the widest link up to which rates are counted exactly, if they have such a common measure."""

UNITS = 1 << 16
"""Units of the widest link in which other rates are counted,"""

FEWEST_UNITS_A_LINK = 1 << 12
"""but enough that the narrowest link has at least this many,"""

MOST_UNITS = 1 << 46
"""and the widest link at most this many."""


@dataclass(frozen=True)
class TreeCounts:
    """Trees to be packed."""

    capacity: Int64  # int64[links], trees that each link can carry
    roots: Int64  # int64[ranks], how many trees each rank is root of
    rate: float  # bytes/s that one tree stands for


def spreading(topology: Topology, ranks: Int32, shares: Float64, steps: float = math.inf) -> TreeCounts:
    """The most trees by which roots spread data in these shares to every rank.

    Raises:
        Unsupported: the rates take more steps, see :func:`stretto.bounds.tree_rates_within`.
    """
    into, out = (np.bincount(ends, topology.bandwidth, topology.node_count) for ends in (topology.dst, topology.src))
    kept = into - out
    kept[ranks] = 0.0
    if np.abs(kept).max() <= 1e-9 * topology.bandwidth.max():
        total = _bottleneck_rate(topology, ranks, shares)
        return whole_counts(topology, ranks, topology.bandwidth, total * shares / shares.sum())
    rates = tree_rates_within(steps, topology, ranks, shares)
    if rates is None:
        raise Unsupported(f"forest does not serve {topology.name} at this effort: the rates of its trees take too long")
    return whole_counts(topology, ranks, rates.copies, rates.root)


def _bottleneck_rate(topology: Topology, ranks: Int32, shares: Float64) -> float:
    """Bytes/s of all roots together, by the bottleneck cut."""
    roots, count = np.flatnonzero(shares), len(ranks)
    size = np.rint(shares[roots] / shares[roots].mean() * (1 << 40)).astype(np.int64)
    every = Ragged.from_lengths(np.full(len(roots), count), np.tile(np.arange(count), len(roots)))
    whole = int(size.sum())
    cut = bottleneck(topology, Collective.uncut("remainder", ranks, whole, size, Ragged.single(roots), every))
    assert cut is not None
    return float(whole / cut.seconds)


def whole_counts(topology: Topology, ranks: Int32, link_rate: Float64, root_rate: Float64) -> TreeCounts:
    """Rates as whole numbers of trees that exist.

    Args:
        link_rate, root_rate: float64[links], float64[ranks], bytes/s that links carry and that roots send.
    Raises:
        Unsupported: no numbers are found for which trees exist.
    """
    widest = float(topology.bandwidth.max())
    scaled = np.concatenate((link_rate, root_rate)) / widest
    near = [Fraction(v).limit_denominator(MOST_EXACT_UNITS) for v in scaled.tolist()]
    units = lcm(*(f.denominator for f in near))
    exact = units <= MOST_EXACT_UNITS and max(abs(float(f) - v) for f, v in zip(near, scaled, strict=True)) < 1e-7
    if exact:
        numbers = np.array([int(f * units) for f in near], dtype=np.int64)
        common = max(int(np.gcd.reduce(numbers)), 1)
        capacity, roots = np.split(numbers // common, [len(link_rate)])
        trees = TreeCounts(capacity, roots, widest * common / units)
        if _exist(topology, ranks, trees):
            return trees
    units = max(UNITS, min(int(FEWEST_UNITS_A_LINK * widest / topology.bandwidth[link_rate > 0].min()), MOST_UNITS))
    capacity = np.floor(link_rate / widest * units + 1e-6).astype(np.int64)
    _even_out(topology, ranks, capacity)
    loss = 1 / units
    while loss < 1:
        roots = np.floor(root_rate / widest * units * (1 - loss)).astype(np.int64)
        trees = TreeCounts(capacity, roots, widest / units)
        if _exist(topology, ranks, trees):
            return trees
        loss *= 2
    raise Unsupported(f"forest finds no whole numbers of trees on {topology.name}")


def _even_out(topology: Topology, ranks: Int32, capacity: Int64) -> None:
    """Lower capacities, in place, until every node that is not a rank gets as much as it sends.

    A node's surplus is taken back along a path from a rank or from a node that sends more than it gets; then what
    nodes still send too much is taken away along a path to a rank.
    """
    surplus = np.zeros(topology.node_count, dtype=np.int64)
    np.add.at(surplus, topology.dst, capacity)
    np.subtract.at(surplus, topology.src, capacity)
    surplus[ranks] = 0
    is_rank = np.zeros(topology.node_count, dtype=np.bool_)
    is_rank[ranks] = True
    for sign, near, far in ((1, topology.src, topology.dst), (-1, topology.dst, topology.src)):
        for w in np.flatnonzero(sign * surplus > 0).tolist():
            while surplus[w]:
                path = _path_with_capacity(near, far, capacity, w, is_rank | (sign * surplus < 0))
                end = int(near[path[-1]])
                most = min(sign * int(surplus[w]), int(capacity[path].min()))
                amount = most if is_rank[end] else min(most, -sign * int(surplus[end]))
                capacity[path] -= amount
                surplus[w] -= sign * amount
                surplus[end] += 0 if is_rank[end] else sign * amount


def _path_with_capacity(near: Int32, far: Int32, capacity: Int64, node: int, goals: Bool) -> list[int]:
    """The links of a shortest path with capacity between a node and the nearest goal, from the node on.

    Args:
        near, far: int32[links], the end of each link on the goal's side, and the one on the node's side.
    """
    paths: dict[int, list[int]] = {node: []}
    queue = [node]
    for v in queue:
        for link in np.flatnonzero((far == v) & (capacity > 0)).tolist():
            u = int(near[link])
            if u not in paths:
                paths[u] = [*paths[v], link]
                queue.append(u)
                if goals[u]:
                    return paths[u]
    raise AssertionError("what a node gets came from a rank")


def _exist(topology: Topology, ranks: Int32, trees: TreeCounts) -> bool:
    check = TreeCheck(topology.src, topology.dst, trees.capacity, ranks, trees.roots, topology.node_count)
    check.sinks = near_first(topology, check.sinks)
    return check.need > 0 and not check.lacking(check.capacity)


class TreeCheck:
    """Edmonds' condition: every set of nodes with a rank in it can be entered by the trees of all roots outside.

    Max-flows lead from a rank backward over edges, and from each rank to a target by as many trees as it is root of.
    """

    def __init__(
        self, tail: NDArray[Any], head: NDArray[Any], capacity: Int64, ranks: Int32, roots: Int64, nodes: int
    ) -> None:
        to_target = np.full(len(ranks), nodes)
        self.arcs = Arcs.of(np.concatenate((head, ranks)), np.concatenate((tail, to_target)), nodes + 1)
        self.capacity = self.arcs.capacities(np.concatenate((capacity, roots)))
        self.sinks, self.target, self.need = ranks.astype(np.int64), nodes, int(roots.sum())
        self.work = 20.0 * len(ranks) * (len(tail) + len(ranks))

    def lacking(self, capacity: Int64, times: int = 1) -> int:
        """How many trees too few reach some rank; 0 if all trees exist.

        Args:
            capacity: int64[arcs].
            times: how often this is asked.
        """
        violated, _, flow = self.arcs.first_violated(
            capacity, self.sinks, 0, self.target, self.need, self.need, self.work * times
        )
        return 0 if violated == len(self.sinks) else self.need - flow
