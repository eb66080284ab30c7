"""Automorphisms: what they keep, how many are found, and what an exchange gains by them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from networks import random_network
from stretto.bounds import bounds
from stretto.bounds.symmetry import automorphisms, symmetries
from stretto.model.collective import Workload, make_collective
from stretto.model.topology import Topology
from stretto.planners.greedy.costs import with_costs
from stretto.planners.greedy.exchange.hubs import plan_hubs
from stretto.planners.greedy.exchange.images import Images
from stretto.planners.registry import Request
from stretto.schedule.pipes import build_network
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def links(net: Topology, node=None) -> set[tuple[float, ...]]:
    node = np.arange(net.node_count) if node is None else node
    return set(zip(node[net.src].tolist(), node[net.dst].tolist(), net.bandwidth, net.latency_s, strict=True))


@pytest.mark.parametrize(
    ("spec", "count"),
    [("ring:8", 16), ("mesh:8x8", 8), ("mesh:3x4", 4), ("line:4", 2), ("hypercube:3", 48), ("dgx2", 64)],
)
def test_all_automorphisms_are_found_or_as_many_as_are_wanted(spec, count):
    net = load_topology(spec)
    found = automorphisms(net, net.accelerators, 64, 0)
    assert len(np.unique(found, axis=0)) == len(found) == count
    assert all(links(net, node) == links(net) for node in found)


@given(seed=st.integers(0, 10_000))
def test_automorphisms_keep_every_link_and_the_ranks(seed):
    net = random_network(seed, plain=True)
    ranks = net.accelerators[: 1 + seed % len(net.accelerators)]
    for node in automorphisms(net, ranks, 16, 0):
        assert links(net, node) == links(net)
        assert set(node[ranks].tolist()) == set(ranks.tolist())


@pytest.mark.parametrize("spec", ["torus:4x4", "sites:2,3", "dgx1"])
def test_symmetries_are_a_group_with_the_identity_first(spec):
    net = load_topology(spec)
    found = symmetries(net, net.accelerators)
    every = {g.tobytes() for g in found}
    assert len(every) == len(found) > 1
    assert (found[0] == np.arange(net.node_count)).all()
    assert {f[g].tobytes() for f in found for g in found} == every


@pytest.mark.parametrize("spec", ["sites:3,6?routers=2", "sites:2,3"])  # a pipe takes one of several pairs of routers
def test_automorphisms_that_take_a_pipe_to_no_pipe_are_left_out(spec):
    net = load_topology(spec)
    hops = build_network(net, 1000.0, True, 0.0).hops
    found = Images.of(net, hops, automorphisms(net, net.accelerators, 64, 0))
    assert (found is None) == (spec == "sites:3,6?routers=2")
    for link, pipes in [] if found is None else zip(found.link, found.pipe.tolist(), strict=True):
        assert all(link[hops[pipe]].tolist() == hops[image].tolist() for pipe, image in enumerate(pipes))
    plan = plan_hubs(with_costs(Request(net, Workload((make_collective("allreduce", net, 18_000),)))))
    assert plan is not None
    assert verify(plan).ok


def test_too_many_symmetries_are_none():
    net = load_topology("fullmesh:8")
    assert len(symmetries(net, net.accelerators)) == 1


def test_images_of_one_exchange_burden_a_torus_evenly():
    # 1.34 by exchanges that are each made where the links are free
    net = load_topology("torus:8x8")
    load = Workload((make_collective("allreduce", net, 64_000),))
    plan = plan_hubs(with_costs(Request(net, load)))
    assert plan is not None
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.2 * bounds(net, load)[0].seconds
