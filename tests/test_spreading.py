"""Collectives along one dimension of a product of graphs after the other."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.model.collective import Workload, make_collective
from stretto.model.plan import COPY
from stretto.planners import Request, run_planner
from stretto.planners.fixed.neighbours import lines_of, product_among
from stretto.planners.registry import asked_by
from stretto.schedule.gossip import Line
from stretto.schedule.products import product_of
from stretto.schedule.spreading import spread_in_turn, ways_in_turn
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

ALIKE = Line(1e-6, 1e-6, 1e-9, 0)


def product(spec):
    """The product that a network of accelerators is, and which of them links join."""
    net = load_topology(spec)
    joined = np.zeros((net.node_count,) * 2, dtype=bool)
    joined[net.src, net.dst] = True
    found = product_of(joined)
    assert found is not None
    return found, joined


def held(candidate, kind, ranks, joined):
    """For each block and node which ranks' contributions it has in the end, as bits."""
    blocks = candidate.algorithm.blocks(kind, ranks, 1)
    count = blocks * (1 if kind == "allreduce" else ranks)
    has = np.zeros((count, ranks), dtype=object)
    for rank in range(ranks):
        if kind == "allgather":
            has[rank * blocks : (rank + 1) * blocks, rank] = 1 << rank
        else:
            has[:, rank] = 1 << rank
    for step in candidate.algorithm.steps(kind, ranks):
        assert joined[step.src, step.dst].all()
        sent = has[step.block, step.src]
        for block, dst, what in zip(step.block, step.dst, sent, strict=True):
            assert what, "nothing is sent"
            assert step.op == COPY or not has[block, dst] & what, "nothing is added twice"
            has[block, dst] = what if step.op == COPY else has[block, dst] | what
    return has


@pytest.mark.parametrize("spec", ["mesh:3x4", "torus:3x5", "torus:3x3x3", "hypercube:3", "line:5", "ring:6"])
def test_every_block_reaches_every_rank_over_edges(spec):
    found, joined = product(spec)
    ranks = len(joined)
    for candidate in spread_in_turn(found, "allgather", [ALIKE] * len(found.shape), 1e6, 1e6):
        has = held(candidate, "allgather", ranks, joined)
        blocks = len(has) // ranks
        assert (has == np.repeat([1 << rank for rank in range(ranks)], blocks)[:, None]).all()


@pytest.mark.parametrize(
    "spec", ["mesh:3x4", "torus:3x5", "torus:2x3", "torus:3x4", "torus:3x3x3", "torus:4x4", "line:5"]
)
def test_every_rank_ends_with_all_contributions_each_added_once(spec):
    found, joined = product(spec)
    ranks = len(joined)
    candidates = [*spread_in_turn(found, "allreduce", [ALIKE] * len(found.shape), 1e6, 1e6)]
    assert candidates
    for candidate in candidates:
        assert (held(candidate, "allreduce", ranks, joined) == (1 << ranks) - 1).all()


def test_whole_sums_are_exchanged_where_each_two_on_a_line_are_neighbours():
    for spec, most in (("torus:3x3x3", 3), ("hypercube:3", 3), ("torus:3x5", 1), ("torus:5x5", 0)):
        found, _ = product(spec)
        lines = [ALIKE] * len(found.shape)
        ways = [*ways_in_turn(found, "allreduce", lines, 1e6)]
        assert max(len(found.shape) - way.split for way in ways) == most


def test_on_a_torus_a_part_begins_with_each_dimension():
    found, _ = product("torus:3x3x3")
    best = next(way for way in ways_in_turn(found, "allgather", [ALIKE] * 3, 1e9) if way.share.sum() == 3)
    used = [order for order, count in zip(best.orders, best.share, strict=True) if count]
    assert sorted(order[0] for order in used) == [0, 1, 2] == sorted(order[-1] for order in used)


def test_a_slow_dimension_comes_first():
    found, _ = product("torus:3x3x3")
    lines = [ALIKE, ALIKE._replace(s_per_byte=1e-8), ALIKE]
    alone = next(ways_in_turn(found, "allgather", lines, 1e9))
    assert alone.orders[int(alone.share.argmax())][0] == 1
    # each link of it carries one block, and of the last dimension nine, ten times as fast
    assert alone.least_s == pytest.approx(1e9 * 1e-8 + 1e-6)


def test_few_bytes_and_many_blocks_are_left_out():
    found, _ = product("torus:3x5")
    assert len([*spread_in_turn(found, "allgather", [ALIKE] * 2, 1.0, 1e6)]) == 1
    assert not [*spread_in_turn(found, "allgather", [ALIKE] * 2, 1e6, 100.0)]


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("kind", ["allgather", "reducescatter", "allreduce"])
@pytest.mark.parametrize("spec", ["mesh:3x4", "torus:4x4", "torus:2x3", "torus:3x4x2", "line:6"])
def test_plans_are_right_with_relays_and_without(spec, kind, some):
    net = load_topology(f"{spec}?message=2us")
    ranks = net.accelerators[::2] if some else net.accelerators
    for size in (64_000, 16_000_000):
        plan = run_planner("hierarchical", net, Workload((make_collective(kind, net, size, ranks=ranks),)))
        assert verify(plan).ok


def test_what_hosts_do_for_further_chunks_counts(monkeypatch):
    net = load_topology("torus:3x3x3?message=20us")
    work = Workload((make_collective("allgather", net, 1_000_000),))
    few = run_planner("hierarchical", net, work)
    monkeypatch.setattr("stretto.schedule.best.CHUNK_SHARE", 0.0)
    many = run_planner("hierarchical", net, work)
    assert many.transfer_count > few.transfer_count
    assert simulate(many).completion_s < simulate(few).completion_s


def test_an_allreduce_of_middle_size_on_a_torus_ends_much_sooner():
    """Rounds of scattering and gathering cost twice the messages, and exchanges of all bytes far more bytes."""
    net = load_topology("torus:3x3x3?message=20us")
    work = Workload((make_collective("allreduce", net, 1_000_000),))
    plan = run_planner("hierarchical", net, work)
    assert "whole sums along the last 2" in plan.meta["algorithm"]
    assert simulate(plan).completion_s < 0.8 * simulate(run_planner("symmetric", net, work)).completion_s


@pytest.mark.parametrize("kind", ["allgather", "reducescatter", "allreduce"])
def test_what_it_takes_at_least_is_said_before_it_is_planned(kind):
    (least,) = (entry.auto.least_s for entry in asked_by("auto") if entry.name == "hierarchical")
    for spec in ("mesh:2x3", "mesh:3x5", "mesh:2x3x4", "line:7"):
        net = load_topology(f"{spec}?message=20us")
        for size in (64_000, 16_000_000, 256_000_000):
            work = Workload((make_collective(kind, net, size),))
            completion_s = simulate(run_planner("hierarchical", net, work)).completion_s
            assert 0.1 * completion_s < least(Request(net, work)) <= completion_s
        for ranks in (net.accelerators[::2], net.accelerators[:3]):  # no grid, and a part that is one
            some = Workload((make_collective(kind, net, size, ranks=ranks),))
            assert least(Request(net, some)) == 0.0
    net.bandwidth[0] /= 4
    assert least(Request(net, work)) == 0.0


def test_a_link_carries_what_is_scattered_over_the_opposite_one_too():
    found, _ = product("line:5")
    gather, both = (next(ways_in_turn(found, kind, [ALIKE], 1.0)).least_s for kind in ("allgather", "allreduce"))
    assert (gather, both) == pytest.approx((4e-6 + 4e-9, 5e-6 + 5e-9))


def test_lines_are_as_slow_as_their_slowest_link():
    net = load_topology("mesh:3x4?message=2us")
    found = product_among(net, net.accelerators)
    assert found is not None and lines_of(net, found, net.accelerators)[1]
    net.bandwidth[0] /= 4
    lines, are_alike = lines_of(net, found, net.accelerators)
    assert not are_alike
    assert sorted(line.s_per_byte for line in lines) == pytest.approx([1 / net.bandwidth[1], 4 / net.bandwidth[1]])
