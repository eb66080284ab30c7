"""Deliveries in a better order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from networks import soonest_broadcast_s
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.model.variants import seen_by
from stretto.planners import run_planner
from stretto.planners.greedy.costs import COSTS
from stretto.planners.greedy.orders import improve_order
from stretto.planners.greedy.search import Search
from stretto.schedule.effort import Budget
from stretto.schedule.pipes import build_network
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def servers(count: int, size: int) -> Topology:
    """Servers on switches; the first GPU of each is joined to a switch for all servers. A message costs 20 us."""
    kinds, links = [SWITCH], []
    for _ in range(count):
        first = len(kinds)
        kinds += [ACCELERATOR] * size + [SWITCH]
        joined = [(v, first + size, 150e9, 0.5e-6) for v in range(first, first + size)] + [(first, 0, 25e9, 1.3e-6)]
        links += [(*ends, width, latency_s) for a, b, width, latency_s in joined for ends in ((a, b), (b, a))]
    net = make_topology("servers", kinds, links)
    return replace(net, message_s=np.full(net.link_count, 20e-6))


@pytest.mark.parametrize("kind", ["allgather", "reducescatter"])
def test_what_enters_a_server_by_a_relay_is_passed_on_there_by_all(kind):
    net = servers(4, 6)
    ranks = net.accelerators[np.arange(24) % 6 > 0]
    work = Workload((make_collective(kind, net, 100_000, ranks=ranks),))
    plan = run_planner("greedy", net, work, effort="normal")
    assert verify(plan).ok
    # 2.48 by the trees as they grow, where the relay sends most
    in_pieces = seen_by(net, 5_000)  # where every piece is a message
    assert simulate(plan).completion_s <= 1.5 * bounds(in_pieces, work)[0].seconds


@pytest.mark.parametrize("ranks", [13, 100])
def test_trees_on_equal_links_are_as_short_as_the_best_of_logp(ranks):
    net = load_topology(f"star:{ranks}?message=2us")
    work = Workload((make_collective("broadcast", net, 1_000),))
    plan = run_planner("greedy", net, work, effort="normal")
    assert simulate(plan).completion_s == pytest.approx(soonest_broadcast_s(ranks, 2 * 0.7e-6 + 2.04e-6, 2.04e-6))


@pytest.mark.parametrize("spec", ["ring:6", "star:7", "mesh:3x3"])
def test_an_order_is_never_made_worse_and_its_times_are_those_of_links(spec):
    net = load_topology(spec)
    work = Workload((make_collective("allgather", net, 9_000_000),))
    first = Search(50, 1, 0)(net, work, True)
    budget = Budget(costs=COSTS)
    better = improve_order(build_network(net, 1e6, True, 1e3), work, first, 3e4, 0, budget)
    assert better.arrival_s.max() <= first.arrival_s.max()
    assert 0 < budget.spent <= 2 * COSTS["look"] * 3e4
    came = better.parent >= 0
    assert (better.start_s[came] >= better.arrival_s[better.parent[came]]).all()
    assert (better.src[came] == better.dst[better.parent[came]]).all()
    assert len(better.chunk) == len(work.chunk_wanted.values) - work.chunk_count
