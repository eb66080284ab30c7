"""The planner ``symmetric``: its plans are right as they are and written out, and end near the bound."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.bounds import bounds
from stretto.bounds.block_bounds import is_even
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.symmetric import SymmetricPlan
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

KINDS = ["allgather", "reducescatter", "allreduce", "alltoall"]


def shuffled(net: Topology, seed: int) -> Topology:
    """The same network with its nodes and links numbered at random."""
    rng = np.random.default_rng(seed)
    number, order = rng.permutation(net.node_count), rng.permutation(net.link_count)
    kind = np.empty_like(net.kind)
    kind[number] = net.kind
    columns = number[net.src], number[net.dst], net.bandwidth, net.latency_s
    return make_topology(net.name, kind.tolist(), list(zip(*(c[order].tolist() for c in columns), strict=True)))


def leaf_spine(leaves: int, hosts: int, spines: int, trunk_bps: float) -> Topology:
    """Hosts of 50 GB/s on leaves, each of which is joined to every spine."""
    count = leaves * hosts
    pairs = [(h, count + h // hosts, 50e9, 1e-6) for h in range(count)]
    pairs += [(count + a, count + leaves + b, trunk_bps, 1e-6) for a in range(leaves) for b in range(spines)]
    links = [*pairs, *((b, a, w, t) for a, b, w, t in pairs)]
    return make_topology("leaf-spine", [ACCELERATOR] * count + [SWITCH] * (leaves + spines), links)


NETWORKS = {
    "rails": load_topology("h100:4?message=0us"),
    "direct links": load_topology("fullmesh:6"),
    "switch": load_topology("star:5"),
    "fat tree": load_topology("fattree:4"),
    "spines": leaf_spine(4, 4, 4, 50e9),
    "half as wide above": leaf_spine(4, 4, 2, 50e9),
}


def work(kind: str, net: Topology, size: int, ranks: list[int] | None = None) -> Workload:
    return Workload((make_collective(kind, net, size, ranks=ranks),))


def planned(net: Topology, workload: Workload) -> SymmetricPlan:
    plan = run_planner("symmetric", net, workload)
    assert isinstance(plan, SymmetricPlan)
    return plan


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NETWORKS)
def test_large_data_takes_little_more_than_the_bound(name, kind):
    net = shuffled(NETWORKS[name], 1)
    plan = planned(net, work(kind, net, 64_000_000))
    plain = plan.expand()
    assert verify(plan).ok, verify(plan)
    assert verify(plain).ok, verify(plain)
    assert simulate(plan).completion_s == pytest.approx(simulate(plain).completion_s, rel=1e-9)
    assert simulate(plan).completion_s <= 1.02 * bounds(net, plan.workload)[0].seconds


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1000, 1001, 70_001])
def test_data_that_does_not_divide_evenly_is_planned(kind, size):
    net = shuffled(NETWORKS["spines"], 2)
    plan = planned(net, work(kind, net, size))
    assert verify(plan).ok, verify(plan)
    assert verify(plan.expand()).ok, verify(plan.expand())


@pytest.mark.parametrize("kind", KINDS)
def test_groups_of_ranks_plan_among_themselves(kind):
    """A collective in each server at once, and one on each rail at once."""
    net = load_topology("h100:4?message=0us")
    gpus = net.accelerators.reshape(4, 8)
    for groups in (gpus, gpus.T):
        each = tuple(make_collective(kind, net, 8_000_000, ranks=ranks.tolist()) for ranks in groups)
        plan = planned(net, Workload(each))
        assert verify(plan).ok, verify(plan)
        assert verify(plan.expand()).ok, verify(plan.expand())
        assert simulate(plan).completion_s == pytest.approx(simulate(plan.expand()).completion_s, rel=1e-9)


def test_a_sum_for_many_ranks_waits_for_few_transfers():
    """The owner of a sum copies it on over a tree: else each of its copies would wait for each of its summands."""
    net = load_topology("h100:256?message=0us")
    plan = planned(net, work("allreduce", net, 1_000_000_000))
    assert verify(plan).ok, verify(plan)
    assert len(plan.part.depends.values) <= 2 * plan.part.transfer_count


@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_ranks_take_little_more_than_what_crosses_their_rails(kind):
    servers, size = 256, 1_000_000_000
    net = load_topology(f"h100:{servers}?message=0us")
    plan = planned(net, work(kind, net, size))
    assert verify(plan).ok, verify(plan)
    crossing = {"allreduce": 2 / 8, "alltoall": 1.0}.get(kind, 1 / 8) * size * (servers - 1) / servers
    assert simulate(plan).completion_s <= 1.01 * crossing / 50e9


def test_auto_asks_it_where_ranks_are_many():
    net = load_topology("h100:256")
    plan = run_planner("auto", net, work("allreduce", net, 1_000_000_000), effort="normal")
    assert plan.meta["chosen"] == "symmetric"
    assert isinstance(plan, SymmetricPlan)


def test_what_is_not_symmetric_is_refused_in_a_line():
    net = load_topology("zoo:Napnet")
    with pytest.raises(Unsupported, match="symmetric does not serve"):
        run_planner("symmetric", net, work("allgather", net, 1_000_000))


def test_less_than_a_byte_for_each_rank_is_refused():
    net = NETWORKS["spines"]
    with pytest.raises(Unsupported, match="less than a byte"):
        run_planner("symmetric", net, work("allreduce", net, 15))


def test_a_plan_is_bounded_as_its_request():
    """Its AllReduce is dealt out to ranks, which changes no bound, and is bounded as fast."""
    net = load_topology("h100:64")
    plan = planned(net, work("allreduce", net, 1_000_000_000))
    assert bounds(net, plan.workload) == bounds(net, work("allreduce", net, 1_000_000_000))
    assert is_even(plan.workload.collectives[0])


GROUPS = {
    "inside servers": lambda v: v // 8,
    "inside halves of servers": lambda v: v // 4,
    "pairs of every second GPU": lambda v: (v // 8, v % 4),
    "on rails": lambda v: v % 8,
    "on pairs of rails": lambda v: v % 8 // 2,
    "on rails, every second server": lambda v: (v % 8, v // 8 % 2),
    "of two servers": lambda v: v // 16,
}
"""The collective of each GPU of four servers of eight."""


def grouped(name: str, kind: str, size: int) -> tuple[Topology, Workload]:
    topology = load_topology("h100:4?message=0us")
    members: dict[object, list[int]] = {}
    for number, v in enumerate(topology.accelerators.tolist()):
        members.setdefault(GROUPS[name](number), []).append(v)
    return topology, Workload(tuple(make_collective(kind, topology, size, ranks=own) for own in members.values()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", GROUPS)
def test_groups_of_gpus_are_served_together(name, kind):
    topology, workload = grouped(name, kind, 100_000_000)
    plan = run_planner("symmetric", topology, workload)
    assert isinstance(plan, SymmetricPlan)
    assert verify(plan).ok, verify(plan)
    assert verify(plan.expanded).ok
    least = bounds(topology, workload)[0].seconds
    # inside servers bounds count NICs, which have a tenth of the bandwidth
    most = {"inside": 1.12, "pairs": 1.12, "of": 1.04}.get(name.split()[0], 1.02)
    assert least * (1 - 1e-9) <= simulate(plan).completion_s <= most * least


@pytest.mark.parametrize("seed", range(4))
def test_collectives_of_any_ranks_of_a_switch_are_served(seed):
    topology = load_topology("star:8")
    ranks = np.random.default_rng(seed).permutation(8).reshape((2, 4) if seed % 2 else (4, 2))
    workload = Workload(tuple(make_collective("allreduce", topology, 10**6, ranks=own.tolist()) for own in ranks))
    plan = run_planner("symmetric", topology, workload)
    assert verify(plan).ok and verify(plan.expanded).ok
    assert plan.meta["group"] == list(ranks.shape)


@pytest.mark.parametrize("spec", ["torus:4x4", "torus:5x5", "torus:6x8", "torus:3x4x5", "ring:9"])
def test_an_alltoall_on_a_torus_keeps_the_links_of_its_longest_side_busy_from_the_start(spec):
    topology = load_topology(f"{spec}?message=0")
    workload = Workload((make_collective("alltoall", topology, 100_000_000),))
    plan = run_planner("symmetric", topology, workload)
    assert verify(plan).ok
    assert simulate(plan).completion_s <= 1.01 * bounds(topology, workload)[0].seconds
