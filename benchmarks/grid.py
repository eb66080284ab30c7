"""How near is a planner to the bound on many topologies and sizes? A line for each cell, and tables at the end.

python benchmarks/grid.py [-p auto,forest] [-t dgx1 ...] [-s 64MB,...] [-c allgather,...] [--sample 5] [--effort normal]

Sizes are of the full buffer, as nccl-tests count them; with --shard of a rank's part of it. Topologies are separated by
spaces, since their specs contain commas. --sample K runs every K-th cell; a K prime to the number of sizes and to that
of collectives meets all of them. Seconds, of CPU and of wall-clock time, are of a second, warm run of each cell. Plans
are verified, simulated and compared with `bounds` of the same cell. The tables: means, then for each planner a line
for each network, then the worst cells.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

from piped import run
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.topology import Topology
from stretto.model.units import parse_size
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

TOPOLOGIES = (
    "dgx1", "dgx2:2", "ndv2:2", "ndv2:4", "ndv2:10", "amd:1", "amd:2", "ring:8", "torus:4x4", "torus:8x8", "mesh:8x8",
    "sites:2,8", "sites:3,4", "zoo:Abilene", "zoo:Arpanet", "zoo:Cesnet", "zoo:Gblnet", "zoo:HiberniaIreland",
    "zoo:Napnet",
)  # fmt: skip
SIZES = ("1KB", "64KB", "1MB", "16MB", "64MB", "256MB", "1GB")
WORST = 6
"""Cells that the last table has."""
KINDS = ("allreduce", "allgather", "reducescatter", "alltoall")
LARGE_BYTES = 64_000_000
"""From this size on plans are to be nearer to the bound: docs/contributors/auto-grid.md."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-p", "--planners", default="auto", help="by comma")
    parser.add_argument("-t", "--topologies", nargs="*", default=TOPOLOGIES)
    parser.add_argument("--cold", action="store_true", help="run each cell once: times include loading compiled code")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "out" / "grid.json")
    add_cells(parser)
    given = parser.parse_args()
    rows = []
    for spec, kind, size in cells(given.topologies, given):
        for planner in given.planners.split(","):
            net = replace(load_topology(spec), name=spec)
            with suppress(Unsupported):
                rows.append(measured(net, kind, size, planner, 1 if given.cold else 2, given.effort))
                print(shown(rows[-1]), flush=True)
    summarise(rows)
    by_network(rows)
    show_worst(rows, WORST)
    given.output.parent.mkdir(exist_ok=True)
    given.output.write_text(json.dumps(rows, indent=1))


def add_cells(parser: argparse.ArgumentParser) -> None:
    """Options that say which cells are run, beside the networks."""
    parser.add_argument("-s", "--sizes", default=",".join(SIZES), help="of the full buffer, by comma")
    parser.add_argument("--shard", action="store_true", help="sizes are of a rank's shard")
    parser.add_argument("-c", "--collectives", default=",".join(KINDS), help="by comma")
    parser.add_argument("--sample", type=int, default=1, metavar="K", help="run every K-th cell")
    parser.add_argument("--effort", default="normal", help="quick, normal or thorough")


def cells(networks: Sequence[str], given: argparse.Namespace) -> list[tuple[str, str, str]]:
    """Network, kind and size of each cell that the options ask for; a size of a shard ends with " a rank"."""
    sizes = [f"{size} a rank" if given.shard else size for size in given.sizes.split(",")]
    return list(product(networks, given.collectives.split(","), sizes))[:: given.sample]


def measured(
    net: Topology,
    kind: str,
    size: str,
    planner: str,
    runs: int,
    effort: str,
    ranks: Sequence[int] | None = None,
) -> dict[str, Any]:
    """The row of one cell, among all accelerators or some.

    Raises:
        Unsupported: the planner does not serve it, or there are too few bytes for each piece to have one.
    """
    count = len(net.accelerators if ranks is None else ranks)
    work = workload(net, kind, size, ranks)
    pieces = count ** (1 + (kind == "alltoall"))
    if work.collectives[0].size_bytes < pieces:
        raise Unsupported(f"{count} ranks have {pieces:,} pieces, and {size} is less than a byte for each")
    for _ in range(runs):
        cpu, wall = time.process_time(), time.perf_counter()
        plan = run_planner(planner, net, work, effort=effort)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    verdict = verify(plan)
    assert verdict.ok, verdict.finding
    bound_cpu = time.process_time()
    best = bounds(net, work)[0]
    bound_cpu = time.process_time() - bound_cpu
    completion = simulate(plan).completion_s
    return {
        "topology": net.name, "kind": kind, "size": size, "size_bytes": work.collectives[0].size_bytes, "ranks": count,
        "planner": planner, "by": plan.meta.get("chosen", planner),
        "completion_s": completion, "bound_s": best.seconds, "bound": best.kind, "ratio": completion / best.seconds,
        "cpu_s": cpu, "wall_s": wall, "bound_cpu_s": bound_cpu, "transfers": plan.transfer_count,
    }  # fmt: skip


def workload(net: Topology, kind: str, size: str, ranks: Sequence[int] | None = None) -> Workload:
    """One collective; a size such as "1MB" is of the full buffer, "1MB a rank" of a rank's shard."""
    amount, of_shard, _ = size.partition(" a rank")
    size_bytes = parse_size(amount, "size")
    shard_bytes = size_bytes if of_shard else None
    given = None if of_shard else size_bytes
    return Workload((make_collective(kind, net, given, shard_bytes=shard_bytes, ranks=ranks),))


def shown(row: dict[str, Any]) -> str:
    """A cell as a line."""
    return (
        f"{row['topology']:20} {row['kind']:14} {row['size']:6} {row['ratio']:8.4f} of the bound {row['cpu_s']:7.2f} s "
        f"(wall{row['wall_s']:6.2f} s)"
        f"{row['transfers']:9}  {row['planner']}: {row['by']}"
    )


def summarise(rows: Sequence[dict[str, Any]]) -> None:
    """Means by planner: of all cells, of large and small ones, and of each size and collective."""
    print(f"\n| {' | '.join(SUMMARY)} |\n{'|---' * len(SUMMARY)}|")
    for planner, mine in by(rows, "planner").items():
        parts = {
            "all": mine,
            "from 64 MB": [r for r in mine if r["size_bytes"] >= LARGE_BYTES],
            "below": [r for r in mine if r["size_bytes"] < LARGE_BYTES],
            **by(mine, "size"),
            **by(mine, "kind"),
            "up to 64 ranks": [r for r in mine if r["ranks"] <= 64],
        }
        for title, some in parts.items():
            if some:
                print(f"| {planner} | {title} | {' | '.join(_summary(some))} |")


SUMMARY = ("planner", "cells", "number", "completion / bound, mean", "worst", "planning CPU s, median", "most")


def _summary(rows: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Cells of a line of the summary: the mean is geometric, the largest numbers are with their cell."""
    worst, slowest = (max(rows, key=itemgetter(column)) for column in ("ratio", "cpu_s"))
    median = statistics.median(r["cpu_s"] for r in rows)
    return (
        str(len(rows)), f"{mean([r['ratio'] for r in rows]):.4f}", f"{worst['ratio']:.3f} ({_cell(worst)})",
        f"{median:.2f}", f"{slowest['cpu_s']:.2f} ({_cell(slowest)})",
    )  # fmt: skip


def _cell(row: dict[str, Any]) -> str:
    return f"{row['topology']} {row['kind']} {row['size']}"


def by_network(rows: Sequence[dict[str, Any]]) -> None:
    """For each planner completion / bound: a line for each network, a column for each collective and size."""
    for mine in by(rows, "planner").values():
        columns = list(dict.fromkeys((r["kind"], r["size"]) for r in mine))
        names = [f"{kind} {size.removesuffix(' a rank')}" for kind, size in columns]
        print(f"\n| network | {' | '.join(names)} | CPU s at most |\n|---{'|---' * len(columns)}|---|")
        for network, own in by(mine, "topology").items():
            ratios = {(r["kind"], r["size"]): f"{r['ratio']:.3f}" for r in own}
            slowest = max(r["cpu_s"] for r in own)
            print(f"| {network} | {' | '.join(ratios.get(c, '') for c in columns)} | {slowest:.2f} |")


def show_worst(rows: Sequence[dict[str, Any]], count: int) -> None:
    """The cells that are farthest from the bound."""
    columns = ("planner", "network", "collective", "size", "completion / bound", "CPU s", "transfers", "bound")
    print(f"\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for r in sorted(rows, key=lambda r: -r["ratio"])[:count]:
        planner = r["by"] if r["by"] == r["planner"] else f"{r['planner']}: {r['by']}"
        size = r["size"].removesuffix(" a rank")
        print(f"| {planner} | {r['topology']} | {r['kind']} | {size} | {r['ratio']:.3f} | {r['cpu_s']:.2f} | "
              f"{r['transfers']:,} | {r['bound']} |")  # fmt: skip


def by(rows: Sequence[dict[str, Any]], column: str) -> dict[Any, list[dict[str, Any]]]:
    """The rows of each value of a column."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row[column], []).append(row)
    return groups


def mean(ratios: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


if __name__ == "__main__":
    run(main)
