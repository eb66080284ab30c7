"""The tables of MTEGCCA's study: the largest buffer on every network."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..model.units import format_time
from .model import Row, Table, grouped


def tables(rows: Sequence[Row]) -> list[Table]:
    """Completion over the bound with what planning took, and what MTEGCCA takes beside what it reports of itself."""
    own = [row for row in rows if "6" in row["figures"] and row.get("contends", True)]
    found = [
        _by_topology("Figures 6 and 7: completion / bound, planning in CPU seconds", own, _near),
        _by_topology(
            "Figure 6: completion, and in brackets slots x slot", [r for r in own if r["planner"] == "mtegcca"], _times
        ),
    ]
    return [table for table in found if table.rows]


def _near(row: Row) -> str:
    return f"{row['completion_over_bound']:.3f}, {row['planning_cpu_s']:.2g} s"


def _times(row: Row) -> str:
    return f"{format_time(row['completion_s'])} ({format_time(row['reported_s'])})"


def _by_topology(title: str, rows: Sequence[Row], shown: Callable[[Row], str]) -> Table:
    """A line for each scheme, a column for each network."""
    across = list(dict.fromkeys(row["topology"] for row in rows))
    body = []
    for scheme, own in grouped(rows, lambda row: row["scheme"]).items():
        cells = {row["topology"]: shown(row) for row in own}
        body.append((scheme, *(cells.get(topology, "") for topology in across)))
    return Table(title, ("scheme", *across), body)
