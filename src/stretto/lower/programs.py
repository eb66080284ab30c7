"""The program of a node, as columns; and the same row by row, for who runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from ..model.arrays import Bool, Float64, Int32, Int64, Ragged
from ..model.plan import Plan
from .kernel_programs import NOTHING

__all__ = [
    "NOTHING", "Awaited", "ChunkSteps", "Chunks", "Event", "Events", "Program", "Receive", "Receives", "Send", "Sends",
    "Steps", "Version", "node_name",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Chunks:
    """The chunks with which a node has to do, ascending.

    Versions of a chunk are numbered from 0, which is what the node holds at first; each extends an earlier one.

    Attributes:
        chunk: int64[chunks], the number in the plan.
        size_bytes: int64[chunks].
        held: bool[chunks], whether the node holds it at first.
        final: int32[chunks], the version that the node must end with; NOTHING if it does not want the chunk.
        versions: int64[chunks + 1], where the versions of each chunk begin, and where the last ones end.
        base: int32[versions], the version of the same chunk that each extends; NOTHING if it begins with an arrival.
        adds: for each version the receives whose bytes are written or added to its base, in this order.
    """

    chunk: Int64
    size_bytes: Int64
    held: Bool
    final: Int32
    versions: Int64
    base: Int32
    adds: Ragged


@dataclass(frozen=True, eq=False)
class Sends:
    """The transfers that a node sends, ascending: each a version of a chunk to some nodes.

    Attributes:
        row: int64[sends], the number of the transfer in the plan.
        chunk: int64[sends], of :class:`Chunks`. version: int32[sends].
        to: for each the nodes that receive it.
        start_s: float64[sends], earliest start in the plan's time, for a paced run.
        rate: float64[sends], bytes/s while it is sent, for a paced run; infinite if the network decides.
        priority: float64[sends]; of several sends on a connection the one with the highest priority goes first.
        bandwidth: float64[sends], bytes/s of the narrowest link of its route; infinite on an optical plane.
        subflow: int32[sends], the number of its route, see :func:`.subflows`.
        waits: int64[sends], the number of its dependencies.
    """

    row: Int64
    chunk: Int64
    version: Int32
    to: Ragged
    start_s: Float64
    rate: Float64
    priority: Float64
    bandwidth: Float64
    subflow: Int32
    waits: Int64

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, eq=False)
class Receives:
    """The transfers that a node receives, ascending.

    Attributes:
        row: int64[receives], the number of the transfer in the plan.
        chunk: int64[receives], of :class:`Chunks`.
        source: int32[receives], the node that sends it.
        copies: bool[receives], whether it replaces what was there; else it is added.
        subflow: int32[receives], the number of its route.
        signals: for each the other nodes to tell that it has arrived, ascending.
        wakes: for each the sends here that wait for it.
    """

    row: Int64
    chunk: Int64
    source: Int32
    copies: Bool
    subflow: Int32
    signals: Ragged
    wakes: Ragged

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, eq=False)
class Events:
    """Turns and barriers at the controller. Each begins when all its dependencies have happened.

    Attributes:
        row: int64[events], numbered on after the transfers of the plan.
        start_s: float64[events], no event begins before. seconds: float64[events], how long it takes.
        waits, signals, wakes: as of sends and receives; ``wakes`` has the events that wait for each.
    """

    row: Int64
    start_s: Float64
    seconds: Float64
    waits: Int64
    signals: Ragged
    wakes: Ragged

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, eq=False)
class Awaited:
    """What happens at other nodes, of which they tell this one, ascending.

    Attributes:
        row: int64[signals]. node: int32[signals], where it happens.
        wakes: for each the sends, or the events, here that wait for it.
    """

    row: Int64
    node: Int32
    wakes: Ragged

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, eq=False)
class Program:
    """What one node does in a plan.

    Attributes:
        node: a node of the topology, or ``node_count`` for the controller.
        nodes: int64[nodes], all nodes that have programs, ascending.
    """

    plan: Plan
    node: int
    nodes: Int64
    chunks: Chunks
    sends: Sends
    receives: Receives
    events: Events
    awaited: Awaited

    def __repr__(self) -> str:
        return f"<Program of {self.name(self.node)}: {len(self.sends)} sends, {len(self.receives)} receives>"

    @property
    def peers(self) -> Int64:
        """int64[peers], the other nodes that have programs."""
        peers: Int64 = self.nodes[self.nodes != self.node]
        return peers

    @property
    def held(self) -> Int64:
        """int64[chunks], the chunks that the node holds at first, ascending."""
        return self.chunks.chunk[self.chunks.held]

    @property
    def wanted(self) -> Int64:
        """int64[chunks], the chunks that the node must end with, ascending."""
        wanted: Int64 = self.chunks.chunk[self.chunks.final != NOTHING]
        return wanted

    @cached_property
    def steps(self) -> Steps:
        """The same row by row; made once, as it takes longer than the program itself."""
        return steps_of(self)

    def describe(self, row: int) -> str:
        """A row as messages name it."""
        n, turns = self.plan.transfer_count, self.plan.turns
        if row < n:
            return self.plan.describe(row)
        return f"turn {row - n} of plane {turns.plane[row - n]}" if row < n + turns.count else "a barrier"

    def name(self, node: int) -> str:
        """A node as messages name it."""
        return node_name(self.plan, node)


def node_name(plan: Plan, node: int) -> str:
    """The name of a node, or ``controller``."""
    return plan.topology.names[node] if node < plan.topology.node_count else "controller"


class Version(NamedTuple):
    """A state of one chunk at one node.

    Attributes:
        base: the version that it extends, or NOTHING.
        adds: the transfers whose bytes are written or added to it, in this order.
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
    return Steps(
        dict(zip(number, _chunks(program), strict=True)),
        {send.row: send for send in _sends(program, number)},
        {receive.row: receive for receive in _receives(receives, number)},
        {row: Event(row, at, s) for row, at, s in _rows(events.row, events.start_s, events.seconds)},
        dict(zip(starting, sends.waits.tolist() + events.waits.tolist(), strict=True)),
        wakes, signals, tuple(program.held.tolist()), tuple(program.wanted.tolist()),
    )  # fmt: skip


def _rows(*columns: Any) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _lists(r: Ragged) -> list[list[int]]:
    offsets, values = r.offsets.tolist(), r.values.tolist()
    return [values[a:b] for a, b in pairwise(offsets)]


def _chunks(program: Program) -> Iterator[ChunkSteps]:
    chunks, row = program.chunks, program.receives.row.tolist()
    adds = [tuple(row[r] for r in receives) for receives in _lists(chunks.adds)]
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
