"""What does the first plan of a shape cost the rank that makes it?

For every kind of collective, 2 to 64 ranks at one, two and four sites (a switch each, all switches joined by links a
twentieth as wide) and sizes from 4 KiB to 256 MiB: CPU seconds of the first plan in a process that has loaded the
planners, and of what a rank then does with it: taking it from bytes, lowering it, its digest. Prints for each number of
ranks and sites the shapes that took longest. Writes benchmarks/out/first_plans.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from itertools import combinations
from pathlib import Path

from stretto.choose.kept import packed, unpacked
from stretto.choose.library import Library, joined_by_sites
from stretto.choose.quick import load_planners
from stretto.choose.requests import Shape
from stretto.model.kinds import KINDS
from stretto.model.topology import Topology

RANKS, SITES, SIZES = (2, 3, 4, 6, 7, 8, 12, 16, 24, 31, 32, 48, 64), (1, 2, 4), (1 << 12, 1 << 18, 1 << 22, 1 << 28)
INSIDE, BETWEEN = (1e-4, 1e9), (1e-3, 5e7)
"""Seconds and bytes/s of a pair at one site, and at two."""
OUT = Path(__file__).parent / "out" / "first_plans.json"


def network(ranks: int, sites: int) -> Topology | None:
    """The network of a group; None for one site, of which nothing is known."""
    if sites == 1:
        return None
    at = [rank * sites // ranks for rank in range(ranks)]
    pairs = {(a, b): INSIDE if at[a] == at[b] else BETWEEN for a, b in combinations(range(ranks), 2)}
    return joined_by_sites(ranks, pairs, sites=[[r for r in range(ranks) if at[r] == s] for s in range(sites)])


def row_of(ranks: int, sites: int, kind: str, size: int) -> dict:
    """CPU seconds of a shape: of planning, and of taking the plan."""
    library, shape = Library(network(ranks, sites), range(ranks), 1), Shape.of(kind, size, 0)
    direct = kind == "alltoall"  # process groups send it straight
    began = time.process_time()
    plan = library.first_plan(shape, direct)
    planned = time.process_time()
    content = packed(shape.name, plan)
    given = time.process_time()
    recipe = library.recipe_of(unpacked(content, shape.name))
    _ = recipe.digest, recipe.program.steps
    row = {"ranks": ranks, "sites": sites, "kind": kind, "size_bytes": size, "planner": plan.meta.get("planner")}
    return {**row, "plan_s": planned - began, "take_s": time.process_time() - given, "bytes": len(content)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--most", type=int, default=max(RANKS), help="the most ranks")
    most = parser.parse_args().most
    load_planners()
    row_of(4, 2, "allreduce", 1 << 20)
    gc.collect()
    gc.freeze()
    rows = []
    print("| ranks | sites | planning, CPU s at most | for | mean | taking it, at most | for |")
    print("|---|---|---|---|---|---|---|")
    for ranks in (n for n in RANKS if n <= most):
        for sites in (s for s in SITES if s <= ranks):
            here = [row_of(ranks, sites, kind, size) for kind in KINDS for size in SIZES]
            worst, late = (max(here, key=lambda row: row[what]) for what in ("plan_s", "take_s"))
            mean = sum(row["plan_s"] for row in here) / len(here)
            of = [f"{row['kind']}, {row['size_bytes']} B, {row['planner']}" for row in (worst, late)]
            print(
                f"| {ranks} | {sites} | {worst['plan_s']:.3f} | {of[0]} | {mean:.3f} | {late['take_s']:.3f} | {of[1]} |"
            )
            rows += here
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
