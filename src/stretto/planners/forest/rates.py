"""Whole numbers of trees: how much each root sends and how much of each link is for it.

The rates come from :mod:`stretto.bounds`: exactly where nodes that are no ranks get as much as they send, else from
a linear program that evens them out. Numbers with a small common measure stay exact; others are counted in parts of
the widest link, a little less than they are, so that trees still exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

from ...bounds import bottleneck, tree_rates
from ...bounds.exact import Arcs, near_first
from ...kernels import at_speed
from ...kernels import maxflow as maxflow_kernel
from ...model.collective import make_collective
from ...model.errors import Unsupported
from ...model.topology import Topology

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

LARGEST_MEASURE = 1 << 14
"""Parts of a unit in which numbers are still counted exactly."""

PARTS, NARROWEST, MOST_PARTS = 1 << 16, 1 << 12, 1 << 46
"""Parts of the widest link otherwise; more, up to so many, where the narrowest of those that carry anything had fewer
than ``NARROWEST``."""


@dataclass(frozen=True)
class Counted:
    """Trees to be packed.

    Attributes:
        capacity: int64[links].
        roots: trees from each root.
        rate: bytes/s that one tree stands for.
    """

    capacity: Int64
    roots: dict[int, int]
    rate: float


def spreading(topology: Topology, ranks: NDArray[np.int32], shares: Float64) -> Counted:
    """The best trees by which roots spread data in these shares, every rank wanting all."""
    balanced = _imbalance(topology, topology.bandwidth, ranks) <= 1e-9 * topology.bandwidth.max()
    if balanced:
        total = _rate(topology, ranks, shares)
        return counted(topology, ranks, topology.bandwidth, total * shares / shares.sum())
    rates = tree_rates(topology, ranks, shares)
    return counted(topology, ranks, rates.copies, rates.root)


def _rate(topology: Topology, ranks: NDArray[np.int32], shares: Float64) -> float:
    """Bytes/s of the whole, by the bottleneck cut."""
    size = 1 << 40
    root = np.flatnonzero(shares)
    if len(root) == 1:
        cut = bottleneck(
            topology, make_collective("broadcast", topology, size, ranks=ranks.tolist(), root=int(root[0]))
        )
    else:
        cut = bottleneck(topology, make_collective("allgather", topology, size * len(ranks), ranks=ranks.tolist()))
        size *= len(ranks)
    assert cut is not None
    return float(size / cut.seconds)


def _imbalance(topology: Topology, part: Float64, ranks: NDArray[np.int32]) -> float:
    passes = np.setdiff1d(np.arange(topology.node_count), ranks)
    got = np.bincount(topology.dst, part, topology.node_count) - np.bincount(topology.src, part, topology.node_count)
    return float(np.abs(got[passes]).max(initial=0.0))


def counted(topology: Topology, ranks: NDArray[np.int32], part: Float64, root: Float64) -> Counted:
    """Rates as whole numbers of trees that exist."""
    unit = float(topology.bandwidth.max())
    scaled = np.concatenate((part, root)) / unit
    near = [Fraction(v).limit_denominator(LARGEST_MEASURE) for v in scaled.tolist()]
    measure = lcm(*(f.denominator for f in near))
    exact = measure <= LARGEST_MEASURE and max(abs(float(f) - v) for f, v in zip(near, scaled, strict=True)) < 1e-7
    if exact:
        numbers = np.array([int(f * measure) for f in near], dtype=np.int64)
        common = max(int(np.gcd.reduce(numbers)), 1)
        found = Counted(
            numbers[: len(part)] // common, _by_rank(ranks, numbers[len(part) :] // common), unit * common / measure
        )
        if _exist(topology, ranks, found):
            return found
    parts = max(PARTS, min(int(NARROWEST * unit / topology.bandwidth[part > 0].min()), MOST_PARTS))
    capacity = np.floor(part / unit * parts + 1e-6).astype(np.int64)
    _even_out(topology, ranks, capacity)
    loss = 1 / parts
    while loss < 1:
        amounts = np.floor(root / unit * parts * (1 - loss)).astype(np.int64)
        found = Counted(capacity, _by_rank(ranks, amounts), unit / parts)
        if _exist(topology, ranks, found):
            return found
        loss *= 2
    raise Unsupported(f"forest finds no whole numbers of trees on {topology.name}")


def _by_rank(ranks: NDArray[np.int32], amounts: Int64) -> dict[int, int]:
    return {int(v): int(a) for v, a in zip(ranks, amounts, strict=True)}


def _even_out(topology: Topology, ranks: NDArray[np.int32], capacity: Int64) -> None:
    """Lower capacities, in place, until every node that is no rank gets as much as it sends.

    What a node gets too much is taken back on the way from a rank or from a node that sends too much; then what is
    sent too much, on the way to a rank.
    """
    surplus = np.zeros(topology.node_count, dtype=np.int64)
    np.add.at(surplus, topology.dst, capacity)
    np.subtract.at(surplus, topology.src, capacity)
    surplus[ranks] = 0
    ends = np.zeros(topology.node_count, dtype=np.bool_)
    ends[ranks] = True
    for sign, into, out in ((1, topology.src, topology.dst), (-1, topology.dst, topology.src)):
        for w in np.flatnonzero(sign * surplus > 0).tolist():
            while surplus[w]:
                way = _way_back(into, out, capacity, w, ends | (sign * surplus < 0))
                end = int(into[way[-1]])
                most = min(sign * int(surplus[w]), int(capacity[way].min()))
                less = most if ends[end] else min(most, -sign * int(surplus[end]))
                capacity[way] -= less
                surplus[w] -= sign * less
                surplus[end] += 0 if ends[end] else sign * less


def _way_back(
    into: NDArray[np.int32], out: NDArray[np.int32], capacity: Int64, node: int, ends: NDArray[np.bool_]
) -> list[int]:
    """The links of a shortest way with some capacity, from the last to the first, to a node by one of the ends."""
    ways: dict[int, list[int]] = {node: []}
    queue = [node]
    for v in queue:
        for link in np.flatnonzero((out == v) & (capacity > 0)).tolist():
            u = int(into[link])
            if u not in ways:
                ways[u] = [*ways[v], link]
                queue.append(u)
                if ends[u]:
                    return ways[u]
    raise AssertionError("what comes in came from somewhere")


def _exist(topology: Topology, ranks: NDArray[np.int32], trees: Counted) -> bool:
    """Edmonds' condition: into every set that has a rank as much can flow as the roots outside send."""
    nodes = topology.node_count
    held = np.array([trees.roots[int(v)] for v in ranks], dtype=np.int64)
    need = int(held.sum())
    tails = np.concatenate((topology.dst, ranks))
    arcs = Arcs.of(tails, np.concatenate((topology.src, np.full(len(ranks), nodes))), nodes + 1)
    kernel_steps = 20.0 * len(ranks) * len(tails)
    capacity = arcs.capacities(np.concatenate((trees.capacity, held)))
    sinks = near_first(topology, ranks.astype(np.int64))
    at, _, _ = at_speed(maxflow_kernel.first_violated, kernel_steps)(
        arcs.offsets, arcs.to, arcs.pair, capacity, sinks, 0, nodes, need, np.int64(need)
    )
    return need > 0 and int(at) == len(sinks)
