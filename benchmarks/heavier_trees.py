"""For how many times the bytes should an AllReduce find trees that it then swaps? (planners/greedy/tree_swap.py)

python benchmarks/heavier_trees.py [-t amd:1 ...] [-s 16KB,64KB,256KB]

Completion / bound where the parts of each root exchange their trees for copies, which were found for more bytes by one
try of the matching. A part of the buffer for each rank, cut in as many as a try may have work. Means last.
"""

from __future__ import annotations

import argparse
import math

from grid import TOPOLOGIES
from piped import run
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.units import parse_size
from stretto.planners.greedy.planner import MOST_DELIVERIES
from stretto.planners.greedy.search import Search, deliveries_of_try
from stretto.planners.greedy.tree_swap import plan_with_swapped_trees
from stretto.schedule.best import completion_s
from stretto.schedule.trees import divide
from stretto.topologies import load_topology

HEAVIER = (1.0, 1.05, 1.1, 1.15, 1.2, 1.3)
MOST_RANKS = 32
OTHERS = ("fattree:4", "hypercube:4", "mesh:5x5", "torus:3x5", "torus:4x5", "ndv2:3", "dgx2:1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--topologies", nargs="*", help="these instead")
    parser.add_argument("-s", "--sizes", default="16KB,64KB,256KB", help="of a rank's shard, by comma")
    given = parser.parse_args()
    print(f"{'heavier':24}" + "".join(f"{value:8}" for value in HEAVIER))
    logs: list[list[float]] = []
    for spec in given.topologies or (*TOPOLOGIES, *OTHERS):
        net = load_topology(spec)
        ranks = len(net.accelerators)
        if ranks > MOST_RANKS and not given.topologies:
            continue
        for size in given.sizes.split(","):
            load = Workload((make_collective("allreduce", net, shard_bytes=parse_size(size, "--sizes")),))
            bound = bounds(net, load)[0].seconds
            parts = ranks
            while deliveries_of_try(net, Workload((divide(load.collectives[0], 2 * parts)[0],))) <= MOST_DELIVERIES / 2:
                parts *= 2
            cut = Workload((divide(load.collectives[0], parts)[0],))
            ratios = [
                completion_s(plan_with_swapped_trees(net, cut, Search(1, 1, 0), value)) / bound for value in HEAVIER
            ]
            logs.append([math.log(ratio) for ratio in ratios])
            print(f"{spec:17} {size:6}" + "".join(f"{ratio:8.3f}" for ratio in ratios), flush=True)
    means = [math.exp(sum(column) / len(logs)) for column in zip(*logs, strict=True)]
    print(f"{'geometric mean':24}" + "".join(f"{mean:8.3f}" for mean in means))


if __name__ == "__main__":
    run(main)
