"""SWOT beside what prototypes reached at 32 MB in its paper's setting, and its certificates.

    python benchmarks/swot.py            # the prototypes' values
    python benchmarks/swot.py --prove    # certificates, up to 4 units of effort each, and nothing else
    python benchmarks/swot.py --by-dimension    # a torus of small switches beside large ones, and nothing else

Prints tables and writes benchmarks/out/swot.json; the paper's figures are ``stretto study swot``.
Times are those of schedules (the tests hold plans, verifier and simulator to them); planning is CPU
seconds in this process. Volumes are the paper's.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.planners.optical.bound import lower_bound
from stretto.planners.optical.certificate import certify, proved
from stretto.planners.optical.instance import Instance, completion, make_instance
from stretto.planners.optical.search import find_schedule
from stretto.simulate import simulate
from stretto.studies.swot import instance_for
from stretto.topologies import load_topology

MB, NODE = 1e6, 100e9
SCATTER, REDUCE = ("rabenseifner", "reducescatter"), ("rabenseifner", "allreduce")
PAIRWISE, BRUCK = ("pairwise", "alltoall"), ("bruck", "alltoall")
PROTOTYPES_MS = {
    (*SCATTER, 256, 8): 0.885625, (*REDUCE, 256, 8): 1.77125, (*REDUCE, 256, 4): 1.87, (*REDUCE, 256, 2): 2.345,
    (*REDUCE, 64, 4): 1.64, (*REDUCE, 512, 4): 1.985, (*REDUCE, 1024, 4): 2.0825, (*PAIRWISE, 5, 4): 0.74,
    (*PAIRWISE, 10, 4): 1.1452, (*PAIRWISE, 9, 8): 1.0683, (*PAIRWISE, 14, 4): 1.3308, (*BRUCK, 256, 8): 4.1071,
    (*PAIRWISE, 256, 8): 7.66, (*PAIRWISE, 256, 4): 14.25,
}  # fmt: skip
PIPELINE = ("two-trees", "allreduce", 256, 8, 512)
"""Two thousand steps: algorithm, collective, ranks, planes, MB."""


TORUS, LARGE_SWITCHES = "optical:64,3?dims=4x4x4", "optical:64,6"
"""Planes by dimension, each of switches of 4 ports, and planes of one switch of 64 ports."""

DIMENSIONED = (
    (TORUS, "by-dimension", {"rotate": "yes"}),
    (TORUS, "by-dimension", {"rotate": "no"}),
    (LARGE_SWITCHES, "swot", {}),
)


def instance(algorithm: str, collective: str, ranks: int, planes: int, size_mb: float) -> Instance:
    """The steps of an algorithm for a buffer of which a rank sends ``size_mb``, planes free at first."""
    part = ranks / (ranks - 1) if algorithm == "pairwise" else 1.0
    return instance_for(
        load_topology(f"optical:{ranks},{planes}"), algorithm, collective, part * size_mb * MB, volumes="paper"
    )


def prototypes() -> list[dict]:
    """The values that prototypes reached at 32 MB."""
    print("## At 32 MB, ms\n\n| algorithm | ranks/planes | prototypes | ours | bound | CPU s |\n" + "|---" * 6 + "|")
    rows = []
    for setting, reached in PROTOTYPES_MS.items():
        made = instance(*setting, 32)
        started = time.process_time()
        ours = completion(made, find_schedule(made)) * 1e3
        spent = time.process_time() - started
        name, kind, n, k = setting
        bound = lower_bound(made) * 1e3
        rows.append({
            "algorithm": name, "collective": kind, "ranks": n, "planes": k, "swot_ms": ours, "bound_ms": bound,
            "prototype_ms": reached, "planning_cpu_s": spent,
        })  # fmt: skip
        print(f"| {name} {kind} | {n}/{k} | {reached} | {ours:.5f} | {bound:.4f} | {spent:.2f} |", flush=True)
    return rows


def pipeline() -> dict:
    """How long scheduling and bounding a long pipeline takes."""
    name, kind, n, k, size_mb = PIPELINE
    made = instance(*PIPELINE)
    began = time.process_time()
    ours = completion(made, find_schedule(made)) * 1e3
    between = time.process_time()
    bound = lower_bound(made) * 1e3
    spent = between - began, time.process_time() - between
    print(f"\n{name} {kind} {n}/{k}, {size_mb} MB, {made.steps} steps: {ours:.3f} ms in {spent[0]:.1f} CPU s, "
          f"bound {bound:.3f} ms in {spent[1]:.1f} CPU s")  # fmt: skip
    return {
        "steps": made.steps,
        "swot_ms": ours,
        "bound_ms": bound,
        "planning_cpu_s": spent[0],
        "bound_cpu_s": spent[1],
    }


def random_instance(seed: int) -> Instance:
    """4 to 7 steps of 0.1 to 40 MB over 2 to 4 matchings, 2 to 4 planes, every other one free at first."""
    rng = np.random.default_rng(seed)
    n, k, kinds = int(rng.integers(4, 8)), int(rng.integers(2, 5)), int(rng.integers(2, 5))
    volume, matching = 10 ** rng.uniform(5, 7.6, n), rng.integers(0, kinds, n)
    return make_instance(volume, matching, [NODE / k] * k, 20e-6, 200e-6, -1 if seed % 2 else 0)


def certificates() -> None:
    """Which schedules are proved optimal, and at what cost."""
    settings = [s for s in PROTOTYPES_MS if instance(*s, 32).steps <= 20]
    named = [(f"{name} {kind} {n}/{k}, 32 MB", instance(name, kind, n, k, 32)) for name, kind, n, k in settings]
    print("| instance | fast, ms | exact, ms | bound, ms | proved | CPU s |\n" + "|---" * 6 + "|")
    for name, made in named + [(f"random {seed}", random_instance(seed)) for seed in range(40)]:
        quick = find_schedule(made)
        started = time.process_time()
        answer = certify(made, quick)
        times = [1e3 * t for t in (completion(made, quick), completion(made, answer.share), answer.bound_s)]
        spent, sure = time.process_time() - started, "yes" if proved(made, answer) else "no"
        print(f"| {name} | {' | '.join(f'{t:.5f}' for t in times)} | {sure} | {spent:.2f} |", flush=True)


def by_dimension() -> None:
    """64 MB among 64 ranks: completion of plans by dimension, pipelined over dimensions and not, and of SWOT's."""
    kinds = ("allreduce", "alltoall")
    print(f"| network | planner | {' | '.join(kinds)} |\n|---|---|{'---|' * len(kinds)}")
    for spec, planner, options in DIMENSIONED:
        net, times = load_topology(spec), []
        for kind in kinds:
            plan = run_planner(planner, net, Workload((make_collective(kind, net, 64_000_000),)), options=options)
            times.append(f"{1e3 * simulate(plan).completion_s:.3f} ms")
        named = " ".join([planner, *(f"{k}={v}" for k, v in options.items())])
        print(f"| `{spec}` | {named} | {' | '.join(times)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prove", action="store_true", help="print certificates only")
    parser.add_argument("--by-dimension", action="store_true", help="print plans by dimension only")
    given = parser.parse_args()
    if given.prove:
        return certificates()
    if given.by_dimension:
        return by_dimension()
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "swot.json").write_text(json.dumps({"prototypes": prototypes(), "pipeline": pipeline()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
