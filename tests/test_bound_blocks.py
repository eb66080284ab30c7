"""Bounds from the blocks of a symmetric network: as good as those of a search, and no plan beats them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from blocks import NETWORKS, SEEDS, blocks_among, damaged_blocks, named_blocks, nodes_of
from examples import one_in
from stretto.bounds import bottleneck, bounds, check_cut, distances
from stretto.bounds.block_bounds import _sets, block_bounds, bounds_by_blocks, heavier, is_even
from stretto.bounds.blocks import load_into, rank_symmetry
from stretto.bounds.cuts import _refined
from stretto.bounds.growth import growth_bound
from stretto.bounds.latency import latency_path
from stretto.bounds.messages import without_messages
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.kinds import KINDS
from stretto.model.orbits import dealt
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology


@pytest.mark.parametrize("spec", NETWORKS)
def test_one_block_is_the_bottleneck_of_an_allgather(spec):
    topology = load_topology(spec)
    collective, blocks = blocks_among(topology, "allgather", 720_000)
    tried = [blocks.block(ranks) for own in blocks.sets() for ranks in (own, blocks.ranks & ~own)]
    best = max(check_cut(topology, collective, nodes_of(block.inside)) for block in tried)
    assert best == bottleneck(topology, collective).seconds


def test_some_seeds_leave_several_orbits():
    found = [damaged_blocks(seed, "allreduce", 720_000)[2] for seed in SEEDS]
    assert sum(blocks is not None and len(blocks.leads) > 2 for blocks in found) >= 6


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bottleneck_among_several_orbits_is_that_of_a_search(seed):
    for kind in ("allgather", "reducescatter", "alltoall"):
        topology, collective, blocks = damaged_blocks(seed, kind, 72_000_000)
        if blocks is not None:
            found = max(b.seconds for b in block_bounds(topology, collective, blocks.symmetry))
            assert found >= float(bottleneck(topology, collective).seconds) * (1 - 1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", ["h100:2", "star:6", "fullmesh:5", "ring:6", "sites:3,4"])
def test_no_plan_beats_them(spec, kind):
    topology = load_topology(spec)
    collective = make_collective(kind, topology, 100_000)
    found = block_bounds(topology, collective, rank_symmetry(topology, collective))
    plan = run_planner("greedy", topology, Workload((collective,)), effort="0.05")
    assert max(bound.seconds for bound in found) <= simulate(plan).completion_s * (1 + 1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", NETWORKS)
def test_a_search_is_hardly_better(spec, kind):
    topology = load_topology(spec)
    collective = make_collective(kind, topology, 1_000_000_000)
    found = block_bounds(topology, collective, rank_symmetry(topology, collective))
    assert max(bound.seconds for bound in found) >= 0.99 * bounds(topology, Workload((collective,)))[0].seconds


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", ["h100:2", "h100:3", "star:6", "fattree:4", "fullmesh:5", "ring:6", "sites:3,4"])
def test_bytes_come_to_a_cut_and_go_on_inside_as_where_cuts_are_searched(spec, kind):
    for size in (720, 7_200_000):
        topology, collective, blocks = named_blocks(f"{spec}?message=0us", kind, size)
        late = replace(collective, start_s=1e-4)
        near = distances(topology, 0.0)
        for block in _sets(blocks, late):
            width = float(topology.bandwidth[~block.inside[topology.src] & block.inside[topology.dst]].sum())
            load = load_into(topology, late, block)
            searched_s = _refined(topology, Workload((late,)), block.inside, width, near, near, False)
            assert (load.seconds(width) if load is not None else 0.0) == pytest.approx(searched_s, rel=1e-9)


def test_the_best_cut_of_an_alltoall_on_a_ring_is_around_half_of_it():
    topology, collective, blocks = named_blocks("ring:8?message=0us", "alltoall", 8_000_000)
    (half,) = (blocks.block(own) for own in blocks.sets() if own.sum() == 4)
    half_s = check_cut(topology, collective, nodes_of(half.inside))
    assert half_s == Fraction(16_000_000, 50 * 10**9)
    found = block_bounds(topology, collective, blocks.symmetry)
    assert max(b.seconds for b in found if b.kind == "cut") >= half_s


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", ["h100:2", "fattree:4", "ring:7", "sites:3,4"])
def test_the_longest_way_from_one_rank_is_that_between_any_two(spec, kind):
    topology = load_topology(f"{spec}?message=2us")
    workload = Workload((replace(make_collective(kind, topology, 720), start_s=1e-4),))
    delayed = topology.delayed
    way = latency_path(delayed, workload, distances(delayed, 0.0), 0.0)
    (found,) = (
        b
        for b in block_bounds(topology, workload.collectives[0], rank_symmetry(topology, workload.collectives[0]))
        if b.kind == "latency path"
    )
    assert found.seconds == pytest.approx(way.seconds, rel=1e-9)
    hops_s = delayed.latency_s[list(found.links)].sum()
    assert found.seconds == pytest.approx(1e-4 + hops_s, rel=1e-9)


@pytest.mark.parametrize(("sums", "copies"), [("reducescatter", "allgather"), ("reduce", "broadcast")])
@pytest.mark.parametrize("spec", ["h100:2", "fattree:4", "ring:7", "sites:3,4"])
def test_sums_for_one_rank_each_take_as_long_as_copies_backward_in_time(spec, sums, copies):
    """These networks are alike backward in time."""
    topology = load_topology(f"{spec}?message=0us")
    best_s = []
    for kind in (sums, copies):
        collective = make_collective(kind, topology, 720)
        found = block_bounds(topology, collective, rank_symmetry(topology, collective))
        best_s.append(max(bound.seconds for bound in found))
    assert best_s[0] >= best_s[1] * (1 - 1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", ["star:8?message=1us", "ring:6?message=20us", "h100:2?message=3us"])
def test_a_collective_that_starts_later_ends_later_by_as_much(spec, kind):
    topology, collective, blocks = named_blocks(spec, kind, 1_000_000)
    first, later = (
        block_bounds(topology, replace(collective, start_s=start_s), blocks.symmetry) for start_s in (0.0, 1.0)
    )
    assert [bound.kind for bound in later] == [bound.kind for bound in first]
    assert [bound.seconds - 1.0 for bound in later] == pytest.approx([bound.seconds for bound in first], rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_what_messages_count_as_is_added_to_pieces_as_where_cuts_are_searched(kind):
    topology, collective, _ = named_blocks("h100:2?message=3us", kind, 1_000_003)
    net, larger = heavier(topology, collective)
    other, (listed,) = (
        without_messages(topology, Workload((collective,)))[0],
        without_messages(topology, Workload((collective,)))[1].collectives,
    )
    assert np.array_equal(net.bandwidth, other.bandwidth)
    assert not net.message_s.any()
    assert larger.piece_bytes.tolist() == listed.piece_bytes.tolist()


@pytest.mark.parametrize("kind", ["broadcast", "reduce", "scatter", "gather"])
def test_cuts_are_tried_around_the_root_and_around_another_rank(kind):
    topology, collective, blocks = named_blocks("star:6?message=0us", kind, 6_000)
    found = {bound.kind: bound for bound in block_bounds(topology, collective, blocks.symmetry)}
    root, (alone,) = collective.ranks[collective.root], set(found["node ingress"].nodes) - {6}
    outside = set(range(6)) - set(found["node egress"].nodes)
    assert (alone == root) == (kind in ("reduce", "gather"))
    assert (outside == {root}) == (kind in ("broadcast", "scatter"))


def test_chunks_may_be_listed_but_pieces_must_be_those_that_the_kind_promises():
    topology = load_topology("star:4")
    promised = make_collective("allreduce", topology, 4000)
    assert is_even(promised)
    assert is_even(promised.listed)
    assert is_even(dealt(promised, np.array([4000]), np.array([4])))
    assert not is_even(replace(promised.listed, wanted=Ragged.of([[0, 1, 2]])))
    assert not is_even(make_collective("allgather", topology, 4000).listed)
    assert not is_even(make_collective("multicast", topology, 4000, root=0, receivers=[1, 2]))


@pytest.mark.parametrize("spec", ["h100:2", "fattree:4", "ring:7", "sites:3,4"])
def test_the_flow_of_an_alltoall_is_that_of_all_pairs(spec):
    topology, collective, blocks = named_blocks(
        f"{spec}?message=0us", "alltoall", len(load_topology(spec).accelerators)
    )
    found = [b.seconds for b in block_bounds(topology, collective, blocks.symmetry) if b.kind == "flow"]
    bandwidth = topology.bandwidth
    expected = []
    for length in (np.ones(topology.link_count), bandwidth.max() / bandwidth):
        ways = distances(replace(topology, latency_s=length), 0.0)[np.ix_(collective.ranks, collective.ranks)]
        expected.append(float(ways.sum() / (length * bandwidth).sum()))
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_among_a_thousand_ranks_nothing_is_listed(kind):
    topology = load_topology("h100:128")
    collective = make_collective(kind, topology, 1 << 30)
    found = bounds(topology, Workload((collective,)))
    again = make_collective(kind, topology, 1 << 30)
    assert bounds(topology, Workload((again,))) is found
    assert "listed" not in {**vars(collective), **vars(again)}
    server_s = (1 << 30) / 400e9
    share = {"allreduce": 2 * 127 / 128, "allgather": 127 / 128, "reducescatter": 127 / 128, "alltoall": 8 * 127 / 128}
    assert found[0].seconds == pytest.approx(server_s * share.get(kind, found[0].seconds / server_s), rel=2e-3)
    assert found[0].seconds >= server_s * share.get(kind, 0)


def test_where_the_network_is_not_symmetric_a_search_finds_bounds():
    topology = load_topology("line:6")
    collective = make_collective("allreduce", topology, 1000)
    assert rank_symmetry(topology, collective) is None
    assert bounds_by_blocks(topology, Workload((collective,))) is None


@pytest.mark.parametrize("kind", ["allreduce", "reducescatter", "reduce"])
def test_sums_by_messages_and_messages_on_the_way_are_bounded_as_by_a_search(kind):
    for spec, size, reason in (("star:8?message=1us", 800, "messages"), ("ring:6?message=20us", 60_000_000, "storing")):
        topology = load_topology(spec)
        collective = make_collective(kind, topology, size)
        found = block_bounds(topology, collective, rank_symmetry(topology, collective))
        work = Workload((collective,))
        searched = {bound.kind: bound.seconds for bound in (*bounds(topology, work), growth_bound(topology, work, 0.0))}
        if reason in searched:
            assert max(b.seconds for b in found if b.kind == reason) == pytest.approx(searched[reason], rel=1e-9)
    assert kind == "reducescatter" or reason in searched


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_that_only_send_or_only_receive_have_bounds(kind, monkeypatch):
    links = [(v, 4, 1e9, 1e-6) for v in range(4)]
    monkeypatch.setattr("stretto.bounds.block_bounds.MOST_SEARCHED", 3)
    for ends in (links, [(b, a, *w) for a, b, *w in links]):
        topology = make_topology("one way", [ACCELERATOR] * 4 + [SWITCH], ends, message_s=[1e-6] * 4)
        assert bounds_by_blocks(topology, Workload((make_collective(kind, topology, 4000),))) is not None


@pytest.mark.parametrize(("seed", "kind"), one_in(2, SEEDS[:6], KINDS))
def test_no_plan_beats_them_where_a_part_is_damaged(seed, kind):
    topology, collective, blocks = damaged_blocks(seed, kind, 100_000)
    if blocks is not None:
        found = block_bounds(topology, collective, blocks.symmetry)
        plan = run_planner("greedy", topology, Workload((collective,)), effort="0.05")
        assert max(bound.seconds for bound in found) <= simulate(plan).completion_s * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["allgather", "reducescatter", "allreduce", "alltoall"])
@pytest.mark.parametrize("size", [10**6, 10**9])
def test_a_search_among_64_gpus_with_a_slow_nic_is_hardly_better(kind, size):
    t = load_topology("h100:8")
    nic = (t.bandwidth == t.bandwidth.min()) & ((t.src == t.accelerators[0]) | (t.dst == t.accelerators[0]))
    slow = replace(t, bandwidth=np.where(nic, t.bandwidth / 2, t.bandwidth))
    collective = make_collective(kind, slow, size)
    found = block_bounds(slow, collective, rank_symmetry(slow, collective))
    assert max(b.seconds for b in found) >= 0.998 * bounds(slow, Workload((collective,)))[0].seconds


def test_a_thousand_ranks_with_a_dead_nic_are_bounded_by_their_servers():
    t = load_topology("h100:128")
    nic = (t.bandwidth == t.bandwidth.min()) & ((t.src == t.accelerators[0]) | (t.dst == t.accelerators[0]))
    links = list(zip(t.src[~nic], t.dst[~nic], t.bandwidth[~nic], t.latency_s[~nic], strict=True))
    dead = make_topology("a dead NIC", t.kind, links)
    collective = make_collective("allreduce", dead, 10**9)
    found = bounds(dead, Workload((collective,)))
    assert "listed" not in vars(collective)
    # 127 servers of 8 NICs and one of 7
    assert found[0].seconds == pytest.approx(2 * 127 * 1e9 / ((127 * 8 + 7) * 50e9), rel=2e-3)
