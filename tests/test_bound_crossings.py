"""What messages before and after a crossing add to bounds by cuts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from examples import one_in
from stretto.bounds import bounds
from stretto.bounds.latency import message_distances
from stretto.model.collective import Workload, make_collective
from stretto.model.topology import ACCELERATOR, ROUTER, SWITCH, make_topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology

COST = 20e-6


def chain(kinds):
    """Nodes in a line, 1 us apart, where each message costs 20 us."""
    rows = [(a, b, 1e9, 1e-6) for v in range(len(kinds) - 1) for a, b in ((v, v + 1), (v + 1, v))]
    net = make_topology("chain", kinds, rows)
    return replace(net, message_s=np.full(net.link_count, COST))


@pytest.mark.parametrize("passed", [SWITCH, ROUTER])
def test_a_way_takes_a_message_for_each_node_that_stores_it(passed):
    net = chain([ACCELERATOR, passed, ACCELERATOR, passed, passed, ACCELERATOR])
    far = message_distances(net, 0.0)
    assert far[0, 2] == pytest.approx(2e-6 + COST)
    assert far[0, 5] == pytest.approx(5e-6 + 2 * COST)


def test_a_way_to_a_switch_or_from_one_takes_no_part_of_the_message_that_passes_it():
    net = chain([ACCELERATOR, SWITCH, ACCELERATOR, SWITCH, SWITCH, ACCELERATOR])
    far = message_distances(net, 0.0)
    assert far[0, 1] == pytest.approx(1e-6)
    assert far[0, 4] == pytest.approx(4e-6 + COST)
    assert far[1, 2] == pytest.approx(1e-6)
    assert far[1, 5] == pytest.approx(4e-6 + COST)


def test_a_chunk_is_stored_for_the_time_of_its_bytes_besides():
    net = chain([ACCELERATOR, SWITCH, ACCELERATOR, ACCELERATOR])
    assert message_distances(net, 1e3)[0, 3] == pytest.approx(3e-6 + 2 * (COST + 1e-6))


def test_where_messages_cost_nothing_distances_are_latencies():
    net = replace(chain([ACCELERATOR, SWITCH, ACCELERATOR, ACCELERATOR]), message_s=np.zeros(6))
    assert message_distances(net, 0.0)[0].tolist() == pytest.approx([0.0, 1e-6, 2e-6, 3e-6])


@pytest.mark.parametrize(("kind", "where"), [("allgather", "into server0"), ("reducescatter", "into server1, server2")])
def test_what_crosses_into_a_server_and_what_is_told_behind_are_two_messages(kind, where):
    """12 MB enter a server over 400 GB/s; one message of 20 us crosses, and one is needed inside, or outside before."""
    net = load_topology("h100:4?message=20us")
    work = Workload((make_collective(kind, net, 16_000_000),))
    (cut,) = (bound for bound in bounds(net, work) if bound.kind == "cut")
    assert where in cut.witness
    assert cut.seconds == pytest.approx(12e6 / 400e9 + 2 * COST + 0.71e-6, rel=1e-3)


def test_bytes_of_messages_do_not_keep_those_before_and_after_from_taking_time():
    """One NIC of two GPUs, which 1 MB leaves in a message of 40 us and enters, so that it must still be told."""
    kinds = [ACCELERATOR, ACCELERATOR, ACCELERATOR, ACCELERATOR]
    links = [(0, 1, 100e9), (2, 3, 100e9), (1, 2, 1e9)]
    net = make_topology("servers", kinds, [(a, b, w, 0.0) for x, y, w in links for a, b in ((x, y), (y, x))])
    net = replace(net, message_s=np.full(net.link_count, 40e-6))
    work = Workload((make_collective("allreduce", net, 1_000_000),))
    completion_s = simulate(run_planner("auto", net, work)).completion_s
    best_s = max(bound.seconds for bound in bounds(net, work) if bound.kind == "cut")
    assert 1e-3 + 3 * 40e-6 <= best_s * (1 + 1e-9) <= completion_s * (1 + 2e-9)


@pytest.mark.parametrize(
    ("spec", "kind"),
    one_in(2, ["h100:2", "sites:2,3", "dgx2:1"], ["allgather", "reducescatter", "allreduce", "alltoall"]),
)
def test_no_plan_beats_any_bound_where_messages_cost(spec, kind):
    net = load_topology(f"{spec}?message=20us")
    for size in (1_000, 1_000_000):
        work = Workload((make_collective(kind, net, size),))
        best_s = max(bound.seconds for bound in bounds(net, work))
        for planner in ("greedy", "hierarchical"):
            completion_s = simulate(run_planner(planner, net, work, effort="0.05")).completion_s
            assert best_s <= completion_s * (1 + 1e-9)
