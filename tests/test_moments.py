"""What rounding does to moments: transfers of a few bytes, sums made with time reversed, late starts."""

from __future__ import annotations

import numpy as np
import pytest

from odd_requests import drawn, wrong
from stretto.collective import Workload, make_collective
from stretto.plan import Plan
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify


def planned(planner: str, spec: str, kind: str, size: int, **how) -> Plan:
    net = load_topology(spec)
    return run_planner(planner, net, Workload((make_collective(kind, net, size, **how),)))


@pytest.mark.parametrize(
    ("planner", "spec", "kind", "size", "chunks"),
    [
        ("greedy", "sites:3,6?routers=2", "reducescatter", 54, 2),
        ("greedy", "zoo:Abilene", "reducescatter", 33, 2),
        ("forest", "sites:3,6", "reduce", 18, 5),
    ],
)
def test_sums_of_a_few_bytes_do_not_overlap(planner, spec, kind, size, chunks):
    verdict = verify(planned(planner, spec, kind, size, chunks=chunks))
    assert verdict.ok, verdict.finding


@pytest.mark.parametrize(
    ("planner", "spec", "kind"), [("switch-trees", "sites:2,3", "allgather"), ("greedy", "dgx1", "reduce")]
)
@pytest.mark.parametrize("start_s", [1.0, 1 / 3, 1e6])
def test_a_plan_is_the_same_whenever_it_starts(planner, spec, kind, start_s):
    first, later = (planned(planner, spec, kind, 7 * 8, start_s=s) for s in (0.0, start_s))
    assert verify(later).ok
    assert later.workload.collectives[0].start_s == start_s
    for name in ("chunk", "src"):
        assert np.array_equal(getattr(first, name), getattr(later, name))
    assert simulate(later).completion_s == pytest.approx(start_s + simulate(first).completion_s, rel=1e-12)


@pytest.mark.parametrize("seed", [0])
def test_odd_requests_get_right_plans_or_refusals(seed):
    request = drawn(seed)
    assert request is None or wrong(request) is None, str(request)
