"""Plans with real bytes: is the default plan the fastest that can be had, and as fast as simulated?

Ten uneven networks, drawn by a seed, of 4 to 10 ranks: links of 5 to 50 MB/s and 0.5 to 50 ms. On each of them
AllReduce, AllGather and AllToAll of 1 to 64 MB are planned by the default planner and by every other planner that
serves them, all with the executor's own cost of a message. The default plan, those that ``--beside`` names, and the
``--best`` plans that simulate best run between network namespaces (root), at full bandwidth and size, each
``--repeats`` times; the median counts.

Prints a row for each plan, then over all requests: measured over simulated of the default plan, and its measured time
over that of the fastest plan. Writes benchmarks/out/wire.json after every request.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from stretto.emulator import Scaling, emulate, refusal
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import StrettoError
from stretto.model.plan import Plan
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.planners import registered, run_planner
from stretto.runtime.cost import costed
from stretto.simulate import simulate
from stretto.verify import verify

KINDS = ("allreduce", "allgather", "alltoall")
SIZES = (1, 2, 4, 8, 16, 32, 64)  # MB
Rng = np.random.Generator
Links = dict[tuple[int, int], tuple[float, float]]


def width(rng: Rng) -> float:
    """Bytes/s of a link: 5 to 50 MB/s, each octave as likely as the next."""
    return float(np.exp(rng.uniform(np.log(5e6), np.log(50e6))))


def latency(rng: Rng) -> float:
    """Seconds of a link: 0.5 to 50 ms, likewise."""
    return float(np.exp(rng.uniform(np.log(0.5e-3), np.log(50e-3))))


def mesh(rng: Rng) -> Topology:
    """4 to 6 ranks, each joined to every other; both directions differ in bandwidth."""
    n = int(rng.integers(4, 7))
    links: Links = {}
    for a in range(n):
        for b in range(a):
            late = latency(rng)
            links[a, b], links[b, a] = (width(rng), late), (width(rng), late)
    return network("mesh", [ACCELERATOR] * n, links)


def graph(rng: Rng) -> Topology:
    """5 to 10 ranks, joined by a random tree and half as many links again."""
    n = int(rng.integers(5, 11))
    joined = {(int(rng.integers(0, v)), v) for v in range(1, n)}
    while len(joined) < n - 1 + n // 2:
        a, b = sorted(int(v) for v in rng.choice(n, 2, replace=False))
        joined.add((a, b))
    links: Links = {}
    for a, b in sorted(joined):
        links[a, b] = links[b, a] = (width(rng), latency(rng))
    return network("graph", [ACCELERATOR] * n, links)


def sites(rng: Rng) -> Topology:
    """2 to 4 sites of 2 or 3 ranks behind an IP router, which is a switch here, since no process of ours runs on it; a
    rank's port has 50 MB/s, the links between routers differ."""
    count = int(rng.integers(2, 5))
    kinds: list[int] = []
    links: Links = {}
    routers: list[int] = []
    for _ in range(count):
        ranks = int(rng.integers(2, 4)) if count < 4 else 2
        router = len(kinds) + ranks
        for v in range(len(kinds), router):
            links[v, router] = links[router, v] = (50e6, 0.5e-3)
        kinds += [ACCELERATOR] * ranks + [SWITCH]
        routers.append(router)
    for i, a in enumerate(routers):
        for b in routers[:i]:
            late = latency(rng)
            links[a, b], links[b, a] = (width(rng), late), (width(rng), late)
    return network("sites", kinds, links)


def network(name: str, kinds: list[int], links: Links) -> Topology:
    """The network; its switches forward packets, and copy none."""
    table = [(a, b, w, t) for (a, b), (w, t) in links.items()]
    return make_topology(name, kinds, table, replicates=[False] * len(kinds))


SHAPES: tuple[Callable[[Rng], Topology], ...] = (mesh, graph, sites)


def requests(seed: int, networks: int) -> list[tuple[str, Topology, str, int]]:
    """Each network with every kind of collective and a size, drawn by the seed."""
    found = []
    for number in range(networks):
        rng = np.random.default_rng([seed, number])
        net = SHAPES[number % len(SHAPES)](rng)
        for kind in KINDS:
            size = int(rng.choice(SIZES)) * 10**6
            found.append((f"{number} {net.name}:{len(net.accelerators)}", net, kind, size))
    return found


def plans_of(net: Topology, kind: str, size: int, effort: str) -> dict[str, Plan]:
    """The plan of the default planner, and of every other that serves the request and verifies."""
    plans = {}
    for name, entry in registered().items():
        if entry.refines:
            continue
        try:
            work = Workload((make_collective(kind, net, size),))
            plan = run_planner(name, net, work, effort="normal" if name == "auto" else effort)
        except StrettoError:
            continue
        if not verify(plan).ok:
            raise SystemExit(f"{name} makes a wrong plan for {kind} on {net.name}")
        plans[name] = plan
    return plans


def measure(plan: Plan, repeats: int) -> float:
    """The median completion with real bytes, seconds."""
    runs = []
    for _ in range(repeats):
        run = emulate(plan, Scaling(1.0))
        if run.outcome.wrong:
            raise SystemExit(f"wrong bytes on {plan.topology.name}: {run.outcome.wrong[:5]}")
        runs.append(run.outcome.completion_s)
    return statistics.median(runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=2027)
    parser.add_argument("--networks", type=int, default=10)
    parser.add_argument("--only", type=int, nargs="+", help="only these networks, by number")
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--beside", nargs="*", default=["ring", "nccl"], help="always measured")
    parser.add_argument("--best", type=int, default=3, help="how many of the plans that simulate best are measured")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--effort", default="normal", help="of the other planners")
    arguments = parser.parse_args()
    if refusal():
        raise SystemExit(refusal())
    rows = []
    print("| network | collective | MB | planner | messages | simulated s | measured s | measured / simulated |")
    print("|---|---|---|---|---|---|---|---|")
    for label, bare, kind, size in requests(arguments.seed, arguments.networks):
        if kind not in arguments.kinds or (arguments.only and int(label.split()[0]) not in arguments.only):
            continue
        began = time.monotonic()
        plans = plans_of(costed(bare), kind, size, arguments.effort)
        simulated = {name: simulate(plan).completion_s for name, plan in plans.items()}
        best = sorted(plans, key=lambda name: simulated[name])[: arguments.best]
        for name in dict.fromkeys(["auto", *best, *(b for b in arguments.beside if b in plans)]):
            measured = measure(plans[name], arguments.repeats)
            row = {
                "network": label, "collective": kind, "size_bytes": size, "planner": name,
                "by": plans[name].meta.get("chosen", name),
                "messages": plans[name].transfer_count, "simulated_s": simulated[name], "measured_s": measured,
            }  # fmt: skip
            rows.append(row)
            print(f"| {label} | {kind} | {size / 1e6:g} | {name} | {row['messages']} | {simulated[name]:.3f} | "
                  f"{measured:.3f} | {measured / simulated[name]:.3f} |", flush=True)  # fmt: skip
        save(rows)
        print(f"{label} {kind}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    summary(rows)


def save(rows: list[dict]) -> None:
    file = Path(__file__).parent / "out" / "wire.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(rows, indent=1))


def summary(rows: list[dict]) -> None:
    """For each request the default plan beside the fastest by another planner and the ring; then all together."""
    print("\n| network | collective | MB | default by, messages | simulated s | measured s | measured / simulated "
          "| fastest by another planner, s | ring, s |\n|---|---|---|---|---|---|---|---|---|")  # fmt: skip
    over, behind = [], []
    for row in (row for row in rows if row["planner"] == "auto"):
        request = row["network"], row["collective"]
        same = [r for r in rows if (r["network"], r["collective"]) == request]
        others = [r for r in same if r["planner"] not in ("auto", row["by"])] or [row]
        fastest = min(others, key=lambda r: r["measured_s"])
        ring = next((f"{r['measured_s']:.3f}" for r in same if r["planner"] == "ring"), "")
        over.append(row["measured_s"] / row["simulated_s"])
        behind.append(row["measured_s"] / min(r["measured_s"] for r in same))
        size = row["size_bytes"] / 1e6
        print(f"| {row['network']} | {row['collective']} | {size:g} | {row['by']}, {row['messages']} "
              f"| {row['simulated_s']:.3f} | {row['measured_s']:.3f} | {over[-1]:.3f} "
              f"| {fastest['planner']} {fastest['measured_s']:.3f} | {ring} |")  # fmt: skip
    print(f"\nmeasured / simulated of the default plan: median {statistics.median(over):.3f}, worst {max(over):.3f}")
    print(f"default / fastest plan measured: median {statistics.median(behind):.3f}, worst {max(behind):.3f}, "
          f"within 1.03 in {sum(b <= 1.03 for b in behind)} of {len(behind)}")  # fmt: skip


if __name__ == "__main__":
    main()
