"""AllReduce by trees: the best that sums up in-trees and copies down out-trees of the same roots can reach.

ReduceScatter then AllGather gives every rank an equal share to sum. That is not the best where ranks are unlike: with
``x[v]`` bytes/s summed at rank v and each link's bandwidth split between sums and copies, the rates

    maximise sum x   where   copies[into T] >= x[outside T],  sums[out of T] >= x[outside T]

for every set T of nodes with a rank in it. By Edmonds' theorem (1973) trees exist for all such rates; nodes that
are no ranks must pass on as much as they get. The program has too many rows to write down, and few that bind: they
are added where a max-flow finds them broken. What it gives is the best of its kind; that no other way to sum is
faster is known where it meets the cut of :func:`stretto.bounds.exact.bottleneck` or :mod:`stretto.bounds.parts`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from ..topology import Topology
from .exact import Arcs, near_first

Bool = NDArray[np.bool_]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

FINEST = 1 << 30
"""Parts of the widest link in which rates are counted when cuts are looked for."""

TOLERANCE = 1e-7


@dataclass(frozen=True)
class TreeRates:
    """How fast AllReduce can be by trees.

    Attributes:
        rate: bytes/s of the buffer, all roots together: a buffer of M bytes takes ``M / rate``.
        root: float64[ranks], bytes/s summed at each rank.
        copies, sums: float64[links], the part of each link for either.
    """

    rate: float
    root: Float64
    copies: Float64
    sums: Float64


def tree_rates(topology: Topology, ranks: NDArray[np.int32] | None = None, shares: Float64 | None = None) -> TreeRates:
    """The best rates of AllReduce by trees, on links alone (planes are not looked at).

    Args:
        shares: if given, only copies are planned, roots having these shares of the whole: AllGather (equal ones) or
            Broadcast (one root) where nodes that are no ranks only pass on what they get.
    """
    from ..solvers import INFINITY, Model, solve

    nodes = topology.accelerators if ranks is None else ranks
    unit = float(topology.bandwidth.max())
    width = topology.bandwidth / unit
    every = np.arange(topology.link_count)
    model = Model()
    if shares is None:
        roots, amount = model.columns(len(nodes), 0.0, INFINITY, -1.0), np.ones(len(nodes))
    else:
        roots, amount = np.repeat(model.columns(1, 0.0, INFINITY, -1.0), len(nodes)), shares / shares.sum()
    parts = [model.columns(topology.link_count, 0.0, width) for _ in range(2 if shares is None else 1)]
    model.rows(topology.link_count, -INFINITY, width, *((every, part, 1.0) for part in parts))
    passes = np.setdiff1d(np.arange(topology.node_count), nodes)
    for part in parts if len(passes) else ():
        entries = []
        for end, sign in ((topology.src, -1.0), (topology.dst, 1.0)):
            on = np.flatnonzero(np.isin(end, passes))
            entries.append((np.searchsorted(passes, end[on]), part[on], sign))
        model.rows(len(passes), 0.0, 0.0, *entries)
    searches = [_Separator(topology, nodes, backward) for backward in (False, True)[: len(parts)]]
    around = [np.eye(topology.node_count, dtype=np.bool_)[v] for v in nodes]
    fresh = [around for _ in parts]
    while True:
        for search, part, cuts in zip(searches, parts, fresh, strict=True):
            for inside in cuts:
                entering = np.flatnonzero(inside[search.dst] & ~inside[search.src])
                lacking = np.flatnonzero(~inside[nodes])
                model.rows(1, 0.0, INFINITY, (0, part[entering], 1.0), (0, roots[lacking], -amount[lacking]))
        found = solve(model)
        assert found.x is not None, "nothing at all is a solution"
        at = np.maximum(found.x, 0.0)
        root = at[roots] * amount
        fresh = [search.broken(at[part], root) for search, part in zip(searches, parts, strict=True)]
        if not any(fresh):
            copies, sums = at[parts[0]] * unit, at[parts[1]] * unit if shares is None else np.zeros(len(width))
            return TreeRates(float(root.sum()) * unit, root * unit, copies, sums)


class _Separator:
    """Finds sets that rates do not serve."""

    def __init__(self, topology: Topology, ranks: NDArray[np.int32], backward: bool) -> None:
        self.src, self.dst = (topology.dst, topology.src) if backward else (topology.src, topology.dst)
        self.ranks = ranks.astype(np.int64)
        self.sinks = near_first(topology, self.ranks)
        self.nodes = topology.node_count
        tails = np.concatenate((self.dst, self.ranks))
        self.arcs = Arcs.of(tails, np.concatenate((self.src, np.full(len(ranks), self.nodes))), self.nodes + 1)

    def broken(self, part: Float64, root: Float64) -> list[Bool]:
        """Sets into which less can flow than the roots outside send, at most one a rank."""
        amounts = np.floor(root * FINEST).astype(np.int64)
        need = int(amounts.sum())
        slack = int(TOLERANCE * FINEST)
        capacity = self.arcs.capacities(np.concatenate((np.ceil(part * FINEST).astype(np.int64), amounts)))
        kernel = kernels.load("maxflow", 20.0 * len(self.sinks) * len(self.arcs.forward))
        found: list[Bool] = []
        begin = 0
        while begin < len(self.sinks):
            at, side, _ = kernel.first_violated(
                self.arcs.offsets, self.arcs.to, self.arcs.pair, capacity, self.sinks, begin, self.nodes,
                need - slack, np.int64(need),
            )  # fmt: skip
            if at < len(self.sinks):
                found.append(side[: self.nodes])
            begin = at + 1
        return found
