"""Where does `auto` lose to a planner that it could have asked? Each planner alone, and `auto`, on the same cells.

python benchmarks/sweep.py [-n 1] [--seed 0] [--sample 9] [-t NAME ...] [options of benchmarks/grid.py] [-o FILE.json]
python benchmarks/sweep.py --replay FILE.json     the table at the end alone, from such a file

The networks are those of the grid and held-out ones (benchmarks/heldout_networks.py, -n of each kind), with --held-out
the latter alone. A row of the
file holds what a cell's plans take and the steps of work (see stretto.schedule.effort) that each planner counted; a
planner that searches is also asked with half of the effort. Planners that solve programs are left out. Printed are the
cells in which `auto` ends more than 0.3 % later than a planner whose work fits into what `auto` may spend. Plans are
compared as `auto` compares them: half as many messages are worth one per cent. A table at the end says what other
orders of the candidates would give.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from grid import TOPOLOGIES, add_cells, cells, workload
from heldout import drawn, network
from piped import run
from stretto.bounds import bounds
from stretto.model.errors import StrettoError
from stretto.planners import Request, registered
from stretto.planners.auto.planner import PLANNING_SHARE
from stretto.planners.auto.turns import NEAR, SPLIT_SHARE
from stretto.planners.registry import per_delivery
from stretto.planners.run import plan_by
from stretto.schedule.best import completion_s, preference_s
from stretto.schedule.effort import Budget, steps_of

LOSS = 0.003
"""Share of the completion by which `auto` may end later."""

SLOW = ("teccl", "taccl", "milp-allgather", "jobs")
"""Planners that solve programs, and the one that asks `auto`."""

UNCOUNTED = per_delivery(12, first=1_000)
"""Steps of planners that `auto` does not ask."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--networks", type=int, default=1, help="held-out networks of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--held-out", action="store_true", help="leave out the networks of the grid")
    parser.add_argument("-t", "--topologies", nargs="*", help="networks to use instead")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "out" / "sweep.json")
    add_cells(parser)
    parser.add_argument("--replay", type=Path, help="a file of an earlier run")
    given = parser.parse_args()
    if given.replay:
        replay(json.loads(given.replay.read_text()))
        return
    of_grid = () if given.held_out else (*TOPOLOGIES, "h100:4")
    names = given.topologies or [*of_grid, *drawn(given.networks, given.seed)]
    given.output.parent.mkdir(exist_ok=True)
    rows = []
    for cell in cells(names, given):
        row = swept(cell, given.effort)
        if row is not None:
            rows.append(row)
            given.output.write_text(json.dumps(rows, indent=1))
            if lost(row) > LOSS:
                print(shown(row), flush=True)
    report(rows)
    replay(rows)


def swept(cell: tuple[str, str, str], effort: str) -> dict[str, Any] | None:
    """The row of a cell; None where nothing serves it."""
    name, kind, size = cell
    net, ranks = network(name)
    try:
        request = Request(net, workload(net, kind, size, ranks))
        by_auto = answer("auto", request, steps_of(effort))
        limits = bounds(net, request.workload)
    except StrettoError:
        return None
    assert by_auto is not None, "auto serves the request"
    spent = PLANNING_SHARE * steps_of(effort)
    alone = {planner: found for planner in quick_planners() if (found := answer(planner, request, spent)) is not None}
    half = {
        planner: found
        for planner, entry in registered().items()
        if entry.auto is not None and entry.auto.counts and planner in alone
        if (found := answer(planner, request, spent / 2)) is not None
    }
    latency_s = next((bound.seconds for bound in limits if bound.kind == "latency path"), 0.0)
    return {
        "cell": cell, "bound_s": limits[0].seconds, "bound": limits[0].kind, "auto": by_auto, "alone": alone,
        "half": half, "may_spend": spent, "bandwidth": 1 - latency_s / limits[0].seconds,
    }  # fmt: skip


def quick_planners() -> Iterator[str]:
    """Planners that answer within seconds, and refiners that `auto` asks."""
    for name, entry in registered().items():
        if name not in SLOW and name != "auto" and (not entry.refines or entry.auto is not None):
            yield name


def answer(planner: str, request: Request, steps: float) -> dict[str, Any] | None:
    """What a planner answers that may spend so many steps; None if it refuses."""
    budget = Budget(steps)
    request = replace(request, budget=budget)
    candidate = registered()[planner].auto
    try:
        plan = plan_by(planner, request)
    except StrettoError:
        return None
    least = 0.0 if planner == "auto" else (candidate.steps if candidate else UNCOUNTED)(request)
    found = {
        "completion_s": completion_s(plan), "preference_s": preference_s(plan), "steps": max(budget.spent, least),
        "least_steps": least, "transfers": plan.transfer_count,
    }  # fmt: skip
    return found | ({"chosen": plan.meta["chosen"], "tried": plan.meta["tried"]} if planner == "auto" else {})


def fitting(row: dict[str, Any]) -> dict[str, float]:
    """The preference of each planner whose work fits into what `auto` may spend."""
    return {name: a["preference_s"] for name, a in row["alone"].items() if a["steps"] <= row["may_spend"]}


def lost(row: dict[str, Any]) -> float:
    """By which share `auto` ends later than the best planner alone whose work fits."""
    return float(row["auto"]["preference_s"] / min(fitting(row).values(), default=math.inf)) - 1


def shown(row: dict[str, Any]) -> str:
    """A cell as a line."""
    found = fitting(row)
    best, tried = min(found, key=found.__getitem__), [a["planner"] for a in row["auto"]["tried"] if "refused" not in a]
    return (
        f"{' '.join(row['cell']):60} {row['auto']['completion_s'] / row['bound_s']:7.3f} of the bound by "
        f"{row['auto']['chosen']}, {lost(row):6.1%} later than {best} ({row['alone'][best]['steps'] / 1e3:.0f} k steps)"
        f"; asked: {', '.join(tried)}"
    )


def report(rows: list[dict[str, Any]]) -> None:
    """How often and how much `auto` loses, and to whom."""
    losing = [row for row in rows if lost(row) > LOSS]
    mean = math.exp(sum(math.log1p(max(lost(row), 0.0)) for row in rows) / len(rows)) - 1
    print(f"{len(rows)} cells; auto loses {len(losing)}, in the geometric mean {mean:.2%}, at most "
          f"{max(map(lost, rows)):.1%}")  # fmt: skip
    ratio = math.exp(sum(math.log(row["auto"]["completion_s"] / row["bound_s"]) for row in rows) / len(rows))
    steps = sum(row["auto"]["steps"] for row in rows) / len(rows)
    print(f"auto: geometric mean {ratio:.4f} of the bound, {steps / 1e3:.0f} k steps on average")
    for planner in sorted({name for row in rows for name in row["alone"]}):
        wins = [row for row in losing if fitting(row).get(planner, math.inf) == min(fitting(row).values())]
        if wins:
            print(f"to {planner}: {len(wins)}, at most {max(map(lost, wins)):.1%}")


ORDERS = {
    f"early {early}, bandwidth from {wide}": (early, wide)
    for early, wide in ((0.1, 0.5), (0.0, 0.5), (0.2, 0.5), (0.33, 0.5), (1.0, 0.5), (0.1, 0.2), (0.1, 0.8), (0.1, 1.1))
}
"""Orders to be replayed: values of ``EARLY_SHARE`` and ``BANDWIDTH_DECIDES``."""


def replay(rows: list[dict[str, Any]]) -> None:
    """What each order gives: the mean and the worst loss to the best of all candidates, and the steps spent."""
    columns = ("order of the candidates", "mean loss", "cells that lose", "of", "worst loss", "steps, thousands")
    print(f"\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for title, (early, wide) in ORDERS.items():
        ends = [replayed(row, early, wide) for row in rows]
        show_order(title, ends)
    for name in sorted({name for row in rows for name in candidates_of(row)}):
        ends = [replayed(row, 0.1, 0.5, without=name) for row in rows]
        show_order(f"early 0.1, bandwidth from 0.5, without {name}", ends)


def show_order(title: str, ends: list[tuple[float, float]]) -> None:
    """A row for what an order gives."""
    mean = math.exp(sum(math.log(ratio) for ratio, _ in ends) / len(ends))
    late, worst = sum(ratio > 1 + LOSS for ratio, _ in ends), max(ratio for ratio, _ in ends)
    steps = sum(steps for _, steps in ends) / len(ends)
    print(f"| {title} | {mean - 1:.2%} | {late} | {len(ends)} | {worst - 1:.1%} | {steps / 1e3:.0f} |")


def candidates_of(row: dict[str, Any]) -> list[str]:
    """The candidates of `auto` that serve a cell."""
    return [name for name in row["alone"] if registered()[name].auto is not None]


def replayed(row: dict[str, Any], early: float, wide: float, without: str = "") -> tuple[float, float]:
    """What `auto` would give with its candidates in another order: times the best candidate, and the steps spent.

    A search that would spend more than its share is taken to give what it gives with half of the effort.
    """
    turns = [name for name in candidates_of(row) if name != without]
    auto = {name: registered()[name].auto for name in turns}
    least = {name: row["alone"][name]["least_steps"] for name in turns}

    def place(name: str) -> tuple[int, float]:
        if auto[name].leads:
            return (0 if row["bandwidth"] >= wide else 3) if auto[name].fills_links else 2, least[name]
        return 1 if least[name] <= early * row["may_spend"] else 4, least[name]

    turns.sort(key=place)
    left, best = row["may_spend"], None
    for number, name in enumerate(turns):
        if best is not None and (best["completion_s"] <= NEAR * row["bound_s"] or least[name] > left):
            continue
        follows = any(auto[n].leads and least[n] <= SPLIT_SHARE * left for n in turns[number + 1 :])
        share = left * (SPLIT_SHARE if auto[name].counts and follows else 1.0)
        found = row["alone"][name]
        if auto[name].counts and found["steps"] > share:
            found = row["half"].get(name, found)
        left -= min(found["steps"], share) if auto[name].counts else found["steps"]
        if best is None or found["preference_s"] < best["preference_s"]:
            best = found
    assert best is not None, "some candidate serves"
    of_all = min(row["alone"][name]["preference_s"] for name in candidates_of(row))
    return best["preference_s"] / of_all, row["may_spend"] - left


if __name__ == "__main__":
    run(main)
