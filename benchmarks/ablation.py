"""What does each part of the default planner earn? Its plans without the part, over its plans with it.

python benchmarks/ablation.py [PART ...] [-n 1] [--seed 0] [--sample 5] [-s 64KB,64MB] [-c allreduce] [--effort normal]

Each part is switched off in turn. A row gives the geometric mean of completion without the part over completion with
it, on the grid's networks and on held-out ones (benchmarks/heldout_networks.py, -n of each kind), the cells that change
by more than 0.3 %, and the cell that loses most. Work is counted, so nothing depends on the machine or its load.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from grid import TOPOLOGIES, add_cells, cells, workload
from heldout import drawn, network
from stretto.model.errors import StrettoError
from stretto.planners import run_planner
from stretto.planners.registry import _ENTRIES, asked_by, find
from stretto.schedule.best import completion_s

GREEDY, FOREST = "stretto.planners.greedy.planner", "stretto.planners.forest"
PARTS: dict[str, tuple[str, Any]] = {
    "greedy: products": (f"{GREEDY}.plan_product", lambda *a, **k: None),
    "greedy: clusters": (f"{GREEDY}.plan_clusters", lambda *a, **k: None),
    "greedy: crossings": (f"{GREEDY}.plan_crossings", lambda *a, **k: None),
    "greedy: hubs": (f"{GREEDY}.plan_hubs", lambda *a, **k: None),
    "greedy: swapped trees": (f"{GREEDY}._Stages.try_swapped_trees", lambda self, plan: None),
    "greedy: overlap": (f"{GREEDY}._Stages.try_overlap", lambda self, plan: None),
    "greedy: long search": (f"{GREEDY}._Stages.try_long_search", lambda self, plan: None),
    "greedy: justification": (f"{GREEDY}._Stages.justified", lambda self: self.best),
    "forest: priced trees": (f"{FOREST}.refinement.Refinement.shallow_table", lambda self: None),
    "forest: meeting trees": (f"{FOREST}.candidates._meeting_forests", lambda *a: []),
    "forest: trees by latency": (f"{FOREST}.planner._latency_forests", lambda *a: []),
    **{f"auto: {entry.name}": (entry.name, None) for entry in asked_by("auto")},
}
"""For each part what is replaced, and by what; of ``auto`` a candidate that is not asked."""

CHANGED = 0.003


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[*PARTS])
    parser.add_argument("-n", "--networks", type=int, default=1, help="held-out networks of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "-t", "--topologies", nargs="*", help="networks to use instead, as benchmarks/heldout.py names them"
    )
    add_cells(parser)
    given = parser.parse_args()
    names = given.topologies or [*TOPOLOGIES, *drawn(given.networks, given.seed)]
    base = {cell: ended for cell in cells(names, given) if (ended := run(cell, given.effort)) is not None}
    rows = []
    for part in given.parts:
        with without(part):
            ends = {cell: run(cell, given.effort) for cell in base}
        rows.append(row(part, base, ends))
        print(shown(rows[-1]), flush=True)
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "ablation.json").write_text(json.dumps(rows, indent=1))


@contextmanager
def without(part: str) -> Iterator[None]:
    """The planners without one part."""
    target, by = PARTS[part]
    if part.startswith("auto: "):
        find(target)
        with patch.dict(_ENTRIES, {target: replace(_ENTRIES[target], auto=None)}):
            yield
        return
    module = target.rpartition(".")[0]
    while not module.rpartition(".")[2].islower():
        module = module.rpartition(".")[0]
    importlib.import_module(module)
    with patch(target, by):
        yield


def run(cell: tuple[str, str, str], effort: str) -> float | None:
    """Completion of a cell's plan, seconds; None where nothing serves it."""
    name, kind, size = cell
    net, ranks = network(name)
    try:
        return completion_s(run_planner("auto", net, workload(net, kind, size, ranks), effort=effort))
    except StrettoError:
        return None


def row(part: str, base: dict[Any, Any], ends: dict[Any, Any]) -> dict[str, Any]:
    """How much later plans end without a part."""
    ratios = {cell: (ends[cell] / base[cell] if ends[cell] else math.inf) for cell in base}
    worst = max(ratios, key=lambda cell: ratios[cell])
    finite = [r for r in ratios.values() if math.isfinite(r)]
    return {
        "part": part, "mean": math.exp(sum(map(math.log, finite)) / len(finite)), "cells": len(ratios),
        "later": sum(r > 1 + CHANGED for r in ratios.values()), "sooner": sum(r < 1 - CHANGED for r in ratios.values()),
        "worst": ratios[worst], "worst_cell": " ".join(worst)    }  # fmt: skip


def shown(r: dict[str, Any]) -> str:
    """A row as a line."""
    return (
        f"{r['part']:26} x {r['mean']:.4f}, later {r['later']:3}, sooner {r['sooner']:3} of {r['cells']}, "
        f"at worst x {r['worst']:.3f} ({r['worst_cell']})"
    )


if __name__ == "__main__":
    main()
