"""What every family of servers must keep, alone and composed. A new family is tested without a line being added."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.symmetry import find_symmetry
from stretto.topologies import assume_messages, catalogue, compose, load_topology
from stretto.topologies.files import topology_from_json
from stretto.topologies.ports import nic_nodes, parse_nics
from stretto.verify import verify

SERVERS = [family for family in catalogue() if family.nics]
SMALL = 16
"""Accelerators of a server up to which its example is planned."""


def server(family):
    """The family's smallest example: one server, or the slice of its example."""
    return family.example if "x" in family.pattern.partition(":")[2] else f"{family.name}:1"


@pytest.mark.parametrize("family", SERVERS, ids=lambda f: f.name)
def test_servers_are_alike_and_their_file_is_the_same(family):
    net = load_topology(family.example)
    assert np.prod(find_symmetry(net).orders) >= min(4, len(net.accelerators))
    again = topology_from_json(net.to_json(), "test")
    for column in ("kind", "src", "dst", "bandwidth", "latency_s", "replicates", "transit", "reduces"):
        assert np.array_equal(getattr(net, column), getattr(again, column))


@pytest.mark.parametrize("family", SERVERS, ids=lambda f: f.name)
def test_two_servers_are_composed_with_the_nics_of_the_family(family):
    spec = server(family)
    net = load_topology(spec)
    cluster = compose(spec, 2, "leafspine")
    ranks = cluster.accelerators
    assert len(ranks) == 2 * len(net.accelerators)
    out = cluster.bandwidth[cluster.dst == cluster.node_count - 1]
    assert set(out) == {parse_nics(family.nics).bandwidth}
    assert len(out) == len(ranks)


@pytest.mark.parametrize("family", [f for f in SERVERS if "nics" in {s.name for s in f.settings}], ids=lambda f: f.name)
def test_nics_as_nodes_are_what_the_table_says(family):
    net = load_topology(f"{family.name}:1?nics=nodes")
    count = parse_nics(family.nics).count
    assert len(nic_nodes(net)) == count == len(net.accelerators)
    assert not net.replicates[nic_nodes(net)].any()


@pytest.mark.parametrize(
    "family", [f for f in SERVERS if len(load_topology(server(f)).accelerators) <= SMALL], ids=lambda f: f.name
)
def test_a_server_is_planned_and_the_plan_is_right(family):
    net = assume_messages(load_topology(server(family)))
    workload = Workload((make_collective("allreduce", net, 8_000_000),))
    plan = run_planner("symmetric", net, workload, effort="quick")
    assert verify(plan)
    assert bounds(net, workload)[0].seconds <= simulate(plan).completion_s * (1 + 1e-9)
