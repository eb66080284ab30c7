"""Trees by prices: over routes that exist, shallow where length is dear, and near the bound where trees of split switches
are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from networks import random_network
from stretto.bounds import bounds
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.topology import ACCELERATOR, make_topology
from stretto.planners import run_planner
from stretto.planners.forest import kernel_growth as growth
from stretto.planners.forest import priced
from stretto.planners.forest.candidates import forests_of
from stretto.planners.forest.division import divide_data
from stretto.planners.forest.kernel_growth import Costs, Links
from stretto.planners.forest.lowering import pipeline
from stretto.planners.forest.planner import COSTS
from stretto.planners.forest.priced import priced_trees
from stretto.planners.forest.refinement import _may_be_apart
from stretto.schedule.effort import Budget
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def grown(net, roots, kinds, costs, nodes=None, ranks=None):
    """Trees among the accelerators of a network, or among nodes of which the first are ranks, as the kernel grows them."""
    ends = [e.astype(np.int64) for e in (net.src, net.dst)]
    lists = [Ragged.grouped(e, np.arange(net.link_count), net.node_count) for e in ends]
    out, into = ((each.offsets, each.values.astype(np.int64)) for each in lists)
    ways = Links(*ends, *out, *into), Links(*ends[::-1], *into, *out)
    nodes = net.accelerators.astype(np.int64) if nodes is None else nodes
    return growth.grow(ways, nodes, ranks or len(nodes), np.array(roots), np.array(kinds), costs)


@given(seed=st.integers(0, 100_000))
def test_in_trees_and_out_trees_over_relays_reach_all_ranks_by_the_routes_that_they_name(seed):
    rng, n = np.random.default_rng(seed), 7
    net = random_digraph(rng, n)
    nodes, ranks = rng.permutation(n), int(rng.integers(2, n))
    costs = Costs(rng.random(net.link_count) + 0.1, 3 * rng.random(net.link_count), 0.5)
    roots = [*range(n)] * 2
    parent, hop, offsets, routes = grown(net, roots, [0, 1], costs, nodes, ranks)
    for k, root in enumerate(roots):
        for kind in (0, 1):
            tree = parent[k, kind]
            assert tree[root] == -1 and (tree[:ranks] > -2).all()
            leaves = {*range(n)} - {*tree.tolist()} - {int(v) for v in np.flatnonzero(tree == -2)}
            assert all(v < ranks or v == root for v in leaves)
            for v in np.flatnonzero(tree >= 0).tolist():
                way = routes[offsets[hop[k, kind, v]] : offsets[hop[k, kind, v] + 1]]
                ends = (tree[v], v) if kind == 0 else (v, tree[v])
                assert (net.src[way[0]], net.dst[way[-1]]) == tuple(nodes[list(ends)])
                w = v
                for _ in range(n):
                    w = w if tree[w] < 0 else int(tree[w])
                assert w == root


def random_digraph(rng, n):
    """Accelerators on a ring, with other links at random."""
    pairs = {(v, (v + 1) % n) for v in range(n)} | {tuple(rng.choice(n, 2, replace=False).tolist()) for _ in range(n)}
    return make_topology("digraph", [ACCELERATOR] * n, [(a, b, 1e9, 1e-6) for a, b in sorted(pairs)])


def test_a_relay_that_reaches_no_rank_is_no_root_and_leaves_the_others():
    links = [(a, b, 1e9, 1e-6) for v in range(4) for a, b in ((v, (v + 1) % 4), ((v + 1) % 4, v))]
    net = make_topology("a ring and a dead accelerator", [ACCELERATOR] * 5, [*links, (0, 4, 1e9, 1e-6)])
    c = make_collective("allreduce", net, 10**6, ranks=[0, 1, 2, 3])
    trees = priced_trees(net, c, forests_of(net, c, 1000)[0], 1000.0, 10, 1.0, 0.1)
    assert trees.up.root.tolist() == [0, 1, 2, 3] * 2 and len(trees.share) == 8


def dijkstra(net, root, cost):
    """What the cheapest path from a node to each other one costs."""
    far = np.full(net.node_count, np.inf)
    far[root] = 0.0
    for _ in range(net.node_count):
        np.minimum.at(far, net.dst, far[net.src] + cost)
    return far


@given(seed=st.integers(0, 100_000))
def test_where_length_is_dear_ways_are_the_shortest(seed):
    net, rng = random_network(seed), np.random.default_rng(seed)
    net = replace(net, kind=np.zeros_like(net.kind), transit=np.zeros(net.node_count, dtype=np.bool_))
    seconds, length = rng.random(net.link_count) + 0.1, 1e9 * (rng.random(net.link_count) + 0.1)
    root = int(rng.integers(net.node_count))
    parent, _, _, _ = grown(net, [root], [0], Costs(seconds, length, 0.1))
    far = dijkstra(net, root, length)
    link = {ends: e for e, ends in enumerate(zip(net.src.tolist(), net.dst.tolist(), strict=True))}
    for v in range(net.node_count):
        away, w = 0.0, v
        while parent[0, 0, w] >= 0:
            away, w = away + length[link[int(parent[0, 0, w]), w]], int(parent[0, 0, w])
        assert w == root
        assert away == pytest.approx(far[v], rel=1e-6)


@pytest.mark.parametrize(("steepness", "children"), [(0.0, 15), (1.0, 3)])
def test_prices_rise_within_a_tree(steepness, children):
    # through a switch the root sends to all, unless its link becomes dearer with each that it serves
    net = load_topology("star:16")
    costs = Costs(np.ones(net.link_count), np.full(net.link_count, 0.1), steepness)
    parent, _, _, _ = grown(net, [0], [0], costs)
    assert (parent == 0).sum() <= children
    assert steepness or (parent == 0).sum() == children


def test_what_cannot_be_reached_is_outside():
    net = load_topology("line:3")
    net = net.with_links(np.flatnonzero(net.dst != 2))
    parent, _, _, _ = grown(net, [0], [0, 1], Costs(np.ones(net.link_count), np.zeros(net.link_count), 0.1))
    assert parent[0].tolist() == [[-1, 0, -2], [-1, 0, 1]]
    c = make_collective("allreduce", net, 10**6)
    assert priced._Ground.of(net, c, 1000.0).grown(np.array([0]), np.ones(3), 0.0, 0.1) is None


def forest_on(net, most=128):
    c = make_collective("allreduce", net, 10**9)
    trees = priced_trees(net, c, forests_of(net, c, 150_000)[0], 1000.0, most, 3.0, 0.1)
    assert trees is not None
    return divide_data(net, trees, None)


@given(seed=st.integers(0, 100_000))
def test_routes_lead_from_parent_to_child_through_nodes_that_pass_bytes_on(seed):
    net = random_network(seed)
    forest = forest_on(net)
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
    plan = pipeline(net, work, [forest_on(net, 64)], 1.0, Budget(costs=COSTS), good_enough=1.0)
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
        def call(ways, *more):
            raise Given(*ways[0], *ways[1], *more[-1], *more)

        return call

    monkeypatch.setattr(priced, "at_speed", at_speed)
    net = load_topology("dgx2:1?sharp=true")
    with pytest.raises(Given) as given_arrays:
        run_planner("forest", net, Workload((make_collective(kind, net, 10**6),)))
    arrays = [array for array in given_arrays.value.args if isinstance(array, np.ndarray)]
    assert arrays and all(array.flags.c_contiguous for array in arrays)
