"""A thin layer over LP, MILP and CP solvers: build a model in blocks of arrays, solve it.

A :class:`Model` is columns and rows; :func:`solve` hands it to HiGHS (LP, MILP), to CP-SAT of
OR-tools (pure integer models), to CBC, which OR-tools brings, or, where a user has it, to Gurobi.
All answer with the same :class:`Solution`, so that a planner reads gaps and limits without knowing
who solved.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.clock import loading
from ..model.errors import Infeasible, InputError

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
Progress = Callable[[float, float | None], None]
"""Called with (best bound, objective of the incumbent or None) now and then."""

SOLVERS = ("highs", "cp-sat", "cbc", "gurobi")
INFINITY = float("inf")

MOST_COLUMNS, MOST_INTEGERS = 5_000_000, 2_000_000
"""A program in steps of time that has more is not built: it takes some gigabytes, and no solver ends."""


def affordable(columns: int, step_s: float, integer: bool = False) -> None:
    """Refuse a program in steps of time that has too many columns, before its arrays are made.

    Raises:
        Infeasible: with the reason.
    """
    most = MOST_INTEGERS if integer else MOST_COLUMNS
    if columns > most:
        raise Infeasible(
            f"in steps of {step_s:.3g} s the program has {columns:.3g} unknowns, more than {most:,}; "
            "take larger chunks, or a planner without steps"
        )


@dataclass
class Model:
    """A linear program, to be minimised, some columns integer.

    Blocks are appended as arrays; nothing is kept per row or column as a Python object.
    """

    column_count: int = 0
    row_count: int = 0
    _columns: list[tuple[Float64, Float64, Float64, NDArray[np.bool_]]] = field(default_factory=list)
    _bounds: list[tuple[Float64, Float64]] = field(default_factory=list)
    _entries: list[tuple[Int64, Int64, Float64]] = field(default_factory=list)

    def columns(self, count: int, lower: Any = 0.0, upper: Any = 1.0, cost: Any = 0.0, integer: bool = False) -> Int64:
        """Append ``count`` columns and return their indexes; the rest is a number or an array each."""
        spread = [np.broadcast_to(np.asarray(v, dtype=np.float64), count) for v in (lower, upper, cost)]
        self._columns.append((*spread, np.full(count, integer)))  # type: ignore[arg-type]
        first = self.column_count
        self.column_count += count
        return np.arange(first, first + count)

    def rows(self, count: int, lower: Any, upper: Any, *entries: tuple[Any, Any, Any]) -> Int64:
        """Append ``count`` rows ``lower <= entries <= upper`` and return their indexes.

        Args:
            entries: each ``(row, column, value)``: rows counted from 0 within this block,
                arrays of equal length or numbers. Several on one place add up.
        """
        spread = [np.broadcast_to(np.asarray(v, dtype=np.float64), count) for v in (lower, upper)]
        self._bounds.append((spread[0], spread[1]))
        for row, column, value in entries:
            at, which, what = np.broadcast_arrays(np.asarray(row), np.asarray(column), np.asarray(value, np.float64))
            self._entries.append(
                (at.ravel().astype(np.int64) + self.row_count, which.ravel().astype(np.int64), what.ravel())
            )
        first = self.row_count
        self.row_count += count
        return np.arange(first, first + count)

    @property
    def all_integer(self) -> bool:
        """Whether every column is integer, so that CP-SAT may take it (if the entries are, too)."""
        return all(bool(block[3].all()) for block in self._columns)

    def built(self) -> Built:
        """The whole as arrays, rows in CSR."""

        def joined(parts: list[Any], place: int, kind: Any) -> NDArray[Any]:
            return np.concatenate([p[place] for p in parts]) if parts else np.zeros(0, dtype=kind)

        row, column = joined(self._entries, 0, np.int64), joined(self._entries, 1, np.int64)
        value = joined(self._entries, 2, np.float64)
        key = row * max(self.column_count, 1) + column
        order = np.argsort(key, kind="stable")
        firsts = np.flatnonzero(np.diff(key[order], prepend=-1))
        total = np.add.reduceat(value[order], firsts) if len(firsts) else value
        row, column = row[order][firsts], column[order][firsts]
        starts = np.zeros(self.row_count + 1, dtype=np.int64)
        np.cumsum(np.bincount(row, minlength=self.row_count), out=starts[1:])
        lower, upper, cost = (joined(self._columns, i, np.float64) for i in range(3))
        return Built(
            lower=lower, upper=upper, cost=cost, integer=joined(self._columns, 3, np.bool_),
            row_lower=joined(self._bounds, 0, np.float64), row_upper=joined(self._bounds, 1, np.float64),
            starts=starts, index=column, value=total,
        )  # fmt: skip


@dataclass(frozen=True)
class Built:
    """A model as arrays: minimise ``cost @ x``; ``row_lower <= A x <= row_upper``, A in CSR."""

    lower: Float64
    upper: Float64
    cost: Float64
    integer: NDArray[np.bool_]
    row_lower: Float64
    row_upper: Float64
    starts: Int64
    index: Int64
    value: Float64


@dataclass(frozen=True)
class Limits:
    """When and how a solver stops, see :func:`solve`."""

    time_limit_s: float | None
    gap: float
    first: bool
    seed: int
    threads: int
    effort: float | None
    prove: bool


@dataclass(frozen=True)
class Solution:
    """What a solver says.

    Attributes:
        status: "optimal" (within the gap asked for), "feasible" (stopped with an incumbent),
            "infeasible", or "unknown" (stopped with nothing).
        x: float64[columns], the incumbent; None without one.
        objective, bound: of the incumbent, and what no solution can be below.
        seconds, cpu_s: spent, model building in this layer included.
    """

    status: str
    x: Float64 | None
    objective: float | None
    bound: float
    solver: str
    columns: int
    rows: int
    seconds: float = 0.0
    cpu_s: float = 0.0

    @property
    def gap(self) -> float | None:
        """``(objective - bound) / |objective|``, None without an incumbent."""
        if self.objective is None:
            return None
        return max(0.0, self.objective - self.bound) / max(abs(self.objective), 1e-12)


def solve(
    model: Model,
    *,
    solver: str = "highs",
    time_limit_s: float | None = None,
    gap: float = 1e-4,
    first: bool = False,
    start: Float64 | None = None,
    seed: int = 0,
    threads: int = 1,
    effort: float | None = None,
    prove: bool = False,
    progress: Progress | None = None,
) -> Solution:
    """Minimise a model.

    Args:
        solver: one of :data:`SOLVERS`. "cp-sat" takes integer columns and coefficients only.
        gap: relative gap at which to stop.
        first: stop at the first incumbent.
        start: float64[columns], a solution to begin from, need not be feasible.
        threads: the default keeps a run reproducible and its CPU time comparable.
        effort: CP-SAT's deterministic units of work, about a second each, at which it gives up;
            unlike a time limit it ends the same search at the same place. Others ignore it.
        prove: HiGHS looks for incumbents by its search alone: where a good one is known and only a proof is wanted.
    Raises:
        InputError: an unknown solver, one that is not installed, or a model that it cannot take.
    """
    if solver not in SOLVERS:
        raise InputError(f"{solver!r} is no solver; there are {', '.join(SOLVERS)}", "solver")
    wall, cpu = time.perf_counter(), time.process_time()
    built = model.built()
    limits = Limits(time_limit_s, gap, first, seed, threads, effort, prove)
    with loading():
        if solver == "highs":
            from .highs import run
        elif solver == "cp-sat":
            from .cpsat import run
        elif solver == "cbc":
            from .cbc import run
        else:
            from .gurobi import run
    found = run(built, limits, start, progress)
    return replace(found, seconds=time.perf_counter() - wall, cpu_s=time.process_time() - cpu)
