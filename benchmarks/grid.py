"""How near is a planner to the bound on many topologies and sizes? One row for each cell, and means at the end.

python benchmarks/grid.py [-p auto,forest] [-t dgx1 ...] [-s 16MB,...] [-c allgather,...] [--effort normal]

Topologies are separated by spaces, since their specs contain commas. Seconds, of CPU and of wall-clock time, are of a
second, warm run of each cell. Plans are verified, simulated and compared with `bounds` of the same cell.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

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
SIZES = ("16MB", "256MB", "1GB")
KINDS = ("allgather", "reducescatter", "allreduce")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-p", "--planners", default="auto", help="by comma")
    parser.add_argument("-t", "--topologies", nargs="*", default=TOPOLOGIES)
    parser.add_argument("-s", "--sizes", default=",".join(SIZES), help="of a rank's shard, by comma")
    parser.add_argument("-c", "--collectives", default=",".join(KINDS), help="by comma")
    parser.add_argument("--effort", default="normal", help="quick, normal or thorough")
    parser.add_argument("--cold", action="store_true", help="run each cell once: times include loading compiled code")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "out" / "grid.json")
    given = parser.parse_args()
    rows = []
    for spec in given.topologies:
        for kind in given.collectives.split(","):
            for size in given.sizes.split(","):
                for planner in given.planners.split(","):
                    net = replace(load_topology(spec), name=spec)
                    row = measured(net, kind, size, planner, 1 if given.cold else 2, given.effort)
                    if row is not None:
                        rows.append(row)
                        print(shown(row), flush=True)
    summarise(rows)
    given.output.parent.mkdir(exist_ok=True)
    given.output.write_text(json.dumps(rows, indent=1))


def measured(
    net: Topology,
    kind: str,
    size: str,
    planner: str,
    runs: int,
    effort: str,
    ranks: Sequence[int] | None = None,
) -> dict[str, Any] | None:
    """The row of one cell, among all accelerators or some; None if the planner does not serve it."""
    work = Workload((make_collective(kind, net, shard_bytes=parse_size(size, "size"), ranks=ranks),))
    for _ in range(runs):
        cpu, wall = time.process_time(), time.perf_counter()
        try:
            plan = run_planner(planner, net, work, effort=effort)
        except Unsupported:
            return None
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    verdict = verify(plan)
    assert verdict.ok, verdict.finding
    best = bounds(net, work)[0]
    completion = simulate(plan).completion_s
    return {
        "topology": net.name, "kind": kind, "size": size, "planner": planner, "by": plan.meta.get("chosen", planner),
        "completion_s": completion, "bound_s": best.seconds, "bound": best.kind, "ratio": completion / best.seconds,
        "cpu_s": cpu, "wall_s": wall, "transfers": plan.transfer_count,
    }  # fmt: skip


def shown(row: dict[str, Any]) -> str:
    """A cell as a line."""
    return (
        f"{row['topology']:20} {row['kind']:14} {row['size']:6} {row['ratio']:8.4f} of the bound {row['cpu_s']:7.2f} s "
        f"(wall{row['wall_s']:6.2f} s)"
        f"{row['transfers']:9}  {row['planner']}: {row['by']}"
    )


def summarise(rows: Sequence[dict[str, Any]]) -> None:
    """Means by planner, and by each size and collective."""
    for planner in dict.fromkeys(r["planner"] for r in rows):
        mine = [r for r in rows if r["planner"] == planner]
        _line(f"{planner}, all", mine)
        for column in ("size", "kind"):
            for value in dict.fromkeys(r[column] for r in mine):
                _line(f"{planner}, {value}", [r for r in mine if r[column] == value])


def _line(title: str, rows: Sequence[dict[str, Any]]) -> None:
    mean = math.exp(sum(math.log(r["ratio"]) for r in rows) / len(rows))
    worst = max(rows, key=lambda r: r["ratio"])
    slowest = max(rows, key=lambda r: r["cpu_s"])
    longest = max(r["wall_s"] for r in rows)
    print(
        f"{title:28} {len(rows):4} cells, geometric mean {mean:.4f}, worst {worst['ratio']:.4f} "
        f"({worst['topology']} {worst['kind']} {worst['size']}), planning at most {slowest['cpu_s']:.2f} s "
        f"({slowest['topology']} {slowest['kind']} {slowest['size']}), {longest:.2f} s by the clock"
    )


if __name__ == "__main__":
    main()
