"""Schedules of jobs on machines that serve one job at a time, by CP-SAT intervals or by a big-M MILP on HiGHS.

A job needs several machines (a flow needs all links of its route), each at once or some time after its start (where
links have latency), waits for other jobs, and belongs to a family (a collective). The mean over families of the time at
which they end is minimised.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..model.arrays import Float64, Int64, Ragged
from ..model.extras import require
from . import INFINITY, Model, solve

GRAIN = 1e-4
"""Part of the horizon that a tick of each job adds up to. CP-SAT's times are rounded down to ticks."""

TICKS_LOST = 2
"""Ticks a job by which rounding may shorten a schedule: one on a machine that serves the job later than others."""

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
        guard_s: seconds for which a machine rests between two jobs, at least.
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
    guard_s: float = 0.0

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
        """float64[jobs], the earliest starts with the order of ``start`` on every machine.

        From a schedule that keeps all rules no job starts later than there. Where ``start`` does not keep them and its
        orders contradict each other, a job that starts earlier goes first on every machine.
        """
        machine = self.machines.owners
        begin = start[self.machines.values]
        kept = self._earliest(start, np.lexsort((begin + self.later, machine)))
        if kept is None:
            kept = self._earliest(start, np.lexsort((begin, machine)))
        assert kept is not None, "jobs in the order of their starts do not wait for later ones"
        return kept

    def _earliest(self, start: Float64, by_machine: Int64) -> Float64 | None:
        """float64[jobs], the earliest starts where each machine serves its jobs in an order; None if none keep it.

        Args:
            start: float64[jobs], by which jobs are looked at.
            by_machine: int64[len(machines.values)], the places in ``machines`` by machine, in the order of each.
        """
        before, after = by_machine[:-1], by_machine[1:]
        follows = self.machines.owners[before] == self.machines.owners[after]
        before, after = before[follows], after[follows]
        job = self.machines.values
        behind = Ragged.grouped(job[after], np.arange(len(after)), len(start))
        waits = Ragged.grouped(self.after, np.arange(len(self.after)), len(start))
        earliest = self.release.copy()
        order = list(map(int, np.argsort(start, kind="stable")))
        # one pass is enough unless a machine serves first a job that starts after another
        for _ in range(len(order) + 1):
            moved = False
            for j in order:
                at = earliest[j]
                for i in waits[j]:
                    b = self.before[i]
                    at = max(at, earliest[b] + self.seconds[b] + self.lag[i])
                for i in behind[j]:
                    b = job[before[i]]
                    free = earliest[b] + self.later[before[i]] + self.seconds[b] + self.guard_s
                    at = max(at, free - self.later[after[i]])
                moved |= at > earliest[j]
                earliest[j] = at
            if not moved:
                return earliest
        return None


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

    Times are rounded down to ticks, so that every schedule is one of the model, no later there: what the model proves
    holds. Its answer gives the order on each machine, and exact times follow from that.

    Args:
        hint: float64[jobs], the starts of the schedule to begin from.
        effort: CP-SAT's deterministic time after which it stops. On flows of the WAN paper a unit is about 5 s.
        time_limit_s: wall-clock seconds after which it stops: a net.
    """
    require("solvers", "CP-SAT", "ortools")
    from ortools.sat.python import cp_model

    horizon = float((hint + jobs.seconds).max())
    tick = GRAIN * horizon / len(hint)
    # no family of a better schedule ends later
    latest_end = int(np.ceil(jobs.ends(hint).sum() / tick)) + 1
    model = cp_model.CpModel()
    start = [model.new_int_var(release, latest_end, "") for release in _ticks(jobs.release, tick)]
    gaps = _ticks(jobs.seconds[jobs.before] + jobs.lag, tick)
    for a, b, gap in zip(jobs.before.tolist(), jobs.after.tolist(), gaps):
        model.add(start[b] >= start[a] + gap)
    _add_machines(model, start, jobs, tick)
    end = [model.new_int_var(0, latest_end, "") for _ in range(jobs.families)]
    for j, (family, took) in enumerate(zip(jobs.family.tolist(), _ticks(jobs.seconds + jobs.tail, tick))):
        model.add(end[family] >= start[j] + took)
    model.minimize(sum(end))
    for s, value in zip(start, _ticks(hint, tick)):
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
        candidates.append(np.array([solver.value(s) for s in start], dtype=np.float64) * tick)
    best = min((jobs.shifted_left(s) for s in candidates), key=jobs.value)
    bound = solver.best_objective_bound / jobs.families * tick
    proven = status == cp_model.OPTIMAL and jobs.value(best) <= bound + TICKS_LOST * GRAIN * horizon
    effort = float(solver.response_proto.deterministic_time)
    return Schedule(best, min(max(bound, 0.0), jobs.value(best)), proven, effort)


def _add_machines(model: Any, start: list[Any], jobs: Jobs, tick: float) -> None:
    """No two jobs at once on a machine, in ticks.

    Where a machine serves jobs later than they start, two times are rounded for each job: intervals are a tick shorter.
    """
    size = _ticks(jobs.seconds + jobs.guard_s, tick)
    late = _ticks(jobs.later, tick)

    @cache
    def interval(job: int, later: int, ticks: int) -> Any:
        # CP-SAT proves more where the machines of a job share one interval
        return model.new_fixed_size_interval_var(start[job] + later, ticks, "")

    for machine in range(jobs.machines.rows):
        begin, end = map(int, jobs.machines.offsets[machine : machine + 2])
        if end - begin < 2:
            continue
        lost = int(jobs.later[begin:end].any())
        members = enumerate(jobs.machines[machine].tolist(), begin)
        model.add_no_overlap([interval(j, late[i], size[j] - lost) for i, j in members if size[j] > lost])


def _ticks(seconds: Float64, tick: float) -> list[int]:
    """Whole ticks in each time."""
    whole: list[int] = np.floor(seconds / tick).astype(np.int64).tolist()
    return whole


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
    big = float(jobs.ends(hint).sum()) + float(jobs.later.max(initial=0.0)) + jobs.guard_s
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
    # the guard time that the paper puts into (5) and (6)
    after_i, after_j = jobs.seconds[i] + i_later + jobs.guard_s, jobs.seconds[j] + j_later + jobs.guard_s
    model.rows(p, after_i - big, INFINITY, (row, start[j], 1.0), (row, start[i], -1.0), (row, first, -big))
    model.rows(p, after_j, INFINITY, (row, start[i], 1.0), (row, start[j], -1.0), (row, first, big))
    begin: Float64 = np.concatenate((hint, jobs.ends(hint), (hint[i] < hint[j]).astype(np.float64)))
    answer = solve(model, effort=effort, time_limit_s=time_limit_s, gap=PROVEN_GAP, start=begin, seed=seed)
    candidates = [hint] if answer.x is None else [hint, jobs.shifted_left(answer.x[:n])]
    best = min(candidates, key=jobs.value)
    value = jobs.value(best)
    proven = answer.status == "optimal" and value <= answer.bound + GRAIN * float((hint + jobs.seconds).max())
    return Schedule(best, min(max(answer.bound, 0.0), value), proven, answer.effort)


def _conflicts(jobs: Jobs) -> tuple[Int64, Float64, Float64]:
    """int64[pairs, 2]: jobs that share a machine and whose order there no chain of waits decides.

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
    # for each job those that wait for it, and how much later than it they start, at least
    chain: dict[int, dict[int, float]] = {}
    waits = zip(jobs.before.tolist(), jobs.after.tolist(), (jobs.seconds[jobs.before] + jobs.lag).tolist())
    for a, b, gap in sorted(waits, key=lambda w: -w[1]):
        reached = chain.setdefault(a, {})
        for c, more in ((b, 0.0), *chain.get(b, {}).items()):
            reached[c] = max(reached.get(c, 0.0), gap + more)

    def decided(a: int, b: int, more: float) -> bool:
        return chain.get(a, {}).get(b, -np.inf) >= float(jobs.seconds[a]) + more + jobs.guard_s

    free = [(a, b) for (a, b), m in sorted(sharing.items()) if not (decided(a, b, m[0]) or decided(b, a, m[1]))]
    more_s = np.array([sharing[pair] for pair in free]).reshape(-1, 2)
    return np.array(free, dtype=np.int64).reshape(-1, 2), more_s[:, 0], more_s[:, 1]
