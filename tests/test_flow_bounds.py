"""The bound of wan: what flows over fixed routes cannot beat, and when its proof ends."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows import bound_of, chains, lines
from stretto.model.collective import Workload, make_collective
from stretto.model.workloads import wan_workload
from stretto.planners import registered, run_planner
from stretto.planners.wan.bound import MOST_SETS
from stretto.planners.wan.flows import flows_of
from stretto.planners.wan.proof import Windows, least_last, least_mean
from stretto.planners.wan.search import Judge
from stretto.planners.wan.slots import largest_overlap
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify
from test_flow_refiners import request

REFINERS = [e.name for e in registered().values() if e.alone == ("ring",)]
NETWORKS = ["zoo:Abilene", "zoo:Cesnet", "zoo:Gblnet", "zoo:Napnet", "ring:6"]


# --- the bound ----------------------------------------------------------------------------------


def test_on_one_link_the_bound_is_the_shortest_first():
    # chunks are collectives here, so ends are 1, 3 and 6 s
    plan = chains(lines(10), [[(30, [0])]], [[(10, [0])]], [[(20, [0])]])
    assert bound_of(plan).mean_s == pytest.approx((1 + 3 + 6) / 3)
    assert bound_of(plan).last_s == pytest.approx(6)


def test_the_bound_counts_what_comes_before_and_after_a_link():
    net = load_topology("ring:4")
    work = Workload((make_collective("allreduce", net, 4_000_000, chunks=4),))
    plan = run_planner("ring", net, work)
    # every link is busy at every moment: 6 steps of a chunk and a latency each
    per = 1_000_000 / net.bandwidth[0] + net.latency_s[0]
    assert bound_of(plan).last_s == pytest.approx(6 * per)
    assert simulate(plan).completion_s == pytest.approx(6 * per)


@given(seed=st.integers(0, 10_000))
def test_the_bound_for_many_collectives_is_no_higher_than_over_all_sets(seed):
    wan, work = request(seed)
    plan = run_planner("ring", wan, work)
    every = bound_of(plan)
    from stretto.planners.wan import bound as wan_bound

    try:
        wan_bound.MOST_SETS = 0
        loose = bound_of(plan)
    finally:
        wan_bound.MOST_SETS = MOST_SETS
    assert loose.mean_s <= every.mean_s * (1 + 1e-9)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), name=st.sampled_from(["ring", "tcp-fair", "rate-alloc", "non-concurrent"]))
def test_windows_narrowed_for_the_ends_of_a_plan_contain_it(seed, name):
    wan, work = request(seed)
    rng = np.random.default_rng(seed)
    far = replace(wan, latency_s=rng.uniform(0, 0.3, wan.link_count))
    greedy = {"solver": "greedy"} if name == "non-concurrent" else {}
    plan = run_planner(name, (wan, far)[seed % 2], work, options=greedy)
    t = simulate(plan)
    ends = np.array([c.start_s for c in work.collectives]) + t.completions_s
    windows = Windows(flows_of(plan), 1)
    ready, due = windows.by_chains(ends * (1 + 1e-9))
    assert windows.narrow(ready, due)
    assert (ready <= t.start_s * (1 + 1e-8) + 1e-9).all()
    assert (t.finish_s <= due * (1 + 1e-8) + 1e-9).all()


def test_a_machine_with_two_windows_in_the_way_is_seen():
    # two chains over the same two links: the second to reach link 1 waits there for the first
    plan = chains(lines(10, 10), [[(10, [0]), (20, [1])]], [[(10, [0]), (20, [1])]])
    windows = Windows(flows_of(plan), 100)
    # collectives are flows here: those of link 0 end at 1 and 2 s, those of link 1 at 3 and 5 s
    assert windows.refuted(np.array([2.0, 3.0, 2.0, 4.99]))
    assert not windows.refuted(np.array([2.0, 3.0, 2.0, 5.0]))
    assert least_last(windows, 0.0, 10.0, np.zeros(4)) == pytest.approx(5, abs=2e-3)


def test_a_flow_over_two_links_needs_both_free_at_once():
    # link 0 is taken until 1 s and link 1 from then on: each alone has a second for the long flow
    plan = chains(lines(10, 10), [[(10, [0, 1])], [(10, [0])], [(10, [1])]])
    flows, ready, due = flows_of(plan), np.array([0.0, 0.0, 1.0]), np.array([2.0, 1.0, 2.0])
    assert Windows(flows, 1).narrow(ready.copy(), due.copy())
    assert largest_overlap(flows, ready, due) is None
    assert largest_overlap(flows, ready, np.array([3.0, 1.0, 3.0])) is not None


@settings(max_examples=8)
@given(seed=st.integers(0, 10_000), name=st.sampled_from(["tcp-fair", "rate-alloc", "non-concurrent"]))
def test_a_plan_is_sendable_in_the_windows_of_its_own_ends(seed, name):
    wan, work = request(seed, 2)
    plan = run_planner(name, wan, work, options={"solver": "greedy"} if name == "non-concurrent" else {})
    ends = np.array([c.start_s for c in work.collectives]) + simulate(plan).completions_s
    assert not Windows(flows_of(plan), 100).refuted_by_programs(ends * (1 + 1e-9))


def test_branch_and_bound_closes_the_gap_that_loads_and_chains_leave():
    wan, work = wan_workload(load_topology("zoo:Abilene"), 2, 4, seed=0)
    loose, tight = (run_planner("wan", wan, work, options={"proof": p, "runs": 200}).meta for p in (0, 400))
    assert loose["objective_s"] == tight["objective_s"]
    assert loose["objective_over_bound"] > 1.05
    assert 1 - 1e-9 <= tight["objective_over_bound"] <= 1.001


def test_a_bound_that_runs_out_of_tries_is_no_higher():
    wan, work = wan_workload(load_topology("zoo:Abilene"), 2, 4, seed=3)
    plan = run_planner("ring", wan, work)
    flows, share = flows_of(plan), np.full(2, 0.5)
    low = bound_of(plan).mean_s
    found = [least_mean(Windows(flows, n), low, 3.6, np.zeros(2), share) for n in (0, 40, 400)]
    assert found == sorted(found) and low == found[0] < found[2] <= 3.6


def test_where_the_exact_model_proves_its_schedule_wan_is_within_2_percent_of_its_bound():
    for seed in (0, 2):
        wan, work = wan_workload(load_topology("zoo:Abilene"), 2, 3, seed=seed)
        meta = run_planner("wan", wan, work).meta
        assert meta["non_concurrent_optimal"]
        assert meta["objective_over_non_concurrent"] <= 1.02
        assert 1 <= meta["objective_over_bound"] <= 1.011  # of what no sharing whatever beats
        assert meta["objective_bound_s"] <= meta["objective_s"]


def test_where_a_run_takes_long_one_order_and_fair_sharing_are_all_that_is_tried(monkeypatch):
    wan, work = wan_workload(load_topology("zoo:Abilene"), 2, 4, seed=1)
    runs, finish = [], Judge.finish
    monkeypatch.setattr(Judge, "finish", lambda *a: runs.append(1) or finish(*a))
    monkeypatch.setattr(sys.modules["stretto.planners.wan.planner"], "SEARCH_STEPS", 0.02)
    monkeypatch.setattr(sys.modules["stretto.planners.wan.planner"], "EXACT_UP_TO", 0)
    plan = run_planner("wan", wan, work, options={"proof": 0})
    assert len(runs) == 2 and verify(plan).ok
    assert plan.meta["objective_s"] <= simulate(run_planner("tcp-fair", wan, work)).mean_completion_s * (1 + 1e-9)


def test_sharing_can_beat_what_no_schedule_of_one_flow_a_link_beats():
    wan, work = wan_workload(load_topology("zoo:Abilene"), 2, 3, seed=0)
    meta = run_planner("wan", wan, work).meta
    assert meta["objective_s"] < 0.95 * meta["non_concurrent_bound_s"]
