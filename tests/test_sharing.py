"""How links are shared: reserved, work-conserving, by priority, one fact at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows import chains, lines, run
from stretto.model.changes import changes_of_table
from stretto.model.errors import InputError
from stretto.model.workloads import wan_workload
from stretto.planners import run_planner
from stretto.simulate import SharedLinks, simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def approx(*values: float):
    return pytest.approx(list(values), rel=1e-9)


def test_equal_flows_share_a_link_and_end_together():
    plan = chains(lines(10), [[(20, [0])]], [[(20, [0])]])
    assert run(plan, "fair", weight=[1, 1]).finish_s.tolist() == approx(4, 4)


def test_what_a_shorter_flow_leaves_the_longer_one_gets():
    plan = chains(lines(10), [[(10, [0])]], [[(30, [0])]])
    assert run(plan, "fair", weight=[1, 1]).finish_s.tolist() == approx(2, 4)


def test_weights_divide_a_crowded_link_in_proportion():
    plan = chains(lines(12), [[(20, [0])]], [[(10, [0])]])
    assert run(plan, "fair", weight=[2, 1]).finish_s.tolist() == approx(2.5, 2.5)


def test_max_min_gives_a_long_route_what_its_narrowest_link_leaves():
    # links of 10 and 4: the flow over both and the one on the second get 2 each, the first link's own gets 8
    plan = chains(lines(10, 4), [[(10, [0, 1])]], [[(40, [0])]], [[(10, [1])]])
    assert run(plan, "fair", weight=[1, 1, 1]).finish_s.tolist() == approx(5, 5, 5)


def test_reserved_rates_stay_idle_when_their_owner_is_done():
    plan = chains(lines(10), [[(10, [0])]], [[(30, [0])]])
    assert run(plan, "rates", rate=[5, 5]).finish_s.tolist() == approx(2, 6)


def test_reserved_weights_count_groups_that_ever_use_a_link():
    # eq. 11: the second group's flow on link 0 comes later, its share of it is kept all the same
    plan = chains(lines(10, 10), [[(10, [0])]], [[(10, [1]), (10, [0])]])
    assert run(plan, "weights", weight=[1, 1, 1]).finish_s.tolist() == approx(2, 1, 3)


def test_the_highest_priority_has_all_it_can_use_and_the_next_what_is_left():
    plan = chains(lines(10, 4), [[(8, [0, 1])]], [[(12, [0])]])
    assert run(plan, "priorities", weight=[2, 1]).finish_s.tolist() == approx(2, 2)


def test_equal_priorities_share_alike():
    plan = chains(lines(10), [[(10, [0])]], [[(10, [0])]], [[(10, [0])]])
    assert run(plan, "priorities", weight=[1, 5, 1]).finish_s.tolist() == approx(3, 1, 3)


def test_a_flow_that_becomes_ready_puts_a_lower_one_aside():
    plan = chains(lines(10, 10), [[(10, [1]), (10, [0])]], [[(30, [0])]])
    assert run(plan, "priorities", weight=[2, 2, 1]).finish_s.tolist() == approx(1, 2, 4)


def test_a_flow_starts_when_the_one_before_it_has_arrived():
    net = replace(lines(10, 10), latency_s=np.array([0.5, 0, 0]))
    plan = chains(net, [[(10, [0]), (10, [1])]])
    for sharing, columns in (("fair", {"weight": [1, 1]}), ("rates", {"rate": [10, 10]})):
        assert run(plan, sharing, **columns).start_s.tolist() == approx(0, 1.5)


def test_nothing_starts_before_its_collective():
    plan = chains(lines(10), [[(10, [0])]], [[(10, [0])]], starts=(0.0, 3.0))
    assert run(plan, "fair", weight=[1, 1]).start_s.tolist() == approx(0, 3)


def test_bandwidth_that_falls_slows_shares_by_weight():
    plan = chains(lines(10), [[(10, [0])]], [[(10, [0])]])
    half = changes_of_table(np.array([1.0]), np.array([[5.0, 1.0]]))
    for sharing in ("weights", "fair"):
        assert run(plan, sharing, changes=half, weight=[1, 1]).finish_s.tolist() == approx(3, 3)


def test_reserved_rates_do_not_grow_with_bandwidth_and_shrink_with_it():
    plan = chains(lines(10), [[(10, [0])]], [[(10, [0])]])
    twice, half = (changes_of_table(np.array([1.0]), np.array([[w, 1.0]])) for w in (20.0, 5.0))
    assert run(plan, "rates", changes=twice, rate=[5, 5]).finish_s.tolist() == approx(2, 2)
    assert run(plan, "rates", changes=half, rate=[5, 5]).finish_s.tolist() == approx(3, 3)


@pytest.mark.parametrize(("sharing", "column"), [("rates", "rate"), ("weights", "weight"), ("fair", "weight")])
def test_a_share_must_be_above_zero(sharing, column):
    from stretto.model.plan import make_plan

    p = chains(lines(10), [[(10, [0])]])
    with pytest.raises(InputError, match=f"{column!r}, transfer 0: 0.0 is not above 0"):
        make_plan(
            p.topology, p.workload, sharing, chunk=p.chunk, src=p.src, dst=p.dst, route=p.route,
            depends=p.depends, **{column: [0.0]},
        )  # fmt: skip


def random_plan(seed: int):
    rng = np.random.default_rng(seed)
    net = load_topology(["zoo:Abilene", "ring:6", "zoo:Napnet"][seed % 3])
    wan, work = wan_workload(net, int(rng.integers(1, 4)), int(rng.integers(2, 6)), seed=seed)
    return run_planner("ring", wan, work)


@given(seed=st.integers(0, 10_000))
def test_work_conserving_sharing_never_overfills_a_link_and_moves_all_bytes(seed):
    plan = random_plan(seed)
    rng = np.random.default_rng(seed)
    for sharing in ("fair", "priorities"):
        weight = rng.integers(1, 4, plan.transfer_count).astype(float)
        t = run(plan, sharing, weight=weight)
        assert np.isfinite(t.finish_s).all()
        alone = plan.size_bytes / np.array(
            [plan.topology.bandwidth[r].min() for r in map(plan.route.__getitem__, range(plan.transfer_count))]
        )
        assert (t.finish_s - t.start_s >= alone * (1 - 1e-9)).all()
        # no link carries more than it can until the last of its flows has ended
        last = np.zeros(plan.topology.link_count)
        np.maximum.at(last, plan.route.values, t.finish_s[plan.route.owners])
        assert (t.link_bytes <= plan.topology.bandwidth * last * (1 + 1e-9)).all()


@given(seed=st.integers(0, 10_000))
def test_fair_shares_by_rate_are_never_slower_at_the_start_than_reserved_ones(seed):
    plan = random_plan(seed)
    refined = run_planner("equal-alloc", plan.topology, plan.workload)
    shared = run_planner("equal-alloc", plan.topology, plan.workload, options={"reading": "work-conserving"})
    assert simulate(shared).finish_s[0] <= simulate(refined).finish_s[0] * (1 + 1e-9)


@pytest.mark.parametrize("sharing", ["fair", "priorities", "rates", "weights"])
def test_both_speeds_of_the_kernel_agree(sharing, monkeypatch):
    plan = random_plan(4)
    columns = {"rates": "rate"}.get(sharing, "weight")
    value = np.random.default_rng(1).random(plan.transfer_count) * 1e5 + 1
    runs = []
    for speed in ("python", "compiled"):
        monkeypatch.setenv("STRETTO_KERNELS", speed)
        runs.append(run(plan, sharing, **{columns: value}).finish_s.tolist())
    assert runs[0] == runs[1]


def test_links_that_are_shared_several_times_give_each_time_what_the_simulator_says():
    plan = random_plan(4)
    links, n = SharedLinks(plan, work=0.0), plan.transfer_count
    for seed in range(3):
        weight = np.random.default_rng(seed).permutation(n) + 1.0
        rank = np.argsort(np.argsort(-weight))
        start, finish = links.run(rank, np.ones(n))
        timeline = run(plan, "priorities", weight=weight)
        assert (start.tolist(), finish.tolist()) == (timeline.start_s.tolist(), timeline.finish_s.tolist())


def test_the_verifier_refuses_reservations_that_a_link_cannot_hold():
    plan = random_plan(7)
    refined = run_planner("equal-alloc", plan.topology, plan.workload)
    assert verify(refined).ok
    finding = verify(replace(refined, rate=refined.rate * 1.2)).finding
    assert finding is not None and finding.code == "capacity" and "groups reserve" in finding.message


def test_the_verifier_refuses_a_group_that_is_no_chain():
    plan = random_plan(7)
    refined = run_planner("equal-alloc", plan.topology, plan.workload)
    finding = verify(replace(refined, group=np.zeros_like(refined.group))).finding
    assert finding is not None and finding.code == "group" and "does not wait for" in finding.message
