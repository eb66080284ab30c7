"""Networks that are products of small graphs, and exchanges from neighbour to neighbour in them."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.schedule.products import exchanges_in_turn, product_of
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def graph(spec, seed=0):
    """Which accelerators of a network links join, numbered anew."""
    net = load_topology(spec)
    joined = np.zeros((net.node_count,) * 2, dtype=bool)
    joined[net.src, net.dst] = True
    order = np.random.default_rng(seed).permutation(net.node_count)
    return joined[np.ix_(order, order)]


@pytest.mark.parametrize(
    ("spec", "sides"),
    [
        ("mesh:3x5", [3, 5]), ("mesh:2x3x4", [2, 3, 4]), ("torus:3x5", [3, 5]), ("torus:5x6x3", [3, 5, 6]),
        ("ring:7", [7]), ("line:6", [6]), ("torus:3x4", [2, 2, 3]), ("hypercube:3", [2, 2, 2]),
    ],
)  # fmt: skip
def test_a_grid_is_found_whatever_numbers_its_nodes_have(spec, sides):
    joined = graph(spec)
    found = product_of(joined)
    assert found is not None
    assert sorted(found.shape) == sides
    # joined are the nodes that differ in one coordinate, by an edge of its graph
    apart = (found.place[:, :, None] != found.place[:, None, :]).sum(axis=0)
    assert (apart[joined] == 1).all()
    assert len(np.unique(found.place, axis=1).T) == len(joined)


def test_what_is_no_product_or_not_connected_is_not_served():
    star = np.zeros((5, 5), dtype=bool)
    star[0, 1:] = star[1:, 0] = True
    assert product_of(star) is None
    assert product_of(graph("fullmesh:5")) is None
    assert product_of(np.zeros((4, 4), dtype=bool)) is None


@pytest.mark.parametrize("spec", ["mesh:3x4", "torus:5x3", "torus:4x4", "line:5", "ring:6", "hypercube:3"])
def test_every_block_goes_over_edges_to_its_goal_on_a_shortest_way(spec):
    joined = graph(spec)
    n, found = len(joined), product_of(joined)
    assert found is not None
    for candidate in exchanges_in_turn(found, 1000.0, 1e6):
        parts = candidate.algorithm.blocks("alltoall", n, 1)
        at, sent = np.repeat(np.arange(n), n * parts), 0
        for step in candidate.algorithm.steps("alltoall", n):
            assert joined[step.src, step.dst].all()
            assert (at[step.block] == step.src).all()
            at[step.block] = step.dst
            sent += len(step.block)
        assert (at == np.tile(np.repeat(np.arange(n), parts), n)).all()
        assert sent == parts * found.hops


def test_both_ways_round_load_all_links_of_a_torus_alike():
    found = product_of(graph("torus:6x6"))
    assert found is not None
    one, both = exchanges_in_turn(found, 1000.0, 1e6)
    for candidate, parts, alike in ((one, 2, False), (both, 4, True)):
        steps = candidate.algorithm.steps("alltoall", 36)
        sent = np.bincount(np.concatenate([step.src * 36 + step.dst for step in steps]))
        loads = sent[sent > 0] / parts
        assert (loads.max() == loads.min()) == alike
        assert not alike or loads.max() == 36 * 3 / 4  # 36 blocks of 1.5 hops each way, over 2 links of each dimension


def test_few_bytes_and_many_blocks_are_left_out():
    found = product_of(graph("torus:3x5"))
    assert found is not None
    assert not [*exchanges_in_turn(found, 1.0, 1e6)]
    assert not [*exchanges_in_turn(found, 1000.0, 100.0)]


@pytest.mark.parametrize("size", [64_000, 4_000_000])
@pytest.mark.parametrize("spec", ["mesh:3x4", "torus:4x4", "trn2:2"])
def test_alltoalls_of_meshes_are_planned(spec, size):
    net = load_topology(f"{spec}?message=1us")
    work = Workload((make_collective("alltoall", net, size),))
    plan = run_planner("hierarchical", net, work)
    assert verify(plan).ok
    assert simulate(plan).completion_s < simulate(run_planner("shortest-path", net, work)).completion_s
