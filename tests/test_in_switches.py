"""AllReduce by symmetry where switches sum: plans are right, and move each byte up and down each link about once."""

from __future__ import annotations

import pytest

from stretto.model.collective import Workload, make_collective
from stretto.model.symmetric import SymmetricPlan
from stretto.model.topology import Topology
from stretto.planners import run_planner
from stretto.planners.symmetric.switch_blocks import find_blocks
from stretto.simulate import simulate
from stretto.symmetry import find_symmetry
from stretto.topologies import load_topology
from stretto.verify import verify

SPECS = [
    "star:8?sharp=true", "h100:4?sharp=true", "h100:3?sharp=true&message=1us", "fattree:4?sharp=true",
    "fattree:4?sharp=true&message=2us",
]  # fmt: skip


def planned(net: Topology, size: int) -> SymmetricPlan:
    plan = run_planner("symmetric", net, Workload((make_collective("allreduce", net, size),)), several_chunks=False)
    assert isinstance(plan, SymmetricPlan)
    return plan


@pytest.mark.parametrize("size", [100, 1_000_003, 64_000_000])
@pytest.mark.parametrize("spec", SPECS)
def test_plans_are_right_and_take_as_long_as_their_images(spec, size):
    plan = planned(load_topology(spec), size)
    plain = plan.expand()
    assert plan.meta["sums"] == "in switches"
    assert verify(plan).ok, verify(plan)
    assert verify(plain).ok, verify(plain)
    assert simulate(plan).completion_s == pytest.approx(simulate(plain).completion_s, rel=1e-9)


def test_little_data_takes_three_hops_among_any_number_of_gpus():
    """A sum in each server, one on the rail, and a copy in each server: 0.7, 2.6 and 0.7 us of latency, 3 messages."""
    for servers in (2, 40):
        assert simulate(planned(load_topology(f"h100:{servers}?sharp=true&message=1us"), 1000)).completion_s < 7.1e-6


def test_much_data_crosses_each_rail_about_once():
    net = load_topology("h100:40?sharp=true&message=1us")
    assert simulate(planned(net, 1_000_000_000)).completion_s < 1.08 * 1e9 / 8 / 50e9


def test_servers_and_rails_are_two_blocks_and_one_switch_is_one():
    for spec, counts in (("h100:4?sharp=true", [4, 8]), ("star:6?sharp=true", [6])):
        net = load_topology(spec)
        symmetry = find_symmetry(net)
        at = symmetry.image(range(symmetry.size), net.accelerators[0])
        found = find_blocks(symmetry, at, tuple(range(len(symmetry.orders))))
        assert [len(block.elements) for _, block in found] == counts


def test_where_the_rails_do_not_sum_ranks_own_chunks_as_elsewhere():
    net = load_topology("h100:4?sharp=sites&message=1us")
    plan = planned(net, 1_000_000)
    assert "sums" not in plan.meta
    assert verify(plan.expand()).ok


@pytest.mark.parametrize("message", ["0us", "1us"])
def test_groups_of_ranks_plan_among_themselves(message):
    """A collective in each server at once, and one on each rail at once."""
    net = load_topology(f"h100:4?sharp=true&message={message}")
    gpus = net.accelerators.reshape(4, 8)
    for groups in (gpus, gpus.T):
        each = tuple(make_collective("allreduce", net, 80_000, ranks=ranks.tolist()) for ranks in groups)
        plan = run_planner("symmetric", net, Workload(each))
        assert plan.meta["sums"] == "in switches"
        assert verify(plan).ok, verify(plan)
        assert verify(plan.expand()).ok, verify(plan.expand())
