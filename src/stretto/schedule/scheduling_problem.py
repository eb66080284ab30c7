"""Transfers that wait for their links and for each other, as a problem for list schedules.

Each link serves the first of the transfers that wait for it, in an order that is given. Starts are improved by
*justification* (Valls, Ballestin and Quintanilla, EJOR 2005): time is reversed and what ended last is served first,
then forward again in the order of the starts that this gave, as long as the last transfer ends sooner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..kernels import at_speed
from ..model.arrays import Float64, Int32, Int64, Ragged, places_of
from ..model.plan import Plan
from ..model.topology import Topology
from . import kernel_dispatch
from .effort import Budget
from .kernel_dispatch import Jobs, Routes
from .moments import among, delays

GAIN = 5e-4
"""Share of the completion that a round must gain for another one to follow."""

COSTS = {"serve": 0.3}
"""Steps (:mod:`.effort`) that one list schedule takes for each link of a route; a round of justification makes two."""

BUSY = 0.5
"""Load of a busy link, as a share of the highest load of a link, see :meth:`SchedulingProblem.with_lanes`."""

HALVINGS = 50
"""Halvings of an interval in which a time is sought."""

LEAST_S = 1e-300
"""Seconds of a transfer of no bytes."""

KERNEL_STEPS = 500.0
"""Steps of the kernels' inner loops for each transfer."""


@dataclass(frozen=True)
class Limits:
    """Rounds of justification at most, and the budget with which those after the first end."""

    rounds: int
    budget: Budget


@dataclass(frozen=True)
class SchedulingProblem:
    """Transfers to be scheduled, which wait for their links and for each other."""

    route: Ragged  # the links of each transfer
    link_count: int
    seconds: Float64  # float64[transfers], on each link
    lag: Float64  # float64[transfers], seconds from source to the last receiver
    hop_delay: Float64  # float64[links of routes], how much later than the transfer starts each link carries it
    hop_share: Float64  # float64[links of routes], the part of the link that the transfer takes
    predecessors: Ragged  # for each transfer those that it waits for
    successors: Ragged  # for each transfer those that wait for it
    mirrored: SchedulingProblem | None = None  # of which this is the same with time reversed

    @classmethod
    def of(cls, plan: Plan, rows: Int64) -> SchedulingProblem:
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

    def with_shares(self, topology: Topology, size: Int64) -> SchedulingProblem:
        """The same where every route is a link of its own: a share of its links, in proportion to its bytes over the
        time in which it has something to carry.

        A route has nothing to carry until data comes to it, nor while what it brought travels on. If it loses w seconds
        by that, and keeps its link busy for b alone, its share is b / (T - w), where T is such that the shares of the
        link add up to 1. With shares in proportion to bytes alone a plan ends later by the largest w. On each link a
        message counts as the bytes that the link carries in the message's cost.
        """
        links, owners = self.route.values, self.route.owners
        work: Float64 = size[owners] / topology.bandwidth[links] + topology.message_s[links]
        number = route_numbers(self.route)
        place = np.arange(len(links)) - self.route.offsets[owners]
        _, first, hop = np.unique(
            number[owners].astype(np.int64) * (int(place.max()) + 1) + place, return_index=True, return_inverse=True
        )
        busy_s = np.maximum(np.bincount(hop, work), LEAST_S)
        link, route = links[first], number[owners[first]]

        def losing(lost_s: Float64) -> SchedulingProblem:
            span_s = _ends_s(link, busy_s, lost_s)[link] - lost_s
            seconds = self.route.reduced(np.maximum, work * (span_s / busy_s)[hop])
            return replace(
                self, route=Ragged.single(number), link_count=int(number.max()) + 1, hop_delay=np.zeros(len(size)),
                hop_share=np.ones(len(size)), seconds=seconds, mirrored=None,
            )  # fmt: skip

        return losing(losing(np.zeros_like(busy_s)).lost_s[route])

    @property
    def lost_s(self) -> Float64:
        """float64[links], where every route is a link of its own: seconds for which it has nothing to carry, half-way
        between what its first and last transfers lose and what all lose on average."""
        number, before_s = self.route.values, self.flipped().chain_s[::-1] - self.seconds - self.lag
        after_s = self.chain_s - self.seconds
        first_s, last_s = np.full(self.link_count, np.inf), np.full(self.link_count, np.inf)
        np.minimum.at(first_s, number, before_s)
        np.minimum.at(last_s, number, after_s)
        carries_s = np.bincount(number, self.seconds)
        mean_s = np.bincount(number, (before_s + after_s) * self.seconds) / np.maximum(carries_s, LEAST_S)
        lost_s: Float64 = (first_s + last_s + mean_s) / 2
        return lost_s

    def with_lanes(self, busy_s: Float64) -> SchedulingProblem:
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
        use = places_of(lane[owners] * self.link_count + links)
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
            hop_share=np.where(is_lane, 1.0, (busy_s / seconds[owners])[hop]), mirrored=None,
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

    def justified(self, start: Float64, release_s: Float64, target_s: float, limits: Limits) -> Float64:
        """Starts improved by reversing time and back, while a round gains ``GAIN``, the way forward anything at all."""
        free, count, mirrored = bool((release_s == 0).all()), len(self.route.values), self.reversed()
        for number in range(limits.rounds):
            if self.end_s(start) <= target_s or (number and not limits.budget.allows(serve=2 * count)):
                break
            end = start + self.seconds + self.lag
            order = np.argsort(-end, kind="stable")
            late = mirrored.list_schedule(order, np.zeros_like(release_s), limits.budget)
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
        budget.spend(serve=len(self.route.values))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        links, work = self.route.values.astype(np.int64), KERNEL_STEPS * len(order)
        jobs = Jobs(
            self.seconds, self.lag, release_s, self.successors.offsets, self.successors.values.astype(np.int64),
            self.predecessors.lengths,
        )  # fmt: skip
        if len(links) == len(order):
            return at_speed(kernel_dispatch.schedule_single_links, work)(rank, jobs, links, self.link_count)
        routes = Routes(self.route.offsets, links, self.hop_delay, self.hop_share, self.queue, self.alike)
        return at_speed(kernel_dispatch.schedule, work)(rank, jobs, routes, self.link_count)

    @cached_property
    def queue(self) -> Int64:
        """int64[links of routes], a number for each link and delay."""
        return places_of(places_of(self.hop_delay) * self.link_count + self.route.values)

    @cached_property
    def alike(self) -> Int64:
        """int64[transfers], the same number for those over the same links that take as long, and as much of these."""
        if self.mirrored is not None:
            return self.mirrored.alike
        number = route_numbers(self.route).astype(np.int64)
        for column in (self.seconds, self.route.reduced(np.add, self.hop_share)):
            values = places_of(column)
            number = places_of(number * (int(values.max(initial=0)) + 1) + values)
        return number

    @cached_property
    def chain_s(self) -> Float64:
        """float64[transfers], the seconds of the longest chain that begins with each."""
        return at_speed(kernel_dispatch.longest_chains, KERNEL_STEPS * len(self.seconds))(
            self.seconds + self.lag, self.successors.offsets, self.successors.values.astype(np.int64)
        )

    def reversed(self) -> SchedulingProblem:
        """The same with time reversed."""
        hop_delay = np.repeat(self.lag, self.route.lengths) - self.hop_delay
        return replace(
            self, hop_delay=hop_delay, predecessors=self.successors, successors=self.predecessors, mirrored=self
        )

    def flipped(self) -> SchedulingProblem:
        """The same with time and the numbers of transfers reversed, so that each still comes after those it awaits."""
        last = len(self.seconds) - 1
        order = np.arange(last, -1, -1)
        back = self.reversed()
        entry = self.route.with_values(np.arange(len(self.route.values))).take(order).values

        def renumbered(lists: Ragged) -> Ragged:
            taken = lists.take(order)
            return taken.with_values(last - taken.values)

        return SchedulingProblem(
            self.route.take(order), self.link_count, self.seconds[order], self.lag[order], back.hop_delay[entry],
            self.hop_share[entry], renumbered(back.predecessors), renumbered(back.successors),
        )  # fmt: skip

    def end_s(self, start: Float64) -> float:
        """When the last transfer arrives."""
        return float((start + self.seconds + self.lag).max())


def _ends_s(link: Int32, busy_s: Float64, lost_s: Float64) -> Float64:
    """float64[links], when each link can have carried what it must: the shares of its uses add up to 1 then.

    Args:
        link: int32[uses].
        busy_s, lost_s: float64[uses], how long a use keeps its link busy alone, and for how long it cannot use it.
    """
    low_s = np.zeros(int(link.max()) + 1)
    np.maximum.at(low_s, link, lost_s)
    high_s: Float64 = low_s + np.bincount(link, busy_s)
    for _ in range(HALVINGS):
        middle_s = (low_s + high_s) / 2
        full = np.bincount(link, busy_s / np.maximum(middle_s[link] - lost_s, LEAST_S), len(low_s)) > 1
        low_s, high_s = np.where(full, middle_s, low_s), np.where(full, high_s, middle_s)
    return high_s


def route_numbers(routes: Ragged) -> Int32:
    """int32[routes], a number for each route; the same number for routes over the same links."""
    most = int(routes.values.max()) + 2
    code, codes = np.zeros(routes.rows, dtype=np.int64), 1
    for place in range(int(routes.lengths.max())):
        if codes > (1 << 62) // most:
            code = places_of(code)
            codes = int(code.max()) + 1
        longer = np.flatnonzero(routes.lengths > place)
        code, codes = code * most, codes * most
        code[longer] += routes.values[routes.offsets[longer] + place] + 1
    return places_of(code).astype(np.int32)
