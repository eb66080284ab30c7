"""Is data cut into the right messages? The best cut of all powers of two against the planner's own.

python benchmarks/messages.py [--planner auto,greedy] [--message 0,2] [--network ring:4] [--kind allreduce]

A message of each cost keeps a link busy besides its bytes. For each network, collective and cost the planner's own
plan is compared with the plans by ``forest``, ``greedy`` and ``paths`` that cut into 1, 2, 4, ... parts (another
planner than ``auto`` with its own), and with the plan that would be made if messages cost nothing. Prints a row for
each, then for each cost the geometric mean and the largest of both ratios, the messages of both, and the number of
requests in which the bytes of the mean message take less than it costs. Writes benchmarks/out/messages.json.
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

import wire
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import StrettoError
from stretto.model.plan import Plan
from stretto.model.topology import Topology
from stretto.planners import default_effort, run_planner
from stretto.schedule.best import completion_s
from stretto.schedule.moments import charged
from stretto.topologies import load_topology

COSTS_US = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
CUTS = {"forest": "parts", "greedy": "parts", "paths": "parts", "scale-ccl": "split"}
"""The option of each planner that says into how many parts it cuts."""

KINDS = ("allreduce", "allgather", "alltoall", "broadcast")
FABRICS = (("ring:4", 10**6), ("dgx1", 10**7), ("torus:3x3", 10**6), ("ndv2:2", 10**6), ("sites:2,4", 10**7))
"""Networks of GPUs and the full size of a collective there."""

WANS = (("mesh", 10**6), ("graph", 8 * 10**6), ("sites", 16 * 10**6))
"""Kinds of the uneven networks of benchmarks/wire.py, and the full size of a collective there."""

MOST_MESSAGES = 4_000
"""A finer cut of a planner is not tried."""


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
        late = completion_s(plan) > 1.2 * min(map(completion_s, plans))
        if late or 2 * plan.transfer_count > MOST_MESSAGES:
            break
    return plans


def cell(planner: str, net: Topology, kind: str, size: int, message_s: float) -> dict | None:
    work = Workload((make_collective(kind, net, size),))
    free, net = net, replace(net, message_s=np.full(net.link_count, message_s))
    begin = time.process_time()
    own = plan_of(planner, net, work)
    cpu_s = time.process_time() - begin
    blind = plan_of(planner, free, work)
    if own is None or blind is None:
        return None
    names = ("forest", "greedy", "paths") if planner == "auto" else (planner,)
    cut = [plan for name in names if name in CUTS for plan in powers(name, net, work)] or [own]
    best = min(cut, key=completion_s)
    end_s, bytes_s = completion_s(own), float((own.size_bytes / net.route_bandwidth(own.route)).mean())
    return {
        "planner": planner, "network": net.name, "kind": kind, "size_bytes": size, "message_s": message_s,
        "completion_s": end_s, "over_best": end_s / completion_s(best), "chosen": own.meta.get("chosen", planner),
        "messages": own.transfer_count, "best_messages": best.transfer_count, "best_by": best.meta["planner"],
        "blind_over_own": completion_s(charged(blind, net)) / end_s, "blind_messages": blind.transfer_count,
        "bytes_take_less": bytes_s < message_s, "cpu_s": cpu_s,
    }  # fmt: skip


def summary(rows: list[dict]) -> None:
    print(
        "| a message costs | own / best cut | at most | messages | of the best cut | made as if free / own | at most "
        "| its messages | bytes take less |\n|---|---|---|---|---|---|---|---|---|"
    )
    for message_s in sorted({row["message_s"] for row in rows}):
        some = [row for row in rows if row["message_s"] == message_s]

        def mean(name: str, some: list[dict] = some) -> float:
            return float(np.exp(np.mean([np.log(row[name]) for row in some])))

        print(
            f"| {message_s * 1e6:g} us | {mean('over_best'):.3f} | {max(r['over_best'] for r in some):.3f} "
            f"| {mean('messages'):.0f} | {mean('best_messages'):.0f} | {mean('blind_over_own'):.2f} "
            f"| {max(r['blind_over_own'] for r in some):.1f} | {mean('blind_messages'):,.0f} "
            f"| {sum(r['bytes_take_less'] for r in some)} of {len(some)} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--planner", default="auto")
    parser.add_argument("--message", default=",".join(f"{us:g}" for us in COSTS_US), help="microseconds")
    parser.add_argument("--network", default="", help="names, separated by a semicolon")
    parser.add_argument("--kind", default=",".join(KINDS))
    given = parser.parse_args()
    networks = [(load_topology(spec), size) for spec, size in FABRICS]
    networks += [(getattr(wire, kind)(np.random.default_rng(size)), size) for kind, size in WANS]
    wanted = given.network.split(";")
    rows = []
    print("planner, network, collective, cost: completion, / best cut, messages, / of the best cut, made as if free")
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
                            f"{planner:9} {net.name:9} {kind:13} {us:4g} us {row['completion_s'] * 1e3:10.4f} ms "
                            f"{row['over_best']:6.3f} {row['messages']:6} {row['best_messages']:6} {row['best_by']:6} "
                            f"{row['blind_over_own']:7.2f} {row['chosen']:13} {row['cpu_s']:.2f} s",
                            flush=True,
                        )
    summary(rows)
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "messages.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
