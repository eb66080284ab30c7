"""Requests that would not fit into memory are refused before work on them begins."""

from __future__ import annotations

import pytest

from stretto.bounds import bounds
from stretto.formats import native
from stretto.model import memory
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import InputError, Unsupported
from stretto.planners import run_planner
from stretto.topologies import load_topology


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr(memory, "memory_bytes", lambda: 200_000)


def request_of(kind: str, ranks: int):
    net = load_topology(f"ring:{ranks}")
    return net, Workload((make_collective(kind, net, 10**6),))


def test_a_ring_among_so_many_ranks_is_refused(little_memory):
    net, workload = request_of("allreduce", 40)
    with pytest.raises(
        Unsupported, match=r"ring does not serve .*3.2e\+03 transfers need about 960 KB of memory.*200 KB"
    ):
        run_planner("ring", net, workload)


def test_a_plan_of_few_transfers_is_made(little_memory):
    net, workload = request_of("broadcast", 40)
    assert run_planner("mtegcca", net, workload).transfer_count


def test_a_buffer_of_too_many_pieces_is_refused(little_memory):
    net = load_topology("ring:200")
    gather = make_collective("allgather", net, 10**6)
    with pytest.raises(InputError, match=r"ranks: allgather among 200 ranks: 4e\+04 pieces at ranks need about 640 KB"):
        _ = gather.holders


def test_bounds_of_too_many_nodes_are_refused(little_memory):
    with pytest.raises(Unsupported, match="distances between nodes"):
        bounds(*request_of("allreduce", 100))


def test_a_plan_file_that_does_not_fit_is_refused(tmp_path, monkeypatch):
    net, workload = request_of("allgather", 20)
    path = str(tmp_path / "plan.parquet")
    native.write_plan(run_planner("ring", net, workload), path)
    assert native.read_plan(path).transfer_count == 380
    monkeypatch.setattr(memory, "memory_bytes", lambda: 1000)
    with pytest.raises(InputError, match=r"plan.parquet: .* values need about .* of memory"):
        native.read_plan(path)
