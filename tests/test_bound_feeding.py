"""Few chunks that one node must feed into several servers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stretto.bounds.feeding import _early, feeding_bound
from stretto.model.collective import Workload, make_collective
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology

SOON_S = 1e-9


def star(count: int, latency_s: float) -> Topology:
    """Servers of one GPU around a switch that does not copy: 1 GB/s, 10 us a message."""
    links = [link for v in range(count) for link in ((v, count, 1e9, latency_s / 2), (count, v, 1e9, latency_s / 2))]
    kinds, sites = [ACCELERATOR] * count + [SWITCH], [f"server{v}" for v in range(count)] + ["fabric"]
    costs, copies = [1e-5] * len(links), [False] * len(kinds)
    return make_topology("star", kinds, links, message_s=costs, replicates=copies, sites=sites)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_what_comes_from_afar_leaves_its_holder_once_for_each_server(count):
    """No server can pass anything on in time, so the holder's link carries the piece for each, in one message each."""
    net = star(count, 1e-3)
    found_s = feeding_bound(net, make_collective("broadcast", net, 20_000), SOON_S)
    assert found_s == pytest.approx((count - 1) * (1e-5 + 2e-5) + 1e-3, rel=1e-4)


def test_a_server_that_passes_the_piece_on_needs_it_whole():
    # one message to each of two servers, of which the second comes from the holder or from the first server
    net = star(3, 1e-6)
    found_s = feeding_bound(net, make_collective("broadcast", net, 20), SOON_S)
    assert found_s == pytest.approx(2 * 1e-5 + 1e-6, rel=0.01)


def test_two_long_links_cannot_both_begin_at_once():
    """The holder's link to its router feeds both long links until other GPUs have a chunk. It is best that a GPU beside
    the holder has the piece after 70.7 us and feeds one of them: 631.4 us later one GPU of the site has it, and the
    others 70.7 us after that."""
    net = load_topology("sites:3,4")
    net = replace(net, kind=np.where(net.is_router, SWITCH, net.kind).astype(np.int8))
    net = replace(net, replicates=np.zeros(net.node_count, dtype=np.bool_), message_s=np.full(net.link_count, 5e-5))
    found_s = feeding_bound(net, make_collective("broadcast", net, 1_000_000), SOON_S)
    assert found_s is not None and 760e-6 < found_s <= 772.8e-6


def test_where_no_server_can_send_on_the_holder_sends_all():
    net = star(3, 1e-6)
    net = net.with_links((net.dst != 3) | (net.src == 0))
    found_s = feeding_bound(net, make_collective("broadcast", net, 20_000), SOON_S)
    assert found_s == pytest.approx(2 * (1e-5 + 2e-5) + 1e-6, rel=1e-4)


def test_between_two_sizes_the_farthest_rank_is_no_farther_than_it_is():
    """From node 0 rank 1 is 5 s away, and rank 2 as far as 0 s and 10 s. Between these both are 5 s away, not 7.5 s."""
    ways_s = [np.array([[0.0, 5.0, s], [np.inf, 0.0, np.inf], [np.inf, np.inf, 0.0]]) for s in (0.0, 10.0)]
    early_s = _early(ways_s, np.array([[0.0, np.inf, np.inf]]), [np.array([1, 2])], np.array([0]))
    assert early_s[:, :, 0, 0].tolist() == [[5.0, 5.0], [0.0, 10.0]]
    assert early_s.mean(axis=1).max() == 5.0


@st.composite
def far_servers(draw):
    """Two to four servers of one to three GPUs. Each joins a switch of its own; these are joined by long links."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    width, cost = st.sampled_from([1e9, 3e9, 10e9]), st.sampled_from([1e-6, 5e-6])
    kinds, sites, links, doors = [], [], [], []
    for number, size in enumerate(sizes):
        own = range(len(kinds), len(kinds) + size)
        kinds += [ACCELERATOR] * size + [SWITCH]
        sites += [f"server{number}"] * (size + 1)
        doors.append(len(kinds) - 1)
        links += [(a, b, draw(width), 1e-6) for a in own for b in own if a != b]
        links += [(v, doors[-1], draw(width), 1e-6) for v in own if v == own[0] or draw(st.booleans())]
        links += [(doors[-1], v, draw(width), 1e-6) for v in own if v == own[-1] or draw(st.booleans())]
    far_s = draw(st.sampled_from([2e-6, 50e-6, 1e-3]))
    links += [(a, b, draw(width), far_s) for a in doors for b in doors if a != b]
    costs, copies = [draw(cost) for _ in links], [False] * len(kinds)
    return make_topology("far servers", kinds, links, message_s=costs, replicates=copies, sites=sites)


@settings(max_examples=10)
@given(
    net=far_servers(), size=st.sampled_from([8, 5_000, 60_000]), planner=st.sampled_from(["greedy", "shortest-path"])
)
def test_no_plan_feeds_servers_sooner(net, size, planner):
    c = make_collective("broadcast", net, size)
    found_s = feeding_bound(net, c, SOON_S)
    plan = run_planner(planner, net, Workload((c,)), options={"tries": 5} if planner == "greedy" else {})
    assert found_s is not None and simulate(plan).completion_s >= found_s * (1 - 1e-9)
