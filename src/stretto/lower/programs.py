"""The program of a node, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..model.arrays import Bool, Float64, Int32, Int64, Ragged
from ..model.plan import Plan
from .kernel_programs import NOTHING
from .shares import share_of

if TYPE_CHECKING:
    from .steps import Steps


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
        adds: for each version the receives whose bytes are written or added to its base, in this order; ~v is version v
            of the same chunk, a lower number than that of the version that adds it.
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
        bandwidth: float64[sends], bytes/s of the narrowest link of its route, or of its plane.
        subflow: int32[sends], the number of its route or circuit, see :func:`.subflows`.
        waits: int64[sends], the number of its dependencies.
        message: int64[sends], the number of its message, which several sends to the same nodes may have; None if each
            is one.
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
    message: Int64 | None = None

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
        subflow: int32[receives], the number of its route or circuit.
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
    def partners(self) -> set[int]:
        """The nodes with which this one exchanges data or signals."""
        columns = self.sends.to.values, self.receives.source, self.receives.signals.values, self.awaited.node
        return {int(v) for nodes in columns for v in nodes}

    @property
    def held(self) -> Int64:
        """int64[chunks], the chunks that the node holds at first, ascending."""
        return self.chunks.chunk[self.chunks.held]

    @property
    def wanted(self) -> Int64:
        """int64[chunks], the chunks that the node must end with, ascending."""
        wanted: Int64 = self.chunks.chunk[self.chunks.final != NOTHING]
        return wanted

    @property
    def turns(self) -> int:
        """The number of turns of optical planes that the node makes: all at the controller, none elsewhere."""
        return self.plan.turns.count if len(self.events) else 0

    @cached_property
    def steps(self) -> Steps:
        """The same row by row; made once, as it takes longer than the program itself."""
        from .steps import steps_of

        return steps_of(self)

    @cached_property
    def shares(self) -> dict[int, float]:
        """For each node to which this one sends the part of the links that the plan gives the pair (:mod:`.shares`)."""
        return {int(v): share_of(self.plan, self.node, int(v)) for v in set(self.sends.to.values.tolist())}

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
