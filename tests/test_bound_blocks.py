"""Bounds from the blocks of a symmetric network: as good as those of a search, and no plan beats them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from stretto.bounds import best_parts, bottleneck, bounds, check_cut, check_parts, check_windows
from stretto.bounds.block_bounds import block_bounds, bounds_by_blocks
from stretto.bounds.block_windows import block_waits
from stretto.bounds.blocks import Blocks, rank_symmetry
from stretto.bounds.parts import MOST_ALONE
from stretto.bounds.reach import least
from stretto.model.collective import Workload, make_collective
from stretto.model.kinds import KINDS
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology

NETWORKS = ["h100:2", "h100:4", "star:6", "fattree:4", "fullmesh:5", "ring:6", "h100:3?message=3us", "sites:3,4"]


def blocks_of(spec: str, kind: str, size: int):
    topology = load_topology(spec)
    collective = make_collective(kind, topology, size)
    symmetry = rank_symmetry(topology, collective)
    ranks = np.zeros(topology.node_count, dtype=np.bool_)
    ranks[collective.ranks] = True
    return topology, collective, Blocks(symmetry, ranks, int(collective.ranks[0]))


def nodes_of(mask) -> set[int]:
    return set(np.flatnonzero(mask).tolist())


@pytest.mark.parametrize("spec", NETWORKS)
def test_one_block_is_the_bottleneck_of_an_allgather(spec):
    topology, collective, blocks = blocks_of(spec, "allgather", 720_000)
    tried = [block for whole in blocks.whole() for block in (whole, blocks.complement(whole))]
    best = max(check_cut(topology, collective, nodes_of(block.inside)) for block in tried)
    assert best == bottleneck(topology, collective).seconds


@pytest.mark.parametrize("spec", NETWORKS)
def test_the_images_of_one_block_are_the_best_partition(spec):
    topology, collective, blocks = blocks_of(spec, "allreduce", 720_000)
    tried = [[nodes_of(row) for row in blocks.images(block)] for block in blocks.whole()]
    assert max(check_parts(topology, collective, parts) for parts in tried) == best_parts(topology, collective).seconds


@pytest.mark.parametrize("spec", ["h100:3", "star:6", "fattree:4", "fullmesh:5", "ring:6"])
def test_the_windows_of_one_part_are_those_of_all(spec):
    topology, collective, blocks = blocks_of(spec, "allreduce", 7200)
    for block in blocks.whole():
        inside = blocks.images(block)
        links, waits = block_waits(blocks, block)
        needed = 2.0 * (len(inside) - 1) * collective.size_bytes / len(inside)
        seconds = least(waits, topology.bandwidth[links], needed)
        first = [next(v for v in heads_of(blocks, block)[q] if inside[q, v]) for q in range(len(inside))]
        again = check_windows(topology, collective, [nodes_of(row) for row in inside], first, first)
        assert seconds <= again * (1 + 1e-9)
        assert seconds >= 0.8 * again


def heads_of(blocks: Blocks, block) -> list[list[int]]:
    """For each part the image of the centre under the element that maps the block to it."""
    rest = blocks._elements(tuple(k for k in range(len(blocks.symmetry.orders)) if k not in block.generators))
    return [[int(v)] for v in blocks.symmetry.image(rest, np.array(blocks.centre))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", ["h100:2", "star:6", "fullmesh:5", "ring:6", "sites:3,4"])
def test_no_plan_beats_them(spec, kind):
    topology = load_topology(spec)
    collective = make_collective(kind, topology, 100_000)
    found = block_bounds(topology, collective, rank_symmetry(topology, collective))
    plan = run_planner("greedy", topology, Workload((collective,)), effort="quick")
    assert max(bound.seconds for bound in found) <= simulate(plan).completion_s * (1 + 1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", NETWORKS)
def test_a_search_is_hardly_better(spec, kind):
    topology = load_topology(spec)
    collective = make_collective(kind, topology, 1_000_000_000)
    found = block_bounds(topology, collective, rank_symmetry(topology, collective))
    assert max(bound.seconds for bound in found) >= 0.99 * bounds(topology, Workload((collective,)))[0].seconds


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


def test_partitions_of_a_large_symmetric_network_need_no_search():
    topology = load_topology("h100:16")
    collective = make_collective("allreduce", topology, 10**9)
    assert len(collective.ranks) >= MOST_ALONE
    found = best_parts(topology, collective)
    assert found.seconds == Fraction(30 * 10**9, 16 * 400 * 10**9)
    assert check_parts(topology, collective, [nodes_of(row) for row in found.inside]) == found.seconds


@pytest.mark.parametrize("kind", ["allreduce", "reducescatter", "reduce"])
def test_sums_by_messages_and_messages_on_the_way_are_bounded_as_by_a_search(kind):
    for spec, size, reason in (("star:8?message=1us", 800, "messages"), ("ring:6?message=20us", 60_000_000, "storing")):
        topology = load_topology(spec)
        collective = make_collective(kind, topology, size)
        found = block_bounds(topology, collective, rank_symmetry(topology, collective))
        searched = {bound.kind: bound.seconds for bound in bounds(topology, Workload((collective,)))}
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
