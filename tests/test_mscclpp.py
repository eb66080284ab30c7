"""MSCCL++ execution plans: what MSCCL++'s loader requires, and what they compute, run on NumPy buffers."""

from __future__ import annotations

import json
import random
from collections import Counter

import numpy as np
import pytest

from stretto.formats import exporters
from stretto.formats.steps import parts_of
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import Unsupported
from stretto.model.targets import TARGETS
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology

KEYS = {
    "plan": {"name", "collective", "protocol", "inplace", "gpus"},
    "gpu": {"id", "input_chunks", "output_chunks", "scratch_chunks", "channels", "remote_buffers", "threadblocks"},
    "threadblock": {"id", "ops", "channels"},
    "remote buffer": {"rank", "type", "access_channel_types"},
}
"""What execution_plan.cc reads without a default (microsoft/mscclpp, src/core/executor)."""
OPS = {"copy", "nop", "put", "signal", "wait", "re", "sem_acquire", "sem_release"}
MOST_OPERATIONS, MOST_CHANNELS, MOST_SEMAPHORES_OF_A_STEP, MOST_ID = 64, 16, 16, 255
"""MAX_OPERATION, MAX_CHANNEL and MAX_DEVICE_SEMAPHORES of execution_common.hpp; ids are bytes there."""


def check_loads(plan: dict) -> None:
    """What MSCCL++'s loader and executor require of a plan: those keys, known words, and its arrays' lengths."""
    assert KEYS["plan"] <= set(plan) and plan["protocol"] in ("Simple", "LL") and plan["inplace"] in (True, False)
    for rank, gpu in enumerate(plan["gpus"]):
        assert KEYS["gpu"] <= set(gpu) and gpu["id"] == rank
        assert gpu["input_chunks"] > 0 and gpu["output_chunks"] > 0, "checkMessageSize divides by both"
        assert all(c["channel_type"] == "memory" and rank not in c["connected_to"] for c in gpu["channels"])
        far = [plan["gpus"][p]["channels"] for c in gpu["channels"] for p in c["connected_to"]]
        assert all(rank in [p for c in own for p in c["connected_to"]] for own in far), "channels have two ends"
        channels = sum(len(c["connected_to"]) for c in gpu["channels"])
        for buffer in gpu["remote_buffers"]:
            assert KEYS["remote buffer"] <= set(buffer) and buffer["type"] in ("i", "o", "s")
        assert [b["id"] for b in gpu["threadblocks"]] == list(range(len(gpu["threadblocks"])))
        for block in gpu["threadblocks"]:
            assert KEYS["threadblock"] <= set(block) and len(block["ops"]) <= MOST_OPERATIONS
            ids = [i for c in block["channels"] for i in c["channel_ids"]]
            buffers = [i for b in block["remote_buffer_refs"] for i in b["remote_buffer_ids"]]
            assert len(ids) <= MOST_CHANNELS and len(buffers) <= MOST_CHANNELS and set(ids) <= set(range(channels))
            assert set(buffers) <= set(range(len(gpu["remote_buffers"])))
            for op in block["ops"]:
                check_operation(op, gpu, len(ids), len(buffers))


def check_operation(op: dict, gpu: dict, channels: int, buffers: int) -> None:
    """One operation: a known name, and references within what its threadblock and GPU have."""
    assert op["name"] in OPS
    assert all(0 <= i < min(channels, MOST_ID) for i in op.get("channel_ids", ()))
    assert len(op.get("semaphore_ids", ())) <= MOST_SEMAPHORES_OF_A_STEP
    assert all(0 <= i < len(gpu["semaphores"]) for i in op.get("semaphore_ids", ()))
    assert ("channel_ids" in op) == (op.get("channel_type") == "memory") == (op["name"] in ("put", "signal", "wait"))
    sizes = {"i": gpu["input_chunks"], "o": gpu["output_chunks"], "s": gpu["scratch_chunks"]}
    for ref in (*op.get("src_buff", ()), *op.get("dst_buff", ())):
        assert ("type" in ref) != ("buffer_id" in ref) and ref["size"] >= 1 and ref["index"] >= 0
        assert ref["size"] == op["src_buff"][0]["size"], "what an operation reads and writes is equally large"
        if "buffer_id" in ref:
            assert 0 <= ref["buffer_id"] < buffers
        else:
            assert ref["index"] + ref["size"] <= sizes[ref["type"]]


def execute(plan: dict, inputs: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """Outputs of all ranks; threadblocks take turns at random. Knows the format, and nothing of stretto."""
    check_loads(plan)
    memory, blocks = [], []
    for rank, gpu in enumerate(plan["gpus"]):
        sizes = {"i": gpu["input_chunks"], "o": gpu["output_chunks"], "s": gpu["scratch_chunks"]}
        memory.append({b: np.full((n, 3), -1, dtype=np.int64) for b, n in sizes.items()})
        memory[-1]["i"][: len(inputs[rank])] = inputs[rank]
        blocks += [(rank, block) for block in gpu["threadblocks"] if block["ops"]]
    signals, semaphores, rng = Counter(), Counter(), random.Random(seed)
    done, stuck = [0] * len(blocks), 0
    active = list(range(len(blocks)))
    while active:
        turn = rng.choice(active)
        rank, block = blocks[turn]
        if not run(block["ops"][done[turn]], rank, block, plan["gpus"][rank], memory, signals, semaphores):
            stuck += 1
            assert stuck < 100_000, "no threadblock can go on"
            continue
        stuck = 0
        done[turn] += 1
        if done[turn] == len(block["ops"]):
            active.remove(turn)
    assert not +signals and not +semaphores, "all is back as it was, for the next run"
    return [m["o"] for m in memory]


def run(op: dict, rank: int, block: dict, gpu: dict, memory: list, signals: Counter, semaphores: Counter) -> bool:
    """One operation, where it can go on."""
    peers = [p for c in gpu["channels"] for p in c["connected_to"]]
    ends = [peers[block["channels"][0]["channel_ids"][i]] for i in op.get("channel_ids", ())]

    def place(ref):
        if "buffer_id" in ref:
            far = gpu["remote_buffers"][block["remote_buffer_refs"][0]["remote_buffer_ids"][ref["buffer_id"]]]
            assert far["rank"] == ends[0], "what is put goes where its channel goes"
            return memory[far["rank"]][far["type"]][ref["index"] : ref["index"] + ref["size"]]
        return memory[rank][ref["type"]][ref["index"] : ref["index"] + ref["size"]]

    if op["name"] == "wait":
        if not signals[ends[0], rank]:
            return False
        signals[ends[0], rank] -= 1
    elif op["name"] == "signal":
        signals[rank, ends[0]] += 1
    elif op["name"] == "sem_acquire":
        if not all(semaphores[rank, i] for i in op["semaphore_ids"]):
            return False
        semaphores.subtract((rank, i) for i in op["semaphore_ids"])
    elif op["name"] == "sem_release":
        semaphores.update((rank, i) for i in op["semaphore_ids"])
    elif op["name"] in ("copy", "put", "re"):
        parts = [place(ref) for ref in op["src_buff"]]
        target = place(op["dst_buff"][0])
        assert len(target) == op["dst_buff"][0]["size"], "it lies within the buffer"
        target[:] = sum(parts[1:], parts[0].copy())
    return True


@pytest.mark.parametrize("net", ["dgx1", "ndv2:2", "torus:4x4"])
@pytest.mark.parametrize("kind", ["allgather", "reducescatter", "allreduce", "alltoall"])
@pytest.mark.parametrize("planner", ["mtegcca", "shortest-path", "scale-ccl", "ring", "nccl", "forest"])
def test_the_plan_computes_its_collective(net, kind, planner, tmp_path):
    topology = load_topology(net)
    n = len(topology.accelerators)
    try:
        plan = run_planner(planner, topology, Workload((make_collective(kind, topology, 64 * n),)))
        path = tmp_path / "plan.json"
        exporters()["mscclpp"].write(simulate(plan), str(path))
    except Unsupported as refused:
        pytest.skip(str(refused))
    data = json.loads(path.read_text())
    k = parts_of(plan.workload.collectives[0], TARGETS["mscclpp"]).number
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


@pytest.mark.parametrize(("kind", "net"), [("broadcast", "dgx1"), ("reduce", "dgx1"), ("alltoall", "star:20")])
def test_ranks_without_input_or_output_and_many_peers_are_within_what_the_loader_takes(kind, net, tmp_path):
    topology = load_topology(net)
    plan = run_planner("shortest-path", topology, Workload((make_collective(kind, topology, 64 * 20),)))
    path = tmp_path / "plan.json"
    exporters()["mscclpp"].write(simulate(plan), str(path))
    check_loads(json.loads(path.read_text()))
