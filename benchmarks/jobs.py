"""Do several collectives end sooner when they are planned together? Mean completions, against fixed rings and bounds.

Three sets of workloads: three AllReduces over three uneven sites; those of the WAN paper (Abilene, 4 to 8 AllReduces
among all nodes, or among 4 drawn for each); and held-out ones, to which nothing is tuned: two to five collectives of
different kinds, sizes, ranks and starts on random networks of the Topology Zoo, with their latencies. For each: ``wan``
(fixed rings in the paper's order, AllReduce alone), the collectives planned alone and run one by one, and the default
plan; and the bound that no plan is below. Prints a Markdown table of geometric means; writes
benchmarks/out/jobs.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["STRETTO_KERNELS"] = "compiled"

import numpy as np

from stretto.bounds import mean_bound
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import StrettoError
from stretto.model.topology import ACCELERATOR, ROUTER, Topology, make_topology
from stretto.model.workloads import wan_workload
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import assume_messages, load_topology
from stretto.topologies.zoo import networks
from stretto.verify import verify

KINDS = ("allreduce", "allgather", "reducescatter", "broadcast", "alltoall")
MOST_NODES = 30
"""Nodes of the largest held-out network."""

Case = tuple[str, Topology, Workload]


def three_sites() -> Iterator[Case]:
    """Sites of 4, 3 and 2 GPUs behind a border router; WAN links of 0.8 to 1.6 Gbit/s and 10 to 30 ms."""
    sizes, links, kinds, routers = (4, 3, 2), [], [], []
    for gpus in sizes:
        router = len(kinds) + gpus
        for gpu in range(router - gpus, router):
            links += [(gpu, router, 12.5e9, 5e-6), (router, gpu, 12.5e9, 5e-6)]
        kinds += [ACCELERATOR] * gpus + [ROUTER]
        routers.append(router)
    for a, b, bandwidth, latency_s in ((0, 1, 200e6, 0.01), (0, 2, 100e6, 0.03), (1, 2, 150e6, 0.02)):
        links += [(routers[x], routers[y], bandwidth, latency_s) for x, y in ((a, b), (b, a))]
    net = assume_messages(make_topology("three uneven sites", kinds, links))
    yield "3 AllReduces of 500 MB", net, Workload((make_collective("allreduce", net, 500_000_000),) * 3)


def paper(seeds: int, ranks: int | None) -> Iterator[Case]:
    """The workloads of the WAN paper on Abilene."""
    net = load_topology("zoo:Abilene")
    for count in range(4, 9):
        for seed in range(seeds):
            yield f"{count} AllReduces", *wan_workload(net, count, ranks, seed=seed)


def held_out(seeds: int, kinds: tuple[str, ...]) -> Iterator[Case]:
    """Random workloads on random networks of the Topology Zoo."""
    names = networks()
    for seed in range(seeds):
        rng = np.random.default_rng(10_000 + seed)
        while True:
            net = assume_messages(load_topology(f"zoo:{names[int(rng.integers(len(names)))]}?transit=true"))
            if 4 <= len(net.accelerators) <= MOST_NODES:
                break
        drawn = []
        for _ in range(int(rng.integers(2, 6))):
            ranks = rng.permutation(net.accelerators)[: int(rng.integers(3, min(len(net.accelerators), 12) + 1))]
            size, start_s = int(10 ** rng.uniform(6, 9)), float(rng.choice([0.0, rng.uniform(0, 0.2)]))
            drawn.append(make_collective(str(rng.choice(kinds)), net, size, ranks=ranks.tolist(), start_s=start_s))
        yield net.name.partition("?")[0], net, Workload(tuple(drawn))


def mean_s(planner: str, net: Topology, work: Workload) -> tuple[float, float, dict[str, Any]]:
    """The mean completion of a planner's plan, the CPU seconds of planning, and the plan's meta."""
    started = time.process_time()
    plan = run_planner(planner, net, work, effort="normal")
    cpu_s = time.process_time() - started
    assert verify(plan).finding is None, (planner, net.name)
    return simulate(plan).mean_completion_s, cpu_s, plan.meta


def measured(case: Case, others: tuple[str, ...]) -> dict[str, Any]:
    """Mean completions of one workload, as ratios to the bound."""
    name, net, work = case
    bound_s = mean_bound(net, work).seconds
    ours_s, cpu_s, meta = mean_s("auto", net, work)
    row: dict[str, Any] = {"case": name, "collectives": len(work.collectives), "bound_s": bound_s, "auto_s": ours_s}
    row |= {"cpu_s": cpu_s, "one_by_one_s": meta.get("one_by_one_s"), "chosen": meta["chosen"]}
    for other in others:
        try:
            row[other] = mean_s(other, net, work)[0]
        except StrettoError as error:
            row[other], row["refused"] = None, str(error)
    return row


OTHERS = ("wan", "scale-ccl+wan", "forest+wan", "forest")
"""Planners that the default plan is compared with, where they serve a set."""

COLUMNS = ("workloads", "number", *(f"auto / {o}" for o in OTHERS), "auto / one by one", "auto / bound", "worst")


def line(title: str, rows: list[dict[str, Any]]) -> str:
    """The geometric means of a set of workloads as a row of the table."""
    gaps = [row["auto_s"] / row["bound_s"] for row in rows]
    against = [_mean_ratio(rows, other) for other in (*OTHERS, "one_by_one_s")]
    cells = (title, str(len(rows)), *against, f"{np.exp(np.log(gaps).mean()):.3f}", f"{max(gaps):.3f}")
    return f"| {' | '.join(cells)} |"


def _mean_ratio(rows: list[dict[str, Any]], other: str) -> str:
    """The geometric mean of the default plan over another one, and the worst of several."""
    ratios = [row["auto_s"] / row[other] for row in rows if row.get(other)]
    if not ratios:
        return ""
    worst = f" (worst {max(ratios):.3f})" if len(ratios) > 1 and other in OTHERS else ""
    return f"{np.exp(np.log(ratios).mean()):.3f}{worst}"


HELD_OUT = "held out: random collectives on random networks of the Topology Zoo"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="workloads of each kind of the paper")
    parser.add_argument("--held-out", type=int, default=16, help="held-out workloads of each set")
    parser.add_argument("--only", default="sites,paper,paper4,held-out,held-out-allreduce", help="sets, by comma")
    arguments = parser.parse_args()
    sets: dict[str, tuple[str, Iterator[Case], tuple[str, ...]]] = {
        "sites": ("three AllReduces over three uneven sites", three_sites(), OTHERS),
        "paper": ("the WAN paper's: Abilene, 4 to 8 AllReduces, all 11 nodes", paper(arguments.seeds, None), ("wan",)),
        "paper4": ("the same among 4 nodes drawn for each", paper(arguments.seeds, 4), ("wan",)),
        "held-out": (HELD_OUT, held_out(arguments.held_out, KINDS), ()),
        "held-out-allreduce": (f"{HELD_OUT}, AllReduce alone", held_out(arguments.held_out, ("allreduce",)), ("wan",)),
    }
    rows = []
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|", flush=True)
    for name in arguments.only.split(","):
        title, cases, others = sets[name]
        own = [measured(case, others) for case in cases]
        print(line(title, own), flush=True)
        rows += [row | {"set": name} for row in own]
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "jobs.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
