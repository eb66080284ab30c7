"""Bounds where messages cost and nodes store what they send on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from networks import random_network
from stretto.bounds import bounds
from stretto.bounds.storing import storing_bound
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology


@pytest.mark.parametrize(
    ("kind", "size"), [("broadcast", 10**4), ("broadcast", 10**6), ("reduce", 10**6), ("allreduce", 10**8)]
)
def test_a_chain_takes_what_a_pipeline_of_the_best_length_takes(kind, size):
    """Two links of 1 GB/s, a message costs 10 us: k equal messages take (k + 1) (10 us + size / k)."""
    net = load_topology("line:3?bandwidth=1GB/s&latency=1us&message=10us")
    work = Workload((make_collective(kind, net, size),))
    k = np.maximum(np.sqrt(size / 1e4), 1.0)
    expected_s = 2e-6 + (k + 1) * (1e-5 + size / k / 1e9)
    found = storing_bound(net, work, 0.0)
    assert found is not None and found.seconds == pytest.approx(expected_s, rel=1e-9)
    end_s = simulate(run_planner("forest", net, work)).completion_s
    assert expected_s * (1 - 1e-9) <= end_s <= 1.12 * expected_s


def test_on_a_longer_chain_the_messages_at_its_ends_count():
    """On three links between, messages may be others: what nodes there wait for is not counted, but for one cost each."""
    net = load_topology("line:6?bandwidth=1GB/s&latency=1us&message=10us")
    found = storing_bound(net, Workload((make_collective("broadcast", net, 10**6),)), 0.0)
    assert found is not None and found.seconds == pytest.approx(5e-6 + 3e-5 + (10 + 1) * (1e-5 + 1e-4), rel=1e-9)


def test_through_a_switch_nothing_is_stored():
    net = load_topology("star:6?bandwidth=1GB/s&latency=1us&message=10us")
    found = storing_bound(net, Workload((make_collective("broadcast", net, 10**6),)), 0.0)
    assert found is not None and found.seconds == pytest.approx(2e-6 + 1e-5 + 1e-3)


@given(seed=st.integers(0, 10_000), cost_us=st.sampled_from([0.1, 2.0, 20.0]), chunks=st.sampled_from([1, 3]))
def test_no_plan_is_sooner(seed, cost_us, chunks):
    net = random_network(seed)
    net = replace(net, message_s=np.full(net.link_count, cost_us * 1e-6))
    work = Workload((make_collective("broadcast", net, 30_000, chunks=chunks),))
    found = storing_bound(net, work, 0.0)
    for planner in ("greedy", "shortest-path"):
        try:
            plan = run_planner(planner, net, work, effort="0.05")
        except Unsupported:
            continue
        assert found is None or simulate(plan).completion_s >= found.seconds * (1 - 1e-9)


def test_what_costs_more_behind_a_switch_does_not_come_on_top_of_slow_bytes():
    """A message is as long as the slowest of its links: its cost and its bytes there, not the largest of each."""
    # from gpu0 the bytes decide, from the switch to gpu1, which stores them for gpu2, the cost of messages
    links = [(0, 3, 1e9, 0.0), (3, 1, 1e11, 0.0), (1, 2, 1e11, 0.0)]
    net = make_topology("uneven", [ACCELERATOR] * 3 + [SWITCH], links, message_s=np.array([1e-6, 10e-6, 10e-6]))
    work = Workload((make_collective("multicast", net, 10_000, root=0, receivers=[2]),))
    whole_s = (1e-6 + 1e-5) + (1e-5 + 1e-7)  # in one message
    assert simulate(run_planner("shortest-path", net, work)).completion_s == pytest.approx(whole_s)
    found = storing_bound(net, work, 0.0)
    assert found is not None and found.seconds <= whole_s


def test_what_others_share_is_left_to_other_bounds():
    net = load_topology("ring:16?message=2us")
    work = Workload((make_collective("allgather", net, 16_000_000),))
    assert storing_bound(net, work, bounds(net, work)[0].seconds) is None
