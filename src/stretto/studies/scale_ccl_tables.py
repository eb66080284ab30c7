"""The table of SCALE-CCL's study: how far it is behind TE-CCL."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .model import Row, Table, grouped

OURS, PRINTED = "scale-ccl", "scale-ccl, paper's rules"
"""The schemes compared with TE-CCL."""

PUBLISHED = {
    "9": "at most 8.89 %, mean 2.94 %; all within 10 %",
    "10": "12 of 15 within 10 %, all within 15 %",
}
"""The gaps to TE-CCL that sections 5.2 and 5.3 give, by figure."""


def tables(rows: Sequence[Row]) -> list[Table]:
    """The table, as far as the rows go."""
    steady = [row for row in rows if not any(figure in ("varying", "failing") for figure in row["figures"])]
    gaps = _gaps(steady)
    return [gaps] if gaps.rows else []


def _request(row: Row) -> tuple[str, int, int]:
    return row["topology"], row["size_bytes"], row["chunks"]


def _best_teccl(rows: Sequence[Row]) -> Row | None:
    """TE-CCL's plan that ends first, fast or slow, by its own search or from another planner's epochs."""
    own = [row for row in rows if row["planner"] == "teccl"]
    return min(own, key=lambda row: float(row["completion_s"]), default=None)


def _proven(rows: Sequence[Row]) -> bool:
    """Whether TE-CCL's fewest epochs are proven, for each length of an epoch by one of its rows."""
    modes = grouped((row for row in rows if row["planner"] == "teccl"), lambda row: row["options"]["mode"])
    return all(any(row["proven"] for row in own) for own in modes.values())


def _gaps(rows: Sequence[Row]) -> Table:
    """For each figure, how much longer SCALE-CCL takes than TE-CCL on the same request; both simulated."""
    body: list[tuple[str, ...]] = []
    for figure in ("9", "10"):
        shown = [row for row in rows if any(f == figure or f.startswith(f"{figure}, ") for f in row["figures"])]
        requests = grouped(shown, _request).values()
        compared = [(best, group) for group in requests if (best := _best_teccl(group)) is not None]
        if not compared:
            continue
        proven = sum(_proven(group) for _, group in compared)
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
