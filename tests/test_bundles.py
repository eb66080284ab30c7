"""Scatter and Gather along trees whose messages carry what is for a node and for all below it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.messages import message_count
from stretto.model.plan import Plan
from stretto.model.targets import find_target
from stretto.model.topology import Topology
from stretto.planners import run_planner
from stretto.schedule.trees import divide
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

KINDS = ("scatter", "gather")


def work(net: Topology, kind: str, size: int, **how) -> Workload:
    return Workload((make_collective(kind, net, size, **how),))


def planned(net: Topology, kind: str, size: int, **how) -> Plan:
    plan = run_planner("bundles", net, work(net, kind, size, **how), effort="normal")
    verdict = verify(plan)
    assert verdict.ok, verdict.finding
    return plan


def end_us(plan: Plan) -> float:
    return simulate(plan).completion_s * 1e6


def one_to_one(spec: str) -> Topology:
    """A network whose switches copy nothing."""
    net = load_topology(spec)
    return replace(net, replicates=np.zeros(net.node_count, dtype=np.bool_))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("latency_us", "messages"), [(0, 3), (100, 7)], ids=["as a binomial tree", "each straight from the root"]
)
def test_few_bytes_go_by_the_tree_of_the_postal_model(kind, latency_us, messages):
    """Without latency ranks that have data double with each message; where it is long, none waits for another."""
    net = one_to_one(f"star:8?message=10us&latency={latency_us}us&bandwidth=1000GB/s")
    plan = planned(net, kind, 8)
    assert end_us(plan) == pytest.approx(10 * messages + 2 * latency_us, rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_many_bytes_leave_the_root_once(kind):
    """The root's port is busy with what is for the others and with few messages, and never waits."""
    net = one_to_one("star:8?message=10us&latency=1us&bandwidth=1GB/s")
    plan = planned(net, kind, 8_000_000)
    ends = plan.src if kind == "scatter" else plan.dst.values
    assert (ends == plan.workload.collectives[0].ranks[0]).sum() == 7
    assert 3 * 10 + 7_000 < end_us(plan) <= 7 * 10 + 7_000 + 2


def test_where_switches_copy_one_message_has_what_is_for_all():
    net = load_topology("star:8?message=10us&latency=1us&bandwidth=1GB/s")
    plan = planned(net, "scatter", 8_000)
    assert message_count(plan) == 1 and plan.dst.lengths.tolist() == [7] * 7
    assert end_us(plan) == pytest.approx(10 + 7 + 2)


@pytest.mark.parametrize("spec", ["h100:2", "ndv2:2", "sites:2,3", "torus:3x3", "fullmesh:5"])
@pytest.mark.parametrize("size", [3_001, 1_000_003])
def test_a_gather_is_a_scatter_backwards(spec, size):
    net = one_to_one(f"{spec}{'&' if '?' in spec else '?'}message=2us")
    back = planned(net, "gather", size, root=1)
    turned = replace(net, src=net.dst, dst=net.src)
    assert back.sharing == "timed"
    assert end_us(back) == pytest.approx(end_us(planned(turned, "scatter", size, root=1)))


LINE = "line:4?message=1us&latency=1us&bandwidth=1GB/s"


def test_what_is_far_goes_first_and_beside_what_is_near():
    """Data for the last node is under way while that for the first comes, not behind it in one bundle."""
    plan = planned(load_topology(LINE), "scatter", 400_000)
    in_one_bundle_us = 3 * (1 + 1) + 300 + 200 + 100
    assert message_count(plan) > 3 and end_us(plan) < 0.75 * in_one_bundle_us


def test_relays_pass_data_on():
    plan = planned(load_topology(LINE), "scatter", 3_000, ranks=[0, 3])
    assert plan.transfer_count >= 3 and end_us(plan) <= 3 * (1 + 1 + 1.5)


def test_pieces_that_are_cut_already_stay_so():
    net = load_topology("star:4?message=10us")
    (c,) = work(net, "scatter", 4_000).collectives
    plan = run_planner("bundles", net, Workload((divide(c, 3)[0],)))
    assert verify(plan).ok and plan.workload.chunk_count == 12


def test_a_chunk_a_message_where_that_is_asked():
    net = load_topology("h100:2?message=2us")
    for kind in KINDS:
        plan = run_planner("bundles", net, work(net, kind, 64_000), several_chunks=False)
        assert verify(plan).ok and plan.message is None


def test_ranks_that_let_routes_pass_are_refused():
    net = load_topology(LINE)
    through = replace(net, transit=np.ones(4, dtype=np.bool_))
    with pytest.raises(Unsupported, match="send on what still comes"):
        run_planner("bundles", through, work(through, "scatter", 4_000))


def test_switches_that_store_pass_bundles_on():
    net = load_topology("star:4?switches=store&message=10us&latency=1us&bandwidth=1GB/s")
    plan = planned(net, "scatter", 4_000)
    assert message_count(plan) < plan.transfer_count and end_us(plan) < 2 * 3 * 11


@pytest.mark.parametrize("kind", KINDS)
def test_auto_takes_bundles_on_servers(kind):
    """Before, the default plan took 1.53 times the bound for the Scatter."""
    net = load_topology("h100:4?message=1us")
    wanted = work(net, kind, 64_000)
    plan = run_planner("auto", net, wanted, effort="normal")
    assert verify(plan).ok and plan.meta["chosen"] == "bundles"
    assert simulate(plan).completion_s < 1.08 * bounds(net, wanted)[0].seconds


def test_a_target_without_copies_in_switches_gets_messages_with_one_receiver():
    net = load_topology("h100:2?message=1us")
    plan = run_planner("auto", net, work(net, "scatter", 64_000), effort="quick", target=find_target("torch"))
    assert verify(plan).ok and (plan.dst.lengths == 1).all()
