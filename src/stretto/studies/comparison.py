"""Comparing the rows of a study: which scheme is best."""

from __future__ import annotations

import numpy as np

from .model import Row, grouped


def compare_rows(rows: list[Row], baseline: str) -> None:
    """Add ``over_best``, the ratio to the best completion of all schemes on the same request, and ``over_baseline``."""
    done = (row for row in rows if "completion_s" in row)
    for group in grouped(done, lambda r: (r["where"], r["collective"], r["size_bytes"], r["chunks"])).values():
        best = min((row["completion_s"] for row in group if row.get("contends", True)), default=None)
        base = [row["by_seed"]["completion_s"] for row in group if row["scheme"] == baseline and "by_seed" in row]
        for row in group:
            row["over_best"] = row["completion_s"] / best if best is not None else None
            if base and "by_seed" in row:
                ratio = np.divide(row["by_seed"]["completion_s"], base[0])
                row |= {"over_baseline": float(ratio.mean()), "over_baseline_spread": float(ratio.std())}
                if row["bound_s"]:
                    row["bound_over_baseline"] = float(np.divide(row["by_seed"]["bound_s"], base[0]).mean())
