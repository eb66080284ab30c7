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
from contextlib import suppress
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...model.errors import Infeasible, InputError
from ...model.plan import Plan
from ...solvers.disjunctive import Schedule
from .. import Option, Progress, over_links, refiner
from . import rate_alloc, weight_alloc
from .bound import flow_bound, lags, ways
from .flows import KINDS, Flows, flows_of, noted, with_times
from .lists import list_schedule
from .nonconcurrent import improve, jobs_of
from .proof import Windows, least_last, least_mean
from .search import Candidate, Judge, Point, arrive, descend, orders, sharing_by

Float64 = NDArray[np.float64]

WORK = 5e7
"""Steps (flows x groups x runs) that a search may take by default, about a second."""

MOST_RUNS = 2000

LEAST_RUNS = 4
"""Where fewer are affordable a run takes seconds: one order and fair sharing are compared, nothing else."""

EXACT_UP_TO, EXACT_S = 200, 1.0
"""Up to so many flows an exact non-concurrent schedule is looked for, for so many seconds where no limit is given."""

OPTIONS = (
    Option("objective", str, "mean", "of completions: their mean, the last end, or the longest",
           ("mean", "makespan", "tail")),
    Option("weights", str, "", "of the mean, one a collective, by comma"),
    Option("online", bool, False, "decide as collectives arrive, knowing nothing of those to come"),
    Option("runs", int, -1, "how many plans to try; -1 for about a second's worth"),
    Option("proof", int, -1, "how many times windows are narrowed for the bound; -1 for about half a second's worth"),
)  # fmt: skip


@refiner(
    name="wan",
    collectives=KINDS,
    topologies="any without planes",
    paper="none; after Wang, Craps, Li",
    alone=("ring",),
    options=OPTIONS,
    serves=over_links,
)
def wan(
    plan: Plan, *, seed: int = 0, time_limit_s: float | None = None, progress: Progress | None = None,
    objective: str = "mean", weights: str = "", online: bool = False, runs: int = -1,
    proof: int = -1,
) -> Plan:  # fmt: skip
    """The least average completion found, by priorities, with a bound on what is possible.

    Args:
        seed: of the moves.
        time_limit_s: no further plan is tried after it (then equal requests may differ).
        objective, weights, online, runs, proof: see ``OPTIONS``.
    Returns:
        A plan that shares by priorities (or in another way, where that is better). Its ``meta`` has
        ``objective_s``, ``objective_bound_s`` (that no sharing beats) and ``objective_over_bound``;
        of the mean of at most ``EXACT_UP_TO`` flows also ``non_concurrent_bound_s``, which only
        schedules of one flow a link at a time cannot beat (sharing may), the ratio to it, and
        ``non_concurrent_optimal``: whether the best such schedule was found and proven.
    """
    flows = flows_of(plan)
    share = _shares(weights, flows.collectives)
    lag = lags(plan)
    affordable = int(WORK / (len(flows.size) * flows.groups))
    huge = runs < 0 and affordable < LEAST_RUNS
    if runs < 0:
        runs = 1 if huge else min(MOST_RUNS, affordable)
    judge = Judge(plan, flows, lag, _goal(objective, share), runs)
    remaining = ways(plan, flows, lag)[1] + flows.seconds
    said: dict[str, float | bool] = {}
    if online:
        best, said["slowest_decision_cpu_s"] = arrive(judge, remaining)
    else:
        firsts = orders(judge, flows, remaining)
        best = descend(judge, remaining, firsts[:1] if huge else firsts, runs, seed, time_limit_s, progress)
        starts = [] if huge else list(list_schedule(plan, flows, lag))
        exact = _exact(plan, flows, lag, starts, seed, time_limit_s) if len(flows.size) <= EXACT_UP_TO else None
        for other in _others(plan, flows, judge, starts, exact, 0 if huge else runs, seed, time_limit_s):
            if other.value < best.value:
                best = other
        if exact is not None and objective == "mean" and not weights:
            said |= _among_schedules(exact, best.value, float(judge.began.mean()))
    least = _least(plan, flows, lag, share, objective, best.value, proof)
    said |= {"objective_s": best.value, "objective_bound_s": least, "objective_over_bound": best.value / least}
    return noted(best.plan(), **said)


def _shares(weights: str, collectives: int) -> Float64:
    """float64[collectives] that add up to 1."""
    if not weights:
        return np.full(collectives, 1.0 / collectives)
    try:
        given = np.array([float(w) for w in weights.split(",")])
    except ValueError:
        given = np.zeros(0)
    if len(given) != collectives or not (np.isfinite(given) & (given > 0)).all():
        raise InputError(f"{weights!r} is not {collectives} numbers above 0 by comma", "option weights")
    shares: Float64 = given / given.sum()
    return shares


def _goal(objective: str, share: Float64) -> Callable[[Float64, Float64], float]:
    """What is minimised, of the ends and the completions of collectives (float64[collectives] each)."""
    if objective == "mean":
        return lambda ends, took: float(share @ took)
    if objective == "makespan":
        return lambda ends, took: float(ends.max())
    return lambda ends, took: float(took.max())


def _value(candidate: Candidate) -> float:
    return candidate.value


def _least(
    plan: Plan, flows: Flows, lag: Float64, share: Float64, objective: str, value: float, proof: int
) -> float:  # fmt: skip
    """Below which what is minimised cannot be however links are shared, seconds; ``value`` was found."""
    bound = flow_bound(plan, flows, lag, share)
    began = np.array([c.start_s for c in plan.workload.collectives])
    windows = Windows(plan, flows, lag, proof)
    if objective == "mean":
        return least_mean(windows, bound.mean_s, value, began, share)
    if objective == "makespan":
        return least_last(windows, bound.last_s, value, np.zeros(len(began)))
    return least_last(windows, max(bound.mean_s, bound.last_s - began.max()), value, began)


def _others(
    plan: Plan, flows: Flows, judge: Judge, starts: list[Float64], exact: Schedule | None, runs: int, seed: int,
    limit: float | None,
) -> Iterator[Candidate]:  # fmt: skip
    """What other schemes make of the same flows: max-min fair, by weights, and one flow a link at a time.

    Without ``runs``, only the first of them.
    """
    everyone = np.zeros(len(flows.size), dtype=np.int64)
    columns = [np.ones(len(flows.size))]
    if runs > 0:
        columns.append(weight_alloc.allocate(flows, 50)[0][flows.group])
        with suppress(Infeasible):
            columns.append(rate_alloc.allocate(flows, limit)[0])
    for column in columns:
        value = judge.value(judge.shared(everyone, column))
        yield Candidate(value, partial(sharing_by, plan, flows, "fair", column))
    if exact is not None:
        starts = [*starts, exact.start]
        # the orders of schedules are other places to begin from, with nothing left idle
        still = Point(np.zeros(flows.collectives), np.zeros(len(flows.size)))
        for i, start in enumerate(starts):
            yield descend(judge, -start, [still], runs, seed + i, limit, None)
    for start in starts:
        value = judge.value(start + flows.seconds)
        yield Candidate(value, partial(with_times, plan, start, flows.seconds))


def _exact(
    plan: Plan, flows: Flows, lag: Float64, starts: list[Float64], seed: int, limit: float | None
) -> Schedule:  # fmt: skip
    """The best schedule of one flow a link at a time that CP-SAT finds from the best of ``starts`` on."""
    jobs = jobs_of(plan, flows, lag, flows.seconds)
    return improve(jobs, min(starts, key=jobs.value), "cp-sat", EXACT_S if limit is None else limit, seed)


def _among_schedules(exact: Schedule, value: float, began: float) -> dict[str, float | bool]:
    """How the answer stands beside the schedules of one flow a link at a time."""
    least = exact.bound - began
    said: dict[str, float | bool] = {"non_concurrent_bound_s": max(least, 0.0), "non_concurrent_optimal": exact.optimal}
    return said | ({"objective_over_non_concurrent": value / least} if least > 0 else {})
