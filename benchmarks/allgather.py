"""How near to the bound, and for what planning time? MTEGCCA's AllGather on every network of issue and paper.

Prints a table and writes benchmarks/out/allgather.json. Planning is CPU seconds in this process,
compiled kernels loaded before (the first run, which loads or compiles them, is told apart), the
median of three; completion is the simulator's, of a plan that the verifier passed.
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
    "dgx1", "dgx2:2", "ndv2:2", "ndv2:4", "ndv2:10", "amd:1", "amd:2", "zoo:Abilene", "zoo:Cesnet", "zoo:Gblnet",
    "zoo:HiberniaIreland", "zoo:Napnet", "zoo:Arpanet",
)  # fmt: skip
SHARDS = (10**3, 10**6, 10**9)
CHUNKS = (1, 2, 4)
REPEATS = 3
# planning times published for one chunk, figures 7 and 9 of the paper, on its authors' machine
PUBLISHED_PLANNING_S = {"ndv2:4": 3.79, "ndv2:10": 170.82, "amd:2": 18.7}


def cell(spec: str, shard: int, chunks: int) -> dict:
    """One plan: how it did, and what it cost."""
    net = load_topology(spec)
    work = Workload((make_collective("allgather", net, shard_bytes=shard, chunks=chunks),))
    seconds = []
    for _ in range(REPEATS):
        started = time.process_time()
        plan = run_planner("mtegcca", net, work)
        seconds.append(time.process_time() - started)
    verdict = verify(plan)
    assert verdict.ok, verdict.finding
    completion = simulate(plan).completion_s
    best = bounds(net, work)[0]
    indivisible = bounds(net, work, float(work.chunk_bytes.min()))[0]
    return {
        "topology": spec,
        "shard_bytes": shard,
        "chunks": chunks,
        "transfers": plan.transfer_count,
        "completion_s": completion,
        "bound_s": best.seconds,
        "completion_over_bound": completion / best.seconds,
        "completion_over_chunked_bound": completion / indivisible.seconds,
        "planning_cpu_s": statistics.median(seconds),
        "planning_cpu_s_spread": max(seconds) - min(seconds),
        "rule": plan.meta["tree"],
    }


def main() -> None:
    started = time.process_time()
    cell("dgx1", 1000, 1)
    print(f"first run, kernels loaded or compiled: {time.process_time() - started:.1f} CPU s\n")
    rows = []
    print("completion / bound (any chunking), for 1, 2 and 4 chunks a shard; planning in CPU ms\n")
    print("| topology | shard | 1 chunk | 2 chunks | 4 chunks | planning, 1 chunk | 4 chunks | published |")
    print("|---|---|---|---|---|---|---|---|")
    for spec in NETWORKS:
        for shard in SHARDS:
            cells = [cell(spec, shard, chunks) for chunks in CHUNKS]
            rows += cells
            ratios = " | ".join(f"{c['completion_over_bound']:.3f}" for c in cells)
            published = PUBLISHED_PLANNING_S.get(spec)
            paper = f"{published:,.2f} s" if published else ""
            first, last = (1e3 * cells[i]["planning_cpu_s"] for i in (0, -1))
            print(f"| {spec} | {format_size(shard)} | {ratios} | {first:.1f} | {last:.1f} | {paper} |", flush=True)
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "allgather.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
