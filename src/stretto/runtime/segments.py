"""The part of a program that a process runs for a device: transfers to and from certain nodes, cut into segments.

A segment is sent when the device has copied it into host memory, and copied to the device when it has arrived, while
the next ones are on their way. Nothing else is awaited: the order of a chunk's sums is the device's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise

from ..lower import NOTHING, Program
from ..lower.steps import ChunkSteps, Steps, Version

STAGE_BYTES = 1 << 22
"""Bytes of a segment. Estimated, not tuned: at 25 GB/s a copy between a device and pinned memory takes 0.17 ms for its
bytes, and some 10 us besides. The network waits for the first segment of a transfer; smaller segments are there sooner,
and pay the 10 us more often."""
ALIGN_BYTES = 64
"""Transfers begin at multiples of this number of bytes, a cache line; the size of each type of element divides it."""


@dataclass(frozen=True, eq=False)
class Segments(Program):
    """Some transfers of a program, as segments that are chunks of their own.

    Attributes:
        cut: the segments.
        places: for each transfer the numbers of its segments, and for each segment from where to where it lies in the
            memory of all that is sent, or of all that is received.
        sent_bytes, received_bytes: the sizes of these.
    """

    cut: Steps
    places: Mapping[int, Mapping[int, tuple[int, int]]]
    sent_bytes: int
    received_bytes: int

    @cached_property
    def steps(self) -> Steps:
        return self.cut

    def describe(self, row: int) -> str:
        return super().describe(row % max(1, self.plan.transfer_count))


def segments_of(program: Program, crosses: Callable[[int], bool], sizes: Mapping[int, int]) -> Segments:
    """The transfers between the program's node and others, as segments.

    Args:
        crosses: whether the transfers to and from another node are taken; both ends of a transfer must agree.
        sizes: the bytes of each chunk.
    """
    steps, n = program.steps, program.plan.transfer_count
    sends = {row: tuple(filter(crosses, send.to)) for row, send in steps.sends.items()}
    out = Layout(n, ((row, sizes[steps.sends[row].chunk]) for row, to in sends.items() if to))
    coming = ((row, sizes[r.chunk]) for row, r in steps.receives.items() if crosses(r.source))
    into = Layout(n, coming)
    cut = Steps(
        chunks={
            **{k: ChunkSteps((Version(NOTHING, ()),), None, True, b - a) for k, (a, b) in out.places.items()},
            **{k: ChunkSteps((Version(NOTHING, (k,)),), 0, False, b - a) for k, (a, b) in into.places.items()},
        },
        sends={
            k: steps.sends[k % n]._replace(row=k, chunk=k, version=0, to=sends[k % n], size_bytes=b - a)
            for k, (a, b) in out.places.items()
        },
        receives={k: steps.receives[k % n]._replace(row=k, chunk=k, copies=True) for k in into.places},
        waits=dict.fromkeys(out.places, 1),
        held=tuple(out.places),
        wanted=tuple(into.places),
    )
    columns = {field.name: getattr(program, field.name) for field in fields(Program)}
    return Segments(**columns, cut=cut, places=out.of_row | into.of_row, sent_bytes=out.end, received_bytes=into.end)


class Layout:
    """Where the segments of transfers lie in one piece of memory.

    Attributes:
        places: for each segment where it begins and ends. Segment i of a transfer has its number plus i times the
            number of transfers.
        of_row: the same for each transfer.
        end: where the last one ends.
    """

    def __init__(self, transfers: int, rows: Iterable[tuple[int, int]]) -> None:
        self.places: dict[int, tuple[int, int]] = {}
        self.of_row: dict[int, dict[int, tuple[int, int]]] = {}
        self.end = 0
        for row, size in rows:
            edges = [*range(0, size, STAGE_BYTES), size] if size else [0, 0]
            spans = {row + i * transfers: (self.end + a, self.end + b) for i, (a, b) in enumerate(pairwise(edges))}
            self.places |= spans
            self.of_row[row] = spans
            self.end += -(-size // ALIGN_BYTES) * ALIGN_BYTES
