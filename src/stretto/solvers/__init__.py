"""A thin layer over LP, MILP and CP solvers: build a model in blocks of arrays, and solve it.

A :class:`Model` consists of columns and rows. :func:`solve` gives it to one of four solvers, and each returns the same
:class:`Solution`, so that a planner reads gaps and bounds without knowing which solver ran.

- ``highs.py``: HiGHS, for linear and mixed-integer programs; and linear programs to which rows are added.
- ``cpsat.py``: CP-SAT of OR-tools, for programs whose columns and coefficients are all integer.
- ``cbc.py``: CBC, which OR-tools includes.
- ``gurobi.py``: Gurobi, where the user has it.
- ``disjunctive.py``: schedules of jobs on machines that serve one job at a time, by CP-SAT intervals or by a MILP.
- ``conic.py``: convex programs with reciprocals, by Clarabel.

Every solver runs on one thread with a fixed seed. ``effort`` limits its work in counted units, so that a limited
search ends at the same place on every machine. ``time_limit_s`` is a net: what it cuts short may differ between runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.arrays import Bool, Float64, Int64, offsets_of
from ..model.errors import Infeasible, InputError, nearest

Progress = Callable[[float, float | None], None]
"""Called with (best bound, objective of the incumbent or None) now and then."""

SOLVERS = {"highs": "HiGHS", "cp-sat": "CP-SAT", "cbc": "CBC", "gurobi": "Gurobi"}
"""What solutions call the solver of each name."""

INFINITY = float("inf")

INTERIOR_ENTRIES_A_UNIT = 2.5e6
"""Iterations of the interior-point method times entries of the matrix in a unit of effort: 2 to 5 million were a second
of CPU on programs of 1,300 to 29,000 rows (:mod:`stretto.schedule.sizing`), which take 22 to 39 iterations. The simplex
method takes 1.5 to 6 times as long there."""

MOST_COLUMNS = 5_000_000
"""Most columns of a linear program in time steps: more take several gigabytes, and no solver ends."""

MOST_INTEGERS = 2_000_000
"""Most columns of a mixed-integer program in time steps, for the same reason."""


def affordable(columns: int, step_s: float, integer: bool = False) -> None:
    """Refuse a program in time steps that has too many columns, before its arrays are made.

    Args:
        columns: the number of columns.
        step_s: the length of a time step, for the message.
        integer: whether columns are integer.
    Raises:
        Infeasible: there are more than the program may have.
    """
    most = MOST_INTEGERS if integer else MOST_COLUMNS
    if columns > most:
        raise Infeasible(
            f"in steps of {step_s:.3g} s the program has {columns:.3g} unknowns, more than {most:,}; "
            "take larger chunks, or a planner without steps"
        )


@dataclass
class Model:
    """A linear program to minimise, of which some columns may be integer.

    Columns and rows are appended in blocks of arrays, without a Python object for each.
    """

    column_count: int = 0
    row_count: int = 0
    _columns: list[tuple[Float64, Float64, Float64, Bool]] = field(default_factory=list)
    _bounds: list[tuple[Float64, Float64]] = field(default_factory=list)
    _entries: list[tuple[Int64, Int64, Float64]] = field(default_factory=list)

    def columns(self, count: int, lower: Any = 0.0, upper: Any = 1.0, cost: Any = 0.0, integer: bool = False) -> Int64:
        """Append ``count`` columns and return their indexes; bounds and costs are numbers or arrays."""
        self._columns.append((*(_spread(v, (count,)) for v in (lower, upper, cost)), np.full(count, integer)))  # type: ignore[arg-type]
        first = self.column_count
        self.column_count += count
        return np.arange(first, first + count)

    def rows(self, count: int, lower: Any, upper: Any, *entries: tuple[Any, ...]) -> Int64:
        """Append ``count`` rows ``lower <= entries <= upper`` and return their indexes.

        Args:
            entries: tuples ``(row, column, value)`` of numbers or of arrays of equal length. Rows count from 0
                within this block. Entries with the same row and column add up. A tuple ``(column, value)`` has a
                column, or a list of columns, for each row. Column -1 stands for nothing.
        """
        self._bounds.append((_spread(lower, (count,)), _spread(upper, (count,))))
        for *row, column, value in entries:
            at = row[0] if row else np.arange(count).reshape(-1, *[1] * (np.ndim(column) - 1))
            shape = np.broadcast(at, column, value).shape
            at, which = (_spread(each, shape, np.int64) for each in (at, column))
            what, used = _spread(value, shape), which >= 0
            if not used.all():
                at, which, what = at[used], which[used], what[used]
            self._entries.append((at + self.row_count, which, what))
        first = self.row_count
        self.row_count += count
        return np.arange(first, first + count)

    @property
    def entry_count(self) -> int:
        """How many entries the rows have; those of the same row and column are counted separately."""
        return sum(len(value) for *_, value in self._entries)

    @property
    def all_integer(self) -> bool:
        """Whether every column is integer, as CP-SAT requires (it requires integer entries as well)."""
        return all(bool(block[3].all()) for block in self._columns)

    def built(self) -> Built:
        """The model as arrays, rows in CSR."""

        def joined(parts: list[Any], place: int, kind: Any) -> NDArray[Any]:
            return np.concatenate([p[place] for p in parts]) if parts else np.zeros(0, dtype=kind)

        row, column = joined(self._entries, 0, np.int64), joined(self._entries, 1, np.int64)
        value = joined(self._entries, 2, np.float64)
        key = row * max(self.column_count, 1) + column
        order = np.argsort(key, kind="stable")
        firsts = np.flatnonzero(np.diff(key[order], prepend=-1))
        total = np.add.reduceat(value[order], firsts) if len(firsts) else value
        row, column = row[order][firsts], column[order][firsts]
        starts = offsets_of(np.bincount(row, minlength=self.row_count))
        lower, upper, cost = (joined(self._columns, i, np.float64) for i in range(3))
        return Built(
            lower=lower, upper=upper, cost=cost, integer=joined(self._columns, 3, np.bool_),
            row_lower=joined(self._bounds, 0, np.float64), row_upper=joined(self._bounds, 1, np.float64),
            starts=starts, index=column, value=total,
        )  # fmt: skip


def _spread(value: Any, shape: tuple[int, ...], kind: type = np.float64) -> NDArray[Any]:
    """A number or an array as a new flat array of some shape. NumPy's own broadcasting takes four times as long for
    few values, and planners build thousands of small programs."""
    block: NDArray[Any] = np.empty(shape, dtype=kind)
    block[...] = value
    return block.reshape(-1)


@dataclass(frozen=True)
class Built:
    """A model as arrays: minimise ``cost @ x``; ``row_lower <= A x <= row_upper``, A in CSR."""

    lower: Float64
    upper: Float64
    cost: Float64
    integer: Bool
    row_lower: Float64
    row_upper: Float64
    starts: Int64
    index: Int64
    value: Float64


@dataclass(frozen=True)
class Limits:
    """When and how a solver stops; see :func:`solve`."""

    time_limit_s: float | None
    gap: float
    first: bool
    seed: int
    effort: float | None
    prove: bool
    interior: bool


@dataclass(frozen=True)
class Solution:
    """The answer of a solver.

    Attributes:
        status: "optimal" (within the gap), "feasible" (stopped with an incumbent), "infeasible", or "unknown" (stopped
            without an incumbent).
        x: float64[columns], the incumbent; None without one.
        objective: the value of the incumbent; None without one.
        bound: a value that no solution is below.
        effort: work that the solver has done, in the units of :func:`solve`; 0 where it counts nothing.
        solver: who answered; columns and rows: of the model.
        seconds, cpu_s: wall and CPU seconds, including the conversion of the model.
    """

    status: str
    x: Float64 | None
    objective: float | None
    bound: float
    effort: float = 0.0
    solver: str = ""
    columns: int = 0
    rows: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0

    @property
    def gap(self) -> float | None:
        """``(objective - bound) / |objective|``, None without an incumbent."""
        if self.objective is None:
            return None
        return max(0.0, self.objective - self.bound) / max(abs(self.objective), 1e-12)

    @property
    def facts(self) -> dict[str, Any]:
        """What the meta of a plan says of a solve."""
        return {name: getattr(self, name) for name in ("status", "solver", "columns", "rows", "cpu_s", "gap")}


def solve(
    model: Model,
    *,
    solver: str = "highs",
    time_limit_s: float | None = None,
    gap: float = 1e-4,
    first: bool = False,
    start: Float64 | None = None,
    seed: int = 0,
    effort: float | None = None,
    prove: bool = False,
    interior: bool = False,
    progress: Progress | None = None,
) -> Solution:
    """Minimise a model.

    Args:
        solver: one of :data:`SOLVERS`. "cp-sat" takes integer columns and coefficients only.
        time_limit_s: wall-clock seconds after which the solver stops: a net, since it makes the answer depend on the
            machine.
        gap: relative gap at which to stop.
        first: stop at the first incumbent.
        start: float64[columns], a solution to begin from; it need not be feasible.
        seed: of the solver's random choices.
        effort: work after which the solver stops, in units of very roughly a second. The same model ends at the same
            place everywhere. A unit is, for CP-SAT, one of its deterministic time; for HiGHS,
            :data:`stretto.solvers.highs.NODE_ENTRIES_A_UNIT` in a mixed-integer program (at least one node) and
            :data:`stretto.solvers.highs.ITERATION_ENTRIES_A_UNIT` in a linear one, or
            :data:`INTERIOR_ENTRIES_A_UNIT` with ``interior``; for Gurobi, one of its work units. CBC counts nothing and
            ignores it.
        prove: turn off the incumbent heuristics of HiGHS: for a good start that only needs a proof.
        interior: solve a linear program by an interior-point method of HiGHS, without a vertex at the end: the answer
            is optimal to about 1e-7.
    Raises:
        InputError: the solver is unknown or not installed, or cannot take the model.
    """
    if solver not in SOLVERS:
        raise InputError(f"{solver!r} is no solver; {nearest(solver, SOLVERS)}", "solver")
    if interior and (solver != "highs" or any(bool(block[3].any()) for block in model._columns)):
        raise InputError("interior points are for HiGHS and linear programs", "interior")
    wall, cpu = time.perf_counter(), time.process_time()
    built = model.built()
    limits = Limits(time_limit_s, gap, first, seed, effort, prove, interior)
    if solver == "highs":
        from .highs import run
    elif solver == "cp-sat":
        from .cpsat import run
    elif solver == "cbc":
        from .cbc import run
    else:
        from .gurobi import run
    answer = run(built, limits, start, progress)
    return replace(
        answer, solver=SOLVERS[solver], columns=len(built.cost), rows=len(built.row_lower),
        seconds=time.perf_counter() - wall, cpu_s=time.process_time() - cpu,
    )  # fmt: skip
