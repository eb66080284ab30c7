"""Shallow trees by prices: of least cost, over routes that exist, and near the bound where trees of split switches are not."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from networks import random_network
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.planners.forest import kernel_arborescences as arborescences
from stretto.planners.forest import priced
from stretto.planners.forest.candidates import forests_of
from stretto.planners.forest.lowering import pipeline
from stretto.planners.forest.planner import COSTS
from stretto.planners.forest.priced import priced_forest
from stretto.planners.forest.refinement import _may_be_apart
from stretto.schedule.effort import Budget
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def cheapest(cost, root):
    """The cost of the cheapest out-tree among all choices of parents."""
    n, best = len(cost), np.inf
    others = [v for v in range(n) if v != root]
    for choice in product(range(n), repeat=n - 1):
        parent = dict(zip(others, choice, strict=True))
        if all(reaches(parent, v, root, n) for v in others):
            best = min(best, sum(cost[parent[v], v] for v in others))
    return best


def reaches(parent, v, root, n):
    for _ in range(n):
        v = parent.get(v, root)
    return v == root


@given(seed=st.integers(0, 100_000))
def test_trees_are_of_least_cost(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    root = int(rng.integers(n))
    cost = rng.integers(1, 9, (n, n)).astype(np.float64)
    cost[rng.random((n, n)) < 0.3] = np.inf
    cost[root] = np.where(np.isfinite(cost[root]), cost[root], 50.0)
    parent = np.empty(n, dtype=np.int64)
    arborescences.arborescence(cost, root, parent)
    assert parent[root] == -1
    assert sum(cost[parent[v], v] for v in range(n) if v != root) == cheapest(cost, root)


def forest_on(net, size=10**9):
    c = make_collective("allreduce", net, size)
    return priced_forest(net, c, forests_of(net, c, 150_000)[0], 1000.0, 128)


@given(seed=st.integers(0, 100_000))
def test_routes_lead_from_parent_to_child_through_nodes_that_pass_bytes_on(seed):
    net = random_network(seed)
    forest = forest_on(net)
    if not net.transit.any():
        assert forest is None
        return
    for trees, sums in ((forest.up, True), (forest.down, False)):
        for root, toward, hop in zip(trees.root, trees.toward, trees.hop, strict=True):
            reached = np.flatnonzero(toward >= 0)
            assert {root, *reached} == {*net.accelerators}
            for v in reached.tolist():
                way = trees.routes[hop[v]]
                ends = (v, toward[v]) if sums else (toward[v], v)
                assert (net.src[way[0]], net.dst[way[-1]]) == ends
                between = net.dst[way[:-1]]
                assert np.array_equal(between, net.src[way[1:]])
                assert net.transit[between].all()


@pytest.mark.parametrize("spec", ["dgx2:1", "dgx2:2", "amd:2"])
def test_they_fill_the_links_of_the_bound(spec):
    net = load_topology(spec)
    forest = forest_on(net)
    assert sum(forest.share) == 1
    assert (
        forest.seconds_per_byte(net) * 10**9
        <= 1.01 * bounds(net, Workload((make_collective("allreduce", net, 10**9),)))[0].seconds
    )


@pytest.mark.parametrize("shard", [16 * 10**6, 10**9])
def test_an_allreduce_beside_unlike_ports_is_near_the_bound(shard):
    # every other GPU has a link into the other server beside its port, the others one from there: equal shares of
    # ReduceScatter and AllGather take 1.05 times the bound
    net = load_topology("dgx2:2")
    work = Workload((make_collective("allreduce", net, shard_bytes=shard),))
    plan = run_planner("forest", net, work)
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.025 * bounds(net, work)[0].seconds


def test_copies_need_not_come_after_sums_of_trees_that_fill_links_only_together():
    # one part a tree on dgx2:4: sooner one after the other, and never near the bound so
    net = load_topology("dgx2:4")
    work = Workload((make_collective("allreduce", net, shard_bytes=16 * 10**6),))
    plan = pipeline(net, work, [forest_on(net)], 1.0, Budget(costs=COSTS), good_enough=1.0)
    assert plan.meta["apart"]
    assert not _may_be_apart(plan)


def test_there_are_no_more_trees_than_the_option_allows():
    net = load_topology("dgx2:2")
    work = Workload((make_collective("allreduce", net, shard_bytes=10**6),))
    plan = run_planner("forest", net, work, options={"trees": 1})
    assert verify(plan).ok
    assert plan.meta["trees"] <= len(net.accelerators)


@pytest.mark.parametrize("kind", ["allreduce", "broadcast", "reducescatter"])
def test_the_kernel_is_given_arrays_of_one_layout(kind, monkeypatch):
    class Given(Exception):
        """What the kernel is given."""

    def at_speed(kernel, work):
        def call(links, nodes, *more):
            raise Given(*links, *nodes, *more)

        return call

    monkeypatch.setattr(priced, "at_speed", at_speed)
    net = load_topology("dgx2:1?sharp=true")
    with pytest.raises(Given) as given_arrays:
        run_planner("forest", net, Workload((make_collective(kind, net, 10**6),)))
    arrays = [array for array in given_arrays.value.args if isinstance(array, np.ndarray)]
    assert arrays and all(array.flags.c_contiguous for array in arrays)
