"""AllReduce by trees: the best rate at which in-trees sum to roots and out-trees copy from the same roots.

ReduceScatter followed by AllGather lets every rank sum an equal share. Where ranks are unlike, unequal shares are
better. Let ``x[v]`` bytes/s be summed at rank v, and divide the bandwidth of each link between sums and copies. Then
the rates

    maximise sum x   where   copies[into T] >= x[outside T],  sums[out of T] >= x[outside T]

for every set T of nodes with a rank in it; other nodes must pass on as much as they get. By Edmonds'
theorem (1973) there are trees for all such rates.

The program has too many rows to write down, and few of them bind. Rows are added where max-flows find them broken: by
the mean of all solutions so far or, where the mean breaks none, by the last solution (smoothing, as Wentges, ITOR 1997,
does for prices). The mean is better to ask since ranks that are alike make many solutions equally good, and the last
solution jumps between these; a row that the mean breaks is broken by most of them.

What the program gives is the best of its kind. That no other way to sum is faster is known only where it meets the cut
of :func:`stretto.bounds.exact.bottleneck` or :mod:`stretto.bounds.parts`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..model.arrays import Bool, Float64, Int32
from ..model.topology import Topology
from .exact import Arcs, near_first

FINEST = 1 << 30
"""When cuts are looked for, rates are counted in units of the widest link divided by this."""

TOLERANCE = 1e-7

USD_UNITS = 1e9
"""Prices are counted in dollars a GB."""

NEWEST = 0.5
"""Weight of the last solution in the mean; those before it have the rest."""

ITERATION_STEPS = 0.1
"""Microseconds of CPU of a simplex iteration for each row and column: 0.06 to 0.1 on networks of 32 to 128 ranks joined
at random."""

FLOW_STEPS = 0.1
"""The same of a max-flow to each rank, for each arc."""

DETOUR = 1e-5
"""What a byte over the link with the longest latency costs, in bytes, so that of equally high rates those with short
ways are taken."""


@dataclass(frozen=True)
class TreeRates:
    """How fast AllReduce can be by trees.

    Attributes:
        rate: bytes/s of the buffer, all roots together: a buffer of M bytes takes ``M / rate``.
        root: float64[ranks], bytes/s summed at each rank.
        copies, sums: float64[links], bytes/s of each link that are for copies, and for sums.
    """

    rate: float
    root: Float64
    copies: Float64
    sums: Float64


def tree_rates(topology: Topology, ranks: Int32 | None = None, shares: Float64 | None = None) -> TreeRates:
    """The best rates of AllReduce by trees, on links alone (planes are not looked at).

    Args:
        shares: if given, only copies are planned, and each root has this share of the whole: AllGather (equal shares)
            or Broadcast (one root). An accelerator that is not a rank then only forwards.
    """
    found = tree_rates_within(math.inf, topology, ranks, shares)
    assert found is not None, "without a limit there is a solution"
    return found


@dataclass(frozen=True)
class Extra:
    """What else the linear program heeds.

    Attributes:
        most_usd: what a byte of the buffer may cost, US dollars, by the links' prices.
        relaxed: True for rates that no plan beats, trees or not: nodes that replicate may send more than they get, and
            copies of an AllReduce need only enter each rank (:mod:`.money` says why).
    """

    most_usd: float = math.inf
    relaxed: bool = False


def tree_rates_within(
    steps: float, topology: Topology, ranks: Int32 | None = None, shares: Float64 | None = None, extra: Extra = Extra()
) -> TreeRates | None:
    """What :func:`tree_rates` gives; None if the linear programs take more steps.

    Args:
        steps: about microseconds of CPU, counted as simplex iterations times rows and columns, and arcs of max-flows.
    """
    nodes = topology.accelerators if ranks is None else ranks
    unit = float(topology.bandwidth.max())
    found = _Program(topology, nodes, shares, unit, extra).best(steps)
    if found is None:
        return None
    copies, sums, root = (part * unit for part in found)
    return TreeRates(float(root.sum()), root, copies, sums)


class _Program:
    """The linear program, in units of the widest link, with those rows that have been found broken so far."""

    def __init__(self, topology: Topology, nodes: Int32, shares: Float64 | None, unit: float, extra: Extra) -> None:
        from ..solvers import INFINITY, Model
        from ..solvers.highs import Growing

        self.nodes = nodes
        model = Model()
        if shares is None:
            self.roots, self.amount = model.columns(len(nodes), 0.0, INFINITY, -1.0), np.ones(len(nodes))
        else:
            self.roots = np.repeat(model.columns(1, 0.0, INFINITY, -1.0), len(nodes))
            self.amount = shares / shares.sum()
        width, every = topology.bandwidth / unit, np.arange(topology.link_count)
        far = DETOUR * topology.latency_s / max(float(topology.latency_s.max()), np.finfo(float).tiny)
        self.parts = [model.columns(topology.link_count, 0.0, width, far) for _ in range(2 if shares is None else 1)]
        model.rows(topology.link_count, -INFINITY, width, *((every, part, 1.0) for part in self.parts))
        if extra.most_usd < math.inf:
            rooted = np.unique(self.roots)
            price = topology.usd_per_byte * USD_UNITS
            most = np.full(len(rooted), -extra.most_usd * USD_UNITS)
            model.rows(1, -INFINITY, 0.0, *((0, part, price) for part in self.parts), (0, rooted, most))
        passes = np.setdiff1d(np.arange(topology.node_count), nodes)
        added = np.where(topology.replicates[passes] & extra.relaxed, INFINITY, 0.0)
        for part in self.parts if len(passes) else ():
            entries = []
            for end, sign in ((topology.src, -1.0), (topology.dst, 1.0)):
                on = np.flatnonzero(np.isin(end, passes))
                entries.append((np.searchsorted(passes, end[on]), part[on], sign))
            model.rows(len(passes), 0.0, added, *entries)
        self.columns = model.column_count
        self.program = Growing(model)
        self.searches = [_Separator(topology, nodes, backward) for backward in (False, True)[: len(self.parts)]]
        self.searches[0].single = extra.relaxed and shares is None

    def best(self, steps: float) -> tuple[Float64, Float64, Float64] | None:
        """Copies and sums on each link, and what each root sends; None if that takes more steps."""
        fresh = [search.around() for search in self.searches]
        mean: Float64 | None = None
        while any(fresh):
            self._require(fresh)
            steps -= sum(FLOW_STEPS * search.arc_visits for search in self.searches)
            step = ITERATION_STEPS * self.program.size
            solution = self.program.solve(max(steps / step, 0.0))
            steps -= step * self.program.iterations
            if steps <= step:
                return None
            assert solution is not None, "nothing at all is a solution"
            last = np.maximum(solution, 0.0)
            mean = last if mean is None else NEWEST * last + (1 - NEWEST) * mean
            fresh = self._broken(mean)
            if not any(fresh):
                fresh = self._broken(last)
        copies = last[self.parts[0]]
        return copies, last[self.parts[1]] if len(self.parts) > 1 else np.zeros_like(copies), self._sent(last)

    def _sent(self, at: Float64) -> Float64:
        sent: Float64 = at[self.roots] * self.amount
        return sent

    def _broken(self, at: Float64) -> list[list[Bool]]:
        return [s.broken(at[part], self._sent(at)) for s, part in zip(self.searches, self.parts, strict=True)]

    def _require(self, sets: list[list[Bool]]) -> None:
        """Add a row for each set: at least as much must enter it as the roots outside send."""
        from ..solvers import INFINITY, Model

        rows = Model(self.columns)
        for search, part, some in zip(self.searches, self.parts, sets, strict=True):
            for inside in some:
                entering = np.flatnonzero(inside[search.dst] & ~inside[search.src])
                lacking = np.flatnonzero(~inside[self.nodes])
                rows.rows(1, 0.0, INFINITY, (0, part[entering], 1.0), (0, self.roots[lacking], -self.amount[lacking]))
        self.program.add(rows)


class _Separator:
    """Finds sets of nodes that can get less than they need, at given rates."""

    def __init__(self, topology: Topology, ranks: Int32, backward: bool) -> None:
        self.src, self.dst = (topology.dst, topology.src) if backward else (topology.src, topology.dst)
        self.ranks = ranks.astype(np.int64)
        self.sinks = near_first(topology, self.ranks)
        self.nodes = topology.node_count
        self._given: set[bytes] = set()
        self.single = False  # True: only sets that consist of a single rank
        tails = np.concatenate((self.dst, self.ranks))
        self.arcs = Arcs.of(tails, np.concatenate((self.src, np.full(len(ranks), self.nodes))), self.nodes + 1)

    def broken(self, part: Float64, root: Float64) -> list[Bool]:
        """Sets into which less can flow than the roots outside send: at most one for each rank, none twice."""
        if self.single:
            return []
        amounts = np.floor(root * FINEST).astype(np.int64)
        need = int(amounts.sum())
        slack = int(TOLERANCE * FINEST)
        capacity = self.arcs.capacities(np.concatenate((np.ceil(part * FINEST).astype(np.int64), amounts)))
        work = 2.0 * self.arc_visits
        found: list[Bool] = []
        begin = 0
        while begin < len(self.sinks):
            at, side, _ = self.arcs.first_violated(capacity, self.sinks, begin, self.nodes, need - slack, need, work)
            if at < len(self.sinks):
                found.append(side[: self.nodes])
            begin = at + 1
        return self._fresh(found)

    @property
    def arc_visits(self) -> int:
        """Arcs that max-flows to all ranks look at, were each to look at every arc once."""
        return len(self.sinks) * len(self.arcs.forward)

    def around(self) -> list[Bool]:
        """The sets that consist of a single rank."""
        return self._fresh([np.arange(self.nodes) == v for v in self.ranks])

    def _fresh(self, sets: list[Bool]) -> list[Bool]:
        """Of these sets those that were not given before, each once."""
        fresh = {inside.tobytes(): inside for inside in sets}
        fresh = {key: inside for key, inside in fresh.items() if key not in self._given}
        self._given |= fresh.keys()
        return list(fresh.values())
