"""A program of MSCCL++: what an execution plan says, with every reference resolved.

A plan's JSON names remote buffers and channels by places in lists of the threadblock, which point to places in lists of
the GPU. Here an operation names the memory that it touches, and the channels of its GPU. What writes plans makes this
form, what reads them makes it, and the proof that a program cannot get stuck reads it (``interleavings``).

Source of what operations do: microsoft/mscclpp, src/core/include/execution_kernel.hpp.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

MEMORY, PORT, SWITCH = "memory", "port", "switch"
"""Types of channels: threads write to a peer's mapped memory; a thread of the CPU sends; several GPUs' memory at
once."""
MOST_REFERENCES = 8
"""Channels of one operation (MAX_CHANNEL_PER_OPERATION of execution_common.hpp)."""


class Chunks(NamedTuple):
    """Chunks that stand one after the other: ``size`` of them from ``first`` on in a buffer, "i", "o" or "s", of a
    rank."""

    rank: int
    buffer: str
    first: int
    size: int = 1


class Operation(NamedTuple):
    """What a threadblock does.

    Attributes:
        name: as in the JSON: put, pws, pwsf, get, copy, signal, wait, re, res, nop, barrier, pipeline, ...
        src, dst: memory that it reads and writes, in the JSON's order. What a switch reads or writes at once is one
            reference for each of its ranks.
        channels: places in the GPU's list of channels of this type. For puts, one for each of ``dst`` if ``via`` is
            port.
        via: memory, port or switch; empty where no channel is used.
        semaphores: places in the GPU's list of semaphores.
        barrier, blocks: number of a barrier among threadblocks, and how many of them meet there.
        share: (part, parts): of a group of ``parts`` threadblocks that split the bytes, this is number ``part``.
        unit, chunks, inner: of a pipeline, bytes an iteration, chunks in all, and what is repeated.
    """

    name: str
    src: tuple[Chunks, ...] = ()
    dst: tuple[Chunks, ...] = ()
    channels: tuple[int, ...] = ()
    via: str = ""
    semaphores: tuple[int, ...] = ()
    barrier: int = -1
    blocks: int = 0
    share: tuple[int, int] = (0, 1)
    unit: int = 0
    chunks: int = 0
    inner: tuple[Operation, ...] = ()


NOP = Operation("nop")
"""The threads of a threadblock wait for each other."""


@dataclass
class Gpu:
    """A rank: chunks of its buffers, the peer of each memory and port channel, first values of semaphores,
    threadblocks.

    The k-th channel of a type from one rank to another is joined with the k-th of that type back.
    """

    inputs: int
    outputs: int
    scratch: int
    memory: list[int] = field(default_factory=list)
    port: list[int] = field(default_factory=list)
    semaphores: list[int] = field(default_factory=list)
    blocks: list[list[Operation]] = field(default_factory=list)


@dataclass
class ExecutionPlan:
    """An execution plan of MSCCL++.

    Attributes:
        inplace: input and output are one memory: of AllGather the input is the rank's part of the output, of
            ReduceScatter the output the rank's part of the input, else they are equal.
        double_scratch: runs use the two halves of scratch in turn.
        least_bytes, most_bytes: messages that it takes, full buffers, as MSCCL++ counts them.
    """

    name: str
    collective: str
    gpus: list[Gpu]
    protocol: str = "Simple"
    inplace: bool = False
    reuse_resources: bool = False
    double_scratch: bool = False
    threads: int = 1024
    alignment: int = 16
    least_bytes: int = 0
    most_bytes: int = 2**64 - 1
