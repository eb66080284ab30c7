"""The bound by what leaves servers late, beside plans and the best of all schedules of small cases."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from stretto.bounds import bounds
from stretto.bounds.late import levels_of
from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.verify import verify
from test_bound_gathering import Search, servers
from test_by_servers import cluster

KINDS = ("allgather", "reducescatter", "alltoall", "allreduce")
TWO_OF_FOUR, OF_FOUR_FIVE_SIX = cluster([[4, [2]], [4, [0]]], copies=True), cluster(
    [[4, [0]], [5, [1]], [6, [2]]], copies=True
)  # fmt: skip
GATEWAY_OF_THREE = servers([(0, 3, 1e9)], [(0, 9e9), (1, 9e9), (2, 9e9)])


def bound_and_plan(net, kind, size):
    """Seconds each, of the best bound and the default plan."""
    plan = run_planner("auto", net, Workload((make_collective(kind, net, size),)), effort="normal")
    assert verify(plan).ok
    bound_s, completion_s = bounds(net, plan.workload)[0].seconds, simulate(plan).completion_s
    assert bound_s <= completion_s * (1 + 1e-9)
    return bound_s, completion_s


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_of_four_tells_its_gateway_in_two_messages_before_the_last_one_crosses(kind):
    """Two messages inside, one across, one to all ranks of the other server."""
    bound_s, completion_s = bound_and_plan(TWO_OF_FOUR, kind, 800)
    steps_s = 3 * (20e-6 + 1e-6) + 20e-6 + 2e-6
    assert completion_s == pytest.approx(steps_s, rel=0.01)
    assert 0.97 * steps_s < bound_s


@pytest.mark.parametrize("kind", KINDS)
def test_what_leaves_two_servers_late_enters_a_third_one_after_the_other(kind):
    """Two messages inside or three, two across, one inside."""
    bound_s, completion_s = bound_and_plan(OF_FOUR_FIVE_SIX, kind, 900)
    assert 0.94 * completion_s < bound_s


def test_all_bytes_of_a_sum_leave_a_server_late():
    """1 MB crosses at 10 GB/s after two messages inside; one that has crossed still goes to all ranks."""
    bound_s, completion_s = bound_and_plan(TWO_OF_FOUR, "allreduce", 1_000_000)
    steps_s = 3 * (20e-6 + 1e-6) + 20e-6 + 2e-6 + 1e6 / 10e9
    assert 0.97 * steps_s < bound_s < completion_s < 1.2 * bound_s


@cache
def optimum_s(piece: int) -> float:
    """When the best schedule of an AllGather ends."""
    return Search(GATEWAY_OF_THREE, "allgather", piece).run()


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("share", [0.3, 3.0])
def test_no_schedule_beats_it_where_one_of_three_leads_out(copies, share):
    net = GATEWAY_OF_THREE
    piece = round(share * 20e-6 * 1e9)
    work = Workload((make_collective("allgather", net, 4 * piece),))
    net = replace(net, replicates=net.is_switch & copies)
    assert bounds(net, work)[0].seconds <= optimum_s(piece) * (1 + 1e-9)


def test_a_network_whose_ranks_all_lead_out_of_their_servers_has_no_late_groups():
    c = make_collective("allgather", rails := cluster([[4, [0, 1, 2, 3]]] * 3, rails=4), 1_000)
    assert not levels_of(rails, c.ranks, np.ones(len(c.ranks), dtype=bool))
    (level,) = levels_of(TWO_OF_FOUR, TWO_OF_FOUR.accelerators, np.ones(8, dtype=bool))
    stores = np.flatnonzero(TWO_OF_FOUR.store_and_forward)
    assert sorted(stores[source.exits].tolist() for source in level) == [[4], [7]]
