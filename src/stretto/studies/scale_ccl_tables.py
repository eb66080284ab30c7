"""The tables of SCALE-CCL's study: how far it is behind TE-CCL, and the completions that its paper prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..model.units import format_size
from .model import Row, Table, grouped

OURS, PRINTED = "scale-ccl", "scale-ccl, paper's rules"
"""The schemes compared with TE-CCL."""

PUBLISHED = {
    "9": "at most 8.89 %, mean 2.94 %; all within 10 %",
    "10": "12 of 15 within 10 %, all within 15 %",
}
"""The gaps to TE-CCL that sections 5.2 and 5.3 give, by figure."""


def tables(rows: Sequence[Row], published: Mapping[str, Any]) -> list[Table]:
    """Both tables, as far as the rows go."""
    steady = [row for row in rows if not any(figure in ("varying", "failing") for figure in row["figures"])]
    found = (_gaps(steady), _printed(steady, published["paper"]))
    return [table for table in found if table.rows]


def _request(row: Row) -> tuple[str, int, int]:
    return row["topology"], row["size_bytes"], row["chunks"]


def _best_teccl(rows: Sequence[Row]) -> Row | None:
    """TE-CCL's plan that ends first, fast or slow, by its own search or from another planner's epochs."""
    own = [row for row in rows if row["planner"] == "teccl"]
    return min(own, key=lambda row: float(row["completion_s"]), default=None)


def _gaps(rows: Sequence[Row]) -> Table:
    """For each figure, how much longer SCALE-CCL takes than TE-CCL on the same request; both simulated."""
    body: list[tuple[str, ...]] = []
    for figure in ("9", "10"):
        shown = [row for row in rows if any(f == figure or f.startswith(f"{figure}, ") for f in row["figures"])]
        requests = grouped(shown, _request).values()
        compared = [(best, group) for group in requests if (best := _best_teccl(group)) is not None]
        if not compared:
            continue
        proven = sum(all(r["proven"] for r in group if r["planner"] == "teccl") for _, group in compared)
        for scheme in (OURS, PRINTED):
            gap = np.array(
                [
                    r["completion_s"] / best["completion_s"] - 1
                    for best, g in compared
                    for r in g
                    if r["scheme"] == scheme
                ]
            )
            if len(gap):
                near = (f"{int((gap <= share + 1e-9).sum())}" for share in (0.10, 0.15))
                counts = (str(len(gap)), str(proven))
                extremes = (f"{round(100 * share, 2) + 0.0:.2f} %" for share in (gap.mean(), gap.max()))
                body.append((figure, scheme, *counts, *extremes, *near, PUBLISHED[figure]))
    columns = ("figure", "scheme", "requests", "TE-CCL's epochs proven fewest", "gap to TE-CCL, mean", "worst",
               "within 10 %", "within 15 %", "the paper")  # fmt: skip
    return Table("SCALE-CCL's gap to TE-CCL", columns, body)


def _printed(rows: Sequence[Row], published: Sequence[Mapping[str, Any]]) -> Table:
    """The completions that the paper prints, beside ours on the same request."""
    body: list[tuple[str, ...]] = [
        (p["scheme"], f"{format_size(p['megabytes'] * 10**6)}, {p['chunks']}, {p['km']} km",
         _us(p["reported_s"]), scheme, _us(row["reported_s"]), _us(row["completion_s"]))
        for p in published
        if "reported_s" in p
        for scheme, row in _same(rows, p)
    ]  # fmt: skip
    columns = (
        "the paper's scheme",
        "size, subchunks, distance",
        "the paper, us",
        "ours",
        "it reports, us",
        "simulated, us",
    )
    return Table("Completions that the paper prints", columns, body)


def _same(rows: Sequence[Row], published: Mapping[str, Any]) -> Iterator[tuple[str, Row]]:
    """The rows of a published scheme on its request."""
    for row in rows:
        name = str(row["scheme"]).partition(",")[0].removesuffix(" fast").removesuffix(" slow")
        on = all(row[key] == published[key] for key in ("topology", "size_bytes", "chunks"))
        if on and name == str(published["scheme"]).partition(",")[0]:
            yield str(row["scheme"]), row


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:,.1f}"
