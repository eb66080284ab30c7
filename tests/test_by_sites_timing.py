"""When transfers between sites and inside them go."""

from __future__ import annotations

import numpy as np
import pytest

from heldout_networks import KINDS
from stretto.model.arrays import Ragged
from stretto.model.collective import Workload, make_collective
from stretto.model.plan import Plan, make_plan
from stretto.model.topology import ACCELERATOR, ROUTER, Topology, make_topology
from stretto.planners import run_planner
from stretto.planners.by_sites import timing
from stretto.planners.by_sites.contraction import Contraction
from stretto.schedule.best import completion_s
from stretto.schedule.effort import Budget
from stretto.schedule.scheduling_problem import COSTS
from stretto.verify import verify


def two_sites() -> tuple[Topology, dict[tuple[int, int], int]]:
    """GPUs 0 and 1, joined to each other and to router 4, and the same of 2, 3 and 5; routers 4 and 5 are far apart."""
    ends = [(0, 1), (2, 3), (0, 4), (1, 4), (2, 5), (3, 5)]
    links = [(a, b, 100.0, 0.0) for x, y in ends for a, b in ((x, y), (y, x))] + [(4, 5, 20.0, 1.0), (5, 4, 20.0, 1.0)]
    net = make_topology("two sites", [ACCELERATOR] * 4 + [ROUTER] * 2, links)
    return net, {(int(a), int(b)): i for i, (a, b) in enumerate(zip(net.src, net.dst, strict=True))}


def crossing(net: Topology, ways: list[list[int]]) -> Plan:
    """A transfer of 10 bytes over each of these ways."""
    ends = [(int(net.src[way[0]]), int(net.dst[way[-1]])) for way in ways]
    src, dst = zip(*ends, strict=True)
    work = Workload((make_collective("allgather", net, 40),))
    return make_plan(
        net, work, "ready-order", chunk=src, src=src, op=[0] * len(ways), dst=Ragged.single(dst), route=Ragged.of(ways),
        depends=Ragged.empty(len(ways)),
    )  # fmt: skip


def test_what_goes_inside_leaves_room_for_what_crosses_on_its_links():
    net, link = two_sites()
    far = [link[0, 4], link[4, 5], link[5, 2]]
    plan = crossing(net, [far, far, [link[0, 1]], [link[0, 4], link[4, 1]]])
    lane = np.array([0, 1, -1, -1])
    # 10 bytes in 1 s and in 0.5 s are a tenth and a fifth of link 0 to 4
    room = timing._room(plan, lane, np.array([1.0, 0.5, 0.1, 0.1]))
    assert room.tolist() == pytest.approx([0.5, 0.5, 1.0, 0.7])
    # of one lane only one goes at a time
    assert timing._room(plan, np.array([0, 0, -1, -1]), np.array([1.0, 0.5, 0.1, 0.1]))[3] == pytest.approx(0.8)


def test_transfers_between_sites_have_one_lane_for_each_way_whatever_their_doors():
    net, link = two_sites()
    ways = [[link[0, 4], link[4, 5], link[5, 2]], [link[1, 4], link[4, 5], link[5, 3]], [link[0, 1]]]
    ways += [[link[3, 5], link[5, 4], link[4, 0]]]
    plan = crossing(net, ways)
    sites = Contraction.of(net, np.array([0, 0, 1, 1, -1, -1]))
    lane = timing._lanes(plan, np.array([True, True, False, True]), sites)
    assert lane[0] == lane[1] != lane[3] and lane[2] == -1 and min(lane[[0, 3]]) == 0
    seconds = np.array([2.0, 2.0, 0.1, 2.0])
    start = timing._with_lanes(plan, lane, seconds).list_schedule(np.arange(4), np.zeros(4), Budget().with_costs(COSTS))
    assert start.tolist() == [0.0, 2.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("kind", "part", "instead"),
    [
        ("allgather", "_with_lanes", lambda plan, lane, s: timing.SchedulingProblem.of(plan, np.arange(len(lane)))),
        ("allreduce", "_room", lambda plan, lane, s: np.ones(len(lane))),
    ],
)
def test_regions_end_sooner_by_lanes_and_by_room(kind, part, instead, monkeypatch):
    net = KINDS["regions"](np.random.default_rng(2))
    work, ends_s = Workload((make_collective(kind, net, 64_000_000),)), list[float]()
    for without in (False, True):
        if without:
            monkeypatch.setattr(timing, part, instead)
        plan = run_planner("by-sites", net, work, effort="normal")
        assert verify(plan).ok
        ends_s.append(completion_s(plan))
    assert 1.05 * ends_s[0] < ends_s[1]
