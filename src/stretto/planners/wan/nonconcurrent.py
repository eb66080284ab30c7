"""Non-concurrent scheduling: flows whose routes share a link never overlap (WAN paper, section III-C).

Theorem 2 there: on one link, sending one after the other ends each flow no later than sharing at
constant rates. Solved exactly where that is possible, as CP-SAT intervals or as the paper's MILP,
from the best list schedule on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...model.plan import Plan
from ...solvers.disjunctive import Jobs, Schedule, cp_sat, milp
from .. import Option, Progress, over_links, refiner
from .bound import lags
from .flows import KINDS, Flows, flows_of, noted, with_times
from .lists import list_schedule

Float64 = NDArray[np.float64]

LIMIT_S = 5.0
"""Seconds of search where no limit is given."""

MOST_PAIRS = 300_000
"""More pairs of flows on a link than this leave nothing to solvers; the greedy schedule stands."""

OPTIONS = (
    Option("solver", str, "cp-sat", "intervals, the paper's big-M model, or the best greedy schedule",
           ("cp-sat", "milp", "greedy")),
)  # fmt: skip


@refiner(
    name="non-concurrent",
    collectives=KINDS,
    topologies="any without planes",
    paper="Wang, Craps, Li, section III-C",
    alone=("ring",),
    options=OPTIONS,
    serves=over_links,
)
def non_concurrent(
    plan: Plan, *, seed: int = 0, time_limit_s: float | None = None, progress: Progress | None = None,
    solver: str = "cp-sat",
) -> Plan:  # fmt: skip
    """One flow a link at a time, in the order that ends collectives soonest on average.

    Returns:
        A timed plan. Its ``meta`` has ``objective_s``, the mean completion; ``non_concurrent_bound_s``,
        which no non-concurrent schedule beats; and ``optimal``, whether that is proven.
    """
    flows = flows_of(plan)
    lag = lags(plan)
    jobs = jobs_of(plan, flows, lag, flows.seconds)
    known = min(list_schedule(plan, flows, lag), key=jobs.value)
    found = improve(jobs, known, solver, LIMIT_S if time_limit_s is None else time_limit_s, seed)
    began = float(np.mean([c.start_s for c in plan.workload.collectives]))
    return noted(
        with_times(plan, found.start, flows.seconds),
        objective_s=jobs.value(found.start) - began,
        non_concurrent_bound_s=max(found.bound - began, 0.0),
        optimal=found.optimal,
    )


def jobs_of(plan: Plan, flows: Flows, lag: Float64, seconds: Float64) -> Jobs:
    """All flows as jobs on links; the mean over collectives is minimised."""
    before = plan.depends.values.astype(np.int64)
    return Jobs(
        seconds=seconds,
        release=plan.workload.chunk_start_s[plan.chunk],
        before=before,
        after=plan.depends.owners,
        lag=lag[before],
        machines=flows.route.turned(len(flows.width)),
        family=flows.collective[flows.group],
        tail=lag,
    )


def improve(jobs: Jobs, known: Float64, solver: str, limit_s: float, seed: int) -> Schedule:
    """The best schedule that a solver finds from a known one."""
    crowd = jobs.machines.lengths
    pairs = int((crowd * (crowd - 1) // 2).sum())
    if solver == "greedy" or limit_s <= 0 or pairs > MOST_PAIRS:
        return Schedule(known, 0.0, False)
    return cp_sat(jobs, known, limit_s / 5.0, seed) if solver == "cp-sat" else milp(jobs, known, limit_s, seed)
