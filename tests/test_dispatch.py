"""List schedules of transfers that wait for links and for each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from heldout_networks import KINDS
from networks import random_network
from stretto.bounds import bounds
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.plan import Plan
from stretto.model.topology import ACCELERATOR, Topology, make_topology
from stretto.model.variants import with_messages
from stretto.planners import registered, run_planner
from stretto.schedule import kernel_dispatch
from stretto.schedule.collecting import collected
from stretto.schedule.dispatch import by_urgency
from stretto.schedule.effort import Budget
from stretto.schedule.scheduling_problem import COSTS, SchedulingProblem, route_numbers
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

QUICK = sorted(e.name for e in registered().values() if not e.refines and e.quick is None and not e.compares)


def planned(name: str, net: Topology, kind: str, size: int) -> Plan:
    return run_planner(name, net, Workload((make_collective(kind, net, size),)), effort="0.05")


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(name=st.sampled_from(QUICK), kind=st.sampled_from(["allgather", "allreduce", "alltoall", "reduce", "scatter"]),
       seed=st.integers(0, 10_000), cost_us=st.sampled_from([0.0, 2.0, 20.0]), size=st.sampled_from([3000, 10**6]))  # fmt: skip
def test_plans_by_urgency_are_right_and_end_no_later(name, kind, seed, cost_us, size):
    net = with_messages(random_network(seed), cost_us * 1e-6)
    try:
        plan = planned(name, net, kind, size)
    except Unsupported:
        reject()
    served = by_urgency(plan, Budget())
    assert verify(served).ok, verify(served).finding
    assert simulate(served).completion_s <= simulate(plan).completion_s * (1 + 1e-9)
    assert simulate(served).completion_s >= bounds(net, served.workload)[0].seconds * (1 - 1e-9)
    assert served is plan or served.sharing == "timed"


def test_what_is_urgent_goes_first_between_far_regions():
    """Data for the same region and for others leaves over the same links; in ready-order much of it waits."""
    net = with_messages(KINDS["regions"](np.random.default_rng(657629)), 20e-6)
    plan = planned("shortest-path", net, "alltoall", 16_000_000)
    bound_s = bounds(net, plan.workload)[0].seconds
    assert simulate(plan).completion_s > 3 * bound_s
    assert simulate(by_urgency(plan, Budget())).completion_s <= 1.01 * bound_s


def test_messages_go_as_a_whole():
    net = load_topology("dgx2:2?message=20us")
    plan = collected(planned("shortest-path", net, "alltoall", 1_000_000))
    assert plan is not None and plan.message is not None
    served = by_urgency(plan, Budget())
    assert served is not plan and (served.message == plan.message).all() and verify(served).ok
    assert simulate(served).completion_s < simulate(plan).completion_s


def test_what_shares_links_otherwise_or_waits_for_barriers_stays_as_it_is():
    plan = planned("shortest-path", load_topology("dgx2:2?message=20us"), "alltoall", 1_000_000)
    fair, barred = (
        replace(plan, sharing="fair"),
        replace(planned("ring", plan.topology, "allgather", 9_000), barriers=True),
    )
    assert verify(barred).ok
    assert by_urgency(fair, Budget()) is fair and by_urgency(barred, Budget()) is barred
    served = by_urgency(plan, Budget())
    assert by_urgency(served, Budget()) is served, "it has such times already"


def test_little_effort_leaves_a_plan_as_it_is():
    plan = planned("shortest-path", load_topology("dgx2:2?message=20us"), "alltoall", 1_000_000)
    assert by_urgency(plan, Budget()) is not plan
    assert by_urgency(plan, Budget(10.0)) is plan


@pytest.mark.parametrize("seed", range(5))
def test_transfers_of_one_link_each_start_as_if_their_links_were_routes(seed):
    rng = np.random.default_rng(seed)
    n, links = 60, 4
    link, seconds = rng.integers(0, links, n), rng.integers(1, 9, n).astype(float)
    latency, release = np.full(n, 2.0), rng.integers(0, 30, n).astype(float)
    # each waits for at most one before it
    after = [int(rng.integers(-1, k)) if k else -1 for k in range(n)]
    successors = Ragged.of([[k for k in range(n) if after[k] == d] for d in range(n)])
    waits = np.array([int(d >= 0) for d in after])
    jobs = kernel_dispatch.Jobs(
        seconds, latency, release, successors.offsets, successors.values.astype(np.int64), waits
    )
    rank = rng.permutation(n)
    alike = np.unique(10 * link + seconds, return_inverse=True)[1].reshape(-1)
    routes = kernel_dispatch.Routes(np.arange(n + 1), link, np.zeros(n), np.ones(n), link, alike)
    expected = kernel_dispatch.schedule(rank, jobs, routes, links)
    assert kernel_dispatch.schedule_single_links(rank, jobs, link, links).tolist() == expected.tolist()


def test_routes_have_the_same_number_only_where_all_links_agree():
    big = (1 << 31) - 2
    routes = [[big, 5, 7], [5, 7], [big, 5, 7], [big, 5], [7, 5], [5, 7]]
    assert route_numbers(Ragged.of(routes)).tolist() == [3, 0, 3, 2, 1, 0]


def scheduled(seconds, hops, release=None, alike=None):
    """Starts of transfers in order of rank; ``hops`` has for each the link, the delay and the share of each hop."""
    n, flat = len(seconds), [hop for route in hops for hop in route]
    link, delay, share = (np.array(column) for column in zip(*flat, strict=True))
    queue = np.unique(np.column_stack((link, delay)), axis=0, return_inverse=True)[1].reshape(-1)
    none = np.zeros(n + 1, dtype=np.int64)
    release = np.zeros(n) if release is None else np.array(release, dtype=float)
    jobs = kernel_dispatch.Jobs(
        np.array(seconds, dtype=float), np.zeros(n), release, none, none[:0], np.zeros(n, dtype=np.int64)
    )
    offsets = np.cumsum([0, *map(len, hops)])
    alike = np.arange(n) if alike is None else alike
    routes = kernel_dispatch.Routes(offsets, link, delay.astype(float), share.astype(float), queue, alike)
    return kernel_dispatch.schedule(np.arange(n), jobs, routes, int(link.max()) + 1).tolist()


@pytest.mark.parametrize("seed", range(8))
def test_transfers_that_are_alike_go_by_rank_and_links_are_never_overfull(seed):
    rng = np.random.default_rng(seed)
    routes = [
        [(int(link), 0.1 * place, float(rng.uniform(0.2, 1))) for place, link in enumerate(rng.permutation(5)[:3])]
        for _ in range(6)
    ]
    kind, seconds, release = rng.integers(0, 6, 90), rng.uniform(1, 3, 6), rng.uniform(0, 30, 90)
    hops = [routes[k] for k in kind]
    start = np.array(scheduled(seconds[kind], hops, release, kind))
    assert (start >= release).all()
    uses = [
        (link, start[k] + delay, seconds[kind[k]], share) for k, hop in enumerate(hops) for link, delay, share in hop
    ]
    for link, begin, _, _ in uses:
        # a link is fullest where some transfer begins to use it
        level = sum(share for e, s, length, share in uses if e == link and s <= begin + 1e-9 < s + length - 1e-9)
        assert level <= 1 + 1e-9
    for k in range(6):
        mine = np.flatnonzero(kind == k)
        assert all(start[a] <= start[b] for a in mine for b in mine if a < b and release[a] <= release[b])
    # what is alike is looked at together, which ends about when looking at each by itself does
    each = np.array(scheduled(seconds[kind], hops, release))
    assert start.max() <= 1.1 * each.max()


def test_transfers_to_slow_links_share_a_fast_one():
    # link 0 is four times as fast as links 1 and 2, and twice as fast as link 3
    hops = [[(0, 0, 0.25), (1, 0, 1)], [(0, 0, 0.25), (2, 0, 1)], [(0, 0, 0.5), (3, 0, 1)], [(0, 0, 1)]]
    assert scheduled([4, 4, 2, 1], hops) == [0, 0, 0, 4]


def test_a_transfer_that_comes_late_to_a_link_does_not_hold_up_one_that_is_there():
    # the second of the far transfers needs link 1 from 11 s on, the near one needs it at once
    far, near = [(0, 0, 0.5), (1, 10, 1)], [(1, 0, 1)]
    assert scheduled([1, 1, 1], [far, far, near]) == [0, 1, 0]


@pytest.mark.parametrize("seed", range(3))
def test_a_share_is_found_and_taken_where_the_link_has_room(seed):
    kernel, rng = kernel_dispatch, np.random.default_rng(seed)
    first, after = np.full(1, -1), np.full(200, -1)
    at, level = np.zeros(200), np.zeros(200)
    used = np.zeros(600, dtype=np.int64)
    for i in range(100):
        wanted, length, quarters = int(rng.integers(0, 60)), int(rng.integers(1, 6)), int(rng.integers(1, 5))
        begin = next(t for t in range(wanted, 600) if (used[t : t + length] + quarters <= 4).all())
        step = kernel._advance(np.full(1, -1), 0, float(wanted), first[0], after, at)
        assert kernel._fit(float(wanted), float(length), quarters / 4, 0.0, step, after, at, level) == begin
        kernel._reserve(i, 0, -1, float(begin), float(length), quarters / 4, first, after, at, level)
        used[begin : begin + length] += quarters


def two_ways_in(first_s: float, last_s: float) -> SchedulingProblem:
    """Two routes of 100 transfers of 1 s share link 0. What goes on to link 5 first comes over link 1 in ``first_s``;
    what goes on to link 4 then travels over link 2 for ``last_s``."""
    count = 100
    route = [[1]] * count + [[0, 4]] * count + [[2]] * count + [[0, 5]] * count
    depends = [[]] * count + [[]] * count + [[count + k] for k in range(count)] + [[k] for k in range(count)]
    lag = np.repeat([first_s, 0.0, last_s, 0.0], count)
    tiny, ones = np.full(count, 1e-6), np.ones(count)
    seconds = np.concatenate((tiny, ones, tiny, ones))
    routes, predecessors = Ragged.of(route), Ragged.of(depends)
    hops = len(routes.values)
    return SchedulingProblem(
        routes, 6, seconds, lag, np.zeros(hops), np.ones(hops), predecessors, predecessors.turned()
    )  # fmt: skip


def test_a_route_has_the_larger_share_the_shorter_it_has_something_to_carry():
    # both routes share link 0; data comes to the one late, and what the other one brings has far to travel
    net = make_topology("shared", [ACCELERATOR] * 7, [(0, v, 1.0, 0.0) for v in range(1, 7)])
    problem = two_ways_in(first_s=40.0, last_s=20.0)
    size = np.where(problem.seconds == 1.0, 1, 0)
    shared = problem.with_shares(net, size)
    spans_s = [float(shared.seconds[rows].sum()) for rows in (slice(100, 200), slice(300, 400))]
    # 100 / (T - 20) + 100 / (T - 40) = 1, but for the time that single transfers take
    end_s = 130 + np.sqrt(100.0**2 + 10.0**2)
    assert spans_s == pytest.approx([end_s - 20, end_s - 40], rel=0.02)
    start = shared.by_urgency(np.tile(np.arange(100.0), 4), np.zeros(400), Budget().with_costs(COSTS))
    assert end_s < shared.end_s(start) < 1.02 * end_s
