"""What every refiner of optical schedules must keep, after every algorithm and on planes of all kinds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from examples import one_in
from stretto.bounds import bounds
from stretto.formats.native import read_plan, write_plan
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.plan import Plan
from stretto.planners import Request, registered, run_planner
from stretto.schedule.algorithms import ALGORITHMS
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

REFINERS = [e.name for e in registered().values() if e.refines and e.topologies == "optical planes"]
CASES = [(a.name, kind, refiner) for a in ALGORITHMS.values() for kind in a.kinds for refiner in REFINERS]
NETWORKS = [
    "optical:4,2",
    "optical:5,4?initial=shift1,shift2,free,free",
    "optical:8,3?initial=xor1&latency=0us",
    "optical:6,2?shares=2,1&reconfiguration=200us,20us&latency=5us,20us",
]
SOLVED_S = 0.15
"""Wall-clock seconds for what proves an optimum. A schedule that is stopped early keeps the same contract."""


def planned(spec: str, net_spec: str, kind: str, size: int = 1_000_003, chunks: int = 1) -> Plan:
    net = load_topology(net_spec)
    try:
        work = Workload((make_collective(kind, net, size, chunks=chunks),))
        return run_planner(spec, net, work, time_limit_s=SOLVED_S)
    except Unsupported as refusal:
        pytest.skip(str(refusal))


@pytest.mark.parametrize(
    ("algorithm", "kind", "refiner", "net"), [(*case, net) for case, net in one_in(2, CASES, NETWORKS)]
)
def test_plans_verify_keep_their_claim_and_never_beat_a_bound(algorithm, kind, refiner, net):
    plan = planned(f"{algorithm}+{refiner}", net, kind)
    verdict = verify(plan)
    assert verdict.ok, verdict.finding
    timeline = simulate(plan)
    np.testing.assert_allclose(timeline.start_s, plan.start_s, rtol=1e-9, atol=1e-18)
    np.testing.assert_allclose(timeline.turn_start_s, plan.turns.start_s, rtol=1e-9, atol=1e-18)
    facts = plan.meta["schedule"]
    # bytes are whole, so in each step a share may be a byte more than the schedule said
    byte_s = 1 / min(p.bandwidth for p in plan.topology.planes)
    steps = int(plan.group.max()) + 1
    assert timeline.completion_s == pytest.approx(facts["completion_s"], rel=1e-9, abs=steps * byte_s)
    assert facts["bound_s"] <= facts["completion_s"]
    assert timeline.completion_s >= bounds(plan.topology, plan.workload)[0].seconds * (1 - 1e-9)


@pytest.mark.parametrize(("algorithm", "kind", "refiner"), [c for c in CASES if c[2] != "swot-milp"])
def test_nothing_comes_later_without_barriers(algorithm, kind, refiner):
    plan = planned(f"{algorithm}+{refiner}", NETWORKS[0], kind)
    assert simulate(plan, barriers=False).completion_s <= simulate(plan).completion_s * (1 + 1e-9)


@pytest.mark.parametrize("refiner", REFINERS)
@pytest.mark.parametrize("ending", ["parquet", "json"])
def test_turns_and_barriers_survive_a_file(refiner, ending, tmp_path):
    plan = planned(f"rabenseifner+{refiner}", NETWORKS[2], "reducescatter")
    path = str(tmp_path / f"plan.{ending}")
    write_plan(plan, path)
    again = read_plan(path)
    assert again.digest() == plan.digest()
    assert again.barriers
    assert simulate(again).completion_s == simulate(plan).completion_s


@pytest.mark.parametrize("refiner", REFINERS)
def test_a_network_without_planes_is_refused_by_name(refiner):
    net = load_topology("fullmesh:4")
    with pytest.raises(Unsupported, match=f"{refiner} does not serve fullmesh:4: it has no optical planes"):
        run_planner(f"ring+{refiner}", net, Workload((make_collective("allgather", net, 1000),)))


@pytest.mark.parametrize("refiner", REFINERS)
def test_a_plan_that_is_not_in_steps_is_refused(refiner):
    plan = planned("ring", NETWORKS[0], "allgather")
    run = registered()[refiner].run
    with pytest.raises(Unsupported, match="not in steps"):
        run(replace(plan, group=None), Request(plan.topology, plan.workload))


@pytest.mark.parametrize(
    ("net", "kind", "algorithms", "chosen"),
    [
        ("optical:16,4", "allreduce", ("rabenseifner", "recursive-doubling", "ring"), 2),
        ("optical:8,2", "alltoall", ("pairwise", "bruck", "birkhoff"), 2),
    ],
)
def test_swot_alone_is_as_good_as_the_best_algorithm_at_each_size(net, kind, algorithms, chosen):
    names = set()
    for size in (128_000, 4_000_000, 100_000_000):
        best = planned("swot", net, kind, size)
        others = [simulate(planned(f"{name}+swot", net, kind, size)).completion_s for name in algorithms]
        assert simulate(best).completion_s == min(others)
        names.add(best.meta["planner"])
    assert len(names) >= chosen


def test_chunks_cut_by_hand_are_carried_as_well():
    assert verify(planned("ring+swot", NETWORKS[1], "allreduce", chunks=3)).ok
