"""The fixed algorithms do what their collective promises, in steps that are pairings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.plan import COPY
from stretto.planners import run_planner
from stretto.schedule.algorithms import ALGORITHMS, lower
from stretto.schedule.pairings import completed, demands
from stretto.topologies import load_topology
from stretto.verify import verify

CASES = [(a.name, kind) for a in ALGORITHMS.values() for kind in a.kinds]


def lowered(name: str, kind: str, ranks: int, size: int, chunks: int = 1):
    net = load_topology(f"fullmesh:{ranks}")
    return lower(ALGORITHMS[name], Workload((make_collective(kind, net, size, chunks=chunks),)))


@pytest.mark.parametrize(("name", "kind"), CASES)
@given(ranks=st.integers(2, 17), chunks=st.integers(1, 2), root=st.integers(0, 1))
def test_every_rank_ends_with_what_it_wants_or_the_size_is_refused(name, kind, ranks, chunks, root):
    net = load_topology(f"fullmesh:{ranks}")
    workload = Workload((make_collective(kind, net, 10_007, chunks=chunks, root=root),))
    reason = ALGORITHMS[name].serves(kind, ranks)
    if reason is None:
        verdict = verify(run_planner(name, net, workload))
        assert verdict.ok, verdict.finding
    else:
        with pytest.raises(Unsupported, match="needs a power of two"):
            run_planner(name, net, workload)


@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("ranks", [2, 5, 8])
def test_in_a_step_every_rank_has_one_partner_to_send_to_and_one_to_receive_from(name, kind, ranks):
    if ALGORITHMS[name].serves(kind, ranks) is not None:
        return
    for step in ALGORITHMS[name].steps(kind, ranks, 10_000):
        pairs = np.unique(np.stack((step.src, step.dst)), axis=1)
        assert len(np.unique(pairs[0])) == len(np.unique(pairs[1])) == pairs.shape[1]
        assert (pairs[0] != pairs[1]).all()


@pytest.mark.parametrize(
    ("name", "kind", "volumes"),
    [
        ("rabenseifner", "allreduce", [20, 10, 5, 5, 10, 20]),
        ("rabenseifner", "reducescatter", [20, 10, 5]),
        ("ring", "allreduce", [5] * 14),
        ("all-pairs", "allreduce", [5] * 14),
        ("recursive-doubling", "allreduce", [40] * 3),
        ("recursive-doubling", "allgather", [5, 10, 20]),
        ("pairwise", "alltoall", [5] * 7),
        ("bruck", "alltoall", [20] * 3),
    ],
)
def test_each_rank_sends_as_much_a_step_as_the_algorithm_is_known_for(name, kind, volumes):
    made = lowered(name, kind, 8, 40)
    sent = np.zeros((len(volumes), 8))
    np.add.at(sent, (made.group, made.src), made.workload.chunk_bytes[made.chunk])
    assert (sent == np.array(volumes)[:, None]).all()


def test_partners_of_halving_are_at_distances_1_2_4():
    # SWOT, section 2.1.2: microgroups of two, then of four, then across
    made = lowered("rabenseifner", "reducescatter", 8, 40)
    assert [set((made.src ^ made.dst)[made.group == s].tolist()) for s in range(3)] == [{1}, {2}, {4}]


def test_partners_that_nothing_joins_are_named():
    with pytest.raises(Unsupported, match="gpu0 sends to gpu2, and no link or switch joins them"):
        net = load_topology("ring:5")
        run_planner("pairwise", net, Workload((make_collective("alltoall", net, 100),)))


def test_a_ring_that_the_search_does_not_find_is_refused():
    net = load_topology("dgx2:2")
    work = Workload((make_collective("allreduce", net, 10**6),))
    with pytest.raises(Unsupported, match="no ring joins the ranks of collective 0"):
        run_planner("ring", net, work, options={"order": "near", "metric": "latency"})


def test_partners_that_only_switches_join_use_them():
    net = load_topology("star:4")
    plan = run_planner("ring", net, Workload((make_collective("allgather", net, 100),)))
    assert (plan.route.lengths == 2).all()
    assert verify(plan).ok


@pytest.mark.parametrize("ranks", range(2, 40))
def test_the_pipeline_of_two_trees_needs_four_matchings_and_none_as_it_fills(ranks):
    _, matching = demands(ALGORITHMS["two-trees"], "allreduce", ranks, 10**6)
    assert len(set(matching.tolist())) <= 4
    steps = [s for s in ALGORITHMS["two-trees"].steps("allreduce", ranks, 10**6) if s.op == COPY]
    for step in steps:
        assert len(set(step.src.tolist())) == len(set(step.dst.tolist())) == len(step.src)
    receivers = {v: {int(d) for s in steps for d in s.dst[s.src == v]} for v in range(ranks)}
    assert max(map(len, receivers.values())) <= 2


def test_slices_of_two_trees_are_those_of_nccl():
    assert ALGORITHMS["two-trees"].blocks("allreduce", 16, 2 * 64 * 2**20) == 2 * 128
    assert ALGORITHMS["two-trees"].blocks("allreduce", 16, 2 * 8 * 2**20) == 2 * 32


def test_pairings_that_a_plane_can_hold_together_become_one():
    part, whole, other = [1, -1, -1, -1], [1, 0, 3, 2], [2, 3, 0, 1]
    assert (completed(np.array([part, whole, other])) == [whole, whole, other]).all()
    there, back, joint = [1, -1, -1, -1], [-1, 0, -1, -1], [1, 0, -1, -1]
    assert (completed(np.array([there, back])) == [joint, joint]).all()


@pytest.mark.parametrize("other", [[2, -1, -1, -1], [-1, -1, 1, -1]])
def test_pairings_with_two_partners_for_a_rank_stay_apart(other):
    both = np.array([[1, -1, -1, -1], other])
    assert (completed(both) == both).all()
