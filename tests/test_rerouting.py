"""Chunks go along in messages that leave anyway, for any plan whose chunks go by trees."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from networks import random_network, star
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.messages import message_count
from stretto.model.plan import Plan
from stretto.model.topology import ACCELERATOR, ROUTER, make_topology
from stretto.planners import run_planner
from stretto.schedule.kernel_courses import FEW_MOVED, sort_by_start
from stretto.schedule.rerouting import rerouted
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

STEPS = 20_000.0


def work(net, kind: str, size: int, **how) -> Workload:
    return Workload((make_collective(kind, net, size, **how),))


def planned(net, kind: str, size: int, planner: str = "shortest-path", **how) -> Plan:
    return run_planner(planner, net, work(net, kind, size, **how), effort="quick")


def improved(plan: Plan, steps: float = STEPS, enough_s: float = 0.0) -> Plan:
    found, spent = rerouted(plan, steps, enough_s)
    assert found is not None and spent > 0
    verdict = verify(found)
    assert verdict.ok, verdict.finding
    assert simulate(found).completion_s < simulate(plan).completion_s
    return found


def test_by_a_way_round_in_few_messages_all_is_there_in_as_many_steps_as_the_network_is_wide():
    """On a torus every rank is two hops away at most, and each of its four links carries one message in each step."""
    net = load_topology("torus:3x3?message=20us&latency=0s&bandwidth=1TB/s")
    plan = planned(net, "alltoall", 9_000)
    assert simulate(plan).completion_s > 55e-6
    assert simulate(improved(plan)).completion_s == pytest.approx(40e-6, rel=0.01)


@pytest.mark.parametrize(("kind", "planner"), [("reducescatter", "shortest-path"), ("allreduce", "shortest-path")])
def test_sums_are_rerouted_with_time_reversed(kind, planner):
    net = load_topology("torus:3x3?message=20us&latency=0s&bandwidth=1TB/s")
    found = improved(planned(net, kind, 9_000, planner))
    steps = 2 if kind == "reducescatter" else 4
    assert simulate(found).completion_s == pytest.approx(steps * 20e-6, rel=0.01)


def test_halves_of_chunks_go_by_different_ways_where_their_bytes_take_long():
    net = load_topology("ring:4?message=20us&latency=0s&bandwidth=1GB/s")
    plan = planned(net, "allgather", 4_000_000)
    found = improved(plan)
    assert found.workload.chunk_count > plan.workload.chunk_count
    assert simulate(found).completion_s < 1.1 * bounds(net, found.workload)[0].seconds


def test_messages_that_branch_in_switches_stay_ways_to_several():
    net = star(5)
    net = replace(net, message_s=np.full(net.link_count, 20e-6))
    plan = planned(net, "allgather", 5_000, "mtegcca", chunks=4)
    assert (plan.dst.lengths > 1).any()
    found = improved(plan)
    assert (found.dst.lengths > 1).any()


@given(seed=st.integers(0, 10_000), kind=st.sampled_from(["allgather", "alltoall", "allreduce", "broadcast",
       "reducescatter", "reduce", "gather"]), cost_us=st.sampled_from([0.1, 5.0, 100.0]), chunks=st.sampled_from([1, 3]),
       planner=st.sampled_from(["shortest-path", "greedy", "mtegcca", "forest"]))  # fmt: skip
def test_plans_stay_right(seed, kind, cost_us, chunks, planner):
    net = random_network(seed)
    net = replace(net, message_s=np.full(net.link_count, cost_us * 1e-6))
    try:
        plan = planned(net, kind, 30_000, planner, chunks=chunks)
    except Unsupported:
        return
    found, _ = rerouted(plan, 3_000.0, 0.0)
    if found is None:
        return
    assert verify(found).ok, verify(found).finding
    completion_s = simulate(found).completion_s
    assert bounds(net, found.workload)[0].seconds * (1 - 1e-9) <= completion_s < simulate(plan).completion_s


def test_both_speeds_of_the_kernel_give_the_same_plan(monkeypatch):
    plan, found = planned(load_topology("torus:3x3?message=20us"), "allreduce", 64_000), []
    for speed in ("python", "compiled"):
        monkeypatch.setenv("STRETTO_KERNELS", speed)
        found.append(improved(plan, 5_000.0))
    for name in ("chunk", "src", "start_s", "finish_s", "message"):
        assert np.array_equal(getattr(found[0], name), getattr(found[1], name)), name


def test_a_plan_that_ends_soon_enough_is_left():
    plan = planned(load_topology("torus:3x3?message=20us"), "alltoall", 9_000)
    assert rerouted(plan, STEPS, inf)[0] is None


def test_a_plan_that_cannot_end_sooner_stays_as_it_is():
    plan = planned(load_topology("ring:3?message=20us"), "allreduce", 123_457)
    assert rerouted(plan, STEPS, 0.0)[0] is None


@pytest.mark.parametrize(("kind", "transit"), [(ROUTER, False), (ACCELERATOR, True)])
def test_chunks_go_by_ranks_alone_though_a_router_that_stores_joins_them_too(kind, transit):
    """Likewise an accelerator through which routes pass."""
    around = [(a, b, 1e12, 0.0) for v in range(9) for a, b in ((v, (v + 1) % 9), ((v + 1) % 9, v))]
    beside = [(a, b, 1e6, 1.0) for v in range(9) for a, b in ((v, 9), (9, v))]
    net = make_topology(
        "ring and hub", [ACCELERATOR] * 9 + [kind], around + beside, message_s=[20e-6] * 36,
        transit=[False] * 9 + [transit],
    )  # fmt: skip
    found = improved(planned(net, "alltoall", 9_000, ranks=list(range(9))))
    assert not np.isin(9, np.concatenate((found.src, found.dst.values)))


def test_fewer_steps_are_taken_where_fewer_are_allowed():
    plan = planned(load_topology("torus:4x4?message=20us"), "alltoall", 64_000)
    assert rerouted(plan, 0.0, 0.0) == (None, 0.0)
    few, many = (rerouted(plan, steps, 0.0)[1] for steps in (500.0, 5_000.0))
    assert 500 <= few < 1_000 and 5_000 <= many < 6_000


@pytest.mark.parametrize(
    ("net", "kind", "planner"),
    [
        ("torus:3x3?message=0", "alltoall", "shortest-path"),  # nothing to be saved
        ("hypercube:3?message=20us", "allreduce", "recursive-doubling"),  # ranks exchange what they have summed
    ],
)
def test_other_plans_stay_as_they_are(net, kind, planner):
    assert rerouted(planned(load_topology(net), kind, 64_000, planner), STEPS, 0.0) == (None, 0.0)


def test_auto_reroutes_what_others_planned():
    net = load_topology("torus:3x4?message=20us")
    request = work(net, "alltoall", 64_000)
    plan = run_planner("auto", net, request)
    assert verify(plan).ok and message_count(plan) < plan.transfer_count
    assert simulate(plan).completion_s < 1.05 * bounds(net, request)[0].seconds


def test_sums_that_come_to_several_ranks_at_once_stay_as_they_are():
    net = load_topology("star:4?message=2us")
    plan = run_planner("contributions", net, work(net, "allreduce", 1_000), options={"planner": "switch-trees"})
    assert plan.dst.lengths.max() == 3
    assert rerouted(plan, STEPS, 0.0) == (None, 0.0)


@pytest.mark.parametrize("far", [False, True])
def test_messages_are_sorted_by_start_and_those_that_start_together_keep_their_order(far):
    """Sorted one by one where they are near their places, as a whole where they are far from them."""
    rng = np.random.default_rng(0)
    start_s = rng.integers(0, 20, 400).astype(float)
    near = np.argsort(start_s, kind="stable")
    order = rng.permutation(400) if far else near.reshape(-1, 2)[:, ::-1].ravel().copy()
    places = np.argsort(np.argsort(start_s[order], kind="stable"))
    assert (np.abs(places - np.arange(400)).sum() > 2 * FEW_MOVED * 400) == far
    wanted = order[np.argsort(start_s[order], kind="stable")]
    sort_by_start(400, SimpleNamespace(order=order, start_s=start_s))
    assert (order == wanted).all()
