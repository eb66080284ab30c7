"""An order for transfers that are pipelined along trees: a plan in ready-order becomes a timed one.

Serving what is ready first lets a root's own data crowd out what it must pass on, and the ends of deep trees come
late. Here a link takes the most urgent of what waits for it: of the earliest part of the data, as all trees advance
together, and among those what has the longest way before it. Then the schedule is improved by *justification* (Valls,
Ballestin and Quintanilla, EJOR 2005): time is reversed, what ended last is served first; then forward again,
in the order of the starts that this gave; and so on while it ends sooner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..kernels import at_speed
from ..kernels.clock import clock
from ..model.arrays import Ragged
from ..model.plan import COPY, REDUCE, Plan
from . import kernel_dispatch
from .moments import among, delays, settled

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

ROUNDS = 4
"""How often at most time is reversed, if not said otherwise."""

NEAR = 1.002
"""Times the busiest link's work that are near enough."""

GAIN = 5e-4
"""A round that gains less, as a share, is the last."""


def dispatched(
    plan: Plan,
    turn: Float64,
    rounds: int = ROUNDS,
    apart: bool | None = None,
    content: float = NEAR,
    until_s: float = np.inf,
) -> Plan:
    """The plan with starts by urgency.

    Where sums and copies meet, two ways are tried: all together, and copies after sums, as ReduceScatter then
    AllGather would. The plan's meta says as ``apart`` which one it is. Where routes of several links meet, two ways
    are tried: a transfer has its links for itself, or every route has a share of its links for itself, as large as what
    it carries.

    Args:
        turn: float64[chunks], from 0 to 1, which part of its data a chunk is.
        rounds: how often at most time is reversed.
        apart: whether copies come after sums; None to try both.
        content: times the busiest link's work up to which shares of links are good enough to try nothing else.
        until_s: of the CPU time of this thread, until when rounds after the first end.
    """
    turn, asked = turn[plan.chunk], plan.workload.chunk_start_s[plan.chunk]
    sums, copies = np.flatnonzero(plan.op == REDUCE), np.flatnonzero(plan.op == COPY)
    lag = plan.topology.route_latency_s(plan.route)
    start, seconds, end = asked, np.zeros_like(asked), np.inf
    effort = _Effort(rounds, until_s)
    if not apart:
        start, seconds = _scheduled(plan, np.arange(plan.transfer_count), turn, asked, effort, content)
        end = (start + seconds + lag).max()
    at_best = max(NEAR * busy(plan), busy(plan, sums) + busy(plan, copies))
    if apart or (apart is None and len(sums) and len(copies) and end > at_best):
        first, of_first = _scheduled(plan, sums, turn[sums], asked[sums], effort, content)
        half = (first + of_first + lag[sums]).max()
        later = np.maximum(asked[copies] - half, 0.0)
        second, of_second = _scheduled(plan, copies, turn[copies], later, effort, content)
        apart = bool(half + (second + of_second + lag[copies]).max() < end)
        if apart:
            start, seconds = np.empty_like(lag), np.empty_like(lag)
            start[sums], seconds[sums] = first, of_first
            start[copies], seconds[copies] = half + second, of_second
    meta = {**plan.meta, "apart": bool(apart)}
    return settled(replace(plan, meta=meta), start, seconds)


def dispatched_by(plan: Plan, sums_s: Float64, copies_s: float) -> Plan:
    """The plan with starts by when each transfer must begin at the latest, as far as those that wait for it tell.

    Every route has a share of its links for itself, as large as what it carries.

    Args:
        sums_s: float64[chunks], by when all sums of a chunk are to be made.
        copies_s: by when all copies are.
    """
    latest = np.empty(plan.transfer_count)
    for op, by_s in ((REDUCE, sums_s[plan.chunk]), (COPY, np.full(plan.transfer_count, copies_s))):
        rows = np.flatnonzero(plan.op == op)
        latest[rows] = by_s[rows] - _Line.of(plan, rows).ahead
    asked = plan.workload.chunk_start_s[plan.chunk]
    every = np.arange(plan.transfer_count)
    start, seconds = _scheduled(plan, every, latest, asked, _Effort(2), np.inf)
    return settled(plan, start, seconds)


def justified(plan: Plan, until_s: float = np.inf) -> Plan:
    """A timed plan with its starts improved by turning time round and back, as far as that helps.

    Rounds after the first end when this thread's CPU time does at ``until_s``.

    One in which transfers share links stays as it is.
    """
    assert plan.start_s is not None and plan.finish_s is not None, "timed"
    line = _Line.of(plan, np.arange(plan.transfer_count))
    if not np.allclose(plan.finish_s - plan.start_s, line.seconds, rtol=1e-6, atol=0.0):
        return plan
    asked, effort = plan.workload.chunk_start_s[plan.chunk], _Effort(ROUNDS, until_s)
    start = _justified(line, plan.start_s, asked, NEAR * busy(plan), effort)
    return settled(plan, start, line.seconds)


@dataclass(frozen=True)
class _Effort:
    """How often at most time is reversed, and until when, of this thread's CPU time, rounds after the first end."""

    rounds: int
    until_s: float = np.inf


def _scheduled(
    plan: Plan, rows: Int64, turn: Float64, asked: Float64, effort: _Effort, content: float
) -> tuple[Float64, Float64]:
    """Starts and seconds of some transfers of a plan, as if there were no others.

    Where routes of several links meet, two ways are tried: every route has a share of its links for itself, as large
    as what it carries, or, if that does not content, a transfer has its links for itself.
    """
    line = _Line.of(plan, rows)
    enough = NEAR * busy(plan, rows)
    # sums alone are copies with time reversed
    backward = bool((plan.op[rows] == REDUCE).all() and (asked == 0).all())
    if (plan.route.lengths == 1).all():
        return _justified(line, line.first(turn, asked, backward), asked, enough, effort), line.seconds
    shared = line.with_shares(plan.topology.bandwidth, plan.size_bytes[rows].astype(np.float64))
    first = shared.first(turn, asked, backward)
    start = _justified(shared, first, asked, enough, effort)
    if shared.end(start) > content * busy(plan, rows):
        alone = line.first(turn, asked, backward)
        if line.end(alone) < shared.end(first):
            alone = _justified(line, alone, asked, enough, effort)
            if line.end(alone) < shared.end(start):
                return alone, line.seconds
    return start, shared.seconds


def _justified(line: _Line, start: Float64, asked: Float64, enough: float, effort: _Effort) -> Float64:
    """Starts improved by turning time round and back, while that gains ``GAIN``, the way forward anything at all."""
    free, took_s = bool((asked == 0).all()), 0.0
    for number in range(effort.rounds):
        began_s = clock()
        if line.end(start) <= enough or (number and began_s + took_s > effort.until_s):
            break
        end = start + line.seconds + line.lag
        late = line.reversed().run(np.argsort(-end, kind="stable"), np.zeros_like(asked))
        back: Float64 = (late + line.seconds + line.lag).max() - (late + line.seconds + line.lag)
        if free and line.end(back) <= enough:
            return back
        again = line.run(np.argsort(back, kind="stable"), asked)
        took_s = clock() - began_s
        best = back if free and line.end(back) < line.end(again) else again
        gain = 1 - line.end(best) / line.end(start)
        if gain > 0:
            start = best
        if gain < GAIN or line.end(again) > (1 - 1e-6) * line.end(back):
            break
    return start


def busy(plan: Plan, rows: Int64 | None = None) -> float:
    """Seconds for which some link must carry these transfers (or all), whatever their order."""
    size = np.zeros(plan.transfer_count)
    chosen = slice(None) if rows is None else rows
    size[chosen] = plan.size_bytes[chosen]
    load = np.bincount(plan.route.values, size[plan.route.owners], plan.topology.link_count)
    return float((load / plan.topology.bandwidth).max())


def completion(plan: Plan) -> float:
    """When the last transfer of a timed plan arrives."""
    assert plan.finish_s is not None, "dispatched"
    lag = plan.topology.route_latency_s(plan.route)
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
    def of(cls, plan: Plan, rows: Int64) -> _Line:
        """Of some transfers of a plan, each with its links for itself."""
        topology, route = plan.topology, plan.route.take(rows)
        hop, lag = delays(topology, route)
        slowest = topology.route_bandwidth(route)
        waits = among(plan.depends, rows)
        return cls(
            route, topology.link_count, plan.size_bytes[rows] / slowest, lag, hop, waits, waits.turned()
        )  # fmt: skip

    def with_shares(self, bandwidth: Float64, size: Float64) -> _Line:
        """The same where a route is a link of its own, with a share of its links as large as what it carries."""
        load = np.bincount(self.route.values, size[self.route.owners], len(bandwidth))
        per_byte = self.route.reduced(np.maximum, (load / bandwidth)[self.route.values])
        which = _distinct(self.route)
        carried = np.bincount(which, size)[which]
        return replace(
            self, route=Ragged.single(which), links=int(which.max()) + 1, hop=np.zeros(len(size)),
            seconds=size * per_byte / carried,
        )  # fmt: skip

    def first(self, turn: Float64, asked: Float64, backward: bool = False) -> Float64:
        """Starts where the earliest part of the data goes first, of that what has the longest way before it.

        Args:
            backward: find them with time reversed; nothing may be ``asked`` then.
        """
        if backward:
            late = self.flipped().first(1 - turn[::-1], asked)[::-1] + self.seconds + self.lag
            return float(late.max()) - late
        return self.run(np.lexsort((-self.ahead, turn)), asked)

    def flipped(self) -> _Line:
        """The same with time and the order of transfers reversed, so that each still comes after those it awaits."""
        last = len(self.seconds) - 1
        order = np.arange(last, -1, -1)
        back = self.reversed()
        places = Ragged(self.route.offsets, np.arange(len(self.route.values), dtype=np.int32)).take(order).values

        def renamed(lists: Ragged) -> Ragged:
            taken = lists.take(order)
            return Ragged(taken.offsets, last - taken.values)

        return _Line(
            self.route.take(order), self.links, self.seconds[order], self.lag[order], back.hop[places],
            renamed(back.waits), renamed(back.followers),
        )  # fmt: skip

    @property
    def ahead(self) -> Float64:
        """float64[transfers], the longest chain from each one's start."""
        found: Float64 = at_speed(kernel_dispatch.longest, self.kernel_steps)(
            self.seconds + self.lag, self.followers.offsets, self.followers.values.astype(np.int64)
        )
        return found

    @property
    def kernel_steps(self) -> float:
        return 500.0 * len(self.seconds)

    def reversed(self) -> _Line:
        """The same with time reversed."""
        hop = np.repeat(self.lag, self.route.lengths) - self.hop
        return replace(self, hop=hop, waits=self.followers, followers=self.waits)

    def run(self, order: Int64, asked: Float64) -> Float64:
        """Starts where links take what comes first in ``order`` of what waits for them."""
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        route = self.route.values.astype(np.int64)
        waiting = self.followers.offsets, self.followers.values.astype(np.int64), self.waits.lengths.astype(np.int64)
        start: Float64
        if len(route) == len(order):
            start = at_speed(kernel_dispatch.serve, self.kernel_steps)(
                rank, self.seconds, self.lag, asked, route, *waiting, self.links
            )
        else:
            start = at_speed(kernel_dispatch.schedule, self.kernel_steps)(
                rank, self.seconds, self.lag, asked, self.route.offsets, route, self.hop, *waiting, self.links
            )
        return start

    def end(self, start: Float64) -> float:
        return float((start + self.seconds + self.lag).max())


def _distinct(lists: Ragged) -> NDArray[np.int32]:
    """For each list a number, equal ones alike."""
    most = int(lists.values.max()) + 2
    code, kinds = np.zeros(lists.rows, dtype=np.int64), 1
    for place in range(int(lists.lengths.max())):
        if kinds > (1 << 62) // most:
            code = np.unique(code, return_inverse=True)[1].reshape(-1)
            kinds = int(code.max()) + 1
        longer = np.flatnonzero(lists.lengths > place)
        code, kinds = code * most, kinds * most
        code[longer] += lists.values[lists.offsets[longer] + place] + 1
    return np.unique(code, return_inverse=True)[1].reshape(-1).astype(np.int32)
