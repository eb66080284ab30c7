"""Halving and doubling inside servers and across them, with all chunks of a step in few messages."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.messages import message_count, numbered
from stretto.model.targets import find_target
from stretto.model.topology import ACCELERATOR, SWITCH, make_topology
from stretto.planners import Request, run_planner
from stretto.planners.fixed.planner import plan_algorithm
from stretto.planners.run import refusal_of
from stretto.schedule.algorithms import DISSEMINATION
from stretto.schedule.grid_steps import exchanged_last
from stretto.schedule.servers import are_far_apart
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

STAR = "star:8?bandwidth=1GB/s&latency=1us&message=10us"


def work(net, kind: str, size: int = 64_000, **how) -> Workload:
    return Workload((make_collective(kind, net, size, **how),))


def test_halving_pays_for_a_message_in_each_step():
    """Six steps of one message, of 1/2, 1/4, 1/8 of the buffer and back."""
    net = load_topology(STAR)
    plan = run_planner("rabenseifner", net, work(net, "allreduce", 8_000))
    assert verify(plan).ok and message_count(plan) == 8 * 6 < plan.transfer_count
    assert simulate(plan).completion_s == pytest.approx(6 * (10e-6 + 2e-6) + 2 * 7 / 8 * 8_000 / 1e9)


@pytest.mark.parametrize(("size", "scattered"), [(8_000, 0), (32_000, 1), (128_000, 2)])
def test_where_bytes_count_more_is_halved_before_whole_sums_are_exchanged(size, scattered):
    """Of three exchanges of the buffer, each halving makes the later ones smaller, and costs one more message."""
    net = load_topology(STAR)
    plan = run_planner("hierarchical", net, work(net, "allreduce", size))
    assert verify(plan).ok and message_count(plan) == 8 * (3 + scattered)
    sent = sum(2 * 2.0 ** -(k + 1) for k in range(scattered)) + (3 - scattered) * 2.0**-scattered
    steps_s = (3 + scattered) * (10e-6 + 2e-6)
    assert simulate(plan).completion_s == pytest.approx(steps_s + sent * size / 1e9)


@pytest.mark.parametrize("shape", [(2, 4), (4, 3), (3, 4), (6, 2), (2, 3, 2)])
def test_sums_are_whole_wherever_halving_ends(shape):
    net = load_topology(f"fullmesh:{prod(shape)}?message=20us")
    lines = ["rabenseifner" if n in (2, 4) else "dissemination" for n in shape[:-1]]
    order = np.random.default_rng(len(shape)).permutation(prod(shape))
    algorithm = exchanged_last(shape, order, lines)
    assert algorithm.blocks("allreduce", prod(shape), 1) == prod(shape[:-1])
    assert verify(plan_algorithm(algorithm, Request(net, work(net, "allreduce")))).ok


def test_large_steps_are_sent_in_several_messages_that_are_pipelined():
    """Between two servers, the links inside serve the next step while those across servers serve this one."""
    net = load_topology("h100:2?message=2us")
    plan = run_planner("rabenseifner", net, work(net, "allgather", 64_000_000))
    steps = 16 * 4
    assert steps < message_count(plan) < plan.transfer_count
    one = replace(plan, message=numbered(plan.group, plan.src))
    assert verify(plan).ok and message_count(one) == steps
    assert simulate(plan).completion_s < 0.9 * simulate(one).completion_s


def test_where_messages_cost_nothing_each_chunk_is_one():
    net = load_topology("star:8?message=0")
    assert run_planner("rabenseifner", net, work(net, "allreduce")).message is None
    assert run_planner("hierarchical", net, work(net, "allgather")).message is None


@pytest.mark.parametrize("n", [2, 3, 5, 7, 12, 16])
def test_dissemination_takes_log_n_steps_among_any_number(n):
    steps = DISSEMINATION.steps("allgather", n)
    assert len(steps) == (n - 1).bit_length()
    assert sum(len(s.block) for s in steps) == n * (n - 1)
    near = [int(((s.src - s.dst) % n).max()) for s in steps]
    assert near == sorted(near, reverse=True) and near[-1] == 1


@pytest.mark.parametrize("kind", ["allreduce", "allgather", "reducescatter", "alltoall"])
@pytest.mark.parametrize("spec", ["h100:2?message=20us", "h100:3?message=20us", "star:7?message=2us"])
def test_it_serves_clusters_and_odd_numbers(spec, kind):
    net = load_topology(spec)
    plan = run_planner("hierarchical", net, work(net, kind))
    assert verify(plan).ok
    assert bounds(net, plan.workload)[0].seconds <= simulate(plan).completion_s * (1 + 1e-9)


def test_a_gather_of_small_pieces_takes_a_third_of_what_messages_of_one_piece_take():
    net = load_topology("h100:8?message=20us")
    plan = run_planner("hierarchical", net, work(net, "allgather", 64_000))
    alone = run_planner("shortest-path", net, work(net, "allgather", 64_000))
    assert 3 * simulate(plan).completion_s < simulate(alone).completion_s
    assert simulate(plan).completion_s < 1.6 * bounds(net, plan.workload)[0].seconds


@pytest.mark.parametrize(
    ("kind", "size", "times"),
    [("allgather", 64_000, 1.1), ("alltoall", 1_000_000, 2.1), ("allreduce", 100_000, 1.3)],  # the last: a chunk each
)
def test_messages_of_a_step_share_the_links_between_switches(kind, size, times):
    """Four leaves of four ranks, each joined to one spine by one link of their width."""
    rows = [(v, 16 + v // 4, 25e9, 5e-7) for v in range(16)] + [(16 + leaf, 20, 1e11, 5e-7) for leaf in range(4)]
    cost_s = [20e-6] * 16 + [0.0] * 4
    kinds = [ACCELERATOR] * 16 + [SWITCH] * 5
    net = make_topology("trunks", kinds, [*rows, *((b, a, *rest) for a, b, *rest in rows)], message_s=2 * cost_s)
    plan = run_planner("hierarchical", net, work(net, kind, size))
    assert plan.sharing == "timed" and verify(plan).ok
    bound_s = bounds(net, plan.workload)[0].seconds
    assert simulate(plan).completion_s < times * bound_s
    one_by_one = replace(plan, sharing="ready-order", start_s=None, finish_s=None)
    assert simulate(one_by_one).completion_s > 1.5 * simulate(plan).completion_s


def test_auto_asks_it_first_where_messages_cost_and_bandwidth_decides():
    net = load_topology("h100:4?message=20us")
    tried = run_planner("auto", net, work(net, "allgather", 1_000_000_000), effort="normal").meta["tried"]
    asked = [t["planner"] for t in tried if "completion_s" in t]
    assert "hierarchical" in asked[: asked.index("forest")]


def test_auto_asks_it_where_messages_cost_alone():
    for spec, asked in (("star:8?message=20us", True), ("star:8?message=0", False)):
        net = load_topology(spec)
        tried = run_planner("auto", net, work(net, "alltoall"), effort="quick").meta["tried"]
        assert ("hierarchical" in {t["planner"] for t in tried}) == asked


def test_auto_takes_messages_of_several_chunks():
    net = load_topology("star:8?message=20us")
    plan = run_planner("auto", net, work(net, "allgather"), effort="quick")
    assert plan.meta["chosen"] == "hierarchical" and message_count(plan) == 8 * 3
    assert simulate(plan).completion_s < 1.1 * bounds(net, plan.workload)[0].seconds


def test_plans_for_msccl_have_messages_of_several_chunks():
    net = load_topology("star:8?message=20us")
    plan = run_planner("auto", net, work(net, "allgather"), effort="quick", target=find_target("msccl"))
    assert message_count(plan) < plan.transfer_count and verify(plan).ok


def test_plans_for_processes_have_few_messages():
    net = load_topology("star:8?message=20us")
    plan = run_planner("auto", net, work(net, "allgather"), effort="quick", target=find_target("torch"))
    assert message_count(plan) == 8 * 3 and verify(plan).ok


def test_what_nothing_joins_is_refused():
    net = load_topology("zoo:Abilene?message=20us")
    with pytest.raises(Unsupported, match="no link or switch joins the ranks that would exchange data"):
        run_planner("hierarchical", net, work(net, "allreduce"))


def test_routes_between_thousands_are_not_looked_for():
    """Those of 4,096 GPUs took minutes, and then the memory."""
    net = load_topology("h100:129")
    for planner in ("hierarchical", "by-sites"):
        with pytest.raises(Unsupported, match="more than 1,024 accelerators"):
            run_planner(planner, net, work(net, "broadcast"))
    assert not are_far_apart(net, work(net, "broadcast"))
    torus = load_topology("torus:33x32?message=1us")  # ranks with neighbours alone have few routes
    assert refusal_of("hierarchical", Request(torus, work(torus, "alltoall"))) is None


def test_plans_have_a_message_for_each_chunk_where_that_is_asked():
    """As ``stretto run`` asks, since a further chunk costs Python's loop about what a message does."""
    net = load_topology("star:8?message=20us")
    for planner in ("auto", "rabenseifner"):
        plan = run_planner(planner, net, work(net, "allgather"), effort="quick", several_chunks=False)
        assert plan.message is None and verify(plan).ok


def test_what_has_fewer_bytes_than_blocks_is_exchanged_whole():
    net = load_topology("fullmesh:8?message=20us")
    plan = run_planner("hierarchical", net, work(net, "allreduce", 4))
    assert verify(plan).ok and message_count(plan) == 8 * 3
