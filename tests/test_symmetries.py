"""Symmetries of a network: what they keep, and how many are found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from networks import random_network
from stretto.bounds.symmetry import symmetries
from stretto.model.topology import Topology
from stretto.topologies import load_topology


def links(net: Topology, node=None) -> set[tuple[float, ...]]:
    node = np.arange(net.node_count) if node is None else node
    return set(zip(node[net.src].tolist(), node[net.dst].tolist(), net.bandwidth, net.latency_s, strict=True))


@pytest.mark.parametrize(
    ("spec", "count"), [("ring:8", 16), ("mesh:8x8", 8), ("mesh:3x4", 4), ("line:4", 2), ("hypercube:3", 48)]
)
def test_all_symmetries_are_found(spec, count):
    net = load_topology(spec)
    found = symmetries(net, net.accelerators)
    assert len(np.unique(found, axis=0)) == len(found) == count
    assert all(links(net, node) == links(net) for node in found)


@given(seed=st.integers(0, 10_000))
def test_symmetries_keep_every_link_and_the_ranks(seed):
    net = random_network(seed, plain=True)
    ranks = net.accelerators[: 1 + seed % len(net.accelerators)]
    for node in symmetries(net, ranks):
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


def test_too_many_symmetries_are_none():
    net = load_topology("fullmesh:8")
    assert len(symmetries(net, net.accelerators)) == 1
