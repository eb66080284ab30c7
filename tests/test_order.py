"""Orders of machines: as good as all orders tried one by one, judged by the simulator, never worse than the one given."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

import stretto as st
from stretto.kernels import at_speed
from stretto.model.errors import InputError, Unsupported
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.order import bounds, kernel_bounds, kernel_cost, step
from stretto.order import judge as judge_module
from stretto.order import problem as problem_module
from stretto.order.exchangeable import alike_numbers, all_orders_alike, exchangeable, network_moves, number_moves
from stretto.order.judge import Judge, plan_of
from stretto.order.libraries import LIBRARIES
from stretto.order.messages import Share, expand
from stretto.order.network import machines_of
from stretto.order.problem import Problem, Stage
from stretto.order.search import find_order
from stretto.order.traffic import Layout, Traffic, phase, ring, steps
from stretto.simulate import simulate
from stretto.verify import verify

GLOO = LIBRARIES["gloo"].traffic


def uneven(n: int, seed: int = 0):
    """A full mesh whose links differ."""
    random, net = np.random.default_rng(seed), st.topology(f"fullmesh:{n}")
    return replace(
        net, bandwidth=1e9 * random.uniform(0.1, 1, net.link_count), latency_s=random.uniform(0, 1e-3, net.link_count)
    )


def simple_ring(layout, kind, size_bytes, root=0):
    return Traffic("ring", (ring(layout.ranks, size_bytes / layout.ranks, 2 * (layout.ranks - 1)),))


def two_rings(layout, kind, size_bytes, root=0):
    n = layout.ranks
    return Traffic("two rings", (ring(n, size_bytes / n, n - 1), ring(n, size_bytes / n, n - 1)))


def doubling(layout, kind, size_bytes, root=0):
    v = np.arange(layout.ranks)
    return Traffic("doubling", steps([(v, v ^ (1 << s), size_bytes) for s in range(layout.ranks.bit_length() - 1)]))


def tree(layout, kind, size_bytes, root=0):
    """A binary tree in eight segments."""
    v = np.arange(1, layout.ranks)
    waits = [(child - 1, (child - 1) // 2 - 1, 0) for child in v.tolist() if child > 2]
    return Traffic("tree", (phase((v - 1) // 2, v, size_bytes / 8, 8, waits),))


def pairwise(layout, kind, size_bytes, root=0):
    n, v = layout.ranks, np.arange(layout.ranks)
    return Traffic("pairwise", steps([(v, (v + s) % n, size_bytes / n) for s in range(1, n)]))


def problem_of(net, traffic, size_bytes=10**8):
    machines = machines_of(net)
    layout = Layout(np.repeat(np.arange(machines.count), machines.counts))
    share = Share(np.arange(layout.ranks), traffic(layout, "allreduce", size_bytes))
    return Problem(machines, (Stage("all", (share,)),), machines.counts, np.arange(int(machines.counts.max())))


def all_orders(n: int):
    return np.array(list(permutations(range(n))), dtype=np.int64)


SHARED = "h100:4?pod=2&spines=1"
"""A cluster in which messages of different machines share links."""


def with_messages(net, seed: int):
    """A network in which messages cost on some links, and nothing on others."""
    random, net = np.random.default_rng(seed), st.topology(net)
    links = net.link_count
    return replace(
        net, bandwidth=1e9 * random.choice([0.2, 1, 5], links), message_s=random.choice([0, 1e-6, 1e-4], links)
    )


TRIED = [
    (uneven(5), simple_ring), (uneven(5, 1), two_rings), (uneven(4), doubling), (uneven(5), tree), (uneven(5), pairwise),
    ("ring:5", simple_ring), ("mesh:2x3", tree), ("mesh:2x3", pairwise), ("mesh:2x2", doubling),
    ("sites:4,2", two_rings), (SHARED, tree), (with_messages("mesh:2x2", 2), tree),
]  # fmt: skip


@pytest.mark.parametrize(("net", "traffic", "size_bytes"), [(*row, 10 ** (4, 8)[k % 2]) for k, row in enumerate(TRIED)])
def test_the_order_is_the_best_of_all_and_proven(net, traffic, size_bytes):
    problem = problem_of(st.topology(net), traffic, size_bytes)
    n = problem.machines.count
    judge, orders = Judge(problem), all_orders(n)
    if len(problem.rows.kind) * len(orders) > 25_000:
        orders = orders[:: len(problem.rows.kind) * len(orders) // 25_000]
    seconds = np.array([judge.quick_seconds(order) for order in orders])
    found = find_order(problem, np.arange(n), "thorough")
    assert found.proven
    assert found.seconds <= seconds.min() * (1 + 1e-9)
    assert found.seconds == pytest.approx(judge.quick_seconds(found.order), rel=1e-12)
    assert found.bound_s == pytest.approx(found.seconds, rel=1e-9)
    # what proves it: no bound is above what the simulator says
    bound = at_speed(kernel_cost.order_bounds, 0)(orders, problem.kinds, problem.rows, problem.net)
    assert (bound <= seconds * (1 + 1e-9)).all()
    assert bounds.any_order_bound(problem) <= seconds.min() * (1 + 1e-9)


def test_the_bound_of_an_order_is_the_simulators_time_where_no_messages_share_links():
    problem = problem_of(uneven(6), two_rings)
    orders = all_orders(6)[::97]
    bound = at_speed(kernel_cost.order_bounds, 0)(orders, problem.kinds, problem.rows, problem.net)
    assert bound == pytest.approx([Judge(problem).seconds(order) for order in orders], rel=1e-9)


def test_the_judge_runs_a_plan_that_verifies():
    problem = problem_of(st.topology(SHARED), two_rings, 10**6)
    messages = problem.stages[0].messages
    order = np.array([2, 0, 3, 1])
    plan = plan_of(problem.machines, messages, problem.nodes(order))
    assert verify(plan)
    assert simulate(plan).completions_s.max() == Judge(problem).seconds(order)
    assert plan.transfer_count == messages.count == problem.stages[0].message_count


def test_a_long_stage_is_simulated_in_part_and_followed_to_its_end(monkeypatch):
    problem = problem_of(uneven(12), simple_ring)
    order = np.arange(12)
    whole = Judge(problem).seconds(order)
    for module in (problem_module,):
        monkeypatch.setattr(module, "MOST_SIMULATED", 100)
    short = problem_of(uneven(12), simple_ring)
    judge = Judge(short)
    assert not judge.exact
    assert judge.seconds(order) == pytest.approx(whole, rel=1e-9)
    monkeypatch.setattr(judge_module, "MOST_FOLLOWED", 200)
    assert judge.seconds(order[::-1].copy()) == pytest.approx(Judge(problem).seconds(order[::-1].copy()), rel=0.15)
    found = find_order(short, order)
    assert not found.proven
    assert found.seconds <= judge.seconds(order)


def test_machines_keep_their_numbers_where_no_order_ends_sooner():
    given = "server3,server1,server0,server2"
    found = st.order("h100:4", "nccl", "allreduce", "1GB", given=given)
    assert ",".join(found.to_json()["order"]) == given and found.proven


def test_the_first_times_of_a_long_stage_are_simulated_where_links_are_shared(monkeypatch):
    net = st.topology("mesh:3x4")
    order = np.random.default_rng(1).permutation(12)
    whole = Judge(problem_of(net, simple_ring, 10**6)).seconds(order)
    monkeypatch.setattr(problem_module, "MOST_SIMULATED", 100)
    short = problem_of(net, simple_ring, 10**6)
    followed = at_speed(kernel_cost.order_bounds, 0)(order[None], short.kinds, short.rows, short.net)[0]
    assert followed < 0.97 * whole
    assert 0.99 * whole < Judge(short).seconds(order) < 1.05 * whole


@pytest.mark.parametrize("traffic", [simple_ring, tree])
def test_many_machines_end_no_later_than_given_and_near_the_bound(traffic):
    problem = problem_of(uneven(16), traffic)
    given = np.arange(16)
    found = find_order(problem, given, "quick")
    before_s = Judge(problem).seconds(given)
    assert found.bound_s <= found.seconds < before_s
    assert sorted(found.order.tolist()) == list(range(16))
    assert find_order(problem, given, "quick").order.tolist() == found.order.tolist()
    if traffic is simple_ring:
        assert found.seconds < 1.2 * found.bound_s


def test_pairs_of_machines_must_join_them_all():
    time = np.full((4, 4), 9.0)
    time[[0, 1, 2], [1, 2, 0]] = 1.0
    time[[2, 3], [3, 0]] = [2.0, 3.0]
    np.fill_diagonal(time, np.inf)
    # 0 1 2 3 closes with pairs of 1, 1, 2 and 3; to reach 3 alone takes 2
    assert kernel_bounds.least_open(time, True, False, True) == 3.0
    assert kernel_bounds.least_open(time, False, True, False) == 2.0


def test_machines_that_look_alike_and_numbers_that_are_alike_are_seen():
    same = exchangeable(problem_of(st.topology("fullmesh:4"), simple_ring))
    assert same.tolist() == [-1, 0, 1, 2]
    assert exchangeable(problem_of(uneven(4), simple_ring)).tolist() == [-1, -1, -1, -1]
    # two sites of two machines: the machines of a site are alike
    links = [(v, 4 + v // 2, 1e9, 1e-6) for v in range(4)] + [(4, 5, 1e9, 1e-6)]
    links += [(b, a, w, t) for a, b, w, t in links]
    joined = make_topology("two sites", [ACCELERATOR] * 4 + [SWITCH] * 2, links)
    assert exchangeable(problem_of(joined, simple_ring)).tolist() == [-1, 0, -1, 2]
    # and the sites may change places, too
    assert len(network_moves(problem_of(joined, simple_ring))) == 8
    moves = {t: number_moves(problem_of(st.topology("fullmesh:4"), t)) for t in (simple_ring, doubling, tree)}
    assert {t: len(m) for t, m in moves.items()} == {simple_ring: 4, doubling: 4, tree: 1}
    assert [alike_numbers(m) for m in moves.values()] == [True, True, False]


def test_moves_of_the_network_and_of_the_traffic_leave_an_orders_time_as_it_is():
    problem = problem_of(st.topology("h100:4?pod=2&spines=2"), two_rings)
    judge, order = Judge(problem), np.array([0, 2, 1, 3])
    machine_moves, moves = network_moves(problem), number_moves(problem)
    assert len(machine_moves) > 1
    assert len(moves) == 4
    equal = machine_moves[:, order][:, moves].reshape(-1, 4)
    assert [judge.quick_seconds(o) for o in equal] == pytest.approx([judge.seconds(order)] * len(equal), rel=1e-9)


def test_orders_are_proven_where_pods_share_links():
    found = st.order("h100:6?pod=3&spines=1", "nccl-tree", "allreduce", "100KB", effort="quick")
    assert found.proven


def test_every_order_is_best_where_all_send_to_all_at_once():
    found = st.order(uneven(12), "gloo", "alltoall", "1MB")
    assert found.proven
    assert found.order == found.before
    # and where the network is the same for all machines, even of stages that are simulated in part
    long = st.order("fullmesh:9", "nccl-tree", "allreduce", "1GB")
    assert long.proven
    assert long.order == long.before
    # rings and pairwise exchanges are not so
    assert not any(all_orders_alike(problem_of(uneven(5), traffic)) for traffic in (simple_ring, pairwise))


def test_messages_wait_as_traffic_says():
    messages = expand([Share(np.array([5, 6, 7]), Traffic("x", (ring(3, 10, 2), phase([0], [2], 7))))])
    assert messages.src.tolist() == [5, 6, 7, 5, 6, 7, 5]
    assert messages.dst.tolist() == [6, 7, 5, 6, 7, 5, 7]
    assert messages.round.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert messages.before.tolist() == [-1, -1, -1, 0, 1, 2, -1]
    # the second time waits for what came the first time; the second phase for all that rank 5 sent and received last
    assert [sorted(messages.depends[k].tolist()) for k in range(7)] == [[], [], [], [2], [0], [1], [3, 5]]


def test_routes_pass_switches_and_relays_only_where_no_switch_leads():
    net = machines_of(st.topology("h100:2"))
    src, dst = np.array([net.gpus[0][7], net.gpus[0][0]]), np.array([net.gpus[1][0], net.gpus[1][0]])
    pairs = net.pairs(src, dst, np.array([1e9, 1e9]))
    # GPU 7 sends over its rail to its twin, which passes on inside its server
    assert pairs.hops.tolist() == [4, 2]
    assert pairs.seconds.tolist() == [1e9 / 50e9] * 2
    detour = machines_of(st.topology("dgx1"))
    assert detour.count == 8
    assert detour.pairs(np.array([0, 0]), np.array([1, 7]), np.ones(2)).hops.tolist() == [1, 2]


def test_equal_ways_are_spread_over_the_spines():
    net = machines_of(st.topology("h100:16?pod=4&spines=4"))
    first, other = [net.gpus[m][0] for m in range(4)], [net.gpus[m][0] for m in range(4, 8)]
    src, dst = np.array(first), np.array(other)
    routes = net.routes(src, dst, net.pairs(src, dst, np.ones(4)).hops)
    assert len(routes.values) == len(set(routes.values.tolist())) == 16


# --- what users ask -----------------------------------------------------------------------------

REGIONS = "cloud:gcp:us-central1-a,aws:us-east-1,azure:westeurope,gcp:asia-east1-a,aws:eu-west-1"


def test_an_order_says_what_it_is_worth(tmp_path):
    found = st.order(REGIONS, "gloo", "allreduce", "1MB")
    data = found.to_json()
    assert {"order", "before_s", "after_s", "bound_s", "proven"} <= data.keys()
    assert sorted(data["order"]) == sorted(data["before"]) == sorted(REGIONS.removeprefix("cloud:").split(","))
    assert data["bound_s"] <= data["after_s"] <= data["before_s"]
    assert data["proven"]
    assert data["algorithm"] == "ring"
    assert json.loads(json.dumps(data)) == data
    assert "no order ends sooner" in repr(found)
    # the order found, given as the present one, is as good before as after
    again = st.order(REGIONS, "gloo", "allreduce", "1MB", given=list(found.order))
    assert again.before_s == again.after_s == found.after_s
    found.write(tmp_path / "order.json")
    assert json.loads((tmp_path / "order.json").read_text()) == data
    found.draw(tmp_path / "order.svg")
    assert (tmp_path / "order.svg").read_text().startswith("<svg")


def test_sorted_is_by_name():
    found = st.order(REGIONS, "gloo", "allreduce", "1MB", given="sorted")
    assert list(found.before) == sorted(found.order)


def test_groups_of_a_family_share_links_and_families_follow_each_other():
    """Two machines of two GPUs, one link each way: two groups over it take twice as long as one of them."""
    net = "sites:2,2?message=0"
    both = st.order(net, "gloo", groups="tp=2:pipeline:1MB,dp=2:pipeline:10MB", gpus=False)
    assert [name for name, _, _ in both.stages] == ["tp", "dp"]
    assert both.before_s == pytest.approx(sum(seconds for _, seconds, _ in both.stages))
    problem = both.problem
    alone = problem.of_stage(Stage("one", problem.stages[1].shares[:1]))
    latency_s = problem.machines.pairs(
        *np.array([[problem.nodes(both.found)[r]] for r in (0, 2)]), np.ones(1)
    ).latency_s
    assert both.stages[1][1] - latency_s[0] == pytest.approx(2 * (Judge(alone).seconds(both.found) - latency_s[0]))


def test_ranks_of_families_are_counted_the_first_family_first():
    tp, pp, dp = step.families("tp=2:allreduce:1MB,pp=2:pipeline:1MB,dp=3:allgather:2MB", 12, None, None)
    assert [g.tolist() for g in tp.groups[:2]] == [[0, 1], [2, 3]]
    assert [g.tolist() for g in pp.groups[:3]] == [[0, 2], [1, 3], [4, 6]]
    assert [g.tolist() for g in dp.groups] == [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]]
    assert (dp.collective, dp.size_bytes) == ("allgather", 2_000_000)


def test_lists_of_ranks_come_from_a_file(tmp_path):
    file = tmp_path / "groups.json"
    file.write_text(json.dumps([{"name": "dp", "size": "1MB", "collective": "allreduce", "ranks": [[0, 2], [1, 3]]}]))
    found = st.order("ring:4", "gloo", groups=str(file))
    assert found.proven
    # each pair can be neighbours on the ring
    assert found.before_s > found.after_s


@pytest.mark.parametrize("rank", [4, -1, 10**23])
def test_a_rank_that_there_is_not_is_named(tmp_path, rank):
    file = tmp_path / "groups.json"
    file.write_text(json.dumps([{"size": "1MB", "collective": "allreduce", "ranks": [[0, rank]]}]))
    with pytest.raises(InputError, match=f"group 0: there is no rank {rank}; there are ranks 0 to 3"):
        st.order("ring:4", "gloo", groups=str(file))


def test_gpus_inside_machines_are_reordered_where_their_links_differ():
    """Two machines whose GPUs form a ring 0 2 1 3 inside: the order of GPUs follows it."""
    links = []
    for m in range(2):
        a = 4 * m
        links += [(a + x, a + y, 1e9, 1e-6) for x, y in ((0, 2), (2, 1), (1, 3), (3, 0))]
        links += [(a + g, 8, 1e10, 1e-6) for g in (0, 3)] + [(8, a + g, 1e10, 1e-6) for g in (0, 3)]
    links += [(b, a, w, t) for a, b, w, t in links if max(a, b) < 8]
    net = make_topology(
        "two rings",
        [ACCELERATOR] * 8 + [SWITCH],
        links,
        sites=["a"] * 4 + ["b"] * 4 + [""],
        message_s=[0.0] * len(links),
    )
    found = st.order(net, "gloo", "allreduce", "100MB")
    fixed = st.order(net, "gloo", "allreduce", "100MB", gpus=False)
    assert found.after_s < fixed.after_s
    assert sorted(found.gpus["a"]) == sorted(fixed.gpus["a"])
    assert fixed.inside.tolist() == [0, 1, 2, 3]


def test_machines_keep_the_numbers_of_machines_with_as_many_gpus():
    kinds = [ACCELERATOR] * 5 + [SWITCH]
    links = [(v, 5, 1e9 * (v + 1), 1e-6) for v in range(5)] + [(5, v, 1e9 * (v + 1), 1e-6) for v in range(5)]
    net = make_topology("uneven", kinds, links, sites=["a", "b", "b", "c", "d", ""], message_s=[0.0] * 10)
    found = st.order(net, "gloo", "broadcast", "1MB")
    assert found.ranks == (1, 2, 1, 1)


@pytest.mark.parametrize(
    ("arguments", "more", "words"),
    [
        (("ring:4", "glue", "allreduce", "1MB"), {}, "no library 'glue'"),
        (("ring:4", "gloo", "allreduec", "1MB"), {}, "did you mean allreduce?"),
        (("ring:4", "gloo"), {}, "give a collective and its size"),
        (("ring:4", "gloo", "allreduce", "1MB"), {"effort": "hard"}, "no effort"),
        (("ring:4", "gloo", "broadcast", "1MB"), {"root": 4}, "root 4 is not a rank"),
        (("ring:4", "gloo", "allreduce", "1MB"), {"given": "gpu0,gpu1"}, "is missing"),
        (("ring:4", "gloo", "allreduce", "1MB"), {"given": "gpu0,gpu1,gpu1,gpu2"}, "named twice"),
        (("ring:4", "gloo", "allreduce", "1MB"), {"given": "gpu0,gpu1,gpu2,gpu9"}, "no machine 'gpu9'"),
        (("ring:4", "gloo", "allreduce", "1MB"), {"machines": "rack"}, "none of site, gpu"),
        (
            ("ring:4", "gloo", "allreduce", "1MB"),
            {"given": "hosts"},
            "there is no file 'hosts', and .* no machine 'hosts'",
        ),
        (("ring:4", "gloo", "allreduce", "1MB"), {"groups": "tp=3"}, "'tp=3' has 3 ranks, and the topology has 4"),
        (("ring:4", "gloo", "allreduce", "1MB"), {"groups": "tp=4:x"}, "no collective 'x'"),
        (("ring:4", "gloo"), {"groups": "tp=4"}, "no collective; write"),
        (("ring:4", "gloo", "allreduce"), {"groups": "tp=4"}, "no size; write"),
        (("ring:4", "gloo", "allreduce", "1MB"), {"groups": "four"}, "NAME=COUNT"),
        (("ring:4", "gloo", "allreduce", "1MB"), {"groups": "tp=²"}, "NAME=COUNT"),
        (("ring:4", "gloo", "allreduce", "1MB"), {"groups": "none.json"}, "none.json: cannot be read"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(arguments, more, words):
    with pytest.raises(InputError, match=words):
        st.order(*arguments, **more)


def test_networks_that_change_or_turn_are_refused():
    with pytest.raises(Unsupported, match="optical planes"):
        st.order("optical:4,2", "gloo", "allreduce", "1MB")
