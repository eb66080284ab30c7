"""Sums by inversion: at which ranks the chunks of an AllReduce are summed."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.model.collective import Collective, Workload, make_collective
from stretto.model.plan import REDUCE
from stretto.planners import run_planner
from stretto.topologies import load_topology
from stretto.verify import verify


@pytest.mark.parametrize(
    ("ranks", "chunks", "roots"),
    [
        (8, 1, [4]),
        (8, 2, [2, 6]),
        (6, 4, [0, 2, 3, 5]),
        (4, 4, [0, 1, 2, 3]),
        (4, 10, [0, 1, 2, 3, 0, 1, 2, 3, 1, 3]),
    ],
)
def test_chunks_go_round_the_ranks_and_few_are_spread_evenly(ranks: int, chunks: int, roots: list[int]) -> None:
    assert summed_at(Workload((allreduce(ranks, chunks),)), ranks) == roots


def test_each_collective_has_its_own_rounds() -> None:
    both = Workload((allreduce(8, 2), allreduce(8, 4)))
    assert summed_at(both, 8) == [2, 6, 1, 3, 5, 7]


def allreduce(ranks: int, chunks: int) -> Collective:
    return make_collective("allreduce", load_topology(f"fullmesh:{ranks}"), 1 << 20, chunks=chunks)


def summed_at(workload: Workload, ranks: int) -> list[int]:
    """For each chunk the node that others send sums to and that sends none."""
    plan = run_planner("scale-ccl", load_topology(f"fullmesh:{ranks}"), workload)
    assert verify(plan).ok and plan.workload.chunk_count == workload.chunk_count
    sums, found = plan.op == REDUCE, []
    for chunk in range(workload.chunk_count):
        rows = np.flatnonzero(sums & (plan.chunk == chunk))
        (root,) = set(plan.dst.take(rows).values.tolist()) - set(plan.src[rows].tolist())
        found.append(root)
    return found
