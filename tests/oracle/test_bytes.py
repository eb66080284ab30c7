"""Plans run on real bytes, in random orders that their dependencies allow.

The executor here knows buffers and dependencies only; what a rank must end with comes from the
plain definition of each collective.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from networks import random_network
from stretto.model.collective import Workload, make_collective
from stretto.model.plan import COPY, Plan
from stretto.planners import run_planner


def run_on_bytes(
    plan: Plan, held: dict[tuple[int, int], np.ndarray], rng: random.Random
) -> dict[tuple[int, int], np.ndarray]:
    """Execute transfers in a random legal order; (chunk, node) -> the bytes there at the end."""
    buffers = {key: value.copy() for key, value in held.items()}
    missing = plan.depends.lengths.copy()
    ready = [k for k in range(plan.transfer_count) if missing[k] == 0]
    while ready:
        k = ready.pop(rng.randrange(len(ready)))
        chunk = int(plan.chunk[k])
        payload = buffers[chunk, int(plan.src[k])].copy()
        for node in map(int, plan.dst[k]):
            here = buffers.get((chunk, node))
            buffers[chunk, node] = payload if plan.op[k] == COPY or here is None else here + payload
        for after in plan.dependents[k]:
            missing[after] -= 1
            if missing[after] == 0:
                ready.append(int(after))
    return buffers


@pytest.mark.parametrize("planner", ["mtegcca", "scale-ccl"])
@pytest.mark.parametrize("kind", ["allgather", "broadcast", "multicast"])
@given(seed=st.integers(0, 10_000), shuffle=st.integers(0, 10_000), chunks=st.integers(1, 3))
def test_every_rank_ends_with_the_right_bytes_in_any_legal_order(kind, planner, seed, shuffle, chunks):
    net = random_network(seed)
    ranks = len(net.accelerators)
    receivers = range(1, ranks) if kind == "multicast" else None
    size = ranks * 60
    c = make_collective(kind, net, size, root=0, receivers=receivers, chunks=chunks)
    plan = run_planner(planner, net, Workload((c,)))
    (c,) = plan.workload.collectives  # some planners cut chunks further
    rng = np.random.default_rng(seed)
    shards = [rng.integers(0, 256, 60, dtype=np.uint8) for _ in range(ranks)]
    whole = np.concatenate(shards)

    # where each chunk lies in the buffer that a rank must end with
    start = np.concatenate(([0], np.cumsum(c.piece_bytes)[:-1]))[c.chunk_piece] + c.chunk_offset
    content = [whole[a : a + n] for a, n in zip(start, c.chunk_bytes)]
    held = {(i, int(v)): content[i] for i in range(c.chunk_count) for v in c.chunk_holders[i]}
    buffers = run_on_bytes(plan, held, random.Random(shuffle))
    for rank, node in enumerate(map(int, c.ranks)):
        if kind == "multicast" and rank not in receivers:
            continue
        ends_with = np.concatenate([buffers[i, node] for i in range(c.chunk_count)])
        assert np.array_equal(ends_with, whole)


@pytest.mark.parametrize("kind", ["allreduce", "reducescatter", "reduce"])
@given(seed=st.integers(0, 10_000), shuffle=st.integers(0, 10_000), chunks=st.integers(1, 3))
def test_inverted_plans_sum_every_contribution_once_in_any_legal_order(kind, seed, shuffle, chunks):
    net = random_network(seed)
    c = make_collective(kind, net, len(net.accelerators) * 60, root=1, chunks=chunks)
    plan = run_planner("scale-ccl", net, Workload((c,)))
    rng = np.random.default_rng(seed)
    held = {
        (i, int(v)): rng.integers(0, 256, int(c.chunk_bytes[i]), dtype=np.int64)
        for i in range(c.chunk_count)
        for v in c.chunk_holders[i]
    }
    buffers = run_on_bytes(plan, held, random.Random(shuffle))
    for i in range(c.chunk_count):
        total = sum(held[i, int(v)] for v in c.chunk_holders[i])
        for v in map(int, c.chunk_wanted[i]):
            assert np.array_equal(buffers[i, v], total)
