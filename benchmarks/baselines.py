"""What are NCCL's rings and trees and blind shortest paths worth beside MTEGCCA?

Prints three tables and writes benchmarks/out/baselines.json: AllGather and AllReduce as simulated
completion over the bound, of verified plans, and planning in CPU milliseconds (median of three,
kernels loaded).
"""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path

os.environ["STRETTO_KERNELS"] = "compiled"

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.units import format_size
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

NETWORKS = (
    "ring:8", "dgx1", "dgx2:2", "ndv2:4", "ndv2:10", "amd:1", "amd:2", "torus:8x8", "sites:3,4", "zoo:Abilene",
    "zoo:Cesnet",
)  # fmt: skip
PLANNED = ("ndv2:4", "ndv2:10", "dgx2:2", "amd:2", "torus:16x16")
SIZES = (10**4, 10**6, 10**9)
ALLGATHER = (
    ("nccl", {}),
    ("shortest-path", {}),
    ("shortest-path", {"copy": False}),
    ("mtegcca", {}),
)
ALLREDUCE = (("nccl-ring", {}), ("nccl-tree", {}), ("nccl", {"by": "model"}), ("shortest-path", {}))


def cell(spec: str, kind: str, size: int, planner: str, options: dict, repeats: int = 1) -> dict:
    """One plan: how it did, and what it cost."""
    net = load_topology(spec)
    work = Workload((make_collective(kind, net, size),))
    seconds = []
    for _ in range(repeats):
        started = time.process_time()
        plan = run_planner(planner, net, work, options=options)
        seconds.append(time.process_time() - started)
    verdict = verify(plan)
    assert verdict.ok, verdict.finding
    completion = simulate(plan).completion_s
    return {
        "topology": spec,
        "collective": kind,
        "size_bytes": size,
        "planner": planner,
        "options": options,
        "transfers": plan.transfer_count,
        "completion_s": completion,
        "completion_over_bound": completion / bounds(net, work)[0].seconds,
        "planning_cpu_s": statistics.median(seconds),
        "algorithm": plan.meta.get("algorithm"),
        "channels": plan.meta.get("channels"),
    }


def named(planner: str, options: dict) -> str:
    return " ".join((planner, *(f"{k}={str(v).lower()}" for k, v in options.items())))


def table(kind: str, schemes: tuple) -> list[dict]:
    """Completion / bound on every network and size, a column a scheme."""
    rows = []
    print(f"\n{kind}: completion / bound\n")
    print(f"| topology | size | {' | '.join(named(*s) for s in schemes)} |")
    print("|---|---|" + "---|" * len(schemes))
    for spec in NETWORKS:
        for size in SIZES:
            cells = [cell(spec, kind, size, *scheme) for scheme in schemes]
            rows += cells
            texts = [
                f"{c['completion_over_bound']:.2f}" + (f" ({c['algorithm']})" if "by" in c["options"] else "")
                for c in cells
            ]
            print(f"| {spec} | {format_size(size)} | {' | '.join(texts)} |", flush=True)
    return rows


def planning() -> list[dict]:
    """CPU milliseconds for an AllGather of 1 MB, and of an AllReduce by tree."""
    schemes = (
        ("allgather", "nccl-ring", {}),
        ("allgather", "shortest-path", {}),
        ("allgather", "shortest-path", {"copy": False}),
        ("allreduce", "nccl-tree", {}),
    )
    rows = []
    print("\nplanning, CPU ms, 1 MB\n")
    heads = [f"{kind} {named(planner, options)}" for kind, planner, options in schemes]
    print(f"| topology | {' | '.join(heads)} |")
    print("|---|" + "---|" * len(schemes))
    for spec in PLANNED:
        cells = [cell(spec, kind, 10**6, planner, options, 3) for kind, planner, options in schemes]
        rows += cells
        texts = [f"{1e3 * c['planning_cpu_s']:.0f}" for c in cells]
        print(f"| {spec} | {' | '.join(texts)} |", flush=True)
    return rows


def main() -> None:
    cell("dgx1", "allreduce", 10**4, "nccl", {})
    cell("dgx1", "allgather", 10**4, "mtegcca", {})
    rows = table("allgather", ALLGATHER) + table("allreduce", ALLREDUCE) + planning()
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "baselines.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
