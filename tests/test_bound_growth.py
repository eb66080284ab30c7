"""Sums where messages cost: how many contributions a node can have by when."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from networks import partial_sums, random_network
from stretto.bounds import bounds
from stretto.bounds.growth import growth_bound, growth_of_copies
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology


def work(net: Topology, kind: str = "allreduce", size: int = 16) -> Workload:
    return Workload((make_collective(kind, net, size),))


def seconds(net: Topology, kind: str = "allreduce") -> float:
    found = growth_bound(net, work(net, kind), 0.0)
    assert found is not None
    return found.seconds


@pytest.mark.parametrize(("ranks", "late"), [(2, 2.0), (3, 3.0), (4, 4.0), (5, 4.0), (8, 5.0)])
def test_a_star_sums_as_logp_does(ranks, late):
    # a message costs 1 us and is 1 us on its way: 1, 1, 2, 3, 5, 8 contributions after 0, 1, ... 5 us (K(t-1) + K(t-2))
    net = load_topology(f"star:{ranks}?latency=0.5us&message=1us&bandwidth=100GB/s")
    assert seconds(net) == pytest.approx(late * 1e-6, rel=0.1)
    assert seconds(net) <= late * 1e-6 * (1 + 1e-9)


def test_what_is_far_costs_its_latency_once_where_messages_are_cheap():
    # three messages of 2 us share the last link, and all come 2 ms later
    assert seconds(load_topology("star:4?latency=1ms&message=2us&bandwidth=100GB/s")) == pytest.approx(2e-3, rel=0.05)


def test_a_node_with_many_links_learns_from_all_at_once():
    assert seconds(load_topology("fullmesh:16?latency=1us&message=1us&bandwidth=100GB/s")) == pytest.approx(
        2e-6, rel=0.05
    )


@pytest.mark.parametrize("spec", ["fullmesh:16?message=1us", "star:8?latency=0.5us&message=1us", "h100:2?message=2us"])
def test_among_many_nodes_less_is_known(spec, monkeypatch):
    net = load_topology(spec)
    exact_s = seconds(net)
    monkeypatch.setattr("stretto.bounds.growth.MOST_ENTRIES", 0)
    assert 0.8 * exact_s <= seconds(net) <= exact_s


def test_who_is_no_rank_adds_nothing():
    net = load_topology("star:8?latency=0.5us&message=1us&bandwidth=100GB/s")
    two = Workload((make_collective("allreduce", net, 16, ranks=np.array([0, 1])),))
    found = growth_bound(net, two, 0.0)
    assert found is not None and found.seconds == pytest.approx(2e-6, rel=0.1)
    line = load_topology("line:4?latency=1us&message=1us&bandwidth=100GB/s")
    ends = Workload((make_collective("allreduce", line, 16, ranks=[0, 3]),))
    found = growth_bound(line, ends, 0.0)
    assert found is not None and found.seconds == pytest.approx(4e-6, rel=0.05)


def test_every_rank_waits_for_the_sum():
    """Three ranks have it after 1 us, the fourth hears everything 4 us late."""
    links = [(a, b, 100e9, 0.0) for a in range(4) for b in range(4) if a != b]
    late = [4e-6 if b == 0 else 1e-6 for _, b, *_ in links]
    assert seconds(make_topology("late", [ACCELERATOR] * 4, links, message_s=late)) == pytest.approx(4e-6, rel=0.05)


@given(
    kind=st.sampled_from(["allreduce", "reduce", "reducescatter"]), seed=st.integers(0, 10_000),
    cost_us=st.sampled_from([0.1, 2.0, 20.0]),
)  # fmt: skip
def test_no_plan_sums_sooner(kind, seed, cost_us):
    net = random_network(seed)
    net = replace(net, message_s=np.full(net.link_count, cost_us * 1e-6))
    asked = work(net, kind, 1000 * len(net.accelerators))
    found = growth_bound(net, asked, 0.0)
    for planner in ("greedy", "shortest-path"):
        try:
            plan = run_planner(planner, net, asked, effort="0.05")
        except Unsupported:
            continue
        end_s = simulate(plan).completion_s
        assert found is None or end_s >= found.seconds * (1 - 1e-9)
        assert end_s >= bounds(net, asked)[0].seconds * (1 - 1e-9)


@pytest.mark.parametrize(("ranks", "late"), [(4, 4.0), (8, 5.0)])
def test_a_star_that_does_not_copy_tells_as_logp_does(ranks, late):
    net = load_topology(f"star:{ranks}?latency=0.5us&message=1us&bandwidth=100GB/s")
    told = replace(net, replicates=np.zeros(net.node_count, dtype=np.bool_))
    found = bounds(told, work(told, "broadcast"))[0]
    assert found.kind == "messages" and f"{ranks} ranks are told" in found.witness
    assert late * 0.9e-6 <= found.seconds <= late * 1e-6 * (1 + 1e-9)
    assert growth_of_copies(net, work(net, "broadcast"), 0.0) is None


@settings(max_examples=8)
@given(seed=st.integers(0, 10_000), cost_us=st.sampled_from([0.1, 2.0, 20.0]))
def test_no_plan_tells_sooner(seed, cost_us):
    net = random_network(seed, routers=False)
    net = replace(
        net, message_s=np.full(net.link_count, cost_us * 1e-6), replicates=np.zeros(net.node_count, dtype=bool)
    )
    asked = work(net, "broadcast", 1000)
    found = growth_of_copies(net, asked, 0.0)
    end_s = simulate(run_planner("greedy", net, asked, options={"tries": 5})).completion_s
    assert found is None or end_s >= found.seconds * (1 - 1e-9)
    assert end_s >= bounds(net, asked)[0].seconds * (1 - 1e-9)


def test_nothing_is_said_where_switches_sum_or_messages_cost_nothing():
    assert growth_bound(load_topology("star:4?message=1us&sharp=true"), work(load_topology("star:4")), 0.0) is None
    assert growth_bound(load_topology("star:4?message=0"), work(load_topology("star:4")), 0.0) is None


def test_nothing_is_said_where_no_link_leads_to_a_node_that_sums():
    links = [(v, 3, 1e9, 1e-6) for v in range(3)]
    net = make_topology("one way", [ACCELERATOR] * 3 + [SWITCH], links, message_s=[1e-6] * 3)
    assert growth_bound(net, work(net), 0.0) is None


def test_a_fast_link_is_busy_for_each_message_from_slow_links():
    # at best 3 sends to 0 while 1 sends to 2, and then 2 to 0: the hub's link to 0 needs 1 us for each of two messages
    links = [e for v in (1, 2, 3) for e in ((v, 4, 1e9, 0.0), (4, v, 1e9, 0.0))] + [
        (4, 0, 10e9, 0.0),
        (0, 4, 10e9, 0.0),
    ]
    net = make_topology("hub", [ACCELERATOR] * 4 + [SWITCH], links, message_s=[1e-6] * len(links))
    assert seconds(net, "reduce") == pytest.approx(2e-6, rel=0.05)


def test_the_contributions_of_another_server_come_late():
    # 16 ranks anywhere could have the sum after 5.3 us; 8 of them are 2.6 us away
    assert seconds(load_topology("h100:2?message=1us")) == pytest.approx(6.16e-6, rel=0.01)


@pytest.mark.parametrize("kind", ["allreduce", "reduce", "reducescatter"])
def test_a_sum_that_begins_later_is_bounded_later_by_as_much(kind):
    net = load_topology("star:5?message=1us")
    (collective,) = work(net, kind).collectives
    late = growth_bound(net, Workload((replace(collective, start_s=1.0),)), 1.0)
    assert late is not None and late.seconds == pytest.approx(1.0 + seconds(net, kind))


def test_far_ranks_that_hold_no_part_of_a_sum_are_not_waited_for(monkeypatch):
    net = load_topology("line:6?message=1us")
    sums = Workload((partial_sums(net, 6000),))
    found = growth_bound(net, sums, 0.0)
    assert found is not None
    monkeypatch.setattr("stretto.bounds.growth.FAR_SETS", 0)
    assert found == growth_bound(net, sums, 0.0)
