"""Does a run on loopback take as long as the simulator says of loopback? AllReduce and AllGather of 1 KB to 64 MB.

Four processes run the plans of ``ring`` over a ring and a star, again and again, as nccl-tests do. What the simulator
needs is measured by messages of one size that every process sends to the next one: loopback's bandwidth by many of 1 MB
at once, ``message_s`` by many of 64 B at once, the latency by what a small message takes longer in a chain. A run
itself costs time, too: its set-up, and saying that it is done. That is measured by runs of one small message from each
process to the next, and stands beside the simulated time. Prints each cell, and a table of sizes: milliseconds
simulated with the run, measured, and their ratio. Writes benchmarks/out/loopback.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np

from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.demand import alltoallv
from stretto.model.plan import Plan, make_plan
from stretto.model.topology import Topology
from stretto.planners import run_planner
from stretto.runtime.local import run_local
from stretto.simulate import simulate
from stretto.topologies import load_topology

RANKS = 4
NETWORKS = (f"ring:{RANKS}", f"star:{RANKS}")
KINDS = ("allreduce", "allgather")
SIZES = tuple(4**i << 10 for i in range(9))
SMALL, LARGE = 64, 1 << 20
SECONDS = 0.5
"""About how long the runs of one cell take, at most ``MOST_RUNS``."""
MOST_RUNS = 100
OUT = Path(__file__).parent / "out" / "loopback.json"


def exchange(size: int, count: int, chain: bool) -> Plan:
    """Messages of one size from every process to the next: each waits for the one before, or none waits."""
    net = load_topology(NETWORKS[0])
    link = {pair: i for i, pair in enumerate(zip(net.src.tolist(), net.dst.tolist(), strict=True))}
    demand = [[size * count * (b == (a + 1) % RANKS) for b in range(RANKS)] for a in range(RANKS)]
    rows = [(k, v) for k in range(count) for v in range(RANKS)]
    return make_plan(
        net, Workload((alltoallv(net, demand, chunks=count),)), "ready-order", chunk=[v * count + k for k, v in rows],
        src=[v for _, v in rows], op=[0] * len(rows), dst=Ragged.single([(v + 1) % RANKS for _, v in rows]),
        route=Ragged.of([[link[v, (v + 1) % RANKS]] for _, v in rows]),
        depends=Ragged.of([[(k - 1) * RANKS + (v - 1) % RANKS] if chain and k else [] for k, v in rows]),
    )  # fmt: skip


def takes_s(plan: Plan, guess_s: float, repeats: int) -> list[float]:
    """The completion of a run, by repeats: each the mean of several runs in a row."""
    runs = 1 + max(3, min(MOST_RUNS, int(SECONDS / guess_s)))
    outcomes = [run_local(plan, runs=runs) for _ in range(repeats)]
    if any(outcome.wrong for outcome in outcomes):
        raise SystemExit("wrong bytes")
    return sorted(outcome.completion_s for outcome in outcomes)


def calibrated(repeats: int) -> tuple[dict[str, float], float]:
    """Loopback as link settings, and the seconds that a run itself costs."""

    def each_s(size: int, count: int, chain: bool) -> float:
        """What a message takes, without what a run of one message takes."""
        many, one = (statistics.median(takes_s(exchange(size, n, chain), 0.02, repeats)) for n in (count, 1))
        return (many - one) / (count - 1)

    message_s, step_s = each_s(SMALL, 1000, False), each_s(SMALL, 300, True)
    bandwidth = LARGE / (each_s(LARGE, 40, False) - message_s)
    run_s = statistics.median(takes_s(exchange(SMALL, 1, False), 1e-3, repeats)) - step_s
    return {"bandwidth": bandwidth, "latency_s": max(0.0, step_s - message_s), "message_s": message_s}, run_s


def network(spec: str, link: dict[str, float]) -> Topology:
    """A network with these links, whose switch does not multicast: processes send a copy to each receiver."""
    net = load_topology(spec)
    each = link | {"latency_s": link["latency_s"] / (2 if net.is_switch.any() else 1)}
    every = {name: np.full(net.link_count, value) for name, value in each.items()}
    return replace(net, replicates=np.zeros(net.node_count, dtype=bool), **every)


def shown(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def summary(row: dict) -> str:
    """Simulated with the run, measured (and their ratio)."""
    simulated_s, measured_s = row["simulated_s"] + row["run_s"], statistics.median(row["measured_s"])
    return f"{simulated_s * 1e3:.3g}, {measured_s * 1e3:.3g} ({row['over']:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    link, run_s = calibrated(repeats)
    print(f"loopback: {link['bandwidth'] / 1e6:.0f} MB/s, latency {link['latency_s'] * 1e6:.0f} us, message_s "
          f"{link['message_s'] * 1e6:.0f} us; a run {run_s * 1e6:.0f} us\n")  # fmt: skip
    print("| network | collective | size | simulated ms | with the run | measured ms | least to most | over |")
    print("|---" * 8 + "|")
    rows = []
    for spec in NETWORKS:
        net = network(spec, link)
        for kind in KINDS:
            for size in SIZES:
                plan = run_planner("ring", net, Workload((make_collective(kind, net, size),)))
                simulated_s = simulate(plan).completion_s
                times = takes_s(plan, simulated_s + run_s, repeats)
                middle_s = statistics.median(times)
                over = middle_s / (simulated_s + run_s)
                rows.append({"network": spec, "kind": kind, "size_bytes": size, "simulated_s": simulated_s,
                             "run_s": run_s, "measured_s": times, "over": over})  # fmt: skip
                cells = (f"{s * 1e3:.3g}" for s in (simulated_s, simulated_s + run_s, middle_s))
                spread = f"{times[0] * 1e3:.3g} to {times[-1] * 1e3:.3g}"
                print(f"| {spec} | {kind} | {size:,} B | {' | '.join(cells)} | {spread} | {over:.2f} |", flush=True)
    columns = [(kind, spec) for kind in KINDS for spec in NETWORKS]
    print("\n| size | AllReduce on a ring | on a star | AllGather on a ring | on a star |\n|---|---|---|---|---|")
    for size in SIZES:
        of_size = {(row["kind"], row["network"]): row for row in rows if row["size_bytes"] == size}
        print(f"| {shown(size)} | {' | '.join(summary(of_size[column]) for column in columns)} |")
    overs = [row["over"] for row in rows]
    print(f"\nmeasured over simulated: median {statistics.median(overs):.2f}, {min(overs):.2f} to {max(overs):.2f}")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"link": link, "run_s": run_s, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
