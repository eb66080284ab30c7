"""What does a further chunk of a message cost processes, and do plans of such messages keep what they promise?

First table: two processes send a message to and fro over loopback, each after the one before. The message has 1 to 16
chunks, and the same bytes. Microseconds of a message, the median of several runs: by the compiled loop, and by Python's
with plain and with authenticated frames (codes). The last column is what a further chunk adds, by the two before it.

Second table (root): AllToAll and AllGather on small emulated rings, planned for what a message costs these processes:
by ``auto``, with messages of several chunks and without. Measured times are the mean of several runs in a row, of which
the table has the median, the least and the most; beside them the simulator's time.

Prints two tables, writes benchmarks/out/message_chunks.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from stretto.emulator import built, refusal
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.demand import alltoallv
from stretto.model.messages import message_count
from stretto.model.plan import Plan, make_plan
from stretto.planners import run_planner
from stretto.runtime.cost import as_run, costed
from stretto.runtime.credentials import Credentials, Protection, random_secret
from stretto.runtime.local import run_local
from stretto.simulate import simulate
from stretto.topologies import load_topology

OUT = Path(__file__).parent / "out" / "message_chunks.json"
CHUNKS = (1, 2, 4, 8, 16)
SIZES = (1 << 10, 1 << 14)
"""Bytes of a message."""
TRANSFERS = 3200
"""Transfers of a run of the first table."""
CASES = (("alltoall", 4, 16_000), ("alltoall", 6, 64_000), ("allgather", 4, 16_000), ("allgather", 6, 64_000))
"""Collectives, ranks of the ring and bytes of the second table."""
RUNS = 20
"""Runs in a row of the second table, of which all but the first count."""


def to_and_fro(size: int, chunks: int) -> Plan:
    """Messages of ``size`` bytes in this number of chunks between two nodes, each after the one before."""
    net = load_topology("fullmesh:2?bandwidth=2GB/s&latency=0us")
    link = {pair: i for i, pair in enumerate(zip(net.src.tolist(), net.dst.tolist(), strict=True))}
    rounds = TRANSFERS // chunks // 2
    each = rounds * chunks
    work = alltoallv(net, [[0, size * rounds], [size * rounds, 0]], chunks=each)
    rows = [(r, j) for r in range(2 * rounds) for j in range(chunks)]
    return make_plan(
        net, Workload((work,)), "ready-order", chunk=[r // 2 * chunks + j + r % 2 * each for r, j in rows],
        src=[r % 2 for r, _ in rows], op=[0] * len(rows), dst=Ragged.single([1 - r % 2 for r, _ in rows]),
        route=Ragged.of([[link[r % 2, 1 - r % 2]] for r, _ in rows]),
        depends=Ragged.of([[(r - 1) * chunks + j] if r else [] for r, j in rows]),
        message=[r for r, _ in rows] if chunks > 1 else None,
    )  # fmt: skip


def takes_s(plan: Plan, credentials: Credentials) -> float:
    """Seconds of a message of such a plan."""
    outcome = run_local(plan, credentials=credentials, runs=6)
    assert not outcome.wrong
    return max(max(trace.arrived_s.values()) for trace in outcome.traces.values()) / message_count(plan)


def costs(repeats: int) -> Iterator[dict]:
    """The rows of the first table."""
    ways = {"compiled": ("compiled", Protection.PLAIN), "Python": ("python", Protection.PLAIN)}
    ways["codes"] = "python", Protection.AUTHENTICATED
    for name, (speed, frames) in ways.items():
        for size in SIZES:
            plans = [to_and_fro(size, chunks) for chunks in CHUNKS]
            way = Credentials(random_secret(), frames=frames)
            with mock.patch.dict(os.environ, STRETTO_KERNELS=speed):
                seconds = [[takes_s(plan, way) for plan in plans] for _ in range(repeats)]
            medians = [statistics.median(each) for each in zip(*seconds, strict=True)]
            yield {"size_bytes": size, "loop": name, "takes_s": medians}


def promises(repeats: int) -> Iterator[dict]:
    """The rows of the second table."""
    for kind, ranks, size in CASES:
        net = costed(load_topology(f"ring:{ranks}?bandwidth=20MB/s&latency=0us"))
        work = Workload((make_collective(kind, net, size),))
        for name, several in (("several chunks", True), ("one chunk", False)):
            plan = run_planner("auto", net, work, effort="normal", several_chunks=several)
            measured_s = []
            for _ in range(repeats):
                with built(net) as places:
                    outcome = run_local(plan, places=places, runs=RUNS)
                assert not outcome.wrong
                measured_s.append(outcome.completion_s)
            yield {
                "collective": kind, "ranks": ranks, "size_bytes": size, "messages_of": name,
                "transfers": plan.transfer_count, "messages": message_count(plan),
                "simulated_s": simulate(as_run(plan)).completion_s, "measured_s": measured_s,
            }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=("costs", "promises"), help="one table")
    asked = parser.parse_args()
    repeats = asked.repeats
    rows = {"costs": [], "promises": []}
    if asked.only != "promises":
        print(
            f"| message | loop | {' | '.join(map(str, CHUNKS))} | a further chunk |\n|---{'|---' * (len(CHUNKS) + 2)}|"
        )
        for row in costs(repeats):
            rows["costs"].append(row)
            times = [1e6 * s for s in row["takes_s"]]
            further = (times[-1] - times[-2]) / (CHUNKS[-1] - CHUNKS[-2])
            cells = " | ".join(f"{t:.0f}" for t in times)
            print(f"| {row['size_bytes'] >> 10} KiB | {row['loop']} | {cells} | {further:.1f} |", flush=True)
    if reason := refusal():
        print(f"no second table: {reason}")
    elif asked.only != "costs":
        heads = (
            "collective",
            "ring of",
            "size",
            "messages of",
            "transfers",
            "messages",
            "simulated",
            "measured us",
            "ratio",
        )
        print(f"\n| {' | '.join(heads)} |\n|---{'|---' * (len(heads) - 1)}|", flush=True)
        for row in promises(repeats):
            rows["promises"].append(row)
            median, least, most = (1e6 * f(row["measured_s"]) for f in (statistics.median, min, max))
            print(
                f"| {row['collective']} | {row['ranks']} | {row['size_bytes'] // 1000} KB | {row['messages_of']} "
                f"| {row['transfers']} | {row['messages']} | {1e6 * row['simulated_s']:.0f} "
                f"| {median:.0f} ({least:.0f} to {most:.0f}) | {median / 1e6 / row['simulated_s']:.2f} |",
                flush=True,
            )
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
