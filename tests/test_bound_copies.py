"""Copies where messages cost: what enters a set late serves few."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from networks import random_network
from stretto.bounds import bounds, copies_bound
from stretto.bounds.copies import Grid
from stretto.model.collective import Collective, make_collective
from stretto.model.collective import Workload as Work
from stretto.model.topology import Topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology

SMALL = (Grid(16, 1000, 150, 4.0), Grid(60, 1000, 200, 1.2))


@pytest.fixture(autouse=True)
def small_grids(monkeypatch):
    monkeypatch.setattr("stretto.bounds.copies.GRIDS", SMALL)
    monkeypatch.setattr("stretto.bounds.copies.HOPE", (0.0, 0.0))


def without_copies(net: Topology) -> Topology:
    return replace(net, replicates=np.zeros(net.node_count, dtype=np.bool_))


def seconds(net: Topology, c: Collective, from_s: float) -> float:
    found = copies_bound(net, c, from_s)
    assert found is not None
    return found.seconds


def best_chain_s(size: int, message_s: float, widths: tuple[float, float], latency_s: float, grain: int = 24) -> float:
    """The least completion of a broadcast over two links one after the other, by all chunks of whole grains."""
    best = np.inf
    for cuts in (cuts for count in range(4) for cuts in combinations(range(1, grain), count)):
        first = second = 0.0
        for low, high in pairwise((0, *cuts, grain)):
            first += message_s + size * (high - low) / grain / widths[0]
            second = max(second, first + latency_s) + message_s + size * (high - low) / grain / widths[1]
        best = min(best, second + latency_s)
    return best


@pytest.mark.parametrize(("kind", "second"), [("broadcast", 4), ("reduce", 1)])
def test_a_chain_of_two_links_takes_what_an_exhaustive_search_finds(kind, second):
    net = load_topology("line:3?bandwidth=1GB/s&latency=1us&message=10us")
    faster = {(1, 2), (2, 1)}
    ends = zip(net.src.tolist(), net.dst.tolist(), strict=True)
    net = replace(net, bandwidth=np.array([1e9 * (second if pair in faster else 1) for pair in ends]))
    c = make_collective(kind, net, 100_000)
    least_s = best_chain_s(100_000, 1e-5, (1e9, second * 1e9), 1e-6)
    found_s = seconds(net, c, 1e-4)
    assert 0.78 * least_s <= found_s <= least_s * (1 + 1e-9)


@pytest.mark.parametrize(("ranks", "rounds"), [(3, 3), (9, 6)])
def test_a_star_tells_as_many_as_logp_does(ranks, rounds):
    # a message of a byte costs 1 us and is 1 us on its way: 1, 1, 2, 3, 5, 8 and 13 ranks are told after 0, 1, ... 6 us
    net = without_copies(load_topology(f"star:{ranks}?latency=0.5us&message=1us&bandwidth=100GB/s"))
    found_s = seconds(net, make_collective("broadcast", net, 1), 0.5e-6 * rounds)
    assert 0.9e-6 * rounds <= found_s <= rounds * 1e-6 * (1 + 1e-4)


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(["broadcast", "allgather", "reduce"]),
    seed=st.integers(0, 10_000),
    cost_us=st.sampled_from([0.1, 2.0, 20.0]),
    size=st.sampled_from([30, 3000]),
)
def test_no_plan_copies_sooner(kind, seed, cost_us, size):
    net = without_copies(random_network(seed, routers=False))
    net = replace(net, message_s=np.full(net.link_count, cost_us * 1e-6))
    c = make_collective(kind, net, size)
    found = copies_bound(net, c, 0.5 * bounds(net, Work((c,)))[0].seconds)
    for planner in ("greedy", "shortest-path"):
        plan = run_planner(planner, net, Work((c,)), options={"tries": 5} if planner == "greedy" else {})
        assert found is None or simulate(plan).completion_s >= found.seconds * (1 - 1e-9)


def test_two_sites_wait_for_the_last_chunk_to_be_passed_on():
    """One long link leads to four ranks; a cut counts its bytes, and not that three ranks hear of each chunk later."""
    net = without_copies(load_topology("star:5?latency=1us&message=1us&bandwidth=100GB/s"))
    c = make_collective("broadcast", net, 400_000)
    cut_s = bounds(net, Work((c,)))[0].seconds
    assert seconds(net, c, cut_s) > 1.2 * cut_s


def test_nothing_is_said_where_switches_copy_or_messages_cost_nothing():
    copying = load_topology("star:4?message=1us")
    free = without_copies(load_topology("star:4?message=0"))
    assert copies_bound(copying, make_collective("broadcast", copying, 16), 1e-7) is None
    assert copies_bound(free, make_collective("broadcast", free, 16), 1e-7) is None
