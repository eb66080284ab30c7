"""Estimates of how long a forest takes, and the parts that its trees are cut into."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.model.collective import Workload, make_collective
from stretto.model.topology import ACCELERATOR, ROUTER, SWITCH, make_topology
from stretto.planners import run_planner
from stretto.planners.forest.candidates import forests_of
from stretto.planners.forest.filling import Filling
from stretto.planners.forest.lowering import pipeline
from stretto.planners.forest.planner import COSTS
from stretto.schedule.effort import Budget
from stretto.simulate import simulate


def regions(seed, count=6, gpus=2):
    """GPUs on a switch in each region, behind a port that is narrower than its WAN links together."""
    rng, kinds, links = np.random.default_rng(seed), [], []
    for _ in range(count):
        first = len(kinds)
        kinds += [ACCELERATOR] * gpus + [SWITCH, ROUTER]
        for v in range(first, first + gpus):
            links += [(v, first + gpus, 50e9, 1e-6), (first + gpus, v, 50e9, 1e-6)]
        port = float(rng.uniform(0.4e9, 2e9))
        links += [(first + gpus, first + gpus + 1, port, 5e-6), (first + gpus + 1, first + gpus, port, 5e-6)]
    borders = [v for v, kind in enumerate(kinds) if kind == ROUTER]
    links += [(a, b, float(rng.uniform(0.05e9, 1e9)), 1e-3) for a in borders for b in borders if a != b]
    return make_topology("regions", kinds, links)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["allreduce", "allgather"])
def test_the_estimate_of_a_forest_is_what_its_plan_takes(seed, kind):
    net = regions(seed)
    c = make_collective(kind, net, 10**10)
    forest = forests_of(net, c, 150_000)[0]
    plan = pipeline(net, Workload((c,)), [forest], 100.0, Budget(costs=COSTS))
    assert Filling.of(net, forest).estimated_s(c, plan.transfer_count) == pytest.approx(
        simulate(plan).completion_s, rel=0.04
    )


@pytest.mark.parametrize("seed", range(4))
def test_trees_through_ports_and_routers_become_a_plan_at_nearly_their_rate(seed):
    net = regions(seed)
    c = make_collective("allreduce", net, 10**10)
    fastest_s = min(f.seconds_per_byte(net) for f in forests_of(net, c, 150_000)) * c.size_bytes
    plan = run_planner("forest", net, Workload((c,)), effort="normal")
    assert simulate(plan).completion_s <= 1.06 * fastest_s
