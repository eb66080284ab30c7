"""Copies where messages cost: what enters a set late serves few."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples
from networks import random_network
from stretto.bounds import bounds, copies_bound
from stretto.bounds.copies import Grid
from stretto.model.collective import Collective, make_collective
from stretto.model.collective import Workload as Work
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
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


def test_a_grid_is_begun_anew_where_the_bound_is_at_its_end(monkeypatch):
    monkeypatch.setattr("stretto.bounds.copies.GRIDS", (Grid(60, 1000, 200, 1.2),))
    monkeypatch.setattr("stretto.bounds.copies.HOPE", (0.0,))
    net = without_copies(load_topology("star:9?latency=0.5us&message=1us&bandwidth=100GB/s"))
    assert seconds(net, make_collective("broadcast", net, 1), 2e-6) >= 5.4e-6


@pytest.mark.parametrize(("ranks", "rounds"), [(3, 3), (9, 6)])
def test_a_star_tells_as_many_as_logp_does(ranks, rounds):
    # a message of a byte costs 1 us and is 1 us on its way: 1, 1, 2, 3, 5, 8 and 13 ranks are told after 0, 1, ... 6 us
    net = without_copies(load_topology(f"star:{ranks}?latency=0.5us&message=1us&bandwidth=100GB/s"))
    found_s = seconds(net, make_collective("broadcast", net, 1), 0.5e-6 * rounds)
    assert 0.9e-6 * rounds <= found_s <= rounds * 1e-6 * (1 + 1e-4)


@settings(max_examples=examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture])
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


def test_what_crosses_between_switches_at_the_end_is_told_to_few():
    """Messages cost nothing on the slow link between two switches, and 1 us at ranks. Behind it four ranks can be told
    of what came 2 us before the end or earlier, two of what came in the first one of these 2 us, one of what came in
    the last one: 1.25 us of the slow link are lost."""
    ends = [(0, 1, 10e9), *((1, rank, 100e9) for rank in range(3, 7)), (2, 0, 100e9)]
    links = [(x, y, width, 0.0) for a, b, width in ends for x, y in ((a, b), (b, a))]
    costs = [1e-6 if max(link[:2]) > 1 else 0.0 for link in links]
    kinds, sites = [SWITCH] * 2 + [ACCELERATOR] * 5, ["near", "far", "near", *["far"] * 4]
    net = make_topology("sites", kinds, links, replicates=[False] * 7, message_s=costs, sites=sites)
    found_s = seconds(net, make_collective("broadcast", net, 400_000), 40e-6)
    assert 40.8e-6 <= found_s <= 41.25e-6 * (1 + 1e-9)


@st.composite
def servers(draw):
    """Two to four servers of one to three GPUs around one or two switches that do not copy, with one or two links each
    way; between switches messages cost nothing."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    width, far = st.sampled_from([1e9, 3e9, 10e9]), st.sampled_from([0.0, 1e-6, 20e-6])
    count = draw(st.integers(1, 2))
    kinds, sites = [SWITCH] * count, ["fabric"] * count
    links = [(a, b, draw(width), draw(far)) for a in range(count) for b in range(count) if a != b]
    for number, size in enumerate(sizes):
        own, switch = range(len(kinds), len(kinds) + size), number % count
        kinds += [ACCELERATOR] * size
        sites += [f"server{number}"] * size
        links += [(a, b, draw(width), draw(far)) for a in own for b in own if (b - a) % size == 1]
        links += [(draw(st.sampled_from(own)), switch, draw(width), draw(far))]
        links += [(switch, own[-1], draw(width), draw(far))]
        links += [(own[0], switch, draw(width), draw(far))] if draw(st.booleans()) else []
    links = list({link[:2]: link for link in links}.values())
    costs = [draw(st.sampled_from([1e-6, 5e-6])) if max(link[:2]) >= count else 0.0 for link in links]
    return make_topology("servers", kinds, links, replicates=[False] * len(kinds), message_s=costs, sites=sites)


@settings(max_examples=examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(net=servers(), kind=st.sampled_from(["broadcast", "allgather", "reduce"]), size=st.sampled_from([12, 60_000]))
def test_no_plan_tells_servers_sooner(net, kind, size):
    c = make_collective(kind, net, size)
    found = copies_bound(net, c, 0.5 * bounds(net, Work((c,)))[0].seconds)
    for planner in ("greedy", "shortest-path"):
        plan = run_planner(planner, net, Work((c,)), options={"tries": 5} if planner == "greedy" else {})
        assert found is None or simulate(plan).completion_s >= found.seconds * (1 - 1e-9)


@pytest.mark.parametrize(("count", "late_us"), [(4, 7.3), (14, 12.6)])
def test_each_server_is_told_by_a_message_of_its_own(count, late_us, monkeypatch):
    """A link leads out of one GPU of each server, and one to the other GPU. The first server to be told can send on
    5.3 us after the start, and its messages come 3.6, 4.6, 5.6 us later: of fourteen servers five are told so."""
    monkeypatch.setattr("stretto.bounds.copies.GRIDS", (Grid(16, 1000, 350, 1.8),))
    monkeypatch.setattr("stretto.bounds.copies.HOPE", (0.0,))
    pairs = [(2 * v + 1, 2 * v + 2) for v in range(count)]
    links = [(a, b, 1e11, 0.7e-6) for pair in pairs for a, b in (pair, pair[::-1])]
    links += [link for out, into in pairs for link in ((out, 0, 1e11, 1.3e-6), (0, into, 1e11, 1.3e-6))]
    sites = ["fabric", *(f"server{v // 2}" for v in range(2 * count))]
    kinds, costs = [SWITCH] + [ACCELERATOR] * (2 * count), [1e-6] * len(links)
    net = make_topology("doors", kinds, links, replicates=[False] * len(kinds), message_s=costs, sites=sites)
    late_s = late_us * 1e-6
    assert late_s * 0.95 <= seconds(net, make_collective("broadcast", net, 1), 0.6 * late_s) <= late_s * (1 + 1e-3)


def test_nothing_is_said_where_switches_copy_nodes_are_passed_or_messages_cost_nothing():
    copying = load_topology("star:4?message=1us")
    free = without_copies(load_topology("star:4?message=0"))
    passed = replace(free, message_s=np.full(free.link_count, 1e-6), transit=np.ones(free.node_count, dtype=np.bool_))
    assert copies_bound(copying, make_collective("broadcast", copying, 16), 1e-7) is None
    assert copies_bound(passed, make_collective("broadcast", passed, 16), 1e-7) is None
    assert copies_bound(free, make_collective("broadcast", free, 16), 1e-7) is None
