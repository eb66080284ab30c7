"""List schedules of transfers that wait for each other: a plan in ready-order becomes a timed one.

Were links to serve what is ready first, a root's own data would hold up what it must pass on, and deep trees would end
late. Here a link carries the most urgent of the transfers that wait for it: the earliest part of the data, as all trees
advance together, and of that the transfer with the longest chain after it. Then the schedule is improved by
justification (:mod:`.scheduling_problem`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from ..model.arrays import Float64, Int64, Ragged
from ..model.messages import messages_of
from ..model.plan import COPY, REDUCE, Plan
from ..model.symmetric import SymmetricPlan
from .best import completion_s
from .effort import Budget
from .moments import delays, settled
from .scheduling_problem import COSTS, LEAST_S, Limits, SchedulingProblem

ROUNDS = 4
"""Rounds of justification at most, if the caller names no number."""

NEAR = 1.002
"""Times the busiest link's work: a schedule that ends by then is not improved further."""

SCHEDULES = 9
"""List schedules where routes have several links: each of three ways, and two for a round of justification of each."""

LEAST_GAIN = 1e-3
"""Share of the completion that :func:`by_urgency` must gain."""

IDLE = 1.02
"""Completion as a multiple of the busiest link's work from which shares of links are tried, too."""


def dispatch(
    plan: Plan,
    position: Float64,
    budget: Budget | None = None,
    *,
    rounds: int = ROUNDS,
    apart: bool | None = None,
    good_enough: float = NEAR,
    ways: Mapping[str, int] | None = None,
) -> Plan:
    """The plan with starts by urgency.

    Where both sums and copies occur, two ways are tried: all together, and, if no sum waits for a copy, the copies
    after the last sum, as ReduceScatter then AllGather would; ``meta["apart"]`` tells which one is taken. Where routes
    have several links, three ways are tried as well (:func:`_schedule`); ``meta["ways"]`` tells which ones end first.

    Args:
        position: float64[chunks], from 0 to 1: where in its data a chunk lies. Earlier chunks go first.
        budget: counts the list schedules; rounds of justification after the first end with it.
        rounds: of justification, at most.
        apart: whether copies come after the last sum; None to try both.
        good_enough: times the busiest link's work up to which shares of links are taken without trying the other ways.
        ways: ``meta["ways"]`` of a coarser plan: besides shares of links only these are tried.
    """
    turn, release_s = position[plan.chunk], plan.workload.chunk_start_s[plan.chunk]
    sums, copies = np.flatnonzero(plan.op == REDUCE), np.flatnonzero(plan.op == COPY)
    lag = delays(plan, np.arange(plan.transfer_count))[1]
    limits = Limits(rounds, (budget or Budget()).with_costs(COSTS))
    if ((plan.op[plan.depends.owners] == REDUCE) & (plan.op[plan.depends.values] == COPY)).any():
        apart = False
    start, seconds, end = release_s, np.zeros_like(release_s), np.inf
    ways, chosen = ways or {}, dict[str, int]()
    if not apart:
        every = np.arange(plan.transfer_count)
        start, seconds, chosen["all"] = _schedule(plan, every, turn, release_s, limits, good_enough, ways.get("all"))
        end = (start + seconds + lag).max()
    least_s = max(NEAR * busiest_link_s(plan), busiest_link_s(plan, sums) + busiest_link_s(plan, copies))
    if apart or (apart is None and len(sums) and len(copies) and end > least_s):
        sum_start, sum_seconds, chosen["sums"] = _schedule(
            plan, sums, turn[sums], release_s[sums], limits, good_enough, ways.get("sums")
        )
        half = (sum_start + sum_seconds + lag[sums]).max()
        later = np.maximum(release_s[copies] - half, 0.0)
        copy_start, copy_seconds, chosen["copies"] = _schedule(
            plan, copies, turn[copies], later, limits, good_enough, ways.get("copies")
        )
        apart = bool(half + (copy_start + copy_seconds + lag[copies]).max() < end)
        if apart:
            start, seconds = np.empty_like(lag), np.empty_like(lag)
            start[sums], seconds[sums] = sum_start, sum_seconds
            start[copies], seconds[copies] = half + copy_start, copy_seconds
    meta = {**plan.meta, "apart": bool(apart), "ways": chosen}
    return settled(replace(plan, meta=meta), start, seconds)


def by_urgency(plan: Plan, budget: Budget) -> Plan:
    """The plan with times by which links serve what is most urgent first, if it ends sooner by these.

    What is ready first may take links for which much else waits. A message goes as a whole. A plan stays as it is that
    has such times already, is alike for all ranks, shares links in another way, has barriers or optical planes, is for
    bandwidths that change, or has too many transfers for the budget.
    """
    if isinstance(plan, SymmetricPlan) or plan.sharing not in ("ready-order", "timed") or not plan.transfer_count:
        return plan
    if plan.barriers or plan.topology.planes or plan.topology.changes:
        return plan
    links, single = len(plan.route.values), bool((plan.route.lengths == 1).all())
    tried = plan.sharing == "timed" and "ways" in plan.meta
    if tried or not budget.with_costs(COSTS).allows(serve=SCHEDULES * links / (3 if single else 1)):
        return plan
    messages, collectives = messages_of(plan), plan.workload.collectives
    position = np.concatenate([c.chunk_offset / np.maximum(c.piece_bytes[c.chunk_piece], 1) for c in collectives])
    timed = dispatch(plan if messages is None else messages.merged, position, budget)
    assert timed.start_s is not None and timed.finish_s is not None, "dispatched"
    of = np.arange(plan.transfer_count) if messages is None else messages.of
    served = replace(plan, sharing="timed", start_s=timed.start_s[of], finish_s=timed.finish_s[of], meta=timed.meta)
    return served if completion_s(served) < (1 - LEAST_GAIN) * completion_s(plan) else plan


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
    problem = SchedulingProblem(route, links, seconds, lag_s, delay_s, taken, depends, depends.turned())
    start = problem.by_chain(turn, backward)
    least_s = float(np.bincount(route.values, busy_s).max())
    if not share or problem.end_s(start) <= IDLE * least_s or len(seconds) == len(route.values):
        return start, seconds
    other = problem.with_lanes(busy_s)
    again = other.by_chain(turn, backward)
    return (again, other.seconds) if other.end_s(again) < problem.end_s(start) else (start, seconds)


def dispatch_by_deadlines(plan: Plan, sums_s: Float64, copies_s: float, budget: Budget | None = None) -> Plan:
    """The plan with starts by the latest moment at which each transfer can begin and its chain end in time.

    Every route has a share of its links for itself, see :meth:`.SchedulingProblem.with_shares`.

    Args:
        sums_s: float64[chunks], by when all sums of a chunk are to be made.
        copies_s: by when all copies are.
        budget: as in :func:`dispatch`.
    """
    latest_s = np.empty(plan.transfer_count)
    for op, by_s in ((REDUCE, sums_s[plan.chunk]), (COPY, np.full(plan.transfer_count, copies_s))):
        rows = np.flatnonzero(plan.op == op)
        latest_s[rows] = by_s[rows] - SchedulingProblem.of(plan, rows).chain_s
    release_s = plan.workload.chunk_start_s[plan.chunk]
    limits = Limits(2, (budget or Budget()).with_costs(COSTS))
    start, seconds, _ = _schedule(plan, np.arange(plan.transfer_count), latest_s, release_s, limits, np.inf)
    return settled(plan, start, seconds)


def busiest_link_s(plan: Plan, rows: Int64 | None = None) -> float:
    """Seconds for which the busiest link carries these transfers (by default all): no order of them ends sooner."""
    size = np.zeros(plan.transfer_count)
    chosen = slice(None) if rows is None else rows
    size[chosen] = plan.size_bytes[chosen]
    topology, links = plan.topology, plan.route.values
    messages = np.bincount(links, (size > 0)[plan.route.owners], topology.link_count)
    load = np.bincount(links, size[plan.route.owners], topology.link_count)
    return float((load / topology.bandwidth + messages * topology.message_s).max())


def _schedule(
    plan: Plan, rows: Int64, urgency: Float64, release_s: Float64, limits: Limits, good_enough: float,
    way: int | None = None,
) -> tuple[Float64, Float64, int]:  # fmt: skip
    """Starts and seconds of some transfers of a plan, as if there were no others; lower ``urgency`` goes first.

    Where routes have several links, there are three ways. Every route has a share of its links for itself, by its bytes
    and by how long it has something to carry. Or a transfer is as fast as the slowest link of its route, and takes a
    share of its faster links. Or routes over the same busy links have a share of these links together, and their
    transfers take turns.

    Args:
        good_enough: times the busiest link's work up to which no further way is tried.
        way: the only one that is tried besides the first, by its number; None to try all.
    Returns:
        Besides starts and seconds the number of the way.
    """
    problem, busiest_s = SchedulingProblem.of(plan, rows), busiest_link_s(plan, rows)
    # sums alone are copies with time reversed
    backward = bool((plan.op[rows] == REDUCE).all() and (release_s == 0).all())
    links, size = problem.route.values, plan.size_bytes[rows]
    busy_s = size[problem.route.owners] / plan.topology.bandwidth[links] + plan.topology.message_s[links]
    if (plan.route.lengths == 1).all():
        problems = [lambda: problem]
    else:
        shared, lanes = partial(problem.with_shares, plan.topology, size), partial(problem.with_lanes, busy_s)
        problems = [shared, lambda: problem, lanes]
    best, best_s, first_s = None, np.inf, np.inf
    for number in range(len(problems)) if way is None else sorted({0, way}):
        if best is not None and best_s <= good_enough * busiest_s:
            break
        other = problems[number]()
        begin = other.by_urgency(urgency, release_s, limits.budget, backward)
        first_s = min(first_s, other.end_s(begin)) if best is None else first_s
        if best is None or other.end_s(begin) < first_s:
            begin = other.justified(begin, release_s, NEAR * busiest_s, limits)
            if other.end_s(begin) < best_s:
                best, best_s = (begin, other.seconds, number), other.end_s(begin)
    assert best is not None, "one way"
    return best
