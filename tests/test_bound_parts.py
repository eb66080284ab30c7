"""What parts of a network must receive in an AllReduce: the best partition, found and rechecked."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from networks import random_network
from stretto.bounds import best_parts, bottleneck, bounds, check_parts, check_windows, distances, tree_rates, windows
from stretto.bounds.parts import MOST_STEPS, parts_bound
from stretto.bounds.reach import least
from stretto.model.collective import Workload, make_collective
from stretto.model.topology import ACCELERATOR, ROUTER, SWITCH, Topology, make_topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


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


@pytest.mark.parametrize(
    ("hub", "transit", "seconds"), [(SWITCH, True, 1.5), (ROUTER, True, 1.5), (ROUTER, False, 1.0)]
)
def test_a_hub_that_stores_whole_messages_could_sum_and_others_cannot(hub, transit, seconds):
    links = [(a, b, 1e9, 0.0) for v in range(1, 5) for a, b in ((0, v), (v, 0))]
    net = make_topology("star", [hub] + [ACCELERATOR] * 4, links, transit=[transit] + [False] * 4)
    assert bounds(net, Workload((allreduce(net),)))[0].seconds == pytest.approx(seconds)


def test_routers_and_switches_are_in_no_part():
    # four sites of three, with two links of 12.5 GB/s to a router; the routers are a ring of 25 GB/s
    links = []
    for site in range(4):
        own = [4 * site + k for k in range(3)]
        links += [(a, b, 100e9, 1e-6) for a in own for b in own if a != b]
        links += [e for v in own[:2] for e in ((v, 4 * site + 3, 12.5e9, 1e-6), (4 * site + 3, v, 12.5e9, 1e-6))]
        links += [(4 * site + 3, 4 * ((site + d) % 4) + 3, 25e9, 1e-3) for d in (1, 3)]
    net = make_topology("sites", ([ACCELERATOR] * 3 + [ROUTER]) * 4, links)
    found = best_parts(net, allreduce(net))
    assert found is not None
    assert found.seconds == Fraction(6, 100)
    assert 10**9 / tree_rates(net).rate == pytest.approx(0.06)


@pytest.mark.parametrize("steps", [MOST_STEPS, 5_000_000])
def test_servers_are_the_parts_of_a_large_cluster(steps, monkeypatch):
    # 512 ranks in servers that 8 x 50 GB/s enter; with fewer steps no part is smaller than a server
    monkeypatch.setattr("stretto.bounds.parts.MOST_STEPS", steps)
    net = load_topology("h100:64")
    found = best_parts(net, allreduce(net))
    assert found is not None
    assert found.seconds == Fraction(2 * 63, 64 * 400)


def capped(copies: bool, hub: int = SWITCH) -> Topology:
    """Four GPUs at a hub that gets 1 GB/s from each of them and sends 4 GB/s to each."""
    links = [row for v in range(4) for row in ((v, 4, 1e9, 1e-6), (4, v, 4e9, 1e-6))]
    return make_topology("capped", [ACCELERATOR] * 4 + [hub], links, replicates=[False] * 4 + [copies])


def test_what_ranks_can_send_counts_where_no_switch_copies():
    sent = parts_bound(capped(False), allreduce(capped(False)), distances(capped(False), 0.0))
    assert sent is not None
    assert sent.seconds == pytest.approx(1.5, rel=1e-4)  # 6 times 1 GB over 4 GB/s
    assert "sent" in sent.witness
    plan = run_planner("forest", capped(False), Workload((allreduce(capped(False)),)))
    assert simulate(plan).completion_s == pytest.approx(1.5, rel=0.01)


def test_where_the_switch_copies_ranks_send_less():
    """Each rank sends three quarters to be summed elsewhere, and the sum of its own quarter to all at once."""
    net = capped(True)
    sent = parts_bound(net, allreduce(net), distances(net, 0.0))
    assert sent is not None
    assert sent.seconds <= 1.001


def test_a_router_in_which_no_route_branches_copies_what_it_has_stored():
    """A rank sends a sum to the router once, and the router sends it on to the three others."""
    net = capped(False, ROUTER)
    plan = run_planner("mtegcca", net, Workload((allreduce(net),)))
    assert verify(plan).ok
    assert bounds(net, plan.workload)[0].seconds <= simulate(plan).completion_s < 1.2


@settings(max_examples=examples(4))
@given(seed=st.integers(0, 10_000), width=st.sampled_from([0.1, 0.5, 2.0]))
def test_no_plan_beats_what_parts_send_and_receive_on_uneven_networks(seed, width):
    net = random_network(seed)
    rng = np.random.default_rng(seed)
    net = replace(net, bandwidth=net.bandwidth * np.where(rng.random(net.link_count) < 0.5, width, 1.0))
    c = allreduce(net, 1_000_000)
    best = parts_bound(net, c, distances(net, 0.0))
    assert best is not None
    for planner in ("forest", "greedy"):
        assert simulate(run_planner(planner, net, Workload((c,)))).completion_s >= best.seconds * (1 - 1e-9)


def in_windows(net: Topology, size: int, parts: list[set[int]]) -> tuple[float, float]:
    """The bound of a partition with latency, and that of the second look."""
    inside = np.array([[v in part for v in range(net.node_count)] for part in parts])
    when = windows(net, net.accelerators, inside, distances(net, 0.0))
    waits = when.opens_s + when.closes_s
    found = least(waits, net.bandwidth[when.link], 2.0 * (len(parts) - 1) * size)
    return found, check_windows(net, allreduce(net, size), parts, when.first.tolist(), when.last.tolist())


def test_links_out_of_a_ring_wait_for_what_is_far():
    # 0, 1 and 2 hang on a line of two ends 3 and 4, 4 also on 5, 10 ms farther; bandwidth alone: 6 receipts over 8 links
    ways = [(0, 1, 1e-3), (0, 2, 1e-3), (1, 3, 1e-3), (2, 4, 1e-3), (3, 4, 1e-3), (4, 5, 10e-3)]
    links = [(a, b, 1e9, s) for x, y, s in ways for a, b in ((x, y), (y, x))]
    net = make_topology("hook", [ACCELERATOR] * 6, links)
    found, again = in_windows(net, 80 * 10**6, [{0}, {1}, {2}, {3, 4, 5}])
    # the links into 1 and 2 are of use 11 and 10 ms after the start, those out of them as long before the end; all
    # need the 1 ms of their own way
    assert found == pytest.approx(again)
    assert found == pytest.approx(60e-3 + (11 + 10 + 11 + 10 + 8) * 1e-3 / 8)


@pytest.mark.parametrize("seed", range(6))
def test_no_plan_beats_the_windows_of_any_partition(seed):
    net = symmetric(seed, 5)
    far = np.random.default_rng(seed).integers(1, 10, net.link_count) * 1e-3
    net = replace(net, latency_s=far)
    for size in (10**6, 2 * 10**7):
        plan = run_planner("forest", net, Workload((allreduce(net, size),)), options={"parts": 20})
        completion = simulate(plan).completion_s
        for some in (p for p in partitions(list(range(5))) if len(p) > 1):
            found, again = in_windows(net, size, some)
            assert found == pytest.approx(again, rel=1e-9)
            assert completion >= found * (1 - 1e-9), some


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
    seconds = 2e-6 + 4e-6 + 2e-6 + 4 * 4000 / (3e9 if switch else 6e9)
    found, again = in_windows(net, 4000, [{0, 1, 2}, {3, 4, 5}, {6, 7, 8}])
    assert found == pytest.approx(again) == pytest.approx(seconds)
    bound = parts_bound(net, allreduce(net, 4000), distances(net, 0.0))
    assert bound is not None
    assert bound.seconds == pytest.approx(seconds)


@given(seed=st.integers(0, 10_000), size=st.sampled_from([100, 3000, 100_000]))
def test_windows_are_found_again_and_no_plan_beats_them_with_switches_either(seed, size):
    net = random_network(seed)
    work = Workload((allreduce(net, size),))
    best = best_parts(net, work.collectives[0])
    assert best is not None
    found, again = in_windows(net, size, [set(np.flatnonzero(row).tolist()) for row in best.inside])
    assert found == pytest.approx(again)
    plan = run_planner("greedy", net, work, effort="0.05")
    bound = parts_bound(net, work.collectives[0], distances(net, 0.0))
    assert bound is not None
    assert simulate(plan).completion_s >= bound.seconds * (1 - 1e-9)


def test_what_enters_a_server_by_a_switch_is_stored_later():
    # 18 receipts of 10 KB over ten NICs; see docs/contributors/bounds.md
    net = load_topology("ndv2:10")
    c = make_collective("allreduce", net, shard_bytes=1000)
    best = best_parts(net, c)
    assert best is not None
    found, again = in_windows(net, c.size_bytes, [set(np.flatnonzero(row).tolist()) for row in best.inside])
    assert found == pytest.approx(again) == pytest.approx(16.92e-6)


def test_a_switch_inside_a_part_passes_bytes_on_before_they_are_stored():
    # three servers of a chain of three whose first has a NIC, 1 us away; NICs are 3 us apart
    links = [(s + a, s + b, 10e9, 1e-6) for s in (0, 3, 6) for a, b in ((0, 1), (1, 0), (1, 2), (2, 1))]
    links += [(a, b, 10e9, 1e-6) for s in range(3) for a, b in ((3 * s, 9 + s), (9 + s, 3 * s))]
    links += [(9 + a, 9 + b, 1e9, 3e-6) for a in range(3) for b in range(3) if a != b]
    net = make_topology("NICs", [ACCELERATOR] * 9 + [SWITCH] * 3, links)
    found, again = in_windows(net, 4000, [{0, 1, 2, 9}, {3, 4, 5, 10}, {6, 7, 8, 11}])
    # a NIC may pass bytes on to another one, but those that stay are stored 1 us later: a link between NICs opens once the
    # last rank's bytes come, 3 us, and closes its own 3 us and the 3 us to the last rank before the end
    assert found == pytest.approx(again) == pytest.approx(3e-6 + 3e-6 + 3e-6 + 4 * 4000 / 6e9)


def test_what_enters_a_part_at_a_router_waits_for_the_farthest_rank():
    # two sites: a chain of two whose first is 1 us from its router, and the same; routers are 5 us apart
    links = [
        (a, b, 10e9, 1e-6) for s in (0, 3) for x, y in ((0, 1), (0, 2)) for a, b in ((s + x, s + y), (s + y, s + x))
    ]
    links += [(2, 5, 1e9, 5e-6), (5, 2, 1e9, 5e-6)]
    net = make_topology("routers", ([ACCELERATOR] * 2 + [ROUTER]) * 2, links)
    found, again = in_windows(net, 4000, [{0, 1, 2}, {3, 4, 5}])
    # between routers from 2 us on, when the last rank's bytes come, to 5 us and 2 us before the end
    assert found == pytest.approx(again) == pytest.approx(2e-6 + 5e-6 + 2e-6 + 2 * 4000 / 2e9)


def test_what_a_switch_passes_on_is_stored_after_the_shortest_of_its_links():
    # chains of three, two and two ranks whose first has a NIC, 1 us away; NICs are 3 us apart
    links = [(a, a + d, 10e9, 1e-6) for a, d in ((0, 1), (1, -1), (1, 1), (2, -1), (3, 1), (4, -1), (5, 1), (6, -1))]
    nics = ((0, 7), (3, 8), (5, 9))
    links += [(a, b, 10e9, 1e-6) for rank, nic in nics for a, b in ((rank, nic), (nic, rank))]
    links += [(a, b, 1e9, 3e-6) for _, a in nics for _, b in nics if a != b]
    net = make_topology("unequal", [ACCELERATOR] * 7 + [SWITCH] * 3, links)
    found, again = in_windows(net, 4000, [{0, 1, 2, 7}, {3, 4, 8}, {5, 6, 9}])
    # all but one part must get something 1 us before the end, as two of them can; 1 us sooner it is at a NIC, from which
    # it may go to a rank or, 3 us, to another NIC, and which the first part's last rank is 3 us away from; into the first
    # part nothing counts before 2 us, when it comes from the last rank of another one, into these before 3 us or 2 us
    assert found == pytest.approx(again)
    assert found > 1e-6 + 3e-6 + 2e-6 + 4 * 4000 / 6e9


def test_many_ways_to_group_ranks_leave_work_for_the_search(monkeypatch):
    width = [(40 - v) * 1e9 for v in range(39)]
    links = [link for v, w in enumerate(width) for link in ((v, v + 1, w, 1e-6), (v + 1, v, w, 1e-6))]
    net = make_topology("line", [ACCELERATOR] * 40, links)
    monkeypatch.setattr("stretto.bounds.parts.MOST_STEPS", 12 * 40 * (len(links) + 3 * 40))
    found = best_parts(net, allreduce(net))
    assert found is not None and found.seconds == bottleneck(net, allreduce(net)).seconds
