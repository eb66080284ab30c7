"""What symmetry do networks have, whatever numbers their nodes have, and what do finding it and bounds by it cost?

Numbers nodes and links at random. Prints a row a network: accelerators, links, CPU seconds of finding the symmetry, the
orders of its generators, orbits of accelerators, and CPU seconds of the bound of an AllReduce of 1 GB and of that of an
AllGather; writes the rows, with the bounds, as JSON with `-o FILE`.

`--damages N` instead damages right plans by symmetry at random, and compares the verifier by symmetry with the plain
one on the expanded plan, as tests/mutants/test_mutants_of_symmetry.py does 400 times.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.simulate import simulate
from stretto.symmetry import find_symmetry
from stretto.topologies import load_topology
from stretto.verify import verify

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "mutants"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from test_mutants_of_symmetry import damaged, expanded_verdict

from symmetric_plans import examples
from test_find_symmetry import shuffled

NETWORKS = (
    "h100:64",
    "h100:512",
    "h100:2048",
    "fattree:32",
    "torus:8x8",
    "torus:16x16x16",
    "hypercube:8",
    "amd:4",
    "dgx1",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("-o", help="file for the rows as JSON")
    parser.add_argument("--damages", type=int, default=0, help="only damage that number of plans")
    options = parser.parse_args()
    if options.damages:
        damage(options.damages)
        return
    small = load_topology("h100:4")
    for kind in ("allreduce", "allgather"):  # loads compiled kernels
        bounds(small, Workload((make_collective(kind, small, 10**9),)))
    find_symmetry(small)
    rows = []
    print("| network | GPUs | links | finding, CPU s | orders | orbits | bound of AllReduce, CPU s | of AllGather |")
    print("|---" * 8 + "|", flush=True)
    for spec in options.networks:
        network = shuffled(load_topology(spec), 1)
        begin = time.process_time()
        symmetry = find_symmetry(network)
        row: dict[str, Any] = {"network": spec, "gpus": len(network.accelerators), "links": network.link_count}
        row["find_s"] = time.process_time() - begin
        row["orders"] = symmetry.orders.tolist() if symmetry is not None else []
        row["orbits"] = len(np.unique(symmetry.node_orbits[network.accelerators])) if symmetry is not None else None
        for kind in ("allreduce", "allgather"):
            workload = Workload((make_collective(kind, network, 10**9),))
            begin = time.process_time()
            row[f"{kind}_bound_s"] = bounds(network, workload)[0].seconds
            row[f"{kind}_cpu_s"] = time.process_time() - begin
        rows.append(row)
        orders = ", ".join(map(str, row["orders"])) or "none"
        print(f"| {spec} | {row['gpus']:,} | {row['links']:,} | {row['find_s']:.2f} | {orders} | {row['orbits']} "
              f"| {row['allreduce_cpu_s']:.2f} | {row['allgather_cpu_s']:.2f} |", flush=True)  # fmt: skip
    if options.o:
        Path(options.o).write_text(json.dumps(rows, indent=1) + "\n")


def damage(trials: int) -> None:
    """Print the verdicts on damaged plans, and what only the verifier by symmetry refuses."""
    plans = [plan for seed in range(6) for plan in examples(seed).values()]
    assert all(verify(plan).ok and verify(plan.expand()).ok for plan in plans)
    rng, outcomes, only = np.random.default_rng(20), Counter[tuple[str, str]](), Counter[str]()
    apart = 0.0
    for trial in range(trials):
        name, plan = damaged(plans, rng)
        finding, theirs = verify(plan).finding, expanded_verdict(plan)
        ours = "accepted" if finding is None else "refused"
        outcomes[ours, "accepted" if theirs == "ok" else "refused"] += 1
        if finding is None and theirs != "ok":
            print(f"damage {trial}, {name}: accepted, but expanded {theirs}")
        if finding is not None and theirs == "ok":
            only[f"{finding.code} ({name})"] += 1
        if finding is None and theirs == "ok":
            apart = max(apart, abs(simulate(plan).completion_s / simulate(plan.expand()).completion_s - 1))
    print(f"{trials:,} damages of {len(plans)} plans:\n\n| damages | by symmetry | expanded |\n|---|---|---|")
    for ours, theirs in product(("refused", "accepted"), repeat=2):
        print(f"| {outcomes[ours, theirs]:,} | {ours} | {theirs} |")
    print(f"\ncompletions of accepted plans differ by at most {apart:.1e}")
    for what, number in only.most_common():
        print(f"{number:6} refused by symmetry alone: {what}")


if __name__ == "__main__":
    main()
