"""AllToAll by a matrix on optical planes: few weighted matchings beside pairwise exchange and SWOT's steps.

    python benchmarks/demand.py
    python benchmarks/demand.py --links     # on networks of links instead: paths beside greedy and shortest paths

Demands are those of experts, one a rank (``stretto.model.workloads.expert_demand``, 8192 tokens a rank), and even ones.
800 Gbps a node, 20 us a circuit, 200 us a turn, planes free at first. Every time is of a verified plan by the
simulator; planning is CPU seconds in this process, warm. Prints a table and writes benchmarks/out/demand.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from stretto.bounds import bounds
from stretto.model.collective import Workload
from stretto.model.demand import alltoallv
from stretto.model.errors import Unsupported
from stretto.model.workloads import expert_demand
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

TOKENS = 8192
CASES = [("8,2", 1), ("16,4", 1), ("16,4", 8), ("64,8", 1), ("64,8", 8), ("256,8", 8)]
"""Setting, and KiB a token."""

WAYS = {
    "birkhoff": ("birkhoff", {}),
    "by shifts": ("birkhoff", {"matchings": "shifts"}),
    "birkhoff+swot": ("birkhoff+swot", {}),
    "birkhoff+strawman-icr": ("birkhoff+strawman-icr", {}),
}
MOST_RANKS_IN_STEPS = 64

NETWORKS = ("dgx1", "dgx2:2", "ndv2:4", "amd:2", "torus:8x8", "fattree:4", "zoo:Abilene")
OVER_LINKS = ("paths", "greedy", "shortest-path")


def run(setting: str, skew: float | None, token_bytes: int) -> dict:
    """One setting by every way; ``skew`` None is an even demand."""
    topology = load_topology(f"optical:{setting}")
    n = len(topology.accelerators)
    even = np.full((n, n), TOKENS // n * token_bytes)
    demand = even if skew is None else expert_demand(n, TOKENS, token_bytes, skew=skew)
    workload = Workload((alltoallv(topology, demand),))
    row = {"setting": setting, "skew": skew, "token_bytes": token_bytes}
    for name, (planner, options) in WAYS.items():
        if n > MOST_RANKS_IN_STEPS and "+" in planner:
            continue
        try:
            plan = run_planner(planner, topology, workload, options=options)
        except Unsupported:
            continue
        assert verify(plan).ok
        row[name] = simulate(plan).completion_s
        if name == "birkhoff":
            facts = plan.meta["schedule"]
            row |= {"bound_s": facts["bound_s"], "matchings": facts["matchings"], "cpu_s": plan.meta["planning_cpu_s"]}
    return row


def over_links() -> None:
    """The demand of experts at 8 KiB a token, each planner's completion / bound and CPU seconds, warm."""
    print("| network | " + " | ".join(OVER_LINKS) + " |\n" + "|---" * (1 + len(OVER_LINKS)) + "|")
    for spec in NETWORKS:
        net = load_topology(spec)
        demand = expert_demand(len(net.accelerators), TOKENS, 8192)
        workload = Workload((alltoallv(net, demand),))
        least = bounds(net, workload)[0].seconds
        cells = []
        for planner in OVER_LINKS:
            plan = [run_planner(planner, net, workload) for _ in range(2)][1]
            assert verify(plan).ok
            ratio = simulate(plan).completion_s / least
            cells.append(f"{ratio:.3f} ({plan.meta['planning_cpu_s']:.2f} s)")
        print(f"| {spec} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", action="store_true")
    if parser.parse_args().links:
        over_links()
        return
    run("8,2", 1.0, 1024)  # warm
    columns = (
        "ranks/planes",
        "a token",
        "experts",
        "matchings",
        "bound, ms",
        *(f"{way}, ms" for way in WAYS),
        "gap",
        "CPU s",
    )
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    rows = []
    for setting, kib in CASES:
        for skew in (None, 0.5, 1.0):
            r = run(setting, skew, kib * 1024)
            rows.append(r)
            times = [f"{r[way] * 1e3:.3f}" if way in r else "" for way in ("bound_s", *WAYS)]
            kind = "even" if skew is None else f"skew {skew}"
            gap = f"{100 * (r['birkhoff'] / r['bound_s'] - 1):.1f} %"
            cells = (setting.replace(",", "/"), f"{kib} KiB", kind, r["matchings"], *times, gap, f"{r['cpu_s']:.2f}")
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "demand.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
