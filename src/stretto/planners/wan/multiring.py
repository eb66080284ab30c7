"""MultiRing: a rate for each collective, and one flow a link at a time inside it (WAN paper, section III-E).

First a convex program gives every collective k a bandwidth b_k on all links that it uses, so that
those of a link fit it (eq. 12). Then each collective is scheduled for itself, its flows at rate
b_k: those that share a link one after the other, exactly or by one of two greedy rules.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...model.arrays import Ragged
from ...model.plan import Plan
from ...solvers import conic
from ...solvers.disjunctive import Jobs
from .. import Option, Progress, over_links, refiner
from .bound import lags
from .flows import KINDS, Flows, flows_of, with_times
from .lists import run, urgencies
from .nonconcurrent import improve, jobs_of

Float64 = NDArray[np.float64]

LIMIT_S = 5.0

OPTIONS = (
    Option("inside", str, "cp-sat", "how a collective's flows are ordered: by intervals, by the paper's MILP, or "
           "greedily, the shortest or that with the largest volume downstream first",
           ("cp-sat", "milp", "shortest", "downstream")),
)  # fmt: skip


@refiner(
    name="multiring",
    collectives=KINDS,
    topologies="any without planes",
    paper="Wang, Craps, Li, section III-E",
    alone=("ring",),
    options=OPTIONS,
    serves=over_links,
)
def multiring(
    plan: Plan, *, seed: int = 0, time_limit_s: float | None = None, progress: Progress | None = None,
    inside: str = "cp-sat",
) -> Plan:  # fmt: skip
    """Bandwidth budgets by collective, and a schedule inside each."""
    flows = flows_of(plan)
    lag = lags(plan)
    collective = flows.collective[flows.group]
    seconds = flows.size / budgets(flows)[collective]
    jobs = jobs_of(plan, flows, lag, seconds)
    limit = (LIMIT_S if time_limit_s is None else time_limit_s) / flows.collectives
    start = np.empty(len(seconds))
    greedy = {rule: _each_alone(plan, flows, lag, rule, seconds) for rule in ("shortest", "downstream", "chain")}
    for k in range(flows.collectives):
        if progress is not None:
            progress(k, flows.collectives, "collectives")
        mine = np.flatnonzero(collective == k)
        own = _part(jobs, mine)
        if inside in greedy:
            start[mine] = greedy[inside][mine]
        else:
            known = min((s[mine] for s in greedy.values()), key=own.value)
            start[mine] = improve(own, known, inside, limit, seed).start
    return with_times(plan, start, seconds)


def budgets(flows: Flows) -> Float64:
    """float64[collectives], b of (12), bytes/s."""
    k = flows.collectives
    owners, links = flows.route.owners, flows.route.values.astype(np.int64)
    volume = np.bincount(flows.collective[flows.group], weights=flows.size)
    pairs = np.unique(links * k + flows.collective[flows.group[owners]])
    used, row = np.unique(pairs // k, return_inverse=True)
    unit, per = flows.width.mean(), volume.mean()
    cost = np.concatenate((np.zeros(k), volume / per / k))
    found = conic.solve(
        cost, (row, pairs % k, np.ones(len(pairs))), flows.width[used] / unit, (np.arange(k), k + np.arange(k))
    )
    rate = found.x[:k] * unit
    total = np.bincount(pairs // k, weights=rate[pairs % k], minlength=len(flows.width))
    safe: Float64 = rate * min(1.0, float((flows.width / np.where(total > 0, total, flows.width)).min()))
    return safe


def _each_alone(plan: Plan, flows: Flows, lag: Float64, rule: str, seconds: Float64) -> Float64:
    """float64[flows], list schedules of all collectives, each as if it had the links for itself."""
    return run(plan, flows, lag, urgencies(plan, flows, lag, rule), seconds, apart=True)


def _part(jobs: Jobs, mine: NDArray[np.int64]) -> Jobs:
    """Some of the jobs, of one family, numbered anew."""
    number = np.full(len(jobs.seconds), -1, dtype=np.int64)
    number[mine] = np.arange(len(mine))
    inner = (number[jobs.before] >= 0) & (number[jobs.after] >= 0)
    owners, members = jobs.machines.owners, number[jobs.machines.values]
    kept = members >= 0
    return Jobs(
        seconds=jobs.seconds[mine],
        release=jobs.release[mine],
        before=number[jobs.before[inner]],
        after=number[jobs.after[inner]],
        lag=jobs.lag[inner],
        machines=Ragged.grouped(owners[kept], members[kept], jobs.machines.rows),
        family=np.zeros(len(mine), dtype=np.int64),
        tail=jobs.tail[mine],
    )
