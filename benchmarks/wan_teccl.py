"""Why is TE-CCL faster than RateAlloc here, where figures 6 and 7 of the WAN paper print the reverse?

Wang, Craps, Li, section IV-E, on its generator: Abilene, 2 AllReduces of all 11 nodes, 0.5 MB a flow, five seeds.
RateAlloc, WeightAlloc and MultiRing in the paper's reading of sharing (a share stays its group's, used or not), the
first two also work-conserving. TE-CCL in three readings: the collective itself, with routes, copies and sums free;
the ring's own flows, with their routes alone free, step after step, each step waiting for the last; and the whole
buffer of every rank to every other rank, neither copied nor summed on the way. Prints mean completions (eq. 13) and
how busy the used links are; writes benchmarks/out/wan_teccl.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from stretto.model.collective import Workload
from stretto.model.demand import alltoallv
from stretto.model.plan import Plan
from stretto.model.topology import Topology
from stretto.model.workloads import wan_workload
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

SEEDS = 5
COLLECTIVES = 2
SCALE = 0.1
TECCL_S = 5.0

SHARED = (
    ("rate-alloc, reserved", "rate-alloc", {}),
    ("weight-alloc, reserved", "weight-alloc", {}),
    ("multiring", "multiring", {"solver_work": 0.5}),
    ("rate-alloc, work-conserving", "rate-alloc", {"reading": "work-conserving"}),
    ("weight-alloc, work-conserving", "weight-alloc", {"reading": "work-conserving"}),
    ("tcp-fair", "tcp-fair", {}),
)


def made(planner: str, net: Topology, work: Workload, options: dict) -> Plan:
    plan = run_planner(planner, net, work, options=options, time_limit_s=TECCL_S if planner == "teccl" else None)
    if not verify(plan).ok:
        raise SystemExit(f"{planner}: {verify(plan).finding}")
    return plan


def busy(plan: Plan, last_s: float) -> float:
    """The share of the bandwidth of all used links, until the last end, that bytes take."""
    links = np.unique(plan.route.values)
    moved = float(plan.size_bytes[plan.route.owners].sum())
    return moved / (float(plan.topology.bandwidth[links].sum()) * last_s)


def one(label: str, planner: str, net: Topology, work: Workload, options: dict) -> dict:
    plan = made(planner, net, work, options)
    line = simulate(plan)
    return {"scheme": label, "mean_s": line.mean_completion_s, "busy": busy(plan, line.completion_s),
            "reported_s": plan.meta.get("reported_s")}  # fmt: skip


def steps(work: Workload, net: Topology) -> Iterator[Workload]:
    """The flows of each step of the rings: chunk k goes from position k + step to the next."""
    n = len(work.collectives[0].ranks)
    at = np.arange(n)
    for step in range(2 * (n - 1)):
        parts = []
        for c in work.collectives:
            demand = np.zeros((n, n), dtype=np.int64)
            demand[(at + step) % n, (at + step + 1) % n] = c.chunk_bytes
            parts.append(alltoallv(net, demand, ranks=c.ranks.tolist()))
        yield Workload(tuple(parts))


def in_steps(label: str, net: Topology, work: Workload, options: dict) -> dict:
    """TE-CCL for the flows of each step; a collective waits after each for its own flows to arrive."""
    mean_s = last_s = reported_s = moved = 0.0
    for part in steps(work, net):
        plan = made("teccl", net, part, options)
        line = simulate(plan)
        mean_s += line.mean_completion_s
        last_s += line.completion_s
        reported_s += plan.meta["reported_s"]
        moved += float(plan.size_bytes[plan.route.owners].sum())
    share = moved / (float(net.bandwidth.sum()) * last_s)
    return {"scheme": label, "mean_s": mean_s, "busy": share, "reported_s": reported_s}


def whole_buffers(net: Topology, work: Workload) -> Workload:
    """Every rank's buffer for every other rank: an AllReduce by a planner that neither copies nor sums."""
    n = len(work.collectives[0].ranks)
    return Workload(
        tuple(
            alltoallv(net, c.size_bytes * (1 - np.eye(n, dtype=np.int64)), ranks=c.ranks.tolist())
            for c in work.collectives
        )
    )


def rows(seed: int) -> Iterator[dict]:
    net, work = wan_workload(load_topology("zoo:Abilene"), COLLECTIVES, None, seed=seed, scale=SCALE)
    for label, planner, options in SHARED:
        yield one(label, planner, net, work, options)
    for mode in ("fast", "slow"):
        options = {"mode": mode, "epochs": "from-heuristic"}
        yield one(f"teccl {mode}, the collective", "teccl", net, work, options)
        yield in_steps(f"teccl {mode}, the ring's flows by steps", net, work, options)
        yield one(f"teccl {mode}, whole buffers", "teccl", net, whole_buffers(net, work), options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of instances")
    arguments = parser.parse_args()
    found = [{"seed": seed, **row} for seed in range(arguments.seeds) for row in rows(seed)]
    print("| scheme | mean completion, s | what it reports itself, s | used links busy |\n|---|---|---|---|")
    for label in dict.fromkeys(row["scheme"] for row in found):
        own = [row for row in found if row["scheme"] == label]
        mean = [row["mean_s"] for row in own]
        reported = [row["reported_s"] for row in own if row["reported_s"] is not None]
        itself = f"{np.mean(reported):.2f}" if reported else ""
        share = 100 * np.mean([row["busy"] for row in own])
        print(f"| {label} | {np.mean(mean):.2f} ± {np.std(mean):.2f} | {itself} | {share:.0f} % |")
    out = Path(__file__).parent / "out" / "wan_teccl.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
