"""Planes on which a rank has no port: plans leave them out, and are plans of the whole network all the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.schedule.joining import joining_planes
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def lacking(spec, gone):
    """A network whose planes lack ports: (plane, port) each."""
    topology = load_topology(spec)
    planes = list(topology.planes)
    for p, port in gone:
        keep = np.arange(len(planes[p].nodes)) != port
        free = np.full(int(keep.sum()), -1, dtype=np.int32)
        planes[p] = replace(planes[p], nodes=planes[p].nodes[keep], matching=free)
    return replace(topology, planes=tuple(planes))


def work(topology, kind="allreduce", **more):
    return Workload((make_collective(kind, topology, 1 << 20, **more),))


@pytest.mark.parametrize(
    ("spec", "kind"),
    [("swot", "allreduce"), ("ring+swot", "allgather"), ("birkhoff", "alltoall"), ("pairwise", "alltoall")],
)
def test_a_plan_on_planes_that_lack_a_rank_is_that_of_the_others(spec, kind):
    topology = lacking("optical:6,3", [(0, 4), (2, 1)])
    plan = run_planner(spec, topology, work(topology, kind))
    assert set(plan.plane.tolist()) == set(plan.turns.plane.tolist()) == {1}
    assert plan.topology.planes == topology.planes
    assert verify(plan).ok
    alone = run_planner(spec, replace(topology, planes=topology.planes[1:2]), work(topology, kind))
    assert simulate(plan).completion_s == simulate(alone).completion_s


def test_a_collective_of_other_ranks_uses_all_planes():
    topology = lacking("optical:6,2", [(0, 4)])
    plan = run_planner("swot", topology, work(topology, ranks=[0, 1, 2, 3]))
    assert set(plan.plane.tolist()) == {0, 1}
    assert verify(plan).ok


def test_planes_are_left_out_only_where_others_join_all_ranks():
    whole, grid = load_topology("optical:4,2"), load_topology("optical:4,2?dims=2x2")
    assert joining_planes(whole, work(whole)) is None
    assert joining_planes(grid, work(grid)) is None
    assert joining_planes(load_topology("ring:4"), work(load_topology("ring:4"))) is None
    some = lacking("optical:4,3", [(1, 0)])
    assert joining_planes(some, work(some)).tolist() == [0, 2]
