"""Wang, Craps, Li, "Flow-Dependency-Aware Rate Allocation": its figures, lemmas and theorem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows import chains, lines
from stretto.model.plan import Plan
from stretto.model.workloads import wan_workload
from stretto.planners import Request, find, run_planner
from stretto.planners.wan.flows import flows_of
from stretto.simulate import simulate
from stretto.studies import wan_examples
from stretto.topologies import load_topology
from stretto.verify import verify

MB = 10**6


def ends(plan: Plan) -> list[float]:
    return simulate(plan).completions_s.tolist()


def refined(name: str, plan: Plan, **options) -> Plan:
    return find(name).run(plan, Request(plan.topology, plan.workload), **options)


@pytest.fixture
def figure_2() -> Plan:
    return wan_examples.figure_2()


@pytest.fixture
def figure_3() -> Plan:
    return wan_examples.figure_3()


def test_figure_2_equal_split_of_flows_takes_9_and_5_seconds(figure_2):
    assert ends(refined("out-of-order", figure_2)) == pytest.approx([9, 5])


def test_figure_2_group_aware_and_ready_takes_4_and_2_seconds(figure_2):
    assert ends(refined("tcp-fair", figure_2)) == pytest.approx([4, 2])
    assert ends(refined("wan", figure_2)) == pytest.approx([4, 2])
    assert ends(refined("non-concurrent", figure_2)) == pytest.approx([4, 2])


def test_figure_3_equal_split_of_flows_takes_8_seconds(figure_3):
    assert ends(refined("out-of-order", figure_3)) == pytest.approx([8, 8])


@pytest.mark.parametrize("scheme", ["equal-alloc", "rate-alloc", "weight-alloc", "data-aware", "tcp-fair"])
def test_figure_3_groups_that_share_take_4_seconds(figure_3, scheme):
    assert ends(refined(scheme, figure_3)) == pytest.approx([4, 4], rel=1e-6)


def test_figure_3_serialised_as_in_the_text_takes_3_and_4_seconds(figure_3):
    plan = wan_examples.plan_of(wan_examples.AS_WRITTEN, "non-concurrent")
    assert ends(plan) == pytest.approx([3, 4])
    assert np.mean(ends(plan)) == pytest.approx(3.5)


def test_figure_3_one_collective_before_the_other_is_better_still(figure_3):
    for scheme in ("non-concurrent", "wan"):
        plan = refined(scheme, figure_3)
        assert sorted(simulate(plan).completions_s) == pytest.approx([2, 4])
    assert plan.meta["objective_over_bound"] == pytest.approx(1)


positive = st.floats(1, 1e6)


@given(st.lists(st.tuples(st.integers(1, 1000), positive), min_size=1, max_size=8))
def test_lemma_1_the_whole_is_no_slower_than_its_slowest_part(flows):
    size, rate = np.array([s for s, _ in flows]), np.array([r for _, r in flows])
    net = lines(float(rate.sum()))
    parts = chains(net, *[[[(int(s), [0])]] for s in size])
    whole = chains(net, [[(int(size.sum()), [0])]])
    apart = simulate(replace(parts, sharing="rates", rate=rate)).completion_s
    together = simulate(replace(whole, sharing="rates", rate=np.array([rate.sum()]))).completion_s
    assert together <= apart * (1 + 1e-9)


@given(st.lists(st.tuples(st.integers(1, 1000), positive), min_size=1, max_size=7))
def test_theorem_2_one_after_the_other_ends_every_flow_no_later_than_constant_rates(flows):
    size = np.array([s for s, _ in flows])
    share = np.array([r for _, r in flows])
    share = 100.0 * share / share.sum()
    plan = chains(lines(100.0), *[[[(int(s), [0])]] for s in size])
    shared = simulate(replace(plan, sharing="rates", rate=share)).finish_s
    order = np.argsort(shared, kind="stable")
    urgency = np.empty(len(size))
    urgency[order] = -np.arange(len(size))
    serial = simulate(replace(plan, sharing="priorities", weight=urgency)).finish_s
    assert (serial[order] <= shared[order] * (1 + 1e-9)).all()


@given(seed=st.integers(0, 10_000), slow=st.integers(0, 5))
def test_lemma_3_group_reservations_never_overfill_a_link(seed, slow):
    rng = np.random.default_rng(seed)
    net = load_topology(["zoo:Abilene", "zoo:Gblnet", "ring:5"][seed % 3])
    wan, work = wan_workload(net, int(rng.integers(1, 4)), int(rng.integers(2, 5)), seed=seed)
    plan = run_planner("rate-alloc", wan, work)
    assert verify(plan).ok
    t = simulate(plan)
    owners, links = plan.route.owners, plan.route.values
    for now in rng.choice(t.start_s, 10):
        on = (t.start_s[owners] <= now) & (now < t.finish_s[owners] * (1 - 1e-9))
        load = np.bincount(links[on], weights=plan.rate[owners[on]], minlength=wan.link_count)
        assert (load <= wan.bandwidth * (1 + 1e-9)).all()


def cvxpy_rate_alloc(flows) -> float:
    """(10) as the paper writes it, with a rate for each flow and all reservations."""
    cp = pytest.importorskip("cvxpy")
    unit = flows.width.mean()
    size, width = flows.size / flows.size.mean(), flows.width / unit
    b = cp.Variable(len(size), pos=True)
    e = cp.Variable(len(flows.pair_link), nonneg=True)
    t = cp.Variable(flows.collectives)
    constraints = []
    for g in range(flows.groups):
        own = np.flatnonzero(flows.group == g)
        constraints.append(t[flows.collective[g]] >= cp.sum(cp.multiply(size[own], cp.inv_pos(b[own]))))
    constraints.append(e[flows.pair] >= b[flows.owner])
    for link in np.unique(flows.pair_link):
        constraints.append(cp.sum(e[np.flatnonzero(flows.pair_link == link)]) <= width[link])
    problem = cp.Problem(cp.Minimize(cp.sum(t) / flows.collectives), constraints)
    problem.solve(solver="CLARABEL")
    return problem.value * flows.size.mean() / unit


@pytest.mark.parametrize("seed", range(4))
def test_equation_10_on_conic_arrays_agrees_with_the_readable_model(seed):
    wan, work = wan_workload(load_topology("zoo:Abilene"), 2, 4, seed=seed)
    plan = run_planner("rate-alloc", wan, work)
    assert plan.meta["surrogate_s"] == pytest.approx(cvxpy_rate_alloc(flows_of(plan)), rel=1e-5)
    assert simulate(plan).mean_completion_s == pytest.approx(plan.meta["surrogate_s"], rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_equation_12_on_conic_arrays_agrees_with_the_readable_model(seed):
    cp = pytest.importorskip("cvxpy")
    from stretto.planners.wan.multiring import budgets

    wan, work = wan_workload(load_topology("zoo:Abilene"), 4, 4, seed=seed)
    flows = flows_of(run_planner("ring", wan, work))
    k = flows.collective[flows.group]
    volume = np.bincount(k, weights=flows.size)
    b = cp.Variable(4, pos=True)
    unit = flows.width.mean()
    users = [np.unique(k[flows.owner[flows.link == e]]) for e in range(len(flows.width))]
    limits = [cp.sum(b[u]) <= flows.width[e] / unit for e, u in enumerate(users) if len(u)]
    problem = cp.Problem(cp.Minimize(cp.sum(cp.multiply(volume / volume.mean(), cp.inv_pos(b)))), limits)
    problem.solve(solver="CLARABEL")
    ours = float((volume / volume.mean() / (budgets(flows) / unit)).sum())
    assert ours == pytest.approx(problem.value, rel=1e-5)


def test_algorithm_1_line_5_agrees_with_the_readable_model():
    cp = pytest.importorskip("cvxpy")
    from stretto.planners.wan.weight_alloc import subproblem

    wan, work = wan_workload(load_topology("zoo:Abilene"), 3, 4, seed=3)
    flows = flows_of(run_planner("ring", wan, work))
    before = np.full(flows.groups, 1 / flows.groups)
    total = np.bincount(flows.pair_link, weights=before[flows.pair_group], minlength=len(flows.width))
    per_weight = flows.least((flows.width / np.where(total > 0, total, 1.0))[flows.link])
    a = np.bincount(flows.group, weights=flows.size / per_weight)
    w, t = cp.Variable(flows.groups, pos=True), cp.Variable(3)
    rows = [t[flows.collective[g]] >= a[g] / a.mean() * cp.inv_pos(w[g]) for g in range(flows.groups)]
    problem = cp.Problem(cp.Minimize(cp.sum(t)), [*rows, cp.sum(w) == 1])
    problem.solve(solver="CLARABEL")
    took = np.zeros(3)
    np.maximum.at(took, flows.collective, a / a.mean() / subproblem(flows, before))
    assert took.sum() == pytest.approx(problem.value, rel=1e-5)


@pytest.mark.parametrize("k", [2, 5, 8])
def test_figure_4_the_order_of_the_static_schemes(k):
    wan, work = wan_workload(load_topology("zoo:Abilene"), k, 11, seed=1)
    mean = {
        name: simulate(run_planner(name, wan, work)).mean_completion_s
        for name in ("out-of-order", "equal-alloc", "data-aware", "weight-alloc", "rate-alloc")
    }
    assert sorted(mean, key=lambda name: -mean[name]) == list(mean)
