"""The search of ``wan``: priorities of flows, judged by running the plan with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...model.arrays import Float64, Int64
from ...model.plan import Plan
from ...simulate import SharedLinks
from .. import Request
from .flows import Flows, with_sharing

STEPS_A_FLOW_AND_GROUP = 5.0
"""Steps of the simulator's inner loop in a run, for each flow and group of the plan, about."""

FLOW_GROUPS_A_STEP = 50
"""A run of the plan takes a step of effort for this many pairs of a flow and a group."""

STRICT = 10.0
"""Due dates that order collectives strictly are this many times the longest chain apart."""

REACHES = (0.02, 0.1, 0.4)
"""Parts of the chains or flows that a random move changes."""

SIZES = (0.03, 0.1, 0.4)
"""Standard deviations of such changes, in parts of the range of urgencies."""

DUE_SIZE = 0.5
"""Standard deviation of the change of a due date, in parts of the range of urgencies."""


@dataclass(frozen=True)
class Candidate:
    """A way to share links, and what it gives."""

    value: float  # what is minimised, seconds
    plan: Callable[[], Plan]  # makes the plan


class Judge:
    """Runs a plan with given priorities and says how good they are."""

    def __init__(self, flows: Flows, goal: Callable[[Float64, Float64], float], runs: int) -> None:
        """Prepare the runs.

        Args:
            goal: what is minimised, of the ends and the completions of collectives.
            runs: how often the plan will be run, about.
        """
        self.flows, self.goal = flows, goal
        self._links = SharedLinks(flows.plan, work=STEPS_A_FLOW_AND_GROUP * len(flows.size) * flows.groups * runs)

    def finish(self, rank: Int64, weight: Float64) -> Float64:
        """float64[flows], when each ends if the lowest rank goes first, and flows of one rank share by weight."""
        return self._links.run(rank, weight)[1]

    def finish_by_urgency(self, urgency: Float64) -> Float64:
        """float64[flows], when each ends if the most urgent goes first."""
        return self.finish(_places(np.argsort(-urgency, kind="stable")), np.ones(len(urgency)))

    def ends(self, finish: Float64) -> Float64:
        """float64[collectives], when the last flow of each has arrived."""
        return np.maximum(self.flows.latest(finish + self.flows.lag), self.flows.start_s)

    def value(self, finish: Float64) -> float:
        """What is minimised, for these ends of flows."""
        ends = self.ends(finish)
        return self.goal(ends, ends - self.flows.start_s)


def _places(order: Int64) -> Int64:
    """int64[flows], the place of each flow in an order."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place


@dataclass(frozen=True)
class Point:
    """A point of the search."""

    due: Float64  # float64[collectives], due dates, seconds
    shift: Float64  # float64[flows], what is added to the urgency of each flow, seconds


def descend(judge: Judge, base: Float64, starts: list[Point], runs: int, seed: int, request: Request) -> Candidate:
    """Descent by random moves from the best of a few points.

    Args:
        base: float64[flows], the urgencies without due dates and shifts, seconds.
        starts: the points to begin from.
        runs: how often the plan is run, unless there are more ``starts``.
        seed: of the moves.
    """
    flows, rng = judge.flows, np.random.default_rng(seed)
    span = float(np.ptp(base)) or 1.0

    def urgency(at: Point) -> Float64:
        value: Float64 = base - at.due[flows.flow_collective] + at.shift
        return value

    def judged(at: Point) -> float:
        return judge.value(judge.finish_by_urgency(urgency(at)))

    at = starts[0]
    least = judged(at)
    steps_a_run = len(base) * flows.groups / FLOW_GROUPS_A_STEP
    for i in range(1, max(runs, len(starts))):
        if request.budget.stop.fired:
            break
        request.tell(i, runs, "orders")
        other = starts[i] if i < len(starts) else _moved(at, flows, span, rng)
        value = judged(other)
        request.budget.charge(steps_a_run)
        if value <= least:
            at, least = other, value

    def plan() -> Plan:
        place = _places(np.lexsort((-np.arange(len(base)), urgency(at))))
        return with_sharing(flows.plan, "priorities", flows.group, weight=place.astype(np.float64))

    return Candidate(least, plan)


def strict_orders(flows: Flows) -> list[Point]:
    """Points at which collectives go strictly one before the other, by four measures of how long each takes."""
    load = np.zeros((flows.collectives, len(flows.width)))
    np.add.at(load, (flows.flow_collective[flows.owner], flows.link), flows.hop_seconds)
    alone = np.maximum(load.max(axis=1), flows.latest(flows.remaining))
    apart = STRICT * float(flows.remaining.max())
    return [
        Point(apart * _places(np.argsort(measure, kind="stable")).astype(np.float64), np.zeros(len(flows.size)))
        for measure in (flows.start_s + alone, load.sum(axis=1), load.max(axis=1), alone)
    ]


def _moved(at: Point, flows: Flows, span: float, rng: np.random.Generator) -> Point:
    """A random neighbour: two collectives change places, one collective moves to another place or gets another due
    date, or some chains or some flows become more or less urgent.
    """
    due, shift = at.due.copy(), at.shift.copy()
    k = len(due)
    move = int(rng.integers(7)) if k > 1 else int(rng.integers(4, 7))
    if move < 2:
        a, b = rng.choice(k, 2, replace=False)
        due[a], due[b] = due[b], due[a]
    elif move == 2:
        order = np.argsort(due, kind="stable").tolist()
        order.insert(int(rng.integers(k)), order.pop(int(rng.integers(k))))
        due[order] = np.sort(due)
    elif move == 3:
        due[rng.integers(k)] += DUE_SIZE * span * rng.normal()
    else:
        count = flows.groups if move < 6 else len(shift)
        changed = rng.random(count) < REACHES[rng.integers(len(REACHES))]
        changed[rng.integers(count)] = True
        by = np.where(changed, span * rng.normal(size=count) * SIZES[rng.integers(len(SIZES))], 0.0)
        shift += by[flows.group] if move < 6 else by
    return Point(due, shift)


def decide_online(judge: Judge, request: Request) -> Candidate:
    """Order collectives as they arrive, without knowledge of those to come.

    A collective that arrives gets the place among those before it at which they all end soonest on average. The others
    keep their order, so that nothing that has happened changes.
    """
    flows, remaining = judge.flows, judge.flows.remaining
    k = flows.collectives
    apart = STRICT * float(remaining.max())
    queue: list[int] = []
    for new in map(int, np.argsort(flows.start_s, kind="stable")):

        def mean_completion(place: int, new: int = new) -> float:
            order = [*queue[:place], new, *queue[place:]]
            due = np.full(k, apart * k)
            due[order] = apart * np.arange(len(order))
            ends = judge.ends(judge.finish_by_urgency(remaining - due[flows.flow_collective]))
            return float((ends - flows.start_s)[np.sort(order)].mean())

        queue.insert(min(range(len(queue) + 1), key=mean_completion), new)
        request.tell(len(queue), k, "arrivals")
    due: Float64 = apart * _places(np.array(queue)).astype(np.float64)
    return descend(judge, remaining, [Point(due, np.zeros(len(remaining)))], 1, 0, request)
