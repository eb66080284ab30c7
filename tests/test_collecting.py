"""What waits for a route goes in one message, for any plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from networks import random_network
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.messages import message_count
from stretto.model.targets import TARGETS, find_target
from stretto.planners import run_planner
from stretto.schedule.collecting import collected
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def work(net, kind: str, size: int = 64_000, **how) -> Workload:
    return Workload((make_collective(kind, net, size, **how),))


def test_pieces_that_go_on_together_are_one_message():
    """Around a ring of four by shortest ways a piece for the opposite rank goes along with one for the neighbour."""
    net = load_topology("ring:4?message=20us&latency=0s&bandwidth=1GB/s")
    plan = run_planner("shortest-path", net, work(net, "alltoall", 4_000))
    several = collected(plan)
    assert several is not None and verify(several).ok
    assert message_count(several) < plan.transfer_count
    assert simulate(several).completion_s < 0.7 * simulate(plan).completion_s


def test_auto_collects_what_planners_send_apart():
    net = load_topology("ring:8?message=20us")
    plan = run_planner("auto", net, work(net, "alltoall"), effort="quick")
    assert verify(plan).ok and message_count(plan) < plan.transfer_count
    assert simulate(plan).completion_s < 1.1 * bounds(net, plan.workload)[0].seconds


def test_of_plans_that_end_at_once_auto_takes_the_one_with_fewer_transfers():
    """Who sends a message of several chunks does something for each of them."""
    net = load_topology("ring:4?bandwidth=20MB/s&latency=0us&message=50us")
    plan = run_planner("auto", net, work(net, "alltoall", 16_000))
    assert plan.transfer_count == 16
    assert simulate(plan).completion_s == pytest.approx(500e-6)


def test_where_messages_cost_nothing_nothing_is_collected():
    net = load_topology("ring:4?message=0")
    assert collected(run_planner("shortest-path", net, work(net, "alltoall"))) is None


def test_a_link_that_keeps_up_sends_piece_by_piece():
    net = load_topology("ring:4?message=20us")
    assert collected(run_planner("ring", net, work(net, "allgather"))) is None


@given(seed=st.integers(0, 10_000), kind=st.sampled_from(["allgather", "alltoall", "allreduce", "broadcast"]),
       cost_us=st.sampled_from([0.1, 5.0, 100.0]), chunks=st.sampled_from([1, 3]))  # fmt: skip
def test_plans_stay_right(seed, kind, cost_us, chunks):
    net = random_network(seed)
    net = replace(net, message_s=np.full(net.link_count, cost_us * 1e-6))
    for planner in ("shortest-path", "greedy"):
        try:
            plan = run_planner(planner, net, work(net, kind, 30_000, chunks=chunks), effort="0.05")
        except Unsupported:
            continue
        several = collected(plan)
        if several is None:
            continue
        assert verify(several).ok, verify(several).finding
        line = simulate(several)
        assert line.completion_s >= bounds(net, several.workload)[0].seconds * (1 - 1e-9)
        timed = replace(several, sharing="timed", start_s=line.start_s, finish_s=line.finish_s)
        assert verify(timed).ok, verify(timed).finding


@pytest.mark.parametrize("target", TARGETS)
def test_plans_for_targets_have_messages_of_several_chunks(target):
    net = load_topology("ring:8?message=20us")
    plan = run_planner("auto", net, work(net, "alltoall"), effort="quick", target=find_target(target))
    assert plan.message is not None


@pytest.mark.parametrize("sharing", ["fair", "priorities"])
def test_plans_that_share_links_otherwise_stay_as_they_are(sharing):
    net = load_topology("ring:4?message=20us")
    plan = run_planner("shortest-path", net, work(net, "alltoall"))
    shared = replace(plan, sharing=sharing, weight=np.ones(plan.transfer_count), start_s=None, finish_s=None)
    assert collected(shared) is None
