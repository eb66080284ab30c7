"""Several collectives bounded together: no plan beats it, and it says what each collective alone does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from examples import one_in
from networks import random_network
from stretto.bounds import bounds
from stretto.bounds.together import joined_pairs, parts_together
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology


def on_rails(kind: str, size: int, servers: int = 4) -> tuple:
    topology = load_topology(f"h100:{servers}?message=0us")
    rails = [topology.accelerators[k::8].tolist() for k in range(8)]
    return topology, Workload(tuple(make_collective(kind, topology, size, ranks=rail) for rail in rails))


def test_sums_on_all_rails_need_all_nics():
    topology, workload = on_rails("allreduce", 10**8)
    # 8 collectives, 4 servers of 400 GB/s
    expected = 8 * 2 * 3 * 1e8 / (4 * 400e9)
    (found,) = parts_together(topology, workload)
    assert found.seconds == pytest.approx(expected, rel=1e-9)
    assert bounds(topology, workload)[0].seconds >= expected * (1 - 1e-9)
    alone = max(bounds(topology, Workload((c,)))[0].seconds for c in workload.collectives)
    assert alone < 0.7 * expected


def test_collectives_that_start_later_are_bounded_from_then_on():
    topology, workload = on_rails("allreduce", 10**8)
    late = Workload((workload.collectives[0], *(replace(c.listed, start_s=1.0) for c in workload.collectives[1:])))
    first, later = parts_together(topology, late)
    assert first.seconds == parts_together(topology, workload)[0].seconds
    assert later.seconds == pytest.approx(1.0 + first.seconds * 7 / 8, rel=1e-9)


def test_one_allreduce_has_no_bound_together():
    topology, workload = on_rails("allreduce", 10**8)
    assert parts_together(topology, Workload(workload.collectives[:1])) == []


def test_exchanges_are_joined_to_one():
    topology, workload = on_rails("alltoall", 4 * 10**8)
    joined, *alone = joined_pairs(workload)
    assert np.array_equal(joined.ranks, topology.accelerators)
    assert joined.piece_count == 8 * 16
    assert joined.piece_bytes.sum() == 8 * 4 * 4 * 10**8
    pairs = set(zip(joined.holders.values.tolist(), joined.wanted.values.tolist(), strict=True))
    assert all(a % 8 == b % 8 for a, b in pairs)
    assert len(pairs) == 8 * 16
    assert [c.ranks.tolist() for c in alone] == [c.ranks.tolist() for c in workload.collectives[: len(alone)]]


@pytest.mark.parametrize(("seed", "kind"), one_in(2, range(6), ["allreduce", "alltoall", "scatter"]))
def test_no_plan_beats_them(seed, kind):
    topology = random_network(seed)
    rng = np.random.default_rng(seed)
    nodes = topology.accelerators
    parts = [rng.choice(nodes, rng.integers(2, len(nodes) + 1), replace=False).tolist() for _ in range(3)]
    collectives = [
        replace(make_collective(kind, topology, int(rng.integers(10**3, 10**6)), ranks=own).listed, start_s=start_s)
        for own, start_s in zip(parts, (0.0, 0.0, 1e-3), strict=True)
    ]
    workload = Workload(tuple(collectives))
    least = bounds(topology, workload)[0].seconds
    for planner in ("greedy", "forest", "paths"):
        try:
            plan = run_planner(planner, topology, workload, effort="0.05")
        except Unsupported:
            continue
        assert least <= simulate(plan).completion_s * (1 + 1e-9)
