"""AllReduce as an AllGather of contributions: one trip in place of two, and sums where nobody needs them apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from examples import examples
from heldout_networks import KINDS
from networks import random_network, ring
from stretto.bounds import bounds
from stretto.formats import exporters
from stretto.lower import lower_for
from stretto.lower.alike import sums_alike
from stretto.model.arrays import Ragged
from stretto.model.changes import make_changes
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import StrettoError, Unsupported
from stretto.model.messages import message_count
from stretto.model.plan import COPY, Plan, make_plan
from stretto.model.targets import TARGETS
from stretto.model.topology import ACCELERATOR, Topology, make_topology
from stretto.model.variants import with_messages
from stretto.planners import run_planner
from stretto.planners.contributions import MOST_PARTS, _summed
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

BANDWIDTH, FAR_S = 1e9, 10e-3


def graph(n: int, pairs: list[tuple[int, int]], message_s: float = 0.0) -> Topology:
    """Accelerators, and links of 10 ms both ways."""
    links = [(u, v, BANDWIDTH, FAR_S) for a, b in pairs for u, v in ((a, b), (b, a))]
    return with_messages(make_topology("graph", [ACCELERATOR] * n, links), message_s)


def planned(net: Topology, size: int, planner: str = "contributions", **given: object) -> Plan:
    work = Workload((make_collective("allreduce", net, size),))
    plan = run_planner(planner, net, work, **{"effort": "normal", **given})
    assert verify(plan).ok
    return plan


@pytest.mark.parametrize("n", [3, 5, 6, 9])
def test_a_ring_takes_half_a_round_trip(n):
    net = graph(n, [(v, (v + 1) % n) for v in range(n)])
    plan = planned(net, 1000)
    # a way to one rank and back from there is n // 2 hops long, twice
    assert simulate(plan).completion_s == pytest.approx((n // 2) * FAR_S, rel=0.01)
    assert simulate(plan).completion_s <= 1.005 * bounds(net, plan.workload)[0].seconds


def gathered_by(net: Topology, sends: list[tuple[int, int, list[int]]]) -> Plan:
    """An AllGather of 1000 bytes a rank, by messages of (source, receiver, whose data)."""
    rows = [(k, u, v, piece) for k, (u, v, pieces) in enumerate(sends) for piece in pieces]
    came = {(v, piece): row for row, (_, _, v, piece) in enumerate(rows)}
    link = {(u, v): k for k, (u, v) in enumerate(zip(net.src.tolist(), net.dst.tolist(), strict=True))}
    return make_plan(
        net,
        Workload((make_collective("allgather", net, 1000 * len(net.accelerators)),)),
        "ready-order",
        chunk=np.array([piece for *_, piece in rows]),
        src=np.array([u for _, u, _, _ in rows]),
        op=np.full(len(rows), COPY),
        message=np.array([k for k, *_ in rows]),
        dst=Ragged.of([[v] for _, _, v, _ in rows]),
        route=Ragged.of([[link[u, v]] for _, u, v, _ in rows]),
        depends=Ragged.of([[came[u, piece]] if (u, piece) in came else [] for _, u, _, piece in rows]),
    )


def summed(net: Topology, sends: list[tuple[int, int, list[int]]], apart: bool = False) -> list[tuple[int, int]]:
    """Source and receiver of each transfer of the AllReduce that an AllGather gives."""
    gathered = gathered_by(net, sends)
    assert verify(gathered).ok
    plan = _summed(gathered, make_collective("allreduce", net, 1000), apart, True)
    assert verify(plan).ok
    return [
        (u, *v) for u, v in zip(plan.src.tolist(), (plan.dst[k].tolist() for k in range(len(plan.src))), strict=True)
    ]


def test_what_nobody_needs_apart_is_one_sum():
    line = graph(4, [(0, 1), (1, 2), (2, 3)])
    up, down = [(3, 2, [3]), (2, 1, [2, 3]), (1, 0, [1, 2, 3])], [(0, 1, [0]), (1, 2, [0, 1]), (2, 3, [0, 1, 2])]
    assert summed(line, up + down) == [(u, v) for u, v, _ in up + down]
    assert len(summed(line, up + down, apart=True)) == 12


def test_what_somebody_needs_apart_is_sent_apart():
    # rank 2 gets 3's data from 1, and 0's in another message from there; rank 0 gets both in one, which ends there
    net = graph(4, [(0, 1), (1, 2), (2, 0), (1, 3)])
    first = [(3, 1, [3]), (0, 1, [0]), (2, 1, [2])]
    second = [(1, 2, [1, 3]), (1, 0, [1]), (1, 3, [0, 1, 2]), (0, 2, [0]), (2, 0, [2, 3])]
    # 2 needs the data of 3 apart from that of 1: it sends the one to 0, and not the other
    assert summed(net, first + second) == [
        *((u, v) for u, v, _ in first),
        (1, 2), (1, 2), *((u, v) for u, v, _ in second[1:]),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", [1, 4, 11])
def test_where_messages_share_links_what_is_urgent_goes_first(seed):
    """In ready-order a message that another one is in the way of keeps its other links from those that could go."""
    net = KINDS["leaves"](np.random.default_rng(seed))
    plan = planned(net, 1000)
    untimed = replace(plan, sharing="ready-order", start_s=None, finish_s=None)
    assert simulate(plan).completion_s <= 1.06 * bounds(net, plan.workload)[0].seconds
    assert verify(untimed).ok and simulate(untimed).completion_s > 1.5 * simulate(plan).completion_s


def test_parts_of_contributions_become_parts_of_the_buffer():
    plan = planned(load_topology("ring:5"), 20_000, options={"planner": "forest"})
    (c,) = plan.workload.collectives
    assert 1 < c.chunk_count <= MOST_PARTS and int(c.chunk_bytes.sum()) == 20_000


def test_an_allgather_that_is_cut_too_finely_is_refused():
    with pytest.raises(Unsupported, match="chunks with 151 different ends"):
        planned(load_topology("ring:5"), 1_000_000, options={"planner": "forest"})


def test_messages_carry_one_chunk_each_where_more_are_not_asked_for():
    net = load_topology("ring:5?message=20us")
    plan = planned(net, 10_000_000, options={"planner": "rounds"}, several_chunks=False)
    assert plan.message is None and message_count(plan) == plan.transfer_count


def test_ranks_add_up_in_one_order_where_a_target_asks_for_it():
    net = load_topology("dgx1?message=20us")
    target = TARGETS["torch"]
    plan = run_planner(
        "contributions", net, Workload((make_collective("allreduce", net, 64_000),)), effort="normal", target=target
    )
    assert verify(plan).ok and sums_alike(plan)
    for rank in plan.workload.collectives[0].ranks.tolist():
        lower_for(plan, rank)


@pytest.mark.parametrize("target", ["msccl", "mscclpp", "chakra"])
def test_programs_forward_contributions(target):
    net = load_topology("dgx1?message=20us")
    plan = planned(net, 64_000, target=TARGETS[target])
    assert plan.forwards is not None and plan.forwards.any()
    exporters()[target].check(simulate(plan))


@pytest.mark.parametrize("seed", range(examples(25)))
def test_plans_on_random_networks_verify(seed):
    net = random_network(seed)
    try:
        plan = planned(net, 4096)
    except StrettoError as refusal:
        assert "contributions" in str(refusal) or "path" in str(refusal) or "reach" in str(refusal), refusal
        return
    assert simulate(plan).completion_s >= bounds(net, plan.workload)[0].seconds * (1 - 1e-9)


@pytest.mark.parametrize("planner", ["contributions", "auto"])
@pytest.mark.parametrize("spec", ["star:3?message=1us", "fullmesh:7?message=0"])
def test_plans_have_times_where_bandwidths_change(spec, planner):
    net = load_topology(spec)
    net = replace(net, changes=make_changes([(3e-6, 1, 1e9), (1e-4, 1, 3e9)], net.link_count))
    plan = planned(net, 34, planner)
    assert plan.sharing == "timed"
    assert simulate(plan).start_s == pytest.approx(plan.start_s)


def test_several_collectives_are_refused():
    net = ring(4)
    work = Workload(tuple(make_collective("allreduce", net, 4096) for _ in range(2)))
    with pytest.raises(Unsupported, match="plans one collective"):
        run_planner("contributions", net, work)
