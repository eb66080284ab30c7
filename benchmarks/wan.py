"""Who ends soonest on a shared WAN? The schemes of the WAN paper, TCP's sharing, and ours.

Figures 4, 5 and 8 of Wang, Craps, Li (the last simulated), over the paper's generator (section
IV-B), and what the paper argues for but does not show: bandwidths that vary. Prints tables of
mean completions as ratios to ``tcp-fair``, mean and standard deviation over seeds, and the bound;
writes benchmarks/out/wan.json. ``--full`` takes every K, ten seeds and longer searches.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

os.environ["STRETTO_KERNELS"] = "compiled"

import numpy as np

from stretto.errors import Infeasible
from stretto.planners import run_planner
from stretto.simulate import Changes, simulate
from stretto.topologies import load_topology
from stretto.verify import verify
from stretto.workloads import wan_workload

CONSERVING = {"reading": "work-conserving"}
SCHEMES: tuple[tuple[str, str, dict], ...] = (
    ("out-of-order", "out-of-order", {}),
    ("barrier-aware", "barrier-aware", {}),
    ("equal-alloc", "equal-alloc", {}),
    ("data-aware", "data-aware", {}),
    ("weight-alloc", "weight-alloc", {}),
    ("rate-alloc", "rate-alloc", {}),
    ("multiring", "multiring", {}),
    ("equal, conserving", "equal-alloc", CONSERVING),
    ("data, conserving", "data-aware", CONSERVING),
    ("weight, conserving", "weight-alloc", CONSERVING),
    ("rate, conserving", "rate-alloc", CONSERVING),
    ("ring (FIFO)", "ring", {}),
    ("non-concurrent", "non-concurrent", {}),
    ("tcp-fair", "tcp-fair", {}),
    ("wan", "wan", {}),
)
"""What a column is called, the planner, its options."""

OTHERS = ("zoo:Arpanet", "zoo:Cesnet", "zoo:Gblnet", "zoo:HiberniaIreland", "zoo:Napnet")


def cell(figure: str, spec: str, k: int, ranks: int | None, seed: int, limit_s: float) -> dict:
    """All schemes on one instance: mean completions, seconds."""
    net, work = wan_workload(load_topology(spec), k, ranks, seed=seed)
    row = {"figure": figure, "topology": spec, "collectives": k, "ranks": ranks or len(net.accelerators), "seed": seed}
    means, cpu = {}, {}
    for label, name, options in SCHEMES:
        if name in ("multiring", "non-concurrent") and row["ranks"] > 12:
            options = options | ({"inside": "downstream"} if name == "multiring" else {"solver": "greedy"})
        started = time.process_time()
        try:
            limit = limit_s if name in ("multiring", "non-concurrent") else None
            plan = run_planner(name, net, work, options=options, time_limit_s=limit)
        except Infeasible:
            continue
        cpu[label] = time.process_time() - started
        verdict = verify(plan)
        assert verdict.ok, (label, verdict.finding)
        means[label] = simulate(plan).mean_completion_s
    row["flows"] = plan.transfer_count
    return row | {"mean_completion_s": means, "cpu_s": cpu, "bound_s": plan.meta["objective_bound_s"]}


def varied(k: int, seed: int, amount: float) -> dict:
    """Weights against rates where every link's bandwidth is drawn anew each second."""
    net, work = wan_workload(load_topology("zoo:Abilene"), k, None, seed=seed)
    means = {}
    for label, name, options in SCHEMES:
        if name in ("multiring", "ring", "non-concurrent"):
            continue
        plan = run_planner(name, net, work, options=options)
        steady = simulate(plan).mean_completion_s
        rng = np.random.default_rng(1000 + seed)
        at = np.arange(1.0, 3 * steady)
        drawn = net.bandwidth * (1 + amount * rng.uniform(-1, 1, (len(at), net.link_count)))
        means[label] = simulate(plan, Changes(at, drawn)).mean_completion_s / steady
    return {"figure": "varying", "amount": amount, "seed": seed, "slowdown": means}


def online(k: int, seed: int) -> dict:
    """Deciding as collectives arrive, three seconds apart, against fair sharing and against hindsight."""
    net, work = wan_workload(load_topology("zoo:Abilene"), k, None, seed=seed, gap_s=3.0)
    fair = simulate(run_planner("tcp-fair", net, work)).mean_completion_s
    ours = run_planner("wan", net, work, options={"online": True}).meta
    hindsight = run_planner("wan", net, work).meta["objective_s"]
    return {
        "figure": "online",
        "collectives": k,
        "seed": seed,
        "over_fair": ours["objective_s"] / fair,
        "over_hindsight": ours["objective_s"] / hindsight,
        "slowest_decision_cpu_s": ours["slowest_decision_cpu_s"],
    }


def planning(rows: list[dict]) -> None:
    """CPU seconds of planning on the largest instances of figure 4."""
    largest = max(r["flows"] for r in rows)
    print(f"planning, {largest} flows, median CPU ms:", end=" ")
    for label, _, _ in SCHEMES:
        found = [1e3 * r["cpu_s"][label] for r in rows if r["flows"] == largest and label in r["cpu_s"]]
        print(f"{label} {np.median(found):.0f}", end="; ")
    print("\n")


def table(rows: list[dict], by: str) -> None:
    """Ratios to tcp-fair by scheme, one column for each value of ``by``."""
    values = list(dict.fromkeys(r[by] for r in rows))
    print(f"| {by} | " + " | ".join(str(v) for v in values) + " |")
    print("|---" * (len(values) + 1) + "|")
    labels = [label for label, _, _ in SCHEMES if any(label in r["mean_completion_s"] for r in rows)]
    for label in (*labels, "bound"):
        cells = []
        for v in values:
            ratios = [
                r.get("bound_s") / r["mean_completion_s"]["tcp-fair"] if label == "bound"
                else r["mean_completion_s"].get(label, np.nan) / r["mean_completion_s"]["tcp-fair"]
                for r in rows if r[by] == v
            ]  # fmt: skip
            cells.append(f"{np.mean(ratios):.2f} ± {np.std(ratios):.2f}")
        print(f"| {label} | " + " | ".join(cells) + " |")
    gap = np.array([r["mean_completion_s"]["wan"] / r["bound_s"] for r in rows])
    ours = [r["mean_completion_s"]["wan"] for r in rows]
    best = min(
        min(mean for label, mean in r["mean_completion_s"].items() if label != "wan") / own
        for r, own in zip(rows, ours, strict=True)
    )
    print(
        f"\nwan / bound: mean {gap.mean():.3f}, worst {gap.max():.3f}; best other scheme / wan: {best:.4f}\n",
        flush=True,
    )


def varying_table(seeds: range) -> list[dict]:
    amounts = (0.1, 0.3, 0.5)
    print("bandwidths that vary: mean completion / the same plan's at constant ones; Abilene, 4 collectives\n")
    drawn = [varied(4, seed, amount) for amount in amounts for seed in seeds]
    print("| scheme | 10 % | 30 % | 50 % |\n|---|---|---|---|")
    for label in drawn[0]["slowdown"]:
        found = [np.mean([d["slowdown"][label] for d in drawn if d["amount"] == a]) for a in amounts]
        print(f"| {label} | " + " | ".join(f"{x:.3f}" for x in found) + " |")
    print(flush=True)
    return drawn


def online_table(seeds: range) -> list[dict]:
    print("online, a collective every 3 s, Abilene\n")
    print("| collectives | / tcp-fair | / hindsight | slowest decision |\n|---|---|---|---|")
    arriving = [online(k, seed) for k in (4, 8) for seed in seeds]
    for k in (4, 8):
        mine = [a for a in arriving if a["collectives"] == k]
        fair, hindsight = (np.mean([a[key] for a in mine]) for key in ("over_fair", "over_hindsight"))
        slowest = max(a["slowest_decision_cpu_s"] for a in mine[1:])
        print(f"| {k} | {fair:.2f} | {hindsight:.3f} | {1e3 * slowest:.0f} ms of CPU |")
    return arriving


def speed() -> None:
    """CPU seconds where there are many flows, kernels loaded."""
    net, work = wan_workload(load_topology("ring:40"), 32, None, seed=1)
    plan = run_planner("tcp-fair", net, work)
    simulate(run_planner("tcp-fair", *wan_workload(load_topology("zoo:Abilene"), 2, None)))
    started = time.process_time()
    simulate(plan)
    print(f"simulating {plan.transfer_count} flows, ring:40, max-min fair: {time.process_time() - started:.1f} CPU s")
    for k in (8, 32):
        instance = wan_workload(load_topology("zoo:Abilene"), k, None, seed=1)
        started = time.process_time()
        plan = run_planner("rate-alloc", *instance)
        print(f"rate-alloc, {plan.transfer_count} flows: {time.process_time() - started:.2f} CPU s")
    instance = wan_workload(load_topology("zoo:Abilene"), 8, None, seed=1)
    for label, options in (("wan", {}), ("wan, 20,000 runs", {"runs": 20_000})):
        started = time.process_time()
        found = run_planner("wan", *instance, options=options).meta["objective_s"]
        print(
            f"{label}, 1760 flows: {time.process_time() - started:.1f} CPU s, mean completion {found:.2f} s", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="every K, ten seeds, longer searches")
    parser.add_argument("--only", default="4,4b,5,8,varying,online,speed", help="which figures, by comma")
    arguments = parser.parse_args()
    full, only = arguments.full, arguments.only.split(",")
    seeds = range(10 if full else 5)
    limit_s = 30.0 if full else 1.0
    many = range(2, 9) if full else (2, 4, 6, 8)
    rows = []
    for figure, title, cells, by in (
        ("4", "Abilene, 11 ranks", [("zoo:Abilene", k, None) for k in many], "collectives"),
        ("4b", "Abilene, 4 ranks drawn", [("zoo:Abilene", k, 4) for k in many], "collectives"),
        ("5", "five other networks, 4 collectives", [(spec, 4, None) for spec in OTHERS], "topology"),
        ("8", "rings, 4 collectives, simulated", [(f"ring:{n}", 4, None) for n in (10, 20, 30, 40)], "topology"),
    ):
        if figure not in only:
            continue
        print(f"figure {figure}: {title}; mean completion / tcp-fair over {len(seeds)} seeds\n", flush=True)
        own = [cell(figure, *c, seed, limit_s) for c in cells for seed in seeds]
        table(own, by)
        if figure == "4":
            planning(own)
        rows += own
    rows += varying_table(seeds) if "varying" in only else []
    rows += online_table(seeds) if "online" in only else []
    if "speed" in only:
        speed()
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "wan.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
