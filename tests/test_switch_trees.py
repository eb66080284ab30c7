"""Trees that fork in switches: how near the bound they come, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def leaves(widths: list[list[float]]) -> Topology:
    """Two accelerators of 1 GB/s below each leaf; widths, GB/s, from each leaf to each spine and back."""
    spines = len(widths[0])
    first = len(widths) + spines
    pairs = [(leaf, first + 2 * leaf + k, 1.0) for leaf in range(len(widths)) for k in range(2)]
    pairs += [(leaf, len(widths) + s, w) for leaf, row in enumerate(widths) for s, w in enumerate(row)]
    links = [(*ends, w * 1e9, 1e-6) for a, b, w in pairs for ends in ((a, b), (b, a))]
    return make_topology("leaves", [SWITCH] * first + [ACCELERATOR] * (2 * len(widths)), links)


def over_bound(net: Topology, workload: Workload) -> float:
    plan = run_planner("switch-trees", net, workload)
    assert verify(plan).ok
    return simulate(plan).completion_s / bounds(net, workload)[0].seconds


def test_data_is_divided_among_spines_as_they_are_wide():
    # every receiver's own link is the bottleneck, and no spine alone carries what that takes
    net = leaves([[0.75, 0.25], [0.25, 0.75], [0.5, 0.5]])
    assert over_bound(net, Workload((make_collective("allgather", net, shard_bytes=10**8),))) <= 1.001


@pytest.mark.parametrize("spec", ["star:6", "dgx2:1", "fattree:4"])
def test_an_allgather_is_late_by_no_more_than_the_latency_of_a_path(spec):
    net = load_topology(spec)
    load = Workload((make_collective("allgather", net, shard_bytes=64_000),))
    plan = run_planner("switch-trees", net, load)
    work = (net.accelerators.size - 1) * 64_000 / net.bandwidth[np.isin(net.dst, net.accelerators)].min()
    longest = next(b.seconds for b in bounds(net, load) if b.kind == "latency path")
    assert simulate(plan).completion_s <= work + longest * (1 + 1e-9)


def test_a_chunk_too_small_for_all_trees_is_sent_by_some():
    net = leaves([[0.75, 0.25], [0.25, 0.75], [0.5, 0.5]])
    plan = run_planner("switch-trees", net, Workload((make_collective("allgather", net, shard_bytes=1),)))
    assert verify(plan).ok
    assert plan.transfer_count == len(net.accelerators)


def test_ranks_joined_only_by_accelerators_and_switches_that_do_not_copy_are_refused():
    ring = load_topology("ring:4")
    with pytest.raises(Unsupported, match="only through accelerators"):
        run_planner("switch-trees", ring, Workload((make_collective("allgather", ring, 100),)))
    star = load_topology("star:4")
    star = replace(star, replicates=np.zeros(star.node_count, dtype=np.bool_))
    with pytest.raises(Unsupported, match="cannot copy"):
        run_planner("switch-trees", star, Workload((make_collective("allgather", star, 100),)))


def summing(net: Topology) -> Topology:
    return replace(net, reduces=net.kind == SWITCH)


@pytest.mark.parametrize("kind", ["allreduce", "reducescatter", "reduce"])
@pytest.mark.parametrize("spec", ["star:6?sharp=true", "dgx2:1?sharp=true", "fattree:4?sharp=true"])
def test_sums_in_switches_are_late_by_no_more_than_the_latency_of_a_path(kind, spec):
    net = load_topology(spec)
    workload = Workload((make_collective(kind, net, 64_000),))
    plan = run_planner("switch-trees", net, workload)
    assert verify(plan).ok
    limits = {bound.kind: bound.seconds for bound in bounds(net, workload)}
    assert simulate(plan).completion_s <= max(limits.values()) + limits["latency path"]
    if kind == "allreduce":
        assert plan.transfer_count == 1
        assert sorted(plan.sources[0]) == sorted(plan.dst[0]) == net.accelerators.tolist()


@pytest.mark.parametrize("kind", ["allreduce", "reducescatter"])
def test_sums_are_divided_among_spines_as_they_are_wide(kind):
    net = summing(leaves([[0.75, 0.25], [0.25, 0.75], [0.5, 0.5]]))
    workload = Workload((make_collective(kind, net, 10**8),))
    assert over_bound(net, workload) <= 1.001


def test_sums_are_refused_where_a_switch_on_the_way_does_not_sum():
    net = load_topology("dgx2:4?sharp=sites")
    with pytest.raises(Unsupported, match="cannot sum it"):
        run_planner("switch-trees", net, Workload((make_collective("allreduce", net, 1000),)))
