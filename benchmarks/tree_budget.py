"""How much of the best rate do a few trees a rank keep? Random graphs whose capacities have no common measure.

python benchmarks/tree_budget.py [-n 30] [--trees 1,2,4,8,16]

The rate is that of the busiest link, of forest's trees without a budget: for AllGather the exact optimum where switches
get as much as they send.
"""

from __future__ import annotations

import argparse
from statistics import geometric_mean

import numpy as np

from stretto.model.collective import make_collective
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.planners.forest.candidates import forests_of
from stretto.planners.forest.division import keep_largest
from stretto.planners.forest.forest import Forest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--graphs", type=int, default=30)
    parser.add_argument("--trees", default="1,2,4,8,16", help="budgets, by comma")
    given = parser.parse_args()
    budgets = [int(most) for most in given.trees.split(",")]
    shares = [kept_shares(kind, given.graphs, budgets) for kind in ("allgather", "allreduce")]
    print("\n| trees a rank | AllGather, mean | at least | AllReduce, mean | at least |\n|---|---|---|---|---|")
    for most in budgets:
        cells = [f"{100 * share:.2f} %" for kept in shares for share in (geometric_mean(kept[most]), min(kept[most]))]
        print(f"| {most} | {' | '.join(cells)} |")


def kept_shares(kind: str, graphs: int, budgets: list[int]) -> dict[int, list[float]]:
    """For each budget the share of the rate that its trees keep, of each graph."""
    whole = []
    for seed in range(graphs):
        net = awkward_graph(seed)
        c = make_collective(kind, net, 10**9)
        whole.append((net, c, forests_of(net, c, 150_000)[-1]))
    many = [int(np.bincount(forest.up.root).max()) for *_, forest in whole]
    print(f"{kind}: {min(many)} to {max(many)} trees of a root without a budget")
    return {
        most: [rate(net, keep_largest(net, c, forest, most)) / rate(net, forest) for net, c, forest in whole]
        for most in budgets
    }


def awkward_graph(seed: int) -> Topology:
    """5 to 14 accelerators and up to two switches, links of 1 to 10 GB/s; on every other graph alike both ways."""
    rng = np.random.default_rng(seed)
    n, switches = int(rng.integers(5, 15)), int(rng.integers(0, 3))
    joined = {(v, int(rng.integers(0, v))) for v in range(1, n)}
    joined |= {(int(a), int(b)) for a, b in rng.integers(0, n, (n, 2)) if a != b}
    for w in range(n, n + switches):
        joined |= {(w, int(v)) for v in rng.choice(n, int(rng.integers(2, n + 1)), replace=False)}
    width: dict[tuple[int, int], float] = {}
    for a, b in sorted(joined):
        width[a, b] = float(rng.uniform(1e9, 1e10))
        width[b, a] = width[a, b] if seed % 2 else float(rng.uniform(1e9, 1e10))
    kinds = [ACCELERATOR] * n + [SWITCH] * switches
    return make_topology(f"awkward:{seed}", kinds, [(a, b, w, 1e-6) for (a, b), w in sorted(width.items())])


def rate(net: Topology, forest: Forest) -> float:
    """Bytes/s of the whole that trees carry, however finely they are pipelined."""
    return 1 / forest.seconds_per_byte(net)


if __name__ == "__main__":
    main()
