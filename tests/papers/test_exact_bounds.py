"""Exact throughput bounds: the values of ForestColl's networks and of ours, as fractions.

Zhao et al., "ForestColl" (arXiv 2402.06787) and worked-out values of our own, for capacities in GB/s.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from stretto.bounds import best_lengths, bottleneck, check_cut, check_lengths, tree_rates
from stretto.model.collective import make_collective
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology

GB = 10**9


def network(nodes: int, switches: int, links: dict[tuple[int, int], float]) -> Topology:
    """Accelerators, then switches; links both ways, in GB/s."""
    rows = [(a, b, w * GB, 1e-6) for (u, v), w in links.items() for a, b in ((u, v), (v, u))]
    return make_topology("paper", [ACCELERATOR] * nodes + [SWITCH] * switches, rows)


def dgx1(lane: float, double: int = 2) -> Topology:
    """The hybrid cube mesh: of V100 (6 lanes a GPU, some links double) and of P100 (4 lanes)."""
    twice = [(0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7)]
    once = [(0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6)]
    return network(8, 0, dict.fromkeys(twice, double * lane) | dict.fromkeys(once, lane))


def ring(n: int, both: bool = True) -> Topology:
    links = [(v, (v + 1) % n) for v in range(n)]
    if not both:
        return make_topology("ring", [ACCELERATOR] * n, [(a, b, GB, 0.0) for a, b in links])
    return network(n, 0, dict.fromkeys(links, 1.0))


def torus() -> Topology:
    right = [(4 * r + c, 4 * r + (c + 1) % 4) for r in range(4) for c in range(4)]
    down = [(4 * r + c, 4 * ((r + 1) % 4) + c) for r in range(4) for c in range(4)]
    return network(16, 0, dict.fromkeys(right + down, 1.0))


def servers(counts: list[int], inside: float, across: float, joins: list[tuple[int, int]]) -> Topology:
    """GPUs on a switch a site; sites joined by links between their switches."""
    total = sum(counts)
    site = [s for s, n in enumerate(counts) for _ in range(n)]
    links = {(g, total + site[g]): inside for g in range(total)}
    links |= {(total + a, total + b): across for a, b in joins}
    return network(total, len(counts), links)


def a100() -> Topology:
    """Two boxes of 8: 300 to the NVSwitch, 25 to the network's switch, each way."""
    links = {(g, 16 + g // 8): 300.0 for g in range(16)} | {(g, 18): 25.0 for g in range(16)}
    return network(16, 3, links)


def gpus1024() -> Topology:
    links = {(g, 1024 + g // 8): 300.0 for g in range(1024)} | {(g, 1152): 25.0 for g in range(1024)}
    return network(1024, 129, links)


NETWORKS = {
    "dgx1v": dgx1(25), "dgx1p": dgx1(20, 1), "dgx2": network(16, 1, {(g, 16): 150.0 for g in range(16)}),
    "ring8": ring(8), "ring8 one way": ring(8, both=False), "torus4x4": torus(),
    "two sites": servers([8, 8], 150, 25, [(0, 1)]), "12 and 4": servers([12, 4], 150, 25, [(0, 1)]),
    "a100": a100(),
}  # fmt: skip

# 1/x*: seconds for a shard of 1 GB
ALLGATHER = {
    "dgx1v": "7/150", "dgx1p": "7/80", "dgx2": "1/10", "ring8": "7/2", "ring8 one way": "7", "torus4x4": "15/4",
    "two sites": "8/25", "12 and 4": "12/25", "a100": "3/65",
}  # fmt: skip

# rates of a buffer, GB/s: by ReduceScatter and AllGather, by trees of unequal roots, by any means at all
ALLREDUCE = {
    "dgx1v": ("600/7", "600/7"), "dgx1p": ("320/7", "320/7"), "dgx2": ("80", "80"), "ring8": ("8/7", "8/7"),
    "ring8 one way": ("4/7", "4/7"), "torus4x4": ("32/15", "32/15"), "two sites": ("25", "25"),
    "12 and 4": ("50/3", "25"),
}  # fmt: skip

ALLTOALL = {
    "dgx1v": "75", "dgx1p": "40", "dgx2": "160", "ring8": "1", "ring8 one way": "2/7", "torus4x4": "2",
    "two sites": "25/4", "12 and 4": "25/3",
}  # fmt: skip


def seconds(net: Topology, kind: str, shard: int = GB) -> Fraction:
    collective = make_collective(kind, net, shard_bytes=shard)
    found = bottleneck(net, collective)
    assert found is not None
    inside = {v for v in range(net.node_count) if found.inside[v]}
    assert check_cut(net, collective, inside) == found.seconds
    return found.seconds


@pytest.mark.parametrize("name", ALLGATHER)
def test_the_allgather_bound_is_the_papers_fraction(name):
    assert seconds(NETWORKS[name], "allgather") == Fraction(ALLGATHER[name])
    assert seconds(NETWORKS[name], "reducescatter") == Fraction(ALLGATHER[name])


def test_1024_gpus_are_bounded_by_all_but_a_box():
    assert seconds(gpus1024(), "allgather", shard=GB // 1000) == Fraction(127, 25) / 1000


@pytest.mark.parametrize("name", ALLREDUCE)
def test_allreduce_by_trees_reaches_the_rate_of_the_table(name):
    net = NETWORKS[name]
    ranks = len(net.accelerators)
    composed, trees = map(Fraction, ALLREDUCE[name])
    assert ranks * 1 / (2 * seconds(net, "allgather")) == composed
    assert tree_rates(net).rate / GB == pytest.approx(float(trees), rel=1e-6)


def test_trees_of_unequal_roots_are_optimal_where_one_site_is_larger():
    net = NETWORKS["12 and 4"]
    found = bottleneck(net, make_collective("allreduce", net, 25 * GB))
    assert found is not None
    assert found.seconds == 1


@pytest.mark.parametrize("name", ALLTOALL)
def test_the_alltoall_bound_is_the_rate_of_the_concurrent_flow(name):
    net = NETWORKS[name]
    ranks = len(net.accelerators)
    collective = make_collective("alltoall", net, shard_bytes=GB)
    found = best_lengths(net, collective)
    assert found is not None
    assert check_lengths(net, collective, found.length.tolist()) == found.seconds
    assert float(ranks / found.seconds) == pytest.approx(float(Fraction(ALLTOALL[name])), rel=1e-4)


@pytest.mark.parametrize(
    ("counts", "joins", "gain"),
    [
        ([4, 4, 4], [(0, 1), (1, 2)], "4/3"), ([8, 4, 4], [(0, 1), (1, 2)], "3/2"), ([8, 2, 2], [(0, 1), (1, 2)], "5/3"),
        ([4, 4, 4, 4], [(0, 1), (0, 2), (0, 3)], "3/2"),
    ],
)  # fmt: skip
def test_allreduce_by_trees_gains_over_reducescatter_and_allgather(counts, joins, gain):
    net = servers(counts, 150, 25, joins)
    composed = sum(counts) / float(seconds(net, "allgather") + seconds(net, "reducescatter"))
    assert tree_rates(net).rate / GB / composed == pytest.approx(float(Fraction(gain)), rel=1e-6)
