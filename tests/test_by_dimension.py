"""Planes divided by the dimensions of a grid, and collectives that go dimension by dimension."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from stretto.bounds.latency import distances
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, Unsupported
from stretto.model.plan import Plan
from stretto.planners import run_planner
from stretto.planners.optical.by_dimension import grid_of
from stretto.schedule.grid_steps import on_grid
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

CUBE = "optical:64,6?dims=4x4x4"


def planned(spec: str, kind: str, size: int, ranks: list[int] | None = None, **options: str) -> Plan:
    net = load_topology(spec)
    c = make_collective(kind, net, size)
    if ranks is not None:
        c = replace(c, ranks=np.array(ranks, dtype=np.int32))
    return run_planner("by-dimension", net, Workload((c,)), options=options)


def lasts(plan: Plan) -> float:
    assert verify(plan).ok
    done = simulate(plan).completion_s
    assert done == pytest.approx(plan.meta["schedule"]["completion_s"], rel=1e-9)
    return done


def test_a_plane_of_a_dimension_is_a_switch_for_each_of_its_lines():
    net = load_topology(CUBE)
    assert len(net.planes) == 6 * 16
    first = [p.nodes.tolist() for p in net.planes[:2]]
    assert first == [[0, 16, 32, 48], [1, 17, 33, 49]]
    assert net.planes[2 * 16].nodes.tolist() == [0, 1, 2, 3]
    grid = grid_of(net)
    assert not isinstance(grid, str)
    assert grid.dims == (4, 4, 4)
    assert grid.dimension.tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("kind", ["reducescatter", "allgather", "allreduce", "alltoall"])
@pytest.mark.parametrize("spec", ["optical:6,3?dims=2x3&initial=shift1", "optical:8,3?dims=2x2x2&latency=0us"])
@pytest.mark.parametrize("rotate", ["yes", "no"])
def test_every_collective_arrives_whatever_the_grid(spec, kind, rotate):
    lasts(planned(spec, kind, 6_000_000, rotate=rotate))


@pytest.mark.parametrize("kind", ["allreduce", "alltoall"])
def test_ranks_may_sit_anywhere_on_the_grid(kind):
    lasts(planned("optical:6,2?dims=3x2", kind, 600_000, ranks=[3, 0, 5, 1, 4, 2]))


def test_rings_in_all_lines_keep_every_dimension_busy_from_beginning_to_end():
    plan = planned(CUBE, "reducescatter", 64_000_000, line="ring", rotate="yes")
    # each third goes 3/4 + 3/16 + 3/64 of its way on planes of a third of the bandwidth each: 63/64 of all
    assert lasts(plan) == pytest.approx(64e6 * 63 / 64 / 100e9 + 9 * 20e-6, rel=1e-4)
    one_by_one = planned(CUBE, "reducescatter", 64_000_000, line="ring", rotate="no")
    assert lasts(one_by_one) == pytest.approx(3 * 64e6 * 63 / 64 / 100e9 + 9 * 20e-6, rel=1e-4)


def test_the_better_of_rotating_and_not_is_taken():
    both = [lasts(planned("optical:6,2?dims=2x3", "alltoall", 6_000_000, rotate=r)) for r in ("yes", "no")]
    assert lasts(planned("optical:6,2?dims=2x3", "alltoall", 6_000_000)) == min(both) < max(both)


def test_no_dimension_comes_twice_in_a_phase_and_parts_wait_for_their_own():
    phased = on_grid("allreduce", (2, 2, 2), np.arange(8), 3, "ring")
    assert phased.dimension.tolist() == [0, 1, 2, 1, 2, 0, 2, 0, 1, 2, 0, 1, 1, 2, 0, 0, 1, 2]
    parts = [set((step.block % 3).tolist()) for step in phased.algorithm.steps("allreduce", 8)]
    for step, before in enumerate(phased.after):
        assert step < 3 or parts[step] in [parts[b] for b in before]
    of = [np.flatnonzero(phased.dimension == d).tolist() for d in range(3)]
    assert all(a in phased.after[b] for own in of for a, b in pairwise(own))


def test_a_circuit_from_line_to_line_is_refused():
    plan = planned("optical:6,2?dims=2x3", "allgather", 60_000)
    other = np.where(plan.plane == plan.plane.max(), plan.plane - 1, plan.plane).astype(np.int32)
    finding = verify(replace(plan, plane=other)).finding
    assert finding is not None
    assert finding.code == "no-circuit"


def test_the_way_between_lines_has_a_hop_for_each_dimension():
    between = distances(load_topology("optical:6,2?dims=2x3&latency=5us,7us"), 1.0)
    np.testing.assert_allclose(between[0], [0, 7e-6, 7e-6, 5e-6, 12e-6, 12e-6])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("optical:8,2?dims=2x3", "has 6 nodes, not 8"),
        ("optical:8,2?dims=2x2x2", "3 dimensions need a plane each"),
        ("optical:8,2?dims=8", "no grid of at least two dimensions"),
        ("optical:8,2?dims=8x1", "no grid of at least two dimensions"),
        ("optical:6,2?dims=2x3&initial=shift2", "does not join 2 ports"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(spec, message):
    with pytest.raises(InputError, match=message):
        load_topology(spec)


def test_what_it_cannot_serve_is_refused_with_the_reason():
    with pytest.raises(Unsupported, match="dims=AxB"):
        planned("optical:8,2", "allreduce", 8000)
    with pytest.raises(Unsupported, match="rabenseifner does not serve allreduce in lines of 2x3"):
        planned("optical:6,2?dims=2x3", "allreduce", 60_000, line="rabenseifner")
    net = load_topology("optical:6,2?dims=2x3")
    net = replace(net, planes=net.planes[1:])
    with pytest.raises(Unsupported, match="some line of dimension 0 has no plane"):
        run_planner("by-dimension", net, Workload((make_collective("allreduce", net, 6000),)))
    net = load_topology("optical:6,2?dims=2x3")
    with pytest.raises(Unsupported, match="no port on the first plane"):
        run_planner("pairwise+swot", net, Workload((make_collective("alltoall", net, 6000),)))
