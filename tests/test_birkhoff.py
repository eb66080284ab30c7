"""AllToAll by weighted matchings: what a decomposition must be, and what its plan on planes must keep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.formats.demand import read_demand
from stretto.formats.native import read_plan, write_plan
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.demand import alltoallv, demand_of
from stretto.model.errors import InputError, Unsupported
from stretto.model.workloads import expert_demand
from stretto.planners import run_planner
from stretto.planners.optical.matchings import decompositions, least, spent
from stretto.planners.optical.placement import Planes, direct_bound
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

NETWORKS = [
    "optical:6,3",
    "optical:6,4?initial=shift1,shift2,free,free",
    "optical:6,2?shares=2,1&reconfiguration=200us,20us&latency=5us,20us",
]


def some_demand(seed: int, ranks: int) -> np.ndarray:
    """Entries of very different sizes, some of them none."""
    rng = np.random.default_rng(seed)
    matrix = (10 ** rng.uniform(0, 7, (ranks, ranks))).astype(np.int64) * (rng.random((ranks, ranks)) < 0.7)
    matrix[0, 1] = max(matrix[0, 1], 1)
    return matrix


@given(st.integers(0, 10_000), st.integers(2, 9), st.floats(0.0, 1e7))
def test_every_decomposition_sends_all_by_matchings_and_none_takes_less_than_the_least(seed, ranks, cost):
    demand = some_demand(seed, ranks)
    np.fill_diagonal(demand, 0)
    found = decompositions(demand, cost)
    for matchings in found:
        sent = np.zeros_like(demand)
        for matching in matchings:
            assert len(set(matching.src.tolist())) == len(matching.src) == len(set(matching.dst.tolist()))
            np.add.at(sent, (matching.src, matching.dst), matching.sent)
        np.testing.assert_array_equal(sent, demand)
        assert spent(matchings, cost) >= least(demand, cost) * (1 - 1e-9)
    assert spent(found[0], cost) == min(spent(matchings, cost) for matchings in found)


def test_an_even_demand_is_sent_by_shifts_which_nothing_beats():
    even = np.full((7, 7), 1000)
    np.fill_diagonal(even, 0)
    (matchings,) = decompositions(even, 500.0)
    assert spent(matchings, 500.0) == least(even, 500.0) == 6 * 1500


def test_a_permutation_needs_one_matching_and_a_matrix_of_two_weights_two():
    turned = np.roll(np.eye(5, dtype=np.int64), 2, axis=1)
    assert [len(found) for found in decompositions(9 * turned, 1.0)] == [1]
    both = 90 * turned + 10 * np.roll(turned, 1, axis=1)
    assert [m.longest for m in decompositions(both, 1.0)[0]] == [90, 10]


@pytest.mark.parametrize("net", NETWORKS)
@given(seed=st.integers(0, 10_000))
def test_plans_verify_keep_their_claim_and_never_beat_their_bound(net, seed):
    topology = load_topology(net)
    workload = Workload((alltoallv(topology, some_demand(seed, 6)),))
    plan = run_planner("birkhoff", topology, workload)
    verdict = verify(plan)
    assert verdict.ok, verdict.finding
    timeline = simulate(plan)
    np.testing.assert_allclose(timeline.start_s, plan.start_s, rtol=1e-9, atol=1e-15)
    facts = plan.meta["schedule"]
    assert timeline.completion_s == pytest.approx(facts["completion_s"], rel=1e-9)
    assert facts["bound_s"] <= facts["completion_s"] * (1 + 1e-12)


@given(st.integers(0, 10_000))
def test_it_is_never_worse_than_pairwise_exchange_on_the_same_planes(seed):
    topology = load_topology("optical:6,2")
    workload = Workload((alltoallv(topology, some_demand(seed, 6)),))
    ours, exchanged = (
        simulate(run_planner("birkhoff", topology, workload, options={"matchings": m})) for m in ("few", "shifts")
    )
    assert ours.completion_s <= exchanged.completion_s * (1 + 1e-9)


def test_where_each_partner_has_a_plane_of_its_own_no_plan_is_faster():
    topology = load_topology("optical:5,4")
    workload = Workload((make_collective("alltoall", topology, 40_000_000),))
    plan = run_planner("birkhoff", topology, workload)
    # 8 MB to each of four over 25 GB/s, and a latency; with barriers SWOT takes 740 us
    assert simulate(plan).completion_s == pytest.approx(340e-6)
    assert plan.meta["schedule"]["bound_s"] == pytest.approx(340e-6)


def test_experts_of_uneven_popularity_are_served_near_the_bound_and_faster_than_by_shifts():
    topology = load_topology("optical:16,4")
    workload = Workload((alltoallv(topology, expert_demand(16, 8192, 8192)),))
    plans = [run_planner("birkhoff", topology, workload, options={"matchings": m}) for m in ("few", "shifts")]
    took = [simulate(plan).completion_s for plan in plans]
    assert took[0] <= 1.05 * plans[0].meta["schedule"]["bound_s"]
    assert took[0] <= 0.95 * took[1]


def test_the_bound_counts_turns_and_bytes():
    # rank 0 has 3 x 10 MB, two planes of 10 GB/s: three circuits, one turn
    demand = np.zeros((4, 4), dtype=np.int64)
    demand[0, 1:] = 10_000_000
    planes = Planes(np.full(2, 10e9), np.full(2, 20e-6), np.full(2, 200e-6), np.ones(2, bool), np.full((2, 4), -1))
    assert direct_bound(demand, planes) == pytest.approx((3e-3 + 3 * 20e-6 + 200e-6) / 2)


def test_refiners_schedule_the_same_matchings_as_steps():
    topology = load_topology("optical:6,2")
    workload = Workload((alltoallv(topology, some_demand(3, 6)),))
    plan = run_planner("birkhoff+swot", topology, workload)
    assert verify(plan).ok and plan.barriers
    alone = run_planner("swot", topology, workload)
    assert alone.meta["planner"] == "birkhoff+swot"


def test_other_planners_carry_an_uneven_alltoall_over_links_as_well():
    topology = load_topology("fullmesh:5")
    workload = Workload((alltoallv(topology, some_demand(1, 5)),))
    plan = run_planner("shortest-path", topology, workload)
    assert verify(plan).ok
    with pytest.raises(Unsupported, match="birkhoff does not serve fullmesh:5: it has no optical planes"):
        run_planner("birkhoff", topology, workload)


def test_a_matrix_survives_a_file_and_a_damaged_one_is_found(tmp_path):
    topology = load_topology("optical:5,2")
    demand = some_demand(2, 5)
    plan = run_planner("birkhoff", topology, Workload((alltoallv(topology, demand),)))
    for name in ("plan.parquet", "plan.json"):
        write_plan(plan, str(tmp_path / name))
        again = read_plan(str(tmp_path / name))
        assert again.digest() == plan.digest()
        np.testing.assert_array_equal(demand_of(again.workload.collectives[0]), demand)
    c = plan.workload.collectives[0]
    for wrong in (
        replace(c, size_bytes=c.size_bytes + 1),
        replace(c, wanted=Ragged(c.wanted.offsets, np.roll(c.holders.values, 1))),
        replace(c, reduces=True),
    ):
        finding = verify(replace(plan, workload=Workload((wrong,)))).finding
        assert finding is not None and finding.code == "promise"


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[0, 1], [1, 0]], "the matrix is 2x2, and there are 3 ranks"),
        (-np.ones((3, 3), dtype=np.int64), "bytes must be whole and not negative"),
        (np.ones((3, 3)), "bytes must be whole and not negative"),
        (5 * np.eye(3, dtype=np.int64), "no rank has bytes for another"),
    ],
)
def test_a_matrix_that_asks_for_nothing_or_the_impossible_is_refused(matrix, words):
    with pytest.raises(InputError, match=words):
        alltoallv(load_topology("optical:3,2"), matrix)


def test_a_file_may_have_units_and_empty_cells_and_its_faults_are_placed(tmp_path):
    path = tmp_path / "demand.csv"
    path.write_text("0,4MB,1KiB\n,0,3\n\n7,,0\n")
    np.testing.assert_array_equal(read_demand(str(path)), [[0, 4_000_000, 1024], [0, 0, 3], [7, 0, 0]])
    path.write_text("0,1\n2\n")
    with pytest.raises(InputError, match="line 2: has 1 cells"):
        read_demand(str(path))
    path.write_text("0,1\nmany,0\n")
    with pytest.raises(InputError, match="line 2, column 1"):
        read_demand(str(path))


@given(st.integers(2, 20), st.floats(0.0, 2.0), st.integers(0, 100))
def test_every_token_goes_to_an_expert(ranks, skew, seed):
    matrix = expert_demand(ranks, 100, 3, skew=skew, seed=seed)
    np.testing.assert_array_equal(matrix.sum(axis=1), np.full(ranks, 300))
