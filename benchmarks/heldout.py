"""How near is a planner to the bound on networks that nobody tuned it to? Irregular ones of many kinds, from a seed.

python benchmarks/heldout.py [-p auto] [-n 2] [--seed 0] [--sample 5] [-t NAME ...] [options of benchmarks/grid.py]

The kinds of networks are in benchmarks/heldout_networks.py; -n of each kind are drawn, the last one with only some of
its accelerators as ranks. A network is named KIND:SEED, or KIND:SEED:some with some ranks, and ends with ?message=2us
where each message costs that much; -t takes such a name (or any topology spec) to look at one alone. Seed 0 is for
development: what is reported comes from other seeds, and nobody tunes to those. Each plan is verified and simulated;
CPU seconds are of the only run of each cell. What fails is printed with its message. A table by kind and size, and the
worst cells, come last.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grid import add_cells, cells, measured, shown, summarise
from heldout_networks import KINDS as NETWORKS
from heldout_networks import some_ranks
from stretto.model.topology import GIVEN, Topology
from stretto.model.units import parse_time
from stretto.topologies import load_topology

WORST = 25
MESSAGES = ("", "?message=2us", "?message=20us")
"""What each message costs on the networks drawn: nothing, 2 us or 20 us."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-p", "--planner", default="auto")
    parser.add_argument("-n", "--networks", type=int, default=2, help="networks of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-t", "--topologies", nargs="*", help="networks to use instead")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "out" / "heldout.json")
    add_cells(parser)
    given = parser.parse_args()
    rows, failed = [], []
    for name, kind, size in cells(given.topologies or drawn(given.networks, given.seed), given):
        net, ranks = network(name)
        for planner in given.planner.split(","):
            try:
                row = measured(net, kind, size, planner, 1, given.effort, ranks)
            except Exception as failure:  # one cell that fails must not hide the others
                failed.append(f"{name} {kind} {size} {planner}: {type(failure).__name__}: {failure}")
                print(failed[-1], flush=True)
                continue
            if row is None:
                failed.append(f"{name} {kind} {size} {planner}: not served")
            else:
                rows.append(row)
                print(f"{shown(row)}, {row['bound']}", flush=True)
    report(rows, failed)
    given.output.parent.mkdir(exist_ok=True)
    given.output.write_text(json.dumps(rows, indent=1))


def drawn(count: int, seed: int) -> list[str]:
    """The names of ``count`` networks of each kind; equal seeds, equal networks."""
    rng, costs = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    return [
        f"{kind}:{int(s)}{':some' if k and k == count - 1 else ''}{costs.choice(MESSAGES)}"
        for kind in NETWORKS
        for k, s in enumerate(rng.integers(0, 1 << 20, count))
    ]


def network(name: str) -> tuple[Topology, NDArray[np.int32] | None]:
    """The network of a name, and its ranks where those are not all accelerators."""
    drawing, _, message = name.partition("?message=")
    kind, _, rest = drawing.partition(":")
    if kind not in NETWORKS or not rest.partition(":")[0].isdigit():
        return replace(load_topology(name), name=name), None
    rng = np.random.default_rng(int(rest.partition(":")[0]))
    net = replace(NETWORKS[kind](rng), name=name)
    if message:
        net = replace(net, message_s=np.full(net.link_count, parse_time(message, "message")), message_basis=GIVEN)
    return net, some_ranks(net, rng) if rest.endswith("some") else None


def report(rows: Sequence[dict[str, Any]], failed: Sequence[str]) -> None:
    """Means, a table by kind of network and size, the worst cells, and what failed."""
    summarise(rows)
    sizes = [size for _, size in sorted({(r["size_bytes"], r["size"]) for r in rows})]
    print(f"\n| network | cells | {' | '.join(sizes)} | worst | CPU s at most |\n|---|---|{'---|' * (len(sizes) + 2)}")
    for kind in dict.fromkeys(r["topology"].partition(":")[0] for r in rows):
        mine = [r for r in rows if r["topology"].partition(":")[0] == kind]
        means = [f"{mean([r['ratio'] for r in mine if r['size'] == size]):.3f}" for size in sizes]
        worst, slowest = max(r["ratio"] for r in mine), max(r["cpu_s"] for r in mine)
        print(f"| {kind} | {len(mine)} | {' | '.join(means)} | {worst:.2f} | {slowest:.2f} |")
    print("\nthe worst:")
    for row in sorted(rows, key=lambda r: -r["ratio"])[:WORST]:
        print(f"{shown(row)}, {row['bound']}")
    print(f"failed: {len(failed)}", *failed, sep="\n")


def mean(ratios: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


if __name__ == "__main__":
    main()
