"""The network as processes see it: each message costs at least the executor's own time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from networks import ring
from stretto.model.collective import Workload, make_collective
from stretto.model.targets import MESSAGE_S
from stretto.planners import run_planner
from stretto.runtime.cost import as_run, costed, served
from stretto.simulate import simulate
from stretto.topologies import load_topology


def test_a_link_costs_the_executors_time_or_its_own_if_that_is_more():
    net = ring(3)
    own = np.where(np.arange(net.link_count) % 2, 2 * MESSAGE_S, 0.0)
    assert costed(replace(net, message_s=own)).message_s.tolist() == np.maximum(own, MESSAGE_S).tolist()


def test_a_network_whose_messages_cost_more_stays_what_it_is():
    net = replace(ring(3), message_s=np.full(6, 1.0))
    assert costed(net) is net


def test_plans_for_processes_send_to_one_receiver_each():
    """On star:4 one transfer that the switch copies is the best plan, but a process would send it three times."""
    net = served(load_topology("star:4"))
    assert not net.replicates.any() and (net.message_s >= MESSAGE_S).all()
    workload = Workload((make_collective("broadcast", net, 1_000_000),))
    lengths = [(run_planner("auto", each, workload).dst.lengths > 1).any() for each in (net, load_topology("star:4"))]
    assert lengths == [False, True]


def test_routers_go_on_copying_for_processes_since_each_has_one():
    net = load_topology("sites:2,3")
    assert (served(net).replicates == net.replicates).all() and net.replicates.any()


@pytest.mark.parametrize("planner", ["ring", "forest", "ring+rate-alloc"])
def test_a_plan_for_free_messages_takes_longer_by_what_they_cost_and_one_for_costly_messages_does_not(planner):
    net = ring(4)
    size, message_s = 4 * net.bandwidth[0] * MESSAGE_S, 2 * MESSAGE_S

    def plan(network):
        return run_planner(planner, network, Workload((make_collective("allgather", network, int(size)),)))

    free, costly = plan(net), plan(costed(net, message_s))
    # three steps, or two where both directions of the ring are used
    steps = simulate(free).completion_s / (size / 4 / net.bandwidth[0])
    assert simulate(as_run(free, message_s)).completion_s >= simulate(free).completion_s + 0.9 * steps * message_s / 2
    assert simulate(as_run(costly, message_s)).completion_s == simulate(costly).completion_s
