"""SCALE-CCL on three uneven sites: how near to the bound are its two sets of rules, beside `auto`?

Four GPUs a site; two of them have a border link of 12.5 GB/s each, to one router or to one each; WAN links of 5 to
25 GB/s. AllGather and ReduceScatter of 250 MB a rank; completion / bound of verified plans. ``--rates`` sweeps the
least rate at which a transmission may start on links that others use (interpreted kernels, some minutes).
"""

from __future__ import annotations

import os
import statistics
import sys
from itertools import combinations, product

if "--rates" in sys.argv:
    os.environ["STRETTO_KERNELS"] = "python"

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.topology import ACCELERATOR, ROUTER, Topology, make_topology
from stretto.planners import run_planner
from stretto.planners.scale_ccl import kernel_transmission
from stretto.simulate import simulate
from stretto.verify import verify

WANS = ((5.0, 12.5, 25.0), (5.0, 10.0, 25.0), (25.0, 5.0, 5.0), (5.0, 25.0, 25.0))
"""GB/s between the first two sites, the first and the third, the second and the third."""
GPUS, BORDERS = 4, 2
SHARD_BYTES = 250_000_000
CHUNKS = (1, 4)


def three_sites(wan: tuple[float, ...], routers: int) -> Topology:
    """Sites of four GPUs that are all joined, and of one or two routers."""
    size = GPUS + routers
    links = []
    for base in range(0, 3 * size, size):
        links += [(base + a, base + b, 50e9, 0.7e-6) for a, b in combinations(range(GPUS), 2)]
        links += [(base + k, base + GPUS + k % routers, 12.5e9, 0.7e-6) for k in range(BORDERS)]
    for (a, b), width in zip(combinations(range(3), 2), wan, strict=True):
        links += [(a * size + GPUS + r, b * size + GPUS + r, width * 1e9, 250e-6) for r in range(routers)]
    kinds = 3 * ([ACCELERATOR] * GPUS + [ROUTER] * routers)
    both = [(x, y, *link) for a, b, *link in links for x, y in ((a, b), (b, a))]
    return make_topology("three uneven sites", kinds, both)


def over_bound(net: Topology, kind: str, chunks: int, planner: str, **options: object) -> float:
    work = Workload((make_collective(kind, net, shard_bytes=SHARD_BYTES, chunks=chunks),))
    plan = run_planner(planner, net, work, options=options)
    verdict = verify(plan)
    assert verdict.ok, verdict.finding
    return simulate(plan).completion_s / bounds(net, work)[0].seconds


def rates() -> None:
    nets = [three_sites(wan, routers) for wan, routers in product(WANS, (1, 2))]
    for rate in (0.1, 0.2, 0.3, 0.4, 0.6):
        kernel_transmission.LEAST_RATE = rate
        ratios = [over_bound(net, "reducescatter", chunks, "scale-ccl") for net, chunks in product(nets, CHUNKS)]
        print(f"- least rate {rate}: {statistics.geometric_mean(ratios):.3f}, worst {max(ratios):.3f}", flush=True)


def main() -> None:
    if "--rates" in sys.argv:
        rates()
        return
    print("| WAN, GB/s | routers a site | collective | eager, 1 | 4 chunks | paper, 1 | 4 chunks | auto |")
    print("|---|---|---|---|---|---|---|---|")
    for wan, routers, kind in product(WANS, (1, 2), ("allgather", "reducescatter")):
        net = three_sites(wan, routers)
        ratios = [over_bound(net, kind, c, "scale-ccl", rules=r) for r, c in product(("eager", "paper"), CHUNKS)]
        ratios.append(over_bound(net, kind, 1, "auto"))
        widths = ", ".join(f"{w:g}" for w in wan)
        print(f"| {widths} | {routers} | {kind} | {' | '.join(f'{x:.3f}' for x in ratios)} |", flush=True)


if __name__ == "__main__":
    main()
