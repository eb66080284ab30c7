"""AllReduce on circles: every rank is sent sums that are disjoint from its own."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from examples import one_in
from networks import random_network
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.planners import run_planner
from stretto.planners.greedy.costs import with_costs
from stretto.planners.greedy.exchange.arcs import choose_arcs
from stretto.planners.greedy.exchange.circles import plan_circles
from stretto.planners.registry import Request
from stretto.schedule.best import completion_s
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def allreduce(net: Topology, size: int = 1000, ranks: list[int] | None = None) -> Workload:
    return Workload((make_collective("allreduce", net, size, ranks=None if ranks is None else np.array(ranks)),))


@pytest.mark.parametrize(
    ("count", "messages"), [(2, 1), (3, 2), (5, 3), (6, 3), (7, 4), (15, 5), (23, 6), (33, 6), (64, 6), (127, 10)]
)
def test_one_message_at_a_time_arcs_are_a_shortest_addition_chain(count, messages):
    assert len(choose_arcs(count, 1.0, 1.0)) == messages


def test_where_messages_share_no_link_every_rank_is_sent_the_others_at_once():
    assert choose_arcs(5, 0.0, 1.0) == (0, 0, 0, 0)


@pytest.mark.parametrize(("count", "planner"), one_in(2, [2, 3, 5, 8, 13, 16, 24, 33], ["auto", "greedy"]))
def test_the_ranks_of_a_switch_have_the_sum_within_an_eighth_of_the_bound(count, planner):
    net = load_topology(f"star:{count}?message=1us")
    plan = run_planner(planner, net, allreduce(net), effort="normal")
    assert verify(plan).ok
    # 16 ranks: 2.07 over one tree to a root and back
    assert simulate(plan).completion_s <= 1.125 * bounds(net, plan.workload)[0].seconds


def test_servers_sum_inside_then_every_rail_across():
    net = load_topology("h100:2?message=1us")
    plan = run_planner("greedy", net, allreduce(net), effort="normal")
    # a circle of 8 takes four messages: at 0, 1, 1.7 and 2.7 us; then one message crosses
    assert simulate(plan).completion_s == pytest.approx(8.33e-6, rel=0.01)


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 6, 9])  # others have ranks joined one way only
def test_each_contribution_counts_once_and_times_are_kept_on_uneven_networks(seed):
    net = random_network(seed, routers=False)
    net = replace(net, message_s=np.full(net.link_count, 5e-6))
    ranks = net.accelerators.tolist()[seed % 3 :]
    request = with_costs(Request(net, allreduce(net, ranks=ranks), seed=seed))
    plan = plan_circles(request)
    assert plan is not None
    assert verify(plan).ok
    assert simulate(plan).completion_s == pytest.approx(completion_s(plan), rel=1e-9)


def one_way_network(seed: int) -> tuple[Topology, Workload]:
    """Few links between up to nine nodes, many of them one way only, and an AllReduce among some accelerators."""
    rng = random.Random(seed)
    accelerators = rng.randint(2, 7)
    kinds = [ACCELERATOR] * accelerators + [SWITCH] * rng.randint(0, 2)
    share = rng.choice([0.2, 0.35, 0.6])
    links = [
        (a, b, rng.choice([1e6, 1e9]), rng.choice([0.0, 1e-6, 1e-3]))
        for a in range(len(kinds))
        for b in range(len(kinds))
        if a != b and rng.random() < share
    ]
    net = make_topology("one way", kinds, links, message_s=[rng.choice([1e-6, 5e-6]) for _ in links])
    ranks = sorted(rng.sample(range(accelerators), rng.randint(2, accelerators)))
    return net, allreduce(net, rng.choice([1, 7, 1000]), ranks)


@pytest.mark.parametrize("seeds", [range(600, 640), range(680, 720), range(740, 780)])
def test_where_links_lead_one_way_the_plan_is_right_or_there_is_none(seeds):
    plans = 0
    for seed in seeds:
        net, work = one_way_network(seed)
        plan = plan_circles(with_costs(Request(net, work, seed=seed)))
        if plan is not None:
            plans += 1
            assert verify(plan).ok, seed
    assert plans


def test_a_chunk_that_is_cut_is_not_summed_on_circles():
    net = load_topology("star:4?message=1us")
    for chunks, planned in ((1, True), (2, False)):
        work = Workload((make_collective("allreduce", net, 1000, chunks=chunks),))
        assert (plan_circles(with_costs(Request(net, work))) is not None) is planned
