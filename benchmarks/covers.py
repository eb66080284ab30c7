"""How much of an AllReduce's distance to the bound is the bound's? By prices of crossings, and a second look at them.

python benchmarks/covers.py [-t amd:2 ...] [-s 64KB] [-p greedy]

Of each cell: the best of `bounds`, what prices of the crossings between servers prove (`stretto.bounds.covers`),
whether `check_covers` adds them up to the same, and the planner's completion over both.
"""

from __future__ import annotations

import argparse
import time

from stretto.bounds import bounds, check_covers, covers_bound
from stretto.model.collective import Workload, make_collective
from stretto.model.units import parse_size
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-t", "--topologies", nargs="*", default=("amd:2",))
    parser.add_argument("-s", "--sizes", default="64KB", help="of a rank's shard, by comma")
    parser.add_argument("-p", "--planner", default="greedy")
    given = parser.parse_args()
    for spec in given.topologies:
        for size in given.sizes.split(","):
            show(spec, size, given.planner)


def show(spec: str, size: str, planner: str) -> None:
    """One cell."""
    net = load_topology(spec)
    c = make_collective("allreduce", net, shard_bytes=parse_size(size, "--sizes"))
    load = Workload((c,))
    bound = bounds(net, load)[0].seconds
    cpu = time.process_time()
    found = covers_bound(net, c, bound)
    cpu = time.process_time() - cpu
    ends = simulate(run_planner(planner, net, load)).completion_s
    cell = f"{spec:10} {size:6} bound {bound * 1e6:.3f} us"
    if found is None:
        print(f"{cell}, no prices; {planner} {ends * 1e6:.3f} us, {ends / bound:.4f} of it")
        return
    again = check_covers(net, c, (set(found.first), set(found.last)), *found.certificate)
    assert abs(again - found.seconds) <= 1e-9 * found.seconds, "the second look says otherwise"
    print(
        f"{cell}, by prices {found.seconds * 1e6:.3f} (checked; {cpu:.1f} s); "
        f"{planner} {ends * 1e6:.3f} us, {ends / bound:.4f} and {ends / found.seconds:.4f} of the better"
    )


if __name__ == "__main__":
    main()
