"""What MSCCL++ execution plans do, as data: what each operation reads and writes, whom it signals, what it waits for.

:mod:`.mscclpp_bytes` makes it of a program and a size, :mod:`.mscclpp_contents` follows it. A rank has memories: ``i``
and ``o`` (one of them where the plan is in place), ``s`` (scratch), and ``p``: scratch again, as packets, in which a
flag comes with every few bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

COLLECTIVES = ("allgather", "allreduce", "reducescatter", "alltoall", "sendrecv")
ROOTED = ("broadcast", "reduce")
"""Collectives with a root, which files do not name."""
"""Those that promise something. ``test`` and ``custom`` promise nothing."""


class Range(NamedTuple):
    """Bytes of a memory of a rank. ``ring``: after how many bytes the iterations of a loop begin again, 0 for never."""

    rank: int
    memory: str
    begin: int
    size: int
    ring: int = 0


class Move(NamedTuple):
    """What an operation computes: each destination gets the sum of the sources.

    Attributes:
        how: "local", "put" (the rank of the operation writes elsewhere), "port" (the same, later, by a port), "get" (it
            reads elsewhere), "switch" (the switch sums or copies).
        flagged: whether it waits for the flags of the packets that it reads.
    """

    dst: tuple[Range, ...]
    src: tuple[Range, ...]
    how: str = "local"
    flagged: bool = False


class Place(NamedTuple):
    """Where an operation stands: rank, threadblock, its index there, and its index in a loop; -1 for all of them."""

    rank: int
    threadblock: int = -1
    operation: int = -1
    inner: int = -1

    def __str__(self) -> str:
        words = [f"rank {self.rank}"]
        if self.threadblock >= 0:
            words.append(f"threadblock {self.threadblock}")
        if self.operation >= 0:
            words.append(f"operation {self.operation}" + (f".{self.inner}" if self.inner >= 0 else ""))
        return ", ".join(words)


Line = tuple[str, int, int, int]
"""A semaphore between two ranks: type, rank that signals, rank that waits, and number."""


@dataclass
class Operation:
    """One operation.

    Attributes:
        signals, waits: the lines that it signals over, and those over which it waits for a signal.
        acquires, releases: semaphores of its rank.
        barrier: its number, and how many threadblocks it waits for.
        unit, iterations, inner: of a loop: by how many bytes an iteration moves on, how many there are, what it does.
        sliced: whether an iteration does a part of it, or all of it again.
    """

    name: str
    at: Place
    moves: tuple[Move, ...] = ()
    signals: tuple[Line, ...] = ()
    waits: tuple[Line, ...] = ()
    acquires: tuple[int, ...] = ()
    releases: tuple[int, ...] = ()
    barrier: tuple[int, int] | None = None
    unit: int = 0
    iterations: int = 1
    inner: list[Operation] = field(default_factory=list)
    sliced: bool = True


@dataclass
class Loaded:
    """A plan for buffers of a size.

    Attributes:
        threadblocks: for each rank, for each threadblock its operations.
        semaphores: for each rank the first values.
        input_bytes, output_bytes: of a rank; chunk_bytes: of a chunk.
        uses_switch: whether the switch sums or copies.
        memory_bytes: for each rank the bytes of ``i``, ``o`` and ``s``.
    """

    path: str
    name: str
    collective: str
    inplace: bool
    ranks: int
    input_bytes: int
    output_bytes: int
    chunk_bytes: int
    threadblocks: list[list[list[Operation]]]
    semaphores: list[list[int]]
    uses_switch: bool
    memory_bytes: list[dict[str, int]]
