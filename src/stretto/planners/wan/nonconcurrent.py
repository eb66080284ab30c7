"""Non-concurrent scheduling: flows whose routes share a link never overlap (WAN paper, section III-C).

Theorem 2 there: on one link, sending flows one after the other ends each of them no later than sharing at constant
rates. CP-SAT intervals or the paper's MILP (eqs. 4 to 7) improve the best list schedule, and prove the optimum where
the work suffices.
"""

from __future__ import annotations

import numpy as np

from ...model.arrays import Float64
from ...model.errors import InputError
from ...model.plan import Plan
from ...schedule.effort import Budget
from ...solvers.disjunctive import Jobs, Schedule, cp_sat, milp
from .. import Option, Request
from .flows import Flows, flow_refiner, flows_of, with_meta, with_times
from .lists import list_schedules

SOLVER_WORK = 5.0
"""Work of a solver by default, in units of about a second."""

WORK_A_CP_SAT_UNIT = 5.0
"""Units of work in a unit of CP-SAT's deterministic time, which takes about 5 s on these models."""

STEPS_A_WORK = 1e6
"""Steps of a budget in a unit of work."""

MOST_PAIRS = 300_000
"""Most pairs of flows on a link that a solver is given; with more the list schedule stands."""

GUARD_OPTION = Option("guard_s", float, 0.0, "seconds for which a link rests between two flows")
"""The paper's guard time, its delta beside eqs. (5) and (6)."""

WORK_OPTION = Option("solver_work", float, SOLVER_WORK, "work after which a solver stops, in units of about a second")

OPTIONS = (
    Option("solver", str, "cp-sat", "intervals, the paper's big-M model, or the best greedy schedule",
           ("cp-sat", "milp", "greedy")),
    GUARD_OPTION,
    WORK_OPTION,
)  # fmt: skip


@flow_refiner("non-concurrent", "Wang, Craps, Li, section III-C", OPTIONS)
def non_concurrent(
    plan: Plan, request: Request, *, solver: str = "cp-sat", guard_s: float = 0.0, solver_work: float = SOLVER_WORK
) -> Plan:  # fmt: skip
    """One flow on a link at a time, in the order that ends collectives soonest on average.

    Returns:
        A timed plan. Its ``meta`` has ``objective_s``, the mean completion; ``non_concurrent_bound_s``, which no
        non-concurrent schedule with this guard time is below; and ``optimal``, whether the schedule is proven to be the
        best.
    Raises:
        InputError: the guard time is below 0 or not finite.
    """
    flows = flows_of(plan)
    jobs = jobs_of(flows, flows.seconds, guard_s)
    hint = min(list_schedules(flows, guard_s), key=jobs.value)
    schedule = improve(jobs, hint, solver, solver_work, request.budget, request.seed)
    start_s = float(flows.start_s.mean())
    return with_meta(
        with_times(plan, schedule.start, flows.seconds),
        objective_s=jobs.value(schedule.start) - start_s,
        non_concurrent_bound_s=max(schedule.bound - start_s, 0.0),
        optimal=schedule.optimal,
    )


def jobs_of(flows: Flows, seconds: Float64, guard_s: float = 0.0) -> Jobs:
    """All flows as jobs of these durations, float64[flows], on links that rest for a guard time after each; families
    are collectives.
    """
    if not 0 <= guard_s < np.inf:
        raise InputError(f"{guard_s!r} is no guard time: give seconds, at least 0", "option guard_s")
    depends = flows.plan.depends
    before = depends.values.astype(np.int64)
    by_link = np.argsort(flows.plan.route.values, kind="stable")
    return Jobs(
        seconds=seconds, release=flows.release_s, before=before, after=depends.owners, lag=flows.wait_lag,
        machines=flows.plan.route.turned(len(flows.width)), later=flows.hop_lag[by_link],
        family=flows.flow_collective, tail=flows.lag, guard_s=guard_s,
    )  # fmt: skip


def improve(jobs: Jobs, hint: Float64, solver: str, work: float, budget: Budget, seed: int) -> Schedule:
    """The best schedule that a solver finds from ``hint`` on, or ``hint`` where no solver is asked.

    Args:
        work: the most that the solver may do, in units of about a second; less where less of the budget is left.
        budget: the work is charged to it.
    """
    work = min(work, budget.left / STEPS_A_WORK)
    crowd = jobs.machines.lengths
    if solver == "greedy" or work <= 0 or (crowd * (crowd - 1) // 2).sum() > MOST_PAIRS:
        return Schedule(hint, 0.0, False)
    solve, unit = (cp_sat, WORK_A_CP_SAT_UNIT) if solver == "cp-sat" else (milp, 1.0)
    schedule = solve(jobs, hint, work / unit, seed, budget.stop.limit_s)
    budget.charge(schedule.effort * unit * STEPS_A_WORK)
    return schedule
