"""AllReduce as a ReduceScatter and then an AllGather, each by any planner."""

from __future__ import annotations

import numpy as np
import pytest

from examples import one_in
from heldout_networks import KINDS
from networks import random_network
from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.messages import message_count
from stretto.model.targets import TARGETS
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.model.variants import with_messages
from stretto.planners import find, run_planner
from stretto.planners.registry import Request
from stretto.planners.rs_ag import joined
from stretto.schedule.effort import Budget, steps_of
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

GPU_S, UPLINK_S = 0.7e-6, 1e-6


def racks(*sizes, uplink=25e9):
    """Racks of so many GPUs, joined by a spine over one link each; a message costs 2 us."""
    kinds, links = [SWITCH] * (len(sizes) + 1), []
    for rack, size in enumerate(sizes, 1):
        ends = [(0, rack, (uplink, UPLINK_S))] + [(rack, len(kinds) + v, (25e9, GPU_S)) for v in range(size)]
        kinds += [ACCELERATOR] * size
        links += [(*pair, *link) for a, b, link in ends for pair in ((a, b), (b, a))]
    return with_messages(make_topology("racks", kinds, links), 2e-6)


def half(net, kind, size, planner, parts=1, ranks=None):
    collective = make_collective(kind, net, size, chunks=parts, ranks=ranks)
    return run_planner(planner, net, Workload((collective,)), effort="quick")


def allreduce(net, size, ranks=None, chunks=1):
    return make_collective("allreduce", net, size, ranks=ranks, chunks=chunks)


@pytest.mark.parametrize("parts", [(1, 1), (2, 3), (4, 2), (1, 5)])
def test_halves_that_are_cut_differently_are_right_and_keep_their_messages(parts):
    net = load_topology("star:5")
    sums, copies = (
        half(net, kind, 1_000_003, "ring", n) for kind, n in zip(("reducescatter", "allgather"), parts, strict=True)
    )
    plan = joined(net, allreduce(net, 1_000_003), sums, copies)
    assert verify(plan).ok
    assert message_count(plan) == message_count(sums) + message_count(copies)
    assert simulate(plan).completion_s == pytest.approx(sum(simulate(each).completion_s for each in (sums, copies)))
    edges = {
        int(edge) for p in (sums, copies) for edge in np.cumsum(np.append(0, p.workload.collectives[0].chunk_bytes))
    }
    assert {*plan.workload.collectives[0].chunk_offset.tolist(), 1_000_003} == edges


@pytest.mark.parametrize(("seed", "planner"), one_in(2, range(8), ["forest", "greedy", "hierarchical", "mtegcca"]))
def test_it_is_right_among_any_ranks_of_any_network(seed, planner):
    rng = np.random.default_rng(seed)
    net = with_messages(random_network(seed), float(rng.choice([0.0, 2e-6])))
    ranks = rng.permutation(net.accelerators)[: int(rng.integers(2, len(net.accelerators) + 1))].tolist()
    c = allreduce(net, int(rng.integers(100, 50_000)), ranks, chunks=int(rng.integers(1, 4)))
    try:
        plan = run_planner("rs-ag", net, Workload((c,)), effort="quick", options={"planner": planner})
    except Unsupported as refusal:
        pytest.skip(str(refusal))
    assert verify(plan).ok
    assert plan.meta["halves"] == [planner, planner]
    assert {*c.chunk_offset.tolist()} <= {*plan.workload.collectives[0].chunk_offset.tolist()}
    line = simulate(plan)
    assert line.completion_s >= bounds(net, Workload((c,)))[0].seconds * (1 - 1e-9)
    if plan.sharing == "timed":
        np.testing.assert_allclose(line.start_s, plan.start_s, rtol=1e-6, atol=1e-12)


def test_fewer_bytes_than_ranks_are_left_to_other_planners():
    net = racks(4, 4, 4)
    workload = Workload((allreduce(net, 7),))
    with pytest.raises(Unsupported, match="a byte for each rank"):
        run_planner("rs-ag", net, workload)
    assert verify(run_planner("auto", net, workload, effort="quick")).ok


def test_what_can_be_copied_before_the_last_sum_is():
    net, size = racks(2, 6, uplink=5e9), 4_000_000
    halves = [half(net, kind, size, "shortest-path") for kind in ("reducescatter", "allgather")]
    one_by_one_s = sum(simulate(each).completion_s for each in halves)
    assert simulate(joined(net, allreduce(net, size), *halves)).completion_s == pytest.approx(one_by_one_s)
    workload, options = Workload((allreduce(net, size),)), {"planner": "shortest-path"}
    plan = run_planner("rs-ag", net, workload, effort="quick", options=options)
    assert verify(plan).ok
    assert simulate(plan).completion_s < 0.9 * one_by_one_s


def test_a_message_of_several_chunks_does_not_end_at_a_router_that_sends_on_what_still_comes():
    net = load_topology("sites:2,2")
    sums = half(net, "reducescatter", 400_000, "ring", 3)
    copies = half(net, "allgather", 400_000, "mtegcca")
    assert (~net.store_and_forward[copies.dst.values]).any()
    plan = joined(net, allreduce(net, 400_000), sums, copies)
    assert plan.message is None and plan.sharing == "ready-order"
    assert verify(plan).ok


def test_plans_that_share_links_by_rates_are_refused():
    net = load_topology("star:4")
    workload = Workload((make_collective("allgather", net, 400_000),))
    copies = run_planner("ring+rate-alloc", net, workload)
    with pytest.raises(Unsupported, match="timed or in ready-order"):
        joined(net, allreduce(net, 400_000), half(net, "reducescatter", 400_000, "ring"), copies)


def test_where_one_chunk_is_one_message_no_message_has_several():
    net = load_topology("star:5?message=2us")
    workload = Workload((allreduce(net, 1_000_003),))
    plan = run_planner("rs-ag", net, workload, effort="quick", several_chunks=False)
    assert plan.message is None
    assert verify(plan).ok


def asked(net, size, ranks=None):
    """Whether ``auto`` asks it for an AllReduce at effort normal."""
    budget = Budget(steps_of("normal"))
    return find("rs-ag").auto.asked(Request(net, Workload((allreduce(net, size, ranks),)), budget=budget))


def test_it_is_asked_where_the_halves_lose_little():
    assert asked(racks(4, 4, 4), 64_000_000)
    assert not asked(racks(4, 4, 4), 1_000)  # messages decide
    assert not asked(with_messages(racks(4, 4, 4), 0.0), 64_000_000)  # trees are near the bound
    assert not asked(load_topology("star:8?message=2us"), 64_000_000)  # no switch joins others
    assert not asked(load_topology("sites:3,4?message=2us"), 64_000_000)  # sites are far apart
    assert not asked(racks(2, 6, uplink=5e9), 64_000_000)  # the small rack gets more of the sums than it adds to
    workload = Workload((allreduce(racks(4, 4, 4), 64_000_000),))
    assert not find("rs-ag").auto.asked(Request(racks(4, 4, 4), workload, target=TARGETS["msccl"]))
    net, collective = racks(4, 4), allreduce(racks(4, 4), 64_000_000)
    assert not find("rs-ag").auto.asked(Request(net, Workload((collective, collective))))


def test_uneven_leaves_get_the_plan_by_halves():
    net = with_messages(KINDS["leaves"](np.random.default_rng(41003)), 20e-6)
    workload = Workload((allreduce(net, 64_000_000),))
    plan = run_planner("auto", net, workload, effort="normal")
    assert plan.meta["chosen"] == "rs-ag"
    assert verify(plan).ok
    by_trees = run_planner("forest", net, workload, effort="normal")
    assert simulate(plan).completion_s < 0.9 * simulate(by_trees).completion_s
