"""The program of a node row by row, for who runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from ..model.arrays import Ragged
from .kernel_programs import NOTHING
from .programs import Program, Receives


class Version(NamedTuple):
    """A state of one chunk at one node.

    Attributes:
        base: the version that it extends, or NOTHING.
        adds: the transfers whose bytes are written or added to it, in this order; ~v is version v of the same chunk.
    """

    base: int
    adds: tuple[int, ...]


class ChunkSteps(NamedTuple):
    """A chunk at one node, see :class:`Chunks`; ``final`` is None if the node does not want it."""

    versions: tuple[Version, ...]
    final: int | None
    held: bool
    size_bytes: int


class Send(NamedTuple):
    """One transfer to send, see :class:`Sends`. ``chunk`` is its number in the plan."""

    row: int
    chunk: int
    version: int
    to: tuple[int, ...]
    start_s: float
    rate: float
    priority: float
    bandwidth: float
    subflow: int
    size_bytes: int


class Receive(NamedTuple):
    """One transfer to receive, see :class:`Receives`. ``chunk`` is its number in the plan."""

    row: int
    chunk: int
    source: int
    copies: bool
    subflow: int


class Event(NamedTuple):
    """A turn or a barrier at the controller, see :class:`Events`."""

    row: int
    start_s: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Steps:
    """A program row by row, for who runs it. Rows are transfers, then events, by their numbers in the plan.

    Attributes:
        chunks: by the number of the chunk.
        waits: for each row that starts here, the number of its dependencies.
        wakes: for each dependency, as (row, node where it happens), the rows here that wait for it. A dependency at
            another node comes as a signal.
        signals: for each row that happens here, the nodes to tell.
        held, wanted: the chunks that the node holds at first, and those that it must end with.
        messages: by the first row of a message of several chunks all of its rows. In ``waits`` and ``wakes`` the first
            one stands for all.
    """

    chunks: Mapping[int, ChunkSteps] = field(default_factory=dict)
    sends: Mapping[int, Send] = field(default_factory=dict)
    receives: Mapping[int, Receive] = field(default_factory=dict)
    events: Mapping[int, Event] = field(default_factory=dict)
    waits: Mapping[int, int] = field(default_factory=dict)
    wakes: Mapping[tuple[int, int], list[int]] = field(default_factory=dict)
    signals: Mapping[int, list[int]] = field(default_factory=dict)
    held: tuple[int, ...] = ()
    wanted: tuple[int, ...] = ()
    messages: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


def steps_of(program: Program) -> Steps:
    """A program row by row."""
    sends, receives, events, awaited, node = (
        program.sends, program.receives, program.events, program.awaited, program.node
    )  # fmt: skip
    number = program.chunks.chunk.tolist()
    starting = sends.row.tolist() + events.row.tolist()
    wakes: dict[tuple[int, int], list[int]] = {}
    signals: dict[int, list[int]] = {}
    for happening in (receives, events):
        for row, nodes, waiting in zip(
            happening.row.tolist(), _lists(happening.signals), _lists(happening.wakes), strict=True
        ):
            if nodes:
                signals[row] = nodes
            if waiting:
                wakes[row, node] = [starting[i] for i in waiting]
    for row, place, waiting in zip(awaited.row.tolist(), awaited.node.tolist(), _lists(awaited.wakes), strict=True):
        wakes[row, place] = [starting[i] for i in waiting]
    waits = dict(zip(starting, sends.waits.tolist() + events.waits.tolist(), strict=True))
    messages = _messages(program)
    if messages:
        waits, wakes = _of_messages(messages, waits, wakes)
    return Steps(
        dict(zip(number, _chunks(program), strict=True)),
        {send.row: send for send in _sends(program, number)},
        {receive.row: receive for receive in _receives(receives, number)},
        {row: Event(row, at, s) for row, at, s in _rows(events.row, events.start_s, events.seconds)},
        waits, wakes, signals, tuple(program.held.tolist()), tuple(program.wanted.tolist()), messages,
    )  # fmt: skip


def _messages(program: Program) -> dict[int, tuple[int, ...]]:
    """By the first row of each message of several chunks all of its rows."""
    sends = program.sends
    if sends.message is None:
        return {}
    rows: dict[int, list[int]] = {}
    for number, row in zip(sends.message.tolist(), sends.row.tolist(), strict=True):
        rows.setdefault(number, []).append(row)
    return {those[0]: tuple(those) for those in rows.values() if len(those) > 1}


def _of_messages(
    messages: Mapping[int, tuple[int, ...]], waits: dict[int, int], wakes: dict[tuple[int, int], list[int]]
) -> tuple[dict[int, int], dict[tuple[int, int], list[int]]]:
    """What rows wait for, and what wakes them, where the first row of a message waits for all of its rows."""
    first = {row: rows[0] for rows in messages.values() for row in rows}
    woken = {cause: list(dict.fromkeys(first.get(row, row) for row in rows)) for cause, rows in wakes.items()}
    counts = {row: count for row, count in waits.items() if row not in first}
    counts |= dict.fromkeys(messages, 0)
    for rows in woken.values():
        for row in rows:
            if row in messages:
                counts[row] += 1
    return counts, woken


def _rows(*columns: Any) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _lists(r: Ragged) -> list[list[int]]:
    offsets, values = r.offsets.tolist(), r.values.tolist()
    return [values[a:b] for a, b in pairwise(offsets)]


def _chunks(program: Program) -> Iterator[ChunkSteps]:
    chunks, row = program.chunks, program.receives.row.tolist()
    adds = [tuple(row[r] if r >= 0 else r for r in receives) for receives in _lists(chunks.adds)]
    versions = list(map(Version, chunks.base.tolist(), adds))
    begins = pairwise(chunks.versions.tolist())
    for (a, b), final, held, size in zip(
        begins, chunks.final.tolist(), chunks.held.tolist(), chunks.size_bytes.tolist(), strict=True
    ):
        yield ChunkSteps(tuple(versions[a:b]), None if final == NOTHING else final, held, size)


def _sends(program: Program, number: list[int]) -> Iterator[Send]:
    s = program.sends
    to = map(tuple, _lists(s.to))
    size = program.chunks.size_bytes[s.chunk]
    columns = _rows(s.row, s.chunk, s.version, s.start_s, s.rate, s.priority, s.bandwidth, s.subflow, size)
    for receivers, (row, chunk, version, *others) in zip(to, columns, strict=True):
        yield Send(row, number[chunk], version, receivers, *others)  # type: ignore[call-arg]


def _receives(r: Receives, number: list[int]) -> Iterator[Receive]:
    for row, chunk, *facts in _rows(r.row, r.chunk, r.source, r.copies, r.subflow):
        yield Receive(row, number[chunk], *facts)
