"""What does it cost to simulate and verify transfers that wait for one link? Queues of 100 to 100,000.

python benchmarks/queues.py [--most 100000]

Prints a table and writes benchmarks/out/queues.json. All transfers of a timed plan ask for one link at one moment.
They take the whole link ("whole"), a half or all of it ("halves"), or any part from a tenth on ("any"). Costs are CPU
microseconds of a transfer in this process, kernels loaded before: near-linear cost is the same number in each row. The
last column is the completion over that of a link that is never idle. Every plan is wrong, and the verifier says so.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

os.environ["STRETTO_KERNELS"] = "compiled"

from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.plan import Plan, make_plan
from stretto.model.topology import ACCELERATOR, make_topology
from stretto.simulate import simulate
from stretto.verify import verify

BANDWIDTH = 1e9
CHUNK_BYTES = 1000
QUADRATIC_UP_TO = 10_000
"""Transfers up to which parts of any size are tried: holes that fit nobody are searched again by each transfer."""


def queue(transfers: int, parts: str) -> Plan:
    """Transfers over one link, which all start at once."""
    rng = np.random.default_rng(transfers)
    part = {
        "whole": np.ones(transfers),
        "halves": rng.choice([0.5, 1.0], transfers),
        "any": rng.uniform(0.1, 1.0, transfers),
    }[parts]
    net = make_topology("pair", [ACCELERATOR] * 2, [(0, 1, BANDWIDTH, 0.0), (1, 0, BANDWIDTH, 0.0)])
    start = np.full(transfers, 1.0)
    return make_plan(
        net, Workload((make_collective("broadcast", net, CHUNK_BYTES * transfers, chunks=transfers),)), "timed",
        chunk=np.arange(transfers), src=np.zeros(transfers), dst=Ragged.single(np.ones(transfers)),
        route=Ragged.single(np.zeros(transfers)), depends=Ragged.empty(transfers),
        start_s=start, finish_s=start + CHUNK_BYTES / (part * BANDWIDTH),
    )  # fmt: skip


def cell(transfers: int, parts: str) -> dict:
    plan = queue(transfers, parts)
    marks = [time.process_time()]
    completion_s = simulate(plan).completion_s - 1.0
    marks.append(time.process_time())
    assert verify(plan).finding is not None
    marks.append(time.process_time())
    return {
        "transfers": transfers,
        "parts": parts,
        "simulating_us": (marks[1] - marks[0]) * 1e6 / transfers,
        "verifying_us": (marks[2] - marks[1]) * 1e6 / transfers,
        "completion": completion_s * BANDWIDTH / (CHUNK_BYTES * transfers),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=100_000)
    most = parser.parse_args().most
    cell(100, "any")
    rows = []
    print("| parts | transfers | simulating, us each | verifying, us each | completion / work |\n|---|---|---|---|---|")
    for parts in ("whole", "halves", "any"):
        for transfers in (100, 1_000, 10_000, 100_000):
            if transfers > (min(most, QUADRATIC_UP_TO) if parts == "any" else most):
                continue
            row = cell(transfers, parts)
            rows.append(row)
            print(
                f"| {parts} | {transfers:,} | {row['simulating_us']:.2f} | {row['verifying_us']:.2f} "
                f"| {row['completion']:.3f} |",
                flush=True,
            )
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "queues.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
