"""How near is a planner to the bound on networks that nobody tuned it to? Irregular ones of many kinds, from a seed.

python benchmarks/heldout.py [-p auto] [-n 2] [--seed 0] [--sample 5] [-t NAME ...] [options of benchmarks/grid.py]

The kinds of networks are in benchmarks/heldout_networks.py; -n of each kind are drawn, the last one with only some of
its accelerators as ranks. A network is named KIND:SEED, or KIND:SEED:some with some ranks, and ends with ?message=2us
where each message costs that much; -t takes such a name (or any topology spec) to look at one alone. Seed 0 is for
development: what is reported comes from other seeds, and nobody tunes to those. Each plan is verified and simulated;
CPU seconds are of the only run of each cell. What fails is printed with its message. The tables at the end: means, for
each planner a line for each kind of network, several planners beside each other, the worst cells.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grid import add_cells, by, cells, mean, measured, show_worst, shown, summarise
from heldout_networks import KINDS as NETWORKS
from heldout_networks import some_ranks
from piped import run
from stretto.model.errors import Unsupported
from stretto.model.topology import Topology
from stretto.model.units import parse_size, parse_time
from stretto.model.variants import with_messages
from stretto.topologies import load_topology

WORST = 12
MESSAGES = ("", "?message=2us", "?message=20us")
"""What each message costs on the networks drawn: nothing, 2 us or 20 us."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-p", "--planner", default="auto")
    parser.add_argument("-n", "--networks", type=int, default=2, help="networks of each kind")
    parser.add_argument("--kinds", default=",".join(NETWORKS), help="kinds of networks, by comma")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--free", action="store_true", help="messages cost nothing on any network drawn")
    parser.add_argument("-t", "--topologies", nargs="*", help="networks to use instead")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "out" / "heldout.json")
    add_cells(parser)
    given = parser.parse_args()
    rows, failed = [], []
    kinds = given.kinds.split(",")
    names = [n for n in drawn(given.networks, given.seed, given.free) if n.partition(":")[0] in kinds]
    for name, kind, size in cells(given.topologies or names, given):
        net, ranks = network(name)
        for planner in given.planner.split(","):
            try:
                row = measured(net, kind, size, planner, 1, given.effort, ranks)
            except Unsupported as refusal:
                failed.append(f"{name} {kind} {size} {planner}: not served: {refusal}")
            except Exception as failure:  # one cell that fails must not hide the others
                failed.append(f"{name} {kind} {size} {planner}: {type(failure).__name__}: {failure}")
                print(failed[-1], flush=True)
            else:
                rows.append(row)
                print(f"{shown(row)}, {row['bound']}", flush=True)
    report(rows, failed)
    given.output.parent.mkdir(exist_ok=True)
    given.output.write_text(json.dumps(rows, indent=1))


def drawn(count: int, seed: int, free: bool = False) -> list[str]:
    """The names of ``count`` networks of each kind; equal seeds, equal networks, whether or not messages are free."""
    rng, costs = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    return [
        f"{kind}:{int(s)}{':some' if k and k == count - 1 else ''}{'' if free else costs.choice(MESSAGES)}"
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
        net = with_messages(net, parse_time(message, "message"))
    return net, some_ranks(net, rng) if rest.endswith("some") else None


def report(rows: Sequence[dict[str, Any]], failed: Sequence[str]) -> None:
    """Means, for each planner a table by kind and size, planners beside each other, the worst cells, failures."""
    summarise(rows)
    for mine in by(rows, "planner").values():
        by_kind(mine)
    if len({r["planner"] for r in rows}) > 1:
        beside(rows)
    show_worst(rows, WORST)
    print(f"failed: {len(failed)}", *failed, sep="\n")


def by_kind(rows: Sequence[dict[str, Any]]) -> None:
    """Means by kind of network and size."""
    sizes = sorted({r["size"] for r in rows}, key=lambda size: parse_size(size.removesuffix(" a rank"), "size"))
    names = " | ".join(size.removesuffix(" a rank") for size in sizes)
    print(f"\n| network | cells | {names} | worst | CPU s at most |\n|---|---|{'---|' * (len(sizes) + 2)}")
    for kind in dict.fromkeys(r["topology"].partition(":")[0] for r in rows):
        mine = [r for r in rows if r["topology"].partition(":")[0] == kind]
        means = [f"{mean([r['ratio'] for r in mine if r['size'] == size]):.3f}" for size in sizes]
        worst, slowest = max(r["ratio"] for r in mine), max(r["cpu_s"] for r in mine)
        print(f"| {kind} | {len(mine)} | {' | '.join(means)} | {worst:.2f} | {slowest:.2f} |")


def beside(rows: Sequence[dict[str, Any]]) -> None:
    """Completion / bound and CPU seconds of each planner on each cell."""
    planners = list(by(rows, "planner"))
    print(f"\n| network | collective | size | {' | '.join(planners)} |\n|---|---|---{'|---' * len(planners)}|")
    named = [row | {"cell": (row["topology"], row["kind"], row["size"])} for row in rows]
    for (network, kind, size), mine in by(named, "cell").items():
        found = {r["planner"]: f"{r['ratio']:.3f} ({r['cpu_s']:.2f} s)" for r in mine}
        cells = " | ".join(found.get(planner, "") for planner in planners)
        print(f"| {network} | {kind} | {size.removesuffix(' a rank')} | {cells} |")


if __name__ == "__main__":
    run(main)
