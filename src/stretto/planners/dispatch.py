"""An order for transfers that are pipelined along trees: a plan in ready-order becomes a timed one.

Serving what is ready first lets a root's own data crowd out what it must pass on, and the ends of deep trees come
late. Here a link takes the most urgent of what waits for it: of the earliest part of the data, as all trees advance
together, and among those what has the longest way before it. Then the schedule is improved by *justification* (Valls,
Ballestin and Quintanilla, EJOR 2005): time is reversed, what ended last is served first; then forward again,
in the order of the starts that this gave; and so on while it ends sooner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from ..collective import Ragged
from ..plan import Plan

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

ROUNDS = 4
"""How often at most time is reversed."""

GAIN = 1e-3
"""A round that gains less, as a share, is the last."""


def dispatched(plan: Plan, turn: Float64) -> Plan:
    """The plan with starts by urgency.

    Args:
        turn: float64[chunks], from 0 to 1, which part of its data a chunk is.
    """
    line = _Line.of(plan)
    asked = plan.workload.chunk_start_s[plan.chunk]
    kernel = line.kernel
    ahead = kernel.longest(line.seconds + line.lag, line.followers.offsets, line.followers.values.astype(np.int64))
    start = line.run(np.lexsort((-ahead, turn[plan.chunk])), asked)
    for _ in range(ROUNDS):
        end = start + line.seconds + line.lag
        late = line.reversed().run(np.argsort(-end, kind="stable"), np.zeros_like(asked))
        back = (late + line.seconds + line.lag).max() - (late + line.seconds + line.lag)
        again = line.run(np.argsort(back, kind="stable"), asked)
        best = back if (asked == 0).all() and line.end(back) < line.end(again) else again
        if line.end(best) >= line.end(start):
            break
        gain = 1 - line.end(best) / line.end(start)
        start = best
        if gain < GAIN:
            break
    return replace(plan, sharing="timed", start_s=start, finish_s=start + line.seconds)


def completion(plan: Plan) -> float:
    """When the last transfer of a timed plan arrives."""
    assert plan.finish_s is not None, "dispatched"
    lag = np.add.reduceat(plan.topology.latency_s[plan.route.values], plan.route.offsets[:-1])
    return float((plan.finish_s + lag).max())


@dataclass(frozen=True)
class _Line:
    """Transfers that wait for their links and for each other.

    Attributes:
        seconds, lag: float64[transfers], on each link, and from source to receiver.
        hop: float64[route], how much later than the transfer starts each link carries it.
        waits, followers: for each transfer those that it waits for, and those that wait for it.
    """

    route: Ragged
    links: int
    seconds: Float64
    lag: Float64
    hop: Float64
    waits: Ragged
    followers: Ragged

    @classmethod
    def of(cls, plan: Plan) -> _Line:
        topology, route = plan.topology, plan.route
        latency = topology.latency_s[route.values]
        hop = np.cumsum(latency) - latency
        hop -= np.repeat(hop[route.offsets[:-1]], route.lengths)
        # what a sum over all routes rounds away is no delay
        hop[route.offsets[:-1]] = 0.0
        lag = np.add.reduceat(latency, route.offsets[:-1])
        seconds = plan.size_bytes / np.minimum.reduceat(topology.bandwidth[route.values], route.offsets[:-1])
        return cls(route, topology.link_count, seconds, lag, hop, plan.depends, plan.dependents)

    @property
    def kernel(self) -> Any:
        return kernels.load("dispatch", 500.0 * len(self.seconds))

    def reversed(self) -> _Line:
        """The same with time reversed."""
        hop = np.repeat(self.lag, self.route.lengths) - self.hop
        return replace(self, hop=hop, waits=self.followers, followers=self.waits)

    def run(self, order: Int64, asked: Float64) -> Float64:
        """Starts where links take what comes first in ``order`` of what waits for them."""
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        start: Float64 = self.kernel.schedule(
            rank, self.seconds, self.lag, asked, self.route.offsets, self.route.values.astype(np.int64), self.hop,
            self.followers.offsets, self.followers.values.astype(np.int64), self.waits.lengths.astype(np.int64),
            self.links,
        )  # fmt: skip
        return start

    def end(self, start: Float64) -> float:
        return float((start + self.seconds + self.lag).max())
