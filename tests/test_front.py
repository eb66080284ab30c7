"""Time against money: bounds that no plan beats, and plans of which none beats another."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import stretto as st
from networks import random_network
from stretto.bounds.money import arborescence_cost, least_usd, merged
from stretto.bounds.priced import least_seconds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, StrettoError
from stretto.model.topology import make_topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology

THREE = "cloud:aws:us-east-1,gcp:us-central1-a,azure:westeurope"
FOUR = THREE + ",aws:ap-northeast-1?message=0"


def cheapest_tree(price: np.ndarray, root: int, wanted: list[int]) -> float:
    """The cheapest links over which a root reaches some nodes, of all sets of links."""
    n = len(price)
    links = [(a, b) for a in range(n) for b in range(n) if np.isfinite(price[a, b])]
    best = np.inf
    for count in range(len(wanted), n):
        for chosen in combinations(links, count):
            cost = sum(price[a, b] for a, b in chosen)
            reached = {root}
            while more := {b for a, b in chosen if a in reached} - reached:
                reached |= more
            if cost < best and reached >= set(wanted):
                best = cost
    return best


@pytest.mark.parametrize("seed", range(6))
def test_the_cost_of_an_arborescence_is_exact_where_all_are_wanted_and_else_a_bound(seed):
    rng = np.random.default_rng(seed)
    price = np.where(rng.random((4, 4)) < 0.8, rng.integers(1, 9, (4, 4)), np.inf)
    price[np.arange(3), np.arange(1, 4)] = 9
    np.fill_diagonal(price, np.inf)
    assert arborescence_cost(price, np.array([0]), np.array([1, 2, 3])) == cheapest_tree(price, 0, [1, 2, 3])
    assert arborescence_cost(price, np.array([0]), np.array([1, 3])) <= cheapest_tree(price, 0, [1, 3])


def test_what_three_clouds_cost_at_least():
    net = load_topology(THREE)
    for kind, usd in (("broadcast", 0.09 + 0.0875), ("allgather", (0.1775 + 0.175 + 0.2075) / 3)):
        work = Workload((make_collective(kind, net, 3_000_000_000),))
        assert least_usd(net, work) == pytest.approx(3 * usd)


def priced_network(seed: int):
    """A random network in which most links have a price."""
    net, rng = random_network(seed), np.random.default_rng(seed)
    return replace(net, usd_per_byte=rng.choice([0.0, 1e-11, 5e-11, 9e-11], net.link_count))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["allgather", "reducescatter", "allreduce", "broadcast", "reduce", "alltoall"])
def test_no_plan_beats_the_bounds_on_cost_and_on_time_for_its_cost(kind, seed):
    net = priced_network(seed)
    c = make_collective(kind, net, 1_000_000)
    least, net_of_prices = least_usd(net, Workload((c,))), merged(net, c)
    for planner in ("shortest-path", "mtegcca", "ring", "rabenseifner", "pairwise"):
        try:
            line = simulate(run_planner(planner, net, Workload((c,)), effort="quick"))
        except StrettoError:
            continue
        assert line.cost_usd >= least
        (limit_s,) = least_seconds(net_of_prices, c, [line.cost_usd * (1 + 1e-9)], 1e6)
        assert line.completion_s >= limit_s


def test_a_plan_of_the_least_cost_is_not_below_it_by_rounding():
    rng = np.random.default_rng(5)
    for _ in range(20):
        links = [(k, k + 1, 1e9, 0) for k in range(5)] + [(5, 0, 1e9, 0)]
        net = make_topology("ring", [0] * 6, links, usd_per_byte=rng.uniform(1e-11, 9e-11, 6))
        work = Workload((make_collective("broadcast", net, 1_000_003),))
        cost, least = simulate(run_planner("shortest-path", net, work)).cost_usd, least_usd(net, work)
        assert least <= cost == pytest.approx(least, rel=1e-9)


@pytest.fixture(scope="module")
def front() -> st.Front:
    return st.front("allgather", THREE + "?message=0", "100MB", points=3, planner="forest", effort="quick")


def test_each_plan_of_a_front_is_verified_and_beaten_by_none(front):
    assert len(front) >= 3
    for plan, row in zip(front.plans, front.rows, strict=True):
        assert plan.verify().ok and plan.topology.link_count == load_topology(THREE).link_count
        assert row["completion_s"] == plan.simulate().completion_s >= row["bound_s"]
        assert row["cost_usd"] == plan.simulate().cost_usd >= front.least_usd
    for a, b in combinations(front.rows, 2):
        assert a["cost_usd"] < b["cost_usd"] and a["completion_s"] > b["completion_s"]
        assert a["bound_s"] >= b["bound_s"]


def test_the_cheapest_plan_is_near_the_least_cost_and_the_front_is_the_same_again(front):
    assert front.rows[0]["cost_usd"] <= 1.02 * front.least_usd
    again = st.front("allgather", THREE + "?message=0", "100MB", points=3, planner="forest", effort="quick")
    assert [row["digest"] for row in again.rows] == [row["digest"] for row in front.rows]


def test_a_budget_takes_the_fastest_plan_that_it_allows(front):
    for k, row in enumerate(front.rows):
        assert front.place(row["cost_usd"]) == k
    with pytest.raises(InputError, match="budget: the cheapest plan costs"):
        front.place(front.least_usd / 2)


def test_a_budget_below_the_least_cost_is_refused_before_any_planning():
    asked = []
    with pytest.raises(InputError, match="budget: no plan costs less than"):
        st.front("allgather", THREE, "100MB", budget=1e-6, progress=lambda *tried: asked.append(tried))
    assert not asked


@pytest.mark.parametrize("kind", ["alltoall", "scatter"])
def test_what_is_not_copied_costs_the_least_over_cheapest_paths_and_is_bounded_for_that(kind):
    found = st.front(kind, FOUR, "10MB", points=2, planner="paths")
    assert found.rows[0]["cost_usd"] == pytest.approx(found.least_usd, rel=1e-3)
    assert all(row["completion_s"] >= row["bound_s"] for row in found.rows)


def test_a_network_narrowed_for_little_money_is_named_without_an_exponent():
    found = st.front("allgather", THREE, "10KB", points=2, planner="mtegcca")
    named = [row["how"] for row in found.rows if row["how"].startswith("links narrowed for")]
    assert named and all(re.fullmatch(r"links narrowed for [\d.]+ USD", words) for words in named)


def test_a_plan_that_costs_nothing_has_a_bound_without_links_that_have_a_price():
    free = [(0, 1, 1e9, 1e-6), (0, 2, 2e9, 1e-6)]
    dear = [(a, b, 1e9, 1e-6) for a, b in ((1, 0), (1, 2), (2, 0), (2, 1))]
    net = make_topology("free", [0, 0, 0], free + dear, usd_per_byte=[0.0] * 2 + [1e-10] * 4)
    c = make_collective("scatter", net, 3_000_000)
    bound_s, more_s = least_seconds(merged(net, c), c, [0.0, 1e-4], 1e6)
    assert bound_s == pytest.approx(1e-3, rel=1e-5), "1 MB over the free link of 1 GB/s"
    assert more_s == pytest.approx(2e-3 / 3, rel=1e-5), "a third of the money would do"
    found = st.front("scatter", net, 3_000_000, points=1)
    assert found.rows[0]["cost_usd"] == 0 and found.rows[0]["completion_s"] >= bound_s


def test_less_money_needs_more_time_for_flows_too():
    """Two ways from a to b: a fast one that costs, and a slow free one over c."""
    links = [(0, 1, 9e6, 0.0), (0, 2, 1e6, 0.0), (2, 1, 1e6, 0.0), (1, 2, 1e6, 0.0), (2, 0, 1e6, 0.0), (1, 0, 9e6, 0.0)]
    # dear: 1 USD a GB; the way over c 0.1
    net = make_topology("two ways", [0, 0, 1], links, usd_per_byte=[1e-9, 1e-10, 0, 1e-10, 0, 1e-9])
    c = make_collective("scatter", net, 18_000_000)
    # 9 MB cross: all of it over both ways takes 0.9 s, over the cheap one 9 s
    fast, half, slow = least_seconds(merged(net, c), c, [1.0, 0.5 * 9.9e-3, 0.9e-3], 1e6)
    assert (fast, slow) == (pytest.approx(0.9, rel=1e-5), pytest.approx(9.0, rel=1e-5))
    assert fast < half < slow


@pytest.mark.parametrize(
    ("topology", "points", "words"), [("ring:4", 3, "ring:4: no link has a price"), (THREE, 0, "points: 0 is not")]
)
def test_a_front_needs_prices_and_points(topology, points, words):
    with pytest.raises(InputError, match=words):
        st.front("allgather", topology, "1MB", points=points)
