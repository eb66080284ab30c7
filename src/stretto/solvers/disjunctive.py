"""Schedules of jobs on machines that serve one job at a time, by CP-SAT intervals or by a big-M MILP on HiGHS.

A job needs several machines (a flow needs all links of its route), each at once or some time after its start (where
links have latency), waits for other jobs, and belongs to a family (a collective). The mean over families of the time at
which they end is minimised. Where machines serve a job at different times, times that were rounded prove nothing: the
bound is 0 then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model.arrays import Float64, Int64, Ragged
from . import INFINITY, Model, solve

GRAIN = 1e-4
"""Part of the horizon by which rounding durations up to ticks may delay a schedule of all jobs."""

PROVEN_GAP = 1e-6
"""Relative gap at which the MILP counts as solved."""


@dataclass(frozen=True)
class Jobs:
    """Jobs to schedule.

    Attributes:
        seconds: float64[jobs], durations.
        release: float64[jobs], no job starts before.
        before, after: int64[waits]: job ``after`` waits for job ``before``.
        lag: float64[waits], the seconds between the end of ``before`` and the start of ``after``, at least.
        machines: for each machine its jobs.
        later: float64[len(machines.values)], how much later than the job starts each machine serves it.
        family: int64[jobs], numbered from 0 without gaps.
        tail: float64[jobs], seconds from a job's end until it counts for its family.
    """

    seconds: Float64
    release: Float64
    before: Int64
    after: Int64
    lag: Float64
    machines: Ragged
    later: Float64
    family: Int64
    tail: Float64

    @property
    def families(self) -> int:
        return int(self.family.max()) + 1

    def ends(self, start: Float64) -> Float64:
        """float64[families], when the last job of each family has ended and its tail is over."""
        ends = np.zeros(self.families)
        np.maximum.at(ends, self.family, start + self.seconds + self.tail)
        return ends

    def value(self, start: Float64) -> float:
        """The mean of the families' ends: what is minimised."""
        return float(self.ends(start).mean())

    def shifted_left(self, start: Float64) -> Float64:
        """float64[jobs], the earliest starts in the order of ``start``; no job starts later than there."""
        free = np.zeros(self.machines.rows)
        needed = Ragged.grouped(self.machines.values, np.arange(len(self.later)), len(start))
        machine = self.machines.owners
        waits = Ragged.grouped(self.after, np.arange(len(self.after)), len(start))
        earliest = self.release.copy()
        for j in map(int, np.argsort(start, kind="stable")):
            for i in waits[j]:
                b = self.before[i]
                earliest[j] = max(earliest[j], earliest[b] + self.seconds[b] + self.lag[i])
            for i in needed[j]:
                earliest[j] = max(earliest[j], free[machine[i]] - self.later[i])
            for i in needed[j]:
                free[machine[i]] = earliest[j] + self.later[i] + self.seconds[j]
        return earliest


@dataclass(frozen=True)
class Schedule:
    """A schedule of jobs."""

    start: Float64  # float64[jobs]
    bound: float  # a mean of the families' ends that no schedule is below
    optimal: bool  # whether the solver proved that this schedule is the best
    effort: float = 0.0  # the work of the solver, in its units


def cp_sat(
    jobs: Jobs, hint: Float64, effort: float | None = None, seed: int = 0, time_limit_s: float | None = None
) -> Schedule:
    """The best schedule that CP-SAT finds: an interval for each job, no overlap on a machine.

    Args:
        hint: float64[jobs], the starts of the schedule to begin from.
        effort: CP-SAT's deterministic time after which it stops. On flows of the WAN paper a unit is about 5 s.
        time_limit_s: wall-clock seconds after which it stops: a net.
    """
    from ortools.sat.python import cp_model

    tick = GRAIN * float((hint + jobs.seconds).max()) / len(hint)
    ticks = _in_ticks(jobs, tick)
    hint_ticks = ticks.shifted_left(hint)
    latest_end = int(ticks.ends(hint_ticks).sum())  # no family of a better schedule ends later
    duration, tail = ticks.seconds.astype(np.int64).tolist(), ticks.tail.astype(np.int64).tolist()
    model = cp_model.CpModel()
    start = [model.new_int_var(int(release), latest_end, "") for release in ticks.release]
    interval = [model.new_fixed_size_interval_var(s, d, "") for s, d in zip(start, duration)]
    for a, b, lag in zip(jobs.before.tolist(), jobs.after.tolist(), ticks.lag.astype(np.int64).tolist()):
        model.add(start[b] >= start[a] + duration[a] + lag)
    for machine in range(jobs.machines.rows):
        members, later = jobs.machines[machine].tolist(), ticks.later[jobs.machines.offsets[machine] :].tolist()
        if len(members) > 1:
            model.add_no_overlap([
                model.new_fixed_size_interval_var(start[j] + int(late), duration[j], "") if late else interval[j]
                for j, late in zip(members, later)
            ])  # fmt: skip
    end = [model.new_int_var(0, latest_end, "") for _ in range(jobs.families)]
    for j, family in enumerate(jobs.family.tolist()):
        model.add(end[family] >= start[j] + duration[j] + tail[j])
    model.minimize(sum(end))
    for s, value in zip(start, hint_ticks.astype(np.int64).tolist()):
        model.add_hint(s, value)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    if effort is not None:
        solver.parameters.max_deterministic_time = effort
    if time_limit_s is not None:
        solver.parameters.max_time_in_seconds = time_limit_s
    status = solver.solve(model)
    candidates = [hint]
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        candidates.append(np.array([solver.value(s) for s in start], dtype=np.float64))
    best = min((jobs.shifted_left(s) for s in candidates), key=jobs.value)
    # rounding durations up delays no schedule by more than a tick a job
    bound = (solver.best_objective_bound / jobs.families - len(hint)) * tick
    effort = float(solver.response_proto.deterministic_time)
    bound, proven = _provable(jobs, bound, status == cp_model.OPTIMAL)
    return Schedule(best, min(bound, jobs.value(best)), proven, effort)


def _provable(jobs: Jobs, bound: float, optimal: bool) -> tuple[float, bool]:
    """The bound, at least 0, and whether the schedule is optimal; neither is known where machines serve a job later."""
    return (0.0, False) if jobs.later.any() else (max(bound, 0.0), optimal)


def _in_ticks(jobs: Jobs, tick: float) -> Jobs:
    """The jobs with all times rounded up to whole ticks."""
    return Jobs(
        np.ceil(jobs.seconds / tick - 1e-9), np.ceil(jobs.release / tick), jobs.before, jobs.after,
        np.ceil(jobs.lag / tick), jobs.machines, np.ceil(jobs.later / tick), jobs.family, np.ceil(jobs.tail / tick),
    )  # fmt: skip


def milp(
    jobs: Jobs, hint: Float64, effort: float | None = None, seed: int = 0, time_limit_s: float | None = None
) -> Schedule:
    """The best schedule that HiGHS finds with the WAN paper's big-M model, eqs. (4) to (7).

    The model has a binary variable for each pair of jobs that share a machine. Arguments are as for :func:`cp_sat`;
    a unit of ``effort`` is about a second.
    """
    hint = jobs.shifted_left(hint)
    n, waits, (pairs, i_later, j_later) = len(hint), len(jobs.before), _conflicts(jobs)
    i, j, p = pairs[:, 0], pairs[:, 1], len(pairs)
    # no job of a better schedule ends later
    big = float(jobs.ends(hint).sum()) + float(jobs.later.max(initial=0.0))
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
    after_i, after_j = jobs.seconds[i] + i_later, jobs.seconds[j] + j_later
    model.rows(p, after_i - big, INFINITY, (row, start[j], 1.0), (row, start[i], -1.0), (row, first, -big))
    model.rows(p, after_j, INFINITY, (row, start[i], 1.0), (row, start[j], -1.0), (row, first, big))
    begin: Float64 = np.concatenate((hint, jobs.ends(hint), (hint[i] < hint[j]).astype(np.float64)))
    answer = solve(model, effort=effort, time_limit_s=time_limit_s, gap=PROVEN_GAP, start=begin, seed=seed)
    candidates = [hint] if answer.x is None else [hint, jobs.shifted_left(answer.x[:n])]
    best = min(candidates, key=jobs.value)
    bound, proven = _provable(jobs, answer.bound, answer.status == "optimal")
    return Schedule(best, min(bound, jobs.value(best)), proven, answer.effort)


def _conflicts(jobs: Jobs) -> tuple[Int64, Float64, Float64]:
    """int64[pairs, 2]: jobs that share a machine and whose order no chain of waits decides.

    With float64[pairs] twice: by how much more than its seconds the first is before the second on all of these
    machines, and the second before the first, as one of them serves the one later than the other.
    """
    sharing: dict[tuple[int, int], tuple[float, float]] = {}
    for m in range(jobs.machines.rows):
        place = jobs.machines.offsets[m]
        members = jobs.machines[m].tolist()
        for x, a in enumerate(members):
            for y in range(x + 1, len(members)):
                more = float(jobs.later[place + x] - jobs.later[place + y])
                known = sharing.get((a, members[y]), (-np.inf, -np.inf))
                sharing[a, members[y]] = max(known[0], more), max(known[1], -more)
    later: dict[int, set[int]] = {}
    for a, b in sorted(zip(jobs.before.tolist(), jobs.after.tolist()), key=lambda w: -w[1]):
        later.setdefault(a, set()).update({b} | later.get(b, set()))
    free = [(a, b) for a, b in sorted(sharing) if b not in later.get(a, ()) and a not in later.get(b, ())]
    more_s = np.array([sharing[pair] for pair in free]).reshape(-1, 2)
    return np.array(free, dtype=np.int64).reshape(-1, 2), more_s[:, 0], more_s[:, 1]
