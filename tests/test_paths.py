"""Paths that load links alike, and the lengths that their prices make up."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from networks import random_network
from stretto.bounds import best_lengths, bounds, check_lengths, concurrent_flow
from stretto.bounds.lengths import SOLVED_UP_TO
from stretto.model.collective import Workload, make_collective
from stretto.model.demand import alltoallv
from stretto.model.errors import Unsupported
from stretto.model.topology import ACCELERATOR, ROUTER, make_topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def ratio(net, collective) -> float:
    """Completion over the bound, of a plan that verifies."""
    work = Workload((collective,))
    plan = run_planner("paths", net, work)
    assert verify(plan).ok
    return simulate(plan).completion_s / bounds(net, work)[0].seconds


@pytest.mark.parametrize("spec", ["dgx1", "ndv2:2", "amd:1", "torus:4x4", "mesh:3x5", "sites:2,8", "zoo:Abilene"])
def test_a_large_alltoall_comes_near_the_bound(spec):
    net = load_topology(spec)
    assert ratio(net, make_collective("alltoall", net, shard_bytes=10**8)) < 1.02


@pytest.mark.parametrize("spec", ["torus:4x4", "dgx1", "zoo:Abilene"])
def test_an_uneven_alltoall_comes_near_the_bound(spec):
    net = load_topology(spec)
    n = len(net.accelerators)
    demand = np.random.default_rng(1).zipf(1.5, (n, n)).clip(0, 100) * 10**6
    assert ratio(net, alltoallv(net, demand)) < 1.03


def test_a_scatter_leaves_its_root_by_all_links():
    net = load_topology("torus:4x4")
    assert ratio(net, make_collective("scatter", net, 10**9, root=5)) < 1.02


def test_less_effort_makes_fewer_transfers_and_the_same_plan_every_time():
    net = load_topology("torus:8x8")
    work = Workload((make_collective("alltoall", net, 64_000),))
    quick, again, thorough = (run_planner("paths", net, work, effort=e) for e in ("quick", "quick", "thorough"))
    assert verify(quick).ok
    assert quick.digest() == again.digest()
    assert quick.transfer_count <= thorough.transfer_count
    assert simulate(thorough).completion_s <= simulate(quick).completion_s


@pytest.mark.parametrize("message_s", [0.0, 1e-3])
def test_few_messages_serve_a_wan_as_well_as_thousands(message_s):
    net = load_topology("sites:3,2?wan_bandwidth=20MB/s&wan_latency=2ms")
    net = replace(net, message_s=np.full(net.link_count, message_s))
    work = Workload((make_collective("alltoall", net, 4_000_000),))
    plan = run_planner("paths", net, work)
    assert verify(plan).ok
    assert plan.transfer_count < 100
    assert simulate(plan).completion_s < 1.1 * bounds(net, work)[0].seconds


def test_collectives_that_copy_are_refused():
    net = load_topology("ring:4")
    with pytest.raises(Unsupported, match="paths does not serve allgather"):
        run_planner("paths", net, Workload((make_collective("allgather", net, 10**6),)))


def test_the_lengths_of_a_mesh_are_those_of_its_bisection():
    # 18 x 24 pairs over the 6 links between columns 3 and 4
    net = load_topology("mesh:6x7")
    piece = 10**6
    c = make_collective("alltoall", net, shard_bytes=piece)
    assert 42 * net.link_count > SOLVED_UP_TO
    found = best_lengths(net, c)
    assert found.seconds == Fraction(18 * 24 * piece, 6) / Fraction(float(net.bandwidth[0]))
    assert check_lengths(net, c, found.length.tolist()) == found.seconds


@pytest.mark.parametrize("seed", range(12))
def test_a_flow_loads_no_link_much_more_than_the_best_one(seed):
    net = random_network(seed)
    ranks, units = net.accelerators.astype(np.int64), 128
    pairs = [(a, b) for a in ranks for b in ranks if a != b]
    source, goal = np.repeat(np.array(pairs), units, axis=0).T
    path = concurrent_flow(net, source, goal, np.full(len(source), 1e6 / units)).path
    load = np.bincount(path[path >= 0], minlength=net.link_count) * 1e6 / units
    best = float(best_lengths(net, make_collective("alltoall", net, shard_bytes=10**6)).seconds)
    assert best * (1 - 1e-6) <= (load / net.bandwidth).max() <= 1.02 * best


def test_many_sources_of_one_goal_are_searched_from_the_goal():
    # all links turned round, a Gather is a Scatter
    net = load_topology("mesh:4x5")
    ranks = net.accelerators.astype(np.int64)
    others, root, size = ranks[ranks != 7], np.full(len(ranks) - 1, 7), np.full(len(ranks) - 1, 1e6)
    gather, scatter = concurrent_flow(net, others, root, size).path, concurrent_flow(net, root, others, size).path
    for v, into, out in zip(others, gather, scatter, strict=True):
        into, out = into[into >= 0], out[out >= 0]
        assert net.src[into[0]] == v and net.dst[into[-1]] == 7
        assert net.dst[into].tolist() == net.src[out][::-1].tolist()


def test_paths_with_little_room_at_first_are_the_same(monkeypatch):
    net = load_topology("ring:9")
    source, goal = np.array([(a, b) for a in range(9) for b in range(9) if a != b]).T
    flow = concurrent_flow(net, source, goal, np.full(72, 1e6))
    monkeypatch.setattr("stretto.bounds.concurrent.MOST_ENTRIES", 0)
    assert (concurrent_flow(net, source, goal, np.full(72, 1e6)).path == flow.path).all()
    # no room for the way of two hops: asked again with twice as much
    monkeypatch.setattr("stretto.bounds.concurrent.DETOUR", 0.3)
    assert (concurrent_flow(net, source, goal, np.full(72, 1e6)).path >= 0).any(axis=1).all()


@pytest.mark.parametrize(("size_bytes", "direct"), [(10**7, 1.0), (10**9, 0.136)])
def test_a_flow_uses_a_long_way_as_far_as_its_latency_allows(size_bytes, direct):
    # 1 GB/s at once, or 10 GB/s 50 ms later: 1 GB is there after T = 136 ms, since T + 10 (T - 50 ms) = 1 s
    links = [(0, 1, 1e9, 0.0), (0, 2, 1e10, 0.05), (2, 1, 1e10, 0.0)]
    net, units = make_topology("two ways", [ACCELERATOR, ACCELERATOR, ROUTER], links), 400
    ends, size = np.zeros(units, dtype=np.int64), np.full(units, size_bytes / units)
    path = concurrent_flow(net, ends, ends + 1, size, net.latency_s).path
    assert (path[:, 0] == 0).mean() == pytest.approx(direct, abs=0.01)
