"""MultiRing: a rate for each collective, and one flow on a link at a time within it (WAN paper, section III-E).

A convex program gives every collective k a bandwidth b_k on all links that it uses, so that the bandwidths on a link
fit it (eq. 12). Then each collective is scheduled by itself, its flows at rate b_k: flows that share a link go one
after the other, in an order that a solver or one of two greedy rules decides.
"""

from __future__ import annotations

import numpy as np

from ...model.arrays import Float64, Int64, Ragged
from ...model.plan import Plan
from ...solvers import conic
from ...solvers.disjunctive import Jobs
from .. import Option, Request
from .flows import Flows, flow_refiner, flows_of, with_times
from .lists import run, urgencies
from .nonconcurrent import GUARD_OPTION, SOLVER_WORK, WORK_OPTION, improve, jobs_of

RULES = ("shortest", "downstream", "chain")
"""Rules of the list schedules from which a solver begins."""

OPTIONS = (
    Option("inside", str, "cp-sat", "how a collective's flows are ordered: by intervals, by the paper's MILP, or "
           "greedily, the shortest or that with the largest volume downstream first",
           ("cp-sat", "milp", "shortest", "downstream")),
    GUARD_OPTION,
    WORK_OPTION,
)  # fmt: skip


@flow_refiner("multiring", "Wang, Craps, Li, section III-E", OPTIONS)
def multiring(
    plan: Plan, request: Request, *, inside: str = "cp-sat", guard_s: float = 0.0, solver_work: float = SOLVER_WORK
) -> Plan:  # fmt: skip
    """Bandwidth budgets by collective, and a schedule inside each, with the guard time between its flows on a link."""
    flows = flows_of(plan)
    seconds = flows.size / budgets(flows)[flows.flow_collective]
    jobs = jobs_of(flows, seconds, guard_s)
    # each collective is scheduled as if it had the links for itself
    greedy = {rule: run(flows, urgencies(flows, rule), seconds, guard_s, apart=True) for rule in RULES}
    if inside in greedy:
        return with_times(plan, greedy[inside], seconds)
    start = np.empty(len(seconds))
    shares = request.budget.left / flows.collectives
    for k in range(flows.collectives):
        request.tell(k, flows.collectives, "collectives")
        members = np.flatnonzero(flows.flow_collective == k)
        part = _part(jobs, members)
        hint = min((s[members] for s in greedy.values()), key=part.value)
        budget = request.budget.within(shares)
        start[members] = improve(part, hint, inside, solver_work / flows.collectives, budget, request.seed).start
    return with_times(plan, start, seconds)


def budgets(flows: Flows) -> Float64:
    """float64[collectives], b of eq. (12), bytes/s."""
    k = flows.collectives
    volume = np.bincount(flows.flow_collective, weights=flows.size)
    pairs = np.unique(flows.link * k + flows.flow_collective[flows.owner])
    used, row = np.unique(pairs // k, return_inverse=True)
    unit = flows.width.mean()
    cost = np.concatenate((np.zeros(k), volume / volume.mean() / k))
    answer = conic.solve(
        cost, (row, pairs % k, np.ones(len(pairs))), flows.width[used] / unit, (np.arange(k), k + np.arange(k))
    )
    rate = answer.x[:k] * unit
    total = np.bincount(row, weights=rate[pairs % k])
    # rounding may overfill a link
    fitting: Float64 = rate * min(1.0, float((flows.width[used] / total).min()))
    return fitting


def _part(jobs: Jobs, members: Int64) -> Jobs:
    """The jobs ``members``, which are one family, numbered anew."""
    number = np.full(len(jobs.seconds), -1, dtype=np.int64)
    number[members] = np.arange(len(members))
    inner = (number[jobs.before] >= 0) & (number[jobs.after] >= 0)
    on_machine = number[jobs.machines.values]
    kept = on_machine >= 0
    return Jobs(
        seconds=jobs.seconds[members], release=jobs.release[members], before=number[jobs.before[inner]],
        after=number[jobs.after[inner]], lag=jobs.lag[inner],
        machines=Ragged.grouped(jobs.machines.owners[kept], on_machine[kept], jobs.machines.rows),
        later=jobs.later[kept], family=np.zeros(len(members), dtype=np.int64), tail=jobs.tail[members],
        guard_s=jobs.guard_s,
    )  # fmt: skip
