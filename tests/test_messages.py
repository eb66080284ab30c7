"""What a message costs: a link is busy for it besides its bytes, everywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from typer.testing import CliRunner

import stretto as st
from examples import one_in
from networks import random_network, soonest_broadcast_s
from stretto.bounds import bounds
from stretto.cli import app
from stretto.formats import native
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, Unsupported
from stretto.model.plan import Plan, make_plan
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.model.variants import costing, seen_by, with_messages
from stretto.planners import registered, run_planner
from stretto.schedule.best import best
from stretto.simulate import simulate
from stretto.topologies import FABRIC_MESSAGE_S, SOCKET_MESSAGE_S, assume_messages, compose, graphml, load_topology
from stretto.topologies.files import topology_from_json
from stretto.verify import verify

SPECS = ("ring:4", "dgx1", "sites:2,3", "star:5?switches=store", "fattree:4")


def costly(spec: str, message: str = "2us") -> Topology:
    return load_topology(f"{spec}{'&' if '?' in spec else '?'}message={message}")


def work(kind: str, net: Topology, size: int = 10**6, **how) -> Workload:
    return Workload((make_collective(kind, net, size, **how),))


def sent_at(start_s: list[float], net: Topology, size: int = 1000, finish_s=None, **how) -> Plan:
    """A timed plan in which node 0 sends a chunk at each of these moments over link 0 to node 1."""
    count = len(start_s)
    start = np.array(start_s)
    link = int(np.flatnonzero((net.src == 0) & (net.dst == 1))[0])
    route = Ragged.single(np.full(count, link))
    finish = start + net.route_s(route, np.full(count, size)) if finish_s is None else np.array(finish_s)
    return make_plan(
        net, work("broadcast", net, size * count, chunks=count, ranks=[0, 1]), "timed", chunk=np.arange(count),
        src=np.zeros(count), dst=Ragged.single(np.ones(count)), route=route, depends=Ragged.empty(count),
        start_s=start, finish_s=finish,
    )  # fmt: skip


def test_a_ring_pays_for_each_message():
    net = costly("ring:4?bandwidth=25GB/s&latency=1us")
    plan = run_planner("ring", net, work("allreduce", net))
    assert simulate(plan).completion_s == pytest.approx(6 * (250_000 / 25e9 + 2e-6 + 1e-6), rel=1e-12)


@pytest.mark.parametrize("sharing", ["fair", "priorities", "rates", "weights"])
def test_every_way_of_sharing_pays_for_a_message(sharing):
    net = costly("ring:2?bandwidth=1GB/s&latency=0s")
    plan = sent_at([0.0], net)
    more = {"rates": {"rate": np.array([1e9])}}.get(sharing, {"weight": np.ones(1)})
    shared = replace(plan, sharing=sharing, start_s=None, finish_s=None, **more)
    assert verify(shared).ok
    assert simulate(shared).completion_s == pytest.approx(1e-6 + 2e-6, rel=1e-12)


@pytest.mark.parametrize("sharing", ["fair", "priorities", "rates", "weights"])
def test_a_fast_link_that_messages_from_slow_links_share_is_busy_for_each_of_them(sharing):
    """Six messages of 1 us over their own links of 1 GB/s; the link of 10 GB/s that all take needs 2.1 us for each."""
    net, gathered = slow_to_fast()
    count = 6
    plan = make_plan(
        net, gathered, sharing, chunk=np.arange(count),
        src=np.arange(count), dst=Ragged.single(np.full(count, 6)), depends=Ragged.empty(count),
        route=Ragged.of([[i, 6] for i in range(count)]),
        **{"rates": {"rate": np.full(count, 1e9)}}.get(sharing, {"weight": np.ones(count)}),
    )  # fmt: skip
    assert verify(plan).ok
    assert simulate(plan).completion_s == pytest.approx(count * 2.1e-6, rel=1e-9)


def test_messages_of_pieces_that_ranks_have_collected_take_less_than_a_message_for_each():
    """Two ranks send their piece at once, and share the fast link; two others collect one first, and send two."""
    net, gathered = slow_to_fast()
    plan = make_plan(
        net, gathered, "timed", chunk=np.array([0, 1, 3, 5, 2, 3, 4, 5]), src=np.array([0, 1, 3, 5, 2, 2, 4, 4]),
        dst=Ragged.single(np.array([6, 6, 2, 4, 6, 6, 6, 6])), depends=Ragged.of([[], [], [], [], [], [2], [], [3]]),
        route=Ragged.of([[0, 6], [1, 6], [3, 9], [5, 11], [2, 6], [2, 6], [4, 6], [4, 6]]),
        start_s=np.array([0.0] * 4 + [4.2e-6] * 4), finish_s=np.array([4.2e-6, 4.2e-6, 3e-6, 3e-6] + [8.6e-6] * 4),
        message=np.array([0, 1, 2, 3, 4, 4, 5, 5]),
    )  # fmt: skip
    assert verify(plan).ok
    assert simulate(plan).completion_s == pytest.approx(8.6e-6)
    assert 3 * 2e-6 < max(b.seconds for b in bounds(net, plan.workload)) < 8.6e-6


def slow_to_fast():
    """Six ranks that a switch joins by slow links, to a seventh by a fast one; and that this gathers a piece of each."""
    links = [(i, 7, 1e9, 0.0) for i in range(6)] + [(7, 6, 1e10, 0.0), *((7, i, 1e9, 0.0) for i in range(6))]
    net = make_topology("slow to fast", [ACCELERATOR] * 7 + [SWITCH], links, message_s=np.full(len(links), 2e-6))
    return net, work("gather", net, 1000 * 7, ranks=list(range(7)), root=6)


def test_messages_that_overlap_in_their_cost_are_found():
    net = costly("ring:2?bandwidth=1GB/s&latency=0s")
    assert verify(sent_at([0.0, 3e-6], net)).ok
    assert verify(sent_at([0.0, 2.9e-6], net)).finding.code == "capacity"
    assert simulate(sent_at([0.0, 2.9e-6], net)).start_s[1] == pytest.approx(3e-6)
    assert verify(sent_at([0.0], net, finish_s=[1e-6])).finding.code == "speed"


@cache
def bound_s(spec: str, kind: str, chunk_bytes: float) -> float:
    """The bound of plans whose smallest chunk has so many bytes."""
    net = costly(spec)
    return bounds(net, work(kind, net, 60_000), chunk_bytes)[0].seconds


@pytest.mark.parametrize(
    ("name", "spec", "kind"),
    one_in(
        2,
        sorted(n for n, e in registered().items() if not e.refines and e.quick is None),
        SPECS,
        ["allreduce", "allgather", "alltoall"],
    ),
)
def test_every_plan_verifies_and_is_what_it_claims(name, spec, kind):
    net = costly(spec)
    try:
        plan = run_planner(name, net, work(kind, net, 60_000), effort="0.05")
    except Unsupported:
        return
    assert verify(plan).ok, verify(plan).finding
    line = simulate(plan)
    if plan.start_s is not None:
        assert np.allclose(line.start_s, plan.start_s, rtol=1e-9, atol=1e-15)
    assert line.completion_s >= bound_s(spec, kind, float(plan.workload.chunk_bytes.min())) * (1 - 1e-12)
    free = replace(plan, topology=replace(net, message_s=np.zeros(net.link_count)), start_s=None, finish_s=None)
    if plan.sharing == "ready-order":
        assert simulate(free).completion_s < line.completion_s


def test_refiners_of_shared_links_pay_too():
    net = costly("sites:2,3")
    for refiner in ("wan", "rate-alloc", "tcp-fair"):
        plan = run_planner(f"ring+{refiner}", net, work("allreduce", net))
        assert verify(plan).ok, verify(plan).finding


@pytest.mark.parametrize(("message", "messages"), [("0s", 1000), ("2us", 100), ("50us", 25)])
def test_dearer_messages_are_fewer(message, messages):
    net = costly("ring:4", message)
    plan = run_planner("auto", net, work("allreduce", net), effort="normal")
    assert plan.transfer_count <= messages if message != "0s" else plan.transfer_count > messages


HOP_S, GAP_S = 2 * 0.7e-6 + 2.04e-6, 2.04e-6  # of 1 KB on a star where a message costs 2 us


def test_small_sums_for_many_take_about_as_few_messages_as_one_tree():
    net = costly("star:140", "2us")
    plan = run_planner("greedy", net, work("allreduce", net, 1_000), effort="quick")
    assert plan.transfer_count == 2 * (140 - 1)
    assert simulate(plan).completion_s <= 1.05 * 2 * soonest_broadcast_s(140, HOP_S, GAP_S)


def test_small_sums_on_circles_end_sooner_than_over_any_tree_to_a_root_and_back():
    net = costly("star:24", "2us")
    plan = run_planner("greedy", net, work("allreduce", net, 1_000), effort="quick")
    assert simulate(plan).completion_s <= 0.6 * 2 * soonest_broadcast_s(24, HOP_S, GAP_S)
    assert plan.transfer_count <= 24 * 6


@pytest.mark.parametrize("kind", ["allreduce", "allgather"])
@pytest.mark.parametrize("spec", ["ring:4", "dgx1", "sites:2,3"])
def test_the_forest_is_cut_nearly_as_well_as_the_best_power_of_two(spec, kind):
    net = costly(spec)
    chosen = simulate(run_planner("forest", net, work(kind, net))).completion_s
    tried = [run_planner("forest", net, work(kind, net), options={"parts": 2**k}) for k in range(9)]
    assert chosen <= 1.05 * min(simulate(plan).completion_s for plan in tried)


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    one_in(
        2,
        ["ring:4", "torus:3x3"],
        ["allreduce", "allgather", "reducescatter", "alltoall", "broadcast"],
        ["2us", "100us"],
    ),
)
def test_what_is_planned_by_default_is_cut_as_well_as_the_best_power_of_two(spec, kind, message):
    net = costly(spec, message)
    chosen = simulate(run_planner("auto", net, work(kind, net), effort="normal")).completion_s
    for name in ("forest", "greedy", "paths"):
        for k in range(5):
            try:
                plan = run_planner(name, net, work(kind, net), effort="normal", options={"parts": 2**k})
            except Unsupported:
                break
            end_s = simulate(plan).completion_s
            assert chosen <= 1.05 * end_s, (name, 2**k)
            if end_s > 1.5 * chosen:
                break


def test_a_planner_is_given_links_as_chunks_see_them():
    net = costly("ring:2?bandwidth=1GB/s&latency=1us")
    seen = seen_by(net, 1000)
    assert seen.bandwidth.tolist() == pytest.approx([1000 / 3e-6] * 2) and not seen.message_s.any()
    assert np.array_equal(seen.latency_s, net.latency_s)


def test_chunks_that_differ_by_a_byte_are_planned_alike():
    net = costly("torus:3x3", "20us")
    ends = [
        simulate(run_planner("greedy", net, work("allgather", net, size), options={"parts": 1})).completion_s
        for size in (900_000, 900_001)
    ]
    assert ends[1] == pytest.approx(ends[0], rel=1e-3)


def test_half_the_messages_are_worth_a_hundredth_of_the_completion():
    net = costly("ring:2?bandwidth=1GB/s&latency=0s")
    few, many = (sent_at([(i + shift) * 3e-6 for i in range(n)], net) for n, shift in ((4, 4.07), (8, 0)))
    late = sent_at([(i + 4.09) * 3e-6 for i in range(4)], net)
    assert best([many, few]) is few and best([many, late]) is many


def test_a_cost_is_assumed_where_nothing_is_known():
    net = load_topology("sites:2,3")
    assumed = assume_messages(net)
    wide = (net.bandwidth >= 2.5e9) & (net.latency_s < 100e-6)
    assert np.array_equal(assumed.message_s, np.where(wide, FABRIC_MESSAGE_S, SOCKET_MESSAGE_S))
    for known in (costly("ring:4"), costly("ring:4", "0s"), replace(net, message_s=assumed.message_s / 2), assumed):
        assert assume_messages(known) is known
    again = topology_from_json(json.loads(json.dumps(assumed.to_json())), "here")
    assert again.message_basis == "assumed" and np.array_equal(again.message_s, assumed.message_s)


def test_switches_pass_packets_on_and_handle_no_messages():
    spec = "h100:8?pod=4&oversubscription=2"
    net = load_topology(spec)
    between = net.is_switch[net.src] & net.is_switch[net.dst]
    assert between.any() and not between.all()
    for costs, message_s in ((load_topology(f"{spec}&message=20us"), 20e-6), (assume_messages(net), FABRIC_MESSAGE_S)):
        assert costs.message_s.tolist() == np.where(between, 0.0, message_s).tolist()
    # a router that stores handles messages
    assert (load_topology("fattree:4?switches=store&message=2us").message_s == 2e-6).all()


def test_composed_clusters_keep_links_between_switches_free():
    server = with_messages(load_topology("h100:1?nics=nodes"), 3e-6)
    net = compose(server, 8, "rails", pod=4)
    passed = net.transit[net.src] & net.transit[net.dst]
    assert passed.any() and not net.message_s[passed].any() and net.message_s[~passed].all()


def test_bounds_count_messages_where_links_between_switches_are_free():
    net = load_topology("h100:8?pod=4&message=20us")
    assert not net.message_s.all()
    for kind, size in (("allreduce", 1000), ("allgather", 64_000), ("alltoall", 1_000_000)):
        best = bounds(net, Workload((make_collective(kind, net, size),)))[0]
        assert best.kind == "messages" and best.seconds > 4 * 20e-6


def test_processes_drop_what_was_only_assumed_and_keep_what_was_given():
    given = load_topology("ring:4?message=1ms")
    assert costing(given, 50e-6) is given
    assumed = assume_messages(load_topology("ring:4"))
    assert assumed.message_s.min() > 0
    assert (costing(assumed, 1e-9).message_s == 1e-9).all()


def test_what_messages_cost_processes_does_not_count_between_switches():
    net = load_topology("fattree:4?message=20us")
    between = net.transit[net.src] & net.transit[net.dst]
    for given in (net, assume_messages(load_topology("fattree:4"))):
        assert costing(given, 50e-6).message_s[~between].tolist() == [50e-6] * int((~between).sum())
        assert not costing(given, 50e-6).message_s[between].any()
    assert costing(net, 20e-6) is net
    slow = replace(net, message_s=np.where(between, 1e-3, 0.0))
    assert (costing(slow, 50e-6).message_s == np.where(between, 1e-3, 50e-6)).all()


def test_accelerators_start_messages_also_where_routes_pass_through_them():
    net = load_topology("zoo:Abilene?transit=true")
    for given in (load_topology("zoo:Abilene?transit=true&message=50us"), costing(net, 50e-6)):
        assert given.message_s.tolist() == [50e-6] * net.link_count
    assert costing(assume_messages(net), 50e-6).message_s.all()


def test_graphml_keeps_the_cost(tmp_path):
    net = costly("ring:3")
    for topology in (net, replace(net, message_s=np.arange(6) * 1e-6), costly("ring:3", "0s"), load_topology("ring:3")):
        (tmp_path / "net.graphml").write_text(graphml.write(topology))
        again = load_topology(str(tmp_path / "net.graphml"))
        assert again.message_s.tolist() == topology.message_s.tolist()
        assert again.message_basis == topology.message_basis


def test_a_file_may_say_that_messages_cost_nothing():
    data = load_topology("ring:3").to_json()
    assert topology_from_json(data, "here").message_basis == "unknown"
    free = topology_from_json(data | {"message_us": 0}, "here")
    assert assume_messages(free) is free and not free.message_s.any()
    assert topology_from_json(free.to_json(), "here").message_basis == "given"
    data["links"][0]["message_us"] = 3
    assert topology_from_json(data | {"message_us": 5}, "here").message_s[:2].tolist() == pytest.approx([3e-6, 5e-6])


def test_plans_of_people_assume_a_cost_and_say_so():
    plan = st.plan("allgather", "ring:4", "1MB", planner="ring")
    assert (plan.topology.message_s == FABRIC_MESSAGE_S).all()
    assert plan.summary()["message_assumed"] and plan.summary()["message_s"] == [FABRIC_MESSAGE_S] * 2
    free = st.plan("allgather", "ring:4?message=0", "1MB", planner="ring")
    assert not free.topology.message_s.any() and not free.summary()["message_assumed"]
    assert free.digest() == run_planner("ring", load_topology("ring:4"), free.workload).digest() != plan.digest()
    shown = CliRunner().invoke(app, ["plan", "allgather", "-t", "ring:4", "--size", "1MB", "-p", "ring"]).stdout
    assert "1 us (assumed; ?message=0 for none)" in shown
    compared = st.compare("allgather", "ring:4", "1MB", planner="ring,auto")
    assert compared.notes == ["* ends soonest", "a message costs 1 us (assumed; ?message=0 for none)"]


def test_a_bound_counts_one_message_into_each_rank():
    net = costly("ring:2?bandwidth=1GB/s&latency=1us")
    plan = run_planner("ring", net, work("allgather", net, 2))
    bound_s = bounds(net, plan.workload)[0].seconds
    assert 3e-6 < bound_s <= simulate(plan).completion_s * (1 + 1e-12)


@pytest.mark.parametrize("kind", ["allgather", "alltoall"])
def test_a_bound_counts_the_messages_by_which_a_rank_hears_from_all(kind):
    """Seven messages of one piece each, or three by which it hears from one, two and four ranks."""
    net = costly("star:8", "20us")
    plan = run_planner("paths" if kind == "alltoall" else "switch-trees", net, work(kind, net, 80_000))
    bound = bounds(net, plan.workload)[0]
    assert (bound.kind, simulate(plan).completion_s) == ("messages", pytest.approx(7 * 20e-6, rel=0.1))
    bytes_s = 70_000 / net.bandwidth.max()
    assert 3 * 20e-6 + bytes_s < bound.seconds <= simulate(run_planner("hierarchical", net, plan.workload)).completion_s


def test_a_message_takes_as_long_on_a_fast_link_as_on_a_slow_one():
    """Pieces of 1 KB come to each of 4 ranks over two links of 400 and 10 GB/s: 3 messages, of which one link takes 2."""
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    net = make_topology("pairs", [ACCELERATOR] * 4, [(a, b, w, 0.0) for a, b in pairs if (a ^ b) < 3
                        for w in [(400e9, 10e9)[(a ^ b) - 1]]], message_s=[1e-6] * 8)  # fmt: skip
    bound_s = bounds(net, work("allgather", net, 4000))[0].seconds
    assert 1.5e-6 < bound_s <= simulate(run_planner("greedy", net, work("allgather", net, 4000))).completion_s


def test_a_topology_file_keeps_the_cost(tmp_path):
    net = replace(random_network(3), message_s=np.linspace(0, 1e-6, random_network(3).link_count))
    again = topology_from_json(json.loads(json.dumps(net.to_json())), "here")
    assert np.array_equal(again.message_s, net.message_s)
    data = costly("ring:3").to_json()
    data["links"][0] |= {"message_us": 3.0}
    del data["links"][0]["message_s"], data["links"][1]["message_s"]
    assert topology_from_json(data, "here").message_s[:3].tolist() == [3e-6, 0.0, 2e-6]
    data["links"][2]["message_s"] = -1
    with pytest.raises(InputError, match="here, link 2: 'message_s' must be from zero to a year"):
        topology_from_json(data, "here")


@pytest.mark.parametrize("ending", ["parquet", "json"])
def test_a_plan_file_keeps_the_cost(tmp_path, ending):
    net = costly("ring:3")
    plan = run_planner("mtegcca", net, work("allgather", net, 3000))
    path = str(tmp_path / f"plan.{ending}")
    native.write_plan(plan, path)
    again = native.read_plan(path)
    assert again.topology.message_s.tolist() == net.message_s.tolist() and again.digest() == plan.digest()
    assert simulate(again).completion_s == simulate(plan).completion_s
    assert plan.digest() != run_planner("mtegcca", costly("ring:3", "3us"), work("allgather", net, 3000)).digest()


@pytest.mark.parametrize("spec", ["forest+wan", "jobs+non-concurrent"])
def test_what_messages_cost_counts_where_a_refiner_does_not_heed_it(spec):
    net = load_topology("ring:4?message=2us")
    work = Workload(tuple(make_collective("allreduce", net, size) for size in (5_000_000, 1_000_000)))
    assert verify(run_planner(spec, net, work, effort="quick")).finding is None
