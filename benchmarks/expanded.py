"""How much of the distance to the bound is the bound's? By prices of links at each time, and a second look at them.

python benchmarks/expanded.py [-t amd:1 ...] [-c allgather,reducescatter] [-s 64KB] [--parts 1] [-p greedy]

For AllGather, ReduceScatter and others whose pieces are copied from one holder, or summed for one rank, and for
AllReduce (prices of what crosses between servers). Of each cell: the best of `bounds`, what the prices prove
(`stretto.bounds.expanded` and `.covers`), whether `check_expanded` and `check_covers` add them up to the same, and the
planner's completion over both.
"""

from __future__ import annotations

import argparse
import time

from stretto.bounds import bounds, check_covers, check_expanded, covers_bound, expanded_bound
from stretto.model.collective import Collective, Workload, make_collective
from stretto.model.topology import Topology
from stretto.model.units import parse_size
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-t", "--topologies", nargs="*", default=("amd:1",))
    parser.add_argument("-c", "--collectives", default="allgather,reducescatter", help="by comma")
    parser.add_argument("-s", "--sizes", default="64KB", help="of a rank's shard, by comma")
    parser.add_argument("-p", "--planner", default="greedy")
    parser.add_argument("--parts", type=int, default=1, help="into how many slots the shortest latency is cut")
    given = parser.parse_args()
    for spec in given.topologies:
        for kind in given.collectives.split(","):
            for size in given.sizes.split(","):
                show(spec, kind, size, given.planner, given.parts)


def proved(net: Topology, c: Collective, bound: float, parts: int) -> float | None:
    """What prices prove, rechecked; None if nothing."""
    if c.kind == "allreduce":
        covers = covers_bound(net, c, bound)
        if covers is None:
            return None
        seconds, again = (
            covers.seconds,
            check_covers(net, c, (set(covers.first), set(covers.last)), *covers.certificate),
        )
    else:
        found = expanded_bound(net, c, bound, parts)
        if found is None:
            return None
        pairs = list(zip(found.piece.tolist(), found.rank.tolist(), strict=True))
        seconds, again = found.seconds, check_expanded(net, c, found.slot_s, pairs, found.price.tolist())
    assert abs(again - seconds) <= 1e-9 * seconds, "the second look says otherwise"
    return seconds


def show(spec: str, kind: str, size: str, planner: str, parts: int) -> None:
    """One cell."""
    net = load_topology(spec)
    c = make_collective(kind, net, shard_bytes=parse_size(size, "--sizes"))
    load = Workload((c,))
    bound = bounds(net, load)[0].seconds
    cpu = time.process_time()
    found = proved(net, c, bound, parts)
    cpu = time.process_time() - cpu
    ends = simulate(run_planner(planner, net, load)).completion_s
    cell = f"{spec:10} {kind:14} {size:6} bound {bound * 1e6:.3f} us"
    if found is None:
        print(f"{cell}, no prices; {planner} {ends * 1e6:.3f} us, {ends / bound:.4f} of it")
        return
    best = max(bound, found)
    print(
        f"{cell}, by prices {found * 1e6:.3f} (checked; {cpu:.1f} s); "
        f"{planner} {ends * 1e6:.3f} us, {ends / bound:.4f} and {ends / best:.4f} of the better"
    )


if __name__ == "__main__":
    main()
