"""NCCL's rings, trees and choice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from networks import random_network, ring, star
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, Unsupported
from stretto.model.topology import ACCELERATOR, make_topology
from stretto.planners import run_planner
from stretto.planners.nccl.rings import find_rings, servers_of
from stretto.schedule.effort import Budget
from stretto.schedule.nccl_cost_model import Cluster, Lanes, expected_s
from stretto.schedule.nccl_releases import release_2_30
from stretto.schedule.two_trees import parents as parents_of
from stretto.schedule.two_trees import slice_count
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

KB, MB, GB = 10**3, 10**6, 10**9


def rings_of(net):
    return find_rings(net, net.accelerators.astype(np.int64), Budget())


def plan(name, net, kind, size, chunks=1, root=0, **options):
    work = Workload((make_collective(kind, net, size, chunks=chunks, root=root),))
    return run_planner(name, net, work, options=options)


@pytest.mark.parametrize(
    ("spec", "channels", "bandwidth"),
    [
        ("ring:8", 2, 25e9),
        ("dgx1", 6, 25e9),  # all six NVLinks of every GPU
        ("dgx2:1", 1, 125e9),
        ("dgx2:2", 8, 12.5e9),  # a rail each
        ("h100:2", 8, 50e9),  # in over a rail, out over the one before: the second server the other way round
        ("h100:3", 8, 50e9),
        ("ndv2:4", 1, 12.5e9),  # one NIC
        ("hypercube:4", 4, 25e9),
        ("fullmesh:8", 7, 25e9),
        ("sites:3,4?km=50", 2, 12.5e9),
    ],
)
def test_as_many_rings_as_the_links_allow(spec, channels, bandwidth):
    found = rings_of(load_topology(spec))
    assert (len(found.rings), found.bandwidth, found.relayed) == (channels, bandwidth, ())


@pytest.mark.parametrize("spec", ["dgx1", "dgx2:2", "amd:1", "amd:2", "ndv2:4", "torus:4x4", "fattree:4", "sites:3,4"])
def test_rings_have_bandwidth_of_their_own_and_visit_server_after_server(spec):
    net = load_topology(spec)
    found = rings_of(net)
    server = servers_of(net, net.accelerators)
    use = Counter(link for ring in found.rings for route in ring.routes for link in route)
    assert all(count * found.bandwidth <= net.bandwidth[link] * (1 + 1e-6) for link, count in use.items())
    for one in found.rings:
        assert sorted(one.order) == net.accelerators.tolist()
        turns = sum(server[a] != server[b] for a, b in zip(one.order, one.order[1:] + one.order[:1]))
        assert turns == (len(set(server.values())) if len(set(server.values())) > 1 else 0)


@pytest.mark.parametrize("seed", range(20))
def test_routes_of_a_ring_join_its_walk(seed):
    net = random_network(seed)
    for one in rings_of(net).rings:
        for a, b, route in zip(one.walk, one.walk[1:] + one.walk[:1], one.routes):
            at = a
            for link in route:
                assert net.src[link] == at
                at = int(net.dst[link])
            assert at == b
        assert set(one.order) <= set(one.walk)


def test_where_no_ring_exists_neighbours_are_relayed_and_the_plan_says_so():
    made = plan("nccl-ring", load_topology("line:4"), "allgather", 4000)
    assert made.meta["note"].endswith("gpu3→gpu0")
    assert plan("nccl-ring", ring(4), "allgather", 4000).meta.get("note") is None


def test_a_relay_is_not_sent_what_it_has_passed_on():
    made = plan("nccl-ring", load_topology("line:4"), "allgather", 4000)
    assert made.transfer_count == 4 * 3


@pytest.mark.parametrize("spec", ["dgx1", "dgx2:2", "ring:8"])
def test_a_large_allgather_uses_all_rings_fully(spec):
    net = load_topology(spec)
    found = rings_of(net)
    ranks = len(net.accelerators)
    ideal = GB * (ranks - 1) / ranks / (len(found.rings) * found.bandwidth)
    assert simulate(plan("nccl-ring", net, "allgather", GB)).completion_s == pytest.approx(ideal, rel=1e-3)
    assert simulate(plan("nccl-ring", net, "reducescatter", GB)).completion_s == pytest.approx(ideal, rel=1e-3)
    assert simulate(plan("nccl-ring", net, "allreduce", GB)).completion_s == pytest.approx(2 * ideal, rel=1e-3)


def test_dgx1_reaches_the_bound():
    made = plan("nccl-ring", load_topology("dgx1"), "allgather", GB)
    assert simulate(made).completion_s <= 1.001 * bounds(made.topology, made.workload)[0].seconds


@pytest.mark.parametrize(("kind", "steps"), [("allgather", 7), ("reducescatter", 7), ("allreduce", 14)])
def test_a_small_ring_takes_its_steps(kind, steps):
    net = ring(8, bandwidth=1e9, latency_s=1e-6)
    made = plan("nccl-ring", net, kind, 8000, channels="1")
    assert simulate(made).completion_s == pytest.approx(steps * 2e-6)


def test_a_chain_broadcasts_slice_after_slice():
    net = ring(8, bandwidth=1e9, latency_s=1e-6)
    made = plan("nccl-ring", net, "broadcast", 8000, channels="1", slices=4)
    assert simulate(made).completion_s == pytest.approx((7 + 3) * 2e-6 + 7 * 1e-6)


def test_slices_are_those_of_nccl():
    net = ring(4)
    assert plan("nccl-ring", net, "allgather", 16 * 2**20, channels="1").meta["slice_bytes"] == 2**20
    assert plan("nccl-ring", net, "broadcast", 16 * 2**20, channels="1").meta["slice_bytes"] == 2**19
    assert plan("nccl-ring", net, "allgather", 16 * 2**20, channels="1", slices=3).workload.chunk_count == 12


def test_chunks_that_were_asked_for_are_cut_on():
    made = plan("nccl-ring", ring(4), "allgather", 4000, chunks=5, channels="2", slices=1)
    assert made.workload.chunk_count == 4 * 5 * 2


def test_rings_are_used_again_by_more_channels():
    one, many = (plan("nccl-ring", ring(8), "allgather", 8 * MB, channels=n, slices=1) for n in ("auto", "8"))
    assert (one.meta["channels"], many.meta["channels"], len(many.meta["rings"])) == (2, 8, 2)


@pytest.mark.parametrize("channels", ["0", "33", "-1", "many", "²"])
def test_channels_must_be_a_number_that_nccl_has(channels):
    with pytest.raises(InputError, match="neither auto nor 1 to 32"):
        plan("nccl-ring", ring(3), "allgather", 300, channels=channels)


@pytest.mark.parametrize("name", ["nccl-ring", "nccl-tree", "nccl"])
def test_slices_are_not_negative(name):
    with pytest.raises(InputError, match="-1 slices"):
        plan(name, ring(3), "allreduce", 300, slices=-1)


@pytest.mark.parametrize("name", ["nccl-ring", "nccl-tree", "nccl", "shortest-path"])
def test_fewer_bytes_than_channels_and_ranks_are_enough(name):
    assert verify(plan(name, ring(8), "allreduce", 3)).ok


@pytest.mark.parametrize("name", ["nccl-ring", "nccl-tree"])
def test_some_accelerators_may_be_the_ranks(name):
    net = load_topology("dgx2:2")
    work = Workload((make_collective("allreduce", net, MB, ranks=[1, 5, 7, 20, 30]),))
    assert verify(run_planner(name, net, work)).ok


def test_the_first_tree_is_the_binary_tree_of_trees_cc():
    # the picture there, for 14: 8 below 0, 4 and 12 below 8, 13 below 12, odd ones leaves
    parents = parents_of(14, second=False, rooted=False)
    assert parents == [-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 12]


def test_the_second_tree_is_its_mirror_or_its_shift():
    assert parents_of(12, second=True, rooted=False)[::-1] == [
        11 - p if p >= 0 else -1 for p in parents_of(12, second=False, rooted=False)
    ]
    odd = parents_of(13, second=True, rooted=False)
    assert (odd[1], odd[9], odd[5], odd[0]) == (-1, 1, 9, 9)


@pytest.mark.parametrize("servers", range(3, 40))
@pytest.mark.parametrize("rooted", [False, True])
def test_no_server_but_a_root_is_inside_both_trees(servers, rooted):
    first, second = (set(parents_of(servers, s, rooted)) - {-1} for s in (False, True))
    roots = {parents_of(servers, s, rooted).index(-1) for s in (False, True)}
    assert len((first & second) - roots) <= 1


@pytest.mark.parametrize("root", [0, 9, 31])
@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_rooted_trees_begin_at_any_root(kind, root):
    net = load_topology("ndv2:4")
    made = plan("nccl-tree", net, kind, MB, root=root)
    assert verify(made).ok
    assert set(made.meta["roots"]) == {f"gpu{root}"}


def test_a_tree_is_deep_by_the_logarithm_of_its_servers():
    net = load_topology("fullmesh:16?latency=1us")
    ring_s, tree_s = (simulate(plan(n, net, "allreduce", 320)).completion_s for n in ("nccl-ring", "nccl-tree"))
    assert tree_s < 13e-6 < 30e-6 < ring_s


def test_slices_shrink_while_a_tree_has_too_few():
    assert slice_count(64 * 2**20, depth=4) == 128  # 512 KiB
    assert slice_count(8 * 2**20, depth=4) == 32  # 256 KiB
    assert slice_count(MB, depth=4) == 16  # 64 KiB
    assert slice_count(1000, depth=4) == 1


def test_what_trees_do_not_serve_they_refuse_by_name():
    with pytest.raises(Unsupported, match="nccl-tree does not serve allgather"):
        plan("nccl-tree", ring(4), "allgather", 400)


def test_nccl_takes_a_tree_for_small_and_a_ring_for_large():
    net = load_topology("ndv2:4")
    for by in ("simulation", "model"):
        assert plan("nccl", net, "allreduce", KB, by=by).meta["algorithm"] == "tree"
        assert plan("nccl", net, "allreduce", GB, by=by).meta["algorithm"] == "ring"


def test_nccl_by_simulation_is_the_better_of_both():
    net = star(6)
    for size in (60, 6 * MB):
        both = [simulate(plan(n, net, "allreduce", size)).completion_s for n in ("nccl-ring", "nccl-tree")]
        made = plan("nccl", net, "allreduce", size)
        assert simulate(made).completion_s == min(both)
        assert sorted(made.meta["expected_s"].values()) == sorted(both)


def test_nccl_has_trees_for_allreduce_alone():
    assert plan("nccl", ring(4), "broadcast", KB).meta["algorithm"] == "ring"


def test_the_model_takes_one_collective():
    net = ring(4)
    work = Workload(tuple(make_collective("allreduce", net, 400, start_s=s) for s in (0.0, 1.0)))
    with pytest.raises(Unsupported, match="one collective at a time"):
        run_planner("nccl", net, work, options={"by": "model"})
    assert verify(run_planner("nccl", net, work)).ok


def test_the_model_on_one_server_by_hand():
    # 8 GPUs, 6 channels of 25 GB/s: ring Simple 8.4 us + 14 steps of 3.4 us, 150 GB/s * 8/14
    expected = expected_s(Cluster.alike(8, 1, 6, 25e9), GB)
    assert expected["ring", "Simple"] == pytest.approx(56e-6 + 1 / (150 * 8 / 14))
    assert expected["ring", "LL"] == pytest.approx(6.6e-6 + 14 * 0.6e-6 + 1 / (37.5 * 8 / 14))
    assert expected["tree", "LL128"] == pytest.approx(14e-6 + 14 * 1.25e-6 + 1 / (138 * 7 / 9 / 2))


def test_the_model_between_servers_by_hand():
    # 4 servers of 8: 62 steps, 8 of them over the network; Simple 1.9 times as late
    expected = expected_s(Cluster.alike(32, 4, 1, 12.5e9), 64 * 2**15)
    assert expected["ring", "Simple"] == pytest.approx(1.9e-6 * (8.4 + 54 * 3.4 + 8 * 14) + 2**21 / (12.5e9 * 32 / 62))
    # a tree of 2 MiB reaches 0.6 of 10 GB/s by Simple, halved since all goes up and down
    assert expected["tree", "Simple"] == pytest.approx(2e-6 * (7 * 28 + 2 * 28) + 2**21 / (10e9 * 0.6 / 2))


RING, NVLS = Lanes(8, 48e9, 48e9), Lanes(8, 40e9, 48e9)
H100S = Cluster(32, 4, 16, RING, replace(RING, one_port=True), NVLS)
ONE_H100 = Cluster(8, 1, 24, *[Lanes(12, 30e9, 30e9, alike=True)] * 2, Lanes(8, 40e9, 60e9))
"""The graphs that NCCL 2.30.7 finds on servers of 8 H100 with 8 NICs (`python benchmarks/nccl_pack.py`)."""


@pytest.mark.parametrize(
    ("cluster", "kind", "size_bytes", "way", "microseconds"),
    [
        (ONE_H100, "broadcast", 1000, ("ring", "LL"), 7.20709),
        (ONE_H100, "allgather", GB, ("ring", "Simple"), 2462.76),
        (ONE_H100, "reducescatter", 10**6, ("ring", "LL"), 17.0057),
        (ONE_H100, "allreduce", 10**6, ("ring", "LL"), 27.4113),
        (ONE_H100, "allreduce", GB, ("nvls", "Simple"), 3701.47),
        (H100S, "broadcast", 10**6, ("ring", "LL"), 142.02),
        (H100S, "reduce", GB, ("ring", "Simple"), 3060.57),
        (H100S, "allgather", 10**6, ("ring", "LL128"), 82.4996),
        (H100S, "allreduce", 1000, ("tree", "LL"), 35.3153),
        (H100S, "allreduce", 10**6, ("tree", "LL128"), 82.4033),
        (H100S, "allreduce", GB, ("nvls_tree", "Simple"), 5431.4),
    ],
)
def test_the_model_of_release_2_30_is_what_its_own_code_says(cluster, kind, size_bytes, way, microseconds):
    """The times and choices that NCCL's own tuning.cc prints, compiled for a CPU."""
    expected = expected_s(cluster, size_bytes, kind, release_2_30(90))
    assert min(expected, key=expected.__getitem__) == way
    assert expected[way] == pytest.approx(microseconds * 1e-6, rel=1e-5)


def test_the_search_for_rings_is_counted_and_ends_with_the_budget():
    """Twelve ranks, each with three links of other bandwidths: with few steps the first that gives a ring is the last."""
    widths = np.random.default_rng(4).uniform(1e9, 9e9, (12, 12))
    links = [(a, b, widths[a, b], 0.0) for a in range(12) for b in range(12) if 1 <= (b - a) % 12 <= 3]
    net = make_topology("uneven", [ACCELERATOR] * 12, links)
    ample, scarce = Budget(), Budget(100.0)
    many, few = (find_rings(net, net.accelerators.astype(np.int64), budget) for budget in (ample, scarce))
    assert 100 < scarce.spent < ample.spent / 3
    assert 0 < len(few.rings) * few.bandwidth < len(many.rings) * many.bandwidth
