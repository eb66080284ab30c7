"""MTEGCCA by ``rules=paper``: section 2 as it is printed, capacities by slot, and sums by the same trees backwards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from networks import partial_sums, random_network, ring
from stretto.bounds import bounds
from stretto.model.changes import make_changes
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, Unsupported
from stretto.model.topology import make_topology
from stretto.planners import run_planner
from stretto.planners.mtegcca.slots import busy_slots
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

GB = 10**9
CHUNK = 50 * GB // 8
FAST = 50e9 / 8
"""Figure 2: a chunk of 50 Gbit, the fastest link 50 Gbit/s, so a slot of 1 s."""


def figure_2(latency_s: float = 0.0, changes=()):
    """A, B, D, F of figure 2: one slot from A to B and from B to F, two from A to D and from A to F."""
    pairs = [(0, 1, FAST), (0, 2, FAST / 2), (0, 3, FAST / 2), (1, 3, FAST)]
    links = [(a, b, w, latency_s) for x, y, w in pairs for a, b in ((x, y), (y, x))]
    return make_topology("figure 2", [0] * 4, links, names=["A", "B", "D", "F"], changes=changes)


def printed(net, work, **options):
    plan = run_planner("mtegcca", net, work, options={"rules": "paper", **options})
    assert verify(plan).ok, verify(plan).finding
    return plan


def multicast(net, receivers) -> Workload:
    return Workload((make_collective("multicast", net, CHUNK, receivers=receivers),))


def allgather(net, size: int = GB) -> Workload:
    return Workload((make_collective("allgather", net, size),))


def moves(plan) -> list[tuple[str, float]]:
    """The links of a plan in order, each with the slot in which it is used."""
    net = plan.topology
    return [(net.link_name(int(i)), float(t)) for i, t in zip(plan.route.values, plan.start_s, strict=True)]


def test_step_3_joins_the_destination_that_is_nearest_to_the_tree():
    # definition 3: with any latency a fast link takes 1 + 1 slots and a slow one 1 + 2, so F is 3 from A, and 2 from B
    net = figure_2(latency_s=1e-6)
    plan = printed(net, multicast(net, [1, 3]))
    assert moves(plan) == [("A→B", 0.0), ("B→F", 2.0)]
    assert (plan.meta["slots"], plan.meta["reported_s"]) == (4, 4.0)
    assert simulate(plan).completion_s == pytest.approx(3.0, abs=1e-5)
    earliest = run_planner("mtegcca", net, multicast(net, [1, 3]), options={"time": "slots", "tree": "earliest"})
    assert earliest.meta["slots"] == 3


def test_figure_2_neglects_a_latency_that_is_small_beside_a_slot():
    net = figure_2(latency_s=1e-6)
    plan = printed(net, multicast(net, [1, 3]), latency="neglected")
    assert plan.meta["reported_s"] == 2.0
    # what is sent on waits for the latency that the slots do not count
    assert moves(plan) == [("A→B", 0.0), ("B→F", pytest.approx(1.000001, abs=1e-9))]
    assert simulate(plan).completion_s == pytest.approx(2.000002, abs=1e-9)


def test_definition_3_a_latency_above_a_tenth_of_a_slot_counts_by_both_conventions():
    net = figure_2(latency_s=0.11)
    work = multicast(net, [1, 3])
    assert printed(net, work, latency="neglected").digest() == printed(net, work).digest()


def test_steps_2_and_4_ranks_take_turns_in_order_and_link_slots_are_gone():
    net = figure_2()
    plan = printed(net, allgather(net, 4 * CHUNK))
    # the first task has the empty network
    of_a = plan.chunk == 0
    assert [m for m, first in zip(moves(plan), of_a, strict=True) if first] == moves(
        printed(net, multicast(net, [1, 2, 3]))
    )


@pytest.mark.parametrize(
    ("options", "slots", "completion_ms"),
    [
        ({"rules": "paper"}, 12, 27.5007),
        ({"rules": "paper", "latency": "neglected"}, 6, 15.0042),
        ({}, None, 10.0007),
    ],
)
def test_figure_6_dgx1_as_printed_by_both_conventions_and_by_ours(options, slots, completion_ms):
    net = load_topology("dgx1")
    plan = run_planner("mtegcca", net, allgather(net), options=options)
    assert simulate(plan).completion_s == pytest.approx(completion_ms / 1e3, rel=1e-6)
    assert plan.meta.get("slots") == slots


def test_figure_5_the_published_bandwidth_comes_out_where_latencies_are_neglected():
    # 22 to 23 GB/s for large buffers on NDv2 with two chassis (section 3.2)
    net = load_topology("ndv2:2")
    neglected, equation = (
        GB / printed(net, allgather(net), latency=latency).meta["reported_s"] for latency in ("neglected", "equation")
    )
    assert 22e9 < neglected < 23e9
    assert equation < 20e9


# --- capacities by slot ---------------------------------------------------------------------------


def test_equation_7_a_chunk_keeps_a_link_until_the_slots_have_carried_it():
    # A→B has its bandwidth in slot 0, nothing in 1 and 2, half of it from 3 on
    net = figure_2(changes=[(1.0, 0, 0.0), (3.0, 0, FAST / 2)])
    busy = busy_slots(net, CHUNK, 1.0, 6)
    assert busy[:5, 0].tolist() == [1, 4, 3, 2, 2]
    assert (busy[5:, 0] > [1, 0]).all()  # the horizon ends before the chunk is whole
    assert (busy[:5, 1] == 1).all() and (busy[:5, 2] == 2).all()


@pytest.mark.parametrize("graph", ["implicit", "explicit"])
def test_equation_7_the_tree_goes_by_the_capacity_of_each_slot(graph):
    # A→B fails for slots 0 to 3: F is nearer by its own link, and B is reached through it
    net = figure_2(changes=[(0.0, 0, 0.0), (4.0, 0, FAST)])
    plan = printed(net, multicast(net, [1, 3]), graph=graph)
    assert [link for link, _ in moves(plan)] == ["A→F", "F→B"]
    assert plan.meta["slots"] == 3


@settings(max_examples=20)
@given(seed=st.integers(0, 60), data=st.data())
def test_equation_7_both_searches_need_equally_many_slots(seed, data):
    net = random_network(seed, switches=False, routers=False)
    size = 10_007
    slot = size / net.bandwidth.max()
    rows = {
        (data.draw(st.integers(1, 40)) * slot * 0.73, data.draw(st.integers(0, net.link_count - 1))): (
            data.draw(st.sampled_from([0.25, 0.5, 1.0])) * net.bandwidth.max()
        )
        for _ in range(4)
    }
    steps = [(at, link, width) for (at, link), width in rows.items()]
    net = replace(net, changes=make_changes(steps, net.link_count))
    work = Workload((make_collective("broadcast", net, size),))
    slots = [printed(net, work, graph=graph).meta["slots"] for graph in ("implicit", "explicit")]
    assert slots[0] == slots[1]


def test_equation_7_the_exact_model_goes_by_the_capacity_of_each_slot():
    # as above A→B fails for slots 0 to 3, and no schedule is shorter than the tree's three slots
    net = figure_2(changes=[(0.0, 0, 0.0), (4.0, 0, FAST)])
    work = Workload((make_collective("broadcast", net, CHUNK),))
    plan = run_planner("milp-allgather", net, work)
    assert verify(plan).ok
    assert (plan.meta["slots"], plan.meta["proven"]) == (3, True)
    constant = run_planner("milp-allgather", figure_2(), work)
    assert (constant.meta["slots"], constant.meta["proven"]) == (2, True)


def test_the_explicit_graph_refuses_switches_that_change():
    net = load_topology("star:3")
    net = replace(net, changes=make_changes([(1e-6, 0, 1e9)], net.link_count))
    with pytest.raises(Unsupported, match="no switches where bandwidths change"):
        printed(net, allgather(net, 3000), graph="explicit")


# --- sums -----------------------------------------------------------------------------------------


def test_sums_are_the_trees_backwards_and_take_as_long():
    # every link of dgx1 is alike both ways
    net = load_topology("dgx1")
    kinds = ("allgather", "reducescatter", "allreduce")
    works = [Workload((make_collective(kind, net, GB),)) for kind in kinds]
    plans = [printed(net, work) for work in works]
    spread, summed, both = (simulate(plan).completion_s for plan in plans)
    assert summed == pytest.approx(spread, rel=1e-12)
    assert [plan.meta["slots"] for plan in plans] == [12, 12, 24]
    assert both == pytest.approx(12 * 2.5e-3 + spread, rel=1e-12)


def test_each_rank_sums_its_own_part_of_an_allreduce():
    net = ring(4)
    plan = run_planner("mtegcca", net, Workload((make_collective("allreduce", net, 4000),)))
    assert plan.workload.chunk_bytes.tolist() == [1000] * 4
    spread = run_planner("mtegcca", net, allgather(net, 4000))
    assert simulate(plan).completion_s == pytest.approx(2 * simulate(spread).completion_s, rel=1e-12)


def request(net, kind: str, size: int, chunks: int) -> Workload:
    if kind == "partial-sums":
        return Workload((partial_sums(net, size, chunks),))
    receivers = range(1, len(net.accelerators), 2) if kind == "multicast" else None
    return Workload((make_collective(kind, net, size, chunks=chunks, receivers=receivers),))


@pytest.mark.parametrize(
    "kind", ["allgather", "broadcast", "multicast", "reducescatter", "reduce", "allreduce", "partial-sums"]
)
@settings(max_examples=15)
@given(
    seed=st.integers(0, 10_000), latency=st.sampled_from(["equation", "neglected"]), chunks=st.integers(1, 2),
    size=st.integers(500, 10**6),
)  # fmt: skip
def test_plans_as_printed_verify_take_what_they_claim_and_never_beat_the_bound(kind, seed, latency, chunks, size):
    net = random_network(seed)
    work = request(net, kind, size, chunks)
    plan = printed(net, work, latency=latency)
    line = simulate(plan)
    assert np.allclose(line.start_s, plan.start_s, rtol=1e-9, atol=0)
    assert np.allclose(line.finish_s, plan.finish_s, rtol=1e-9, atol=0)
    bound = bounds(net, work, float(plan.workload.chunk_bytes.min()))[0].seconds
    assert line.completion_s >= bound * (1 - 1e-12)
    if latency == "equation":
        assert plan.meta["reported_s"] >= line.completion_s * (1 - 1e-9)
    assert printed(net, work, latency=latency).digest() == plan.digest()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rules": "paper", "tree": "earliest"}, "rules=paper means tree=nearest, not earliest"),
        ({"rules": "paper", "rounds": 3}, "rules=paper means rounds=0, not 3"),
        ({"latency": "neglected"}, "no slots to neglect a latency in"),
        ({"rules": "letter"}, "none of ours, paper"),
    ],
)
def test_options_that_contradict_the_rules_are_refused(options, words):
    net = ring(3)
    with pytest.raises(InputError, match=words):
        run_planner("mtegcca", net, allgather(net, 300), options={k: str(v) for k, v in options.items()})
