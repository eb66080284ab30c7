"""A rank's part of a plan in rounds of sends and receives, whose bytes a transport moves and which PyTorch adds up.

Transfers go in rounds (:mod:`stretto.lower.rounds`). A chunk's versions and the order of its sums are those of the
programs that processes run, so results are equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ..choose.library import Cut
from ..lower import NOTHING, lower_for, rounds_of
from ..lower.steps import ChunkSteps, Receive, Send
from ..model.arrays import Int64
from ..model.collective import Collective
from ..model.errors import ArgumentError, Unsupported
from ..model.plan import Plan
from .tensors import REDUCE


class Part(NamedTuple):
    """One end of a transfer at a rank: its number in the plan, the flat tensor, the rank at the other end, and the
    number of its message, which other transfers may share."""

    row: int
    tensor: Tensor
    peer: int
    message: int


class Transport(Protocol):
    """Moves the bytes of rounds. All ranks call it for the same rounds in the same order."""

    def exchange(self, sends: Sequence[Part], receives: Sequence[Part]) -> None:
        """Begin a round. What is sent may be overwritten when this returns, unless it is a caller's input."""

    def await_arrival(self, row: int) -> None:
        """Return when a received row is there for what the current stream does next."""

    def settle(self) -> None:
        """Return when a caller's input may be overwritten by what the current stream does next."""


@dataclass(frozen=True)
class RoundProgram:
    """A rank's part of a plan.

    Attributes:
        rounds: for each round in which the rank has a part its sends and its receives, by their numbers in the plan.
        message: int[transfers], the message of each.
        peers: the rank in the group of each node.
    """

    plan: Plan
    rank: int
    collective: Collective
    chunks: Mapping[int, ChunkSteps]
    rounds: list[tuple[list[Send], list[Receive]]]
    message: Sequence[int]
    peers: dict[int, int]

    @classmethod
    def of(cls, plan: Plan, rank: int, ranks: int) -> RoundProgram:
        """The part of one rank; refuses a plan that needs more than the ranks and their sends and receives."""
        (collective, *more) = plan.workload.collectives
        if more:
            raise Unsupported(f"the plan has {1 + len(more)} collectives; a group runs one after another")
        if not (collective.traits.general or collective.traits.takes_matrix):
            raise Unsupported(f"{collective.kind} is no collective of a group of torch.distributed")
        if len(collective.ranks) != ranks:
            raise ArgumentError(f"the plan is for {len(collective.ranks)} ranks, the group has {ranks}")
        if plan.topology.planes:
            raise Unsupported(
                "the plan turns optical planes, which sends and receives cannot; use the backend 'stretto' on the CPU"
            )
        peers = {int(node): r for r, node in enumerate(collective.ranks)}
        outside = sorted({*np.unique(plan.src).tolist(), *np.unique(plan.dst.values).tolist()} - peers.keys())
        if outside:
            names = ", ".join(plan.topology.names[v] for v in outside[:3])
            raise Unsupported(f"the plan stores data at {names}, which is no rank; plan for the target nccl-p2p")
        steps = lower_for(plan, int(collective.ranks[rank])).steps
        number = rounds_of(plan)
        rounds: dict[int, tuple[list[Send], list[Receive]]] = {}
        for row in sorted(steps.sends):
            rounds.setdefault(int(number[row]), ([], []))[0].append(steps.sends[row])
        for row in sorted(steps.receives):
            rounds.setdefault(int(number[row]), ([], []))[1].append(steps.receives[row])
        message = range(plan.transfer_count) if plan.message is None else plan.message.tolist()
        return cls(plan, rank, collective, steps.chunks, [rounds[i] for i in sorted(rounds)], message, peers)


class Execution:
    """One run of a rank's part of a plan on its tensors.

    Args:
        held, wanted: for each piece that the rank holds or wants a tensor whose numbers lie one after another. One of
            each may be the same memory.
        elements: int64[pieces], the elements of every piece.
        op: how pieces are reduced; an average is the sum here.
    """

    def __init__(
        self,
        program: RoundProgram,
        transport: Transport,
        held: Mapping[int, Tensor],
        wanted: Mapping[int, Tensor],
        elements: Int64,
        op: Any,
    ) -> None:
        self.program, self.transport, self.op = program, transport, op
        cut = Cut.of(program.collective)
        self.low, self.high = (edge.tolist() for edge in cut.edges(elements))
        piece = cut.piece.tolist()
        inputs = {p: t.detach().view(-1) for p, t in held.items()}
        results = {p: t.detach().view(-1) for p, t in wanted.items()}
        self.outputs = {
            chunk: results[piece[chunk]][self.low[chunk] : self.high[chunk]]
            for chunk, steps in program.chunks.items()
            if steps.final is not None
        }
        self.like = next(iter((held or wanted).values()))
        self.versions: dict[tuple[int, int], Tensor] = {}
        self.payloads: dict[int, Tensor] = {}
        self.uses: dict[tuple[int, int], int] = {}
        self.puts: dict[int, int] = {}
        for chunk, steps in program.chunks.items():
            if steps.held and steps.versions:
                self.versions[chunk, 0] = inputs[piece[chunk]][self.low[chunk] : self.high[chunk]]
            for version in steps.versions:
                if version.base != NOTHING:
                    self._count_use(chunk, version.base)
                for row in version.adds:
                    if row < 0:
                        self._count_use(chunk, ~row)
                    else:
                        self.puts[row] = self.puts.get(row, 0) + 1
            if steps.final is not None:
                self._count_use(chunk, steps.final)
        for send in (send for sends, _ in program.rounds for send in sends):
            self._count_use(send.chunk, send.version)

    def run(self) -> None:
        """Do all rounds, and put the results into the outputs."""
        for sends, receives in self.program.rounds:
            self._exchange(sends, receives)
        final = [
            (self._value(chunk, steps.final), self.outputs[chunk])
            for chunk, steps in self.program.chunks.items()
            if steps.final is not None
        ]
        self.transport.settle()
        for value, place in final:
            if not same_memory(value, place):
                place.copy_(value)

    def _exchange(self, sends: list[Send], receives: list[Receive]) -> None:
        """Do one round."""
        peers, message, going, coming = self.program.peers, self.program.message, [], []
        memory = self._room(receives)
        for receive in receives:
            self.payloads[receive.row] = memory[receive.row]
            coming.append(Part(receive.row, memory[receive.row], peers[receive.source], message[receive.row]))
        for send in sends:
            value = self._value(send.chunk, send.version)
            going += [Part(send.row, value, peers[to], message[send.row]) for to in send.to]
        self.transport.exchange(going, coming)
        for send in sends:
            self._release(send.chunk, send.version)

    def _room(self, receives: list[Receive]) -> dict[int, Tensor]:
        """Where to receive each row: in its place, else in new memory, where those of a message lie side by side."""
        room: dict[int, Tensor] = {}
        others: dict[int, list[Receive]] = {}
        for receive in receives:
            place = self._place(receive)
            if place is None:
                others.setdefault(self.program.message[receive.row], []).append(receive)
            else:
                room[receive.row] = place
        for own in others.values():
            sizes = [self.high[receive.chunk] - self.low[receive.chunk] for receive in own]
            room |= zip((receive.row for receive in own), self.like.new_empty(sum(sizes)).split(sizes), strict=True)
        return room

    def _place(self, receive: Receive) -> Tensor | None:
        """The output if the bytes stay there, and nothing else lies there before."""
        steps = self.program.chunks[receive.chunk]
        if steps.final is not None and not steps.held:
            version = steps.versions[steps.final]
            if version.base == NOTHING and version.adds == (receive.row,):
                return self.outputs[receive.chunk]
        return None

    def _value(self, chunk: int, i: int) -> Tensor:
        """A version of a chunk: its base with its arrivals added in their order."""
        value = self.versions.get((chunk, i))
        if value is not None:
            return value
        version, own = self.program.chunks[chunk].versions[i], False
        if version.base != NOTHING:
            value = self._value(chunk, version.base)
        for row in version.adds:
            payload = self._part(chunk, row)
            if value is None:
                value = payload
            else:
                value = self._add(value, payload, value if own else torch.empty_like(value))
                own = True
        assert value is not None, "a version has a base or an arrival"
        self.versions[chunk, i] = value
        for used in (version.base, *(~row for row in version.adds if row < 0)):
            if used != NOTHING:
                self._release(chunk, used)
        return value

    def _part(self, chunk: int, row: int) -> Tensor:
        """What is added to a version: an arrival, or another version of the chunk."""
        if row < 0:
            return self._value(chunk, ~row)
        self.transport.await_arrival(row)
        payload = self.payloads[row]
        self.puts[row] -= 1
        if not self.puts[row]:
            del self.payloads[row]
        return payload

    def _add(self, a: Tensor, b: Tensor, out: Tensor) -> Tensor:
        result: Tensor = REDUCE[self.op][1](a, b, out=out)
        return result

    def _count_use(self, chunk: int, version: int) -> None:
        self.uses[chunk, version] = self.uses.get((chunk, version), 0) + 1

    def _release(self, chunk: int, version: int) -> None:
        """Forget a version that nothing needs any more."""
        self.uses[chunk, version] -= 1
        if not self.uses[chunk, version]:
            del self.versions[chunk, version]


def same_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two flat tensors begin at the same place; a device whose memory has no addresses does not know."""
    return a is b or (a.data_ptr() != 0 and a.data_ptr() == b.data_ptr())
