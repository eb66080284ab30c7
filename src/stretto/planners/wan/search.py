"""The search of :mod:`.wan`: priorities of flows, judged by running the plan at them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic as clock
from time import process_time

import numpy as np
from numpy.typing import NDArray

from ...model.plan import Plan
from ...simulate import SharedLinks
from .. import Progress
from .flows import Flows

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Candidate:
    """A way to share, and how good it is: what to minimise in seconds."""

    value: float
    plan: Callable[[], Plan]


class Judge:
    """Runs a plan at given priorities; arrays are made ready once."""

    def __init__(
        self, plan: Plan, flows: Flows, lag: Float64, goal: Callable[[Float64, Float64], float], runs: int
    ) -> None:
        self.plan, self.flows, self.lag, self.goal = plan, flows, lag, goal
        self.collective = flows.collective[flows.group]
        self.began = np.array([c.start_s for c in plan.workload.collectives])
        self.links = SharedLinks(plan, work=5.0 * len(flows.size) * flows.groups * runs)

    def shared(self, rank: NDArray[np.int64], weight: Float64) -> Float64:
        """float64[flows], when each ends where links are shared by class and weight."""
        return self.links.run(rank, weight)[1]

    def ends(self, finish: Float64) -> Float64:
        """float64[collectives]."""
        ends: Float64 = self.began.copy()
        np.maximum.at(ends, self.collective, finish + self.lag)
        return ends

    def value(self, finish: Float64) -> float:
        ends = self.ends(finish)
        return self.goal(ends, ends - self.began)

    def by_urgency(self, urgency: Float64) -> float:
        """How good these priorities are, the highest first."""
        return self.value(self._finish(urgency))

    def completions(self, urgency: Float64) -> Float64:
        """float64[collectives], at these priorities."""
        took: Float64 = self.ends(self._finish(urgency)) - self.began
        return took

    def _finish(self, urgency: Float64) -> Float64:
        rank = np.empty(len(urgency), dtype=np.int64)
        rank[np.lexsort((np.arange(len(urgency)), -urgency))] = np.arange(len(urgency))
        return self.shared(rank, np.ones(len(urgency)))


@dataclass(frozen=True)
class Point:
    """Where the search stands: due dates by collective and shifts by flow, seconds."""

    due: Float64
    shift: Float64


def descend(
    judge: Judge, base: Float64, firsts: list[Point], runs: int, seed: int, limit: float | None,
    progress: Progress | None,
) -> Candidate:  # fmt: skip
    """Descent by random moves from the best of a few points.

    Args:
        base: float64[flows], how urgent flows are before due dates and shifts.
    """
    rng = np.random.default_rng(seed)
    started = clock()
    span = float(np.ptp(base)) or 1.0

    def urgency(at: Point) -> Float64:
        value: Float64 = base - at.due[judge.collective] + at.shift
        return value

    at = firsts[0]
    value = judge.by_urgency(urgency(at))
    for tried in range(1, max(runs, len(firsts))):
        if limit is not None and clock() - started > limit:
            break
        if progress is not None:
            progress(tried, runs, "orders")
        other = firsts[tried] if tried < len(firsts) else _moved(at, judge.flows, span, rng)
        found = judge.by_urgency(urgency(other))
        if found <= value:
            at, value = other, found

    def made() -> Plan:
        place = np.empty(len(base))
        place[np.lexsort((-np.arange(len(base)), urgency(at)))] = np.arange(len(base))
        return sharing_by(judge.plan, judge.flows, "priorities", place)

    return Candidate(value, made)


def orders(judge: Judge, flows: Flows, remaining: Float64) -> list[Point]:
    """Collectives strictly one before the other, by four measures of how long each takes."""
    k = flows.collectives
    load = np.zeros((k, len(flows.width)))
    owners, links = flows.route.owners, flows.route.values
    np.add.at(load, (judge.collective[owners], links), flows.size[owners] / flows.width[links])
    longest = np.zeros(k)
    np.maximum.at(longest, judge.collective, remaining)
    alone = np.maximum(load.max(axis=1), longest)
    strict = 10 * float(remaining.max())
    return [
        Point(strict * np.argsort(np.argsort(measure, kind="stable")).astype(np.float64), np.zeros(len(remaining)))
        for measure in (judge.began + alone, load.sum(axis=1), load.max(axis=1), alone)
    ]


def _moved(at: Point, flows: Flows, span: float, rng: np.random.Generator) -> Point:
    """A random change: two collectives change places, one goes elsewhere or is due at another time, or
    some chains, or some flows, become more or less urgent.
    """
    due, shift = at.due.copy(), at.shift.copy()
    k = len(due)
    kind = int(rng.integers(7)) if k > 1 else int(rng.integers(4, 7))
    if kind < 2:
        a, b = rng.choice(k, 2, replace=False)
        due[a], due[b] = due[b], due[a]
    elif kind == 2:
        order = np.argsort(due, kind="stable").tolist()
        order.insert(int(rng.integers(k)), order.pop(int(rng.integers(k))))
        due[order] = np.sort(due)
    elif kind == 3:
        due[rng.integers(k)] += 0.5 * span * rng.normal()
    else:
        count = flows.groups if kind < 6 else len(shift)
        some = rng.random(count) < rng.choice([0.02, 0.1, 0.4])
        some[rng.integers(count)] = True
        by = np.where(some, span * rng.normal(size=count) * rng.choice([0.03, 0.1, 0.4]), 0.0)
        shift += by[flows.group] if kind < 6 else by
    return Point(due, shift)


def sharing_by(plan: Plan, flows: Flows, sharing: str, weight: Float64) -> Plan:
    """The plan, sharing by these weights and nothing else."""
    group = flows.group.astype(np.int32)
    return replace(plan, sharing=sharing, weight=weight, group=group, start_s=None, finish_s=None, rate=None)


def arrive(judge: Judge, remaining: Float64) -> tuple[Candidate, float]:
    """Orders as collectives arrive, of those to come nothing known; and the CPU seconds of the slowest decision.

    A collective that arrives takes the place among those before it at which they all end soonest
    on average. The others keep their order, so that nothing that has happened changes.
    """
    k = len(judge.began)
    strict = 10 * float(remaining.max())
    queue: list[int] = []
    slowest = 0.0
    for new in map(int, np.argsort(judge.began, kind="stable")):
        cpu = process_time()
        known = np.isin(np.arange(k), [*queue, new])

        def took(place: int, new: int = new, known: NDArray[np.bool_] = known) -> float:
            due = np.full(k, strict * k)
            due[[*queue[:place], new, *queue[place:]]] = strict * np.arange(len(queue) + 1)
            return float(judge.completions(remaining - due[judge.collective])[known].mean())

        queue.insert(min(range(len(queue) + 1), key=took), new)
        slowest = max(slowest, process_time() - cpu)
    due = np.empty(k)
    due[queue] = strict * np.arange(k)
    still = Point(due, np.zeros(len(remaining)))
    return descend(judge, remaining, [still], 1, 0, None, None), slowest
