"""What an emulation divides bandwidths and sizes by, and what becomes of a plan's times."""

from __future__ import annotations

import numpy as np
import pytest

from networks import ring
from stretto.emulator.scaling import MOST_S, STRETCHED_S, TRANSFER_BYTES, Scaling, fitting, scaled
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology


def plan_of(planner: str, kind: str, size: int, chunks: int = 1, spec: str = "ring:4?bandwidth=1GB/s&latency=1ms"):
    net = load_topology(spec)
    return run_planner(planner, net, Workload((make_collective(kind, net, size, chunks=chunks, start_s=0.25),)))


@pytest.mark.parametrize("message", ["0us", "100us"])
@pytest.mark.parametrize("planner", ["ring", "forest", "ring+rate-alloc", "ring+weight-alloc"])
def test_all_times_of_a_plan_grow_by_one_factor(planner, message):
    spec = f"ring:4?bandwidth=1GB/s&latency=1ms&message={message}"
    plan = plan_of(planner, "allreduce", 4_000_000, spec=spec)
    by = Scaling(100.0, 8.0)
    assert by.time == 12.5
    before, after = simulate(plan), simulate(scaled(plan, by))
    assert after.start_s == pytest.approx(12.5 * before.start_s, rel=1e-3)
    assert after.finish_s == pytest.approx(12.5 * before.finish_s, rel=1e-3)


def test_smaller_chunks_cover_smaller_pieces():
    whole = plan_of("ring", "allgather", 1_000_003, chunks=7).workload
    (small,) = scaled(plan_of("ring", "allgather", 1_000_003, chunks=7), Scaling(9.7, 9.7)).workload.collectives
    ends = np.flatnonzero(np.diff(small.chunk_piece, append=-1))
    assert (small.chunk_offset[1:] == (small.chunk_offset + small.chunk_bytes)[:-1])[
        np.diff(small.chunk_piece) == 0
    ].all()
    assert ((small.chunk_offset + small.chunk_bytes)[ends] == small.piece_bytes).all()
    assert np.abs(small.chunk_bytes - whole.chunk_bytes / 9.7).max() < 1


def test_a_plan_of_seconds_is_emulated_in_its_own_time():
    plan = plan_of("ring", "allreduce", 10_000_000_000)  # 15 s
    by = fitting(plan)
    assert by.time == 1 and by.bandwidth >= 50
    assert simulate(scaled(plan, by)).completion_s == pytest.approx(simulate(plan).completion_s)


def test_a_plan_of_milliseconds_is_stretched():
    by = fitting(plan := plan_of("ring", "allreduce", 20_000_000), bandwidth=1000.0)
    assert 1 < by.size < by.bandwidth
    assert simulate(scaled(plan, by)).completion_s == pytest.approx(STRETCHED_S, rel=1e-4)


def test_transfers_stay_large_enough_to_be_measured_unless_that_takes_for_ever():
    fine = plan_of("ring", "allreduce", 8_000_000_000, chunks=1000)
    by = fitting(fine, bandwidth=1000.0)
    assert fine.size_bytes.mean() / by.size == pytest.approx(TRANSFER_BYTES)
    coarse = fitting(fine, bandwidth=1e6)
    assert simulate(scaled(fine, coarse)).completion_s == pytest.approx(MOST_S, rel=1e-3)


def test_sizes_are_kept_where_that_is_asked_for_and_never_divided_to_nothing():
    plan = plan_of("ring", "allgather", 4000)
    assert fitting(plan, 50.0, 1.0) == Scaling(50.0, 1.0)
    assert fitting(plan, 1e12).size == 1000
    with pytest.raises(InputError, match="divides a chunk of 1000 bytes by 1001, which leaves none of it"):
        fitting(plan, 50.0, 1001.0)


def test_nothing_is_scaled_that_fits():
    net = ring(3, bandwidth=1e6)
    plan = run_planner("ring", net, Workload((make_collective("allgather", net, 30_000_000),)))
    assert fitting(plan) == Scaling(1.0, 1.0)
