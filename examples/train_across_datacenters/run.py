"""Two datacenters of four ranks and a narrow WAN on this machine: the same training by gloo and by stretto.

    sudo python examples/train_across_datacenters/run.py

Prints both loss curves and the time of a step side by side, and writes ``step.perfetto.json``, a step of stretto's as
https://ui.perfetto.dev shows it. Needs root for the network namespaces.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from stretto import emulator
from stretto.topologies import load_topology

NETWORK = "bandwidth=50MB/s&router_bandwidth=50MB/s&wan_bandwidth=5MB/s&wan_latency=0s"
TRAIN = Path(__file__).parent / "train.py"
MICROSECONDS = 1e6


def train(spec: str, backend: str, folder: str, steps: int, width: int) -> list[dict[str, Any]]:
    """What each rank wrote."""
    topology = load_topology(spec)
    ranks = len(topology.accelerators)
    with emulator.built(topology) as places:
        running = []
        for rank, node in enumerate(topology.accelerators):
            place = places[int(node)]
            settings = {"STRETTO_TOPOLOGY": spec, "STRETTO_HOST": place.host, "STRETTO_TRACE": folder}
            command = [sys.executable, TRAIN, backend, rank, ranks, folder, steps, width]
            inside = ["ip", "netns", "exec", place.argument, *map(str, command)]
            running.append(subprocess.Popen(inside, env={**os.environ, **settings, "GLOO_SOCKET_IFNAME": "lo"}))
        codes = [process.wait() for process in running]
    if any(codes):
        raise SystemExit(f"training by {backend} failed: exit codes {codes}")
    return [json.loads(Path(folder, f"{backend}.{rank}.json").read_text()) for rank in range(ranks)]


def perfetto(folder: str, ranks: list[dict[str, Any]], step: int) -> dict[str, Any]:
    """The transfers and collectives of one step, as Chrome's trace format has them: a process a rank."""
    low, high = min(r["steps"][step][0] for r in ranks), max(r["steps"][step][1] for r in ranks)
    events: list[dict[str, Any]] = []
    for file in sorted(Path(folder).glob("rank*.jsonl")):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            if low <= record["began_s"] <= high:
                events += slices(record, low)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def slices(record: dict[str, Any], origin_s: float) -> list[dict[str, Any]]:
    """One collective at one rank: a slice for it, and one for each transfer, in a row a peer and direction."""
    rank = record["rank"]

    def slice_(name: str, row: int, began_s: float, ended_s: float) -> dict[str, Any]:
        place = {"name": name, "ph": "X", "pid": rank, "tid": row}
        return place | {"ts": (began_s - origin_s) * MICROSECONDS, "dur": (ended_s - began_s) * MICROSECONDS}

    transfers = [
        slice_(f"transfer {row} {word} rank {peer}", 1 + 2 * peer + side, began_s, ended_s)
        for side, (word, key) in enumerate((("to", "sent"), ("from", "arrived")))
        for row, peer, began_s, ended_s in record[key]
    ]
    return [slice_(record["kind"], 0, record["began_s"], record["ended_s"]), *transfers]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sites", type=int, default=2, help="datacenters")
    parser.add_argument("--ranks", type=int, default=4, help="in each")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--width", type=int, default=256, help="of the transformer; a multiple of 4")
    parser.add_argument("--trace", default="step.perfetto.json", help="where the trace of the last step goes")
    arguments = parser.parse_args()
    if (reason := emulator.refusal()) is not None:
        raise SystemExit(reason)
    spec = f"sites:{arguments.sites},{arguments.ranks}?{NETWORK}"
    with tempfile.TemporaryDirectory() as folder:
        made = {b: train(spec, b, folder, arguments.steps, arguments.width) for b in ("gloo", "stretto")}
        trace = perfetto(folder, made["stretto"], arguments.steps - 1)
    Path(arguments.trace).write_text(json.dumps(trace))
    spent = {b: [end - began for began, end in ranks[0]["steps"]] for b, ranks in made.items()}
    print("| step | loss, gloo | loss, stretto | s, gloo | s, stretto |\n|---|---|---|---|---|")
    for i, (theirs, ours) in enumerate(zip(made["gloo"][0]["loss"], made["stretto"][0]["loss"], strict=True)):
        print(f"| {i} | {theirs:.5f} | {ours:.5f} | {spent['gloo'][i]:.3f} | {spent['stretto'][i]:.3f} |")
    # the first steps connect, plan, and let DDP arrange its buckets
    medians = {b: statistics.median(times[2:] or times) for b, times in spent.items()}
    print(f"\nmedian step: gloo {medians['gloo']:.3f} s, stretto {medians['stretto']:.3f} s, "
          f"{medians['gloo'] / medians['stretto']:.2f} times as fast")  # fmt: skip
    print(f"{arguments.trace} opens in https://ui.perfetto.dev")


if __name__ == "__main__":
    main()
