"""What planning by symmetry takes on GPU clusters, from 32 to 65,536 GPUs, beside planners that plan for every rank.

python benchmarks/clusters.py [--servers 4,64,512,2048] [--size 64MB,1GB] [--collectives allgather,...] [--message 0us]
                              [--peers forest,greedy,nccl-ring,nccl-tree] [--peers-up-to 4] [--damage slow,dead,kinds]

The networks are h100:SERVERS: 8 GPUs a server on a switch of 450 GB/s, eight rails of 50 GB/s. With --damage they are
almost symmetric: the NIC of one GPU has half its bandwidth (slow) or none (dead), or all NICs of half of the servers
have half (kinds). Each cell runs in its
own process with compiled kernels: a first request of the same kind on four servers loads what is needed. Prints a table
and writes benchmarks/out/clusters.json: completion over the bound; CPU seconds of planning, verifying, simulating, and
of the bound; the most memory of the process; transfers of the plan, and of its representatives.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from itertools import pairwise, product
from pathlib import Path

os.environ["STRETTO_KERNELS"] = "compiled"

import numpy as np

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import StrettoError
from stretto.model.symmetric import SymmetricPlan
from stretto.model.topology import Topology, make_topology
from stretto.model.units import parse_size
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

COLLECTIVES = "allgather,reducescatter,allreduce,alltoall"
CELL_S = 600
"""Wall-clock seconds after which a cell is given up."""


def network(servers: int, message: str, damage: str) -> Topology:
    t = load_topology(f"h100:{servers}?message={message}")
    if not damage:
        return t
    hit = t.accelerators[: 4 * servers if damage == "kinds" else 1]
    nics = (t.bandwidth == t.bandwidth.min()) & (np.isin(t.src, hit) | np.isin(t.dst, hit))
    keep = ~nics if damage == "dead" else np.ones(t.link_count, dtype=bool)
    width = np.where(nics, t.bandwidth / 2, t.bandwidth)
    links = list(zip(t.src[keep], t.dst[keep], width[keep], t.latency_s[keep], strict=True))
    return make_topology(f"h100:{servers}, {damage}", t.kind, links, message_s=t.message_s[keep])


def measure(servers: int, kind: str, size: str, planner: str, message: str, damage: str) -> dict:
    row = {"gpus": 8 * servers, "collective": kind, "size": size, "planner": planner, "message": message}
    row["damage"] = damage
    net, small = network(servers, message, damage), network(4, message, damage)
    warm = run_planner(planner, small, Workload((make_collective(kind, small, 8_000_000),)), effort="quick")
    simulate(warm), verify(warm)
    marks = [time.process_time()]
    try:
        workload = Workload((make_collective(kind, net, parse_size(size)),))
        plan = run_planner(planner, net, workload, effort="normal")
    except StrettoError as error:
        return {**row, "refused": str(error)}
    marks.append(time.process_time())
    verdict = verify(plan)
    marks.append(time.process_time())
    completion_s = simulate(plan).completion_s
    marks.append(time.process_time())
    memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    bound_s = bounds(net, workload)[0].seconds
    marks.append(time.process_time())
    planning, verifying, simulating, bounding = (b - a for a, b in pairwise(marks))
    return {
        **row,
        "verified": verdict.ok,
        "completion_s": completion_s,
        "completion_over_bound": completion_s / bound_s,
        "planning_cpu_s": planning,
        "verifying_cpu_s": verifying,
        "simulating_cpu_s": simulating,
        "bound_cpu_s": bounding,
        "memory_bytes": memory_bytes,
        "transfers": plan.transfer_count,
        "representatives": plan.part.transfer_count if isinstance(plan, SymmetricPlan) else None,
    }


def in_a_process(*cell: object) -> dict:
    command = [sys.executable, "-P", __file__, "--cell", json.dumps(cell)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CELL_S, check=False)
    except subprocess.TimeoutExpired:
        return {"refused": f"no plan within {CELL_S} s"}
    return json.loads(done.stdout) if done.returncode == 0 else {"refused": done.stderr.strip().splitlines()[-1]}


def line(row: dict) -> str:
    if "refused" in row:
        return row["refused"][:60]
    total = row["planning_cpu_s"] + row["verifying_cpu_s"] + row["simulating_cpu_s"]
    parts = [row[name] for name in ("planning_cpu_s", "verifying_cpu_s", "simulating_cpu_s")]
    held = row["representatives"] or row["transfers"]
    return (
        f"{row['completion_over_bound']:.4f} | {total:.2f} ({', '.join(f'{s:.2f}' for s in parts)}) | "
        f"{row['bound_cpu_s']:.2f} | {held:,} of {row['transfers']:,} | {row['memory_bytes'] / 1e6:.0f} MB"
        + ("" if row["verified"] else " | NOT CORRECT")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="4,64,512,2048")
    parser.add_argument("--size", default="64MB,1GB")
    parser.add_argument("--collectives", default=COLLECTIVES)
    parser.add_argument("--message", default="0us")
    parser.add_argument("--peers", default="forest,greedy,nccl-ring,nccl-tree")
    parser.add_argument("--peers-up-to", type=int, default=4, help="servers up to which the peers are run, too")
    parser.add_argument("--damage", default="", help="slow, dead, kinds")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cell:
        print(json.dumps(measure(*json.loads(given.cell))))
        return
    rows = []
    columns = ("GPUs", "collective", "size", "planner", "completion / bound", "CPU s (plan, verify, simulate)")
    print(f"| {' | '.join((*columns, 'bound', 'transfers', 'memory'))} |")
    print("|---|---|---|---|---|---|---|---|---|")
    cells = product(map(int, given.servers.split(",")), given.damage.split(","), given.collectives.split(","))
    for servers, damage, kind in cells:
        peers = given.peers.split(",") if given.peers and servers <= given.peers_up_to else []
        for size, planner in product(given.size.split(","), ["symmetric", *peers]):
            row = in_a_process(servers, kind, size, planner, given.message, damage)
            rows.append(row)
            if planner == "symmetric" or "refused" not in row:
                net = f"{8 * servers}{', ' * bool(damage)}{damage}"
                print(f"| {net} | {kind} | {size} | {planner} | {line(row)} |", flush=True)
    out = Path(__file__).with_name("out") / "clusters.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"command": sys.argv[1:], "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
