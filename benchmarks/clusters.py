"""What planning by symmetry takes on GPU clusters, from 32 to 65,536 GPUs, beside planners that plan for every rank.

python benchmarks/clusters.py [--servers 4,64,512,2048] [--size 64MB,1GB] [--collectives allgather,...] [--message 0us]
                              [--peers forest,greedy,nccl-ring,nccl-tree] [--peers-up-to 4] [--damage slow,dead,kinds]
                              [--tacos DIRECTORY] [--plot FILE]

All kinds of collectives are measured as they are asked for: --collectives broadcast,reduce,scatter,gather has a root.
The networks are h100:SERVERS: 8 GPUs a server on a switch of 450 GB/s, eight rails of 50 GB/s. With --damage they are
almost symmetric: the NIC of one GPU has half its bandwidth (slow) or none (dead), all NICs of half of the servers have
half (kinds), or what benchmarks/damage.py knows besides, such as idle+slow. Each cell runs in its own process with
compiled kernels: a first request of the same kind on four or eight servers loads what is needed. Prints a table
and writes benchmarks/out/clusters.json: completion over the bound; CPU seconds of planning, verifying, simulating, and
of the bound; the most memory of the process; transfers of the plan, and of its representatives.

--tacos DIRECTORY, a checkout of github.com/astra-sim/tacos, runs TACOS as a peer on AllGather (benchmarks/tacos.py). It
knows no switches: as its paper does, the members of a switch are put on a ring, and each is joined to the next one, two
or three by links that share its bandwidth; the best of these and of 1, 2 and 4 chunks a rank counts. It gives a time
without a schedule. --plot FILE draws the growth of the first collective at the last size.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise, product
from pathlib import Path

os.environ["STRETTO_KERNELS"] = "compiled"

import numpy as np

import tacos
from damage import network, ranks_of
from scaling import plot
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import StrettoError
from stretto.model.symmetric import SymmetricPlan
from stretto.model.topology import Topology, make_topology
from stretto.model.units import parse_size
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.verify import verify

COLLECTIVES = "allgather,reducescatter,allreduce,alltoall"
RING_STEPS, TACOS_CHUNKS = (1, 2, 3), (1, 2, 4)
"""How many next members of a switch each is joined to, and chunks a rank, as TACOS is asked."""

CELL_S = 600
"""Wall-clock seconds after which a cell is given up."""


def measure(servers: int, kind: str, size: str, planner: str, message: str, damage: str) -> dict:
    row = {"gpus": 8 * servers, "collective": kind, "size": size, "planner": planner, "message": message}
    row["damage"] = damage
    net, small = network(servers, message, damage), network(8 if damage else 4, message, damage)
    few = make_collective(kind, small, 8_000_000, ranks=ranks_of(small, damage))
    warm = run_planner(planner, small, Workload((few,)), effort="quick")
    simulate(warm), verify(warm)
    marks = [time.process_time()]
    try:
        workload = Workload((make_collective(kind, net, parse_size(size), ranks=ranks_of(net, damage)),))
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


def without_switches(net: Topology, steps: int) -> Topology:
    """Members of each switch are joined to the next ``steps`` ones on a ring, which share a member's bandwidth."""
    links = []
    for switch in np.flatnonzero(net.is_switch).tolist():
        into, out = (np.flatnonzero(ends == switch) for ends in (net.dst, net.src))
        leaves = dict(zip(net.dst[out].tolist(), out.tolist(), strict=True))
        count = min(steps, len(into) - 1)
        for k, up in enumerate(into.tolist()):
            for step in range(1, count + 1):
                down = leaves[int(net.src[into[(k + step) % len(into)]])]
                width = min(net.bandwidth[up], net.bandwidth[down]) / count
                links.append((int(net.src[up]), int(net.dst[down]), width, net.latency_s[up] + net.latency_s[down]))
    place = {v: k for k, v in enumerate(net.accelerators.tolist())}
    joined = [(place[a], place[b], width, latency) for a, b, width, latency in links]
    return make_topology(net.name, [0] * len(place), joined)


def by_tacos(binary: Path, servers: int, size: str, message: str, damage: str) -> dict:
    """The row of TACOS for an AllGather."""
    net = network(servers, message, damage)
    workload = Workload((make_collective("allgather", net, parse_size(size)),))
    shard = workload.collectives[0].shard_bytes
    found = [
        tacos.theirs(binary, without_switches(net, steps), 1, CELL_S, shard, chunks)
        for steps, chunks in product(RING_STEPS, TACOS_CHUNKS)
    ]
    ended = [each for each in found if each[0] is not None]
    row = {"gpus": 8 * servers, "collective": "allgather", "size": size, "planner": "TACOS", "damage": damage}
    if not ended:
        return {**row, "refused": f"no plan within {CELL_S} s"}
    seconds, cpu_s = min(ended)
    bound_s = bounds(net, workload)[0].seconds
    return {**row, "completion_s": seconds, "completion_over_bound": seconds / bound_s, "planning_cpu_s": cpu_s}


def in_a_process(*cell: object) -> dict:
    command = [sys.executable, __file__, "--cell", json.dumps(cell)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CELL_S, check=False)
    except subprocess.TimeoutExpired:
        return {"planner": cell[3], "refused": f"no plan within {CELL_S} s"}
    if done.returncode != 0:
        return {"planner": cell[3], "refused": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout)


def line(row: dict) -> str:
    if "refused" in row:
        return row["refused"][:60]
    if "verified" not in row:
        return f"{row['completion_over_bound']:.4f} | {row['planning_cpu_s']:.2f} |  |  | "
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
    parser.add_argument("--damage", default="", help="words of benchmarks/damage.py, joined by +; several by ,")
    parser.add_argument("--tacos", type=Path, default=os.environ.get("TACOS_SOURCE"), help="a checkout of TACOS")
    parser.add_argument("--plot", type=Path, help="where to draw the growth")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cell:
        print(json.dumps(measure(*json.loads(given.cell))))
        return
    columns = ("GPUs", "collective", "size", "planner", "completion / bound", "CPU s (plan, verify, simulate)")
    print(f"| {' | '.join((*columns, 'bound', 'transfers', 'memory'))} |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        binary = tacos.compiled(given.tacos, Path(folder)) if given.tacos else None
        rows = run(given, binary)
    out = Path(__file__).with_name("out") / "clusters.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"command": sys.argv[1:], "rows": rows}, indent=1))
    if given.plot:
        ours = [row for row in rows if row["planner"] == "symmetric" and "refused" not in row]
        drawn = [row for row in ours if (row["collective"], row["size"]) == (rows[0]["collective"], rows[-1]["size"])]
        given.plot.write_text(plot(drawn, "gpus", "GPUs"))
        print(f"plot: {given.plot}")


def run(given: argparse.Namespace, binary: Path | None) -> list[dict]:
    """All cells; with TACOS where it was compiled."""
    rows = []
    cells = product(map(int, given.servers.split(",")), given.damage.split(","), given.collectives.split(","))
    for servers, damage, kind in cells:
        few = servers <= given.peers_up_to
        peers = given.peers.split(",") if given.peers and few else []
        for size in given.size.split(","):
            found = [
                in_a_process(servers, kind, size, planner, given.message, damage) for planner in ["symmetric", *peers]
            ]
            if binary is not None and kind == "allgather" and few:
                found.append(by_tacos(binary, servers, size, given.message, damage))
            rows += found
            for row in found:
                if row["planner"] == "symmetric" or "refused" not in row:
                    net = f"{8 * servers}{', ' * bool(damage)}{damage}"
                    print(f"| {net} | {kind} | {size} | {row['planner']} | {line(row)} |", flush=True)
    return rows


if __name__ == "__main__":
    main()
