"""AllReduce by hubs: partial sums meet at a few ranks, or at every rank, when latency counts.

All contributions come to a few *hubs* over trees that share their messages, and the other ranks get copies from there
(:mod:`.trees`): with one hub in each server the servers' sums cross once. The buffer is cut into parts, which go
through different exchanges, each grown as if links were already busy with the exchanges before it. How many hubs,
exchanges and parts there are is tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ....model.arrays import Float64, Int32, Int64
from ....model.collective import Workload
from ....model.plan import Plan
from ....model.topology import ACCELERATOR, Topology
from ....schedule.best import completion_s
from ....schedule.dispatch import dispatch
from ....schedule.effort import Budget
from ....schedule.pipes import Network, build_network
from ....schedule.trees import divide
from ...registry import Request
from .blocks import plan_exchanges
from .trees import Exchange, Paths, build_exchange, order_hubs

MOST_RANKS = 128
"""Ranks of an AllReduce at most for any exchange: trees of all ranks take memory and time with the square of them."""

MOST_HUBS = 64
"""Ranks up to which exchanges are tried in which every rank is a hub."""

MOST_HUB_COUNTS = 3
"""Numbers of hubs that are tried, beside two and all."""

LESS = 0.9
"""Share of the time of fewer hubs, by latency alone, within which more hubs must end to be tried."""

FEW, MANY = 4, 16
"""Exchanges through which the parts go, beside one; MANY is rounded up to a multiple of the hubs."""

MOST_PARTS = 128
"""Parts of the buffer at most."""

MOST_TRANSFERS = 16_000
"""Transfers of a plan up to which its parts are cut in two."""

STEEPNESS = 10.0
"""Times the busiest link's seconds that a steep cost adds to that link."""

LEAST_GAIN = 0.01
"""Share of the completion that cutting parts in two must gain to go on, and by which completions count as the same."""


@dataclass(frozen=True)
class _Shape:
    """What exchanges look like."""

    hubs: int  # how many hubs an exchange has
    exchanges: int  # how many exchanges there are
    steep: bool = False  # the load of links costs little where it is low and much where it is highest
    # paths are as long as their latency. Of equally long ones, those go first that stay among the nodes with the same
    # nearest hub, in every second exchange last
    cells: bool = False


def plan_hubs(request: Request, before_s: float = math.inf) -> Plan | None:
    """The best plan of a single AllReduce that could end before a given time; the budget has the planner's costs.

    Returns:
        None where ranks are joined only through nodes that store and cannot add.
    """
    attempt = _Attempt(request.topology, request.workload, request.seed, request.budget)
    counts = attempt.hub_counts()
    if not counts:
        return None
    most = max(count for count in counts if count <= MANY)
    many = -(-MANY // most) * most
    few = [
        _Shape(hubs, many, steep=steep) for hubs in counts[:-1] for steep in ((False, True) if hubs <= 2 else (False,))
    ]
    everyone = [_Shape(counts[-1], FEW, cells=cells) for cells in (True, False) if counts[-1] <= MOST_HUBS]
    plans: list[_Cut] = []
    for shapes in (few, everyone):
        plans += attempt.search(shapes, min([before_s, *(t.end_s for t in plans)]))
    chosen = min(plans, key=_Cut.rank, default=None)
    if chosen is None or chosen.plan is None:
        return None
    return dispatch(chosen.plan, np.zeros(chosen.plan.workload.chunk_count), request.budget)


@dataclass(frozen=True)
class _Cut:
    """Exchanges of one shape, the buffer cut into parts, the plan of these and when it ends."""

    shape: _Shape
    exchanges: list[Exchange]
    parts: int
    plan: Plan | None = None  # None where that is hopeless or the budget does not last for it
    end_s: float = math.inf

    def rank(self) -> tuple[float, int, int]:
        """What ends sooner goes first; of what ends together, what has fewer transfers and exchanges."""
        if self.plan is None:
            return np.inf, 0, 0
        return round(math.log(self.end_s) / LEAST_GAIN), self.plan.transfer_count, self.shape.exchanges


@dataclass(frozen=True)
class _Attempt:
    """Plans for one request; ``budget`` counts the messages that grow, and those that become transfers."""

    topology: Topology
    workload: Workload
    seed: int
    budget: Budget

    def hub_counts(self) -> list[int]:
        """How many hubs are tried: one, two, all, and more that bring the result to all sooner, by latency alone."""
        ends = self._by_latency[1]
        if not np.isfinite(ends[-1]):
            return []
        counts = [1]
        for count in range(2, len(ends)):
            if len(counts) < MOST_HUB_COUNTS and ends[count - 1] < LESS * ends[counts[-1] - 1]:
                counts.append(count)
        return sorted({*counts, min(2, len(ends)), len(ends)})

    def search(self, shapes: list[_Shape], before_s: float) -> list[_Cut]:
        """The best of some shapes, with more or fewer exchanges, cut as finely as pays; an empty list for no shapes."""
        tried: list[_Cut] = []
        for shape in shapes:
            if not (tried and self.budget.exhausted):
                tried.append(self.try_shape(shape, shape.exchanges, before_s))
        if not tried:
            return []
        shape = min(tried, key=_Cut.rank).shape
        for count in (1, FEW, MANY):
            if count != shape.exchanges and not self.budget.exhausted:
                tried.append(self.try_shape(replace(shape, exchanges=count), max(count, FEW), before_s))
        return [self.cut_finely(min(tried, key=_Cut.rank), before_s)]

    def try_shape(self, shape: _Shape, parts: int, before_s: float) -> _Cut:
        """The buffer in ``parts`` parts, which take turns in the exchanges of a shape."""
        exchanges, load_s = self.build(shape, parts, before_s)
        built = _Cut(shape, exchanges, parts)
        hopeless = float(load_s.max()) >= before_s or len(exchanges) < shape.exchanges
        return built if hopeless or not self.allows(exchanges[0], parts) else self.cut(built, parts)

    def build(self, shape: _Shape, parts: int, before_s: float) -> tuple[list[Exchange], Float64]:
        """The exchanges of a shape, and for how long each link is busy; fewer once that is too long, or too costly."""
        c = self.workload.collectives[0]
        hops = self.network.hops
        load_s = np.zeros(self.topology.link_count)
        rng = np.random.default_rng((self.seed, shape.hubs, shape.exchanges))
        size = float(c.size_bytes) / shape.exchanges
        built: list[Exchange] = []
        while not built or (
            len(built) < shape.exchanges and float(load_s.max()) < before_s and not self.budget.exhausted
        ):
            busy_s = hops.reduced(np.maximum, load_s[hops.values])
            paths = self.paths(float(c.size_bytes) / parts, busy_s, shape, len(built))
            hubs = order_hubs(paths, self.ranks, shape.hubs, rng)[0]
            built.append(build_exchange(paths, self.ranks, hubs, size))
            pipes = built[-1].pipes()
            self.budget.spend(message=len(pipes))
            load_s += np.bincount(hops.take(pipes).values, minlength=len(load_s)) * size / self.topology.bandwidth
        return built, load_s

    def paths(self, size: float, busy_s: Float64, shape: _Shape, number: int) -> Paths:
        """The paths of one exchange of a shape, ``number`` exchanges after the first.

        Args:
            size: bytes of a part.
            busy_s: float64[pipes], for how long pipes are busy with the exchanges before.
        """
        network = self.network
        crosses = self.separating_counts[network.src, network.dst] if shape.cells else np.zeros(len(busy_s))
        order = np.lexsort((busy_s, crosses * (-1) ** number))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        by_latency = shape.cells and float(network.latency_s.min()) > 0
        if shape.steep and busy_s.max() > 0:
            busy_s = STEEPNESS * busy_s * (busy_s / busy_s.max()) ** 4
        cost = network.latency_s if by_latency else network.latency_s + size * network.per_byte + busy_s
        return Paths.of(network, self.nodes, cost, rank)

    def cut(self, built: _Cut, parts: int) -> _Cut:
        """The same exchanges with ``parts`` parts, or one for each byte if there are fewer bytes."""
        c = self.workload.collectives[0]
        parts = max(1, min(parts, int(c.chunk_bytes.min())))
        finer = Workload((divide(c, parts)[0],))
        plan = plan_exchanges(self.topology, finer, self.network, built.exchanges)
        self.budget.spend(place=plan.transfer_count)
        plan = dispatch(plan, np.zeros(finer.chunk_count), self.budget, rounds=1)
        return replace(built, end_s=completion_s(plan), parts=parts, plan=plan)

    def cut_finely(self, best: _Cut, before_s: float) -> _Cut:
        """The same exchanges with one part for each, then with twice as many parts, as often as that pays."""
        if best.plan is None or not self.allows(best.exchanges[0], best.parts):
            return best
        if best.parts != best.shape.exchanges:
            best = self.cut(best, best.shape.exchanges)
        most = min(MOST_PARTS, MOST_TRANSFERS // len(best.exchanges[0].pipes()))
        while 2 * best.parts <= most and self.allows(best.exchanges[0], 2 * best.parts):
            finer = self.cut(best, 2 * best.parts)
            if finer.end_s > best.end_s * (1 - LEAST_GAIN):
                break
            # finer parts halve the time for which parts wait for each other, and nothing else
            rest_s, best = 2 * finer.end_s - best.end_s, finer
            if rest_s >= before_s:
                break
        return best

    def allows(self, exchange: Exchange, parts: int) -> bool:
        """Whether the budget lasts for ``parts`` parts through exchanges like this one."""
        messages = parts * len(exchange.pipes())
        return self.budget.allows(place=messages, order=messages)

    @property
    def ranks(self) -> Int32:
        return self.workload.collectives[0].ranks

    @cached_property
    def nodes(self) -> Int32:
        """The ranks, and all others that store and add."""
        net = self.topology
        relays = np.flatnonzero((net.forwarding == ACCELERATOR) & net.adds)
        return np.union1d(self.ranks, relays).astype(np.int32)

    @cached_property
    def network(self) -> Network:
        return build_network(self.topology.delayed, float(self.workload.collectives[0].size_bytes) / MANY, True, 0.0)

    @cached_property
    def _by_latency(self) -> tuple[list[int], list[float], Float64]:
        """Hubs in their order, when the result is everywhere with each number of them, and distances, by latency."""
        paths = self.paths(1.0, np.zeros(len(self.network.src)), _Shape(1, 1), 0)
        hubs, ends = order_hubs(paths, self.ranks, len(self.ranks), np.random.default_rng(self.seed))
        return hubs, ends, paths.distance

    @cached_property
    def separating_counts(self) -> Int64:
        """int64[nodes, nodes], for how many of the numbers of hubs two nodes are nearest to different hubs."""
        hubs, _, distance = self._by_latency
        separating = np.zeros((self.topology.node_count, self.topology.node_count), dtype=np.int64)
        for count in self.hub_counts():
            cell = distance[:, hubs[:count]].argmin(axis=1)
            separating += cell[:, None] != cell[None, :]
        return separating
