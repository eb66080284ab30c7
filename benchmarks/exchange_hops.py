"""Can sums meet in as few hops as the farthest is away? Exactly, by CP-SAT.

python benchmarks/exchange_hops.py [-t ring:8 torus:4x4 ...] [--shard 1KB]

The bound by distance asks that each rank's farthest contribution comes to it; an exchange must bring every rank every
contribution once, and what a rank sends always has its own in it (docs/decisions/0003). Among accelerators, with links
of equal latency and in as many hops as the farthest rank is away from each, that is: one message a link at most, of its
source's contribution and of some of the messages that came there before; those that come to a rank make up all others.
Copies of the result cannot come in time, since a neighbour would have to have it a hop sooner; copies of parts of a sum
to whose contributions the receiver belongs are not looked at. Where it cannot be, AllReduce takes a hop more.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from stretto.bounds import bounds
from stretto.bounds.latency import distances
from stretto.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.solvers import Model, solve
from stretto.topologies import load_topology
from stretto.topology import ACCELERATOR, Topology
from stretto.units import parse_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-t", "--topologies", nargs="*", default=("ring:8", "torus:4x4"))
    parser.add_argument("--shard", default="1KB", help="of a rank")
    given = parser.parse_args()
    for spec in given.topologies:
        net = load_topology(spec)
        far = np.round(distances(net, 0.0) / net.latency_s[0]).astype(int)
        hops = int(far.max())
        same = (net.kind == ACCELERATOR).all() and np.ptp(net.latency_s) == 0 and (far.max(axis=0) == hops).all()
        assert same, f"{spec}: accelerators, equal latencies, and for each rank another that is as far as any"
        cpu = time.process_time()
        can = can_end(net, hops)
        cpu = time.process_time() - cpu
        load = Workload((make_collective("allreduce", net, shard_bytes=parse_size(given.shard, "--shard")),))
        bound = bounds(net, load)[0].seconds
        least = bound if can else max(bound, (hops + 1) * float(net.latency_s[0]))
        ends = simulate(run_planner("greedy", net, load)).completion_s
        print(
            f"{spec:10} an exchange in {hops} hops: {'yes' if can else 'none'} ({cpu:.1f} s); "
            f"bound {bound * 1e6:.3f} us, at least {least * 1e6:.3f}, greedy {ends * 1e6:.3f} ({ends / least:.3f})"
        )


def can_end(net: Topology, hops: int) -> bool:
    """Whether all ranks can have all contributions after so many hops."""
    links, nodes = net.link_count, net.node_count
    src, dst = net.src.astype(np.int64), net.dst.astype(np.int64)
    model = Model()
    used = model.columns(links, integer=True)
    sent = model.columns(links, 0, hops - 1, integer=True)
    content = model.columns(links * nodes, integer=True).reshape(links, nodes)
    before, after = (k.ravel() for k in np.meshgrid(np.arange(links), np.arange(links), indexing="ij"))
    joined = (dst[before] == src[after]) & (src[before] != dst[after])
    before, after = before[joined], after[joined]
    pairs = len(before)
    carried = model.columns(pairs, integer=True)  # whether the message before is in the one after
    brought = model.columns(pairs * nodes, integer=True).reshape(pairs, nodes)
    each, every = np.arange(pairs), np.arange(pairs * nodes)
    # what is in a message was sent a hop before
    model.rows(pairs, 1 - hops, np.inf, (each, sent[after], 1), (each, sent[before], -1), (each, carried, -hops))
    # brought = carried and content
    wide = np.repeat(carried, nodes)
    model.rows(len(every), -np.inf, 0, (every, brought.ravel(), 1), (every, wide, -1))
    model.rows(len(every), -np.inf, 0, (every, brought.ravel(), 1), (every, content[before].ravel(), -1))
    model.rows(
        len(every), -np.inf, 1, (every, wide, 1), (every, content[before].ravel(), 1), (every, brought.ravel(), -1)
    )
    # a message is its source's contribution and what was brought there
    own = np.zeros((links, nodes))
    own[np.arange(links), src] = 1.0
    rows = np.arange(links * nodes)
    into = (after[:, None] * nodes + np.arange(nodes)).ravel()
    model.rows(
        len(rows), 0, 0, (rows, content.ravel(), 1), (into, brought.ravel(), -1),
        (rows, np.repeat(used, nodes), -own.ravel()),
    )  # fmt: skip
    # every rank gets each other contribution once, and its own never
    gets = (dst[:, None] * nodes + np.arange(nodes)).ravel()
    needed = 1.0 - np.eye(nodes).ravel()
    model.rows(nodes * nodes, needed, needed, (gets, content.ravel(), 1))
    found = solve(model, solver="cp-sat", time_limit_s=600.0, gap=0.0)
    assert found.status in ("optimal", "infeasible"), f"not decided: {found.status}"
    return found.x is not None


if __name__ == "__main__":
    main()
