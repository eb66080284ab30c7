"""SCALE-CCL's evaluation (section 5) on two arrangements: how near to the bound, for what planning time?

The grid is that of table 1 and figures 9 and 10 with all their sizes, subchunk counts and WAN delays, and the
runs that the paper mentions without showing (connectivity 0.7 and 0.9). The arrangements are a plain one
and a harder one, where few GPUs are joined to routers (docs: planners/scale-ccl). Prints summaries and
writes benchmarks/out/scale_ccl.json. Planning is CPU seconds in this process, kernels loaded before, the
median of three; completion is the simulator's, of plans that the verifier passed. ``--quick`` takes every
second size and distance; ``--growth`` adds 8 sites of 8 to 64 GPUs, ``--weights`` the choice of our f,
``--peers`` gives figures 9 and 10 beside other planners instead.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from itertools import product
from pathlib import Path

os.environ["STRETTO_KERNELS"] = "compiled"

from stretto.bounds import bounds
from stretto.choose.replan import replan
from stretto.model.collective import Workload, make_collective
from stretto.model.telemetry import Telemetry
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

ARRANGEMENTS = ("sites:3,4?", "sites:3,4?routers=3&attached=1&seed=1&")
SIZES_MB = (1, 4, 16, 64, 256)  # of 10^9/1024 bytes, as the paper counts
SUBCHUNKS = (1, 2, 4, 8)
DISTANCES_KM = (10, 50, 100, 150, 200)
CONNECTIVITIES = (0.5, 0.7, 0.9)
REPEATS = 3
RULES = ("eager", "paper")
PEERS: tuple[tuple[str, dict], ...] = (
    ("scale-ccl", {}),
    ("scale-ccl", {"rules": "paper"}),
    ("shortest-path", {}),
    ("nccl-ring", {}),
)


def cell(spec: str, shard: int, chunks: int, rules: str, repeats: int = REPEATS) -> dict:
    """One plan: how it did, and what it cost."""
    net = load_topology(spec)
    work = Workload((make_collective("allgather", net, shard_bytes=shard, chunks=chunks),))
    seconds = []
    for _ in range(repeats):
        started = time.process_time()
        plan = run_planner("scale-ccl", net, work, options={"rules": rules})
        seconds.append(time.process_time() - started)
    verdict = verify(plan)
    assert verdict.ok, verdict.finding
    completion, best = simulate(plan).completion_s, bounds(net, work)[0].seconds
    return {
        "topology": spec, "shard_bytes": shard, "chunks": chunks, "rules": rules, "transfers": plan.transfer_count,
        "completion_s": completion, "bound_s": best, "completion_over_bound": completion / best,
        "planning_cpu_s": statistics.median(seconds),
    }  # fmt: skip


def replanning(spec: str, shard: int, chunks: int) -> dict:
    """A WAN link dies in the middle: what does planning the rest cost against planning anew?"""
    net = load_topology(spec)
    work = Workload((make_collective("allgather", net, shard_bytes=shard, chunks=chunks),))
    plan = run_planner("scale-ccl", net, work)
    wan = [i for i in range(net.link_count) if net.sites[net.src[i]] != net.sites[net.dst[i]]]
    news = Telemetry(at_s=simulate(plan).completion_s / 2, links_down=frozenset(wan[:1]))
    costs: dict[str, list[float]] = {"anew": [], "again": [], "planner": []}
    for _ in range(REPEATS):
        started = time.process_time()
        run_planner("scale-ccl", net, work)
        costs["anew"].append(time.process_time() - started)
        started = time.process_time()
        again = replan(plan, news).plan
        costs["again"].append(time.process_time() - started)
        assert again is not None and verify(again).ok
        costs["planner"].append(again.meta["planning_cpu_s"])
    return {"topology": spec, "chunks": chunks} | {k: statistics.median(v) for k, v in costs.items()}


def weights() -> None:
    """What our f should count: the mean and worst ratio to the bound over a smaller grid."""
    for options in ({"queue": a} for a in (0.0, 0.5, 1.0, 2.0, 4.0)):
        ratios = []
        for spec in (*(f"sites:3,4?connectivity={c}" for c in (0.5, 0.9)), "sites:2,6?routers=2", "sites:4,4?wan=ring"):
            net = load_topology(spec)
            for mb, chunks in product((1, 256), SUBCHUNKS):
                work = Workload((make_collective("allgather", net, shard_bytes=mb * 10**9 // 1024, chunks=chunks),))
                done = simulate(run_planner("scale-ccl", net, work, options=options))
                ratios.append(done.completion_s / bounds(net, work)[0].seconds)
        print(f"- {options}: {statistics.geometric_mean(ratios):.3f}, worst {max(ratios):.3f}")


def peers() -> None:
    """Figures 9 and 10 beside the other planners: completion / bound over all sizes, by WAN delay and by subchunks."""
    names = [" ".join([f"`{name}`", *(f"`{k}={v}`" for k, v in o.items())]) for name, o in PEERS]
    print(f"| subchunks | distance | {' | '.join(names)} |\n|---|---{'|---' * len(PEERS)}|")
    for chunks, km in ((1, 10), (1, 200), (2, 100), (4, 100)):
        net = load_topology(f"sites:3,4?connectivity=0.5&km={km}")
        ratios: list[list[float]] = [[] for _ in PEERS]
        for mb in SIZES_MB:
            work = Workload((make_collective("allgather", net, shard_bytes=mb * 10**9 // 1024, chunks=chunks),))
            best = bounds(net, work)[0].seconds
            for own, (name, o) in zip(ratios, PEERS, strict=True):
                own.append(simulate(run_planner(name, net, work, options=o)).completion_s / best)
        spans = (dict.fromkeys((f"{min(own):.2f}", f"{max(own):.2f}")) for own in ratios)
        print(f"| {chunks} | {km} km | {' | '.join(' to '.join(span) for span in spans)} |", flush=True)


def summarise(rows: list[dict]) -> None:
    """How near to the bound, by arrangement, rules and subchunks; and the dearest planning."""
    print(
        "| arrangement | rules | subchunks | cells | completion / bound: median | worst | within 1.10 | within 1.15 |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for arrangement in ARRANGEMENTS:
        for rules in RULES:
            for chunks in (*SUBCHUNKS, None):
                some = [
                    r["completion_over_bound"]
                    for r in rows
                    if r["arrangement"] == arrangement and r["rules"] == rules and chunks in (None, r["chunks"])
                ]
                if some:
                    near = [f"{100 * sum(x <= most for x in some) / len(some):.0f} %" for most in (1.10, 1.15)]
                    print(
                        f"| {arrangement.rstrip('?&')} | {rules} | {chunks or 'all'} | {len(some)} "
                        f"| {statistics.median(some):.3f} | {max(some):.3f} | {near[0]} | {near[1]} |"
                    )
    for rules in RULES:
        dearest = max((r for r in rows if r["rules"] == rules), key=lambda r: r["planning_cpu_s"])
        ms = 1e3 * dearest["planning_cpu_s"]
        print(f"- dearest planning, {rules}: {ms:.1f} ms ({dearest['topology']}, {dearest['chunks']} subchunks)")


def main() -> None:
    if "--weights" in sys.argv:
        weights()
    if "--peers" in sys.argv:
        peers()
        return
    quick = "--quick" in sys.argv
    sizes, distances = (SIZES_MB[::2], DISTANCES_KM[::2]) if quick else (SIZES_MB, DISTANCES_KM)
    rows = []
    for arrangement in ARRANGEMENTS:
        for connectivity in CONNECTIVITIES:
            for km in distances:
                spec = f"{arrangement}connectivity={connectivity}&km={km}"
                for mb in sizes:
                    for chunks in SUBCHUNKS:
                        for rules in RULES:
                            row = cell(spec, mb * 10**9 // 1024, chunks, rules)
                            rows.append(row | {"arrangement": arrangement, "connectivity": connectivity, "km": km})
    summarise(rows)
    again = [replanning(f"{a}connectivity=0.5&km=150", 256 * 10**9 // 1024, c) for a in ARRANGEMENTS for c in (1, 8)]
    for r in again:
        print(
            f"- {r['topology']}, {r['chunks']} subchunks: a WAN link dies half-way: planning anew "
            f"{1e3 * r['anew']:.1f} ms, the rest {1e3 * r['planner']:.1f} ms, with simulating how far it was "
            f"{1e3 * r['again']:.1f} ms"
        )
    growth = []
    if "--growth" in sys.argv:
        for gpus in (8, 16, 32, 64):
            growth.append(cell(f"sites:8,{gpus}", 10**6, 4, "eager"))
            r = growth[-1]
            print(
                f"- 8 sites x {gpus} GPUs x 4 subchunks: {r['transfers']:,} transfers, "
                f"{r['completion_over_bound']:.3f} of the bound, planned in {r['planning_cpu_s']:.3f} s"
            )
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "scale_ccl.json").write_text(json.dumps({"grid": rows, "replanning": again, "growth": growth}, indent=1))


if __name__ == "__main__":
    main()
