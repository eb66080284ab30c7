"""When the transfers of all ranks go, by the times of a plan between sites.

A plan between sites takes it that inside a site all takes no time. So what crosses is a little later than planned. Were
it put off alone, it would wait for others that have taken its place on links between sites, and these for others. So in
one of the ways that are tried, transfers between sites that go the same way have a *lane*: one goes after the other, at
the rate that it has between sites, and what goes other ways is not in its way.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...model.arrays import Bool, Float64, Int64, Ragged, places_of
from ...model.messages import messages_of
from ...model.plan import Plan
from ...schedule.best import best
from ...schedule.effort import Budget
from ...schedule.moments import ends, settled
from ...schedule.scheduling_problem import Limits, SchedulingProblem, route_numbers
from ...simulate import simulate
from .contraction import Contraction

LEAST_ROOM = 0.5
"""Share of its links that a transfer inside a site takes at least, whatever crosses beside it."""

MOST_LISTED = 4_000
"""Messages of which a list schedule over all links is tried, at most: where many share links it takes long."""

ROUNDS = 3
"""Rounds of justification of a list schedule, at most."""


def timed(plan: Plan, start_s: Float64, seconds: Float64, net: Contraction, budget: Budget) -> Plan:
    """A plan with times: those that its transfers have between sites, or those of a list schedule.

    What ranks give to a door goes as soon as it can, or only when it is soon due: else what is due much later may keep
    a rank from sending to other sites.

    Args:
        plan: in ready-order.
        start_s, seconds: float64[transfers], before when each should not start and how long it takes at least, by the
            plan between sites; 0 seconds for those inside sites.
    """
    messages, rows = messages_of(plan), np.arange(plan.transfer_count)
    sent, first, of = (plan, rows, rows) if messages is None else (messages.merged, messages.first, messages.of)
    least = plan.topology.route_s(sent.route, sent.size_bytes)

    def starting(start_s: Float64, seconds: Float64) -> Plan:
        start_s = simulate(settled(sent, start_s, seconds)).start_s
        return replace(plan, sharing="timed", start_s=start_s[of], finish_s=ends(start_s, seconds)[of])

    start_s, crosses = start_s[first], seconds[first] > 0
    lane = _lanes(sent, crosses, net)
    takes = np.maximum(seconds[first], least)
    takes = np.where(crosses, takes, least / _room(sent, lane, takes))
    plans = [starting(each, takes) for each in (start_s, np.where(crosses, start_s, 0.0))]
    every, free_s = np.arange(len(least)), np.zeros(len(least))
    if crosses.any():
        by_lanes = _with_lanes(sent, lane, takes)
        plans.append(starting(by_lanes.list_schedule(np.argsort(start_s, kind="stable"), free_s, budget), takes))
    if len(least) <= MOST_LISTED:
        problem = SchedulingProblem.of(sent, every)
        listed_s = problem.list_schedule(every, free_s, budget)
        plans.append(starting(problem.justified(listed_s, free_s, 0.0, Limits(ROUNDS, budget)), least))
    return best(plans)


def _lanes(plan: Plan, crosses: Bool, net: Contraction) -> Int64:
    """int64[transfers], the same number for those that take the same way between sites; -1 for those inside."""
    between = np.full(plan.topology.link_count, -1, dtype=np.int32)
    between[net.links.values] = net.links.owners
    rows = np.flatnonzero(crosses)
    way = plan.route.take(rows)
    used = between[way.values] >= 0
    lane = np.full(plan.transfer_count, -1)
    if len(rows):
        lane[rows] = route_numbers(Ragged.grouped(way.owners[used], between[way.values[used]], len(rows)))
    return lane


def _room(plan: Plan, lane: Int64, seconds: Float64) -> Float64:
    """float64[transfers], the share of its links that each transfer finds free at any time beside those that cross.

    What goes inside a site at the full rate of a link would wait until nothing crosses over that link: a GPU that sends
    to other datacenters all the time would never pass on what it gets.

    Args:
        seconds: float64[transfers], how long each takes.
    """
    net, crossing = plan.topology, np.flatnonzero(lane >= 0)
    route = plan.route.take(crossing)
    of, links = crossing[route.owners], route.values
    share = (plan.size_bytes[of] / net.bandwidth[links] + net.message_s[links]) / seconds[of]
    # of each lane what takes most
    use = places_of(lane[of] * net.link_count + links)
    most, first = np.zeros(len(links)), np.unique(use, return_index=True)[1]
    np.maximum.at(most, use, share)
    taken = np.bincount(links[first], most[: len(first)], net.link_count)
    room: Float64 = np.maximum(1 - plan.route.reduced(np.maximum, taken[plan.route.values]), LEAST_ROOM)
    return room


def _with_lanes(plan: Plan, lane: Int64, seconds: Float64) -> SchedulingProblem:
    """The transfers where each way between sites is a link of its own, and those inside sites have their links."""
    crosses, count = lane >= 0, plan.topology.link_count
    one = np.where(crosses, 1, plan.route.lengths)
    owners = np.repeat(np.arange(len(lane)), one)
    links = np.where(crosses[owners], count + lane[owners], 0)
    links[~crosses[owners]] = plan.route.values[~crosses[plan.route.owners]]
    route = Ragged.grouped(owners, links.astype(np.int32), len(lane))
    return replace(
        SchedulingProblem.of(plan, np.arange(len(lane))), route=route, link_count=count + int(lane.max()) + 1,
        seconds=seconds, hop_delay=np.zeros(len(links)), hop_share=np.ones(len(links)),
    )  # fmt: skip
