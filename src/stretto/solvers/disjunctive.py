"""Scheduling jobs on machines that serve one at a time: CP-SAT intervals, or a big-M MILP on HiGHS.

A job needs several machines at once (a flow all links of its route), waits for others, and
belongs to a family (a collective); minimised is the mean of the families' ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import INFINITY, Model, solve

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
    known = jobs.settled(hint)
    n, waits, pairs = len(hint), len(jobs.before), _conflicts(jobs)
    i, j, p = pairs[:, 0], pairs[:, 1], len(pairs)
    big = float(jobs.ends(known).sum())  # no job of a better schedule ends later
    model = Model()
    start = model.columns(n, jobs.release, INFINITY)
    end = model.columns(jobs.families, 0.0, INFINITY, 1.0 / jobs.families)
    first = model.columns(p, integer=True)
    row = np.arange(waits)
    model.rows(
        waits, jobs.seconds[jobs.before] + jobs.lag, INFINITY,
        (row, start[jobs.after], 1.0), (row, start[jobs.before], -1.0),
    )  # fmt: skip
    row = np.arange(n)
    model.rows(n, jobs.seconds + jobs.tail, INFINITY, (row, end[jobs.family], 1.0), (row, start, -1.0))
    row = np.arange(p)
    model.rows(p, jobs.seconds[i] - big, INFINITY, (row, start[j], 1.0), (row, start[i], -1.0), (row, first, -big))
    model.rows(p, jobs.seconds[j], INFINITY, (row, start[i], 1.0), (row, start[j], -1.0), (row, first, big))
    begin: Float64 = np.concatenate((known, jobs.ends(known), (known[i] < known[j]).astype(np.float64)))
    solved = solve(model, time_limit_s=limit_s, gap=1e-6, start=begin)
    found = [known] if solved.x is None else [known, jobs.settled(solved.x[:n])]
    best = min(found, key=jobs.value)
    return Schedule(best, min(max(solved.bound, 0.0), jobs.value(best)), solved.status == "optimal")


def _conflicts(jobs: Jobs) -> Int64:
    """int64[pairs, 2]: jobs that share a machine and do not wait for each other in a row."""
    found = {(int(a), int(b)) for m in jobs.machines for x, a in enumerate(m) for b in m[x + 1 :]}
    follows: dict[int, set[int]] = {}
    for a, b in sorted(zip(jobs.before.tolist(), jobs.after.tolist()), key=lambda w: -w[1]):
        follows.setdefault(a, set()).update({b} | follows.get(b, set()))
    free = [(a, b) for a, b in sorted(found) if b not in follows.get(a, ()) and a not in follows.get(b, ())]
    return np.array(free, dtype=np.int64).reshape(-1, 2)
