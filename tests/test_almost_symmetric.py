"""Networks that are almost symmetric: a slow NIC, a dead one, servers of two kinds. Plans by symmetry are near the bound,
and their images written out are plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from examples import one_in
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.symmetric import SymmetricPlan
from stretto.model.topology import Topology, make_topology
from stretto.model.variants import seen_by
from stretto.planners import Request
from stretto.planners.run import plan_by
from stretto.planners.symmetric import kernel_exchange, kernel_trees
from stretto.planners.symmetric.kernel_exchange import Options
from stretto.planners.symmetric.kernel_trees import Ways
from stretto.planners.symmetric.lanes import lanes
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

KINDS = ("allgather", "reducescatter", "allreduce", "alltoall")


def damaged(servers: int, damage: str) -> Topology:
    """Servers of 8 GPUs joined by rails. The NIC of the first GPU has half its bandwidth (slow) or none (dead), or all
    NICs of half of the servers are slow (kinds)."""
    t = load_topology(f"h100:{servers}")
    slow = t.accelerators[: 4 * servers if damage == "kinds" else 1]
    rail = t.bandwidth == t.bandwidth.min()
    hit = rail & (np.isin(t.src, slow) | np.isin(t.dst, slow)) & bool(damage)
    keep = ~hit if damage == "dead" else np.ones(t.link_count, dtype=bool)
    width = np.where(hit, t.bandwidth / 2, t.bandwidth)
    links = list(zip(t.src[keep], t.dst[keep], width[keep], t.latency_s[keep], strict=True))
    return make_topology(f"{servers} servers, {damage}", t.kind, links)


def planned(kind: str, topology: Topology, size: int) -> SymmetricPlan:
    workload = Workload((make_collective(kind, topology, size),))
    plan = plan_by("symmetric", Request(topology, workload))
    assert isinstance(plan, SymmetricPlan)
    return plan


@pytest.mark.parametrize(("kind", "damage"), one_in(2, KINDS, ["slow", "dead", "kinds"]))
def test_images_are_a_plan_within_a_tenth_of_the_bound(kind, damage):
    plan = planned(kind, damaged(4, damage), 1_000_000_003)
    plain = plan.expand()
    assert verify(plan).ok, verify(plan)
    assert verify(plain).ok, verify(plain)
    assert simulate(plain).completion_s == pytest.approx(simulate(plan).completion_s, rel=1e-9)
    least = bounds(plan.topology, plan.workload)[0].seconds
    assert least <= simulate(plan).completion_s <= 1.1 * least


def test_a_rank_that_no_element_moves_sends_its_piece_in_as_many_chunks_as_there_are_elements():
    plan = planned("allgather", damaged(4, "slow"), 1_000_003)
    alone = np.bincount(plan.symmetry.node_orbits)[plan.symmetry.node_orbits] == 1
    fixed = alone[plan.orbits.owner[:, 0]]
    assert fixed.any() and not fixed.all()
    assert np.array_equal(plan.orbits.shares, np.where(fixed, plan.symmetry.size, 1))


def test_the_piece_of_two_ranks_that_no_element_moves_is_cut_into_a_chunk_for_each_element():
    plan = planned("alltoall", damaged(4, "slow"), 100_000_003)
    alone = np.bincount(plan.symmetry.node_orbits)[plan.symmetry.node_orbits] == 1
    first, last = alone[plan.orbits.owner].T
    assert (first & last).any() and (first & ~last).any() and (~first & last).any()
    assert np.array_equal(plan.orbits.shares, np.where(first & last, plan.symmetry.size, 1))


def test_pieces_are_dealt_out_as_the_program_says():
    """Two ways for each of ten pieces: one over orbit 0, of which 3 of 10 parts are to go, one over orbit 1."""
    count = 10
    options = Options(
        begin=np.arange(0, 2 * count + 1, 2), share=np.tile([0.3, 0.7], count), entries=np.arange(2 * count + 1),
        orbit=np.tile([0, 1], count), seconds=np.ones(2 * count),
    )  # fmt: skip
    for parts, expected in ((1, 3), (3, 9)):
        dealt = kernel_exchange.deal(np.full(count, parts), options, np.ones(2))
        assert len(dealt) == count * parts
        assert np.array_equal(dealt // 2, np.repeat(np.arange(count), parts))
        assert (dealt % 2 == 0).sum() == expected


def test_each_hop_of_a_tree_carries_what_is_wanted_behind_it():
    passing = kernel_exchange.through(np.array([1, 2, 3]), np.array([0, 1, 1]), np.array([9.0, 1.0, 2.0, 4.0]))
    assert passing.tolist() == [7.0, 2.0, 4.0]


@pytest.mark.parametrize(("kind", "damage"), one_in(2, KINDS, ["", "slow"]))
def test_idle_gpus_of_a_server_lend_their_nics(kind, damage):
    """Four GPUs of each server of eight take part, and their own NICs are half of what a server has."""
    topology = damaged(8, damage)
    ranks = topology.accelerators.reshape(8, 8)[:, :4].ravel().tolist()
    workload = Workload((make_collective(kind, topology, 10**9, ranks=ranks),))
    plan = plan_by("symmetric", Request(topology, workload))
    assert verify(plan).ok, verify(plan)
    assert simulate(plan).completion_s <= 1.1 * bounds(topology, workload)[0].seconds


@pytest.mark.parametrize("kind", KINDS)
def test_images_over_relays_are_a_plan(kind):
    topology = damaged(4, "")
    ranks = topology.accelerators.reshape(4, 8)[:, :4].ravel().tolist()
    plan = plan_by("symmetric", Request(topology, Workload((make_collective(kind, topology, 10**8, ranks=ranks),))))
    outside = np.setdiff1d(topology.accelerators, ranks)
    plain = plan.expand()
    assert np.isin(plain.src, outside).any()
    assert verify(plan).ok and verify(plain).ok
    assert simulate(plain).completion_s == pytest.approx(simulate(plan).completion_s, rel=1e-9)


def test_sums_meet_in_an_idle_server_too():
    topology = load_topology("h100:8?message=0us")
    for kind in KINDS:
        workload = Workload((make_collective(kind, topology, 10**9, ranks=topology.accelerators[:-8].tolist()),))
        plan = plan_by("symmetric", Request(topology, workload))
        assert verify(plan).ok
        assert plan.meta["group"] == [7, 8]
        least = bounds(topology, workload)[0].seconds
        assert simulate(plan).completion_s <= (1.04 if kind == "allreduce" else 1.01) * least
        outside = ~np.isin(plan.part.dst.values, workload.collectives[0].ranks)
        assert outside.any() == (kind == "allreduce")


def test_a_tree_passes_relays_and_begins_anew_there():
    """A root 0 is joined to a relay 1, and that to the ranks 2 and 3; a direct link from 0 to 3 is dear."""
    ends = [(0, 1), (1, 2), (1, 3), (0, 3)]
    tail, head = (np.array([pair[k] for pair in ends]) for k in (0, 1))
    ranks, relays = np.array([True, False, True, True]), np.array([False, True, False, False])
    offsets, links = np.array([0, 2, 4, 4, 4]), np.array([0, 3, 1, 2])
    ways = Ways(offsets, links, tail, head, ranks, np.zeros(4, dtype=np.bool_), relays)
    node, before, ends_of, route = kernel_trees.grow(0, np.array([1, 1, 1, 9]), 1, ways)
    assert node.tolist() == [1, 2, 3]
    assert before.tolist() == [0, 1, 1]
    assert ends_of.tolist() == [0, 1, 2, 3]
    assert route.tolist() == [0, 1, 2]
    node, before, *_ = kernel_trees.grow(1, np.array([1, 1, 1, 9]), 1, ways)
    assert node.tolist() == [2, 3]
    assert before.tolist() == [1, 1]


def test_a_link_is_never_given_away_twice():
    """Three classes on two orbits of links; the second has little to do on the first orbit, and is hastened."""
    lane, orbit = np.array([0, 1, 1, 2]), np.array([0, 0, 1, 1])
    busy_s = np.array([19.0, 1.0, 5.0, 5.0])
    for slower in (0.0, 0.05):
        (share,) = lanes(lane, orbit, busy_s, (slower,))
        assert (np.bincount(orbit, share) <= 1).all()
        seconds = busy_s / share
        assert seconds[0] == pytest.approx(20 * (1 + slower), rel=1e-6)
        assert seconds[1] == pytest.approx(seconds[2], rel=1e-6)
    assert seconds[1] == pytest.approx(10.5, rel=1e-6)


def test_many_orbits_are_refused():
    line = load_topology("line:6")
    with pytest.raises(Unsupported, match="symmetry"):
        planned("allreduce", line, 10**6)


@pytest.mark.parametrize("kind", ["allgather", "reducescatter"])
def test_where_messages_cost_a_piece_is_in_no_more_chunks_than_they_are_worth(kind):
    free = damaged(8, "kinds")
    network = replace(free, message_s=np.full(free.link_count, 1e-6))
    plan = planned(kind, network, 8_000_000)
    assert verify(plan).ok, verify(plan)
    in_pieces = seen_by(network, 8_000_000 / 64)  # where every piece is a message
    assert simulate(plan).completion_s <= 1.25 * bounds(in_pieces, plan.workload)[0].seconds
    assert plan.meta["parts"] == 2  # one for each orbit of ranks
    assert planned(kind, free, 8_000_000).meta["parts"] > 2
