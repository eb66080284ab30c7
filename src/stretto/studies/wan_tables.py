"""The tables of the WAN study: ratios to TCP's sharing for each figure, and ``wan`` against the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..model.units import format_size
from .model import Row, Table, grouped

RATIOS = {"4": "collectives", "4b": "collectives", "5": "topology", "8": "topology"}
"""Figures that show ratios to ``tcp-fair``, and the quantity of their columns."""

FREE = ("teccl", "scale-ccl+wan")
"""Planners that choose routes: the bound for fixed routes does not hold for them."""


def tables(rows: Sequence[Row]) -> list[Table]:
    """All tables for which there are rows."""
    taken = "Figures 6 and 7: mean completion, s"
    varied = "Completion where bandwidths vary / where they are constant"
    found = [
        *(_ratios(f"Figure {f}: mean completion / tcp-fair", _of(rows, f), x) for f, x in RATIOS.items()),
        _grid(taken, [*_of(rows, "6"), *_of(rows, "7")], "size_bytes", "completion_s", 2),
        *_emulated(_of(rows, "8e")),
        _grid(varied, _of(rows, "varying"), "varying", "slowdown", 3),
        _standing(rows),
    ]
    return [table for table in found if table.rows]


def _of(rows: Iterable[Row], figure: str) -> list[Row]:
    return [row for row in rows if figure in row["figures"]]


def _grid(title: str, rows: Sequence[Row], x: str, y: str, digits: int) -> Table:
    """A table of means and spreads with a line for each scheme and a column for each ``x``."""
    across = list(dict.fromkeys(row[x] for row in rows))
    body = []
    for scheme, own in grouped(rows, lambda r: r["scheme"]).items():
        at = {row[x]: f"{row[y]:.{digits}f} ± {row[f'{y}_spread']:.{digits}f}" for row in own}
        body.append((scheme, *(at.get(v, "") for v in across)))
    return Table(title, (x.removesuffix("_bytes").replace("_", " "), *(_shown(x, value) for value in across)), body)


def _shown(x: str, value: Any) -> str:
    """A value of a column in words, such as a size or a share."""
    if x == "size_bytes":
        return format_size(value)
    return f"{100 * value:.0f} %" if x == "varying" else str(value)


def _ratios(title: str, rows: Sequence[Row], x: str) -> Table:
    rows = [row for row in rows if "over_baseline" in row]
    table = _grid(title, rows, x, "over_baseline", 2)
    bound = {row[x]: f"{row['bound_over_baseline']:.2f}" for row in rows if row["scheme"] == "wan"}
    if bound:
        table.rows.append(("bound", *(bound.get(v, "") for v in dict.fromkeys(row[x] for row in rows))))
    return table


def _emulated(rows: Sequence[Row]) -> Iterator[Table]:
    """For each ring the schemes with real bytes: mean completions, simulated and measured, the slowest first."""
    columns = ("scheme", "simulated s", "measured s", "measured / simulated")
    for topology, own in grouped(rows, lambda r: r["topology"]).items():
        body: list[tuple[str, ...]] = []
        for row in sorted(own, key=lambda r: -r["simulated_s"]):
            measured = f"{row['completion_s']:.4f} ± {row['completion_s_spread']:.4f}"
            body.append((row["scheme"], f"{row['simulated_s']:.4f}", measured, f"{row['over_simulated']:.3f}"))
        yield Table(f"Figure 8 with real bytes, {topology}: mean completion", columns, body)


def _standing(rows: Sequence[Row]) -> Table:
    """``wan`` against TCP's sharing, the bound, and the best other scheme with the same routes on each instance."""
    body: list[tuple[str, ...]] = []
    for figure in (*RATIOS, "6"):
        routed = (row for row in _of(rows, figure) if row["planner"] not in FREE)
        requests = grouped(routed, lambda r: (r["where"], r["size_bytes"])).values()
        schemes = [{row["scheme"]: row["by_seed"] for row in request} for request in requests]
        whole = [r for r in schemes if "wan" in r and len(r) > 1]
        if not whole:
            continue
        ours = np.concatenate([r["wan"]["completion_s"] for r in whole])
        bound = np.concatenate([r["wan"]["bound_s"] for r in whole])
        fair = np.concatenate([r["tcp-fair"]["completion_s"] for r in whole if "tcp-fair" in r])
        others = [np.min([own["completion_s"] for name, own in r.items() if name != "wan"], axis=0) for r in whole]
        gap = ours / bound
        body.append((
            figure, str(len(ours)), f"{(ours / fair).mean():.3f}" if len(fair) == len(ours) else "",
            f"{gap.mean():.3f}", f"{gap.max():.3f}", f"{(np.concatenate(others) / ours).min():.4f}",
        ))  # fmt: skip
    columns = ("figure", "instances", "wan / tcp-fair", "wan / bound", "at worst", "best other / wan, at least")
    return Table("wan and the others with the same routes", columns, body)
