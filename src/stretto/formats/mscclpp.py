"""MSCCL++ execution plans (JSON), as microsoft/mscclpp's src/core/executor/execution_plan.cc loads them.

One threadblock a GPU runs its steps one after the other. A send puts the chunk into a slot of the
peer's scratch that no other message uses, and signals; a receipt waits, then copies the slot to the
chunk's own, or adds it. So no rank writes where another still reads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..timeline import Timeline
from . import written_whole
from .steps import Program, Slot, program_of

MEMORY = "memory"
"""The type of all channels: peers that map each other's memory, as within a server."""


def write(timeline: Timeline, path: str) -> Sequence[str]:
    """Write the execution plan; what was lowered on the way comes back as notes.

    Raises:
        Unsupported: the plan holds what steps cannot say.
    """
    program = program_of(timeline)
    with written_whole(path) as file:
        json.dump(to_json(program, timeline.plan.topology.name), file, indent=1)
        file.write("\n")
    return [*program.notes, "one threadblock a GPU, memory channels, a scratch slot a message: correct, not fast"]


def to_json(program: Program, name: str) -> dict[str, Any]:
    """The object of an execution plan."""
    peers: list[set[int]] = [set() for _ in range(program.ranks)]
    staged: dict[int, int] = {}
    scratch = list(program.scratch)
    for number, step in enumerate(program.steps):
        if step.kind == "s":
            peers[step.rank].add(step.peer)
            peers[step.peer].add(step.rank)
            staged[number] = scratch[step.peer]
            scratch[step.peer] += 1
    channel = [{peer: i for i, peer in enumerate(sorted(own))} for own in peers]
    ops: list[list[dict[str, Any]]] = [[] for _ in range(program.ranks)]
    for number, step in enumerate(program.steps):
        own = ops[step.rank]
        if step.kind == "cpy":
            own.append({"name": "copy", "src_buff": [_local(step.src)], "dst_buff": [_local(step.dst)]})
        elif step.kind == "s":
            via = {"channel_ids": [channel[step.rank][step.peer]], "channel_type": MEMORY}
            slot = {"buffer_id": channel[step.rank][step.peer], "index": staged[number], "size": 1}
            own.append({"name": "put", "src_buff": [_local(step.src)], "dst_buff": [slot]} | via)
            own += [{"name": "nop"}, {"name": "signal"} | via]
        else:
            got = _local(("s", staged[step.partner]))
            own.append({"name": "wait", "channel_ids": [channel[step.rank][step.peer]], "channel_type": MEMORY})
            sums = [_local(step.dst), got]
            add = {"name": "re", "src_buff": sums, "dst_buff": [_local(step.dst)], "reduce_op": "sum"}
            copy = {"name": "copy", "src_buff": [got], "dst_buff": [_local(step.dst)]}
            own += [{"name": "nop"}, add if step.kind == "rrc" else copy]
        own.append({"name": "nop"})
    return {
        "name": f"stretto {name}",
        "collective": program.kind,
        "protocol": "Simple",
        "inplace": False,
        "reuse_resources": False,
        "gpus": [
            {
                "id": rank,
                "input_chunks": program.inputs[rank],
                "output_chunks": program.outputs[rank],
                "scratch_chunks": scratch[rank],
                "threadblocks": [_threadblock(ops[rank], len(peers[rank]))],
                "channels": [{"channel_type": MEMORY, "connected_to": sorted(peers[rank])}],
                "remote_buffers": [
                    {"rank": p, "type": "s", "access_channel_types": [MEMORY]} for p in sorted(peers[rank])
                ],
                "semaphores": [],
            }
            for rank in range(program.ranks)
        ],
    }


def _threadblock(ops: list[dict[str, Any]], peers: int) -> dict[str, Any]:
    ids = list(range(peers))
    return {
        "id": 0,
        "ops": ops,
        "channels": [{"channel_type": MEMORY, "channel_ids": ids}],
        "remote_buffer_refs": [{"access_channel_type": MEMORY, "remote_buffer_ids": ids}],
    }


def _local(slot: Slot) -> dict[str, Any]:
    return {"type": slot[0], "index": slot[1], "size": 1}
