"""Trees through switches that sum: what becomes one transfer, and what plans of forests gain by it."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins import two_levels
from networks import random_network
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.plan import COPY, REDUCE, Plan
from stretto.model.topology import ACCELERATOR, ROUTER, SWITCH, Topology, make_topology
from stretto.planners import run_planner
from stretto.schedule.joins import lower_joined
from stretto.schedule.trees import Trees
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

KINDS = ("allreduce", "reducescatter", "reduce", "allgather", "broadcast")


def links_of(net: Topology) -> dict[tuple[int, int], int]:
    return {(int(a), int(b)): i for i, (a, b) in enumerate(zip(net.src, net.dst, strict=True))}


def lowered(net: Topology, kind: str, root: int, parent: dict[int, int]) -> Plan:
    """The plan of one chunk along one tree, in and out."""
    link = links_of(net)
    up = Trees.of(net, [root], [{v: (p, [link[v, p]]) for v, p in parent.items()}])
    down = Trees.of(net, [root], [{v: (p, [link[p, v]]) for v, p in parent.items()}])
    workload = Workload((make_collective(kind, net, 1000, root=0),))
    return lower_joined(net, workload, np.zeros(workload.chunk_count, dtype=np.int64), up, down)


LEVELS = {0: 4, 1: 4, 2: 5, 3: 5, 4: 6, 5: 6}


def test_a_tree_rooted_at_a_switch_is_one_pass():
    plan = lowered(two_levels(), "allreduce", 6, LEVELS)
    assert plan.transfer_count == 1
    assert sorted(plan.sources[0]) == sorted(plan.dst[0]) == [0, 1, 2, 3]
    assert verify(plan).ok


def test_a_root_behind_a_switch_takes_part_in_one_pass():
    # the root is accelerator 0: what switch 4 would send it and get back from it meets at switch 4
    plan = lowered(two_levels(), "allreduce", 0, {4: 0, 1: 4, 6: 4, 5: 6, 2: 5, 3: 5})
    assert plan.transfer_count == 1
    assert sorted(plan.sources[0]) == sorted(plan.dst[0]) == [0, 1, 2, 3]
    assert verify(plan).ok


@pytest.mark.parametrize(
    ("flags", "transfers"),
    [
        # a leaf that does not sum: each source sends to the first one, and that one to each receiver
        ({"reduces": [False] * 4 + [False, True, True]}, 6),
        ({"replicates": [False] * 4 + [True, False, True]}, 6),
    ],
)
def test_where_a_switch_cannot_sum_or_copy_transfers_stay_apart(flags, transfers):
    plan = lowered(two_levels(**flags), "allreduce", 6, LEVELS)
    assert plan.transfer_count == transfers
    assert plan.other_src is None
    assert verify(plan).ok


def test_a_switch_that_sends_the_sum_to_another_node_than_its_one_source_gets_it_from_that_source():
    pairs = [(0, 1), (0, 3), (2, 3), (1, 2)]
    links = [(a, b, 1e9, 1e-6) for x, y in pairs for a, b in ((x, y), (y, x))]
    net = make_topology("beside", [ACCELERATOR] * 3 + [SWITCH], links, reduces=[False] * 3 + [True])
    link = links_of(net)
    up = Trees.of(net, [3], [{0: (3, [link[0, 3]]), 1: (0, [link[1, 0]])}])
    down = Trees.of(net, [3], [{2: (3, [link[3, 2]]), 1: (2, [link[2, 1]]), 0: (1, [link[1, 0]])}])
    workload = Workload((make_collective("allreduce", net, 1000, ranks=[0, 1]),))
    plan = lower_joined(net, workload, np.zeros(workload.chunk_count, dtype=np.int64), up, down)
    ways = [(int(plan.src[k]), plan.dst[k].tolist()) for k in range(plan.transfer_count)]
    assert ways == [(1, [0]), (0, [2]), (2, [1]), (1, [0])]
    assert verify(plan).ok


def test_sums_for_one_rank_meet_on_the_way():
    plan = lowered(two_levels(), "reduce", 0, {4: 0, 1: 4, 6: 4, 5: 6, 2: 5, 3: 5})
    assert plan.transfer_count == 1
    assert (sorted(plan.sources[0]), plan.dst[0].tolist(), plan.op.tolist()) == ([1, 2, 3], [0], [REDUCE])
    assert verify(plan).ok


def test_copies_of_one_rank_branch_on_the_way():
    plan = lowered(two_levels(), "broadcast", 0, {4: 0, 1: 4, 6: 4, 5: 6, 2: 5, 3: 5})
    assert plan.transfer_count == 1
    assert (plan.src.tolist(), sorted(plan.dst[0]), plan.op.tolist()) == ([0], [1, 2, 3], [COPY])
    assert verify(plan).ok


def test_two_sides_sum_for_themselves_and_swap():
    # accelerators 0 to 2 on one switch, 3 to 5 on another, and a cable between 2 and 3
    ends = [(0, 6), (1, 6), (2, 6), (3, 7), (4, 7), (5, 7), (2, 3)]
    links = [(a, b, 1e9, 1e-6) for u, v in ends for a, b in ((u, v), (v, u))]
    net = make_topology("two", [ACCELERATOR] * 6 + [SWITCH] * 2, links, reduces=[False] * 6 + [True] * 2)
    # the same tree from its switch, and from an accelerator at that switch
    trees = [(6, {0: 6, 1: 6, 2: 6, 3: 2, 7: 3, 4: 7, 5: 7}), (0, {6: 0, 1: 6, 2: 6, 3: 2, 7: 3, 4: 7, 5: 7})]
    for root, parent in trees:
        plan = lowered(net, "allreduce", root, parent)
        assert verify(plan).ok
        swap = [k for k in range(plan.transfer_count) if {int(plan.src[k]), int(plan.dst[k][0])} == {2, 3}]
        assert [len(plan.depends[k]) for k in swap] == [1, 1]
        # each side's sum, the swap, and the copies on each side
        assert simulate(plan).completion_s == pytest.approx(5e-6 + 3 * 1e-6)


@pytest.mark.parametrize("kind", ["reduce", "broadcast"])
def test_what_one_node_sends_over_a_switch_makes_no_circle_at_the_router_before_it(kind):
    # accelerators 0 and 1 at router 3, switch 2 behind it
    links = [(a, b, 1e9, 1e-6) for v in range(3) for a, b in ((v, 3), (3, v))]
    net = make_topology("behind", [ACCELERATOR] * 2 + [SWITCH, ROUTER], links, reduces=[False, False, True, False])
    link = links_of(net)
    up = Trees.of(net, [0], [{2: (0, [link[2, 3], link[3, 0]]), 1: (2, [link[1, 3], link[3, 2]])}])
    down = Trees.of(net, [0], [{2: (0, [link[0, 3], link[3, 2]]), 1: (2, [link[2, 3], link[3, 1]])}])
    workload = Workload((make_collective(kind, net, 1000, root=0),))
    plan = lower_joined(net, workload, np.zeros(1, dtype=np.int64), up, down)
    ends = (1, 0) if kind == "reduce" else (0, 1)
    assert plan.route[0].tolist() == [link[ends[0], 3], link[3, ends[1]]]
    assert verify(plan).ok


def summing_network(seed: int) -> Topology:
    """A random network in which some switches sum and some do not copy."""
    rng, net = random.Random(seed), random_network(seed, routers=False)
    is_switch = (net.kind == SWITCH).tolist()
    reduces = np.array([switch and rng.random() < 0.7 for switch in is_switch])
    replicates = np.array([switch and rng.random() < 0.8 for switch in is_switch])
    return replace(net, reduces=reduces, replicates=replicates)


@given(
    seed=st.integers(0, 10_000), kind=st.sampled_from(KINDS), size=st.sampled_from([100, 10**5]),
    message_s=st.sampled_from([0.0, 5e-6]),
)  # fmt: skip
def test_forests_through_switches_that_sum_are_right_and_no_faster_than_their_bound(seed, kind, size, message_s):
    net = summing_network(seed)
    net = replace(net, message_s=np.full(net.link_count, message_s))
    workload = Workload((make_collective(kind, net, size),))
    plan = run_planner("forest", net, workload, effort="0.05")
    assert verify(plan).ok
    assert simulate(plan).completion_s >= bounds(net, workload)[0].seconds * (1 - 1e-9)


@pytest.mark.parametrize("kind", ["allreduce", "reducescatter"])
@pytest.mark.parametrize("size", [1000, 10**9])
def test_on_one_switch_that_sums_the_forest_meets_the_bound(kind, size):
    net = load_topology("star:8?bandwidth=450GB/s&sharp=true")
    workload = Workload((make_collective(kind, net, size),))
    plan = run_planner("forest", net, workload)
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.01 * bounds(net, workload)[0].seconds


@pytest.mark.parametrize(("spec", "effort"), [("h100:2?sharp=true", "normal"), ("fattree:4?sharp=true", "quick")])
def test_an_allreduce_over_several_switches_that_sum_is_near_the_bound(spec, effort):
    net = load_topology(spec)
    workload = Workload((make_collective("allreduce", net, 10**9),))
    plan = run_planner("forest", net, workload, effort=effort)
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.01 * bounds(net, workload)[0].seconds
