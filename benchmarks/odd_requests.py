"""Odd requests, drawn by a seed, to every planner: a plan verifies and simulates to what it says, or is refused.

python benchmarks/odd_requests.py SECONDS [FIRST [STEP [PLANNER ...]]]

tries as many as the given seconds of CPU allow, from seed FIRST on, each STEP-th, and prints what is wrong. Drawn are
sizes of a few bytes, where transfers are shorter than what a sum of moments rounds away; uneven shards, many chunks,
some of the ranks, several collectives, late starts, and networks that no grid has. A few seeds are among the tests.
"""

from __future__ import annotations

import os
import resource
import sys
import time
import traceback
from dataclasses import dataclass, replace

import numpy as np

from heldout_networks import KINDS, some_ranks
from stretto.model.collective import Collective, Workload, make_collective
from stretto.model.demand import alltoallv
from stretto.model.errors import StrettoError
from stretto.model.plan import Plan
from stretto.model.topology import Topology
from stretto.planners import Entry, registered, run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

FAMILIES = dict(list(KINDS.items())[:13])
"""Kinds of networks, those that seeds have meant since there were 13."""

SPECS = (
    "sites:3,6", "sites:3,6?routers=2", "sites:2,3?routers=2", "zoo:Abilene", "amd:1", "dgx2:1", "ndv2:2", "ring:5",
    "star:5?switches=store", "optical:6,2", "optical:4,3?dims=2x2", "torus:3x3", "mesh:2x3",
)  # fmt: skip
STARTS = (0.0, 0.0, 1.0, 1 / 3, 1e6)
LATENCIES = (1.0, 1.0, 1.0, 0.0, 1000.0)
"""What all latencies are multiplied by."""

MOST_RANKS, MOST_SOLVED = 18, 6
"""Ranks up to which requests are put to planners, and to those that solve programs."""

LESS = {"greedy": {"work": 4_000, "tries": 40}, "auto": {}}
"""Options with which planners that search a while answer sooner."""

BYTES = 6 * 10**9
"""Of address space that a process may have."""

ULPS = 8
"""By how many roundings of its last moment the starts of a plan may differ from the simulator's."""

LIMIT_S = 2.0
"""The time limit of what proves optima."""


@dataclass(frozen=True)
class Request:
    """What is asked of whom."""

    planner: str
    topology: Topology
    workload: Workload
    options: dict[str, object]
    limit_s: float | None

    def __str__(self) -> str:
        asked = [
            f"{c.kind} {c.size_bytes} B in {c.chunk_count} chunks of {len(c.ranks)} ranks from {c.start_s:.6g} s"
            for c in self.workload.collectives
        ]
        return f"{self.planner} on {self.topology.name}: {', '.join(asked)}"


def drawn(seed: int, planners: list[str] | None = None) -> Request | None:
    """The request of a seed; None where its sizes are none that a collective can have."""
    rng = np.random.default_rng(seed)
    entries = registered()
    names = planners or [*entries]
    entry = entries[str(rng.choice(names))]
    starts = [e.name for e in entries.values() if not e.refines and e.quick is None and e.name != "auto"]
    name = entry.name if not entry.refines or entry.alone else f"{rng.choice(starts)}+{entry.name}"
    solves = entry.quick is not None or entry.exact
    net = _network(rng, MOST_SOLVED if solves else MOST_RANKS)
    several = int(rng.choice([1, 1, 1, 2, 3]))
    try:
        workload = Workload(tuple(_collective(entry, net, rng) for _ in range(several)))
    except StrettoError:
        return None
    options = dict(entry.quick or LESS.get(entry.name, {}))
    return Request(name, net, workload, options, LIMIT_S if solves or entry.refines or name == "auto" else None)


def _network(rng: np.random.Generator, most: int) -> Topology:
    while True:
        named = rng.random() < 0.5
        net = load_topology(str(rng.choice(SPECS))) if named else FAMILIES[str(rng.choice([*FAMILIES]))](rng)
        if 2 <= len(net.accelerators) <= most:
            return replace(net, latency_s=net.latency_s * rng.choice(LATENCIES))


def _collective(entry: Entry, net: Topology, rng: np.random.Generator) -> Collective:
    kind = str(rng.choice([name for name in entry.collectives if name != "partial-sums"]))
    ranks = some_ranks(net, rng) if rng.random() < 0.3 else net.accelerators
    start_s, chunks = float(rng.choice(STARTS)), int(rng.integers(1, 8))
    if kind == "alltoallv":
        matrix = rng.integers(0, 8, (len(ranks), len(ranks)))
        return alltoallv(net, matrix, ranks=ranks, start_s=start_s)
    scale = int(rng.choice([1, 1, 1, 1000, 10**6]))
    size = int(rng.integers(1, 8)) * scale
    if kind in ("allgather", "reducescatter", "alltoall", "scatter", "gather") and rng.random() < 0.9:
        size = size * len(ranks) + int(rng.integers(0, len(ranks)))
    receivers = rng.choice(len(ranks), max(1, len(ranks) // 2), replace=False).tolist() if kind == "multicast" else None
    smallest = size if kind in ("allreduce", "broadcast", "reduce", "multicast") else size // len(ranks)
    return make_collective(
        kind, net, size, ranks=ranks, root=int(rng.integers(0, len(ranks))), receivers=receivers,
        chunks=min(chunks, max(smallest, 1)), start_s=start_s,
    )  # fmt: skip


def wrong(request: Request) -> str | None:
    """What is wrong with the answer, in words; None if it is a right plan or a refusal."""
    try:
        plan = run_planner(
            request.planner, request.topology, request.workload, options=request.options, time_limit_s=request.limit_s
        )
    except StrettoError:
        return None
    except Exception:
        return traceback.format_exc(limit=-3)
    return _broken(request, plan)


def _broken(request: Request, plan: Plan) -> str | None:
    if len(plan.workload.collectives) != len(request.workload.collectives):
        return "it has other collectives"
    for asked, c in zip(request.workload.collectives, plan.workload.collectives, strict=True):
        if (asked.kind, asked.start_s, asked.size_bytes) != (c.kind, c.start_s, c.size_bytes):
            return f"its collective is {c.kind} of {c.size_bytes} from {c.start_s}, not what was asked"
    verdict = verify(plan)
    if verdict.finding is not None:
        return f"{verdict.finding.code}: {verdict.finding.message}"
    try:
        timeline = simulate(plan)
    except StrettoError:
        return None
    if plan.start_s is None or plan.finish_s is None or not plan.transfer_count:
        return None
    # the links of a way are free at moments of the size of its latency, which are rounded
    if not np.allclose(timeline.start_s, plan.start_s, rtol=1e-9, atol=ULPS * np.spacing(timeline.arrival_s.max())):
        k = int(np.argmax(np.abs(timeline.start_s - plan.start_s)))
        return f"{plan.describe(k)} starts at {timeline.start_s[k]!r} and not at {plan.start_s[k]!r}"
    return None


def main(seconds: float, seed: int = 0, step: int = 1, *planners: str) -> None:
    os.environ.setdefault("STRETTO_KERNELS", "compiled")
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    began, tried = time.process_time(), 0
    while time.process_time() - began < seconds:
        request = drawn(seed, [*planners])
        if request is not None:
            tried += 1
            at = time.process_time()
            said = wrong(request)
            took = time.process_time() - at
            if said is not None:
                print(f"seed {seed}, {request}\n  {said}", flush=True)
            if took > 10:
                print(f"seed {seed}, {request}\n  took {took:.1f} s", flush=True)
        seed += step
    print(f"{tried} requests, up to seed {seed}")


if __name__ == "__main__":
    main(*(cast(text) for cast, text in zip((float, int, int, *[str] * 99), sys.argv[1:], strict=False)))
