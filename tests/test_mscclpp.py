"""MSCCL++ execution plans: what MSCCL++'s loader requires, and what they compute, run on NumPy buffers."""

from __future__ import annotations

import json
import random
from collections import Counter

import numpy as np
import pytest

from stretto.collective import Workload, make_collective
from stretto.errors import Unsupported
from stretto.formats import exporters
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology

OPS = {"copy", "nop", "put", "signal", "wait", "re"}


def execute(plan: dict, inputs: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """Outputs of all ranks; ranks take turns at random. Knows the format, and nothing of stretto."""
    assert {"name", "collective", "protocol", "inplace", "gpus"} <= set(plan)
    memory, programs = [], []
    for rank, gpu in enumerate(plan["gpus"]):
        assert gpu["id"] == rank and len(inputs[rank]) == gpu["input_chunks"]
        sizes = {"i": gpu["input_chunks"], "o": gpu["output_chunks"], "s": gpu["scratch_chunks"]}
        memory.append({b: np.full((n, 3), -1, dtype=np.int64) for b, n in sizes.items()})
        memory[-1]["i"][:] = inputs[rank]
        (block,) = gpu["threadblocks"]
        peers = [p for c in gpu["channels"] for p in c["connected_to"]]
        assert all(rank in [p for c in plan["gpus"][p]["channels"] for p in c["connected_to"]] for p in peers)
        programs.append((block, peers, gpu["remote_buffers"]))
    signals, done, rng = Counter(), [0] * len(memory), random.Random(seed)
    active = [r for r, p in enumerate(programs) if p[0]["ops"]]
    stuck = 0
    while active:
        rank = rng.choice(active)
        block, peers, remote = programs[rank]
        op = block["ops"][done[rank]]
        assert op["name"] in OPS
        ids = [block["channels"][0]["channel_ids"][i] for i in op.get("channel_ids", ())]

        def place(ref, rank=rank, block=block, remote=remote):
            if "buffer_id" in ref:
                far = remote[block["remote_buffer_refs"][0]["remote_buffer_ids"][ref["buffer_id"]]]
                return memory[far["rank"]][far["type"]], ref["index"]
            return memory[rank][ref["type"]], ref["index"]

        if op["name"] == "wait":
            key = (peers[ids[0]], rank)
            if not signals[key]:
                stuck += 1
                assert stuck < 100_000, "no rank can go on"
                continue
            signals[key] -= 1
        elif op["name"] == "signal":
            signals[rank, peers[ids[0]]] += 1
        elif op["name"] in ("copy", "put", "re"):
            parts = [buffer[i] for buffer, i in map(place, op["src_buff"])]
            target, at = place(op["dst_buff"][0])
            target[at] = sum(parts[1:], parts[0].copy())
        stuck = 0
        done[rank] += 1
        if done[rank] == len(block["ops"]):
            active.remove(rank)
    assert not +signals
    return [m["o"] for m in memory]


@pytest.mark.parametrize("net", ["dgx1", "ndv2:2", "torus:4x4"])
@pytest.mark.parametrize("kind", ["allgather", "reducescatter", "allreduce", "alltoall"])
@pytest.mark.parametrize("planner", ["mtegcca", "shortest-path", "scale-ccl", "ring", "nccl"])
def test_the_plan_computes_its_collective(net, kind, planner, tmp_path):
    topology = load_topology(net)
    n = len(topology.accelerators)
    try:
        plan = run_planner(planner, topology, Workload((make_collective(kind, topology, 64 * n),)))
    except Unsupported as refused:
        pytest.skip(str(refused))
    path = tmp_path / "plan.json"
    exporters()["mscclpp"].write(simulate(plan), str(path))
    data = json.loads(path.read_text())
    k = plan.workload.chunk_count // len(plan.workload.collectives[0].piece_bytes)
    rows = {"allgather": k, "allreduce": k}.get(kind, n * k)
    inputs = [np.random.default_rng(r).integers(0, 10**6, (rows, 3)) for r in range(n)]
    total = sum(inputs)
    for r, output in enumerate(execute(data, inputs, 1)):
        wanted = {
            "allgather": lambda: np.concatenate(inputs),
            "allreduce": lambda: total,
            "reducescatter": lambda r=r: total[r * k : (r + 1) * k],
            "alltoall": lambda r=r: np.concatenate([i[r * k : (r + 1) * k] for i in inputs]),
        }[kind]()
        np.testing.assert_array_equal(output, wanted)
