"""Plans by symmetry for Broadcast, Reduce, Scatter and Gather: the root and its neighbours stay, the others are exchanged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from examples import one_in
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.plan import REDUCE
from stretto.model.symmetric import SymmetricPlan
from stretto.model.topology import Topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify
from test_almost_symmetric import damaged
from test_symmetric_planner import leaf_spine, shuffled

KINDS = ("broadcast", "reduce", "scatter", "gather")

NETWORKS = {
    "rails": load_topology("h100:8?message=0us"),
    "direct links": load_topology("fullmesh:6"),
    "switch": load_topology("star:5"),
    "fat tree": load_topology("fattree:4"),
    "spines": leaf_spine(4, 4, 4, 50e9),
    "half as wide above": leaf_spine(4, 4, 2, 50e9),
    "torus": load_topology("torus:4x4"),
    "slow NIC": damaged(8, "slow"),
    "dead NIC": damaged(8, "dead"),
    "two kinds of servers": damaged(8, "kinds"),
}


def planned(
    kind: str, net: Topology, size: int, root: int = 0, ranks: list[int] | None = None
) -> tuple[SymmetricPlan, float]:
    """A plan that is right as it is, and its completion over the bound."""
    workload = Workload((make_collective(kind, net, size, ranks=ranks, root=root),))
    plan = run_planner("symmetric", net, workload)
    assert isinstance(plan, SymmetricPlan)
    assert verify(plan).ok, verify(plan)
    return plan, simulate(plan).completion_s / bounds(net, workload)[0].seconds


@pytest.mark.parametrize(("name", "kind"), one_in(2, NETWORKS, KINDS))
def test_large_data_takes_little_more_than_the_bound(name, kind):
    net = shuffled(NETWORKS[name], 1)
    _, over = planned(kind, net, 1_000_000_000, root=3)
    assert 1 <= over <= 1.1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1000, 1001, 70_001])
def test_images_are_a_plan(kind, size):
    plan, _ = planned(kind, shuffled(NETWORKS["spines"], 2), size, root=5)
    plain = plan.expand()
    assert verify(plain).ok, verify(plain)
    assert simulate(plain).completion_s == pytest.approx(simulate(plan).completion_s, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_groups_of_ranks_plan_among_themselves(kind):
    """Half of the servers, in another order."""
    net = load_topology("h100:12?message=0us")
    ranks = np.random.default_rng(1).permutation(net.accelerators[32:]).tolist()
    plan, over = planned(kind, net, 1_000_000_000, root=17, ranks=ranks)
    assert over <= 1.1
    assert np.isin(plan.part.src, ranks).all() and np.isin(plan.part.dst.values, ranks).all()


@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_ranks_take_little_more_than_the_bound(kind):
    net = load_topology("h100:256?message=0us")
    _, over = planned(kind, net, 1_000_000_000)
    assert over <= 1.1


def test_a_piece_of_a_neighbour_of_the_root_is_dealt_out():
    """The seven other GPUs in the root's server stay where they are, and so does the root."""
    plan, _ = planned("scatter", NETWORKS["rails"], 1_000_003)
    assert plan.symmetry.size == 7
    fixed = plan.orbits.owner[plan.orbits.fixed, 0]
    assert len(np.unique(fixed)) == 8
    assert (plan.orbits.shares[plan.orbits.fixed] == 7).all()
    # what the root holds for itself goes nowhere
    of_root = np.flatnonzero(plan.orbits.owner[:, 0] == NETWORKS["rails"].accelerators[0])
    assert len(of_root) and not np.isin(plan.part.chunk, of_root).any()


def test_only_a_reduce_sums():
    for kind in KINDS:
        plan, _ = planned(kind, NETWORKS["switch"], 1000)
        assert (plan.part.op == REDUCE).all() == (kind == "reduce")


def test_a_sum_takes_as_long_as_a_copy():
    """A Reduce is a Broadcast with time reversed, and a Gather a Scatter."""
    for kind, mirror in (("broadcast", "reduce"), ("scatter", "gather")):
        forth, back = (planned(k, NETWORKS["switch"], 8_000_000)[0] for k in (kind, mirror))
        assert simulate(forth).completion_s == pytest.approx(simulate(back).completion_s, rel=0.01)


def test_several_rooted_collectives_are_refused():
    net = load_topology("fullmesh:8")
    each = tuple(make_collective("broadcast", net, 8000, ranks=ranks) for ranks in ([0, 1, 2, 3], [4, 5, 6, 7]))
    with pytest.raises(Unsupported, match="symmetry"):
        run_planner("symmetric", net, Workload(each))


@pytest.mark.parametrize("kind", KINDS)
def test_auto_plans_for_thousands_of_ranks(kind):
    net = load_topology("h100:256?message=0us")
    workload = Workload((make_collective(kind, net, 1_000_000_000),))
    plan = run_planner("auto", net, workload, effort="quick")
    assert simulate(plan).completion_s <= 1.1 * bounds(net, workload)[0].seconds
    assert plan.meta["chosen"] == "symmetric" or kind in ("scatter", "gather")


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_rails_that_the_root_is_not_on_are_exchanged_too(kind):
    """The group does not move all ranks freely: the elements that exchange rails leave those of the root's rail."""
    plan, over = planned(kind, load_topology("h100:64?message=0us"), 1_000_000_000)
    assert plan.symmetry.orders.tolist() == [63, 7]
    sizes = np.bincount(plan.symmetry.node_orbits)[np.unique(plan.symmetry.node_orbits[plan.topology.accelerators])]
    assert sorted(sizes.tolist()) == [1, 7, 63, 441]
    assert over <= 1.02


def test_ranks_that_own_data_must_be_moved_freely():
    plan, _ = planned("broadcast", NETWORKS["rails"], 1_000_000)
    owner = np.full_like(plan.orbits.owner, plan.topology.accelerators[1])
    wrong = SymmetricPlan(plan.part, replace(plan.orbits, owner=owner), {})
    assert "an owner to itself" in verify(wrong).finding.message
