"""Trees in rounds: one message a pipe and round, and how near the best such plans come."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from networks import ring
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.messages import message_count
from stretto.model.plan import Plan
from stretto.model.topology import ACCELERATOR, Topology, make_topology
from stretto.model.variants import with_messages
from stretto.planners import run_planner
from stretto.planners.rounds import generation
from stretto.planners.rounds.kernel_growth import grow_trees
from stretto.planners.rounds.planner import _least_rounds
from stretto.simulate import simulate
from stretto.solvers import INFINITY, Model
from stretto.solvers.highs import Growing
from stretto.topologies import load_topology
from stretto.verify import verify

MESSAGE_S, BANDWIDTH, LATENCY_S = 20e-6, 25e9, 1e-6


def mesh(n: int, slow: tuple[tuple[int, int], ...] = ()) -> Topology:
    """n accelerators, each joined to all others; some links have a third of the bandwidth."""
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
    links = [(a, b, BANDWIDTH / 3 if (a, b) in slow else BANDWIDTH, LATENCY_S) for a, b in pairs]
    return with_messages(make_topology("mesh", [ACCELERATOR] * n, links), MESSAGE_S)


def planned(net: Topology, kind: str, size: int, planner: str = "rounds", **options: int) -> Plan:
    plan = run_planner(planner, net, Workload((make_collective(kind, net, size),)), options=options, effort="normal")
    assert verify(plan).ok
    return plan


def test_an_allreduce_on_a_full_mesh_takes_two_rounds_of_equal_parts():
    size, n = 8_000_000, 8
    plan = planned(mesh(n), "allreduce", size)
    round_s = MESSAGE_S + LATENCY_S + size / n / BANDWIDTH
    assert simulate(plan).completion_s == pytest.approx(2 * round_s, rel=1e-6)
    assert message_count(plan) == 2 * n * (n - 1)


def test_an_allgather_on_a_full_mesh_takes_one_round():
    size, n = 8_000_000, 8
    plan = planned(mesh(n), "allgather", size)
    assert simulate(plan).completion_s == pytest.approx(MESSAGE_S + LATENCY_S + size / n / BANDWIDTH, rel=1e-6)


def test_an_alltoall_goes_around_slow_links():
    net, size = mesh(6, slow=((0, 1),)), 6 * 6_000_000
    direct_s = MESSAGE_S + LATENCY_S + 3 * size / 6 / BANDWIDTH
    assert simulate(planned(net, "alltoall", size)).completion_s < 0.6 * direct_s


def test_slow_links_carry_less_than_others_in_a_round():
    net = mesh(6, slow=((0, 1), (1, 3), (4, 2), (5, 0)))
    size = 64_000_000
    plan = planned(net, "allreduce", size)
    bound_s = bounds(net, plan.workload)[0].seconds
    assert simulate(plan).completion_s <= 1.1 * bound_s
    assert simulate(plan).completion_s <= 0.95 * simulate(planned(net, "allreduce", size, "forest")).completion_s


def test_each_pipe_sends_at_most_one_message_in_a_round():
    plan = planned(mesh(5, slow=((0, 1), (2, 3))), "allreduce", 10_000_000)
    assert plan.message is not None and plan.group is not None
    link = plan.route.values.astype(np.int64)  # each route is one link
    first = np.flatnonzero(np.diff(plan.message, prepend=-1))
    places = plan.group.astype(np.int64)[first] * plan.topology.link_count + link[first]
    assert len(np.unique(places)) == len(places)


def test_no_message_carries_several_chunks_where_none_may():
    net = mesh(4, slow=((0, 1),))
    load = Workload((make_collective("allreduce", net, 10_000_000),))
    plan = run_planner("rounds", net, load, several_chunks=False, effort="normal")
    assert plan.message is None
    assert verify(plan).ok


def test_too_few_rounds_are_refused():
    net = with_messages(ring(6), MESSAGE_S)
    with pytest.raises(Unsupported, match="in 2 rounds some rank is not reached"):
        planned(net, "allgather", 6_000_000, rounds=2)
    assert planned(net, "allgather", 6_000_000, rounds=3).transfer_count


def test_what_the_ranks_do_not_hold_may_pass_through_others():
    net = mesh(6)
    load = Workload((make_collective("allreduce", net, 32_000_000, ranks=np.array([0, 1, 2])),))
    alone_s = 2 * (MESSAGE_S + LATENCY_S + 32_000_000 / 3 / BANDWIDTH)
    plan = run_planner("rounds", net, load, effort="normal")
    assert verify(plan).ok
    assert simulate(plan).completion_s < 0.6 * alone_s


def test_a_tree_grows_by_the_cheapest_ways_in_time():
    # a chain 0-1-2 and a direct pipe 0-2, over two rounds; the chain is cheaper unless its second round costs more
    src, dst = np.array([0, 1, 0]), np.array([1, 2, 2])
    wanted, begin = np.array([[True, False, True]]), np.zeros(1, dtype=np.int64)
    price = np.array([[1.0, 1.0, 9.0], [1.0, 1.0, 5.0]])
    total, via, when = grow_trees(src, dst, price, wanted, begin, begin)
    assert (total[0], via[0].tolist(), when[0, 1:].tolist()) == (2.0, [-1, 0, 1], [0, 1])
    price[1, 1] = 6.0
    total, via, when = grow_trees(src, dst, price, wanted, begin, begin)
    assert (total[0], via[0].tolist(), int(when[0, 2])) == (5.0, [-1, -1, 2], 1)
    total, _, _ = grow_trees(src[:2], dst[:2], price[:, :2], wanted, begin, begin + 1)
    assert total[0] == np.inf


def test_a_tree_branches_where_its_last_path_has_just_brought_the_data():
    # 0-1-2 and 1-3 over two rounds; 0-3 costs less than both hops to 3, but more than the second one
    src, dst, wanted = np.array([0, 1, 1, 0]), np.array([1, 2, 3, 3]), np.array([[True, False, True, True]])
    price, begin = np.array([[1.0, 0.2, 1.0, 1.5]] * 2), np.zeros(1, dtype=np.int64)
    total, via, when = grow_trees(src, dst, price, wanted, begin, begin)
    assert total[0] == pytest.approx(2.2)
    assert (via[0].tolist(), when[0, 1:].tolist()) == ([-1, 0, 1, 2], [0, 1, 1])


def test_a_program_grows_by_columns_and_says_what_rows_are_worth():
    model = Model()
    (end,) = model.columns(1, 0.0, INFINITY, 1.0)
    model.rows(1, 1.0, 1.0)
    model.rows(2, 0.0, INFINITY, (np.arange(2), end, 1.0))
    program = Growing(model, by_columns=True)
    program.add_columns(np.zeros(1), (np.array([0, 0]), np.array([0, 1]), np.array([1.0, -1.0])))
    assert program.solve() == pytest.approx([1.0, 1.0])
    assert program.duals == pytest.approx([1.0, 1.0, 0.0])
    program.add_columns(np.zeros(1), (np.array([0, 0]), np.array([0, 2]), np.array([1.0, -1.0])))
    assert program.solve() == pytest.approx([0.5, 0.5, 0.5])
    columns, rows = program.basic
    assert columns.sum() + rows.sum() == 3  # as many as rows
    again = Growing(model, by_columns=True)
    for row in (1, 2):
        again.add_columns(np.zeros(1), (np.array([0, 0]), np.array([0, row]), np.array([1.0, -1.0])))
    again.start(columns, rows)
    assert again.solve() == pytest.approx([0.5, 0.5, 0.5])
    assert again.iterations == 0
    again.keep(np.array([0, 2]))
    assert again.size == 5 and again.solve() == pytest.approx([1.0, 1.0])


def test_idle_trees_are_left_out_and_grow_again_if_they_are_needed(monkeypatch):
    net, work = load_topology("mesh:3x3?message=20us"), "allreduce"
    kept = planned(net, work, 64_000_000)
    sizes = []
    keep = Growing.keep
    monkeypatch.setattr(generation, "FEW", 0)
    monkeypatch.setattr(Growing, "keep", lambda self, columns: sizes.append(len(columns)) or keep(self, columns))
    plan = planned(net, work, 64_000_000)
    assert len(sizes) > 20  # about one for every second solution
    assert simulate(plan).completion_s < 1.03 * simulate(kept).completion_s


@pytest.mark.parametrize("kind", ["allgather", "allreduce"])
def test_messages_of_an_accelerator_that_sends_on_at_once_have_one_chunk(kind):
    net = load_topology("ring:4?message=20us")
    net = replace(net, transit=np.arange(4) == 1)
    assert not net.store_and_forward[1]
    planned(net, kind, 16_000_000)


def test_several_collectives_are_left_to_others():
    net = load_topology("ring:4?message=20us")
    work = Workload(tuple(make_collective("allgather", net, 1_000_000) for _ in range(2)))
    assert verify(run_planner("auto", net, work, effort="quick")).ok
    with pytest.raises(Unsupported, match="one collective"):
        run_planner("rounds", net, work)


def test_two_bytes_take_few_iterations_where_some_links_ask_nothing_for_messages():
    """The simplex method cycled for ever: a message took a million times as long as its bytes."""
    net = load_topology("dgx2?message=20us")
    free = np.random.default_rng(0).random(net.link_count) < 0.5
    planned(replace(net, message_s=np.where(free, 0.0, net.message_s)), "allreduce", 2)


def test_an_allreduce_by_a_switch_begins_with_a_round_for_sums_and_one_for_copies():
    net = load_topology("star:5?message=2us")
    assert _least_rounds(net, make_collective("allreduce", net, 1_000_000)) == 2


def test_a_multicast_to_its_root_alone_is_refused():
    net = load_topology("ring:5?message=1us")
    with pytest.raises(Unsupported, match="every rank has what it needs"):
        run_planner("rounds", net, Workload((make_collective("multicast", net, 1000, receivers=[0]),)))


def test_as_many_rounds_as_are_asked_for_reach_ranks_that_are_far():
    net = load_topology("line:15?message=1us")
    work = Workload((make_collective("broadcast", net, 100_000),))
    with pytest.raises(Unsupported, match="in 12 rounds some rank is not reached"):
        run_planner("rounds", net, work)
    assert verify(run_planner("rounds", net, work, options={"rounds": 14})).ok
