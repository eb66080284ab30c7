"""Would an exact model ever win in auto, and within what CPU time?

python benchmarks/exact_candidates.py [-t SPEC ...] [-s 1KB,64KB,1MB] [-c allgather,...] [--limit 10] [-n 4]

Small networks of benchmarks/grid.py and, drawn as in benchmarks/heldout.py, random graphs of up to 8 ranks. Where
`auto` is not within `turns.NEAR` of the bound each exact model is asked, with each number of chunks; it ends by its own
proof or at the limit. A win is a plan that ends at least 0.1 % sooner than auto's.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from grid import KINDS
from heldout_networks import uneven_graph
from piped import run
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Infeasible, Unsupported
from stretto.model.topology import Topology
from stretto.model.units import parse_size
from stretto.planners import run_planner
from stretto.planners.auto.turns import NEAR
from stretto.simulate import simulate
from stretto.topologies import load_topology

TOPOLOGIES = (
    *("dgx1", "ndv2:2", "amd:1", "ring:8", "torus:4x4", "sites:3,4"),
    *("zoo:Abilene", "zoo:Cesnet", "zoo:HiberniaIreland", "zoo:Napnet"),
)
EXACT = (
    ("milp-allgather", {}),
    ("teccl", {"mode": "slow", "epochs": "from-heuristic"}),
    ("teccl", {"mode": "fast", "epochs": "from-heuristic"}),
)
SMALL = 8
SOONER = 0.999


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--topologies", nargs="*", default=TOPOLOGIES)
    parser.add_argument("-s", "--sizes", default="1KB,64KB,1MB", help="of a rank's shard, by comma")
    parser.add_argument("-c", "--collectives", default=",".join(KINDS), help="by comma")
    parser.add_argument("--chunks", default="1,2", help="by comma")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds for a model")
    parser.add_argument("-n", "--networks", type=int, default=4, help="how many random ones")
    given = parser.parse_args()
    nets = [replace(load_topology(spec), name=spec) for spec in given.topologies] + small_random(given.networks)
    asked = won = quick = 0
    for net in nets:
        for kind in given.collectives.split(","):
            for size in given.sizes.split(","):
                shard = parse_size(size, "size")
                bound = bounds(net, load(net, kind, shard, 1))[0].seconds
                auto, _ = ended(net, kind, shard, 1, "auto", {}, None)
                if auto is None or auto <= NEAR * bound:
                    continue
                best = (float("inf"), 0.0, "none")
                for planner, options in EXACT:
                    for chunks in map(int, given.chunks.split(",")):
                        seconds, cpu = ended(net, kind, shard, chunks, planner, options, given.limit)
                        name = " ".join((planner, *options.values(), f"{chunks} chunks"))
                        best = min(best, (float("inf") if seconds is None else seconds, cpu, name))
                asked, win = asked + 1, best[0] < SOONER * auto
                won, quick = won + win, quick + (win and best[1] <= 1.0)
                print(
                    f"{net.name:20} {kind:14} {size:6} auto {auto / bound:7.4f} exact {best[0] / bound:7.4f} "
                    f"{best[1]:6.2f} s {best[2]}{'  WINS' if win else ''}",
                    flush=True,
                )
    print(f"{asked} cells where auto is not near: an exact model wins in {won}, in {quick} within 1 s of CPU")


def small_random(count: int) -> list[Topology]:
    """The first so many of a sequence of random graphs that are small."""
    found: list[Topology] = []
    seed = 0
    while len(found) < count:
        net = uneven_graph(np.random.default_rng(seed))
        if len(net.accelerators) <= SMALL:
            found.append(net)
        seed += 1
    return found


def load(net: Topology, kind: str, shard: int, chunks: int) -> Workload:
    return Workload((make_collective(kind, net, shard_bytes=shard, chunks=chunks),))


def ended(
    net: Topology, kind: str, shard: int, chunks: int, planner: str, options: dict[str, str], limit: float | None
) -> tuple[float | None, float]:
    """When a plan ends, None if there is none, and the CPU seconds that it took."""
    cpu = time.process_time()
    try:
        plan = run_planner(planner, net, load(net, kind, shard, chunks), time_limit_s=limit, options=options)
    except (Unsupported, Infeasible):
        return None, 0.0
    return simulate(plan).completion_s, time.process_time() - cpu


if __name__ == "__main__":
    run(main)
