"""MSCCL++ execution plans (JSON), as microsoft/mscclpp's src/core/executor/execution_plan.cc loads them.

A GPU runs its steps one after another. A send writes the chunk into a slot of the peer's scratch buffer that no other
message uses, and signals. A receipt waits for the signal, then copies or adds the slot to the chunk's own place. A
threadblock takes a limited number of operations (execution_common.hpp): a semaphore starts the next one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..model.targets import TARGETS
from ..model.timeline import Timeline
from . import atomic_file
from .steps import Program, Slot, Step, program_of

MEMORY = "memory"
"""The type of all channels: peers map each other's memory, as GPUs of one server do."""
TARGET = TARGETS["mscclpp"]
"""What a threadblock takes: operations, which are its steps, and channels."""
NOP = {"name": "nop"}
"""A barrier among the threads of a threadblock."""


@dataclass
class _Block:
    """A threadblock that is being filled: its operations, and the peers that they refer to by index."""

    ops: list[dict[str, Any]] = field(default_factory=list)
    peers: list[int] = field(default_factory=list)


def write(timeline: Timeline, path: str) -> Sequence[str]:
    """Write the execution plan; returns notes on what the format could not keep."""
    program = program_of(timeline, TARGET)
    with atomic_file(path) as file:
        json.dump(to_json(program, timeline.plan.topology.name), file, indent=1)
        file.write("\n")
    return [*program.notes, "steps one after the other, memory channels, a scratch slot a message: correct, not fast"]


def to_json(program: Program, name: str) -> dict[str, Any]:
    """The object of an execution plan."""
    scratch = list(program.scratch)
    slots: dict[int, int] = {}
    blocks = [[_Block()] for _ in range(program.ranks)]
    for number, step in enumerate(program.steps):
        if step.kind == "s":
            slots[number] = slots[step.partner] = scratch[step.peer]
            scratch[step.peer] += step.count
        _append(blocks[step.rank], step, slots.get(number, -1))
    # a rank that holds or wants nothing passes a buffer all the same: the loader divides by its chunks
    inputs, outputs = ([n or max(chunks) for n in chunks] for chunks in (program.inputs, program.outputs))
    return {
        "name": f"stretto {name}",
        "collective": program.kind,
        "protocol": "Simple",
        "inplace": False,
        "reuse_resources": False,
        "gpus": list(map(_gpu, range(program.ranks), blocks, inputs, outputs, scratch)),
    }


def _append(blocks: list[_Block], step: Step, slot: int) -> None:
    """Add the operations of a step to the last threadblock of its rank, or to a new one where that is full."""
    wanted = 2 if step.kind in ("cpy", "re") else 4
    block = blocks[-1]
    full = len(block.ops) + wanted + 1 > TARGET.steps
    if full or (step.peer not in block.peers and len(block.peers) == TARGET.channels):
        block.ops.append({"name": "sem_release", "semaphore_ids": [len(blocks) - 1]})
        block = _Block([{"name": "sem_acquire", "semaphore_ids": [len(blocks) - 1]}, NOP])
        blocks.append(block)
    if step.kind == "re":
        added = [_local(step.dst, step.count), _local(step.src, step.count)]
        block.ops += [{"name": "re", "src_buff": added, "dst_buff": added[:1], "reduce_op": "sum"}, NOP]
        return
    if step.kind == "cpy":
        copy = {"name": "copy", "src_buff": [_local(step.src, step.count)], "dst_buff": [_local(step.dst, step.count)]}
        block.ops += [copy, NOP]
        return
    if step.peer not in block.peers:
        block.peers.append(step.peer)
    place = block.peers.index(step.peer)
    via = {"channel_ids": [place], "channel_type": MEMORY}
    if step.kind == "s":
        there = {"buffer_id": place, "index": slot, "size": step.count}
        put = {"name": "put", "src_buff": [_local(step.src, step.count)], "dst_buff": [there]}
        block.ops += [put | via, NOP, {"name": "signal"} | via, NOP]
        return
    got, own = _local(("s", slot), step.count), _local(step.dst, step.count)
    add = {"name": "re", "src_buff": [own, got], "dst_buff": [own], "reduce_op": "sum"}
    copy = {"name": "copy", "src_buff": [got], "dst_buff": [own]}
    block.ops += [{"name": "wait"} | via, NOP, add if step.kind == "rrc" else copy, NOP]


def _gpu(rank: int, blocks: list[_Block], inputs: int, outputs: int, scratch: int) -> dict[str, Any]:
    """A rank's threadblocks, and the channels and buffers that they share."""
    peers = sorted({p for block in blocks for p in block.peers})
    channel = {p: i for i, p in enumerate(peers)}
    return {
        "id": rank,
        "input_chunks": inputs,
        "output_chunks": outputs,
        "scratch_chunks": scratch,
        "threadblocks": [_threadblock(i, block, [channel[p] for p in block.peers]) for i, block in enumerate(blocks)],
        "channels": [{"channel_type": MEMORY, "connected_to": peers}],
        "remote_buffers": [{"rank": p, "type": "s", "access_channel_types": [MEMORY]} for p in peers],
        "semaphores": [{"init_value": 0}] * (len(blocks) - 1),
    }


def _threadblock(number: int, block: _Block, ids: list[int]) -> dict[str, Any]:
    channels = [{"channel_type": MEMORY, "channel_ids": ids}]
    buffers = [{"access_channel_type": MEMORY, "remote_buffer_ids": ids}]
    return {"id": number, "ops": block.ops, "channels": channels, "remote_buffer_refs": buffers}


def _local(slot: Slot, count: int) -> dict[str, Any]:
    return {"type": slot[0], "index": slot[1], "size": count}
