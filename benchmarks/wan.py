"""Who ends soonest on a shared WAN? The schemes of the WAN paper, TCP's sharing, and ours.

The figures are those of ``stretto study wan``, every cell but the searches of minutes (``--full``
has those, too); beside them what is no figure: deciding online, networks with latency, and speed.
Figure 8 with real bytes (``--only 8e``, root) only where it is asked for: a ring of 10 takes 5 minutes,
``--full`` has rings of 20 to 40. Prints Markdown tables, mean and standard deviation over seeds; writes
benchmarks/out/wan.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path

os.environ["STRETTO_KERNELS"] = "compiled"

import numpy as np

from stretto.model.collective import Workload, make_collective
from stretto.model.workloads import wan_workload
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.studies import Table, find_study, run_study, without_result
from stretto.studies.wan import FULL_SEARCH_WORK, FULL_TECCL_S, SCHEMES
from stretto.topologies import load_topology
from stretto.topologies.zoo import networks
from stretto.verify import verify

SEEDS = range(5)
NETWORKS = 12
"""Networks of the Zoo that are drawn for the part ``latency``."""
EXACT_WORK = 10.0
"""Work for the exact model of each small instance, in units of about a second."""


def show(table: Table) -> None:
    print(f"**{table.title}**\n\n| " + " | ".join(table.columns) + " |")
    print("|---" * len(table.columns) + "|")
    for row in table.rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def figures(only: set[str], full: bool) -> list[dict]:
    """Cells of the study, as tables; planning times beside them. Returns their rows."""
    study = find_study("wan")
    searches = (FULL_TECCL_S, FULL_SEARCH_WORK)
    cells = [
        c
        for c in study.cells
        if only & set(c.figures)
        and not (c.emulated and c.why_full and not full)
        and (full or not {c.time_limit_s, c.options.get("solver_work")} & {*searches})
    ]
    result = run_study(replace(study, cells=cells), full=True, emulate="8e" in only)
    for table in result["tables"]:
        show(Table(**table))
    rows = [row for row in result["rows"] if without_result(row) is None]
    largest = max(row["transfers"] for row in rows)
    own = [(row["scheme"], f"{1e3 * row['planning_cpu_s']:.0f}") for row in rows if row["transfers"] == largest]
    show(Table(f"Planning, {largest:,} flows", ("scheme", "mean CPU ms"), own))
    for row in result["rows"]:
        if reason := without_result(row):
            print(f"{row['scheme']} on {row['where']}: {reason}")
    return rows


def online(k: int, seed: int) -> dict:
    """Deciding as collectives arrive, three seconds apart, against fair sharing and against hindsight."""
    net, work = wan_workload(load_topology("zoo:Abilene"), k, None, seed=seed, gap_s=3.0)
    fair = simulate(run_planner("tcp-fair", net, work)).mean_completion_s
    moments = [time.process_time()]

    def decided(done: int, total: int, what: str) -> None:
        if what == "arrivals":
            moments.append(time.process_time())

    ours = run_planner("wan", net, work, options={"online": True}, progress=decided).meta
    hindsight = run_planner("wan", net, work).meta["objective_s"]
    return {
        "figure": "online",
        "collectives": k,
        "seed": seed,
        "over_fair": ours["objective_s"] / fair,
        "over_hindsight": ours["objective_s"] / hindsight,
        "slowest_decision_cpu_s": max(np.diff(moments)),
    }


def online_table() -> list[dict]:
    run_planner("wan", *wan_workload(load_topology("zoo:Abilene"), 2, None), options={"online": True})
    arriving = [online(k, seed) for k in (4, 8) for seed in SEEDS]
    body = []
    for k in (4, 8):
        mine = [a for a in arriving if a["collectives"] == k]
        fair, hindsight = (np.mean([a[key] for a in mine]) for key in ("over_fair", "over_hindsight"))
        slowest = 1e3 * max(a["slowest_decision_cpu_s"] for a in mine)
        body.append((str(k), f"{fair:.2f}", f"{hindsight:.3f}", f"{slowest:.0f}"))
    columns = ("collectives", "/ tcp-fair", "/ hindsight", "slowest decision, CPU ms")
    show(Table("Online, a collective every 3 s, Abilene", columns, body))
    return arriving


def small() -> list[dict]:
    """Instances of up to about 100 flows: the gap among all ways of sharing, and beside the exact schedule."""
    found, body = [], []
    for k, ranks in ((2, 3), (2, 4), (3, 4), (4, 4)):
        instances = [wan_workload(load_topology("zoo:Abilene"), k, ranks, seed=s) for s in SEEDS]
        metas = [run_planner("wan", *i, options={"solver_work": EXACT_WORK}).meta for i in instances]
        gaps = [m["objective_over_bound"] for m in metas]
        proven = [m for m in metas if m["non_concurrent_optimal"]]
        serial = [f"{m['objective_over_non_concurrent']:.3f}" for m in proven]
        theirs = [f"{m['objective_over_bound']:.3f}" for m in proven]
        body.append((f"{k} of {ranks}", str(2 * k * ranks * (ranks - 1)), f"{np.mean(gaps):.3f}", f"{max(gaps):.3f}",
                     ", ".join(theirs) or "none", ", ".join(serial) or "none"))  # fmt: skip
        found += [
            {"figure": "small", "collectives": k, "ranks": ranks, "gap": m["objective_over_bound"],
             "proven": m["non_concurrent_optimal"]} for m in metas
        ]  # fmt: skip
    columns = (
        "collectives",
        "flows",
        "wan / bound",
        "at worst",
        "where proven serially",
        "wan / proven serial optimum",
    )
    show(Table("Small instances, Abilene, five seeds", columns, body))
    return found


def latency() -> list[dict]:
    """Random networks of the Zoo with their latencies: whether plans verify, how soon they end, what is proven."""
    found: list[dict] = []
    for seed in range(NETWORKS):
        rng = np.random.default_rng(seed)
        spec = f"zoo:{rng.choice(networks())}?transit=true&message=0"
        net = load_topology(spec)
        ranks = [rng.permutation(net.accelerators)[:4].tolist() for _ in range(3)]
        work = Workload(tuple(make_collective("allreduce", net, 55_000_000, ranks=r) for r in ranks))
        fair = simulate(run_planner("tcp-fair", net, work)).mean_completion_s
        for label, name, options in (*SCHEMES, ("non-concurrent, greedy", "non-concurrent", {"solver": "greedy"})):
            plan = run_planner(name, net, work, options=options)
            mean = simulate(plan).mean_completion_s
            found.append({"figure": "latency", "topology": spec, "scheme": label, "valid": verify(plan).ok,
                          "over_fair": mean / fair, "proven": plan.meta.get("optimal"),
                          "over_bound": mean / (plan.meta.get("non_concurrent_bound_s") or np.inf)})  # fmt: skip
    body = []
    for label in dict.fromkeys(f["scheme"] for f in found):
        own = [f for f in found if f["scheme"] == label]
        over = np.mean([f["over_fair"] for f in own])
        gaps = [f["over_bound"] for f in own if f["over_bound"]]
        body.append((label, f"{sum(f['valid'] for f in own)} of {len(own)}", f"{over:.3f}",
                     f"{np.mean(gaps):.3f}" if gaps else "", str(sum(bool(f["proven"]) for f in own))))  # fmt: skip
    columns = ("scheme", "plans that verify", "mean completion / tcp-fair", "/ non-concurrent bound", "proven")
    show(Table(f"{NETWORKS} random networks of the Zoo with latency, 3 AllReduces of 4 nodes, 55 MB", columns, body))
    return found


def speed() -> list[dict]:
    """CPU seconds where there are many flows, kernels loaded."""
    abilene = load_topology("zoo:Abilene")
    run_planner("rate-alloc", *wan_workload(abilene, 2, None))
    body = []
    plan = run_planner("tcp-fair", *wan_workload(load_topology("ring:40"), 32, None, seed=1))
    simulate(run_planner("tcp-fair", *wan_workload(abilene, 2, None)))
    started = time.process_time()
    simulate(plan)
    body.append(("simulating, ring:40, max-min fair", plan.transfer_count, time.process_time() - started, ""))
    for k in (8, 32):
        instance = wan_workload(abilene, k, None, seed=1)
        started = time.process_time()
        plan = run_planner("rate-alloc", *instance)
        body.append(("rate-alloc", plan.transfer_count, time.process_time() - started, ""))
    instance = wan_workload(abilene, 8, None, seed=1)
    for label, options in (("wan", {}), ("wan, 20,000 runs", {"runs": 20_000})):
        started = time.process_time()
        plan = run_planner("wan", *instance, options=options)
        spent = time.process_time() - started
        body.append((label, plan.transfer_count, spent, f"{plan.meta['objective_s']:.2f} s"))
    texts = [(a, f"{b:,}", f"{c:.2f}", d) for a, b, c, d in body]
    show(Table("Speed", ("what", "flows", "CPU s", "mean completion"), texts))
    return [{"figure": "speed", "what": a, "flows": b, "cpu_s": c} for a, b, c, _ in body]


EXTRA = {"online": online_table, "small": small, "latency": latency, "speed": speed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="searches of minutes, too")
    parser.add_argument(
        "--only", default="4,4b,5,6,7,8,varying,online,small,latency,speed", help="which parts, by comma"
    )
    arguments = parser.parse_args()
    only = set(arguments.only.split(","))
    rows = figures(only - set(EXTRA), arguments.full) if only - set(EXTRA) else []
    for name, part in EXTRA.items():
        rows += part() if name in only else []
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "wan.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
