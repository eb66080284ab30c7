"""Plans beside each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from ..model import plan as _plan
from ..model.errors import InputError, StrettoError
from ..model.units import format_bandwidth, format_size, format_time, format_usd
from .objects import Plan, Topology, draw, of_model, pandas_module
from .planning import plan
from .requests import Collectives, Network, Size, request_topology, workload

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from ..model.progress import Progress


MARK = " *"
"""Of the plan that ends soonest, where several serve a request."""


@dataclass(frozen=True, eq=False)
class Comparison(Sequence[dict[str, Any]]):
    """Plans beside each other: a sequence of rows, which ``pandas.DataFrame`` takes as it is.

    Attributes:
        rows: for each plan the numbers of :meth:`Plan.summary`; where a planner does not serve the request, what was
            asked, and ``failed``, the reason.
        plans: the plan of each row, None where there is none.
    """

    rows: tuple[dict[str, Any], ...]
    plans: tuple[Plan | None, ...]

    HEADER = (
        "planner",
        "size",
        "chunks",
        "messages",
        "completion",
        "bound",
        "ratio",
        "algorithm bandwidth",
        "planning",
    )

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: Any) -> Any:
        return self.rows[i]

    @property
    def header(self) -> tuple[str, ...]:
        """The names of the columns of :attr:`cells`: those of ``HEADER``, and those that not every comparison has."""
        return (*self.HEADER, *(name for name, _, _ in self._further))

    @property
    def _further(self) -> list[tuple[str, str, Callable[[float], str]]]:
        """The mean completion, of several collectives, and the cost, where links have prices: the column, its
        number in a row, and how that is written."""
        columns = (("mean completion", "mean_completion_s", format_time), ("cost", "cost_usd", format_usd))
        return [column for column in columns if any(column[1] in row for row in self.rows)]

    @property
    def title(self) -> str:
        """``allreduce among 8 ranks of ring:8``, for each request that is compared."""
        titles = (f"{r['collective']} among {r['ranks']} ranks of {r['topology']}" for r in self.rows)
        return ", ".join(dict.fromkeys(titles))

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """Each row as text, in the columns of :attr:`header`."""
        best = self._best
        cells = [_cells(row, MARK if i in best else "") for i, row in enumerate(self.rows)]
        further = self._further
        return [
            (*cell, *(text(row[key]) if key in row else "" for _, key, text in further))
            for cell, row in zip(cells, self.rows, strict=True)
        ]

    @property
    def _best(self) -> set[int]:
        """The rows that end soonest among several for the same request; of several collectives by their mean."""
        requests: dict[tuple[Any, ...], list[int]] = {}
        for i, row in enumerate(self.rows):
            if "failed" not in row:
                key = tuple(row[name] for name in ("collective", "ranks", "topology", "size_bytes"))
                requests.setdefault(key, []).append(i)
        return {min(rows, key=self._ends_s) for rows in requests.values() if len(rows) > 1}

    def _ends_s(self, i: int) -> float:
        row = self.rows[i]
        return float(row.get("mean_completion_s", row["completion_s"]))

    @property
    def failures(self) -> list[tuple[str, str]]:
        """Each planner that does not serve a request, and the reason."""
        return list(dict.fromkeys((r["planner"], r["failed"]) for r in self.rows if "failed" in r))

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a table."""
        return pandas_module().DataFrame(list(self.rows))

    def report(self, path: str | os.PathLike[str]) -> None:
        """Draw the plans on one HTML page, or as a picture if the path ends in ``.svg``."""
        draw(path, [p for p in self.plans if p is not None])

    def figure(self, path: str | os.PathLike[str] | None = None, over: str = "size", of: str = "ratio") -> Figure:
        """A line a planner, as a figure for print.

        Args:
            path: where to write it, too: .pdf, .svg or .png.
            over: what the axis has: "size", or "chunks", the number of chunks of each piece.
            of: "ratio", completion over the lower bound, or "completion", the time.
        """
        from ..report.figures import comparison_figure, write_figure

        drawn = comparison_figure(self.rows, self.title, over, of)
        if path is not None:
            write_figure(drawn, path)
        return drawn

    def __repr__(self) -> str:
        table = [self.header, *self.cells]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(text.ljust(w) for text, w in zip(row, widths, strict=True)).rstrip() for row in table]
        return "\n".join([self.title, *lines, *self.notes])

    def _repr_html_(self) -> str:
        from ..report.notebook import table_html

        return table_html(self.title, self.header, self.cells, self.notes)

    @property
    def notes(self) -> list[str]:
        """What marks the best rows, what a message costs, what bounds leave out, and who does not serve a request."""
        from ..report.facts import BOUNDS_WITHOUT_TURNS, message_text

        costs = dict.fromkeys(message_text(row) for row in self.rows)
        ends = "has the least mean completion" if self._further and self._further[0][0] != "cost" else "ends soonest"
        marks = [f"{MARK.strip()} {ends}"] if self._best else []
        without_turns = any(row.get("bound_counts_turns") is False for row in self.rows)
        return [
            *marks,
            *(f"a message costs {cost}" for cost in costs if cost),
            *([BOUNDS_WITHOUT_TURNS] if without_turns else []),
            *(f"no plan by {name}: {reason}" for name, reason in self.failures),
        ]


def compare(
    collectives: Collectives | Sequence[_plan.Plan],
    topology: Network | None = None,
    size: Size | Sequence[Size] | None = None,
    *,
    planner: str | Sequence[str] = "auto",
    shard: Size | Sequence[Size] | None = None,
    chunks: int | Sequence[int] = 1,
    progress: Progress | None = None,
    **how: Any,
) -> Comparison:
    """Plan with each planner for each size and number of chunks, and put the plans beside each other and the bound.

    ``st.compare("allreduce", net, size=["1MB", "64MB"], planner=["ring", "auto"])``, or plans that exist already:
    ``st.compare([first, second])``.

    Args:
        size: one or several, as a list or as text separated by commas.
        shard: the same.
        planner: the same.
        chunks: the same.
        how: the other arguments of :func:`plan`.
    Raises:
        InputError: an argument is wrong. What a planner does not serve is no error: its row says why.
    """
    from ..planners import find

    if isinstance(collectives, Sequence) and collectives and all(isinstance(p, _plan.Plan) for p in collectives):
        given = tuple(of_model(p) for p in collectives)  # type: ignore[arg-type]
        return Comparison(tuple(p.summary() for p in given), given)
    if topology is None:
        raise InputError("give the topology, too", "topology")
    net = request_topology(topology)
    name, amounts = ("shard", _each(shard)) if size is None else ("size", _each(size))
    if size is not None and shard is not None:
        raise InputError("give either the size of the full buffer or one rank's shard", "size")
    cells = list(product(amounts, _each(chunks), _each(planner)))
    for stage in (stage for spec in _each(planner) for stage in str(spec).split("+")):
        find(stage)  # a wrong name is refused, and a planner's file imported, before the first plan
    tell: Progress = progress or (lambda done, total, what: None)
    answers: list[tuple[dict[str, Any], Plan | None]] = []
    for i, (amount, count, spec) in enumerate(cells):
        tell(i, len(cells), what := f"{spec}, {amount}")
        inner = None if progress is None else partial(_within, tell, i, len(cells), what)
        answers.append(_cell(collectives, net, spec, inner, how | {name: amount, "chunks": count}))
    tell(len(cells), len(cells), "done")
    return Comparison(tuple(row for row, _ in answers), tuple(plan for _, plan in answers))


def _within(tell: Progress, done: int, total: int, outer: str, part: int, parts: int, what: str) -> None:
    """Tell the progress of one cell as that of the comparison."""
    tell(done, total, f"{outer}: {what}")


def _cell(
    collectives: Any, net: Topology, planner: str, progress: Progress | None, how: dict[str, Any]
) -> tuple[dict[str, Any], Plan | None]:
    """One row of a comparison, and its plan if there is one."""
    from ..report.facts import request_facts

    request = {key: how.pop(key) for key in ("size", "shard", "chunks", "ranks", "root", "demand") if key in how}
    work = workload(collectives, net, **request)
    try:
        result = plan(work, net, planner=planner, progress=progress, **how)
        verdict = result.verify()
        if verdict.finding is not None:
            raise StrettoError(f"the plan is not correct: {verdict.finding.message}")
    except InputError:
        raise
    except StrettoError as error:
        return request_facts(net, work) | {"planner": planner, "failed": str(error)}, None
    return result.summary(), result


def _each(values: Any) -> list[Any]:
    """Several values as a list: from a list, from text by comma, from one value."""
    if isinstance(values, str):
        return values.split(",")
    return list(values) if isinstance(values, Sequence) else [values]


def _cells(row: Mapping[str, Any], mark: str) -> tuple[str, ...]:
    start = (row["planner"] + mark, format_size(row["size_bytes"]), str(row["chunks"]))
    if "failed" in row:
        return (*start, "", "none", "", "", "", "")
    shown = {
        "transfers": "{:,}".format,
        "completion_s": format_time,
        "bound_s": format_time,
        "completion_over_bound": "{:.3f}".format,
        "algorithm_bandwidth": format_bandwidth,
        "planning_s": format_time,
    }
    return (*start, *("" if row[key] is None else text(row[key]) for key, text in shown.items()))
