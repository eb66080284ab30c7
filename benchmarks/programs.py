"""How many CPU seconds does it take to make the program of one node, and the programs of all nodes?

python benchmarks/programs.py [--servers 4,64,512,2048] [--collectives allgather,allreduce,alltoall] [--size 1GB]
                              [--plain]

First table: plans by symmetry of h100:SERVERS, written to a file and read again. CPU seconds of reading the plan, of
the first program made from it (that of the last rank), of a second one (that of the rank in the middle), and of listing
a program row by row, as the executor takes it; the sends and receives of the program; CPU seconds of the Chakra trace
of a rank, and the bytes of that file. Second table: plans without symmetry, CPU seconds of the programs of all nodes
and of one. Kernels are loaded. Writes benchmarks/out/programs.json.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["STRETTO_KERNELS"] = "compiled"

from stretto.formats import chakra, native
from stretto.lower import lower, lower_for
from stretto.model.collective import Workload, make_collective
from stretto.model.plan import Plan
from stretto.model.units import parse_size
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology

PLAIN = (
    ("torus:16x16", "allreduce", "ring"),
    ("torus:16x16", "alltoall", "shortest-path"),
    ("ndv2:8", "allgather", "forest"),
    ("dgx2:8", "allreduce", "forest"),
)


def planned(spec: str, kind: str, planner: str, size: str, effort: str) -> Plan:
    net = load_topology(spec)
    return run_planner(planner, net, Workload((make_collective(kind, net, parse_size(size)),)), effort=effort)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What a call gives, and its CPU seconds."""
    began = time.process_time()
    answer = work()
    return answer, time.process_time() - began


def by_symmetry(servers: int, kind: str, size: str, folder: str) -> dict[str, Any]:
    path = f"{folder}/plan.parquet"
    native.write_plan(planned(f"h100:{servers}", kind, "symmetric", size, "normal"), path)
    plan, read_s = timed(lambda: native.read_plan(path))
    ranks = plan.topology.accelerators.tolist()
    first, first_s = timed(lambda: lower_for(plan, ranks[-1]))
    second, second_s = timed(lambda: lower_for(plan, ranks[len(ranks) // 2]))
    _, steps_s = timed(lambda: second.steps)
    timeline = simulate(plan)
    _, trace_s = timed(lambda: chakra.write(timeline, f"{folder}/trace", [len(ranks) // 2]))
    trace_bytes = os.path.getsize(f"{folder}/trace.{len(ranks) // 2}.et")
    return {
        "gpus": len(ranks), "collective": kind, "size": size, "transfers": plan.transfer_count, "read_cpu_s": read_s,
        "first_cpu_s": first_s, "second_cpu_s": second_s, "row_by_row_cpu_s": steps_s, "sends": len(first.sends),
        "receives": len(first.receives), "trace_cpu_s": trace_s, "trace_bytes": trace_bytes,
    }  # fmt: skip


def plain(spec: str, kind: str, planner: str) -> dict[str, Any]:
    plan = planned(spec, kind, planner, "1GB", "quick")
    programs, all_s = timed(lambda: lower(plan))
    _, one_s = timed(lambda: lower_for(plan, int(plan.topology.accelerators[1])))
    return {
        "network": spec, "collective": kind, "planner": planner, "transfers": plan.transfer_count,
        "nodes": len(programs), "all_cpu_s": all_s, "one_cpu_s": one_s,
    }  # fmt: skip


def show(row: dict[str, Any]) -> None:
    texts = (f"{v:,}" if isinstance(v, int) else f"{v:.3f}" if isinstance(v, float) else v for v in row.values())
    print(f"| {' | '.join(texts)} |", flush=True)


def header(*columns: str) -> None:
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="4,64,512,2048")
    parser.add_argument("--collectives", default="allgather,allreduce,alltoall")
    parser.add_argument("--size", default="1GB")
    parser.add_argument("--plain", action="store_true", help="the second table alone")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        if not given.plain:
            by_symmetry(2, "allreduce", "8MB", folder)  # loads what is needed
            header("GPUs", "collective", "size", "transfers", "read", "first program", "next", "row by row", "sends",
                   "receives", "trace", "its bytes")  # fmt: skip
            for servers in map(int, given.servers.split(",")):
                for kind in given.collectives.split(","):
                    rows.append(by_symmetry(servers, kind, given.size, folder))
                    show(rows[-1])
    plain("torus:4x4", "allreduce", "ring")
    header("network", "collective", "planner", "transfers", "nodes", "all programs", "one")
    for request in PLAIN:
        rows.append(plain(*request))
        show(rows[-1])
    out = Path(__file__).with_name("out") / "programs.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
