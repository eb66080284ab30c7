"""Exact non-concurrent schedules: both models agree, and with brute force."""

from __future__ import annotations

from itertools import pairwise, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stretto.model.arrays import Ragged
from stretto.model.workloads import wan_workload
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.solvers.disjunctive import Jobs, cp_sat, milp
from stretto.topologies import load_topology
from stretto.verify import verify


def random_jobs(seed: int, n: int = 5, latest: int = 0, guard_s: float = 0.0) -> Jobs:
    """Jobs on three machines, each of which serves a job up to ``latest`` seconds after it starts."""
    rng = np.random.default_rng(seed)
    machines = [np.flatnonzero(rng.random(n) < 0.6) for _ in range(3)]
    before = np.arange(0, n - 1, 2)
    return Jobs(
        seconds=rng.integers(1, 9, n).astype(float), release=rng.integers(0, 3, n).astype(float),
        before=before, after=before + 1, lag=np.zeros(len(before)), machines=Ragged.of(machines),
        later=rng.integers(0, latest + 1, sum(map(len, machines))).astype(float), family=np.arange(n) // 2,
        tail=np.zeros(n), guard_s=guard_s,
    )  # fmt: skip


def best_of_all_orders(jobs: Jobs) -> float:
    values = []
    for order in permutations(range(len(jobs.seconds))):
        place = np.argsort(order)
        if (place[jobs.before] < place[jobs.after]).all():
            values.append(jobs.value(jobs.shifted_left(place.astype(float))))
    return min(values)


@settings(max_examples=15)
@given(seed=st.integers(0, 1000))
def test_both_models_find_the_best_of_all_orders(seed):
    jobs = random_jobs(seed)
    hint = jobs.shifted_left(np.arange(len(jobs.seconds), dtype=float))
    best = best_of_all_orders(jobs)
    for found in (cp_sat(jobs, hint, 5.0), milp(jobs, hint, 100.0)):
        assert found.optimal
        assert jobs.value(found.start) == pytest.approx(best, rel=1e-6)
        assert best * (1 - 1e-3) <= found.bound <= best * (1 + 1e-6)


def best_of_all_machine_orders(jobs: Jobs) -> float:
    """The least mean where each machine may serve its jobs in any order, whatever the order of their starts."""
    n, least = len(jobs.seconds), np.inf
    waits = [
        (a, b, jobs.seconds[a] + jobs.lag[i]) for i, (a, b) in enumerate(zip(jobs.before, jobs.after, strict=True))
    ]
    places = [range(*jobs.machines.offsets[m : m + 2]) for m in range(jobs.machines.rows)]
    for orders in product(*(permutations(p) for p in places)):
        edges = list(waits)
        for order in orders:
            for x, y in pairwise(order):
                a, b = jobs.machines.values[x], jobs.machines.values[y]
                edges.append((a, b, jobs.later[x] + jobs.seconds[a] + jobs.guard_s - jobs.later[y]))
        start = jobs.release.copy()
        for _ in range(n + 1):
            before = start.copy()
            for a, b, gap in edges:
                start[b] = max(start[b], start[a] + gap)
            if (start == before).all():
                least = min(least, jobs.value(start))
                break
    return least


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), guard_s=st.sampled_from([0.0, 1.0, 0.25]))
def test_both_models_find_the_best_where_machines_serve_jobs_later_and_rest(seed, guard_s):
    jobs = random_jobs(seed, n=4, latest=5, guard_s=guard_s)
    hint = jobs.shifted_left(10.0 * np.arange(4))
    best = best_of_all_machine_orders(jobs)
    for found in (cp_sat(jobs, hint, 5.0), milp(jobs, hint, 100.0)):
        assert found.optimal
        assert jobs.value(found.start) == pytest.approx(best, rel=1e-6)
        assert best * (1 - 2e-3) <= found.bound <= best * (1 + 1e-6)


def test_a_schedule_keeps_its_order_on_every_machine_when_it_is_shifted_left():
    # machine 0 serves job 0 ten seconds after it starts, so that job 1, which starts later, goes first there
    jobs = Jobs(
        seconds=np.array([2.0, 3.0]), release=np.zeros(2), before=np.zeros(0, np.int64), after=np.zeros(0, np.int64),
        lag=np.zeros(0), machines=Ragged.of([[0, 1]]), later=np.array([10.0, 0.0]), family=np.arange(2),
        tail=np.zeros(2), guard_s=1.0,
    )  # fmt: skip
    assert jobs.shifted_left(np.array([0.0, 5.0])).tolist() == [0.0, 0.0]
    assert jobs.shifted_left(np.array([0.0, 11.0])).tolist() == [0.0, 13.0]


def test_the_papers_model_and_intervals_agree_on_a_wan():
    wan, work = wan_workload(load_topology("zoo:Abilene"), 2, 3, seed=1)
    means = []
    for solver in ("cp-sat", "milp"):
        plan = run_planner("non-concurrent", wan, work, options={"solver": solver, "solver_work": 30.0})
        assert verify(plan).ok and plan.meta["optimal"]
        means.append(simulate(plan).mean_completion_s)
        assert means[-1] == pytest.approx(plan.meta["objective_s"], rel=1e-9)
    assert means[0] == pytest.approx(means[1], rel=1e-6)


def test_no_two_flows_of_a_non_concurrent_plan_share_a_link():
    wan, work = wan_workload(load_topology("zoo:Gblnet"), 3, 4, seed=2)
    plan = run_planner("non-concurrent", wan, work, options={"solver": "greedy"})
    for link in range(wan.link_count):
        on = np.flatnonzero([link in plan.route[k] for k in range(plan.transfer_count)])
        assert (plan.start_s[on][1:] >= plan.finish_s[on][:-1] * (1 - 1e-12)).all()


@pytest.mark.parametrize("inside", ["cp-sat", "milp", "shortest", "downstream"])
def test_multiring_keeps_every_collective_within_its_rate(inside):
    wan, work = wan_workload(load_topology("zoo:Abilene"), 3, 3, seed=3)
    plan = run_planner("multiring", wan, work, options={"inside": inside, "solver_work": 3.0})
    assert verify(plan).ok
    rate = plan.size_bytes / (plan.finish_s - plan.start_s)
    k = plan.workload.chunk_collective[plan.chunk]
    for collective in range(3):
        assert np.ptp(rate[k == collective]) <= 1e-6 * rate.max()
