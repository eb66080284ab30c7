"""In how few hops can sums meet, and what does a plan of so few give? Exactly, by CP-SAT.

python benchmarks/exchange_hops.py [-t ring:6 ring:8 ...] [--shard 1KB]

The bound by distance asks that each rank's farthest contribution comes to it. `planners/exchange_exact.py` asks whether
all ranks can end in as many hops, with sums and copies; the plan that it makes of the answer is verified and simulated.
"""

from __future__ import annotations

import argparse
import time

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.units import parse_size
from stretto.planners.greedy.exchange.exact import in_fewest_hops
from stretto.planners.greedy.exchange.hubs import exchanged
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

TOPOLOGIES = ("ring:4", "ring:5", "ring:6", "ring:7", "ring:8", "mesh:2x3", "dgx1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--topologies", nargs="*", default=TOPOLOGIES)
    parser.add_argument("--shard", default="1KB", help="of a rank")
    given = parser.parse_args()
    for spec in given.topologies:
        net = load_topology(spec)
        load = Workload((make_collective("allreduce", net, shard_bytes=parse_size(given.shard, "--shard")),))
        bound = bounds(net, load)[0].seconds
        added = exchanged(net, load, 1, 0, 2 * bound)
        beside = "none" if added is None else f"{simulate(added).completion_s / bound:.3f}"
        cpu = time.process_time()
        plan = in_fewest_hops(net, load)
        cpu = time.process_time() - cpu
        if plan is None:
            print(f"{spec:9} not found in {cpu:.1f} s, exchanges that only add {beside} of the bound")
            continue
        verdict = verify(plan)
        assert verdict.ok, verdict.finding
        ends = simulate(plan).completion_s
        print(f"{spec:9} {ends / bound:.3f} of the bound in {cpu:.1f} s, exchanges that only add {beside}")


if __name__ == "__main__":
    main()
