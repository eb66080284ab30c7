"""Which planner wins where? Completion / bound of auto and of each other planner, by family of networks and size.

python benchmarks/winners.py [-t SPEC ...] [-s 4KB,1MB,256MB] [-c allgather,...] [-o FILE.md]

Prints a table a collective, in Markdown: a row a network and size, a column a planner, the best of the others in bold.
Planners that solve programs (teccl, taccl, milp-allgather) take minutes and are left out, scale-ccl where there are
switches; `fixed` is the best of the fixed algorithms. Each plan is verified and simulated. CPU seconds of planning are
summed up by planner at the end; the first plans include loading of code.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.topology import SWITCH, Topology
from stretto.model.units import parse_size
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

TOPOLOGIES = (
    "dgx1", "dgx2:2", "ndv2:4", "amd:2", "ring:8", "torus:4x4", "mesh:4x4", "fattree:4", "sites:2,8", "zoo:Abilene",
)  # fmt: skip
SIZES = "4KB,1MB,256MB"
KINDS = "allgather,reducescatter,allreduce,alltoall"
PLANNERS = {
    "auto": ("auto",),
    "forest": ("forest",),
    "paths": ("paths",),
    "greedy": ("greedy",),
    "mtegcca": ("mtegcca",),
    "scale-ccl": ("scale-ccl",),
    "shortest-path": ("shortest-path",),
    "nccl": ("nccl-ring", "nccl-tree"),
    "fixed": ("ring", "recursive-doubling", "rabenseifner", "pairwise", "bruck"),
}
"""Each column, and of which planners it is the best."""

EQUAL = 1.001
"""Times the best that are as good."""

Ratios = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--topologies", nargs="*", default=TOPOLOGIES)
    parser.add_argument("-s", "--sizes", default=SIZES, help="of a rank's shard, by comma")
    parser.add_argument("-c", "--collectives", default=KINDS, help="by comma")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "out" / "winners.md")
    given = parser.parse_args()
    spent: Counter[str] = Counter()
    text, rows = [], []
    for kind in given.collectives.split(","):
        found = []
        for spec in given.topologies:
            for size in given.sizes.split(","):
                ratios = cell(load_topology(spec), kind, parse_size(size, "size"), spent)
                found.append((f"{spec}, {size}", ratios))
                rows.append({"collective": kind, "topology": spec, "size": size, "ratio": ratios})
        text += table(kind, found)
        print("\n".join(text[-len(found) - 5 :]), flush=True)
    print("CPU s: " + ", ".join(f"{name} {seconds:.1f}" for name, seconds in spent.most_common()))
    given.output.parent.mkdir(exist_ok=True)
    given.output.write_text("\n".join(text) + "\n")
    given.output.with_suffix(".json").write_text(json.dumps(rows, indent=1))


def cell(net: Topology, kind: str, shard_bytes: int, spent: Counter[str]) -> Ratios:
    """Completion / bound of each column that serves it."""
    work = Workload((make_collective(kind, net, shard_bytes=shard_bytes),))
    least = bounds(net, work)[0].seconds
    found: Ratios = {}
    for column, planners in PLANNERS.items():
        if column == "scale-ccl" and (net.kind == SWITCH).any():
            continue
        for planner in planners:
            began = time.process_time()
            try:
                plan = run_planner(planner, net, work)
            except Unsupported:
                continue
            finally:
                spent[column] += time.process_time() - began
            verdict = verify(plan)
            assert verdict.ok, verdict.finding
            found[column] = min(found.get(column, float("inf")), simulate(plan).completion_s / least)
    return found


def table(kind: str, rows: Iterable[tuple[str, Ratios]]) -> list[str]:
    """The cells of a collective, with a heading."""
    rows = list(rows)
    columns = [name for name in PLANNERS if any(name in ratios for _, ratios in rows)]
    lines = [f"## {kind}", "", f"| network, shard | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for title, ratios in rows:
        best = min((r for name, r in ratios.items() if name != "auto"), default=0.0)
        cells = []
        for name in columns:
            shown = f"{ratios[name]:.3f}" if name in ratios else ""
            cells.append(f"**{shown}**" if shown and name != "auto" and ratios[name] <= EQUAL * best else shown)
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return [*lines, ""]


if __name__ == "__main__":
    main()
