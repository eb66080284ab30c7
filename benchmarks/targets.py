"""What does it cost to plan for a target? Completion of `auto` for each target, over that of a plan for none.

python benchmarks/targets.py [--for msccl,torch] [-t dgx1 ...] [-s 64KB,1MB,...] [-c allreduce,...] [--sample 5]

Both plans are made where messages cost the same: what they cost the target, or what is assumed for `stretto plan`. Each
plan is verified, simulated and written by the exporter, or lowered for the ranks of a target without a file. Without
options a sample of the cells is run, of the networks of benchmarks/grid.py with up to 32 ranks; --sample 1 runs all.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import stretto as st
from grid import TOPOLOGIES, workload
from stretto.formats import exporters
from stretto.lower import lower_for
from stretto.model.errors import InputError, Unsupported
from stretto.model.targets import BUFFERED, TARGETS, Target
from stretto.model.topology import Topology
from stretto.model.variants import costing
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import assume_messages, load_topology
from stretto.verify import verify

MANY_RANKS = ("ndv2:10", "torus:8x8", "mesh:8x8")
"""Networks that are left out unless they are named: a cell takes up to a CPU minute for each target."""
SIZES = ("64KB", "1MB", "16MB", "256MB")
LARGE_BYTES = 16_000_000
"""From this size on a plan may take LARGE times as long as one for no target, below SMALL times."""
LARGE, SMALL = 1.05, 1.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--for", dest="targets", default=",".join(TARGETS), help="by comma")
    parser.add_argument("-t", "--topologies", nargs="*", default=[t for t in TOPOLOGIES if t not in MANY_RANKS])
    parser.add_argument("-s", "--sizes", default=",".join(SIZES), help="of the full buffer, by comma")
    parser.add_argument("-c", "--collectives", default=",".join(BUFFERED), help="by comma")
    parser.add_argument("--sample", type=int, default=19, metavar="K", help="run every K-th cell")
    parser.add_argument("--offset", type=int, default=0, metavar="I", help="begin the sample with cell I, from 0")
    parser.add_argument("--effort", default="normal", help="quick, normal or thorough")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "out" / "targets.json")
    given = parser.parse_args()
    cells = list(product(given.topologies, given.collectives.split(","), given.sizes.split(",")))[
        given.offset :: given.sample
    ]
    targets = [TARGETS[name] for name in given.targets.split(",")]
    rows = []
    for cell in cells:
        for target in targets:
            row = measured(*cell, target, given.effort)
            rows.append(row)
            print(shown(row), flush=True)
    summarise(rows)
    given.output.parent.mkdir(exist_ok=True)
    given.output.write_text(json.dumps(rows, indent=1))


@cache
def network(spec: str, message_s: float) -> Topology:
    """A network as `stretto plan` takes it, where messages cost at least so much."""
    net = replace(assume_messages(load_topology(spec)), name=spec)
    return costing(net, message_s) if message_s else net


@cache
def without_target(spec: str, kind: str, size: str, message_s: float, effort: str) -> tuple[float, str] | str:
    """The completion of the plan for no target and its planner; or why there is no plan."""
    net = network(spec, message_s)
    try:
        plan = run_planner("auto", net, workload(net, kind, size), effort=effort)
    except (InputError, Unsupported) as refusal:
        return str(refusal)
    return simulate(plan).completion_s, plan.meta["chosen"]


def measured(spec: str, kind: str, size: str, target: Target, effort: str) -> dict[str, Any]:
    """The row of one cell."""
    row: dict[str, Any] = {"target": target.name, "topology": spec, "kind": kind, "size": size}
    best = without_target(spec, kind, size, target.message_s, effort)
    if isinstance(best, str):
        return row | {"refused": best}
    net = network(spec, target.message_s)
    work = workload(net, kind, size)
    try:
        plan = st.plan(work, net, effort=effort, target=target.name)
        if target.name not in exporters():
            for rank in work.collectives[0].ranks.tolist():
                lower_for(plan, rank)
    except (InputError, Unsupported) as refusal:
        return row | {"refused": str(refusal)}
    verdict = verify(plan)
    assert verdict.ok, verdict.finding
    completion_s = simulate(plan).completion_s
    return row | {
        "size_bytes": work.collectives[0].size_bytes, "without_s": best[0], "by": best[1],
        "completion_s": completion_s, "chosen": plan.meta["chosen"], "ratio": completion_s / best[0],
        "transfers": plan.transfer_count,
    }  # fmt: skip


def shown(row: dict[str, Any]) -> str:
    """A cell as a line."""
    head = f"{row['target']:9} {row['topology']:20} {row['kind']:14} {row['size']:6}"
    if "refused" in row:
        return f"{head} refused: {row['refused']}"
    missed = "MISSED" if row["ratio"] > limit(row) else ""
    return f"{head} {row['ratio']:7.4f} {row['transfers']:7} {row['by']:13} -> {row['chosen']:13} {missed}"


def limit(row: dict[str, Any]) -> float:
    """Times the completion without a target that a plan may take."""
    return LARGE if row["size_bytes"] >= LARGE_BYTES else SMALL


def summarise(rows: Sequence[dict[str, Any]]) -> None:
    """A table row for each target and side of LARGE_BYTES: cells, means, the worst, and what is missed."""
    print("\n| target | sizes | cells | mean | worst | over the limit | refused |")
    print("|---|---|---|---|---|---|---|")
    for target in dict.fromkeys(row["target"] for row in rows):
        refused = sum("refused" in row for row in rows if row["target"] == target)
        own = [row for row in rows if row["target"] == target and "refused" not in row]
        for title, large in (("from 16 MB", True), ("below", False)):
            some = [row for row in own if (row["size_bytes"] >= LARGE_BYTES) == large]
            if not some:
                continue
            mean = math.exp(sum(math.log(row["ratio"]) for row in some) / len(some))
            worst = max(some, key=lambda row: row["ratio"])
            print(
                f"| `{target}` | {title} | {len(some)} | {mean:.3f} | "
                f"{worst['ratio']:.3f} ({worst['kind']} of {worst['size']} on {worst['topology']}) | "
                f"{sum(row['ratio'] > limit(row) for row in some)} | {refused} |"
            )


if __name__ == "__main__":
    main()
