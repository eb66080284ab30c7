"""The search of ``wan``: priorities of flows, judged by running the plan with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ...model.arrays import Bool, Float64, Int64
from ...model.plan import Plan
from ...simulate import SharedLinks
from .. import Request
from .flows import Flows

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
    """A way to share links, and what it gives.

    Attributes:
        value: what is minimised, seconds.
        plan: makes the plan.
    """

    value: float
    plan: Callable[[], Plan]


class Judge:
    """Runs a plan with given priorities and says how good they are.

    Attributes:
        collective: int64[flows], the collective of each flow.
        start_s: float64[collectives], when each collective starts.
    """

    def __init__(
        self, plan: Plan, flows: Flows, lag: Float64, goal: Callable[[Float64, Float64], float], runs: int
    ) -> None:
        """Prepare the runs.

        Args:
            lag: float64[flows], latency from source to receiver.
            goal: what is minimised, of the ends and the completions of collectives.
            runs: how often the plan will be run, about.
        """
        self.plan, self.flows, self.lag, self.goal = plan, flows, lag, goal
        self.collective = flows.flow_collective
        self.start_s = np.array([c.start_s for c in plan.workload.collectives])
        self._links = SharedLinks(plan, work=STEPS_A_FLOW_AND_GROUP * len(flows.size) * flows.groups * runs)
        self._equal_weights = np.ones(len(flows.size))

    def finish(self, rank: Int64, weight: Float64) -> Float64:
        """float64[flows], when each ends if the lowest rank goes first, and flows of one rank share by weight."""
        return self._links.run(rank, weight)[1]

    def finish_by_urgency(self, urgency: Float64) -> Float64:
        """float64[flows], when each ends if the most urgent goes first."""
        rank = np.empty(len(urgency), dtype=np.int64)
        rank[np.argsort(-urgency, kind="stable")] = np.arange(len(urgency))
        return self.finish(rank, self._equal_weights)

    def ends(self, finish: Float64) -> Float64:
        """float64[collectives], when the last flow of each has arrived."""
        ends: Float64 = self.start_s.copy()
        np.maximum.at(ends, self.collective, finish + self.lag)
        return ends

    def value(self, finish: Float64) -> float:
        """What is minimised, for these ends of flows."""
        ends = self.ends(finish)
        return self.goal(ends, ends - self.start_s)

    def completions(self, urgency: Float64) -> Float64:
        """float64[collectives], the completions with these urgencies."""
        took: Float64 = self.ends(self.finish_by_urgency(urgency)) - self.start_s
        return took


@dataclass(frozen=True)
class Point:
    """A point of the search.

    Attributes:
        due: float64[collectives], due dates, seconds.
        shift: float64[flows], what is added to the urgency of each flow, seconds.
    """

    due: Float64
    shift: Float64


def descend(judge: Judge, base: Float64, starts: list[Point], runs: int, seed: int, request: Request) -> Candidate:
    """Descent by random moves from the best of a few points.

    Args:
        base: float64[flows], the urgencies without due dates and shifts, seconds.
        starts: the points to begin from.
        runs: how often the plan is run, unless there are more ``starts``.
        seed: of the moves.
    """
    rng = np.random.default_rng(seed)
    span = float(np.ptp(base)) or 1.0

    def urgency(at: Point) -> Float64:
        value: Float64 = base - at.due[judge.collective] + at.shift
        return value

    def judged(at: Point) -> float:
        return judge.value(judge.finish_by_urgency(urgency(at)))

    at = starts[0]
    least = judged(at)
    pairs = len(judge.flows.size) * judge.flows.groups
    for i in range(1, max(runs, len(starts))):
        if request.budget.stop.fired:
            break
        request.tell(i, runs, "orders")
        other = starts[i] if i < len(starts) else _moved(at, judge.flows, span, rng)
        value = judged(other)
        request.budget.charge(pairs / FLOW_GROUPS_A_STEP)
        if value <= least:
            at, least = other, value

    def plan() -> Plan:
        place = np.empty(len(base))
        place[np.lexsort((-np.arange(len(base)), urgency(at)))] = np.arange(len(base))
        return sharing_by(judge.plan, judge.flows, "priorities", place)

    return Candidate(least, plan)


def strict_orders(judge: Judge, remaining: Float64) -> list[Point]:
    """Points at which collectives go strictly one before the other, by four measures of how long each takes.

    Args:
        remaining: float64[flows], the time from each flow's start to the end of its chain.
    """
    flows = judge.flows
    k = flows.collectives
    load = np.zeros((k, len(flows.width)))
    owners, links = flows.route.owners, flows.route.values
    np.add.at(load, (judge.collective[owners], links), flows.size[owners] / flows.width[links])
    longest = np.zeros(k)
    np.maximum.at(longest, judge.collective, remaining)
    alone = np.maximum(load.max(axis=1), longest)
    apart = STRICT * float(remaining.max())
    return [
        Point(apart * np.argsort(np.argsort(measure, kind="stable")).astype(np.float64), np.zeros(len(remaining)))
        for measure in (judge.start_s + alone, load.sum(axis=1), load.max(axis=1), alone)
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


def sharing_by(plan: Plan, flows: Flows, sharing: str, weight: Float64) -> Plan:
    """The plan with these weights, float64[flows], and nothing else that shapes time."""
    group = flows.group.astype(np.int32)
    return replace(plan, sharing=sharing, weight=weight, group=group, start_s=None, finish_s=None, rate=None)


def decide_online(judge: Judge, remaining: Float64, request: Request) -> Candidate:
    """Order collectives as they arrive, without knowledge of those to come.

    A collective that arrives gets the place among those before it at which they all end soonest on average. The others
    keep their order, so that nothing that has happened changes.

    Args:
        remaining: float64[flows], the time from each flow's start to the end of its chain.
    """
    k = len(judge.start_s)
    apart = STRICT * float(remaining.max())
    queue: list[int] = []
    for new in map(int, np.argsort(judge.start_s, kind="stable")):
        arrived = np.isin(np.arange(k), [*queue, new])

        def mean_completion(place: int, new: int = new, arrived: Bool = arrived) -> float:
            due = np.full(k, apart * k)
            due[[*queue[:place], new, *queue[place:]]] = apart * np.arange(len(queue) + 1)
            return float(judge.completions(remaining - due[judge.collective])[arrived].mean())

        queue.insert(min(range(len(queue) + 1), key=mean_completion), new)
        request.tell(len(queue), k, "arrivals")
    due = np.empty(k)
    due[queue] = apart * np.arange(k)
    return descend(judge, remaining, [Point(due, np.zeros(len(remaining)))], 1, 0, request)
