"""The published completion times of SCALE-CCL's baselines (section 5) on what its figures imply:
3 sites of 4 GPUs, chunks of 2^k/1024 GB (see the notes on the paper)."""

from __future__ import annotations

import pytest

from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology


def completion_us(planner: str, km: int, shard: int, **options) -> float:
    net = load_topology(f"sites:3,4?km={km}")
    work = Workload((make_collective("allgather", net, shard_bytes=shard),))
    return 1e6 * simulate(run_planner(planner, net, work, options=options)).completion_s


@pytest.mark.parametrize(("km", "shard", "published_us"), [(50, 250_000_000, 220_251.4), (100, 15_625_000, 14_251.4)])
def test_section_5_nccl_with_one_ring(km, shard, published_us):
    assert completion_us("nccl-ring", km, shard, channels="1", slices=1) == pytest.approx(published_us, abs=0.05)


def test_section_5_shortest_paths_are_far_behind_one_ring():
    one_ring = completion_us("nccl-ring", 50, 250_000_000, channels="1", slices=1)
    assert completion_us("shortest-path", 50, 250_000_000, copy=False, cost="alpha") > 1.5 * one_ring
