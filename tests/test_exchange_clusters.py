"""Exchanges of alike clusters: in which order parts of the buffer cross, and what comes of it."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from stretto.model.collective import Workload, make_collective
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.planners.greedy.costs import with_costs
from stretto.planners.greedy.exchange.clusters import alike_clusters, find_counterparts, plan_clusters
from stretto.planners.greedy.exchange.turns import assign_turns
from stretto.planners.registry import Request
from stretto.schedule.best import completion_s
from stretto.schedule.trees import cut_at
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def allreduce(net: Topology, shard_bytes: int, **more) -> Workload:
    return Workload((make_collective("allreduce", net, shard_bytes=shard_bytes, **more),))


def request(net: Topology, shard_bytes: int, **more) -> Request:
    return with_costs(Request(net, allreduce(net, shard_bytes, **more)))


def turns_of(net: Topology, shard_bytes: int, parts: int):
    c = allreduce(net, shard_bytes).collectives[0]
    clusters = alike_clusters(net, c)
    assert clusters is not None
    counterparts = find_counterparts(clusters)
    return counterparts, assign_turns(counterparts, c.size_bytes, parts)


def hung(seed: int) -> Topology:
    """Two or three clusters of alike trees with chords, whose ranks are joined by a switch, or each to its like."""
    rng = random.Random(seed)
    each, count = rng.randint(4, 7), rng.randint(2, 3)
    pairs = {(rng.randrange(v), v) for v in range(1, each)} | {
        (v, v + 2) for v in range(each - 2) if rng.random() < 0.5
    }
    links = {}
    for k in range(count):
        for v, w in pairs:
            late = rng.choice((0.5e-6, 1e-6))
            links |= {(each * k + a, each * k + b): (50e9, late) for a, b in ((v, w), (w, v))}
    ranks, kinds = each * count, [ACCELERATOR] * each * count
    if rng.random() < 0.5:
        kinds.append(SWITCH)
        links |= {(a, b): (5e9, 2e-6) for v in range(ranks) for a, b in ((v, ranks), (ranks, v))}
    else:
        links |= {(v, w): (5e9, 2e-6) for v in range(ranks) for w in range(v % each, ranks, each) if v != w}
    return make_topology("hung", kinds, [(a, b, *link) for (a, b), link in links.items()])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shard_bytes", [40, 50_000])
def test_plans_are_right_whatever_the_clusters_look_like(seed, shard_bytes):
    net = hung(seed)
    plan = plan_clusters(request(net, shard_bytes, chunks=3))
    assert plan is not None
    assert verify(plan).finding is None
    assert simulate(plan).completion_s == pytest.approx(completion_s(plan))


@pytest.mark.parametrize(
    "joined", [[(0, 1), (1, 2)], [(0, 2), (2, 1), (1, 3)], [(0, 1), (1, 2), (0, 2), (2, 3)]], ids=str
)
def test_sums_cross_through_counterparts_between_where_no_pipe_joins_two(joined):
    each, clusters = 6, 1 + max(max(pair) for pair in joined)
    inner = [(each * k + v, each * k + w) for k in range(clusters) for v in range(each) for w in range(v)]
    outer = [(each * k + v, each * j + v) for k, j in joined for v in range(each)]
    links = [(v, w, 50e9, 1e-6) for v, w in inner] + [(v, w, 2e9, 2e-6) for v, w in outer]
    links += [(w, v, *link) for v, w, *link in links]
    plan = plan_clusters(request(make_topology("joined", [ACCELERATOR] * each * clusters, links), 100_000))
    assert plan is not None
    assert verify(plan).finding is None
    # what joins two clusters carries each byte once each way
    assert completion_s(plan) < 1.1 * clusters * 100_000 / 2e9


def test_turns_leave_time_before_and_after_and_no_link_to_two_at_once():
    counterparts, turns = turns_of(load_topology("amd:2"), 64_000, 96)
    ends = {round((turn.crossed_s + turn.left_s) * 1e12) for turn in turns}
    assert len(ends) == 1
    busy: dict[int, list[tuple[float, float]]] = {}
    for turn in turns:
        c = counterparts[turn.number]
        assert turn.begin_s >= c.gather_s * (1 - 1e-9) and turn.left_s >= c.spread_s * (1 - 1e-9)
        for link, per_byte in c.link_per_byte.items():
            # turns are assigned from both ends; they meet where links are as busy in both halves
            busy.setdefault(link, []).append((turn.begin_s, turn.begin_s + turn.size * per_byte))
    for spans in busy.values():
        spans.sort()
        assert all(b[0] >= a[1] - 1e-13 for a, b in pairwise(spans))


def test_what_is_soonest_summed_crosses_first_and_what_is_soonest_spread_last():
    counterparts, turns = turns_of(load_topology("amd:2"), 64_000, 96)
    least = min(c.gather_s for c in counterparts)
    assert counterparts[turns[0].number].gather_s == least
    assert counterparts[turns[-1].number].spread_s == least
    # a die that is farther from the rest than the other one on its switch never sums
    far = max(c.gather_s for c in counterparts)
    assert all(counterparts[turn.number].gather_s < far for turn in turns)


def test_chunks_are_cut_at_their_own_ends_too():
    c = make_collective("allreduce", load_topology("ring:4"), 100, chunks=3)
    finer, part = cut_at(Workload((c,)), np.array([10, 50, 100]))
    (cut,) = finer.collectives
    assert cut.chunk_bytes.sum() == 100
    assert np.bincount(part, cut.chunk_bytes).tolist() == [10, 40, 50]
    assert set(np.cumsum(c.chunk_bytes)) <= set(np.cumsum(cut.chunk_bytes))
    assert (cut.chunk_offset == np.cumsum(cut.chunk_bytes) - cut.chunk_bytes).all()


def test_two_chassis_of_unlike_dies_end_within_a_fifth_of_the_bound():
    net = load_topology("amd:2")
    plan = plan_clusters(request(net, 64_000))
    assert plan is not None
    # `stretto bound` says 17.91 us
    assert completion_s(plan) < 1.2 * 17.91e-6


def test_servers_are_recognised_by_their_sites_where_speeds_of_links_do_not_show_them():
    # a fifth of all links is slower, some inside a chassis than those between
    net, rng = load_topology("amd:2"), np.random.default_rng(3)
    slow = np.where(rng.random(net.link_count) < 0.2, rng.uniform(0.4, 1.0, net.link_count), 1.0)
    net = replace(net, bandwidth=net.bandwidth * slow)
    plan = plan_clusters(request(net, 64_000))
    assert plan is not None
    assert verify(plan).finding is None
    site = np.unique(np.array(net.sites), return_inverse=True)[1]
    across = site[plan.src] != site[plan.dst.values]
    # each part crosses once each way
    assert np.bincount(plan.chunk[across]).max() == 2
