"""How near the bound is a planner on networks that no grid has? Other members of the families, and random graphs.

python benchmarks/heldout.py [-p auto] [-s 64KB,16MB] [-c allgather,...] [-n 12] [--seed 0] [-t SPEC ...]

Networks are drawn by the seed: from a list of families that benchmarks/grid.py leaves out, from the Topology Zoo (up to
40 nodes), and random graphs with uneven links and switches. The worst cells come last. Each plan is verified and
simulated; CPU seconds are of the only run of each cell.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from grid import KINDS, TOPOLOGIES, measured, shown, summarise
from stretto.topologies import load_topology, zoo
from stretto.topology import ACCELERATOR, SWITCH, Topology, make_topology

FAMILIES = (
    "mesh:5x7", "mesh:3x11", "mesh:3x3x3", "torus:3x5", "torus:4x6", "torus:3x3x3", "ring:5", "ring:13", "line:6",
    "hypercube:4", "fullmesh:7", "star:12", "fattree:4", "sites:4,3", "sites:2,5", "sites:3,6?routers=2", "dgx2:1",
    "ndv2:3", "amd:4",
)  # fmt: skip
LARGEST_ZOO = 40
WORST = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-p", "--planner", default="auto")
    parser.add_argument("-s", "--sizes", default="64KB,16MB", help="of a rank's shard, by comma")
    parser.add_argument("-c", "--collectives", default=",".join((*KINDS, "alltoall")), help="by comma")
    parser.add_argument("-n", "--networks", type=int, default=12, help="how many are drawn of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-t", "--topologies", nargs="*", help="these instead")
    given = parser.parse_args()
    chosen = [load_topology(s) for s in given.topologies or ()] or drawn(given.networks, given.seed)
    rows = []
    for net in chosen:
        for kind in given.collectives.split(","):
            for size in given.sizes.split(","):
                row = measured(net, kind, size, given.planner, 1)
                if row is not None:
                    rows.append(row)
                    print(shown(row), flush=True)
    summarise(rows)
    print("the worst:")
    for row in sorted(rows, key=lambda r: -r["ratio"])[:WORST]:
        print(shown(row))
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "heldout.json").write_text(json.dumps(rows, indent=1))


def drawn(count: int, seed: int) -> list[Topology]:
    """So many of each kind; equal seeds, equal networks."""
    rng = np.random.default_rng(seed)
    others = [f"zoo:{name}" for name in zoo.networks() if f"zoo:{name}" not in TOPOLOGIES]
    found = [load_topology(str(s)) for s in rng.choice(FAMILIES, min(count, len(FAMILIES)), replace=False)]
    nets: list[Topology] = []
    for spec in rng.permutation(others):
        if len(nets) == count:
            break
        net = load_topology(str(spec))
        if 4 <= len(net.accelerators) <= LARGEST_ZOO:
            nets.append(net)
    return found + nets + [random_graph(int(s)) for s in rng.integers(0, 1 << 30, count)]


def random_graph(seed: int) -> Topology:
    """4 to 24 accelerators, joined both ways at random by links that are unlike, and by up to two switches."""
    rng = np.random.default_rng(seed)
    n, switches = int(rng.integers(4, 25)), int(rng.integers(0, 3))
    nodes = n + switches
    joined = {(v, int(rng.integers(0, v))) for v in range(1, n)}
    joined |= {(int(a), int(b)) for a, b in rng.integers(0, n, (n, 2)) if a != b}
    joined |= {(w, int(v)) for w in range(n, nodes) for v in rng.choice(n, int(rng.integers(2, n + 1)), replace=False)}
    links = {}
    for a, b in sorted(joined):
        width, latency = float(rng.choice([5e9, 12.5e9, 25e9, 50e9])), float(rng.choice([0.5e-6, 1e-6, 5e-6]))
        links[a, b] = links[b, a] = (width, latency)
    kinds = [ACCELERATOR] * n + [SWITCH] * switches
    return make_topology(f"random:{seed}", kinds, [(a, b, *w) for (a, b), w in sorted(links.items())])


if __name__ == "__main__":
    main()
