"""wan: collectives over fixed routes one before the other, and each by its longest remaining chain.

Links are shared by priority and nothing stays idle: of the active flows the most urgent gets all
that its route has, the next what is left. Urgency is the time that a flow's chain still takes after
it, less a due date of its collective: far apart, due dates order collectives strictly; equal,
only chains count. Due dates and small shifts of chains are searched: descent over random moves,
each judged by running the plan. What other schemes make of the same flows is judged too, so
``wan`` is never worse than they.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic as clock

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from ..errors import InputError
from ..plan import Plan
from . import Option, Progress, rate_alloc, refiner, weight_alloc
from .flows import KINDS, Flows, flows_of, noted, with_times
from .lists import list_schedule
from .nonconcurrent import improve, jobs_of
from .wan_bound import FlowBound, flow_bound, lags, ways

Float64 = NDArray[np.float64]

WORK = 6e7
"""Steps (flows x groups x runs) that a search may take by default, about a second."""

MOST_RUNS = 2000

EXACT_UP_TO, EXACT_S = 200, 1.0
"""Up to so many flows an exact non-concurrent schedule is tried for so many seconds."""

OPTIONS = (
    Option("objective", str, "mean", "of completions: their mean, the last end, or the longest",
           ("mean", "makespan", "tail")),
    Option("weights", str, "", "of the mean, one a collective, by comma"),
    Option("runs", int, -1, "how many plans to try; -1 for about a second's worth"),
)  # fmt: skip


@refiner(
    name="wan",
    collectives=KINDS,
    topologies="any without planes",
    paper="none; after Wang, Craps, Li",
    after="ring",
    options=OPTIONS,
)
def wan(
    plan: Plan, *, seed: int = 0, time_limit_s: float | None = None, progress: Progress | None = None,
    objective: str = "mean", weights: str = "", runs: int = -1,
) -> Plan:  # fmt: skip
    """The least average completion found, by priorities, with a bound on what is possible.

    Args:
        seed: of the moves.
        time_limit_s: no further plan is tried after it (then equal requests may differ).
        objective, weights, runs: see ``OPTIONS``.
    Returns:
        A plan that shares by priorities (or in another way, where that is better). Its ``meta`` has
        ``objective_s``, ``objective_bound_s`` (that no sharing beats) and ``objective_over_bound``.
    """
    flows = flows_of(plan)
    share = _shares(weights, flows.collectives)
    lag = lags(plan)
    if runs < 0:
        runs = int(min(MOST_RUNS, max(20, WORK / (len(flows.size) * flows.groups))))
    judge = _Judge(plan, flows, lag, _goal(objective, share), runs)
    remaining = ways(plan, flows, lag)[1] + flows.seconds
    first = _orders(judge, flows, remaining)
    best = _search(judge, remaining, first, runs, seed, time_limit_s, progress)
    for other in _others(plan, flows, judge, runs, seed, time_limit_s):
        if other.value < best.value:
            best = other
    bound = flow_bound(plan, flows, lag, share)
    least = bound.mean_s if objective == "mean" else _last_bound(plan, bound, objective)
    return noted(best.plan(), objective_s=best.value, objective_bound_s=least, objective_over_bound=best.value / least)


def _shares(weights: str, collectives: int) -> Float64:
    """float64[collectives] that add up to 1."""
    if not weights:
        return np.full(collectives, 1.0 / collectives)
    try:
        given = np.array([float(w) for w in weights.split(",")])
    except ValueError:
        given = np.zeros(0)
    if len(given) != collectives or not (np.isfinite(given) & (given > 0)).all():
        raise InputError(f"{weights!r} is not {collectives} numbers above 0 by comma", "--option weights")
    shares: Float64 = given / given.sum()
    return shares


def _goal(objective: str, share: Float64) -> Callable[[Float64, Float64], float]:
    """What is minimised, of the ends and the completions of collectives (float64[collectives] each)."""
    if objective == "mean":
        return lambda ends, took: float(share @ took)
    if objective == "makespan":
        return lambda ends, took: float(ends.max())
    return lambda ends, took: float(took.max())


def _last_bound(plan: Plan, bound: FlowBound, objective: str) -> float:
    if objective == "makespan":
        return bound.last_s
    return bound.last_s - max(c.start_s for c in plan.workload.collectives)


@dataclass(frozen=True)
class _Candidate:
    """A way to share, and how good it is: what to minimise in seconds."""

    value: float
    plan: Callable[[], Plan]


class _Judge:
    """Runs a plan at given priorities; arrays are made ready once."""

    def __init__(
        self, plan: Plan, flows: Flows, lag: Float64, goal: Callable[[Float64, Float64], float], runs: int
    ) -> None:
        self.plan, self.flows, self.lag, self.goal = plan, flows, lag, goal
        self.collective = flows.collective[flows.group]
        self.began = np.array([c.start_s for c in plan.workload.collectives])
        self.asked = plan.workload.chunk_start_s[plan.chunk]
        self.kernel = kernels.load("fluid", 5.0 * len(flows.size) * flows.groups * runs)
        t = plan.topology
        _, self.delay = self.kernel.delays(
            plan.src, plan.dst.offsets, plan.dst.values, plan.route.offsets, plan.route.values,
            t.src, t.dst, t.latency_s, t.node_count,
        )  # fmt: skip

    def shared(self, rank: NDArray[np.int64], weight: Float64) -> Float64:
        """float64[flows], when each ends where links are shared by class and weight."""
        plan = self.plan
        _, finish = self.kernel.run(
            plan.src, plan.dst.offsets, plan.dst.values, plan.route.offsets, plan.route.values, self.delay,
            plan.depends.offsets, plan.depends.values, self.flows.size, self.asked, rank, weight,
            self.flows.width, np.zeros(0), np.zeros((0, len(self.flows.width))),
        )  # fmt: skip
        done: Float64 = finish
        return done

    def value(self, finish: Float64) -> float:
        ends = self.began.copy()
        np.maximum.at(ends, self.collective, finish + self.lag)
        return self.goal(ends, ends - self.began)

    def by_urgency(self, urgency: Float64) -> float:
        """How good these priorities are, the highest first."""
        rank = np.empty(len(urgency), dtype=np.int64)
        rank[np.lexsort((np.arange(len(urgency)), -urgency))] = np.arange(len(urgency))
        return self.value(self.shared(rank, np.ones(len(urgency))))


@dataclass(frozen=True)
class _Point:
    """Where the search stands: due dates by collective and shifts by flow, seconds."""

    due: Float64
    shift: Float64


def _search(
    judge: _Judge, base: Float64, firsts: list[_Point], runs: int, seed: int, limit: float | None,
    progress: Progress | None,
) -> _Candidate:  # fmt: skip
    """Descent by random moves from the best of a few points.

    Args:
        base: float64[flows], how urgent flows are before due dates and shifts.
    """
    rng = np.random.default_rng(seed)
    started = clock()
    span = float(np.ptp(base)) or 1.0

    def urgency(at: _Point) -> Float64:
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
        return _bare(judge.plan, judge.flows, "priorities", place)

    return _Candidate(value, made)


def _orders(judge: _Judge, flows: Flows, remaining: Float64) -> list[_Point]:
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
        _Point(strict * np.argsort(np.argsort(measure, kind="stable")).astype(np.float64), np.zeros(len(remaining)))
        for measure in (judge.began + alone, load.sum(axis=1), load.max(axis=1), alone)
    ]


def _moved(at: _Point, flows: Flows, span: float, rng: np.random.Generator) -> _Point:
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
    return _Point(due, shift)


def _bare(plan: Plan, flows: Flows, sharing: str, weight: Float64) -> Plan:
    """The plan, sharing by these weights and nothing else."""
    group = flows.group.astype(np.int32)
    return replace(plan, sharing=sharing, weight=weight, group=group, start_s=None, finish_s=None, rate=None)


def _others(
    plan: Plan, flows: Flows, judge: _Judge, runs: int, seed: int, limit: float | None
) -> Iterator[_Candidate]:  # fmt: skip
    """What other schemes make of the same flows: max-min fair, by weights, and one flow a link at a time."""
    everyone = np.zeros(len(flows.size), dtype=np.int64)
    rates, _ = rate_alloc.allocate(flows)
    weight = weight_alloc.allocate(flows, 50)[0][flows.group]
    for column in (np.ones(len(flows.size)), rates, weight):
        value = judge.value(judge.shared(everyone, column))
        yield _Candidate(value, partial(_bare, plan, flows, "fair", column))
    starts = list(list_schedule(plan, flows, judge.lag))
    if len(flows.size) <= EXACT_UP_TO:
        jobs = jobs_of(plan, flows, judge.lag, flows.seconds)
        starts.append(improve(jobs, min(starts, key=jobs.value), "cp-sat", min(EXACT_S, limit or EXACT_S), seed).start)
        # the order of an exact schedule is another place to begin from, with nothing left idle
        still = _Point(np.zeros(flows.collectives), np.zeros(len(flows.size)))
        yield _search(judge, -starts[-1], [still], runs, seed, limit, None)
    for start in starts:
        value = judge.value(start + flows.seconds)
        yield _Candidate(value, partial(with_times, plan, start, flows.seconds))
