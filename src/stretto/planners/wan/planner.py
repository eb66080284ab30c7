"""wan: collectives over fixed routes one before the other, and each by its longest remaining chain.

Links are shared by priority and nothing stays idle: the most urgent active flow gets all that its route has, the next
one what is left. The urgency of a flow is the time that its chain still takes after it, less a due date of its
collective: due dates far apart order collectives strictly; with equal ones only chains count. Due dates and shifts of
chains are searched by random moves, each judged by running the plan. The plans of the other schemes for the same flows
are judged too, so ``wan`` is never worse than they.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import numpy as np

from ...model.arrays import Float64
from ...model.errors import Infeasible, InputError
from ...model.plan import Plan
from ...solvers.disjunctive import Schedule
from .. import Option, Request
from . import rate_alloc, weight_alloc
from .bound import flow_bound
from .flows import Flows, flow_refiner, flows_of, with_meta, with_sharing, with_times
from .lists import list_schedules
from .nonconcurrent import improve, jobs_of
from .proof import Windows, least_last, least_mean
from .search import FLOW_GROUPS_A_STEP, Candidate, Judge, Point, decide_online, descend, strict_orders

SEARCH_STEPS = 1e6
"""Most steps of one descent: about a second."""

MOST_RUNS = 2000
"""Most runs of the plan in one descent."""

LEAST_RUNS = 4
"""Where fewer runs are affordable (a run takes seconds), one order and fair sharing are compared, nothing else."""

EXACT_UP_TO = 200
"""Most flows for which an exact non-concurrent schedule is looked for."""

EXACT_WORK = 1.0
"""Work of the solver for it by default, in units of about a second."""

PARTS = 8
"""Parts of a limited effort: one for each of six descents and the exact schedule; the bound gets the rest."""

OPTIONS = (
    Option("objective", str, "mean", "of completions: their mean, the last end, or the longest",
           ("mean", "makespan", "tail")),
    Option("weights", str, "", "weights of the mean, one for each collective, separated by commas"),
    Option("online", bool, False, "decide as collectives arrive, without knowledge of those to come"),
    Option("runs", int, -1, "runs of the plan in each descent; -1 for about a second's worth"),
    Option("solver_work", float, EXACT_WORK, "work of the solver of non-concurrent schedules, in about seconds"),
    Option("proof", int, -1, "how many times windows are narrowed for the bound; -1 for about half a second's worth"),
)  # fmt: skip


@flow_refiner("wan", "none; after Wang, Craps, Li", OPTIONS)
def wan(
    plan: Plan, request: Request, *, objective: str = "mean", weights: str = "", online: bool = False, runs: int = -1,
    solver_work: float = EXACT_WORK, proof: int = -1,
) -> Plan:  # fmt: skip
    """The least average completion that a search of priorities finds, with a bound for these fixed routes.

    Args:
        objective, weights, online, runs, solver_work, proof: see :data:`OPTIONS`.
    Returns:
        A plan that shares by priorities (or in another way, where that is better). Its ``meta`` has ``objective_s``,
        ``objective_bound_s`` (no sharing of these routes is below it; other routes may be) and
        ``objective_over_bound``. For the mean of at most ``EXACT_UP_TO`` flows it also has ``non_concurrent_bound_s``,
        which no schedule of one flow on a link at a time is below (sharing may be), the ratio to it, and
        ``non_concurrent_optimal``: whether the best such schedule is proven.
    """
    flows = flows_of(plan)
    share = _shares(weights, flows.collectives)
    steps = min(SEARCH_STEPS, request.budget.left / PARTS)
    affordable = int(steps * FLOW_GROUPS_A_STEP / (len(flows.size) * flows.groups))
    huge = runs < 0 and affordable < LEAST_RUNS
    if runs < 0:
        runs = 1 if huge else min(MOST_RUNS, affordable)
    judge = Judge(flows, _goal(objective, share), runs)
    facts: dict[str, float | bool] = {}
    if online:
        best = decide_online(judge, request)
    else:
        points = strict_orders(flows)
        best = descend(judge, flows.remaining, points[:1] if huge else points, runs, request.seed, request)
        starts = [] if huge else list_schedules(flows)
        small = len(flows.size) <= EXACT_UP_TO
        exact = _exact(flows, starts, solver_work, request) if small and starts else None
        candidates = _others(judge, starts, exact, 0 if huge else runs, request)
        best = min([best, *candidates], key=lambda c: c.value)
        if exact is not None and objective == "mean" and not weights:
            facts |= _among_schedules(exact, best.value, float(flows.start_s.mean()))
    bound = _bound(Windows(flows, proof, request.budget), share, objective, best.value)
    facts |= {"objective_s": best.value, "objective_bound_s": bound, "objective_over_bound": best.value / bound}
    return with_meta(best.plan(), **facts)


def _shares(weights: str, collectives: int) -> Float64:
    """float64[collectives] that add up to 1."""
    if not weights:
        return np.full(collectives, 1.0 / collectives)
    try:
        given = np.array([float(w) for w in weights.split(",")])
    except ValueError:
        given = np.zeros(0)
    if len(given) != collectives or not (np.isfinite(given) & (given > 0)).all():
        raise InputError(f"{weights!r} is not {collectives} numbers above 0, separated by commas", "option weights")
    shares: Float64 = given / given.sum()
    return shares


def _goal(objective: str, share: Float64) -> Callable[[Float64, Float64], float]:
    """What is minimised, as a function of the ends and the completions of collectives, float64[collectives] each."""
    if objective == "mean":
        return lambda ends, took: float(share @ took)
    if objective == "makespan":
        return lambda ends, took: float(ends.max())
    return lambda ends, took: float(took.max())


def _bound(windows: Windows, share: Float64, objective: str, value: float) -> float:
    """Seconds that the objective is not below however links are shared; ``value`` is that of the best plan."""
    bound, start_s = flow_bound(windows.flows, share), windows.flows.start_s
    if objective == "mean":
        return least_mean(windows, bound.mean_s, value, start_s, share)
    if objective == "makespan":
        return least_last(windows, bound.last_s, value, np.zeros(len(start_s)))
    return least_last(windows, max(bound.mean_s, bound.last_s - start_s.max()), value, start_s)


def _others(
    judge: Judge, starts: list[Float64], exact: Schedule | None, runs: int, request: Request
) -> Iterator[Candidate]:  # fmt: skip
    """Other schemes for the same flows: max-min fair, by weights, and one flow on a link at a time.

    Args:
        starts: float64[flows] each, list schedules.
        exact: a schedule by a solver.
        runs: of each descent; with 0 only max-min fair sharing is judged.
    """
    flows = judge.flows
    one_rank = np.zeros(len(flows.size), dtype=np.int64)
    columns = [np.ones(len(flows.size))]
    if runs > 0:
        columns.append(weight_alloc.allocate(flows)[0][flows.group])
        with suppress(Infeasible):
            columns.append(rate_alloc.allocate(flows, request.budget.stop.limit_s)[0])
    for column in columns:
        value = judge.value(judge.finish(one_rank, column))
        yield Candidate(value, partial(with_sharing, flows.plan, "fair", flows.group, weight=column))
    if exact is not None:
        starts = [*starts, exact.start]
        # the orders of schedules are other points to begin from; sharing leaves nothing idle
        still = Point(np.zeros(flows.collectives), np.zeros(len(flows.size)))
        for i, start in enumerate(starts):
            yield descend(judge, -start, [still], runs, request.seed + i, request)
    for start in starts:
        value = judge.value(start + flows.seconds)
        yield Candidate(value, partial(with_times, flows.plan, start, flows.seconds))


def _exact(flows: Flows, starts: list[Float64], solver_work: float, request: Request) -> Schedule:
    """The best schedule of one flow on a link at a time that CP-SAT finds from the best of ``starts`` on."""
    jobs = jobs_of(flows, flows.seconds)
    hint = min(starts, key=jobs.value)
    return improve(jobs, hint, "cp-sat", solver_work, request.budget.share(1 / PARTS), request.seed)


def _among_schedules(exact: Schedule, value: float, start_s: float) -> dict[str, float | bool]:
    """How the plan compares with the schedules of one flow on a link at a time."""
    bound = exact.bound - start_s
    facts: dict[str, float | bool] = {
        "non_concurrent_bound_s": max(bound, 0.0),
        "non_concurrent_optimal": exact.optimal,
    }
    return facts | ({"objective_over_non_concurrent": value / bound} if bound > 0 else {})
