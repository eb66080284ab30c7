"""What TE-CCL's program costs: optimal epochs, solvers, windows, and a start from MTEGCCA.

Prints, for the instances whose optimum is known, the CPU seconds to find the fewest epochs and to
refute one less, by HiGHS and by CP-SAT, and those of a plain HiGHS model without the
earliest-arrival windows that a prototype needed; then what ``epochs=from-heuristic`` saves against
TE-CCL's own search; then the time to build a model of at least 60,000 columns.

    python benchmarks/solvers.py [--limit SECONDS]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Infeasible
from stretto.planners import run_planner
from stretto.planners.teccl.copies import CopyModel
from stretto.planners.teccl.epochs import epoch_seconds, in_epochs, initial_state
from stretto.solvers import solve
from stretto.topologies import load_topology

# spec, shard bytes, chunks, mode, fewest epochs, alpha counted, CPU seconds of the prototype (one less; fewest)
INSTANCES = [
    ("dgx1", 62_500_000, 1, "fast", 3, True, 0.07, 0.07),
    ("dgx1", 62_500_000, 2, "fast", 5, True, 0.6, 0.6),
    ("dgx1", 62_500_000, 4, "fast", 10, True, 2.5, 35.0),
    ("dgx1", 25_000, 1, "fast", 7, True, None, None),
    ("amd:1", 62_500_000, 1, "fast", 14, False, 2.6, None),
    ("ndv2:2", 62_500_000, 1, "slow", 10, True, 49.0, 163.0),
    ("dgx2:2", 31_250_000, 1, "slow", 4, True, None, 1.2),
    ("ndv2:2", 62_500_000, 1, "fast", 35, True, None, None),
]

HOW = ("auto", "from-heuristic")


def model_of(spec: str, shard: int, chunks: int, mode: str, alpha: bool, horizon: int) -> CopyModel:
    net = load_topology(spec)
    if not alpha:
        net = replace(net, latency_s=np.zeros_like(net.latency_s))
    workload = Workload((make_collective("allgather", net, shard_bytes=shard, chunks=chunks),))
    size = float(workload.chunk_bytes.max())
    grid = in_epochs(net, size, epoch_seconds(net, size, mode))
    state = initial_state(net, workload, grid.seconds)
    return CopyModel(grid, horizon, state, ~state.held)


def solved(spec: str, shard: int, chunks: int, mode: str, alpha: bool, horizon: int, solver: str, limit: float) -> dict:
    begun = time.process_time()
    model = model_of(spec, shard, chunks, mode, alpha, horizon)
    status = "infeasible"
    if model.possible:
        status = solve(model.model, solver=solver, first=True, time_limit_s=limit).status
    status = {"optimal": "found", "feasible": "found"}.get(status, status)
    return {"epochs": horizon, "status": status, "cpu_s": time.process_time() - begun}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one solve")
    limit = parser.parse_args().limit
    solve(model_of("dgx1", 1000, 1, "fast", True, 800).model, solver="cp-sat", first=True)  # imports
    rows = []
    print(f"{'instance':34} {'epochs':>6} {'HiGHS':>20} {'CP-SAT':>20} {'prototype':>10}")
    for spec, shard, chunks, mode, fewest, alpha, less_s, found_s in INSTANCES:
        for horizon, was in ((fewest - 1, less_s), (fewest, found_s)):
            cells = {s: solved(spec, shard, chunks, mode, alpha, horizon, s, limit) for s in ("highs", "cp-sat")}
            rows.append(
                {"topology": spec, "shard_bytes": shard, "chunks": chunks, "mode": mode, "prototype_s": was, **cells}
            )
            name = f"{spec} {shard / 1e6:g} MB x{chunks} {mode}"
            texts = [f"{c['status']} {c['cpu_s']:.2f} s" for c in cells.values()]
            print(
                f"{name:34} {horizon:6} {texts[0]:>20} {texts[1]:>20} {'' if was is None else f'{was} s':>10}",
                flush=True,
            )
    print("\nTE-CCL's own search for a horizon, and a start from MTEGCCA's plan (CPU seconds in all):")
    starts = []
    for spec, mode in (("dgx1", "fast"), ("amd:1", "fast"), ("ndv2:2", "slow"), ("dgx2:2", "slow")):
        net = load_topology(spec)
        workload = Workload((make_collective("allgather", net, 10**9),))
        row = {"topology": spec, "mode": mode}
        for how in HOW:
            begun = time.process_time()
            try:
                plan = run_planner("teccl", net, workload, options={"mode": mode, "epochs": how}, time_limit_s=limit)
                row[how] = {"epochs": plan.meta["epochs"], "proven": plan.meta["proven"]}
            except Infeasible:
                row[how] = {"epochs": None, "proven": False}
            row[how]["cpu_s"] = time.process_time() - begun
        starts.append(row)
        texts = [f"{how} {row[how]['cpu_s']:7.2f} s ({row[how]['epochs']} epochs)" for how in HOW]
        print(f"{spec + ' ' + mode:20} {texts[0]:36} {texts[1]}", flush=True)
    begun = time.process_time()
    big = model_of("dgx2:2", 31_250_000, 1, "fast", True, 31)
    big.model.built()
    spent = time.process_time() - begun
    print(f"\nbuilding {big.model.column_count:,} columns, {big.model.row_count:,} rows: {spent:.2f} s of CPU")
    place = Path(__file__).parent / "out"
    place.mkdir(exist_ok=True)
    data = {"instances": rows, "starts": starts, "build": {"columns": big.model.column_count, "cpu_s": spent}}
    (place / "solvers.json").write_text(json.dumps(data, indent=1))


if __name__ == "__main__":
    main()
