"""wan, its bound, rings over fixed routes, and what every refiner of flows must keep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows import bound_of
from networks import random_network
from stretto.formats.native import read_plan, write_plan
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError
from stretto.model.topology import ROUTER
from stretto.model.workloads import wan_workload
from stretto.planners import Request, find, plan_by, registered, run_planner
from stretto.planners.wan.bound import flow_bound
from stretto.planners.wan.flows import flows_of
from stretto.planners.wan.proof import Windows, least_mean
from stretto.schedule.effort import Budget
from stretto.simulate import delays_of, simulate
from stretto.topologies import load_topology
from stretto.verify import verify

REFINERS = [e.name for e in registered().values() if e.alone == ("ring",)]
SHORT = {"runs": 200, "proof": 1}
"""Options of ``wan`` where its plan is asked for and not how near to the optimum it is proven to be."""

NETWORKS = ["zoo:Abilene", "zoo:Cesnet", "zoo:Gblnet", "zoo:Napnet", "ring:6"]


def request(seed: int, most: int = 3):
    rng = np.random.default_rng(seed)
    net = load_topology(NETWORKS[seed % len(NETWORKS)])
    return wan_workload(
        net, int(rng.integers(1, most + 1)), int(rng.integers(2, 5)), seed=seed, gap_s=float(rng.integers(0, 2))
    )


# --- what every refiner must keep ---------------------------------------------------------------


@pytest.mark.parametrize("name", REFINERS)
@pytest.mark.parametrize("seed", range(5))
def test_a_refined_plan_verifies_keeps_its_claim_and_never_beats_the_bound(name, seed):
    wan, work = request(seed)
    plan = run_planner(name, wan, work, time_limit_s=1.0)
    verdict = verify(plan)
    assert verdict.ok, verdict.finding
    timeline = simulate(plan)
    if "objective_s" in plan.meta:
        assert timeline.mean_completion_s == pytest.approx(plan.meta["objective_s"], rel=1e-9)
    bound = flow_bound(flows_of(plan))
    assert timeline.mean_completion_s >= bound.mean_s * (1 - 1e-9)
    assert timeline.completion_s >= bound.last_s * (1 - 1e-9)
    if plan.start_s is not None:
        np.testing.assert_allclose(timeline.start_s, plan.start_s, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", REFINERS)
def test_a_refined_plan_survives_its_file_and_is_the_same_twice(name, tmp_path):
    wan, work = request(2)
    plan = run_planner(name, wan, work, effort="quick")
    write_plan(plan, str(tmp_path / "p.parquet"))
    assert read_plan(str(tmp_path / "p.parquet")).digest() == plan.digest()
    assert run_planner(f"ring+{name}", wan, work, effort="quick").digest() == plan.digest()


@pytest.mark.parametrize("name", REFINERS)
def test_a_refiner_leaves_the_plan_that_it_was_given_as_it_was(name):
    wan, work = request(3)
    plan = run_planner("ring", wan, work)
    before, meta = plan.digest(), dict(plan.meta)
    find(name).run(plan, Request(plan.topology, plan.workload))
    assert plan.digest() == before and plan.meta == meta


@pytest.mark.parametrize("name", ["tcp-fair", "wan", "rate-alloc", "non-concurrent"])
def test_refiners_take_plans_of_other_planners(name):
    net = load_topology("dgx1")
    work = Workload((make_collective("allgather", net, 8_000_000, chunks=2),))
    plan = run_planner(f"mtegcca+{name}", net, work, time_limit_s=1.0)
    assert verify(plan).ok
    assert simulate(plan).completion_s > 0


@pytest.mark.parametrize("refiner", ["wan", "rate-alloc", "tcp-fair"])
@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [("rabenseifner", "allreduce"), ("recursive-doubling", "allreduce"), ("two-trees", "allreduce"),
     ("shortest-path", "alltoall"), ("scale-ccl", "allreduce"), ("ring", "allgather")],
)  # fmt: skip
def test_other_algorithms_share_a_wan_as_well(algorithm, kind, refiner):
    net = load_topology("zoo:Abilene?transit=true")
    work = Workload(tuple(make_collective(kind, net, 40_000, ranks=r) for r in ([0, 3, 5, 8], [1, 2, 8, 10])))
    options = {"runs": 10, "proof": 20} if refiner == "wan" else {}
    plan = run_planner(f"{algorithm}+{refiner}", net, work, options=options, time_limit_s=0.1)
    verdict = verify(plan)
    assert verdict.ok, verdict.finding
    mean = simulate(plan).mean_completion_s
    assert mean >= bound_of(plan).mean_s * (1 - 1e-9)
    if refiner == "wan":
        assert mean == pytest.approx(plan.meta["objective_s"], rel=1e-9)


# --- routes that branch -------------------------------------------------------------------------


@pytest.mark.parametrize("refiner", ["multiring", "non-concurrent"])
@pytest.mark.parametrize("seed", [9, 13, 33])
def test_a_flow_waits_until_a_branch_has_brought_what_it_sends(refiner, seed):
    net = random_network(seed)
    work = Workload((make_collective("allgather", net, len(net.accelerators) * 10_007),))
    options = {"rounds": 0} | ({"inside": "shortest"} if refiner == "multiring" else {"solver": "greedy"})
    plan = run_planner(f"mtegcca+{refiner}", net, work, options=options)
    assert (plan.dst.lengths > 1).any()
    came = dict(zip(zip(plan.dst.owners.tolist(), plan.dst.values.tolist()), delays_of(plan).receiver_s))
    for k, d in zip(plan.depends.owners.tolist(), plan.depends.values.tolist()):
        lag = came[d, int(plan.src[k])]
        if net.forwarding[plan.src[k]] != ROUTER:
            assert plan.start_s[k] >= (plan.finish_s[d] + lag) * (1 - 1e-9)
    # list schedules do not know yet how much later than its source each link of a route is busy
    if refiner == "multiring" or seed == 13:
        verdict = verify(plan)
        assert verdict.ok, verdict.finding


@pytest.mark.parametrize("refiner", ["wan", "non-concurrent"])
@pytest.mark.parametrize("spec", ["star:4", "star:5?latency=3us"])
def test_a_collective_ends_when_the_farthest_branch_has_its_bytes(refiner, spec):
    net = load_topology(spec)
    work = Workload(tuple(make_collective(kind, net, 80_000) for kind in ("broadcast", "allgather")))
    plan = run_planner(f"mtegcca+{refiner}", net, work, effort="quick")
    assert (plan.dst.lengths > 1).any()
    assert simulate(plan).mean_completion_s == pytest.approx(plan.meta["objective_s"], rel=1e-9)
    assert flow_bound(flows_of(plan)).mean_s <= plan.meta["objective_s"] * (1 + 1e-9)


# --- wan ----------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000))
def test_wan_is_never_worse_than_another_scheme(seed):
    wan, work = request(seed)
    ours = simulate(run_planner("wan", wan, work, options={"runs": 20})).mean_completion_s
    for name in (
        "tcp-fair",
        "rate-alloc",
        "weight-alloc",
        "out-of-order",
        "equal-alloc",
        "data-aware",
        "barrier-aware",
    ):
        theirs = simulate(run_planner(name, wan, work)).mean_completion_s
        assert ours <= theirs * (1 + 1e-9), name
    greedy = run_planner("non-concurrent", wan, work, options={"solver": "greedy"})
    assert ours <= simulate(greedy).mean_completion_s * (1 + 1e-9)


def test_wan_beats_fair_sharing_by_a_fifth_on_abilene():
    ratios = []
    for k in (2, 4):
        wan, work = wan_workload(load_topology("zoo:Abilene"), k, 4, seed=k)
        fair, ours = (
            simulate(run_planner(name, wan, work, options=options)).mean_completion_s
            for name, options in (("tcp-fair", {}), ("wan", SHORT))
        )
        ratios.append(ours / fair)
    assert np.mean(ratios) <= 0.78


@pytest.mark.parametrize(("objective", "of"), [("mean", np.mean), ("tail", np.max), ("makespan", np.max)])
def test_wan_minimises_what_it_is_asked_to(objective, of):
    wan, work = wan_workload(load_topology("zoo:Abilene"), 3, 4, seed=5)
    plan = run_planner("wan", wan, work, effort="normal", options={"objective": objective, "runs": 60})
    assert of(simulate(plan).completions_s) == pytest.approx(plan.meta["objective_s"], rel=1e-9)
    assert plan.meta["objective_over_bound"] >= 1 - 1e-9


def test_a_heavy_weight_brings_its_collective_forward():
    wan, work = wan_workload(load_topology("zoo:Abilene"), 3, 4, seed=5)
    took = [
        simulate(
            run_planner("wan", wan, work, effort="normal", options={"weights": w, "runs": 60, "proof": 1})
        ).completions_s
        for w in ("1,1,1", "1,1,100", "1,100,1")
    ]
    assert took[1][2] <= took[0][2] * (1 + 1e-9) and took[2][1] <= took[0][1] * (1 + 1e-9)


@pytest.mark.parametrize("weights", ["1,2", "1,2,x", "1,-2,3"])
def test_weights_that_make_no_sense_are_refused(weights):
    wan, work = wan_workload(load_topology("zoo:Abilene"), 3, 4, seed=5)
    with pytest.raises(InputError, match="3 numbers above 0"):
        run_planner("wan", wan, work, options={"weights": weights})


@pytest.mark.parametrize("name", ["wan", "non-concurrent", "multiring"])
def test_both_speeds_of_the_kernels_give_the_same_plan(name, monkeypatch):
    wan, work = request(6)
    digests = set()
    for speed in ("python", "compiled"):
        monkeypatch.setenv("STRETTO_KERNELS", speed)
        plan = run_planner(name, wan, work, options={"runs": 15} if name == "wan" else {})
        digests.add((plan.digest(), plan.meta.get("objective_bound_s")))
    assert len(digests) == 1


def test_online_decisions_know_nothing_of_what_is_to_come():
    wan, work = wan_workload(load_topology("zoo:Abilene"), 4, 5, seed=7, gap_s=1.5)
    fewer = Workload(work.collectives[:3])
    one, other = (simulate(run_planner("wan", wan, w, options={"online": True})) for w in (work, fewer))
    k = one.plan.workload.chunk_collective[one.plan.chunk]
    early = other.start_s < 3 * 1.5
    np.testing.assert_allclose(one.start_s[k < 3][early], other.start_s[early], rtol=1e-12)


def test_online_decisions_cost_less_than_fair_sharing_and_more_than_hindsight():
    ratios = []
    for seed in range(2):
        wan, work = wan_workload(load_topology("zoo:Abilene"), 4, 5, seed=seed, gap_s=0.5)
        fair, online, offline = (
            simulate(run_planner(name, wan, work, options=options)).mean_completion_s
            for name, options in (("tcp-fair", {}), ("wan", {"online": True, "proof": 1}), ("wan", SHORT))
        )
        ratios.append((online / fair, offline / online))
    assert np.mean([a for a, _ in ratios]) < 0.9
    assert max(b for _, b in ratios) <= 1 + 1e-9


# --- rings --------------------------------------------------------------------------------------


def test_a_ring_of_n_ranks_has_n_groups_of_twice_n_minus_one_flows():
    # 8 collectives of 11 ranks: 1,760 flows in 88 groups
    wan, work = wan_workload(load_topology("zoo:Abilene"), 8, 11, seed=1)
    plan = run_planner("ring", wan, work)
    flows = flows_of(plan)
    assert (plan.transfer_count, flows.groups) == (1760, 88)
    assert (np.bincount(flows.group) == 20).all()


def test_routes_are_shortest():
    net = load_topology("zoo:Abilene?transit=true")
    work = Workload((make_collective("allreduce", net, 1100),))
    plan = run_planner("ring", net, work)
    # New York to Chicago is a link; Indianapolis to New York passes Chicago
    assert plan.route.lengths[0] == 1
    last = np.flatnonzero((plan.src == 10) & (plan.dst.values == 0))[0]
    assert [net.link_name(i) for i in plan.route[last]] == ["Indianapolis→Chicago", "Chicago→New York"]


def test_the_nearest_order_makes_routes_shorter():
    net = load_topology("zoo:Abilene?transit=true")
    work = Workload((make_collective("allreduce", net, 1100),))
    given, near = (run_planner("ring", net, work, options={"order": o}) for o in ("auto", "near"))
    assert near.route.lengths.mean() < given.route.lengths.mean()
    assert verify(near).ok


def test_the_papers_workload_has_equal_capacity_both_ways_and_uneven_chunks():
    wan, work = wan_workload(load_topology("zoo:Abilene"), 2, 5, seed=3)
    pairs = {(int(a), int(b)): w for a, b, w in zip(wan.src, wan.dst, wan.bandwidth)}
    assert all(pairs[a, b] == pairs[b, a] for a, b in pairs)
    assert len(set(wan.bandwidth)) == len(pairs) // 2
    assert all(len(set(c.chunk_bytes)) == 5 and c.chunk_bytes.sum() == c.size_bytes for c in work.collectives)
    assert 2e6 < np.mean([c.chunk_bytes.mean() for c in work.collectives]) < 8e6


def test_more_ranks_than_nodes_are_refused():
    with pytest.raises(InputError, match="room for 2 to 11"):
        wan_workload(load_topology("zoo:Abilene"), 2, 12)


def test_collectives_that_start_later_are_not_run_before():
    wan, work = wan_workload(load_topology("zoo:Abilene"), 3, 4, seed=1, gap_s=2.0)
    t = simulate(run_planner("wan", wan, work, effort="normal", options={"runs": 20}))
    k = t.plan.workload.chunk_collective[t.plan.chunk]
    assert [t.start_s[k == i].min() >= 2.0 * i for i in range(3)] == [True] * 3


def test_removing_transit_from_a_leafy_network_leaves_no_ring():
    from stretto.model.errors import Unsupported

    net = load_topology("zoo:Napnet")
    work = Workload((make_collective("allreduce", net, 6000),))
    with pytest.raises(Unsupported, match="transit=true"):
        run_planner("ring", net, work)
    assert verify(run_planner("ring", replace(net, transit=np.ones(net.node_count, bool)), work)).ok


# --- effort -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["wan", "non-concurrent", "multiring"])
def test_less_effort_takes_less_work_and_is_repeatable(name):
    wan, work = wan_workload(load_topology("zoo:Abilene"), 3, 4, seed=2)
    runs = [run_planner(f"ring+{name}", wan, work, effort="quick") for _ in range(2)]
    assert runs[0].digest() == runs[1].digest()
    assert verify(runs[0]).ok
    assert "stopped" not in runs[0].meta


def test_the_search_of_wan_charges_its_runs_to_the_budget():
    wan, work = wan_workload(load_topology("zoo:Abilene"), 2, 4, seed=2)
    plan = run_planner("ring", wan, work)
    spent = []
    for steps in (2e4, 2e5):
        request = Request(wan, work, budget=Budget(steps))
        find("wan").run(plan, request, proof=0)
        spent.append(request.budget.spent)
    assert 0 < spent[0] < spent[1] <= 2e5


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("non-concurrent", {}),
        ("non-concurrent", {"solver": "milp"}),
        ("multiring", {}),
        ("multiring", {"inside": "milp"}),
        ("wan", {"runs": 1, "proof": 0}),
    ],
)
def test_the_work_of_solvers_is_charged_to_the_budget(name, options):
    wan, work = wan_workload(load_topology("zoo:Abilene"), 2, 4, seed=2)
    plan = run_planner("ring", wan, work)
    spent = []
    for solver_work in (0.0, 0.1):
        request = Request(wan, work, budget=Budget(1e7))
        find(name).run(plan, request, solver_work=solver_work, **options)
        spent.append(request.budget.spent)
    assert 0 < spent[1] - spent[0] <= 0.2e6  # 0.1 s, and what is left of the last step of the solver


def test_a_chain_of_refiners_does_not_get_the_work_of_solvers_twice():
    wan, work = wan_workload(load_topology("zoo:Abilene"), 3, 5, seed=2)
    request = Request(wan, work, budget=Budget(2e5))
    plan = plan_by("ring+non-concurrent+non-concurrent", request)
    assert verify(plan).ok
    assert 1e5 < request.budget.spent <= 1.3 * 2e5


def test_the_bound_of_wan_is_charged_to_the_budget():
    wan, work = wan_workload(load_topology("zoo:Abilene"), 2, 4, seed=2)
    flows, share = flows_of(run_planner("ring", wan, work)), np.full(2, 0.5)
    spent = []
    for tries in (10, 100):
        windows = Windows(flows, tries, Budget(1e7))
        least_mean(windows, bound_of(flows.plan).mean_s, 3.6, np.zeros(2), share)
        spent.append(windows.budget.spent)
    assert 0 < spent[0] < spent[1]


def test_no_refiner_of_flows_searches_after_the_net_has_fired():
    wan, work = wan_workload(load_topology("zoo:Abilene"), 2, 4, seed=2)
    for name in ("wan", "non-concurrent", "multiring"):
        plan = run_planner(f"ring+{name}", wan, work, time_limit_s=0.0)
        assert verify(plan).ok and plan.meta["stopped"]
