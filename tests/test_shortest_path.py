"""Shortest paths as trees and one by one, and how trees become transfers."""

from __future__ import annotations

import numpy as np
import pytest

from networks import random_network, ring, star
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.topology import ACCELERATOR, ROUTER, SWITCH, make_topology
from stretto.planners import run_planner
from stretto.schedule.shortest_trees import shortest_trees
from stretto.schedule.trees import divide
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

US = 1e-6
EVERY_KIND = ("allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "reduce", "scatter", "gather")


def plan(net, kind, size, **options):
    return run_planner("shortest-path", net, Workload((make_collective(kind, net, size),)), options=options)


def triangle(direct_bandwidth: float):
    """0 and 2 joined directly, and by two fast links over 1."""
    links = [(0, 1, 1e9, US), (1, 2, 1e9, US), (0, 2, direct_bandwidth, US)]
    return make_topology(
        "triangle", [ACCELERATOR] * 3, [x for a, b, w, t in links for x in ((a, b, w, t), (b, a, w, t))]
    )


def test_a_large_chunk_goes_round_a_slow_link_and_a_small_one_over_it():
    net = triangle(0.2e9)
    large, small = (shortest_trees(net, np.array([0]), np.array([size])) for size in (1e6, 10.0))
    assert (large.toward[0, 2], small.toward[0, 2]) == (1, 0)
    assert shortest_trees(net, np.array([0]), np.array([0.0])).toward[0, 2] == 0


def test_a_path_through_a_switch_takes_the_time_of_its_slowest_link_once():
    # over the switch 1 us + 1000 B at 1 GB/s; over the accelerator twice that, at no latency
    links = [(0, 2, 1e9, 0.5 * US), (2, 1, 1e9, 0.5 * US), (0, 3, 1e9, 0.0), (3, 1, 1e9, 0.1 * US)]
    net = make_topology("two ways", [ACCELERATOR, ACCELERATOR, SWITCH, ACCELERATOR], links)
    trees = shortest_trees(net, np.array([0]), np.array([1000.0]))
    assert trees.toward[0, 1] == 0
    assert trees.routes[trees.hop[0, 1]].tolist() == [0, 1]


def test_paths_to_a_root_follow_links_in_their_direction():
    links = [(0, 1, 1e9, US), (1, 2, 1e9, US), (2, 0, 1e9, US)]
    net = make_topology("one way round", [ACCELERATOR] * 3, links)
    inward = shortest_trees(net, np.array([0]), np.array([1.0]), inward=True)
    assert inward.toward[0].tolist() == [-1, 2, 0]
    assert inward.routes[inward.hop[0, 1]].tolist() == [1]


def test_no_path_leads_over_a_node_that_neither_stores_nor_passes_on():
    links = [(0, 1, 1e9, 0), (1, 2, 1e9, 0), (0, 2, 1e6, US)]
    net = make_topology("wall", [ACCELERATOR, SWITCH, ACCELERATOR], links, transit=[False] * 3)
    assert shortest_trees(net, np.array([0]), np.array([1e6])).routes.values.tolist() == [2]


@pytest.mark.parametrize("seed", range(8))
def test_a_lone_chunk_arrives_when_dijkstra_says(seed):
    net = random_network(seed, switches=False, routers=False)
    far = plan(net, "scatter", 7000)
    alone = shortest_trees(net, np.array([0]), np.array([1000.0]))
    assert set(far.dst.values.tolist()) <= set(np.flatnonzero(alone.toward[0] >= 0).tolist())
    last = len(net.accelerators) - 1
    one = run_planner("shortest-path", net, Workload((make_collective("multicast", net, 1000, receivers=[last]),)))
    v, expected = last, 0.0
    while v != 0:
        link = int(alone.routes[alone.hop[0, v]][0])
        expected += net.latency_s[link] + 1000 / net.bandwidth[link]
        v = int(alone.toward[0, v])
    assert simulate(one).completion_s == pytest.approx(expected, rel=1e-12)


def test_a_switch_that_replicates_is_sent_to_once():
    assert plan(star(4), "broadcast", 100).dst.lengths.tolist() == [3]
    assert plan(star(4, replicates=False), "broadcast", 100).dst.lengths.tolist() == [1, 1, 1]
    assert plan(star(4), "broadcast", 100, copy=False).dst.lengths.tolist() == [1, 1, 1]


def test_receivers_behind_one_link_get_one_copy_or_one_each():
    net = make_topology("line", [ACCELERATOR] * 3, [(0, 1, 1e9, 0), (1, 2, 1e9, 0), (2, 1, 1e9, 0), (1, 0, 1e9, 0)])
    shared, separate = plan(net, "broadcast", 1000), plan(net, "broadcast", 1000, copy=False)
    assert (shared.transfer_count, separate.transfer_count) == (2, 3)
    assert simulate(shared).completion_s == pytest.approx(2 * US)
    assert simulate(separate).completion_s == pytest.approx(3 * US)


@pytest.mark.parametrize("spec", ["sites:2,3", "zoo:Abilene", "ndv2:4", "dgx2:2"])
@pytest.mark.parametrize("kind", ["allgather", "broadcast", "alltoall"])
def test_separate_copies_verify(spec, kind):
    assert verify(plan(load_topology(spec), kind, 64_000, copy=False)).ok


def test_sums_cannot_be_sent_one_by_one():
    with pytest.raises(Unsupported, match="does not serve sums"):
        plan(ring(4), "reduce", 100, copy=False)


def test_latency_alone_may_be_the_cost():
    net = triangle(0.2e9)
    assert plan(net, "broadcast", 10**6).src.tolist() == [0, 1]
    assert plan(net, "broadcast", 10**6, cost="alpha").src.tolist() == [0, 0]


def test_a_sum_takes_the_paths_of_a_copy_backwards():
    net = load_topology("dgx1")
    forth, back = (plan(net, kind, 5000) for kind in ("broadcast", "reduce"))
    edges = sorted(zip(forth.dst.values.tolist(), forth.src.tolist()))
    assert edges == sorted(zip(back.src.tolist(), back.dst.values.tolist()))


def test_accelerators_outside_the_collective_relay():
    net = ring(6)
    work = Workload(tuple(make_collective(k, net, 900, ranks=[0, 2, 4]) for k in ("allgather", "allreduce")))
    made = run_planner("shortest-path", net, work)
    assert verify(made).ok
    assert 1 in made.src


def test_routers_are_cut_through():
    links = [(0, 1, 1e9, US), (1, 2, 1e9, US), (2, 1, 1e9, US), (1, 0, 1e9, US)]
    net = make_topology("routed", [ACCELERATOR, ROUTER, ACCELERATOR], links)
    made = plan(net, "broadcast", 1000)
    assert made.route[0].tolist() == [0, 1]
    assert simulate(made).completion_s == pytest.approx(3 * US)


@pytest.mark.parametrize("parts", [1, 3, 7, 100])
def test_divided_chunks_cover_what_they_were(parts):
    whole = make_collective("alltoall", ring(3), 100, chunks=4)
    fine, part = divide(whole, parts)
    assert fine.chunk_bytes.min() >= 1 and fine.chunk_bytes.sum() == whole.chunk_bytes.sum()
    assert len(part) == np.minimum(whole.chunk_bytes, parts).sum() and part.max() < parts
    assert verify(run_planner("shortest-path", ring(3), Workload((fine,)))).ok


def test_a_chunk_of_terabytes_is_divided_without_overflow():
    whole = make_collective("allreduce", ring(3), 2**62)
    assert divide(whole, 1000)[0].chunk_bytes.sum() == 2**62
