"""What does each part of the default planner earn? Its plans without the part, over its plans with it.

python benchmarks/ablation.py [PART ...] [--together] [-n 1] [--seed 0] [--sample 5] [-s 64KB,64MB] [--effort normal]

Each part is switched off in turn; with --together all are, and then each is put back in turn, since parts may make up
for each other. A row gives the geometric mean of completion without the part over completion with
it, on the grid's networks and on held-out ones (benchmarks/heldout_networks.py, -n of each kind), and the cell that
loses most; the JSON file also has how many cells end later or sooner by more than 0.3 %. Work is counted, so nothing
depends on the machine or its load. A cell in which a part is never called is not planned again without it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest.mock import patch

import numpy as np

from grid import TOPOLOGIES, add_cells, cells, workload
from heldout import drawn, network
from piped import run
from stretto.bounds.concurrent import concurrent_flow
from stretto.model.errors import StrettoError
from stretto.model.plan import Plan
from stretto.planners import run_planner
from stretto.planners.registry import _ENTRIES, asked_by, find
from stretto.schedule.best import completion_s
from stretto.schedule.scheduling_problem import SchedulingProblem

GREEDY, FOREST, PATHS, SITES = (f"stretto.planners.{name}" for name in ("greedy", "forest", "paths", "by_sites"))
PARTS: dict[str, tuple[str, Any]] = {
    "greedy: products": (f"{GREEDY}.planner.plan_product", lambda *a, **k: None),
    "greedy: clusters": (f"{GREEDY}.planner.plan_clusters", lambda *a, **k: None),
    "greedy: crossings": (f"{GREEDY}.planner.plan_crossings", lambda *a, **k: None),
    "greedy: hubs": (f"{GREEDY}.planner.plan_hubs", lambda *a, **k: None),
    "greedy: swapped trees": (f"{GREEDY}.planner._Stages.try_swapped_trees", lambda self, plan: None),
    "greedy: overlap": (f"{GREEDY}.planner._Stages.try_overlap", lambda self, plan: None),
    "greedy: long search": (f"{GREEDY}.planner._Stages.try_long_search", lambda self, plan: None),
    "greedy: translations": (f"{GREEDY}.search.match_translations", lambda *a: None),
    "greedy: first matchings at once": (f"{GREEDY}.search.Search._direct", lambda *a: None),
    "forest: priced trees": (f"{FOREST}.planner._grown_forests", lambda *a: []),
    "forest: trees for numbers of parts": (f"{FOREST}.planner._choices_by_parts", lambda *a: []),
    "forest: meeting trees": (f"{FOREST}.candidates._meeting_forests", lambda *a: []),
    "forest: meeting trees by windows": (f"{FOREST}.candidates.shares_by_windows", lambda *a: None),
    "forest: shares by windows": (f"{FOREST}.latency.Pool.by_windows", lambda *a: []),
    "forest: shorter trees": (f"{FOREST}.candidates.shorten", lambda trees, *a: trees),
    "forest: unequal roots": (f"{FOREST}.candidates.tree_rates_within", lambda *a: None),
    "forest: relays": (f"{FOREST}.candidates.find_relays", lambda net, ranks: np.zeros(net.node_count, dtype=bool)),
    "forest: choice by estimates": (f"{FOREST}.planner.most_promising", lambda net, c, forests, budget: forests),
    "forest: parts equal in time": (
        f"{FOREST}.filling.Filling.weights", property(lambda self: self.share / self.share.mean())
    ),
    "paths: prices of latency": (f"{PATHS}.concurrent_flow", lambda *a: concurrent_flow(*a[:4])),
    "all: justification": (
        "stretto.schedule.scheduling_problem.SchedulingProblem.justified", lambda self, start, *a: start
    ),
    "all: shares by time": (
        "stretto.schedule.scheduling_problem.SchedulingProblem.lost_s",
        property(lambda self: np.zeros(self.link_count)),
    ),
    "by-sites: room": (f"{SITES}.timing._room", lambda plan, lane, seconds: np.ones(len(lane))),
    "by-sites: lanes": (
        f"{SITES}.timing._with_lanes", lambda plan, lane, seconds: SchedulingProblem.of(plan, np.arange(len(lane)))
    ),
    "hierarchical: moves of all ranks alike": ("stretto.planners.fixed.overlaps._gossips", lambda *a: iter(())),
    "hierarchical: idle accelerators": ("stretto.planners.fixed.wider.MOST_NODES", 0),
    "greedy: not where messages alone take longer": (f"{GREEDY}.planner.each_alone_s", lambda *a: 0.0),
    "forest: only where bytes decide": (f"{FOREST}.planner.BYTES_DECIDE", 0.0),
    "auto: further planners": ("stretto.planners.auto.turns.Case.further", lambda self, best: 0.0),
    "auto: finer parts": (
        "stretto.planners.auto.planner._with_finer_parts", lambda case, turns, answers, best_s: list(answers)
    ),
    "auto: what is urgent first": ("stretto.planners.auto.planner.by_urgency", lambda plan, budget: plan),
    "auto: what others have reached": ("stretto.planners.auto.turns.Case.told", lambda self, best: self.request),
    "auto: what waits in one message": ("stretto.planners.auto.planner._in_messages", lambda answers, case: []),
    "auto: chunks routed anew": ("stretto.planners.auto.planner._on_other_ways", lambda answers, case: []),
    "auto: sizes of chunks": ("stretto.planners.auto.planner.sized", lambda plan, *a: plan),
    **{f"auto: {entry.name}": (entry.name, None) for entry in asked_by("auto")},
}  # fmt: skip
"""For each part what is replaced, and by what; of ``auto`` a candidate that is not asked."""

CHANGED = 0.003

Cell = tuple[str, str, str]
"""Network, kind and size."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[*PARTS])
    parser.add_argument("-n", "--networks", type=int, default=1, help="held-out networks of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "-t", "--topologies", nargs="*", help="networks to use instead, as benchmarks/heldout.py names them"
    )
    parser.add_argument("--together", action="store_true", help="switch all parts off, and put each back in turn")
    add_cells(parser)
    given = parser.parse_args()
    names = given.topologies or [*TOPOLOGIES, *drawn(given.networks, given.seed)]
    base: dict[Cell, float] = {}
    used: dict[Cell, set[str]] = {}
    for cell in cells(names, given):
        with noted(given.parts) as used[cell]:
            plan = planned(cell, given.effort)
        if plan is not None:
            base[cell] = completion_s(plan)
            used[cell] |= {f"auto: {answer['planner']}" for answer in plan.meta["tried"]}
    rows = []
    print(f"{len(base)} cells:\n\n| without | mean | worst |\n|---|---|---|", flush=True)
    for what, parts in together(given.parts) if given.together else zip(given.parts, zip(given.parts)):
        with ExitStack() as stack:
            for part in parts:
                stack.enter_context(without(part))
            plans = {cell: planned(cell, given.effort) for cell in base if not used[cell].isdisjoint(parts)}
        ends = {cell: math.inf if plan is None else completion_s(plan) for cell, plan in plans.items()}
        rows.append(row(what, base, base | ends))
        print(shown(rows[-1]), flush=True)
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "ablation.json").write_text(json.dumps(rows, indent=1))


def together(parts: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """What is switched off in each row: all parts, then all but one."""
    yield f"all {len(parts)} together", parts
    for back in parts:
        yield f"all but {back}", [part for part in parts if part != back]


@contextmanager
def noted(parts: Sequence[str]) -> Iterator[set[str]]:
    """The parts that are called meanwhile; parts that are no functions count as called."""
    called = {part for part in parts if not isinstance(PARTS[part][1], FunctionType) and PARTS[part][1] is not None}
    with ExitStack() as stack:
        for part in parts:
            if isinstance(PARTS[part][1], FunctionType):
                owner, name = owner_of(PARTS[part][0])
                stack.enter_context(patch.object(owner, name, noting(getattr(owner, name), part, called)))
        yield called


def noting(function: Callable[..., Any], part: str, called: set[str]) -> Callable[..., Any]:
    """The function, which also adds its part to ``called``."""

    def wrapped(*args: Any, **more: Any) -> Any:
        called.add(part)
        return function(*args, **more)

    return wrapped


@contextmanager
def without(part: str) -> Iterator[None]:
    """The planners without one part."""
    target, by = PARTS[part]
    if by is None:  # a candidate
        find(target)
        with patch.dict(_ENTRIES, {target: replace(_ENTRIES[target], auto=None)}):
            yield
        return
    owner, name = owner_of(target)
    with patch.object(owner, name, by):
        yield


def owner_of(target: str) -> tuple[Any, str]:
    """The module or class that holds a part, and the name of the part in it."""
    path, _, name = target.rpartition(".")
    module, _, last = path.rpartition(".")
    if last.lstrip("_")[0].isupper():
        return getattr(importlib.import_module(module), last), name
    return importlib.import_module(path), name


def planned(cell: Cell, effort: str) -> Plan | None:
    """A cell's plan; None where nothing serves it."""
    name, kind, size = cell
    net, ranks = network(name)
    try:
        return run_planner("auto", net, workload(net, kind, size, ranks), effort=effort)
    except StrettoError:
        return None


def row(part: str, base: dict[Cell, float], ends: dict[Cell, float]) -> dict[str, Any]:
    """How much later plans end without a part."""
    ratios = {cell: (ends[cell] / base[cell]) for cell in base}
    worst = max(ratios, key=lambda cell: ratios[cell])
    finite = [r for r in ratios.values() if math.isfinite(r)]
    return {
        "part": part, "mean": math.exp(sum(map(math.log, finite)) / len(finite)), "cells": len(ratios),
        "later": sum(r > 1 + CHANGED for r in ratios.values()), "sooner": sum(r < 1 - CHANGED for r in ratios.values()),
        "worst": ratios[worst], "worst_cell": " ".join(worst)    }  # fmt: skip


def shown(r: dict[str, Any]) -> str:
    """A row of the table."""
    where = f" ({r['worst_cell']})" if r["worst"] > 1 + CHANGED else ""
    return f"| {r['part']} | {r['mean']:.4f} | {r['worst']:.3f}{where} |"


if __name__ == "__main__":
    run(main)
