"""SCALE-CCL's worked example and rules, section 4 of the paper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from networks import random_network
from stretto.bounds import bounds
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.plan import Plan
from stretto.model.topology import ACCELERATOR, ROUTER, make_topology
from stretto.planners import run_planner
from stretto.planners.scale_ccl.kernel_published import resolve_duplicates
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

UNIT = 10**9 // 4  # the paper's "256 MB": 20 ms on a WAN link


def gathered(spec: str, chunks: int = 1, shard: int = UNIT, **options: object) -> Plan:
    net = load_topology(spec)
    workload = Workload((make_collective("allgather", net, shard_bytes=shard, chunks=chunks),))
    plan = run_planner("scale-ccl", net, workload, options=options)
    assert verify(plan).ok
    return plan


def over_bound(plan: Plan) -> float:
    return simulate(plan).completion_s / bounds(plan.topology, plan.workload)[0].seconds


def test_figure_7_subchunk_scheduling_leaves_each_subchunk_in_one_queue():
    # Q1: BR0 to GPU0, Q2: BR0 to GPU3, Q3: BR1 to GPU0, Q4: BR1 to GPU3, Q5: GPU1 to GPU0; GPU0 holds 0
    before = Ragged.of([[0, 1], [0, 1], [2, 3], [2, 3], [3]])
    to_gpu0 = np.array([True, True, False, False, True, True, False, False, True])
    useful = ~(to_gpu0 & (before.values == 0))
    kept, _ = resolve_duplicates(before.offsets, before.values.astype(np.int64), useful, np.zeros(5), np.ones(5))
    after = [before[q][kept[before.offsets[q] : before.offsets[q + 1]]].tolist() for q in range(5)]
    assert after[:4] == [[1], [0], [2], [3]]


def test_algorithm_1_lines_14_to_19_a_duplicate_goes_where_it_is_through_first():
    both = Ragged.of([[7], [7]])
    for wait, cost, queue in (([0.0, 3.0], [2.0, 1.0], 0), ([0.0, 0.5], [2.0, 1.0], 1)):
        kept, _ = resolve_duplicates(
            both.offsets, both.values.astype(np.int64), np.ones(2, np.bool_), np.array(wait), np.array(cost)
        )
        assert kept.tolist() == [queue == 0, queue == 1]


def test_algorithm_1_line_13_what_only_one_queue_holds_takes_its_time_first():
    queues = Ragged.of([[1, 2], [2]])
    kept, turn = resolve_duplicates(
        queues.offsets, queues.values.astype(np.int64), np.ones(3, np.bool_), np.zeros(2), np.ones(2)
    )
    assert kept.tolist() == [True, False, True]
    assert turn[0] < turn[2]


def test_section_4_2_a_chunk_crosses_the_wan_once_for_each_other_site():
    for rules in ("eager", "paper"):
        plan = gathered("sites:3,4?connectivity=0.5", rules=rules)
        net = plan.topology
        wan = (net.kind[net.src] == ROUTER) & (net.kind[net.dst] == ROUTER)
        assert wan[plan.route.values].sum() == 12 * 2


def test_section_3_routers_cut_through_and_accelerators_store():
    # 1 MB through two routers at 1 GB/s is 1 ms and three latencies; through accelerators 3 ms
    for middle, seconds in ((ROUTER, 1e-3), (ACCELERATOR, 3e-3)):
        links = [(a, b, 1e9, 1e-6) for v in range(3) for a, b in ((v, v + 1), (v + 1, v))]
        net = make_topology("line", [ACCELERATOR, middle, middle, ACCELERATOR], links)
        c = make_collective("broadcast", net, 10**6, ranks=[0, 3])
        plan = run_planner("scale-ccl", net, Workload((c,)))
        assert verify(plan).ok
        assert simulate(plan).completion_s == pytest.approx(seconds + 3e-6)


def test_section_5_1_the_heaviest_cell_of_table_1_is_near_the_bound():
    assert over_bound(gathered("sites:3,4?connectivity=0.5&km=150", chunks=8)) < 1.02


@pytest.mark.parametrize("connectivity", [0.5, 0.7, 0.9])
@pytest.mark.parametrize("chunks", [1, 2, 4])
@pytest.mark.parametrize("size", [1, 16, 256])
def test_the_grid_of_section_5_stays_within_a_tenth_of_the_bound(connectivity, chunks, size):
    spec = f"sites:3,4?connectivity={connectivity}&km=100"
    assert over_bound(gathered(spec, chunks, size * 10**9 // 1024)) < 1.10


@pytest.mark.parametrize("connectivity", [0.5, 0.7, 0.9])
@pytest.mark.parametrize("chunks", [4, 8])
def test_accelerators_share_routers_that_each_is_joined_to_one_of_them(connectivity, chunks):
    spec = f"sites:3,4?routers=3&attached=1&seed=1&connectivity={connectivity}&km=100"
    assert over_bound(gathered(spec, chunks, 256 * 10**9 // 1024)) < 1.10


def test_more_subchunks_come_nearer_to_the_bound():
    ratios = [over_bound(gathered("sites:3,4?connectivity=0.5", c)) for c in (1, 2, 4, 8)]
    assert ratios == sorted(ratios, reverse=True)


def test_split_chunks_flow_as_chunks_that_were_given_so():
    given, split = gathered("sites:3,4", 4), gathered("sites:3,4", split=4)
    assert split.workload.chunk_count == given.workload.chunk_count
    assert simulate(split).completion_s == pytest.approx(simulate(given).completion_s)


def test_the_planner_halves_chunks_while_that_pays():
    spec = "sites:3,4?routers=3&attached=1&seed=1&connectivity=0.5"
    plan = gathered(spec, split=0)
    assert verify(plan).ok
    assert over_bound(plan) < 1.10 < over_bound(gathered(spec))


def test_our_rules_are_no_worse_than_the_papers():
    for spec in ("sites:3,4?connectivity=0.5", "sites:2,6?connectivity=0.7", "sites:4,3", "sites:4,2?wan=ring"):
        ours, papers = (simulate(gathered(spec, 2, rules=r)).completion_s for r in ("eager", "paper"))
        assert ours <= papers * (1 + 1e-9)


def test_several_routers_share_what_leaves_a_site():
    plan = gathered("sites:2,4?routers=2")
    net = plan.topology
    carried = np.bincount(plan.route.values, minlength=net.link_count)
    wan = (net.kind[net.src] == ROUTER) & (net.kind[net.dst] == ROUTER)
    assert carried[wan].tolist() == [2, 2, 2, 2]


@given(seed=st.integers(0, 10_000), chunks=st.integers(1, 2))
def test_the_papers_rules_verify_on_random_networks(seed, chunks):
    net = random_network(seed)
    for kind in ("allgather", "broadcast"):
        workload = Workload((make_collective(kind, net, 5040, chunks=chunks),))
        assert verify(run_planner("scale-ccl", net, workload, options={"rules": "paper"})).ok


def test_both_speeds_give_the_papers_rules_the_same_plan(monkeypatch):
    digests = set()
    for speed in ("python", "compiled"):
        monkeypatch.setenv("STRETTO_KERNELS", speed)
        digests.add(gathered("sites:3,3?connectivity=0.7", 2, rules="paper").digest())
    assert len(digests) == 1


def test_the_papers_rules_refuse_what_not_everyone_gets():
    net = load_topology("sites:2,2")
    with pytest.raises(Unsupported, match="rules=eager does"):
        run_planner("scale-ccl", net, Workload((make_collective("alltoall", net, 4000),)), options={"rules": "paper"})
