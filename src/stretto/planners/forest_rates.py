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

from .. import kernels
from ..bounds import bottleneck, tree_rates
from ..bounds.exact import Arcs, near_first
from ..collective import make_collective
from ..topology import Topology

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

LARGEST_MEASURE = 1 << 14
"""Parts of a unit in which numbers are still counted exactly."""

PARTS = 1 << 16
"""Parts of the widest link otherwise."""


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
        common = int(np.gcd.reduce(numbers))
        found = Counted(
            numbers[: len(part)] // common, _by_rank(ranks, numbers[len(part) :] // common), unit * common / measure
        )
        if _exist(topology, ranks, found):
            return found
    capacity = np.floor(part / unit * PARTS + 1e-6).astype(np.int64)
    _even_out(topology, ranks, capacity)
    loss = 1 / PARTS
    while True:
        amounts = np.floor(root / unit * PARTS * (1 - loss)).astype(np.int64)
        found = Counted(capacity, _by_rank(ranks, amounts), unit / PARTS)
        if _exist(topology, ranks, found):
            return found
        loss *= 2


def _by_rank(ranks: NDArray[np.int32], amounts: Int64) -> dict[int, int]:
    return {int(v): int(a) for v, a in zip(ranks, amounts, strict=True)}


def _even_out(topology: Topology, ranks: NDArray[np.int32], capacity: Int64) -> None:
    """Lower capacities, in place, until every node that is no rank gets as much as it sends."""
    passes = np.setdiff1d(np.arange(topology.node_count), ranks)
    changed = True
    while changed:
        changed = False
        for w in passes.tolist():
            into, out = np.flatnonzero(topology.dst == w), np.flatnonzero(topology.src == w)
            surplus = int(capacity[into].sum() - capacity[out].sum())
            changed |= surplus != 0
            for link in into if surplus > 0 else out:
                less = min(abs(surplus), int(capacity[link]))
                capacity[link] -= less
                surplus -= less if surplus > 0 else -less


def _exist(topology: Topology, ranks: NDArray[np.int32], trees: Counted) -> bool:
    """Edmonds' condition: into every set that has a rank as much can flow as the roots outside send."""
    nodes = topology.node_count
    held = np.array([trees.roots[int(v)] for v in ranks], dtype=np.int64)
    need = int(held.sum())
    tails = np.concatenate((topology.dst, ranks))
    arcs = Arcs.of(tails, np.concatenate((topology.src, np.full(len(ranks), nodes))), nodes + 1)
    kernel = kernels.load("maxflow", 20.0 * len(ranks) * len(tails))
    capacity = arcs.capacities(np.concatenate((trees.capacity, held)))
    sinks = near_first(topology, ranks.astype(np.int64))
    at, _, _ = kernel.first_violated(arcs.offsets, arcs.to, arcs.pair, capacity, sinks, 0, nodes, need, np.int64(need))
    return need > 0 and int(at) == len(sinks)
