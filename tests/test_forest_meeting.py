"""AllReduce where links are alike both ways: undirected trees, walked in and out from their middle."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stretto.bounds import best_parts, bounds, distances
from stretto.model.collective import Workload, make_collective
from stretto.model.topology import ACCELERATOR, Topology, make_topology
from stretto.model.variants import opposite
from stretto.planners import run_planner
from stretto.planners.forest import kernel_branchings
from stretto.planners.forest.candidates import forests_of
from stretto.planners.forest.division import divide_data
from stretto.planners.forest.forest import Forest
from stretto.planners.forest.kernel_branchings import Branchings
from stretto.planners.forest.meeting import UndirectedEdges, meeting_trees, more_trees
from stretto.planners.forest.pack import rank_edges
from stretto.planners.forest.priced import priced_trees
from stretto.planners.forest.windows import shares_by_windows
from stretto.schedule.trees import depths
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def mutual_network(seed: int, latency_s: float = 1e-6) -> Topology:
    """A connected network of 3 to 8 accelerators whose links are alike both ways."""
    rng = random.Random(seed)
    n = rng.randint(3, 8)
    pairs = {(rng.randrange(v), v) for v in range(1, n)}
    pairs |= {tuple(sorted(rng.sample(range(n), 2))) for _ in range(rng.randint(0, 2 * n))}
    wide = {pair: rng.choice([1e9, 2e9, 3e9, 2.7e9]) for pair in sorted(pairs)}
    links = [(a, b, w, latency_s) for (a, b), w in wide.items()]
    return make_topology(f"mutual{seed}", [ACCELERATOR] * n, [*links, *((b, a, w, s) for a, b, w, s in links)])


def allreduce(net: Topology, size: int) -> Workload:
    return Workload((make_collective("allreduce", net, size),))


def trees_of(net: Topology):
    edges, (c,) = UndirectedEdges.of(net, net.accelerators, 0.0), allreduce(net, 1 << 40).collectives
    parts = best_parts(net, c)
    rate = c.size_bytes / float(parts.seconds)
    return edges, rate, meeting_trees(edges, parts, rate, distances(net, 0.0))


@given(seed=st.integers(0, 100_000))
def test_trees_span_fit_and_reach_the_bound_by_parts(seed):
    net = mutual_network(seed)
    _, rate, forest = trees_of(net)
    for trees in (forest.up, forest.down):
        assert ((trees.toward < 0).sum(axis=1) == 1).all()
        assert (depths(trees) < net.node_count).all()
        tree, node = np.nonzero(trees.toward >= 0)
        links, parent = trees.routes.take(trees.hop[tree, node]).values, trees.toward[tree, node]
        ends = (node, parent) if trees is forest.up else (parent, node)
        assert np.array_equal(net.src[links], ends[0])
        assert np.array_equal(net.dst[links], ends[1])
    assert sum(forest.share) == 1
    # Tutte and Nash-Williams: as many exist as the narrowest partition allows
    assert forest.seconds_per_byte(net) * rate <= 1.02


@settings(max_examples=12)
@given(seed=st.integers(0, 100_000))
def test_plans_are_right_and_near_the_bound(seed):
    net = mutual_network(seed)
    work = allreduce(net, 10**9)
    plan = run_planner("forest", net, work)
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.04 * bounds(net, work)[0].seconds


@pytest.mark.parametrize("spec", ["zoo:Arpanet", "zoo:Gblnet", "zoo:HiberniaIreland", "zoo:BtEurope"])
def test_where_latency_counts_sums_meet_in_the_middle(spec):
    net = load_topology(spec)
    work = allreduce(net, 16 * 10**6 * len(net.accelerators))
    plan = run_planner("forest", net, work)
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.005 * bounds(net, work)[0].seconds


def test_a_tree_takes_no_longer_than_its_longest_way():
    # links of 1, 1, 2, 1 ms: the middle of the line is inside the third
    latency = [0.001, 0.001, 0.002, 0.001]
    links = [(a, b, 1e9, s) for k, s in enumerate(latency) for a, b in ((k, k + 1), (k + 1, k))]
    net = make_topology("line", [ACCELERATOR] * 5, links)
    trees = trees_of(net)[2].up
    assert all({root, twin} == {2, 3} for root, twin in zip(trees.root, trees.twin, strict=True))
    plan = run_planner("forest", net, allreduce(net, 1000))
    assert simulate(plan).completion_s == pytest.approx(sum(latency), rel=0.01)


def test_trees_of_a_mesh_are_shallow_and_at_the_rate():
    _, _, trees = trees_of(load_topology("mesh:8x8"))
    assert len(trees.share) == 16  # 112 edges for 63 a tree: 16 trees for 9 times each edge
    # from the middle: no way is longer than twice that, and the mesh itself needs 14 hops
    assert depths(trees.up).max() <= 11


def test_trees_are_packed_within_some_walks():
    net = load_topology("torus:4x4")
    c = make_collective("allreduce", net, 10**9)
    edges, bound, far = UndirectedEdges.of(net, net.accelerators, 0.0), best_parts(net, c), distances(net, 0.0)
    rate = 10**9 / float(bound.seconds)
    whole, counted = (meeting_trees(edges, bound, rate, far, steps) for steps in (np.inf, 0.0))
    assert whole.seconds_per_byte(net) * rate < 1.01
    assert counted is None or counted.seconds_per_byte(net) * rate > 1.01


def test_links_unlike_both_ways_have_no_edges():
    net = mutual_network(1)
    one_way = net.bandwidth.copy()
    one_way[0] *= 2
    assert UndirectedEdges.of(net, net.accelerators, 0.0) is not None
    assert UndirectedEdges.of(replace(net, bandwidth=one_way), net.accelerators, 0.0) is None
    assert UndirectedEdges.of(net, net.accelerators[1:], 0.0) is None


@pytest.mark.parametrize("spec", ["dgx2:2", "amd:2", "torus:8x8", "mesh:8x8", "zoo:Abilene"])
@pytest.mark.parametrize("kind", ["allgather", "allreduce"])
def test_at_most_sixteen_trees_a_root(spec, kind):
    net = load_topology(spec)
    c = make_collective(kind, net, shard_bytes=10**8)
    for found in forests_of(net, c, 60_000):
        used: Forest | None = found
        if (spec, kind) == ("dgx2:2", "allreduce"):  # these are deep, and the planner takes priced ones
            used = divide_data(net, priced_trees(net, c, found, 2e6, 16 * len(c.ranks), 30.0, 0.1), None)
        assert used is not None
        assert np.bincount(used.up.root).max() <= 16


def test_out_trees_become_shallower_within_what_edges_can_carry():
    # a chain 0 1 2 3 4 5, and unused edges from 0 to each
    n = 6
    tail = np.array([*range(n - 1), *([0] * (n - 2))])
    head = np.array([*range(1, n), *range(2, n)])
    via = np.array([[-1, 0, 1, 2, 3, 4]])
    spare = np.array([0, 0, 0, 0, 0, 1, 1, 0, 1])
    edges = rank_edges(n, tail, head, spare)
    kernel_branchings.shorten(Branchings(via, np.array([1])), edges, np.ones(len(tail)), spare, 1000)
    # node 4 has no room from 0 and stays below 3, which is next to the root now
    assert via.tolist() == [[-1, 0, 5, 6, 3, 8]]
    assert spare.tolist() == [0, 1, 1, 0, 1, 0, 0, 0, 0]


def test_where_latency_counts_links_far_from_the_middle_carry_less():
    net = load_topology("zoo:Abilene")
    work = allreduce(net, 16 * 10**6 * len(net.accelerators))
    plan = run_planner("forest", net, work)
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.045 * bounds(net, work)[0].seconds


def test_shares_fill_the_windows_of_links():
    # a triangle whose third corner is 8 ms away: its edges can carry 16 ms less than the other, each way
    ways = [(0, 1, 1e-3), (0, 2, 8e-3), (1, 2, 8e-3)]
    links = [(a, b, 1e9, s) for x, y, s in ways for a, b in ((x, y), (y, x))]
    net = make_topology("triangle", [ACCELERATOR] * 3, links)
    edges = UndirectedEdges.of(net, net.accelerators, 0.0)
    every = more_trees(edges, 0.75e9, distances(net, 0.0))
    found = shares_by_windows(net, edges, every, 0.0, 60 * 10**6)
    assert sum(found.share) == 1
    tree, link = found.down.uses
    load = np.bincount(link, np.array(found.share, dtype=np.float64)[tree], net.link_count)
    load += load[opposite(net)]
    near = net.latency_s == 1e-3
    assert load[near].max() > 1.1 * load[~near].max()


def test_where_latency_counts_trees_through_switches_have_shares_by_when_links_are_needed():
    # with shares by bandwidth alone it takes 1.13 of the bound
    net = load_topology(str(Path(__file__).parents[1] / "examples" / "three_sites.json"))
    work = allreduce(net, 10**9)
    plan = run_planner("forest", net, work)
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.04 * bounds(net, work)[0].seconds
