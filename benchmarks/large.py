"""Does every collective end on large and irregular networks, near the bound, in seconds and in memory?

python benchmarks/large.py [--size 1GB] [--networks torus:32x32,random:512] [--collectives allgather,...] [-p auto]

Each cell is planned at "normal" in its own process. Prints a table and writes benchmarks/out/large.json: completion
over the bound, CPU seconds of planning, of the bound, and of simulating, the most memory of the process, transfers.
"random:N" is a network of N accelerators with 2 N pairs of links between random ones, of 1 to 20 GB/s and 1 to 100 us.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

os.environ["STRETTO_KERNELS"] = "compiled"

import numpy as np

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import StrettoError
from stretto.model.topology import ACCELERATOR, Topology, make_topology
from stretto.model.units import parse_size
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import assume_messages, load_topology

NETWORKS = "torus:32x32,random:512"
COLLECTIVES = "allgather,reducescatter,allreduce,alltoall,broadcast,reduce,scatter,gather"


def network(spec: str) -> Topology:
    kind, _, count = spec.partition(":")
    return assume_messages(random_network(int(count)) if kind == "random" else load_topology(spec))


def random_network(nodes: int) -> Topology:
    rng = np.random.default_rng(1)
    pairs = {(int(rng.integers(0, v)), v) for v in range(1, nodes)}
    while len(pairs) < 2 * nodes:
        a, b = sorted(int(v) for v in rng.choice(nodes, 2, replace=False))
        pairs.add((a, b))
    links = []
    for a, b in sorted(pairs):
        width, latency_s = float(np.exp(rng.uniform(np.log(1e9), np.log(2e10)))), float(rng.uniform(1e-6, 1e-4))
        links += [(a, b, width, latency_s), (b, a, width, latency_s)]
    return make_topology(f"random:{nodes}", [ACCELERATOR] * nodes, links)


def measure(spec: str, kind: str, size: str, planner: str) -> dict:
    net = network(spec)
    workload = Workload((make_collective(kind, net, parse_size(size)),))
    row = {"network": spec, "collective": kind, "size": size, "planner": planner}
    try:
        plan = run_planner(planner, net, workload, effort="normal")
    except StrettoError as error:
        return {**row, "refused": str(error), "planning_cpu_s": time.process_time()}
    marks = [time.process_time()]
    completion_s = simulate(plan).completion_s
    marks.append(time.process_time())
    bound_s = bounds(net, workload)[0].seconds
    marks.append(time.process_time())
    return {
        **row,
        "chosen": plan.meta.get("chosen", planner),
        "completion_over_bound": completion_s / bound_s,
        "planning_cpu_s": plan.meta["planning_cpu_s"],
        "simulating_cpu_s": marks[1] - marks[0],
        "bound_cpu_s": marks[2] - marks[1],
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "transfers": plan.transfer_count,
    }


def printed(row: dict) -> str:
    head = f"| {row['network']} | {row['collective']} | {row['size']} |"
    if "refused" in row:
        return f"{head} refused after {row['planning_cpu_s']:.1f} s: {row['refused']} |"
    return (
        f"{head} {row['chosen']} | {row['completion_over_bound']:.3f} | {row['planning_cpu_s']:.1f} "
        f"| {row['bound_cpu_s']:.1f} | {row['simulating_cpu_s']:.1f} | {row['memory_bytes'] / 1e6:.0f} "
        f"| {row['transfers']:,} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=NETWORKS)
    parser.add_argument("--collectives", default=COLLECTIVES)
    parser.add_argument("--size", default="1GB", help="of the full buffer; several with commas")
    parser.add_argument("-p", "--planner", default="auto", help="several with commas")
    parser.add_argument("--limit", type=float, default=200.0, help="wall-clock seconds after which a cell is stopped")
    parser.add_argument("--cell", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cell:
        print(json.dumps(measure(*given.cell)))
        return
    rows = []
    columns = (
        "network",
        "collective",
        "size",
        "planner",
        "completion / bound",
        "planning, CPU s",
        "bound",
        "simulating",
    )
    print(f"| {' | '.join((*columns, 'MB', 'transfers'))} |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    cells = [
        (spec, kind, size, planner)
        for spec in given.networks.split(",")
        for size in given.size.split(",")
        for kind in given.collectives.split(",")
        for planner in given.planner.split(",")
    ]
    for cell in cells:
        try:
            command = [sys.executable, "-P", __file__, "--cell", *cell]
            run = subprocess.run(command, capture_output=True, text=True, timeout=given.limit)
            row = json.loads(run.stdout.splitlines()[-1])
        except subprocess.TimeoutExpired:
            row = dict(zip(("network", "collective", "size", "planner"), cell, strict=True))
            row |= {"refused": "not ended", "planning_cpu_s": given.limit}
        rows.append(row)
        print(printed(row), flush=True)
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "large.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
