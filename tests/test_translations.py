"""Networks that look the same from every node are planned for one node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from networks import ring
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.topology import Topology
from stretto.planners import run_planner
from stretto.planners.greedy.translations import find_sides, match_translations
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def sides(net: Topology) -> list[int]:
    return find_sides(net).tolist()


def allgather(net: Topology, **given) -> Workload:
    return Workload((make_collective("allgather", net, **{"shard_bytes": 1 << 20, **given}),))


def by_dimension(spec: str, sides: tuple[int, ...], *widths: float) -> Topology:
    """A torus whose links have no latency and the bandwidth of their dimension."""
    net = load_topology(spec)
    a, b = (np.stack(np.unravel_index(ends, sides)) for ends in (net.src, net.dst))
    return replace(net, bandwidth=np.array(widths)[np.argmax(a != b, axis=0)], latency_s=np.zeros(net.link_count))


def with_link(net: Topology, link: int, latency_s: float) -> Topology:
    latency = net.latency_s.copy()
    latency[link] = latency_s
    return replace(net, latency_s=latency)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [("ring:7", [7]), ("torus:3x5", [5, 3]), ("torus:4x4", [4, 4]), ("hypercube:3", [2, 2, 2]), ("fullmesh:6", [6])],
)
def test_the_digits_of_a_network_that_looks_the_same_everywhere(spec, expected):
    assert sides(load_topology(spec)) == expected


def test_a_mesh_and_a_torus_with_one_link_unlike_do_not_look_the_same_everywhere():
    net = load_topology("torus:3x3")
    assert sides(net) == [3, 3]
    assert sides(load_topology("mesh:3x3")) == sides(with_link(net, 5, 1.0)) == []


def test_whole_chunks_on_unequal_links_end_when_no_schedule_could_end_sooner():
    """Of thousands of orders of all chunks none did: 73.6 us at best, not 67.6."""
    net = by_dimension("torus:4x4", (4, 4), (1 << 20) / 20.03125e-6, (1 << 20) / (13 + 25 / 48) * 1e6)
    plan = run_planner("greedy", net, allgather(net), options={"parts": 1, "work": 240})
    assert verify(plan).ok
    least = bounds(net, plan.workload, whole_chunks=True)[0].seconds
    assert least == pytest.approx(67.604e-6, rel=1e-4)
    assert simulate(plan).completion_s == pytest.approx(least)


@pytest.mark.parametrize("kind", ["allgather", "reducescatter"])
@pytest.mark.parametrize(("spec", "parts"), [("torus:3x4", 1), ("hypercube:3", 3), ("fullmesh:5", 2), ("ring:5", 2)])
def test_what_is_planned_for_one_node_is_right_for_all(spec, parts, kind):
    net = load_topology(spec)
    work = Workload((make_collective(kind, net, shard_bytes=60_000, start_s=2e-6),))
    plan = run_planner("greedy", net, work, options={"parts": parts, "work": 1})
    assert verify(plan).ok
    assert simulate(plan).completion_s == pytest.approx(float(plan.finish_s.max()) + net.latency_s[0])


def test_all_nodes_get_alike_at_the_same_time():
    net = load_topology("torus:3x4")
    sent = match_translations(net, allgather(net, chunks=2), 1_000, 0)
    assert len(sent.chunk) == 12 * 11 * 2
    assert np.array_equal(np.sort(sent.dst.reshape(-1, 12), axis=1), np.tile(np.arange(12), (22, 1)))
    assert (sent.start_s.reshape(-1, 12) == sent.start_s[::12, None]).all()
    assert (np.diff(sent.start_s) >= 0).all()


def test_requests_in_which_nodes_do_not_want_alike_are_refused():
    net = ring(6)
    assert match_translations(net, allgather(net), 100, 0) is not None
    assert match_translations(net, allgather(net, ranks=[0, 1, 2]), 100, 0) is None
    assert match_translations(net, allgather(net, size_bytes=601, shard_bytes=None), 100, 0) is None
    assert match_translations(net, Workload((make_collective("broadcast", net, 600),)), 100, 0) is None
    both = Workload((*allgather(net).collectives, *allgather(net, start_s=1.0).collectives))
    assert match_translations(net, both, 100, 0) is None
    assert match_translations(with_link(net, 0, 1.0), allgather(net), 100, 0) is None


def test_both_speeds_give_the_same(monkeypatch):
    net = load_topology("torus:3x4")
    found = []
    for mode in ("python", "compiled"):
        monkeypatch.setenv("STRETTO_KERNELS", mode)
        found.append(match_translations(net, allgather(net, shard_bytes=4096, chunks=4), 3_000, 7))
    for name in ("chunk", "dst", "parent", "arrival_s"):
        assert np.array_equal(*(getattr(sent, name) for sent in found))
