"""Messages that all ranks send alike (``symmetric``'s moves): right on every network, and as late as they say."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from examples import one_in
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.messages import message_count
from stretto.model.plan import Plan
from stretto.planners import run_planner
from stretto.planners.symmetric.all_moves import plan_of_moves
from stretto.planners.symmetric.case import Case, case_of
from stretto.planners.symmetric.lines import along, lines, passed
from stretto.planners.symmetric.moves import Found, best_moves
from stretto.planners.symmetric.routes import find_routes
from stretto.planners.symmetric.times import Table
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

KINDS = ["allgather", "reducescatter", "allreduce", "alltoall"]
NETWORKS = ["h100:3", "fullmesh:6?message=20us", "torus:3x4?message=2us", "trn2:2", "h100:4?pod=2&spines=4", "ring:7"]


def found(spec: str, kind: str, size: int, most: float = inf) -> tuple[Found, Case, Table]:
    net = load_topology(spec if "message" in spec else f"{spec}{'&' if '?' in spec else '?'}message=1us")
    case = case_of(net, Workload((make_collective(kind, net, size),)))
    assert isinstance(case, Case)
    table = Table(*(find_routes(case.symmetry, case.at, into) for into in (False, True)))
    traits = case.first.traits
    halves = traits.reduces, traits.reduces_to_all or not traits.reduces
    shard, pairs = case.first.shard_bytes, traits.pieces == "pair"
    moves = best_moves(case.symmetry, case.digits, table, shard, halves, pairs, most)
    assert moves is not None
    return moves, case, table


@pytest.mark.parametrize(("spec", "kind", "size"), one_in(2, NETWORKS, KINDS, [20_011, 16_000_000]))
def test_plans_are_right_and_end_when_they_say(spec, kind, size):
    moves, case, table = found(spec, kind, size)
    plan = plan_of_moves(moves, case, table)
    assert verify(plan).ok
    assert simulate(plan).completion_s == pytest.approx(moves.times.completion_s)
    transfers, messages = moves.each
    ranks = len(case.first.ranks)
    assert (plan.transfer_count, message_count(plan)) == (transfers * ranks, messages * ranks)


@pytest.mark.parametrize("halved", [False, True])
@pytest.mark.parametrize("order", range(2, 12))
def test_each_way_along_a_line_brings_every_chunk_to_every_rank_once(order, halved):
    for name, _, moves in along(order, halved):
        came = {(half, 0) for half in range(1 + halved)}
        for step, taken, halves in moves:
            assert {(half, at) for half in halves for at in taken.tolist()} <= came, name  # what is sent on has come
            to = {(half, at) for half in halves for at in ((taken + step) % order).tolist()}
            assert not came & to, name
            came |= to
        assert len(came) == order * (1 + halved), name
        through = passed(order, moves)
        assert np.count_nonzero(through) == len(moves) and through.sum() >= (order - 1) * (1 + halved), name


@pytest.mark.parametrize("order", [4, 8, 16])
def test_halves_load_both_directions_of_a_ring_alike(order):
    moves = next(moves for name, _, moves in along(order, True) if name == "ring")
    for pairs in (False, True):
        counts = passed(order, moves) if pairs else np.array([len(m.taken) * len(m.halves) for m in moves])
        forward = np.array([m.step == 1 for m in moves])
        assert counts[forward].sum() == counts[~forward].sum()


def test_fewer_and_larger_messages_bring_a_cluster_nearer_to_the_bound():
    # with a message for each chunk of each rank this takes 1.5 times the bound
    net = load_topology("h100:16?message=1us")
    workload = Workload((make_collective("allgather", net, 64_000_000),))
    plan = run_planner("symmetric", net, workload)
    assert "moves" in plan.meta
    assert message_count(plan) < 0.6 * plan.transfer_count
    assert simulate(plan).completion_s < 1.25 * bounds(net, workload)[0].seconds


@pytest.mark.parametrize(
    ("kind", "size", "most"),
    [("allgather", 16_000_000, 1.04), ("allreduce", 64_000_000, 1.02), ("alltoall", 16_000_000, 1.03)],
)
def test_parts_that_take_coordinates_in_turns_fill_all_links_of_a_torus(kind, size, most):
    moves, case, table = found("torus:4x4", kind, size)
    # along one coordinate after the other half of the links are idle, and one direction of each ring has more to do
    plan = plan_of_moves(moves, case, table)
    assert verify(plan).ok
    assert simulate(plan).completion_s < most * bounds(plan.topology, plan.workload)[0].seconds


def test_what_is_for_a_rank_goes_as_one_of_the_parts_where_all_would_be_too_many_chunks():
    hops = {}
    for most in (16 * 64, 16 * 128):
        moves, case, table = found("torus:4x4", "alltoall", 16_000_000, most)
        plan = plan_of_moves(moves, case, table)
        assert verify(plan).ok and plan.transfer_count <= most
        hops[most] = len(moves.hops.move), plan.workload.chunk_count
    # all parts go to each of 15 goals, two hops away in the mean; or all for a goal goes as one of the parts
    assert hops == {16 * 64: (32, 16 * 16), 16 * 128: (4 * 32, 4 * 16 * 16)}


def busy_s(plan: Plan) -> np.ndarray:
    """float64[links], for how long the bytes of a plan keep each link."""
    return np.bincount(plan.route.values, plan.size_bytes[plan.route.owners]) / plan.topology.bandwidth


@pytest.mark.parametrize(
    ("spec", "kind"),
    [("torus:3x7", "allgather"), ("torus:4x8", "allgather"), ("torus:2x3x4", "allgather"), ("torus:4x6", "allreduce")],
)
def test_parts_have_such_sizes_that_links_of_uneven_coordinates_are_busy_alike(spec, kind):
    links_s = busy_s(plan_of_moves(*found(spec, kind, 64_000_000)))
    assert links_s.max() < 1.02 * links_s.mean()  # 1.09 to 1.2 if parts are equal


@pytest.mark.parametrize(
    ("spec", "kind", "size"),
    one_in(
        2,
        ["torus:4x4", "torus:3x7", "torus:4x8", "torus:2x3x4"],
        ["allgather", "allreduce"],
        [2, 22, 49, 97, 601],
    ),
)
def test_no_part_of_small_chunks_is_empty_and_the_largest_decide_when_plans_end(spec, kind, size):
    spec += "?message=1ns&latency=1ns&bandwidth=1MB/s"  # so that parts pay
    ranks = len(load_topology(spec).accelerators)
    moves, case, table = found(spec, kind, max(size, ranks + 1))
    plan = plan_of_moves(moves, case, table)
    assert verify(plan).ok and plan.workload.chunk_bytes.min() > 0
    assert simulate(plan).completion_s == pytest.approx(moves.times.completion_s)


@pytest.mark.parametrize(("spec", "most"), [("torus:4x4", 16 * 64), ("torus:4x4x4", 64 * 300)])
def test_goals_are_dealt_to_parts_so_that_links_are_busy_alike(spec, most):
    links_s = busy_s(plan_of_moves(*found(spec, "alltoall", 16_000_000, most)))
    assert links_s.max() == pytest.approx(links_s.mean())  # 1.5 if goals are dealt in turn


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("spec", ["ring:8", "torus:4x6", "h100:2"])
def test_halves_are_counted_as_halves(spec, pairs):
    _, case, table = found(spec, "allgather", 1_000_000)
    for digit in case.digits:
        whole, halved = (
            list(lines(case.symmetry, digit, table.outward.reached, table.outward, 1e6, pairs, halved))
            for halved in (False, True)
        )
        assert [line.name for line in whole] == [line.name for line in halved]
        for one, other in zip(whole, halved, strict=True):
            assert one.sent.sum() == other.sent.sum() == case.symmetry.orders[digit] - 1
            assert one.chunk_s.sum() == pytest.approx(other.chunk_s.sum())
            assert one.chunk_s.max() >= other.chunk_s.max()


@pytest.mark.parametrize(
    ("spec", "kind", "size", "most"),
    [
        ("tpuv4:4x4x8", "allgather", 256_000_000, 1.06),  # 1.15 if links are taken to be busy from the first moment on
        ("torus:4x4x4", "alltoall", 4_000_000, 1.16),  # 1.19 if each part is taken to be as large as all
        ("torus:2x3x5", "alltoall", 100_000, 1.3),  # 1.6 if coordinates are taken in one order around only
    ],
)
def test_estimates_choose_good_programs_of_several_parts(spec, kind, size, most):
    moves, case, _ = found(spec, kind, size)
    assert moves.times.completion_s < most * bounds(case.symmetry.topology, case.workload)[0].seconds


def test_twice_the_messages_must_end_sooner_by_more_than_a_percent():
    moves, *_ = found("h100:4", "allgather", 1_000_000)
    assert moves.each == (31, 7)  # with (62, 13) it ends 0.6 % sooner


def test_small_data_goes_in_few_messages_and_large_data_in_many():
    counts = [len(found("h100:8", "allgather", size)[0].step) for size in (100_000, 256_000_000)]
    assert counts[0] <= 10  # 7 + 7 to all, one after the other; or fewer that grow
    assert counts[1] > 2 * counts[0]


def test_where_messages_cost_nothing_or_carry_one_chunk_none_are_made():
    for spec, several in (("h100:16?message=0us", True), ("h100:16?message=1us", False)):
        net = load_topology(spec)
        workload = Workload((make_collective("allgather", net, 64_000_000),))
        plan = run_planner("symmetric", net, workload, several_chunks=several)
        assert plan.message is None


def test_among_thousands_of_ranks_no_pieces_are_listed():
    net = load_topology("h100:256?message=1us")
    collective = make_collective("alltoall", net, 64_000_000)
    plan = run_planner("symmetric", net, Workload((collective,)))
    assert plan.message is None
    assert "listed" not in vars(collective)  # 4 million pieces
