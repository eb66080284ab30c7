"""List schedules of transfers that wait for each other: a plan in ready-order becomes a timed one.

Were links to serve what is ready first, a root's own data would hold up what it must pass on, and deep trees would end
late. Here a link carries the most urgent of the transfers that wait for it: the earliest part of the data, as all trees
advance together, and of that the transfer with the longest chain after it. Then the schedule is improved by
*justification* (Valls, Ballestin and Quintanilla, EJOR 2005): time is reversed and what ended last is served first,
then forward again in the order of the starts that this gave, as long as the plan ends sooner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64, Int32, Int64, Ragged
from ..model.plan import COPY, REDUCE, Plan
from ..model.topology import Topology
from . import kernel_dispatch
from .effort import Budget
from .kernel_dispatch import Jobs, Routes
from .moments import among, delays, settled

ROUNDS = 4
"""Rounds of justification at most, if the caller names no number."""

NEAR = 1.002
"""Times the busiest link's work: a schedule that ends by then is not improved further."""

GAIN = 5e-4
"""Share of the completion that a round must gain for another one to follow."""

COSTS = {"serve": 0.3}
"""Steps (:mod:`.effort`) that one list schedule takes for each transfer; a round of justification makes two."""

BUSY = 0.5
"""Load of a busy link, as a share of the highest load of a link, see :meth:`_Problem.with_lanes`."""

IDLE = 1.02
"""Completion as a multiple of the busiest link's work from which shares of links are tried, too."""

LEAST_S = 1e-300
"""Seconds of a transfer of no bytes."""

KERNEL_STEPS = 500.0
"""Steps of the kernels' inner loops for each transfer."""


def dispatch(
    plan: Plan,
    position: Float64,
    budget: Budget | None = None,
    *,
    rounds: int = ROUNDS,
    apart: bool | None = None,
    good_enough: float = NEAR,
) -> Plan:
    """The plan with starts by urgency.

    Where both sums and copies occur, two ways are tried: all together, and, if no sum waits for a copy, the copies
    after the last sum, as ReduceScatter then AllGather would; ``meta["apart"]`` tells which one is taken. Where routes
    have several links, three ways are tried as well. Every route has a share of its links for itself, in proportion to
    the bytes that it carries. Or a transfer is as fast as the slowest link of its route, and takes a share of its
    faster links. Or routes over the same busy links have a share of these links together, and their transfers take
    turns.

    Args:
        position: float64[chunks], from 0 to 1: where in its data a chunk lies. Earlier chunks go first.
        budget: counts the list schedules; rounds of justification after the first end with it.
        rounds: of justification, at most.
        apart: whether copies come after the last sum; None to try both.
        good_enough: times the busiest link's work up to which shares of links are taken without trying the other way.
    """
    turn, release_s = position[plan.chunk], plan.workload.chunk_start_s[plan.chunk]
    sums, copies = np.flatnonzero(plan.op == REDUCE), np.flatnonzero(plan.op == COPY)
    lag = delays(plan, np.arange(plan.transfer_count))[1]
    limits = _Limits(rounds, (budget or Budget()).with_costs(COSTS))
    if ((plan.op[plan.depends.owners] == REDUCE) & (plan.op[plan.depends.values] == COPY)).any():
        apart = False
    start, seconds, end = release_s, np.zeros_like(release_s), np.inf
    if not apart:
        start, seconds = _schedule(plan, np.arange(plan.transfer_count), turn, release_s, limits, good_enough)
        end = (start + seconds + lag).max()
    least_s = max(NEAR * busiest_link_s(plan), busiest_link_s(plan, sums) + busiest_link_s(plan, copies))
    if apart or (apart is None and len(sums) and len(copies) and end > least_s):
        sum_start, sum_seconds = _schedule(plan, sums, turn[sums], release_s[sums], limits, good_enough)
        half = (sum_start + sum_seconds + lag[sums]).max()
        later = np.maximum(release_s[copies] - half, 0.0)
        copy_start, copy_seconds = _schedule(plan, copies, turn[copies], later, limits, good_enough)
        apart = bool(half + (copy_start + copy_seconds + lag[copies]).max() < end)
        if apart:
            start, seconds = np.empty_like(lag), np.empty_like(lag)
            start[sums], seconds[sums] = sum_start, sum_seconds
            start[copies], seconds[copies] = half + copy_start, copy_seconds
    meta = {**plan.meta, "apart": bool(apart)}
    return settled(replace(plan, meta=meta), start, seconds)


def starts_by_chain(
    route: Ragged, busy_s: Float64, lag_s: Float64, delay_s: Float64, depends: Ragged, turn: Int64, *, backward: bool,
    share: bool = True,
) -> tuple[Float64, Float64]:  # fmt: skip
    """Starts and seconds of transfers: of those that wait, the one with the longest chain after it goes first.

    A transfer is as fast as the slowest link of its route. Where that leaves links idle, routes over the same busy
    links have a share of these links together.

    Args:
        route: for each transfer what it passes: links, or orbits of links.
        busy_s, delay_s: float64[links of routes], how long a transfer keeps each alone, and how much later than its
            start it comes there.
        lag_s: float64[transfers], from source to receiver.
        depends: for each transfer those that it waits for.
        turn: int64[transfers], of transfers with equal chains the lowest turn goes first.
        backward: find them with time reversed.
        share: try shares, too.
    """
    links, seconds = int(route.values.max(initial=0)) + 1, route.reduced(np.maximum, busy_s)
    taken = busy_s / np.maximum(seconds, LEAST_S)[route.owners]
    problem = _Problem(route, links, seconds, lag_s, delay_s, taken, depends, depends.turned())
    start = problem.by_chain(turn, backward)
    least_s = float(np.bincount(route.values, busy_s).max())
    if not share or problem.end_s(start) <= IDLE * least_s or len(seconds) == len(route.values):
        return start, seconds
    other = problem.with_lanes(busy_s)
    again = other.by_chain(turn, backward)
    return (again, other.seconds) if other.end_s(again) < problem.end_s(start) else (start, seconds)


def dispatch_by_deadlines(plan: Plan, sums_s: Float64, copies_s: float, budget: Budget | None = None) -> Plan:
    """The plan with starts by the latest moment at which each transfer can begin and its chain end in time.

    Every route has a share of its links for itself, in proportion to the bytes that it carries.

    Args:
        sums_s: float64[chunks], by when all sums of a chunk are to be made.
        copies_s: by when all copies are.
        budget: as in :func:`dispatch`.
    """
    latest_s = np.empty(plan.transfer_count)
    for op, by_s in ((REDUCE, sums_s[plan.chunk]), (COPY, np.full(plan.transfer_count, copies_s))):
        rows = np.flatnonzero(plan.op == op)
        latest_s[rows] = by_s[rows] - _Problem.of(plan, rows).chain_s
    release_s = plan.workload.chunk_start_s[plan.chunk]
    limits = _Limits(2, (budget or Budget()).with_costs(COSTS))
    start, seconds = _schedule(plan, np.arange(plan.transfer_count), latest_s, release_s, limits, np.inf)
    return settled(plan, start, seconds)


def justify(plan: Plan, budget: Budget | None = None) -> Plan:
    """A timed plan with starts improved by justification; one in which transfers share links stays as it is.

    Args:
        budget: as in :func:`dispatch`.
    """
    assert plan.start_s is not None and plan.finish_s is not None, "timed"
    problem = _Problem.of(plan, np.arange(plan.transfer_count))
    if not np.allclose(plan.finish_s - plan.start_s, problem.seconds, rtol=1e-6, atol=0.0):
        return plan
    limits = _Limits(ROUNDS, (budget or Budget()).with_costs(COSTS))
    release_s = plan.workload.chunk_start_s[plan.chunk]
    return settled(
        plan, problem.justified(plan.start_s, release_s, NEAR * busiest_link_s(plan), limits), problem.seconds
    )


def busiest_link_s(plan: Plan, rows: Int64 | None = None) -> float:
    """Seconds for which the busiest link carries these transfers (by default all): no order of them ends sooner."""
    size = np.zeros(plan.transfer_count)
    chosen = slice(None) if rows is None else rows
    size[chosen] = plan.size_bytes[chosen]
    topology, links = plan.topology, plan.route.values
    messages = np.bincount(links, (size > 0)[plan.route.owners], topology.link_count)
    load = np.bincount(links, size[plan.route.owners], topology.link_count)
    return float((load / topology.bandwidth + messages * topology.message_s).max())


@dataclass(frozen=True)
class _Limits:
    """Rounds of justification at most, and the budget with which those after the first end."""

    rounds: int
    budget: Budget


def _schedule(
    plan: Plan, rows: Int64, urgency: Float64, release_s: Float64, limits: _Limits, good_enough: float
) -> tuple[Float64, Float64]:
    """Starts and seconds of some transfers of a plan, as if there were no others; lower ``urgency`` goes first."""
    problem = _Problem.of(plan, rows)
    target_s = NEAR * busiest_link_s(plan, rows)
    # sums alone are copies with time reversed
    backward = bool((plan.op[rows] == REDUCE).all() and (release_s == 0).all())
    if (plan.route.lengths == 1).all():
        first = problem.by_urgency(urgency, release_s, limits.budget, backward)
        return problem.justified(first, release_s, target_s, limits), problem.seconds
    shared = problem.with_shares(plan.topology, plan.size_bytes[rows])
    first = shared.by_urgency(urgency, release_s, limits.budget, backward)
    chosen, start = shared, shared.justified(first, release_s, target_s, limits)
    if shared.end_s(start) > good_enough * busiest_link_s(plan, rows):
        links, size = problem.route.values, plan.size_bytes[rows][problem.route.owners]
        busy_s = size / plan.topology.bandwidth[links] + plan.topology.message_s[links]
        for other in (problem, problem.with_lanes(busy_s)):
            begin = other.by_urgency(urgency, release_s, limits.budget, backward)
            if other.end_s(begin) < shared.end_s(first):
                begin = other.justified(begin, release_s, target_s, limits)
                if other.end_s(begin) < chosen.end_s(start):
                    chosen, start = other, begin
    return start, chosen.seconds


@dataclass(frozen=True)
class _Problem:
    """Transfers to be scheduled, which wait for their links and for each other."""

    route: Ragged  # the links of each transfer
    link_count: int
    seconds: Float64  # float64[transfers], on each link
    lag: Float64  # float64[transfers], seconds from source to the last receiver
    hop_delay: Float64  # float64[links of routes], how much later than the transfer starts each link carries it
    hop_share: Float64  # float64[links of routes], the part of the link that the transfer takes
    predecessors: Ragged  # for each transfer those that it waits for
    successors: Ragged  # for each transfer those that wait for it

    @classmethod
    def of(cls, plan: Plan, rows: Int64) -> _Problem:
        """Some transfers of a plan, each as fast as the slowest link of its route."""
        topology, route = plan.topology, plan.route.take(rows)
        hop_delay, lag = delays(plan, rows)
        links, size = route.values, plan.size_bytes[rows][route.owners]
        busy_s = size / topology.bandwidth[links] + topology.message_s[links]
        seconds = route.reduced(np.maximum, busy_s)
        hop_share = busy_s / np.maximum(seconds, LEAST_S)[route.owners]
        predecessors = among(plan.depends, rows)
        successors = predecessors.turned()
        return cls(route, topology.link_count, seconds, lag, hop_delay, hop_share, predecessors, successors)

    def with_shares(self, topology: Topology, size: Int64) -> _Problem:
        """The same where every route is a link of its own: a share of its links, in proportion to its bytes.

        On each link a message counts as the bytes that the link carries in the message's cost.
        """
        links, owners = self.route.values, self.route.owners
        work = size[owners] + topology.message_s[links] * topology.bandwidth[links]
        load = np.bincount(links, work, topology.link_count)
        number = route_numbers(self.route)
        place = np.arange(len(links)) - self.route.offsets[owners]
        hop = number[owners].astype(np.int64) * (int(place.max()) + 1) + place
        seconds = work * (load / topology.bandwidth)[links] / np.bincount(hop, work)[hop]
        return replace(
            self, route=Ragged.single(number), link_count=int(number.max()) + 1, hop_delay=np.zeros(len(size)),
            hop_share=np.ones(len(size)), seconds=self.route.reduced(np.maximum, seconds),
        )  # fmt: skip

    def with_lanes(self, busy_s: Float64) -> _Problem:
        """The problem where transfers over the same busy links take turns, at the rate of their share of these links.

        Routes that are alike from the first busy link to the last one have a *lane*: a further link, over which one of
        their transfers goes at a time. Where no link of a route is busy, its busiest one counts. The rate of a lane is
        a share of each of its links in proportion to the bytes of all that use the lane. Of the other links a transfer
        takes as much as this rate needs.

        Args:
            busy_s: float64[links of routes], how long a transfer keeps each link alone.
        """
        links, owners, count = self.route.values, self.route.owners, len(self.seconds)
        load_s = np.bincount(links, busy_s, self.link_count)
        busiest_s = self.route.reduced(np.maximum, load_s[links])
        busy = load_s[links] >= np.minimum(BUSY * load_s.max(), busiest_s)[owners]
        place = np.arange(len(links))
        first = self.route.reduced(np.minimum, np.where(busy, place, len(links)))
        last = self.route.reduced(np.maximum, np.where(busy, place, -1))
        within = (place >= first[owners]) & (place <= last[owners])
        lane = route_numbers(Ragged.grouped(owners[within], links[within], count)).astype(np.int64)
        use = np.unique(lane[owners] * self.link_count + links, return_inverse=True)[1].reshape(-1)
        share = np.where(within, np.bincount(use, busy_s)[use] / load_s[links], 1.0)
        seconds = self.route.reduced(np.maximum, busy_s / share)
        # a lane is the last hop of a route
        hop = np.insert(place, self.route.offsets[1:], first)
        is_lane = np.zeros(len(hop), dtype=np.bool_)
        is_lane[self.route.offsets[1:] + np.arange(count)] = True
        joined = links.astype(np.int64)[hop]
        joined[is_lane] = self.link_count + lane
        return replace(
            self, route=Ragged(self.route.offsets + np.arange(count + 1), joined.astype(np.int32)), seconds=seconds,
            link_count=self.link_count + int(lane.max()) + 1, hop_delay=self.hop_delay[hop],
            hop_share=np.where(is_lane, 1.0, (busy_s / seconds[owners])[hop]),
        )  # fmt: skip

    def by_urgency(self, urgency: Float64, release_s: Float64, budget: Budget, backward: bool = False) -> Float64:
        """Starts where the lowest urgency goes first, and of equal ones the transfer with the longest chain after it.

        Args:
            backward: find them with time reversed; no transfer may have a release then.
        """
        if not backward:
            return self.list_schedule(np.lexsort((-self.chain_s, urgency)), release_s, budget)
        flipped = self.flipped().by_urgency(1 - urgency[::-1], release_s, budget)
        late = flipped[::-1] + self.seconds + self.lag
        return float(late.max()) - late

    def by_chain(self, turn: Int64, backward: bool) -> Float64:
        """Starts where the transfer with the longest chain after it goes first, and of equal ones the lowest turn.

        Args:
            backward: find them with time reversed.
        """
        if backward:
            late = self.flipped().by_chain(-turn[::-1], False)[::-1] + self.seconds + self.lag
            return float(late.max()) - late
        order = np.lexsort((turn, -self.chain_s))
        return self.list_schedule(order, np.zeros_like(self.seconds), Budget().with_costs(COSTS))

    def justified(self, start: Float64, release_s: Float64, target_s: float, limits: _Limits) -> Float64:
        """Starts improved by reversing time and back, while a round gains ``GAIN``, the way forward anything at all."""
        free, count = bool((release_s == 0).all()), len(start)
        for number in range(limits.rounds):
            if self.end_s(start) <= target_s or (number and not limits.budget.allows(serve=2 * count)):
                break
            end = start + self.seconds + self.lag
            order = np.argsort(-end, kind="stable")
            late = self.reversed().list_schedule(order, np.zeros_like(release_s), limits.budget)
            back: Float64 = (late + self.seconds + self.lag).max() - (late + self.seconds + self.lag)
            if free and self.end_s(back) <= target_s:
                return back
            again = self.list_schedule(np.argsort(back, kind="stable"), release_s, limits.budget)
            best = back if free and self.end_s(back) < self.end_s(again) else again
            gain = 1 - self.end_s(best) / self.end_s(start)
            if gain > 0:
                start = best
            if gain < GAIN or self.end_s(again) > (1 - 1e-6) * self.end_s(back):
                break
        return start

    def list_schedule(self, order: Int64, release_s: Float64, budget: Budget) -> Float64:
        """Starts where each link carries what comes first in ``order`` of the transfers that wait for it."""
        budget.spend(serve=len(order))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        links, work = self.route.values.astype(np.int64), KERNEL_STEPS * len(order)
        jobs = Jobs(
            self.seconds, self.lag, release_s, self.successors.offsets, self.successors.values.astype(np.int64),
            self.predecessors.lengths,
        )  # fmt: skip
        if len(links) == len(order):
            return at_speed(kernel_dispatch.schedule_single_links, work)(rank, jobs, links, self.link_count)
        routes = Routes(self.route.offsets, links, self.hop_delay, self.hop_share, self.queue)
        return at_speed(kernel_dispatch.schedule, work)(rank, jobs, routes, self.link_count)

    @cached_property
    def queue(self) -> Int64:
        """int64[links of routes], a number for each link and delay."""
        delay = np.unique(self.hop_delay, return_inverse=True)[1].reshape(-1)
        number: Int64 = np.unique(delay * self.link_count + self.route.values, return_inverse=True)[1].reshape(-1)
        return number

    @cached_property
    def chain_s(self) -> Float64:
        """float64[transfers], the seconds of the longest chain that begins with each."""
        return at_speed(kernel_dispatch.longest_chains, KERNEL_STEPS * len(self.seconds))(
            self.seconds + self.lag, self.successors.offsets, self.successors.values.astype(np.int64)
        )

    def reversed(self) -> _Problem:
        """The same with time reversed."""
        hop_delay = np.repeat(self.lag, self.route.lengths) - self.hop_delay
        return replace(self, hop_delay=hop_delay, predecessors=self.successors, successors=self.predecessors)

    def flipped(self) -> _Problem:
        """The same with time and the numbers of transfers reversed, so that each still comes after those it awaits."""
        last = len(self.seconds) - 1
        order = np.arange(last, -1, -1)
        back = self.reversed()
        entry = self.route.with_values(np.arange(len(self.route.values))).take(order).values

        def renumbered(lists: Ragged) -> Ragged:
            taken = lists.take(order)
            return taken.with_values(last - taken.values)

        return _Problem(
            self.route.take(order), self.link_count, self.seconds[order], self.lag[order], back.hop_delay[entry],
            self.hop_share[entry], renumbered(back.predecessors), renumbered(back.successors),
        )  # fmt: skip

    def end_s(self, start: Float64) -> float:
        """When the last transfer arrives."""
        return float((start + self.seconds + self.lag).max())


def route_numbers(routes: Ragged) -> Int32:
    """int32[routes], a number for each route; the same number for routes over the same links."""
    most = int(routes.values.max()) + 2
    code, codes = np.zeros(routes.rows, dtype=np.int64), 1
    for place in range(int(routes.lengths.max())):
        if codes > (1 << 62) // most:
            code = np.unique(code, return_inverse=True)[1].reshape(-1)
            codes = int(code.max()) + 1
        longer = np.flatnonzero(routes.lengths > place)
        code, codes = code * most, codes * most
        code[longer] += routes.values[routes.offsets[longer] + place] + 1
    return np.unique(code, return_inverse=True)[1].reshape(-1).astype(np.int32)
