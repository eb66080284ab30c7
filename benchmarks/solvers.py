"""What TE-CCL's program costs: optimal epochs, solvers, windows, a start from MTEGCCA, and kinds of routers.

Prints, for the instances whose optimum is known, the CPU seconds to find the fewest epochs and to
refute one less, by HiGHS and by CP-SAT, and those of a plain HiGHS model without the
earliest-arrival windows that a prototype needed; then what ``epochs=from-heuristic`` saves against
TE-CCL's own search; then three sites with each kind of router; then the time to build a model of at
least 60,000 columns.

    python benchmarks/solvers.py [--limit SECONDS] [--routers]

``--routers`` gives the table of routers alone.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Infeasible
from stretto.model.topology import Topology
from stretto.planners import run_planner
from stretto.planners.teccl.copies import CopyModel
from stretto.planners.teccl.epochs import epoch_seconds, in_epochs, initial_state
from stretto.simulate import simulate
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

SITES, SITES_BYTES = "sites:3,4?connectivity=0.5&km=50&message=0", 250_000_000
"""The network on which kinds of routers are compared, and the bytes of a rank."""
ROUTERS = ("cut-through", "switch", "store")


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


def show(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """A table in Markdown, each row as it comes."""
    print(f"\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def instances(limit: float, rows: list[dict]) -> Iterator[tuple[str, ...]]:
    """For each instance what it takes to refute one epoch less than the fewest, and to find the fewest."""
    for spec, shard, chunks, mode, fewest, alpha, *prototype_s in INSTANCES:
        cells = {
            solver: [solved(spec, shard, chunks, mode, alpha, n, solver, limit) for n in (fewest - 1, fewest)]
            for solver in ("highs", "cp-sat")
        }
        row = {"topology": spec, "shard_bytes": shard, "chunks": chunks, "mode": mode, "prototype_s": prototype_s}
        rows.append(row | cells)
        name = f"{spec} {mode}, {shard / 1e6:g} MB in {chunks}{'' if alpha else ', no alpha'}"
        texts = [" and ".join(map(_cost, own)) for own in cells.values()]
        prototype = " and ".join(f"{each:g}" for each in prototype_s if each is not None)
        yield name, f"{fewest}, not {fewest - 1}", *texts, prototype


def _cost(cell: dict) -> str:
    """CPU seconds of a solve or a search, or that they did not suffice."""
    enough = cell["proven"] if "proven" in cell else cell["status"] in ("found", "infeasible")
    return f"{cell['cpu_s']:.2f}" if enough else f"> {cell['cpu_s']:.0f}"


def starts(limit: float, rows: list[dict]) -> Iterator[tuple[str, ...]]:
    """TE-CCL's own search for a horizon, and a start from MTEGCCA's plan."""
    for spec, mode in (("dgx1", "fast"), ("amd:1", "fast"), ("ndv2:2", "slow"), ("dgx2:2", "slow")):
        net = load_topology(spec)
        workload = Workload((make_collective("allgather", net, 10**9),))
        row = {"topology": spec, "mode": mode} | {how: started(net, workload, mode, how, limit) for how in HOW}
        rows.append(row)
        yield f"{spec} {mode}", *(_cost(row[how]) for how in HOW)


def started(net: Topology, workload: Workload, mode: str, how: str, limit: float) -> dict:
    """The epochs of TE-CCL's plan, whether fewer are refuted, and CPU seconds in all."""
    begun = time.process_time()
    try:
        plan = run_planner("teccl", net, workload, options={"mode": mode, "epochs": how}, time_limit_s=limit)
        found = {"epochs": plan.meta["epochs"], "proven": plan.meta["proven"]}
    except Infeasible:
        found = {"epochs": None, "proven": False}
    return found | {"cpu_s": time.process_time() - begun}


def routers(rows: list[dict]) -> Iterator[tuple[str, ...]]:
    """AllGather over three sites whose routers cut through, copy like switches, or store."""
    net = load_topology(SITES)
    workload = Workload((make_collective("allgather", net, shard_bytes=SITES_BYTES),))
    for kind, mode in product(ROUTERS, ("fast", "slow")):
        begun = time.process_time()
        options = {"mode": mode, "epochs": "from-heuristic", "routers": kind}
        plan = run_planner("teccl", net, workload, options=options)
        row = {"routers": kind, "mode": mode, "epochs": plan.meta["epochs"], "proven": plan.meta["proven"]}
        row |= {"reported_s": plan.meta["reported_s"], "completion_s": simulate(plan).completion_s}
        rows.append(row | {"cpu_s": time.process_time() - begun})
        texts = (f"{1e3 * row['reported_s']:.1f} ms", f"{1e3 * row['completion_s']:.3f} ms")
        proven = "yes" if row["proven"] else "no"
        yield kind, mode, str(row["epochs"]), *texts, proven, f"{rows[-1]['cpu_s']:.1f}"


def build() -> dict:
    """How long a large model takes to be built."""
    begun = time.process_time()
    big = model_of("dgx2:2", 31_250_000, 1, "fast", True, 31)
    big.model.built()
    spent = time.process_time() - begun
    print(f"\nbuilding {big.model.column_count:,} columns, {big.model.row_count:,} rows: {spent:.2f} s of CPU")
    return {"columns": big.model.column_count, "cpu_s": spent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=40.0, help="seconds for one solve")
    parser.add_argument("--routers", action="store_true", help="the table of routers alone")
    given = parser.parse_args()
    solve(model_of("dgx1", 1000, 1, "fast", True, 800).model, solver="cp-sat", first=True)  # imports
    data: dict[str, Any] = {"instances": [], "starts": [], "routers": []}
    if not given.routers:
        columns = ("instance", "epochs", "HiGHS, CPU s", "CP-SAT, CPU s", "prototype, CPU s")
        show(columns, instances(given.limit, data["instances"]))
        columns = ("1 GB AllGather, to proven fewest epochs", "TE-CCL's search, CPU s", "from MTEGCCA, CPU s")
        show(columns, starts(given.limit, data["starts"]))
    columns = ("routers", "mode", "epochs", "epochs x length", "simulated", "proven fewest", "CPU s")
    show(columns, routers(data["routers"]))
    if not given.routers:
        data["build"] = build()
    place = Path(__file__).parent / "out"
    place.mkdir(exist_ok=True)
    (place / "solvers.json").write_text(json.dumps(data, indent=1))


if __name__ == "__main__":
    main()
