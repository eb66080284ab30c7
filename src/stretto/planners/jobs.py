"""jobs: several collectives, each with a plan of its own, and who goes first.

Each collective is planned alone by another planner (by default ``auto``), which chooses its routes and trees. The plans
are then put into one, the collectives in an order: the first one keeps its times, the next fills what links leave idle,
and so on (:mod:`stretto.schedule.insertion`). A collective that comes first in the order but starts later interrupts
those after it. What is minimised is the mean completion of collectives since their starts, by their weights. The search
for an order begins with the collective that is shortest for its weight (Smith 1956), which is optimal on one machine,
and tries other orders while the effort lasts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..model.arrays import Float64
from ..model.collective import Workload
from ..model.kinds import EVERY_KIND
from ..model.plan import Plan
from ..schedule.best import ask
from ..schedule.effort import COUNTED_COLLECTIVES, Budget
from ..schedule.insertion import Placing
from ..schedule.trees import divide
from ..simulate import simulate
from .registry import Candidate, Option, Request, over_links, register
from .run import plan_by

PLANNING_SHARE = 0.8
"""Share of the effort for the plans of single collectives; the rest is for their order."""

MOST_ORDERS = 200
"""Orders that are tried at most."""

SHORT_TRANSFERS, LATER = 8, 1.01
"""Transfers after one another in the time that a collective takes alone, at least, so that others may come between; and
how much longer it may take for that."""

GAIN = 1e-6
"""Share of the mean completion by which another order must be better."""

OPTIONS = (
    Option("planner", str, "auto", "what plans each collective alone: PLANNER[+REFINER...]"),
    Option("online", bool, False, "decide as collectives start, without knowledge of those to come"),
)


@register(
    "jobs", collectives=EVERY_KIND, topologies="any without planes", paper="our own; after Smith 1956",
    options=OPTIONS, messages=True, cuts=True, compares=True, serves=over_links,
    transfers=lambda request: 0,
    auto=Candidate(lambda request: 0.0, counts=True, leads=True, collectives_from=2),
)  # fmt: skip
def jobs(request: Request, *, planner: str = "auto", online: bool = False) -> Plan:
    """Each of several collectives by a plan of its own, the shortest first, the next in what that leaves idle.

    Args:
        planner, online: see :data:`OPTIONS`.
    Returns:
        A timed plan. Its ``meta`` has ``objective_s``, the mean completion by weight; ``one_by_one_s``, that mean where
        each collective begins when the one before it has ended, in the best order found; ``alone_s``, what each takes
        alone; ``planners``, what planned each; ``order``, the collectives from the most urgent one on, ``online`` as
        decided at the last start; and ``online``.
    """
    budget = request.budget.share(PLANNING_SHARE)
    return together(request, _plans_alone(request, planner, budget, online), online=online)


def together(request: Request, plans: Sequence[Plan], *, online: bool = False) -> Plan:
    """The plans of single collectives, each made as if it were alone and began at 0, put into one.

    Args:
        request: its collectives are those of the plans, in order; what is left of its budget is for their order.
        online: see :data:`OPTIONS`.
    Returns:
        As :func:`jobs`.
    """
    placing = Placing.of_plans(request.topology, request.workload, plans)
    schedule = _decide_online(placing, request) if online else _search(placing, request)
    facts = {
        "objective_s": schedule.value_s,
        "alone_s": placing.alone_s.tolist(),
        "order": list(schedule.order),
        "planners": [str(plan.meta.get("chosen", plan.meta.get("planner", ""))) for plan in plans],
        "online": online,
    }
    if not online:
        facts["one_by_one_s"] = _one_by_one(placing).value_s
    return replace(placing.with_starts(schedule.start), meta=facts)


@dataclass(frozen=True, eq=False)
class _Schedule:
    """Starts of all transfers, float64[transfers], the order that gave them, and the mean completion by weight."""

    start: Float64
    order: tuple[int, ...]
    value_s: float


def _plans_alone(request: Request, planner: str, budget: Budget, online: bool) -> list[Plan]:
    """A plan for each collective as if it were alone and began at 0; equal collectives share one.

    Online, what a collective may spend depends on those before it alone: half of what these left of the steps that a
    request of one collective would have.
    """
    collectives = request.workload.collectives
    keys = [c.alike for c in collectives]
    left = len(set(keys))
    if online:
        budget = budget.within(budget.left / min(left, COUNTED_COLLECTIVES))
    plans: dict[object, Plan] = {}
    inner = request.progress if left == 1 else None  # of several collectives each is a part
    for k in sorted(range(len(collectives)), key=lambda k: collectives[k].start_s):
        if keys[k] in plans:
            continue
        request.tell(len(plans), len(set(keys)), f"collective {k + 1} alone")
        share = budget.share(0.5 if online else 1 / left)
        one = Workload((replace(collectives[k], start_s=0.0, weight=1.0),))
        own = request.for_other_work(workload=one, budget=share, progress=inner, several_chunks=False)
        plan = plan_by(planner, own)
        plans[keys[k]] = _in_short_transfers(plan, own) if len(collectives) > 1 else plan
        left -= 1
    return [plans[key] for key in keys]


def _in_short_transfers(plan: Plan, request: Request) -> Plan:
    """What ``auto`` has planned, with pieces in more parts if no other collective can come between long transfers."""
    (c,), chosen = request.workload.collectives, plan.meta.get("chosen")
    course = simulate(plan)
    longest_s = float((course.finish_s - course.start_s).max(initial=0.0))
    parts = math.ceil(SHORT_TRANSFERS * longest_s / course.completion_s) if longest_s else 1
    if chosen is None or parts < 2 or parts * plan.transfer_count > request.budget.left:
        return plan
    own = request.for_other_work(workload=Workload((divide(c, parts)[0],)))
    finer = ask(str(chosen), partial(plan_by, str(chosen), own))
    if finer.plan is None or finer.score_s > course.completion_s * LATER:
        return plan
    return finer.plan.noted({**plan.meta, **finer.plan.meta})


def _search(placing: Placing, request: Request) -> _Schedule:
    """The best order that is found: from the best one of one by one, one collective moves at a time."""
    budget = request.budget
    tried: set[tuple[int, ...]] = set()
    serial = best = _one_by_one(placing)
    orders = iter([serial.order, *_first_orders(placing), *_neighbours(serial.order)])
    several = len(serial.order) > 1
    while (order := next(orders, None)) is not None and ((several and not tried) or placing.steps <= budget.left):
        if order in tried:
            continue
        tried.add(order)
        budget.charge(placing.steps)
        schedule = _schedule(placing, placing.in_order(order), order)
        if schedule.value_s < (1 - GAIN) * best.value_s:
            best, orders = schedule, _neighbours(order)
        if len(tried) == MOST_ORDERS:
            break
    return best


def _schedule(placing: Placing, start: Float64, order: tuple[int, ...]) -> _Schedule:
    return _Schedule(start, order, placing.plan.workload.mean_s(placing.completions_s(start)))


def _one_by_one(placing: Placing) -> _Schedule:
    """Each collective begins when the one before it has ended."""
    schedules = (_schedule(placing, placing.one_by_one(order), order) for order in _first_orders(placing))
    return min(schedules, key=lambda schedule: schedule.value_s)


def _first_orders(placing: Placing) -> list[tuple[int, ...]]:
    """By seconds alone over weight; by start."""
    work = placing.plan.workload
    numbers, ratio = range(len(work.collectives)), placing.alone_s / work.weights
    starts = [c.start_s for c in work.collectives]
    return [
        tuple(sorted(numbers, key=lambda k: (ratio[k], k))),
        tuple(sorted(numbers, key=lambda k: (starts[k], ratio[k], k))),
    ]


def _neighbours(order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Orders in which one collective has moved, to the nearest places first."""
    for distance in range(1, len(order)):
        for place in range(len(order) - distance):
            end = place + distance
            moved = order[place], *order[place + 1 : end], order[end]
            yield (*order[:place], *moved[1:], moved[0], *order[end + 1 :])
            if distance > 1:
                yield (*order[:place], moved[-1], *moved[:-1], *order[end + 1 :])


def _decide_online(placing: Placing, request: Request) -> _Schedule:
    """Starts where each decision knows the collectives that have started, and their order in the last decision.

    Whenever a collective starts, those that are not over are put in order by what is left of them: the share of their
    bytes whose transfers have not begun, of the seconds that they take alone, over their weight.
    """
    work = request.workload
    starts = np.array([c.start_s for c in work.collectives])
    size = placing.plan.size_bytes.astype(np.float64)
    total = np.bincount(placing.of, size, len(starts))
    order: tuple[int, ...] = ()
    start = np.full(len(placing.of), np.inf)
    for now in np.unique(starts).tolist():
        request.budget.charge(placing.steps)
        left = np.bincount(placing.of, size * (start >= now), len(starts)) / total * placing.alone_s / work.weights
        order = tuple(sorted(np.flatnonzero((starts <= now) & (left > 0)).tolist(), key=lambda k: (left[k], k)))
        start = placing.after(start, now, order)
    return _schedule(placing, start, order)
