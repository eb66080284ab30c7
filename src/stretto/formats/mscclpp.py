"""MSCCL++ execution plans (JSON), as microsoft/mscclpp's src/core/executor/execution_plan.cc loads them.

The form is that of its language's writer (python/mscclpp/language): an operation names remote buffers and channels by
places in lists of its threadblock, these point to places in lists of the GPU. Programs are made by ``mscclpp_of_plan``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..model.timeline import Timeline
from . import atomic_file
from .mscclpp_of_plan import plan_of
from .mscclpp_program import MEMORY, PORT, Chunks, ExecutionPlan, Gpu, Operation

WITH_CHANNELS = ("signal", "wait", "pws", "pwsf", "flush")
"""Operations whose channels MSCCL++'s writer names; a put through memory only needs the buffer."""
SUMS = ("re", "res", "rre", "rres")
"""Operations that add."""


def write(timeline: Timeline, path: str, sizes: tuple[int, int] | None = None) -> Sequence[str]:
    """Write the execution plan; returns notes on what the format could not keep, and on what is proved.

    Args:
        sizes: the least and the greatest full buffer, bytes, for which MSCCL++ shall take it.
    """
    made, _, notes = plan_of(timeline, sizes)
    before, after = json.dumps(to_json(replace(made, gpus=[]))).split('"gpus": []')
    with atomic_file(path) as file:  # a GPU at a time, and without indents, which would take ten times as long
        file.write(before + '"gpus": [')
        for rank, gpu in enumerate(made.gpus):
            file.write(", " * (rank > 0) + json.dumps(_gpu(rank, gpu)))
        file.write("]" + after + "\n")
    return notes


def to_json(plan: ExecutionPlan) -> dict[str, Any]:
    """The object of an execution plan."""
    return {
        "name": plan.name,
        "collective": plan.collective,
        "protocol": plan.protocol,
        "inplace": plan.inplace,
        "reuse_resources": plan.reuse_resources,
        "gpus": [_gpu(rank, gpu) for rank, gpu in enumerate(plan.gpus)],
        "num_threads_per_block": plan.threads,
        "use_double_scratch_buffer": plan.double_scratch,
        "buffer_alignment": plan.alignment,
        "min_message_size": plan.least_bytes,
        "max_message_size": plan.most_bytes,
    }


@dataclass
class _Lists:
    """The lists of a GPU or a threadblock to which others refer by place: channels and remote buffers by type."""

    channels: dict[str, list[int]] = field(default_factory=dict)
    buffers: dict[str, list[int]] = field(default_factory=dict)


def _gpu(rank: int, gpu: Gpu) -> dict[str, Any]:
    """A rank's threadblocks, and the channels and buffers that they share."""
    remote: dict[tuple[int, str], tuple[int, set[str]]] = {}
    blocks = [_threadblock(rank, number, block, remote) for number, block in enumerate(gpu.blocks)]
    channels = [
        {"channel_type": via, "connected_to": peers} for via, peers in ((MEMORY, gpu.memory), (PORT, gpu.port)) if peers
    ]
    return {
        "id": rank,
        "input_chunks": gpu.inputs,
        "output_chunks": gpu.outputs,
        "scratch_chunks": gpu.scratch,
        "threadblocks": blocks,
        "channels": channels,
        "remote_buffers": [
            {"rank": peer, "type": buffer, "access_channel_types": sorted(types)}
            for (peer, buffer), (_, types) in remote.items()
        ],
        "semaphores": [{"init_value": value} for value in gpu.semaphores],
    }


def _threadblock(
    rank: int, number: int, block: list[Operation], remote: dict[tuple[int, str], tuple[int, set[str]]]
) -> dict[str, Any]:
    lists = _Lists()
    ops = [_operation(rank, op, lists, remote) for op in block]
    return {
        "id": number,
        "ops": ops,
        "channels": [{"channel_type": via, "channel_ids": ids} for via, ids in lists.channels.items()],
        "remote_buffer_refs": [
            {"access_channel_type": via, "remote_buffer_ids": ids} for via, ids in lists.buffers.items()
        ],
    }


def _operation(
    rank: int, op: Operation, lists: _Lists, remote: dict[tuple[int, str], tuple[int, set[str]]]
) -> dict[str, Any]:
    """An operation; what it refers to joins the lists of its threadblock and GPU."""
    form: dict[str, Any] = {"name": op.name}
    for key, refs in (("src_buff", op.src), ("dst_buff", op.dst)):
        if refs:
            form[key] = [_reference(rank, ref, op.via, lists, remote) for ref in refs]
    places = [_place(lists.channels, op.via, channel) for channel in op.channels]
    if op.name in WITH_CHANNELS:
        form["channel_ids"] = places
    if op.via:
        form["channel_type"] = op.via
    if op.semaphores:
        form["semaphore_ids"] = list(op.semaphores)
    if op.name in SUMS:
        form["reduce_op"] = "sum"
    return form


def _reference(
    rank: int, chunks: Chunks, via: str, lists: _Lists, remote: dict[tuple[int, str], tuple[int, set[str]]]
) -> dict[str, Any]:
    """Chunks of the own rank by the name of their buffer, those of another by the place of that remote buffer."""
    if chunks.rank == rank:
        return {"type": chunks.buffer, "index": chunks.first, "size": chunks.size}
    number, types = remote.setdefault((chunks.rank, chunks.buffer), (len(remote), set()))
    types.add(via)
    return {"buffer_id": _place(lists.buffers, via, number), "index": chunks.first, "size": chunks.size}


def _place(lists: dict[str, list[int]], via: str, number: int) -> int:
    """The place of a number in the list of a type, where it is put if it is not there."""
    own = lists.setdefault(via, [])
    if number not in own:
        own.append(number)
    return own.index(number)
