"""What rounding does to moments: transfers of a few bytes, sums made with time reversed, late starts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from odd_requests import drawn, wrong
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Infeasible, Unsupported
from stretto.model.plan import Plan
from stretto.planners import run_planner
from stretto.schedule.moments import ends, settled
from stretto.schedule.pipes import build_network
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


def test_bytes_that_are_sent_long_before_they_arrive_do_not_overlap():
    near = load_topology("dgx2:1")
    net = replace(near, latency_s=near.latency_s * 1000)
    plan = run_planner("greedy", net, Workload((make_collective("broadcast", net, 6, chunks=5),)))
    verdict = verify(plan)
    assert verdict.ok, verdict.finding


@pytest.mark.parametrize(("planner", "kind"), [("greedy", "allreduce"), ("forest", "allreduce"), ("paths", "alltoall")])
def test_late_starts_are_no_delay(planner, kind):
    first, later = (planned(planner, "dgx1", kind, 80_000, start_s=s) for s in (0.0, 2.0**20))
    assert first.transfer_count == later.transfer_count
    assert simulate(later).completions_s[0] == pytest.approx(simulate(first).completions_s[0], abs=1e-7)


def test_how_late_links_of_a_pipe_are_is_not_rounded_by_other_pipes():
    """Beside a sum over all pipes, of which there are thousands, bytes that take 1e-10 s would overlap."""
    network = build_network(load_topology("h100:16"), 8.0, True, 0.0)
    latency_s = network.topology.latency_s
    for pipe in range(0, len(network.src), 97):
        late_s = [0.0]
        for link in network.hops[pipe].tolist():
            late_s.append(late_s[-1] + latency_s[link])
        own = slice(network.hops.offsets[pipe], network.hops.offsets[pipe + 1])
        assert network.late_s[own].tolist() == late_s[:-1]


def test_what_already_fits_stays_as_it_is():
    plan = planned("greedy", "torus:4x4", "allgather", 16 << 20)
    again = settled(plan, plan.start_s, plan.finish_s - plan.start_s)
    assert np.array_equal(again.start_s, plan.start_s)


def test_an_end_is_rounded_up_where_a_transfer_would_be_too_short():
    start, seconds = np.array([0.0, 1.0, 1e6]), np.array([1e-11, 1e-11, 1e-11])
    assert (ends(start, seconds) - start >= seconds * (1 - 1e-9)).all()
    assert ends(start, seconds)[0] == 1e-11


def test_collectives_so_far_apart_that_steps_between_them_are_too_many_are_refused():
    net = load_topology("ring:5")
    both = Workload(tuple(make_collective("broadcast", net, 4, start_s=s) for s in (0.0, 1e6)))
    with pytest.raises(Infeasible, match="unknowns"):
        run_planner("milp-allgather", net, both)
    with pytest.raises(Infeasible, match="unknowns"):
        run_planner("teccl", net, both, options={"epochs": "1" + 15 * "0"})


@pytest.mark.parametrize("refiner", ["equal-alloc", "tcp-fair", "rate-alloc", "multiring", "wan", "non-concurrent"])
def test_what_shares_links_out_refuses_planes(refiner):
    with pytest.raises(Unsupported, match="not optical planes"):
        planned(refiner, "optical:6,2", "allgather", 600)


PLANNERS = (
    *("greedy", "forest", "paths", "switch-trees", "scale-ccl", "mtegcca"),
    *("birkhoff", "equal-alloc", "multiring", "swot", "taccl"),
)


@pytest.mark.parametrize("seed", [11, 47, 49, 74, 77, 93, 116, 121, 133, 160, 186, 188])
def test_odd_requests_get_right_plans_or_refusals(seed):
    request = drawn(seed, [*PLANNERS])
    assert request is not None
    assert wrong(request) is None, str(request)
