"""AllReduce where messages cost: few ranks own chunks, sums go up trees or meet, and all plans are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from examples import one_in
from stretto.model.collective import Workload, make_collective
from stretto.model.symmetric import SymmetricPlan
from stretto.model.symmetry import Symmetry
from stretto.model.topology import Topology
from stretto.planners import run_planner
from stretto.planners.symmetric.postal import meeting, tree
from stretto.planners.symmetric.subgroups import subgroup, subgroups
from stretto.simulate import simulate
from stretto.symmetry import find_symmetry
from stretto.topologies import load_topology
from stretto.verify import verify
from test_symmetric_planner import leaf_spine


def with_messages(net: Topology, seconds: float) -> Topology:
    return replace(net, message_s=np.full(net.link_count, seconds))


NETWORKS = {
    "rails": load_topology("h100:4?message=1us"),
    "a prime number of servers": load_topology("h100:5?message=1us"),
    "switch": load_topology("star:5?message=2us"),
    "fat tree": load_topology("fattree:4?message=1us"),
    "torus": load_topology("torus:4x4?message=1us"),
    "ring": load_topology("ring:12?message=1us"),
    "hypercube": load_topology("hypercube:4?message=3us"),
    "spines": with_messages(leaf_spine(4, 4, 4, 50e9), 1e-6),
    "half as wide above": with_messages(leaf_spine(8, 4, 2, 50e9), 1e-6),
}


def planned(net: Topology, size: int, ranks: list[int] | None = None) -> SymmetricPlan:
    plan = run_planner(
        "symmetric", net, Workload((make_collective("allreduce", net, size, ranks=ranks),)), several_chunks=False
    )
    assert isinstance(plan, SymmetricPlan)
    return plan


@pytest.mark.parametrize(("name", "size"), one_in(2, NETWORKS, [7, 1000, 70_001, 1_000_000, 64_000_000]))
def test_plans_are_right_and_take_as_long_as_their_images(name, size):
    plan = planned(NETWORKS[name], size)
    plain = plan.expand()
    assert verify(plan).ok, verify(plan)
    assert verify(plain).ok, verify(plain)
    assert simulate(plan).completion_s == pytest.approx(simulate(plain).completion_s, rel=1e-9)


@pytest.mark.parametrize("size", [1000, 64_000, 1_000_000, 64_000_000])
@pytest.mark.parametrize("servers", [4, 8])
def test_it_ends_before_the_rings_and_trees_of_nccl(servers, size):
    net = load_topology(f"h100:{servers}?message=1us")
    work = Workload((make_collective("allreduce", net, size),))
    others = [simulate(run_planner(name, net, work)).completion_s for name in ("nccl-ring", "nccl-tree")]
    assert simulate(planned(net, size)).completion_s < min(others)


def test_thousands_of_ranks_send_far_fewer_messages_than_there_are_ranks():
    net = load_topology("h100:256?message=1us")
    plan = planned(net, 64_000_000)
    assert verify(plan).ok, verify(plan)
    sent = plan.transfer_count / len(net.accelerators)
    assert sent < len(net.accelerators) / 4
    assert simulate(plan).completion_s < 2 * 2 * 64e6 / (8 * 50e9)


def test_groups_of_ranks_plan_among_themselves():
    net = load_topology("h100:4?message=1us")
    gpus = net.accelerators.reshape(4, 8)
    for groups in (gpus, gpus.T):
        each = tuple(make_collective("allreduce", net, 20_000, ranks=ranks.tolist()) for ranks in groups)
        plan = run_planner("symmetric", net, Workload(each))
        assert verify(plan).ok, verify(plan)
        assert verify(plan.expand()).ok, verify(plan.expand())


def test_the_same_request_gives_the_same_plan():
    digests = {planned(load_topology("h100:8?message=1us"), size).digest() for size in (100_000, 100_000)}
    assert len(digests) == 1


# --- subgroups ------------------------------------------------------------------------------------------------------


def test_a_subgroup_is_a_symmetry_that_maps_ranks_freely():
    whole = find_symmetry(load_topology("h100:6"))
    assert isinstance(whole, Symmetry)
    for orders in subgroups(whole, (0, 1)):
        group = subgroup(whole, orders)
        assert group.size == np.prod(orders)
        t = whole.topology
        images = group.links_between(group.generators[:, t.src], group.generators[:, t.dst])
        assert (images >= 0).all()
        every = group.image(np.arange(group.size)[:, None], t.accelerators)
        assert all(len(np.unique(column)) == group.size for column in every.T)


# --- trees and meetings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", [0.0, 0.3, 1.0, 2.6, 50.0])
def test_in_a_meeting_every_rank_gets_each_contribution_once(lag):
    for size in (*range(1, 40), 64, 100, 2048):
        found = meeting(size, lag)
        states = [{0}]  # the contributions that rank 0 has after each message, by how far they are on the circle
        arrived = [0.0]
        for state, window in zip(found.states, found.windows, strict=True):
            comes = {(window + far) % size for far in states[state]}
            assert not comes & states[-1]
            states.append(comes | states[-1])
            port = 1 + lag if len(arrived) == 1 else arrived[-1] + 1
            arrived.append(max(port, arrived[state] + 1 + lag))
        assert states[-1] == set(range(size))
        assert found.time == pytest.approx(arrived[-1])


@pytest.mark.parametrize("lag", [0.0, 1.0, 2.6])
def test_a_meeting_takes_little_longer_than_a_tree_that_no_sum_can_beat(lag):
    for size in (2, 3, 8, 61, 64, 512, 2048):
        least = tree(size, lag, 1 << 30).time
        # without latency 61 ranks take 8 messages or more: windows are an addition chain
        assert least <= meeting(size, lag).time <= 1.4 * least + 1


def test_trees_are_binomial_without_latency_and_flat_with_much():
    assert tree(64, 0.0, 1 << 30).time == 6
    assert tree(64, 0.0, 1 << 30).root_children == 6
    assert tree(64, 100.0, 1 << 30).root_children == 63


@pytest.mark.parametrize("width", [1, 2, 3, 1 << 30])
def test_no_rank_of_a_tree_has_more_children_than_it_may(width):
    found = tree(50, 1.5, width)
    assert np.bincount(found.parent[1:], minlength=50).max() <= width
    assert (found.parent[1:] < np.arange(1, 50)).all()
