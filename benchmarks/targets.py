"""What does it cost to plan for a target? Completion of `auto` for each target, over that of a plan for none.

python benchmarks/targets.py [--part 1/40] [--for msccl,torch] [-t dgx1 ...] [-s 64KB,1MB,...] [-c allreduce,...]
                             [--again] [--no-bounds] [--table]

Both plans are made where messages cost the same: what they cost the target, or what is assumed for `stretto plan`. Each
plan is verified, simulated and checked by its exporter, or lowered for the ranks of a target without a file. Each row
is appended to a file as one line of JSON as soon as it is there, and what the file has is not run again, unless --again
is given: so the grid can be run in parts. Cells come in an order in which any few that follow each other have unlike
networks, kinds and sizes; --part 3/40 runs the third of 40 parts of it. Where a plan for a target takes too long, a
bound says whether any plan could do better, which takes minutes where switches copy: --no-bounds leaves it out. --table
prints what the file has, and runs nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from grid import SIZES, TOPOLOGIES, workload
from piped import run
from stretto.bounds import bounds, copies_bound
from stretto.choose.exportable import exportable
from stretto.formats import exporters
from stretto.lower import lower_for
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, Unsupported
from stretto.model.plan import Plan
from stretto.model.targets import TARGETS, Target
from stretto.model.topology import SWITCH, Topology
from stretto.model.variants import costing
from stretto.planners import run_planner
from stretto.schedule.fitting import refuse, seen_by_target
from stretto.schedule.kept import Kept
from stretto.simulate import simulate
from stretto.topologies import assume_messages, load_topology
from stretto.verify import verify

KINDS = tuple(dict.fromkeys(kind for target in TARGETS.values() for kind in target.kinds))
LARGE_BYTES = 16_000_000
"""From this size on a plan may take LARGE times as long as one for no target, below SMALL times."""
LARGE, SMALL = 1.05, 1.2
GOLDEN = (math.sqrt(5) - 1) / 2
"""Share of all cells that lies between two which are run one after the other."""

Row = dict[str, Any]
Key = tuple[str, str, str, str]
"""Target, topology, kind and size of a row."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--for", dest="targets", default=",".join(TARGETS), help="by comma")
    parser.add_argument("-t", "--topologies", nargs="*", default=TOPOLOGIES)
    parser.add_argument("-s", "--sizes", default=",".join(SIZES), help="of the full buffer, by comma")
    parser.add_argument("-c", "--collectives", default=",".join(KINDS), help="by comma")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="run the K-th of N parts, from 1")
    parser.add_argument("--effort", default="normal", help="quick, normal or thorough")
    parser.add_argument("--again", action="store_true", help="run cells that the file has, too")
    parser.add_argument("--no-bounds", action="store_true", help="say nothing of what no plan for a target can beat")
    parser.add_argument("--table", action="store_true", help="print the table of what the file has")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "out" / "targets.jsonl")
    given = parser.parse_args()
    targets = [TARGETS[name] for name in given.targets.split(",")]
    cells = list(product(given.topologies, given.collectives.split(","), given.sizes.split(",")))
    rows = read_rows(given.output)
    if not given.table:
        given.output.parent.mkdir(exist_ok=True)
        with given.output.open("a") as file:
            for cell in part_of(spread(cells), given.part):
                todo = [t for t in targets if given.again or (t.name, *cell) not in rows]
                for row in measured(*cell, todo, given.effort, not given.no_bounds) if todo else ():
                    rows[key_of(row)] = row
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    print(shown(row), flush=True)
    asked = [rows[key] for cell in cells for t in targets if (key := (t.name, *cell)) in rows]
    summarise(asked, len(cells) * len(targets))


def spread(cells: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """The cells, so that any few that follow each other are far apart in the order given."""
    count = len(cells)
    step = next(s for s in range(max(1, round(GOLDEN * count)), 2 * count + 2) if math.gcd(s, count) == 1)
    return [cells[k * step % count] for k in range(count)]


def part_of(cells: Sequence[tuple[str, str, str]], part: str) -> Sequence[tuple[str, str, str]]:
    """The cells of part "K/N"."""
    number, _, parts = part.partition("/")
    bounds = [len(cells) * (int(number) - 1 + k) // int(parts) for k in (0, 1)]
    return cells[bounds[0] : bounds[1]]


def read_rows(path: Path) -> dict[Key, Row]:
    """The last row of each cell and target that a file has."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {key_of(row): row for row in map(json.loads, lines)}


def key_of(row: Row) -> Key:
    """The cell and target of a row."""
    return row["target"], row["topology"], row["kind"], row["size"]


def measured(
    spec: str, kind: str, size: str, targets: Sequence[Target], effort: str, with_bounds: bool = True
) -> Iterator[Row]:
    """The rows of one cell. Targets that see the same network share what planners answered.

    Args:
        with_bounds: whether the rows of plans that take too long say what no plan can beat.
    """
    net = replace(assume_messages(load_topology(spec)), name=spec)
    cell, kept = {"topology": spec, "kind": kind, "size": size}, Kept()
    try:
        work = workload(net, kind, size)
    except InputError as refusal:
        yield from ({"target": t.name} | cell | {"refused": str(refusal)} for t in targets)
        return
    costlier: dict[float, Topology] = {}
    best: dict[float, Plan | str] = {}
    for target in targets:
        cost = target.message_s
        row = {"target": target.name} | cell | {"size_bytes": work.collectives[0].size_bytes}
        begin = time.process_time()
        try:
            refuse(target, net, work)
        except (InputError, Unsupported) as refusal:
            yield row | {"refused": str(refusal)}
            continue
        if cost not in best:
            costlier[cost] = costing(net, cost) if cost else net
            best[cost] = without_target(costlier[cost], work, effort, kept)
        yield (
            row
            | for_target(target, costlier[cost], work, effort, kept, best[cost], with_bounds)
            | {"cpu_s": time.process_time() - begin}
        )


def without_target(net: Topology, work: Workload, effort: str, kept: Kept) -> Plan | str:
    """The plan for no target; or why there is none."""
    try:
        return run_planner("auto", net, work, effort=effort, kept=kept)
    except (InputError, Unsupported) as refusal:
        return str(refusal)


def for_target(
    target: Target, net: Topology, work: Workload, effort: str, kept: Kept, best: Plan | str, with_bounds: bool
) -> Row:
    """What the plan for a target takes; or under ``failed`` why there is none, although there is one for no target."""
    if isinstance(best, str):
        return {"refused": best}

    def make(goal: Target, kept: Kept) -> Plan:
        return run_planner("auto", net, work, effort=effort, target=goal, kept=kept)

    try:
        plan = exportable(make, target, kept)
        if target.name not in exporters():
            for rank in work.collectives[0].ranks.tolist():
                lower_for(plan, rank)
    except (InputError, Unsupported) as refusal:
        return {"failed": str(refusal)}
    verdict = verify(plan)
    if verdict.finding is not None:
        return {"failed": verdict.finding.message}
    without_s, completion_s = simulate(best).completion_s, simulate(plan).completion_s
    row = {
        "without_s": without_s, "by": best.meta["chosen"], "completion_s": completion_s, "chosen": plan.meta["chosen"],
        "ratio": completion_s / without_s, "transfers": plan.transfer_count,
        "switches_copy": bool(net.replicates.any()),
    }  # fmt: skip
    if row["ratio"] > limit(work.collectives[0].size_bytes):
        goal_s = limit(work.collectives[0].size_bytes) * without_s
        row["bound_s"] = bound_s(plan, goal_s) if with_bounds else bounds(net, work)[0].seconds
        passing = without_target(passing_on(seen_by_target(target, net, work)), work, effort, kept)
        row["passing_s"] = simulate(passing).completion_s if isinstance(passing, Plan) else math.nan
    return row


def passing_on(net: Topology) -> Topology:
    """The network whose routers only pass data on, as switches do: no target stores data there."""
    return replace(net, kind=np.where(net.is_router, SWITCH, net.kind).astype(np.int8))


def bound_s(plan: Plan, goal_s: float) -> float:
    """Seconds that no plan of the collective can beat on the network as the target uses it.

    Backwards in time the collective is its mirror on links turned round, if no switch copies and no rank adds slower
    than its links: then what bounds the mirror bounds it, too. No target stores data at a router.

    Args:
        goal_s: a bound that is above this need not be any larger.
    """
    net, c = plan.topology, plan.workload.collectives[0]
    best: float = bounds(net, plan.workload)[0].seconds
    if c.traits.mirror is not None and not net.replicates.any() and not net.reduces.any() and not net.changes:
        turned = replace(net, src=net.dst, dst=net.src)
        mirror = make_collective(c.traits.mirror, turned, c.size_bytes)
        best = max(best, bounds(turned, Workload((mirror,)))[0].seconds)
    copies = copies_bound(passing_on(net), c, best, goal_s) if best < goal_s else None
    return copies.seconds if copies is not None else best


def shown(row: Row) -> str:
    """A row as a line."""
    head = f"{row['target']:9} {row['topology']:20} {row['kind']:14} {row['size']:6}"
    for why in ("refused", "failed"):
        if why in row:
            return f"{head} {why}: {row[why]}"
    missed = (
        f"MISSED, {row['completion_s'] / row['bound_s']:.3f} of the bound"
        if row["ratio"] > limit(row["size_bytes"])
        else ""
    )
    return (
        f"{head} {row['ratio']:7.4f} {row['transfers']:7} {row['cpu_s']:6.2f} s  {row['by']:13} -> {row['chosen']:13} "
        f"{missed}"
    )


def limit(size_bytes: int) -> float:
    """Times the completion without a target that a plan may take."""
    return LARGE if size_bytes >= LARGE_BYTES else SMALL


def summarise(rows: Sequence[Row], asked: int) -> None:
    """A table row for each target and side of LARGE_BYTES: cells, means, the worst, how many are over the limit, and of
    these over it also where the plan for no target is one for switches and routers that only pass data on."""
    print(f"\n{len(rows)} of {asked} cells, {sum(row.get('cpu_s', 0.0) for row in rows):.0f} s of CPU\n")
    print("| target | sizes | cells | mean | worst | over the limit | also of passing on | failed |")
    print("|---|---|---|---|---|---|---|---|")
    for target in dict.fromkeys(row["target"] for row in rows):
        for title, large in (("from 16 MB", True), ("below", False)):
            own = [r for r in rows if r["target"] == target and (r.get("size_bytes", 0) >= LARGE_BYTES) == large]
            some, failed = [r for r in own if "ratio" in r], sum("failed" in r for r in own)
            if not some:
                continue
            mean = math.exp(sum(math.log(row["ratio"]) for row in some) / len(some))
            worst = max(some, key=lambda row: row["ratio"])
            over = [row for row in some if row["ratio"] > limit(row["size_bytes"])]
            also = sum(not row["completion_s"] <= limit(row["size_bytes"]) * row["passing_s"] for row in over)
            print(
                f"| `{target}` | {title} | {len(some)} | {mean:.3f} | "
                f"{worst['ratio']:.3f} ({worst['kind']} of {worst['size']} on {worst['topology']}) | "
                f"{len(over)} | {also} | {failed} |"
            )
    print("\nrefused before planning")
    for (target, kind), count in sorted(Counter((r["target"], r["kind"]) for r in rows if "refused" in r).items()):
        print(f"  {target} {kind}: {count}")
    print_missed(rows)
    for row in rows:
        if "failed" in row:
            print(shown(row))


def print_missed(rows: Sequence[Row]) -> None:
    """A table row for each cell over its limit, and the targets alike: what the plan takes, what the plan for no target
    takes where switches and routers only pass data on, and what any plan for the target takes.

    Where the bound is above the limit no plan for the target is within it.
    """
    missed: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        if "ratio" in row and row["ratio"] > limit(row["size_bytes"]):
            bound, passing = (row[key] / row["without_s"] for key in ("bound_s", "passing_s"))
            proven = "no plan is within the limit" if bound > limit(row["size_bytes"]) else "open"
            what = f"{row['kind']} of {row['size']} on {row['topology']}"
            numbers = f"{row['ratio']:.2f}", f"{passing:.2f}", f"{bound:.3f}"
            missed.setdefault((what, *numbers, proven), []).append(f"`{row['target']}`")
    print("\n| over the limit | targets | for the target | for none, passing on | bound for the target | |")
    print("|---|---|---|---|---|---|")
    for (what, *numbers, proven), targets in sorted(missed.items()):
        print(f"| {what} | {', '.join(targets)} | {' | '.join(numbers)} | {proven} |")


if __name__ == "__main__":
    run(main)
