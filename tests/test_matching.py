"""One matching over plain links, set up and run in one call."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from networks import star
from stretto.bounds import bounds
from stretto.kernels import matching
from stretto.model.collective import Workload, make_collective
from stretto.model.topology import Topology
from stretto.planners import run_planner
from stretto.planners.greedy.search import Search
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def plain(spec: str, *widths: float) -> Topology:
    """Without latency, links of these widths in turn."""
    net = load_topology(spec)
    return replace(net, latency_s=np.zeros(net.link_count), bandwidth=np.resize(widths, net.link_count))


def allgather(net: Topology) -> Workload:
    return Workload((make_collective("allgather", net, shard_bytes=1 << 20),))


def straight(net: Topology, seed: int = 0):
    return Search(1_000_000, 1, seed)._direct(net, allgather(net))


@pytest.mark.parametrize("mode", ["python", "compiled"])
def test_one_matching_of_a_mesh_is_a_plan_that_ends_when_none_could_end_sooner(monkeypatch, mode):
    monkeypatch.setenv("STRETTO_KERNELS", mode)
    net = plain("mesh:3x4", 1e9)
    sent = straight(net)
    assert (np.diff(sent.start_s) >= 0).all()
    assert (sent.parent < np.arange(len(sent.chunk))).all()
    plan = run_planner("greedy", net, allgather(net), options={"parts": 1})
    assert verify(plan).ok
    assert np.array_equal(plan.route.values, sent.route.values)
    least = bounds(net, plan.workload, whole_chunks=True)[0].seconds
    assert simulate(plan).completion_s == pytest.approx(least) == pytest.approx(sent.arrival_s.max())


def test_links_of_other_speeds_and_switches_are_left_to_the_search():
    assert straight(plain("mesh:3x3", 1e9, 2e9)) is None
    assert straight(star(4)) is None


def test_what_ends_later_than_the_least_is_searched():
    net = load_topology("mesh:3x3")
    assert straight(net) is None
    found = Search(300, 2, 0)(net, allgather(net), False)
    assert len(found.chunk) == 72


def test_components_are_those_of_scipy():
    rng = np.random.default_rng(0)
    for _ in range(50):
        n = int(rng.integers(2, 30))
        src, dst = rng.integers(0, n, (2, int(rng.integers(1, n))))
        label = matching.components(src, dst, n)
        oracle = connected_components(coo_array((np.ones(len(src)), (src, dst)), shape=(n, n)), directed=False)[1]
        first = np.array([np.flatnonzero(oracle == oracle[v])[0] for v in range(n)])
        assert np.array_equal(label, first)
