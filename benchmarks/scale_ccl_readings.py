"""SCALE-CCL's published rules (``rules=paper``): what does each reading of what the paper leaves open give?

Completion / bound of verified plans: a table of all readings by arrangement and subchunks, a sweep of the weights of
f(link, buffer, progress), and every collective beside our own rules. ``--readings``, ``--weights``, ``--kinds`` give
one of them.
"""

from __future__ import annotations

import os
import statistics
import sys
from functools import cache
from itertools import product

os.environ["STRETTO_KERNELS"] = "compiled"

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.topology import Topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

SIZES_MB = (1, 16, 256)  # of 10^9/1024 bytes, as the paper counts
DISTANCES_KM = (10, 50, 200)
SUBCHUNKS = (1, 2, 4, 8)
PLAIN, HARDER = "sites:3,4?connectivity=0.5", "sites:3,4?routers=3&attached=1&seed=1&connectivity=0.5"
READINGS = tuple(product(("every-site", "one-site"), ("siblings", "all"), ("figure", "all")))
NAMES = ("forwarding", "receivers", "duplicates")
CHOICES = (
    "sites:2,4?routers=2", "sites:2,6?routers=2", "sites:3,6?routers=2&attached=3&connectivity=0.7",
    "sites:4,4?wan=ring", "sites:4,4?routers=2&peers=own&connectivity=0.7", HARDER,
)  # fmt: skip
"""Arrangements in which forwarding has a choice."""
KINDS = ("allgather", "reducescatter", "allreduce", "broadcast", "reduce", "scatter", "gather", "alltoall")


@cache
def request(spec: str, kind: str, megabytes: int, chunks: int) -> tuple[Topology, Workload, float]:
    net = load_topology(spec)
    one = make_collective(kind, net, shard_bytes=megabytes * 10**9 // 1024, chunks=chunks)
    work = Workload((one,))
    return net, work, bounds(net, work)[0].seconds


def over_bound(spec: str, kind: str, megabytes: int, chunks: int, **options: object) -> float:
    net, work, best = request(spec, kind, megabytes, chunks)
    plan = run_planner("scale-ccl", net, work, options=options)
    verdict = verify(plan)
    assert verdict.ok, verdict.finding
    return simulate(plan).completion_s / best


def readings() -> None:
    print("| `forwarding` | `receivers` | `duplicates` | arrangement | 1 | 2 | 4 | 8 subchunks | worst |")
    print("|---|---|---|---|---|---|---|---|---|")
    for reading in READINGS:
        options = {"rules": "paper", **dict(zip(NAMES, reading, strict=True))}
        for spec in (PLAIN, HARDER):
            by_chunks = [
                [over_bound(f"{spec}&km={km}", "allgather", mb, chunks, **options)
                 for km, mb in product(DISTANCES_KM, SIZES_MB)]
                for chunks in SUBCHUNKS
            ]  # fmt: skip
            cells = [f"{statistics.median(some):.3f}" for some in by_chunks] + [f"{max(map(max, by_chunks)):.3f}"]
            print(f"| {' | '.join(reading)} | {spec} | {' | '.join(cells)} |", flush=True)


def weights() -> None:
    print("| `queue` | `occupancy` | `delivered` | `forwarding` | mean | worst |")
    print("|---|---|---|---|---|---|")
    swept = [
        *((2, a, d, "every-site") for a in (0, 0.5) for d in (0, 1)),
        *((2, a, 1, "every-site") for a in (0.25, 1, 8)),
        (2, 0.5, 16, "every-site"),
        *((q, 0.5, 1, "every-site") for q in (0, 4)),
        *((2, a, d, "one-site") for a, d in ((0, 1), (0.5, 0), (0.5, 1))),
    ]
    for q, a, d, forwarding in swept:
        options = {"rules": "paper", "queue": q, "occupancy": a, "delivered": d, "forwarding": forwarding}
        every = [
            over_bound(spec, "allgather", mb, chunks, **options)
            for spec, mb, chunks in product(CHOICES, (1, 256), SUBCHUNKS)
        ]
        print(
            f"| {q} | {a} | {d} | {forwarding} | {statistics.geometric_mean(every):.3f} | {max(every):.3f} |",
            flush=True,
        )


def kinds() -> None:
    print("| collective | rules | 1 | 2 | 4 | 8 subchunks |")
    print("|---|---|---|---|---|---|")
    for kind, rules in product(KINDS, ("paper", "eager")):
        cells = [f"{over_bound(f'{PLAIN}&km=50', kind, 256, chunks, rules=rules):.3f}" for chunks in SUBCHUNKS]
        print(f"| {kind} | {rules} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parts = {"--readings": readings, "--weights": weights, "--kinds": kinds}
    for name, part in parts.items():
        if name in sys.argv or not parts.keys() & set(sys.argv):
            part()
            print()


if __name__ == "__main__":
    main()
