"""Greedy matching: what it reaches, and that its search counts work and not time."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from networks import random_network
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError
from stretto.model.plan import COPY, REDUCE
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.model.variants import seen_by
from stretto.planners import run_planner
from stretto.planners.greedy.costs import with_costs
from stretto.planners.greedy.exchange.clusters import plan_clusters
from stretto.planners.greedy.exchange.crossings import plan_crossings
from stretto.planners.greedy.exchange.hubs import plan_hubs
from stretto.planners.greedy.exchange.products import plan_product
from stretto.planners.greedy.planner import greedy
from stretto.planners.greedy.search import Search, deliveries_of_try
from stretto.planners.greedy.tree_swap import plan_with_swapped_trees
from stretto.planners.registry import Request
from stretto.schedule.best import completion_s
from stretto.schedule.clusters import clusters_of
from stretto.schedule.effort import Budget, steps_of
from stretto.schedule.pipes import build_network
from stretto.schedule.trees import divide
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def work(kind: str, spec: str, shard: int, **arguments):
    net = load_topology(spec)
    return net, Workload((make_collective(kind, net, shard_bytes=shard, **arguments),))


def request(net: Topology, load: Workload) -> Request:
    return with_costs(Request(net, load))


def ratio(plan, net, load) -> float:
    assert verify(plan).ok
    return simulate(plan).completion_s / bounds(net, load)[0].seconds


def test_one_chunk_a_gpu_on_dgx1_takes_three_slots_not_four():
    # slots of a fast link (50 GB/s, 0.7 us); greedy search alone gives four
    net, load = work("allgather", "dgx1", 10**6)
    plan = run_planner("greedy", net, load, options={"parts": 1})
    assert verify(plan).ok
    assert simulate(plan).completion_s == pytest.approx(3 * (10**6 / 50e9 + 0.7e-6), rel=1e-9)


@pytest.mark.parametrize("kind", ["allgather", "reducescatter"])
def test_middle_sizes_come_near_the_bound_by_cutting_chunks(kind):
    net, load = work(kind, "dgx1", 64_000)
    assert ratio(run_planner("greedy", net, load), net, load) <= 1.03
    assert ratio(run_planner("greedy", net, load, options={"parts": 1}), net, load) > 1.3


def test_a_small_allreduce_on_a_ring_takes_five_hops_not_eight():
    net, load = work("allreduce", "ring:8", 1)
    hop = float(net.latency_s[0])
    assert simulate(run_planner("greedy", net, load)).completion_s <= 5.05 * hop


def test_a_subset_of_ranks_is_served_through_the_others():
    net = load_topology("torus:4x4")
    load = Workload((make_collective("reducescatter", net, shard_bytes=64_000, ranks=[0, 5, 10, 15]),))
    assert verify(run_planner("greedy", net, load, effort="quick")).ok


def test_more_work_is_never_worse():
    net, load = work("allgather", "amd:1", 64_000)
    some, more = (run_planner("greedy", net, load, options={"work": w}) for w in (0, 300_000))
    assert simulate(more).completion_s <= simulate(some).completion_s


@pytest.mark.parametrize("name", ["parts", "work", "tries"])
def test_an_option_below_zero_is_refused(name):
    net, load = work("allgather", "ring:4", 1000)
    with pytest.raises(InputError, match=name):
        run_planner("greedy", net, load, options={name: -1})


@pytest.mark.parametrize(
    ("spec", "shard", "most"),
    [
        # sums of two sites cross once, not to a root and back (which took 1.87 times the bound)
        ("sites:2,8", 64_000, 1.02),
        # two hops on the hybrid cube mesh, not three: half the buffer goes across first, half within the quads (1.62)
        ("dgx1", 1000, 1.05),
        # chassis whose ways out and in are different GPUs, pipelined (1.31)
        ("ndv2:2", 1000, 1.02),
    ],
)  # fmt: skip
def test_small_sums_meet_among_hubs(spec, shard, most):
    net, load = work("allreduce", spec, shard)
    plan = plan_hubs(request(net, load))
    assert ratio(plan, net, load) < most


def test_what_relays_pass_on_meets_among_hubs():
    # every second node of a ring is a rank; over a root and back a sum would take 12 hops, between the farthest ranks 6
    net = load_topology("ring:12?message=0")
    ranks = list(range(0, 12, 2))
    load = Workload((make_collective("allreduce", net, 1000, ranks=ranks),))
    plan = plan_hubs(request(net, load))
    assert set(plan.src.tolist()) - set(ranks), "relays send"
    assert simulate(plan).completion_s <= 8 * 1.01 * float(net.latency_s[0] + 1000 / net.bandwidth[0])


@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_of_dgx1_comes_with_every_seed(seed):
    net, load = work("allgather", "dgx1", 10**6)
    plan = run_planner("greedy", net, load, seed=seed, options={"parts": 1})
    assert simulate(plan).completion_s == pytest.approx(3 * (10**6 / 50e9 + 0.7e-6), rel=1e-9)


def test_two_ranks_exchange_two_bytes_in_one_hop():
    net, load = work("allreduce", "ring:2", 1)
    assert simulate(run_planner("greedy", net, load)).completion_s < 1.01 * float(net.latency_s[0])


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        # pairs of dies by 200 GB/s; those by 100 GB/s are too thin to spread what enters four
        ("amd:1", [{2}, {16}]),
        # the chassis too, and each switch for itself
        ("amd:2", [{1, 2}, {1, 16}, {1, 32}]),
        # the wider links are a ring through all
        ("dgx1", [{8}]),
        ("torus:4x4", [{16}]),
    ],
)
def test_clusters_are_joined_by_faster_links_that_can_spread_what_enters(spec, sizes):
    net = load_topology(spec)
    found = clusters_of(build_network(net, 1e4, True, 0.0), net.node_count, net.bandwidth)
    assert [set(np.unique(row, return_counts=True)[1].tolist()) for row in found.of] == sizes


def test_what_a_pair_of_dies_has_does_not_enter_it_again():
    net, load = work("allgather", "amd:2", 10**6)
    # 1.33 where slow links take what the other die of the pair has already
    assert ratio(run_planner("greedy", net, load), net, load) < 1.05


def test_slow_links_help_where_latency_decides():
    # nothing but patience takes 1.5 times the bound
    net, load = work("allgather", "amd:1", 64_000)
    assert ratio(run_planner("greedy", net, load), net, load) < 1.2


@pytest.mark.parametrize("widths", [(1, 1), (2, 3)])
def test_whole_chunks_on_a_torus_take_the_least_time_at_the_first_try(widths):
    # links of each dimension alike, no latency; the rarest first alone ends 1.06 and 1.02 times as late
    net = load_topology("torus:8x8")
    across = net.src // 8 != net.dst // 8
    net = replace(net, bandwidth=np.where(across, *widths) * 1e9, latency_s=np.zeros(net.link_count))
    load = Workload((make_collective("allgather", net, shard_bytes=10**6),))
    plan = run_planner("greedy", net, load, options={"parts": 1, "tries": 1})
    assert verify(plan).ok
    least = bounds(net, load, whole_chunks=True)[0].seconds
    assert simulate(plan).completion_s == pytest.approx(least, rel=1e-9)


def test_a_search_ends_where_nothing_can_be_better():
    net, load = work("allgather", "mesh:4x4", 64_000)
    net = replace(net, latency_s=np.zeros(net.link_count))
    once, often = (run_planner("greedy", net, load, options={"parts": 1, "tries": n}) for n in (1, 50))
    assert once.digest() == often.digest()


@pytest.mark.parametrize("seed", range(20))
def test_no_matching_ends_before_its_bound(seed):
    net = random_network(seed, switches=False)
    load = Workload((make_collective("allgather", net, shard_bytes=10**6),))
    matching, found = Search(300, 2, seed).best_matching(net, load, np.random.default_rng(seed))
    if found is not None:
        assert matching.least_s <= found[-1].max() * (1 + 1e-9)


@pytest.mark.parametrize("effort", ["0.0001", "0.003", "0.01"])
def test_little_effort_may_go_into_exchanges_alone(effort):
    net, load = work("allreduce", "dgx2:2?message=20us", 1000)
    assert verify(run_planner("greedy", net, load, effort=effort)).ok


def test_without_time_there_is_still_a_plan_and_it_says_so():
    net, load = work("allreduce", "dgx1", 10**6)
    hurried = run_planner("greedy", net, load, time_limit_s=0.0)
    assert verify(hurried).ok
    assert hurried.meta["stopped"]


@pytest.mark.parametrize(("kind", "spec", "shard"), [("allreduce", "dgx1", 64_000), ("alltoall", "mesh:3x3", 64_000)])
def test_the_same_effort_gives_the_same_plan_and_less_effort_spends_less(kind, spec, shard):
    net, load = work(kind, spec, shard)
    spent, ends_s = [], []
    for effort in ("quick", "normal", "thorough"):
        budget = Budget(steps_of(effort))
        plan = greedy(Request(net, load, budget=budget))
        spent.append(budget.spent)
        ends_s.append(simulate(plan).completion_s)
        assert verify(plan).ok
        assert plan.digest() == run_planner("greedy", net, load, effort=effort).digest()
    assert spent == sorted(spent) and spent[0] < spent[-1]
    assert ends_s == sorted(ends_s, reverse=True)


@pytest.mark.parametrize(
    ("told", "most"), [({"others_s": 1e-6}, 0.3), ({"enough_s": 1.0}, 0.3), ({"others_s": 1.0}, 1)]
)
def test_it_searches_less_where_others_are_far_ahead_or_a_plan_is_enough(told, most):
    spent, ends = [], []
    for known in ({}, told):
        asked = replace(request(*work("allgather", "mesh:3x3", 100_000)), budget=Budget(1e6), **known)
        plan = greedy(asked)
        spent.append(asked.budget.spent)
        ends.append(completion_s(plan))
    assert spent[1] <= most * spent[0] and ends[1] >= ends[0]


def test_a_slow_machine_gives_the_same_plan_for_the_same_effort(monkeypatch):
    net, load = work("allreduce", "mesh:3x3", 4_000)
    quick = run_planner("greedy", net, load, effort="quick")
    monkeypatch.setenv("STRETTO_KERNELS", "python")
    assert run_planner("greedy", net, load, effort="quick").digest() == quick.digest()


def test_sums_are_brought_to_all_the_way_they_were_made():
    net, load = work("allreduce", "torus:3x3", 10**6)
    plan = run_planner("greedy", net, load, options={"parts": 1})
    assert verify(plan).ok
    sums, copies = plan.op == REDUCE, plan.op == COPY
    backward = sorted(zip(plan.dst.values[copies], plan.src[copies], plan.chunk[copies], strict=True))
    assert backward == sorted(zip(plan.src[sums], plan.dst.values[sums], plan.chunk[sums], strict=True))


def test_what_is_summed_over_the_deepest_tree_spreads_over_the_shallowest():
    net, load = work("allreduce", "amd:1", 256_000)
    cut = Workload((divide(load.collectives[0], 128)[0],))
    plan = plan_with_swapped_trees(net, cut, Search(10_000, 1, 0))
    assert verify(plan).ok
    depths: dict[int, list[tuple[int, int]]] = {}
    for c in range(cut.chunk_count):
        inward, outward = (
            {int(a[k]): int(b[k]) for k in np.flatnonzero((plan.chunk == c) & (plan.op == op))}
            for op, a, b in ((REDUCE, plan.src, plan.dst.values), (COPY, plan.dst.values, plan.src))
        )
        (root,) = set(outward.values()) - outward.keys()
        assert set(inward.values()) - inward.keys() == {root}
        depths.setdefault(root, []).append((deepest(inward), deepest(outward)))
    assert any(len(set(own)) > 1 for own in depths.values())
    for own in depths.values():
        by_sums = [outward for _, outward in sorted(own, key=lambda d: (d[0], -d[1]))]
        assert by_sums == sorted(by_sums, reverse=True)


def deepest(toward: dict[int, int]) -> int:
    """The most hops to the root of a tree."""
    most = 0
    for v in toward:
        hops = 0
        while v in toward:
            v, hops = toward[v], hops + 1
        most = max(most, hops)
    return most


def test_an_allreduce_of_middle_size_in_one_chassis_is_near_the_bound():
    net, load = work("allreduce", "amd:1", 64_000)
    assert ratio(run_planner("greedy", net, load), net, load) <= 1.15


def two_chassis(width: float) -> Topology:
    """Two rings of six with counterparts joined."""
    links = [(6 * k + v, 6 * k + (v + d) % 6, 10e9, 1e-6) for k in range(2) for v in range(6) for d in (1, 5)]
    links += [(v, (v + 6) % 12, width, 1e-6) for v in range(12)]
    return make_topology("chassis", [ACCELERATOR] * 12, links)


def test_sums_of_each_chassis_cross_once_and_all_links_between_them_as_much():
    net = two_chassis(1e9)
    plan = plan_clusters(request(net, Workload((make_collective("allreduce", net, shard_bytes=120_000),))))
    assert plan is not None and verify(plan).ok
    assert simulate(plan).completion_s == pytest.approx(completion_s(plan))
    across = (plan.src < 6) != (plan.dst.values < 6)
    assert (plan.op[across] == REDUCE).all()
    crossed_bytes = np.bincount(plan.src[across], plan.size_bytes[across])
    assert crossed_bytes.max() <= 1.01 * 12 * 120_000 / 6
    # what crosses first must not wait for deep trees
    assert plan.start_s is not None and plan.start_s[across].min() < 4e-6


@pytest.mark.parametrize("spec", ["dgx1", "ring:8", "amd:1"])
def test_one_cluster_is_not_planned_as_several(spec):
    assert plan_clusters(request(*work("allreduce", spec, 64_000))) is None


@pytest.mark.parametrize("spines", [1, 8])
def test_servers_are_clusters_also_where_some_pipes_lead_over_a_spine(spines):
    # all enter a server over its NICs, whether from its own pod or over a leaf switch that has more links
    net = load_topology(f"h100:10?pod=8&spines={spines}&oversubscription=2")
    found = clusters_of(build_network(net, 1e6, True, 1e6), net.node_count, net.bandwidth)
    ranks = net.accelerators
    servers, *_ = (len(np.unique(of[ranks])) for of in found.of)
    assert servers == len(ranks) // 8


def test_clusters_of_unequal_size_are_not_counterparts():
    net = two_chassis(1e9)
    assert plan_clusters(request(net, Workload((make_collective("allreduce", net, 120_000, ranks=range(11)),)))) is None


def test_an_allreduce_of_two_chassis_uses_all_that_joins_them():
    net, load = work("allreduce", "amd:2", 64_000)
    assert ratio(run_planner("greedy", net, load), net, load) < 1.3


@pytest.mark.parametrize(
    ("spec", "hops"),
    [
        # rings of 2^k and 3 x 2^k ranks, which walk; lines; products of both, whose hops add up
        *(("ring:3", 1), ("ring:8", 4), ("ring:12", 6), ("ring:16", 8), ("line:5", 4), ("mesh:2x3", 3)),
        *(("torus:4x4", 4), ("torus:6x8", 7), ("torus:8x8", 8), ("mesh:4x4x4", 9), ("hypercube:4", 4)),
    ],
)
def test_a_product_of_rings_and_lines_sums_in_as_many_hops_as_the_farthest_is_away(spec, hops):
    net = load_topology(spec)
    net = replace(net, bandwidth=net.bandwidth * 1e6)
    plan = plan_product(request(net, Workload((make_collective("allreduce", net, 1000),))))
    assert plan is not None
    assert verify(plan).finding is None
    assert simulate(plan).completion_s == pytest.approx(hops * net.latency_s[0], rel=0.01)


@pytest.mark.parametrize("spec", ["ring:5", "ring:10", "dgx1", "fullmesh:5", "sites:2,4"])
def test_what_is_no_product_of_such_rings_and_lines_is_left_to_others(spec):
    assert plan_product(request(*work("allreduce", spec, 1000))) is None


@pytest.mark.parametrize(("ranks", "step"), [(12, 4), (16, 4), (24, 5), (24, 9), (32, 6)])
def test_a_twisted_torus_is_no_product(ranks, step):
    # rings of ranks that are as many steps apart, which one ring through all joins
    ends = [(v, (v + d) % ranks) for v in range(ranks) for d in (1, ranks - 1, step, ranks - step)]
    net = make_topology("twisted", [ACCELERATOR] * ranks, [(a, b, 25e9, 1e-6) for a, b in ends])
    load = Workload((make_collective("allreduce", net, shard_bytes=1000),))
    assert plan_product(request(net, load)) is None


def test_walks_along_all_factors_share_the_links_of_a_torus():
    # what ranks must take in, 64 KB over four links, is all that the latency of 8 hops does not hide
    net, load = work("allreduce", "torus:8x8", 1000)
    plan = plan_product(request(net, load))
    assert plan is not None and ratio(plan, net, load) < 1.05
    assert ratio(run_planner("greedy", net, load), net, load) < 1.05


def test_a_torus_with_other_numbers_of_its_nodes_is_the_same_product():
    net, _ = work("allreduce", "torus:4x6", 1000)
    name = np.random.default_rng(3).permutation(24)
    links = zip(name[net.src], name[net.dst], net.bandwidth, net.latency_s, strict=True)
    renamed = make_topology("renamed", [ACCELERATOR] * 24, [(int(a), int(b), w, s) for a, b, w, s in links])
    load = Workload((make_collective("allreduce", renamed, shard_bytes=1000),))
    plan = plan_product(request(renamed, load))
    assert plan is not None and ratio(plan, renamed, load) < 1.15


def test_sums_of_some_of_a_chassis_cross_before_all_have_come():
    # 2.1 us to sum up a chassis, 5.2 to cross, 2.1 to spread: 1.38 of the bound if one after the other
    net, load = work("allreduce", "amd:2", 1000)
    plan = plan_crossings(request(net, load))
    assert plan is not None
    assert verify(plan).finding is None
    assert simulate(plan).completion_s < 8.2e-6
    chassis = np.array([int(name[3:]) // 16 if name.startswith("gpu") else -1 for name in net.names])
    across = chassis[plan.src] != chassis[plan.dst.values]
    assert (plan.op[across] == REDUCE).all()
    senders = {c: np.unique(plan.src[across & (plan.chunk == c)]) for c in range(plan.workload.chunk_count)}
    assert max(len(own) for own in senders.values()) > 2


@pytest.mark.parametrize("seed", range(8))
def test_crossings_are_right_whatever_the_clusters_look_like(seed):
    # two or three clusters of alike trees with chords, whose ranks hang on one switch
    rng = random.Random(seed)
    each, count = rng.randint(4, 8), rng.randint(2, 3)
    pairs = {(rng.randrange(v), v) for v in range(1, each)} | {
        (v, v + 2) for v in range(each - 2) if rng.random() < 0.5
    }
    links = [
        (each * k + a, each * k + b, 50e9, 1e-6) for k in range(count) for v, w in pairs for a, b in ((v, w), (w, v))
    ]
    ranks = each * count
    links += [(a, b, 5e9, 2e-6) for v in range(ranks) for a, b in ((v, ranks), (ranks, v))]
    net = make_topology("hung", [ACCELERATOR] * ranks + [SWITCH], links)
    plan = plan_crossings(request(net, Workload((make_collective("allreduce", net, shard_bytes=1000),))))
    assert plan is not None
    assert verify(plan).finding is None
    assert simulate(plan).completion_s == pytest.approx(completion_s(plan))


def test_clusters_joined_through_a_few_of_their_ranks_have_no_crossings():
    assert plan_crossings(request(*work("allreduce", "ndv2:2", 1000))) is None
    assert plan_crossings(request(*work("allreduce", "amd:1", 1000))) is None


@pytest.mark.parametrize("steps", [1, 1e3, 1e4, 1e5])
def test_fewer_parts_than_ranks_leave_work_for_a_part_for_each_rank(steps):
    net = load_topology("torus:4x4?message=1us")
    work = Workload((make_collective("allreduce", net, 10**9),))
    plan = greedy(Request(net, work, budget=Budget(steps)))
    assert simulate(plan).completion_s < 1.1 * bounds(net, work)[0].seconds


def test_where_links_are_shared_a_matching_without_preferences_takes_the_rarest_chunk_first():
    net, load = work("allgather", "h100:8?message=1us", 250_000)
    plan = run_planner("greedy", net, load, options={"work": 2000, "tries": 1, "parts": 1})
    # 1.33 where it takes the chunk that comes first
    assert verify(plan).ok
    assert simulate(plan).completion_s < 1.2 * bounds(seen_by(net, 250_000), load)[0].seconds  # each piece is a message


def test_work_on_rails_is_counted_by_the_ways_into_a_node():
    net, load = work("allgather", "h100:16", 125_000)
    # 22 pipes enter each GPU; a delivery takes as long as three over links alone, not nine
    assert deliveries_of_try(net, load) < 6 * len(load.chunk_wanted.values)
