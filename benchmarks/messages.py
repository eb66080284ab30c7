"""Is data cut into the right messages? The best cut of all powers of two against the planner's own.

python benchmarks/messages.py [--planner auto,greedy] [--message 0,2us] [--network ring:4] [--kind allreduce]

A message of each cost keeps a link busy besides its bytes. For each network, collective and cost a planner's own cut is
compared with all cuts into a power of two of parts by ``forest``, ``greedy`` and ``paths`` that serve the request (for
another planner than ``auto``: by itself). Columns: completion of the planner's own cut over that of the best one, the
messages of both, and the bytes of a mean message over the bytes that its slowest link carries in the cost of a message.
Prints a table and writes benchmarks/out/messages.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

os.environ["STRETTO_KERNELS"] = "compiled"

from stretto.model.collective import Workload, make_collective
from stretto.model.errors import StrettoError
from stretto.model.plan import Plan
from stretto.model.topology import ACCELERATOR, Topology, make_topology
from stretto.planners import default_effort, run_planner
from stretto.schedule.best import completion_s
from stretto.topologies import load_topology

COSTS_US = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
CUTS = {"forest": "parts", "greedy": "parts", "paths": "parts", "scale-ccl": "split"}
"""The option of each planner that says into how many parts it cuts."""

KINDS = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast")
FABRICS = (("ring:4", 10**6), ("dgx1", 10**7), ("torus:3x3", 10**6), ("ndv2:2", 10**6), ("sites:2,4", 10**7))
"""Networks of GPUs and the full size of a collective there."""

WANS = ((4, 10**6), (6, 8 * 10**6), (10, 64 * 10**6))
"""Nodes of uneven networks, and the full size of a collective there."""

MOST_MESSAGES = 8_000
"""A finer cut of a planner is not tried."""


def uneven(nodes: int, seed: int = 0) -> Topology:
    """Nodes that all reach each other at 5 to 50 MB/s with 0.5 to 50 ms, each link of its own."""
    rng = np.random.default_rng((nodes, seed))
    ends = [(a, b) for a in range(nodes) for b in range(nodes) if a != b]
    bandwidth, latency_s = (np.exp(rng.uniform(*np.log(span), len(ends))) for span in ((5e6, 50e6), (5e-4, 50e-3)))
    links = [(*e, w, t) for e, w, t in zip(ends, bandwidth.tolist(), latency_s.tolist(), strict=True)]
    return make_topology(f"uneven:{nodes}", [ACCELERATOR] * nodes, links)


def plan_of(planner: str, net: Topology, work: Workload, **options: int) -> Plan | None:
    """The plan with the effort that a request gets by default; None if the planner does not serve it."""
    try:
        return run_planner(planner, net, work, effort=default_effort("auto"), options=options)
    except StrettoError:
        return None


def powers(planner: str, net: Topology, work: Workload) -> list[Plan]:
    """The plans of a planner that is told to cut into 1, 2, 4, ... parts."""
    plans: list[Plan] = []
    for k in range(11):
        plan = plan_of(planner, net, work, **{CUTS[planner]: 2**k})
        if plan is None:
            break
        plans.append(plan)
        late = completion_s(plan) > 1.5 * min(map(completion_s, plans))
        if late or 2 * plan.transfer_count > MOST_MESSAGES:
            break
    return plans


def cell(planner: str, net: Topology, kind: str, size: int, message_s: float) -> dict | None:
    net = replace(net, message_s=np.full(net.link_count, message_s))
    work = Workload((make_collective(kind, net, size),))
    begin = time.process_time()
    own = plan_of(planner, net, work)
    cpu_s = time.process_time() - begin
    if own is None:
        return None
    names = ("forest", "greedy", "paths") if planner == "auto" else (planner,)
    cut = [plan for name in names if name in CUTS for plan in powers(name, net, work)] or [own]
    best = min(cut, key=completion_s)
    slowest = net.route_bandwidth(own.route)
    cheap = float(np.mean(own.size_bytes < message_s * slowest)) if message_s else 0.0
    return {
        "planner": planner, "network": net.name, "kind": kind, "size_bytes": size, "message_s": message_s,
        "completion_s": completion_s(own), "over_best": completion_s(own) / completion_s(best),
        "messages": own.transfer_count, "best_messages": best.transfer_count, "best_by": best.meta["planner"],
        "chosen": own.meta.get("chosen", planner), "below_cost": cheap, "cpu_s": cpu_s,
        "mean_bytes": float(own.size_bytes.mean()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--planner", default="auto")
    parser.add_argument("--message", default=",".join(f"{us:g}" for us in COSTS_US), help="microseconds")
    parser.add_argument("--network", default="")
    parser.add_argument("--kind", default=",".join(KINDS))
    given = parser.parse_args()
    networks = [(load_topology(spec), size) for spec, size in FABRICS] + [(uneven(n), size) for n, size in WANS]
    wanted = given.network.split(";")
    rows = []
    for net, size in networks:
        if given.network and net.name not in wanted:
            continue
        for kind in given.kind.split(","):
            for us in map(float, given.message.split(",")):
                for planner in given.planner.split(","):
                    row = cell(planner, net, kind, size, us * 1e-6)
                    if row is not None:
                        rows.append(row)
                        print(
                            f"{planner:9} {net.name:10} {kind:13} {us:4g} us {row['completion_s'] * 1e3:10.4f} ms "
                            f"{row['over_best']:6.3f} {row['messages']:6} {row['best_messages']:6} {row['best_by']:8} "
                            f"{row['chosen']:12} {row['below_cost']:.2f} {row['cpu_s']:.2f}",
                            flush=True,
                        )
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "messages.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
