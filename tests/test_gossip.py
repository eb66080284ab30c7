"""Collectives by messages that all ranks of a grid send alike, along all dimensions at the same time."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from stretto.model.collective import Workload, make_collective
from stretto.model.messages import message_count
from stretto.model.plan import COPY
from stretto.model.topology import ACCELERATOR, make_topology
from stretto.planners import run_planner
from stretto.planners.fixed.neighbours import neighbours
from stretto.planners.fixed.overlaps import _candidates, _clusters, _gossips
from stretto.planners.fixed.planner import pairless
from stretto.schedule.gossip import Direction, Line, _growth, gossips
from stretto.schedule.gossip import _moves as moves_to
from stretto.schedule.overlapping import overlapped
from stretto.schedule.pipes import build_network
from stretto.schedule.servers import grids, server_labels
from stretto.schedule.ways import Ways
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

SHAPES = ((2,), (5,), (16,), (2, 2), (3, 4), (5, 3), (8, 8))
ACROSS, INSIDE = Line(2.6, 1.0, 0.0, 0), Line(0.7, 1.0, 0.0, 1)
KINDS = ("allgather", "reducescatter", "allreduce", "alltoall")


def lines(shape, *, bytes_s=0.0):
    return [line._replace(s_per_byte=bytes_s) for line in (ACROSS, INSIDE)[: len(shape)]]


def directions(shape, lines):
    """To all others along each dimension."""
    return [
        Direction(tuple(k * (e == d) for e in range(len(shape))), line)
        for d, (count, line) in enumerate(zip(shape, lines, strict=True))
        for k in range(1, count)
    ]


def to_neighbours(shape):
    """To both neighbours in each dimension, over a port of its own."""
    ways = [(d, by) for d in range(len(shape)) for by in (1, -1)]
    return [
        Direction(tuple(by * (e == d) % n for e, n in enumerate(shape)), INSIDE._replace(port=port))
        for port, (d, by) in enumerate(ways)
    ]


def _moves(shape, lines, *others):
    return moves_to(shape, directions(shape, lines), *others)


def steps_of(kind, shape, seed=0):
    """The algorithms of a kind on a grid whose ranks have any numbers."""
    n = int(np.prod(shape))
    rank = np.random.default_rng(seed).permutation(n)
    found = gossips(kind, shape, rank, directions(shape, lines(shape)), 1.0)
    return [(each.algorithm.steps(kind, n), each.carried) for each in found]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_gather_brings_each_block_once_to_each_rank(shape):
    has = np.eye(int(np.prod(shape)), dtype=bool)
    ((steps, _),) = steps_of("allgather", shape)
    for step in steps:
        assert has[step.src, step.block].all() and not has[step.dst, step.block].any()
        has[step.dst, step.block] = True
    assert has.all()


@pytest.mark.parametrize("shape", SHAPES)
def test_an_alltoall_brings_each_block_to_its_goal(shape):
    n = int(np.prod(shape))
    for steps, _ in steps_of("alltoall", shape):
        at = np.repeat(np.arange(n), n)
        for step in steps:
            assert (at[step.block] == step.src).all() and len(np.unique(step.block)) == len(step.block)
            at[step.block] = step.dst
        assert (at == np.tile(np.arange(n), n)).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_hold_each_contribution_once(shape):
    n = int(np.prod(shape))
    _, (steps, carried) = steps_of("allreduce", shape)
    brought = []  # of each step what comes to each rank: int[ranks, contributions]
    total = np.eye(n, dtype=np.int64)
    for step, takes in zip(steps, carried, strict=True):
        assert step.op != COPY and len(step.src) == n
        sent = sum((np.eye(n, dtype=np.int64) if t < 0 else brought[t] for t in takes), np.zeros((n, n), np.int64))
        came = np.zeros_like(total)
        came[step.dst] = sent[step.src]
        brought.append(came)
        total += came
    assert (total == 1).all()


def soonest_by_trying(shape, steps):
    """When all cells are reached at the soonest, if every move is tried each time; messages take no bytes."""
    n = int(np.prod(shape))
    moves = [(d, k) for d, count in enumerate(shape) for k in range(1, count)]
    cells = np.arange(n)

    def to(move):
        place = list(np.unravel_index(cells, shape))
        place[move[0]] = (place[move[0]] + move[1]) % shape[move[0]]
        return np.ravel_multi_index(place, shape)

    goals, own = {move: to(move) for move in moves}, lines(shape)
    best = np.inf
    stack = [({0: 0.0}, (0.0,) * len(shape))]
    while stack:
        reached, free = stack.pop()
        if len(reached) == n:
            best = min(best, max(reached.values()))
            continue
        port = int(np.argmin(free))
        now = free[port]
        if now >= best:
            continue
        later = [at for at in reached.values() if at > now + 1e-9]
        waits = min(later, default=np.inf)
        if waits < best or len(shape) > 1:
            stack.append((reached, tuple(waits if p == port else f for p, f in enumerate(free))))
        for move in moves:
            if move[0] != port:
                continue
            come = now + own[port].message_s + own[port].latency_s
            new = {int(goals[move][x]) for x, at in reached.items() if at <= now + 1e-9} - reached.keys()
            if new and come < best:
                stack.append((reached | dict.fromkeys(new, come), tuple(
                    now + own[port].message_s if p == port else f for p, f in enumerate(free)
                )))  # fmt: skip
    return best


@pytest.mark.parametrize("shape", [(3,), (5,), (6,), (2, 2), (2, 3), (3, 2)])
def test_no_other_moves_reach_all_cells_sooner(shape):
    _, end_s = _moves(shape, lines(shape), 1.0, False)
    assert end_s == pytest.approx(soonest_by_trying(shape, lines(shape)))


def test_dimensions_work_at_the_same_time():
    """Two servers of 8: along one dimension after the other it takes 3 (1 + 0.7) + 1 + 2.6 = 8.7."""
    assert _moves((2, 8), lines((2, 8)), 1.0, False)[1] < 7.4
    assert _moves((2, 8), [ACROSS, INSIDE._replace(port=0)], 1.0, False)[1] > 7.4


def test_where_messages_are_long_a_line_of_16_is_doubled():
    line = Line(1.4, 20.0, 0.0, 0)
    moves, end_s = _moves((16,), [line], 1.0, False)
    assert len(moves) == 4 and end_s == pytest.approx(4 * 21.4)


def test_growth_is_that_of_messages_one_after_the_other():
    growth, share = _growth(np.array([0.0, 1.0]), np.array([1.0, 2.0]), np.array([2.6, 0.7]))
    number = np.arange(1, 2000)
    sent = [np.exp(-growth * (number * busy + late)).sum() for busy, late in ((1.0, 2.6), (2.0, 0.7))]
    assert share == pytest.approx(sent) and sum(sent) == pytest.approx(1)


@pytest.mark.parametrize("sums", [False, True])
def test_a_search_within_less_time_finds_nothing(sums):
    moves, end_s = _moves((3, 4), lines((3, 4)), 1.0, sums)
    assert moves and _moves((3, 4), lines((3, 4)), 1.0, sums, 0.99 * end_s) == ([], np.inf)


def test_interpreted_and_compiled_searches_find_the_same(monkeypatch):
    found = []
    for speed in ("python", "compiled"):
        monkeypatch.setenv("STRETTO_KERNELS", speed)
        found += [[_moves((3, 4), lines((3, 4), bytes_s=0.1), 1.0, sums) for sums in (False, True)]]
    for (moves, end_s), (others, other_s) in zip(*found, strict=True):
        assert end_s == other_s and len(moves) == len(others)
        assert all((m.reached == o.reached).all() and (m.to == o.to).all() for m, o in zip(moves, others, strict=True))


def candidates_on(net, c):
    work = float(len(net.accelerators)) * net.link_count
    labels = server_labels(net, build_network(net.delayed, float(c.size_bytes), True, work), c.ranks)
    ways = Ways(net)
    return [g for rank in _clusters([*grids(c.ranks, labels)]) for g in _gossips(net, c, rank, ways)], ways


@pytest.mark.parametrize(("spec", "kind", "size"), [
    *product(["h100:3?message=1us", "star:6?message=20us", "sites:2,3?message=50us"], KINDS, [10_000, 1_000_000]),
])  # fmt: skip
def test_plans_verify_and_end_as_scheduled(spec, kind, size):
    net = load_topology(spec)
    c = make_collective(kind, net, size)
    candidates, ways = candidates_on(net, c)
    for candidate in candidates:
        overlap = overlapped(net, c, [candidate], ways, np.inf)
        plan = overlap.plan(Workload((c,)))
        assert verify(plan).ok
        assert simulate(plan).completion_s <= overlap.end_s * (1 + 1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_relays_fill_the_places_of_servers_with_fewer_ranks(kind):
    """Rails join GPUs of equal places, so ranks of unlike places need a relay beside them."""
    net = load_topology("h100:4?message=20us")
    ranks = net.accelerators[[0, 1, 2, 8, 9, 16, 21, 24]]
    c = make_collective(kind, net, 64_000, ranks=ranks)
    ways = Ways(net)
    candidates = [*_candidates(net, c, [], ways)]
    assert candidates and all(len(each.algorithm.relays) == 24 for each in candidates)
    overlap = overlapped(net, c, candidates, ways, np.inf)
    assert verify(overlap.plan(Workload((c,)))).ok


@pytest.mark.parametrize(("kind", "size", "by_dimension_us"), [
    ("allgather", 1000, 10.7), ("reducescatter", 1000, 10.7), ("allreduce", 1000, 10.3), ("alltoall", 64_000, 11.8),
])  # fmt: skip
def test_a_cluster_takes_less_time_than_dimension_by_dimension(kind, size, by_dimension_us):
    net = load_topology("h100:4?message=1us")
    plan = run_planner("hierarchical", net, Workload((make_collective(kind, net, size),)))
    assert verify(plan).ok and message_count(plan) <= 32 * 24
    assert simulate(plan).completion_s < 0.9 * by_dimension_us * 1e-6


@pytest.mark.parametrize("shape", [(5,), (4, 4), (3, 5), (2, 3, 4)])
def test_on_a_torus_each_block_goes_to_its_goal_by_neighbours(shape):
    n = int(np.prod(shape))
    rank = np.random.default_rng(1).permutation(n)
    place = np.array(np.unravel_index(np.argsort(rank), shape))
    for algorithm in (each.algorithm for each in gossips("alltoall", shape, rank, to_neighbours(shape), 1.0)):
        at = np.repeat(np.arange(n), n)
        for step in algorithm.steps("alltoall", n):
            apart = np.abs(place[:, step.src] - place[:, step.dst])
            assert (np.minimum(apart, np.array(shape)[:, None] - apart).sum(axis=0) == 1).all()
            assert (at[step.block] == step.src).all()
            at[step.block] = step.dst
        assert (at == np.tile(np.arange(n), n)).all()


def test_what_cannot_be_reached_has_no_moves():
    east = [way for way in to_neighbours((3, 3)) if way.offset[0] == 0]
    assert not [*gossips("allgather", (3, 3), np.arange(9), east, 1.0)]


@pytest.mark.parametrize("kind", KINDS)
def test_moves_lead_only_where_all_ranks_are_joined(kind):
    """In the second server links lead round, in the first one between any two."""
    inside = [(a, b) for a in range(3) for b in range(3) if a != b] + [(3, 4), (4, 5), (5, 3)]
    across = [(a, a + 3) for a in range(3)] + [(a + 3, a) for a in range(3)]
    links = [(a, b, 1e9, 1e-6) for a, b in inside + across]
    net = make_topology("uneven", [ACCELERATOR] * 6, links, message_s=[1e-6] * len(links))
    c, ways = make_collective(kind, net, 6_000), Ways(net)
    found = [*_gossips(net, c, np.arange(6).reshape(2, 3), ways)]
    assert found
    for each in found:
        assert pairless(each.algorithm, net, c, ways) is None


@pytest.mark.parametrize("spec", ["torus:3x4?message=2us", "ring:5?message=2us", "trn2:2?message=1us"])
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_that_are_joined_to_neighbours_send_alike(spec, kind):
    net = load_topology(spec)
    plan = run_planner("hierarchical", net, Workload((make_collective(kind, net, 100_000),)), effort="quick")
    assert verify(plan).ok
    assert "in all dimensions at once" in plan.meta["algorithm"] or "neighbour" in plan.meta["algorithm"]


@pytest.mark.parametrize("kind", KINDS)
def test_sums_also_go_round_where_links_lead_one_way(kind):
    links = [(v, (v + k) % 7, 1e9, 1e-6) for v in range(7) for k in (1, 3)]
    net = make_topology("one-way", [ACCELERATOR] * 7, links, message_s=[1e-6] * len(links))
    plan = run_planner("hierarchical", net, Workload((make_collective(kind, net, 7_000),)), effort="quick")
    assert verify(plan).ok
    assert "in all dimensions at once" in plan.meta["algorithm"]


def test_a_torus_has_its_neighbours_and_a_mesh_has_none():
    torus, mesh = load_topology("torus:3x4"), load_topology("mesh:3x4")
    found = neighbours(torus, torus.accelerators)
    assert found is not None
    assert sorted(found.shape) == [3, 4] and len(found.directions) == 4
    assert len({line.port for _, line in found.directions}) == 4
    assert neighbours(mesh, mesh.accelerators) is None
