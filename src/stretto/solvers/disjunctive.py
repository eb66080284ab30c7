"""Scheduling jobs on machines that serve one at a time: CP-SAT intervals, or a big-M MILP on HiGHS.

A job needs several machines at once (a flow all links of its route), waits for others, and
belongs to a family (a collective); minimised is the mean of the families' ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

GRAIN = 1e-4
"""By how much of the horizon rounding durations up to ticks may delay a schedule of all jobs."""

SECONDS_A_TICK = 5.0
"""Roughly what one unit of CP-SAT's deterministic time takes on these models."""


@dataclass(frozen=True)
class Jobs:
    """Attributes:
    seconds: float64[jobs].
    release: float64[jobs], none starts before.
    before, after, lag: int64[waits] twice and float64[waits]: job ``after`` starts ``lag`` seconds
        or more after the end of ``before``.
    machines: for each machine its jobs.
    family: int64[jobs], all numbers from 0 on.
    tail: float64[jobs], seconds from a job's end until it counts.
    """

    seconds: Float64
    release: Float64
    before: Int64
    after: Int64
    lag: Float64
    machines: list[Int64]
    family: Int64
    tail: Float64

    @property
    def families(self) -> int:
        return int(self.family.max()) + 1

    def ends(self, start: Float64) -> Float64:
        """float64[families]."""
        ends = np.zeros(self.families)
        np.maximum.at(ends, self.family, start + self.seconds + self.tail)
        return ends

    def value(self, start: Float64) -> float:
        """The mean of the ends."""
        return float(self.ends(start).mean())

    def settled(self, start: Float64) -> Float64:
        """float64[jobs]: each as early as the order of ``start`` allows, which loses nothing."""
        free = np.zeros(len(self.machines))
        own: list[list[int]] = [[] for _ in start]
        for m, jobs in enumerate(self.machines):
            for j in jobs:
                own[j].append(m)
        waits: list[list[int]] = [[] for _ in start]
        for i, j in enumerate(self.after):
            waits[j].append(i)
        settled = self.release.copy()
        for j in map(int, np.argsort(start, kind="stable")):
            for i in waits[j]:
                b = self.before[i]
                settled[j] = max(settled[j], settled[b] + self.seconds[b] + self.lag[i])
            for m in own[j]:
                settled[j] = max(settled[j], free[m])
            for m in own[j]:
                free[m] = settled[j] + self.seconds[j]
        return settled


@dataclass(frozen=True)
class Schedule:
    """Attributes: start, float64[jobs]; bound, which no schedule beats; optimal, whether that is proven."""

    start: Float64
    bound: float
    optimal: bool


def cp_sat(jobs: Jobs, hint: Float64, limit_s: float, seed: int = 0) -> Schedule:
    """One interval a job, no overlap a machine, beginning from the schedule ``hint``.

    Args:
        limit_s: about so many seconds, counted by CP-SAT's deterministic clock, so that equal
            requests have equal answers; at most three times as many on the clock.
    """
    from ortools.sat.python import cp_model

    horizon = float((hint + jobs.seconds).max())
    tick = GRAIN * horizon / len(hint)
    ticks = np.ceil(jobs.seconds / tick - 1e-9).astype(np.int64)
    release, lag = np.ceil(jobs.release / tick).astype(np.int64), np.ceil(jobs.lag / tick).astype(np.int64)
    rounded = Jobs(ticks.astype(float), release.astype(float), jobs.before, jobs.after, lag.astype(float),
                   jobs.machines, jobs.family, np.ceil(jobs.tail / tick))  # fmt: skip
    known = rounded.settled(hint)
    last = int(rounded.ends(known).sum())  # no family of a better schedule ends later
    model = cp_model.CpModel()
    start = [model.new_int_var(int(r), last, "") for r in release]
    interval = [model.new_fixed_size_interval_var(s, int(d), "") for s, d in zip(start, ticks)]
    for a, b, wait in zip(jobs.before.tolist(), jobs.after.tolist(), lag.tolist()):
        model.add(start[b] >= start[a] + int(ticks[a]) + wait)
    for machine in jobs.machines:
        if len(machine) > 1:
            model.add_no_overlap([interval[j] for j in machine.tolist()])
    end = [model.new_int_var(0, last, "") for _ in range(jobs.families)]
    for j, f in enumerate(jobs.family.tolist()):
        model.add(end[f] >= start[j] + int(ticks[j] + rounded.tail[j]))
    model.minimize(sum(end))
    for s, k in zip(start, known.astype(np.int64).tolist()):
        model.add_hint(s, k)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = limit_s / SECONDS_A_TICK
    solver.parameters.max_time_in_seconds = 3 * limit_s
    status = solver.solve(model)
    found = [hint]
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        found.append(np.array([solver.value(s) for s in start], dtype=np.float64))
    settled = min((jobs.settled(s) for s in found), key=jobs.value)
    # that durations were rounded up delays no schedule by more than a tick a job
    bound = (solver.best_objective_bound / jobs.families - len(hint)) * tick
    return Schedule(settled, min(max(bound, 0.0), jobs.value(settled)), status == cp_model.OPTIMAL)


def milp(jobs: Jobs, hint: Float64, limit_s: float) -> Schedule:
    """The paper's big-M model (eqs. 4 to 7): a binary for each pair of jobs that share a machine."""
    import highspy

    n, families = len(hint), jobs.families
    pairs = _conflicts(jobs)
    p = len(pairs)
    big = float(jobs.ends(jobs.settled(hint)).sum())  # no job of a better schedule ends later
    i, j = pairs[:, 0], pairs[:, 1]
    waits = len(jobs.before)
    # variables: starts, ends of families, y = 1 where i is before j; rows are "at least"
    row = [np.arange(waits)] * 2 + [waits + np.arange(n)] * 2
    column = [jobs.after, jobs.before, n + jobs.family, np.arange(n)]
    value = [np.ones(waits), -np.ones(waits), np.ones(n), -np.ones(n)]
    least = [jobs.seconds[jobs.before] + jobs.lag, jobs.seconds + jobs.tail]
    y = n + families + np.arange(p)
    for base, first, then, sign, right in (
        (waits + n, i, j, -big, jobs.seconds[i] - big),
        (waits + n + p, j, i, big, jobs.seconds[j]),
    ):
        rows = base + np.arange(p)
        row += [rows] * 3
        column += [then, first, y]
        value += [np.ones(p), -np.ones(p), np.full(p, sign)]
        least.append(right)
    r, c, v = np.concatenate(row), np.concatenate(column), np.concatenate(value)
    order = np.lexsort((c, r))
    lower = np.concatenate(least)
    columns = n + families + p
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = columns, len(lower)
    lp.col_cost_ = np.concatenate((np.zeros(n), np.full(families, 1 / families), np.zeros(p)))
    lp.col_lower_ = np.concatenate((jobs.release, np.zeros(families + p)))
    lp.col_upper_ = np.concatenate((np.full(n + families, highspy.kHighsInf), np.ones(p)))
    lp.row_lower_, lp.row_upper_ = lower, np.full(len(lower), highspy.kHighsInf)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.searchsorted(r[order], np.arange(len(lower) + 1)).astype(np.int32)
    lp.a_matrix_.index_, lp.a_matrix_.value_ = c[order].astype(np.int32), v[order]
    kinds = [highspy.HighsVarType.kContinuous] * (n + families) + [highspy.HighsVarType.kInteger] * p
    lp.integrality_ = kinds
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("time_limit", float(limit_s))
    highs.setOptionValue("threads", 1)
    highs.passModel(lp)
    given = highspy.HighsSolution()
    known = jobs.settled(hint)
    given.col_value = np.concatenate((known, jobs.ends(known), (known[i] < known[j]).astype(float))).tolist()
    highs.setSolution(given)
    highs.run()
    optimal = highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    info = highs.getInfo()
    found = [known]
    if info.primal_solution_status == 2:
        found.append(np.array(highs.getSolution().col_value[:n]))
    best = min((jobs.settled(s) for s in found), key=jobs.value)
    bound = float(info.mip_dual_bound) if p else float(info.objective_function_value)
    return Schedule(best, min(max(bound, 0.0), jobs.value(best)), optimal)


def _conflicts(jobs: Jobs) -> Int64:
    """int64[pairs, 2]: jobs that share a machine and do not wait for each other in a row."""
    found = {(int(a), int(b)) for m in jobs.machines for x, a in enumerate(m) for b in m[x + 1 :]}
    follows: dict[int, set[int]] = {}
    for a, b in sorted(zip(jobs.before.tolist(), jobs.after.tolist()), key=lambda w: -w[1]):
        follows.setdefault(a, set()).update({b} | follows.get(b, set()))
    free = [(a, b) for a, b in sorted(found) if b not in follows.get(a, ()) and a not in follows.get(b, ())]
    return np.array(free, dtype=np.int64).reshape(-1, 2)
