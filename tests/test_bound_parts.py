"""What parts of a network must receive in an AllReduce: the best partition, found and rechecked."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from networks import random_network
from stretto.bounds import (
    best_parts,
    best_timed,
    bottleneck,
    bounds,
    check_part_times,
    check_parts,
    distances,
    tree_rates,
)
from stretto.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.topology import ACCELERATOR, ROUTER, SWITCH, Topology, make_topology


def allreduce(net: Topology, size: int = 10**9):
    return make_collective("allreduce", net, size)


def partitions(items: list[int]):
    """All ways to divide a list into sets."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for some in partitions(rest):
        yield [{first}, *some]
        for i in range(len(some)):
            yield [*some[:i], some[i] | {first}, *some[i + 1 :]]


def symmetric(seed: int, nodes: int) -> Topology:
    """A ring with chords, each link alike both ways."""
    rng = np.random.default_rng(seed)
    pairs = {(v, (v + 1) % nodes) for v in range(nodes)}
    pairs |= {(a, b) for a in range(nodes) for b in range(a + 2, nodes) if (b + 1) % nodes != a and rng.random() < 0.3}
    links = []
    for a, b in sorted(pairs):
        width = float(rng.integers(1, 9)) * 1e9
        links += [(a, b, width, 1e-6), (b, a, width, 1e-6)]
    return make_topology(f"chords{seed}", [ACCELERATOR] * nodes, links)


@given(seed=st.integers(0, 10_000))
def test_the_best_partition_is_that_of_all_partitions(seed):
    net = symmetric(seed, 5)
    found = best_parts(net, allreduce(net))
    assert found is not None
    tried = [check_parts(net, allreduce(net), some) for some in partitions(list(range(5))) if len(some) > 1]
    assert found.seconds == max(tried)


@given(seed=st.integers(0, 10_000))
def test_trees_meet_the_bound_where_links_are_alike_both_ways(seed):
    net = symmetric(seed, 6)
    found, cut = best_parts(net, allreduce(net)), bottleneck(net, allreduce(net))
    assert found is not None
    assert cut is not None
    assert 10**9 / tree_rates(net).rate == pytest.approx(float(max(found.seconds, cut.seconds)), rel=1e-5)


@given(seed=st.integers(0, 10_000))
def test_no_tree_rates_beat_the_bound(seed):
    net = random_network(seed)
    found = best_parts(net, allreduce(net))
    assert found is not None
    assert 10**9 / tree_rates(net).rate >= float(found.seconds) * (1 - 1e-6)


@pytest.mark.parametrize(
    ("spec", "parts", "seconds"),
    [
        # 2 x 31 receipts over 32 x 125 + 16 x 12.5 GB/s
        ("dgx2:2", 32, Fraction(62, 4200)),
        # servers, each entered by 12.5 GB/s: 2 x 3 receipts over 50
        ("ndv2:4", 4, Fraction(6, 50)),
        ("torus:4x4", 16, Fraction(30, 64 * 25)),
    ],
)
def test_the_parts_of_known_networks(spec, parts, seconds):
    net = load_topology(spec)
    found = best_parts(net, allreduce(net))
    assert found is not None
    assert len(found.inside) == parts
    assert found.seconds == seconds
    sets = [set(np.flatnonzero(row).tolist()) for row in found.inside]
    assert check_parts(net, allreduce(net), sets) == found.seconds


@pytest.mark.parametrize(("hub", "seconds"), [(SWITCH, 1.5), (ROUTER, 1.0)])
def test_a_hub_that_stores_could_sum_and_a_switch_cannot(hub, seconds):
    links = [(a, b, 1e9, 0.0) for v in range(1, 5) for a, b in ((0, v), (v, 0))]
    net = make_topology("star", [hub] + [ACCELERATOR] * 4, links)
    assert bounds(net, Workload((allreduce(net),)))[0].seconds == pytest.approx(seconds)


def servers(switch: bool) -> Topology:
    """Three servers, a chain of three each, whose first ranks are joined by a switch, or directly."""
    links = [(s + a, s + b, 10e9, 1e-6) for s in (0, 3, 6) for a, b in ((0, 1), (1, 0), (1, 2), (2, 1))]
    if switch:
        links += [(a, b, 1e9, 2e-6) for s in (0, 3, 6) for a, b in ((s, 9), (9, s))]
    else:
        links += [(a, b, 1e9, 4e-6) for a in (0, 3, 6) for b in (0, 3, 6) if a != b]
    return make_topology("servers", [ACCELERATOR] * 9 + [SWITCH] * switch, links)


@pytest.mark.parametrize("switch", [True, False])
def test_servers_gather_before_they_send_and_spread_after_they_get(switch):
    # each server's last rank is 2 us from its first, which is 4 us from the others; four receipts of 4 or 2 us by three
    net = servers(switch)
    found = best_timed(net, allreduce(net, 4000), distances(net, 0.0))
    assert found is not None
    assert len(found.inside) == 3
    assert found.seconds == pytest.approx(2e-6 + 4e-6 + 2e-6 + 4 * 4000 / (3e9 if switch else 6e9))


@given(seed=st.integers(0, 10_000), size=st.sampled_from([100, 3000, 100_000]))
def test_a_bound_by_timed_parts_is_found_again_and_no_plan_beats_it(seed, size):
    net = random_network(seed)
    work = Workload((allreduce(net, size),))
    found = best_timed(net, work.collectives[0], distances(net, 0.0))
    assert found is not None
    sets = [set(np.flatnonzero(row).tolist()) for row in found.inside]
    again = check_part_times(net, work.collectives[0], sets, list(found.holders), list(found.receivers))
    assert again == pytest.approx(found.seconds)
    plan = run_planner("greedy", net, work, options={"tries": 20})
    assert simulate(plan).completion_s >= found.seconds * (1 - 1e-9)
