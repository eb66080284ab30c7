"""What does a message cost the executor? CPU time of both its processes, and the time it adds to that of its bytes.

Two processes send messages of 64 B to 1 MB: many at once over loopback and over links of 12.5 and 125 MB/s between
network namespaces (root), and over loopback in a chain, where each waits for the one before and goes the other way.
(A shaped link would carry a chain too fast: its token bucket fills while the other direction is used.) The time beyond
its bytes is what a message takes more than at the link's bandwidth; loopback's is that of the largest messages.

Prints a table, the CPU time of a message as a line over its size, and ``message_s``: what a message of at most 4 KB
takes in a chain, the median. ``stretto.model.targets.MESSAGE_S`` lies between this and what the loop in Python takes
(``STRETTO_KERNELS=python``). A second table has what is sent at once over 125 MB/s, alone and beside ``--busy`` busy
loops. Writes benchmarks/out/executor.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from stretto.emulator import built, refusal
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload
from stretto.model.demand import alltoallv
from stretto.model.plan import Plan, make_plan
from stretto.model.topology import Topology
from stretto.runtime.local import run_local
from stretto.topologies import load_topology

SIZES = (64, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20)
LINKS = (12.5e6, 125e6)
LARGE = 1 << 16
"""From this size on the second table has the share that a message takes beyond its bytes."""
SMALL = 1 << 12
"""Messages of at most this number of bytes decide ``message_s``."""
SECONDS = 0.5
"""About how long the messages of one row take."""
GUESS_S, LOOPBACK = 50e-6, 2e9
"""Seconds that a message adds and bytes/s of loopback, to choose the number of messages."""
OUT = Path(__file__).parent / "out" / "executor.json"


def messages(network: Topology, size: int, count: int, chain: bool) -> Plan:
    """Messages of one size between the two nodes of a network: each waits for the one before, or none waits."""
    link = {pair: i for i, pair in enumerate(zip(network.src.tolist(), network.dst.tolist(), strict=True))}
    if chain:
        work = alltoallv(network, [[0, size * count // 2], [size * count // 2, 0]], chunks=count // 2)
        source = [k % 2 for k in range(count)]
        chunk = [k // 2 + k % 2 * (count // 2) for k in range(count)]
    else:
        work = alltoallv(network, [[0, size * count], [0, 0]], chunks=count)
        source, chunk = [0] * count, list(range(count))
    return make_plan(
        network, Workload((work,)), "ready-order", chunk=chunk, src=source, op=[0] * count,
        dst=Ragged.single([1 - v for v in source]), route=Ragged.of([[link[v, 1 - v]] for v in source]),
        depends=Ragged.of([[k - 1] if chain and k else [] for k in range(count)]),
    )  # fmt: skip


def measured(bandwidth: float | None, size: int, chain: bool, repeats: int) -> dict:
    """One row: medians over repeats, of a link or (None) of loopback."""
    network = load_topology(f"fullmesh:2?bandwidth={bandwidth or LOOPBACK}B/s&latency=0us")
    count = max(20, 2 * int(SECONDS / (GUESS_S + size / (bandwidth or LOOPBACK)) / 2))
    plan = messages(network, size, count, chain)
    rows = []
    for _ in range(repeats):
        with contextlib.nullcontext() if bandwidth is None else built(network) as places:
            outcome = run_local(plan, places=places)
        if outcome.wrong:
            raise SystemExit(f"wrong bytes: {outcome.wrong[:5]}")
        cpu_s = sum(trace.cpu_s for trace in outcome.traces.values())
        rows.append((outcome.completion_s / count, cpu_s / count))
    takes_s, cpu_s = (statistics.median(column) for column in zip(*rows, strict=True))
    return {"bandwidth": bandwidth, "size_bytes": size, "chain": chain, "messages": count, "takes_s": takes_s,
            "cpu_s": cpu_s}  # fmt: skip


def measured_link(bandwidth: float | None, repeats: int) -> list[dict]:
    """The rows of one link."""
    ways = (False, True) if bandwidth is None else (False,)
    rows = [measured(bandwidth, size, chain, repeats) for chain in ways for size in SIZES]
    wide = bandwidth or max(row["size_bytes"] / row["takes_s"] for row in rows)
    for row in rows:
        row["beyond_s"] = row["takes_s"] - row["size_bytes"] / wide
    return rows


def show(row: dict) -> None:
    """Print a row."""
    wide = row["bandwidth"]
    name = "loopback" if wide is None else f"{wide / 1e6:g} MB/s"
    how = "in a chain" if row["chain"] else "at once"
    share = "" if wide is None else f"{row['beyond_s'] * wide / row['size_bytes']:.1%}"
    print(f"| {name} | {row['size_bytes']:,} B | {row['messages']:,} {how} | {row['cpu_s'] * 1e6:.0f} | "
          f"{row['takes_s'] * 1e6:.0f} | {row['beyond_s'] * 1e6:.0f} | {share} |", flush=True)  # fmt: skip


def compare(alone: list[dict], beside: list[dict]) -> None:
    """Print what messages of each size take over one link, alone and beside busy loops."""
    wide = alone[0]["bandwidth"]
    print(f"\n| many at once over {wide / 1e6:g} MB/s | CPU, µs | beyond, µs | beyond, busy, µs |\n|---|---|---|---|")
    for row, busy_row in zip(alone, beside, strict=True):
        size = row["size_bytes"]
        shown = [
            f"{each['beyond_s'] * 1e6:.0f}" + (f" ({each['beyond_s'] * wide / size:.1%})" if size >= LARGE else "")
            for each in (row, busy_row)
        ]
        print(f"| {size:,} B | {row['cpu_s'] * 1e6:.0f} | {' | '.join(shown)} |")


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Processes that use a core each."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--busy", type=int, default=2, help="busy loops beside the second run over 125 MB/s")
    arguments = parser.parse_args()
    reason = refusal()
    if reason is not None:
        print(f"only loopback: {reason}")
    print("| link | size | messages | CPU us a message | takes us | beyond its bytes us | of its bytes |")
    print("|---" * 7 + "|")
    rows = []
    for bandwidth in (None, *(LINKS if reason is None else ())):
        rows += (of_link := measured_link(bandwidth, arguments.repeats))
        for row in of_link:
            show(row)
    if reason is None:
        with busy(arguments.busy):
            compare([row for row in rows if row["bandwidth"] == LINKS[-1]], measured_link(LINKS[-1], arguments.repeats))
    at_once = [row for row in rows if row["bandwidth"] is None and not row["chain"]]
    slope, fixed = np.polyfit([row["size_bytes"] for row in at_once], [row["cpu_s"] for row in at_once], 1)
    chain = [row["takes_s"] for row in rows if row["chain"] and row["size_bytes"] <= SMALL]
    print(f"\nCPU of both ends over loopback, at once: {fixed * 1e6:.0f} us a message and {slope * 1e9:.2f} ns a byte")
    print(f"message_s: {statistics.median(chain) * 1e6:.0f} us")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
