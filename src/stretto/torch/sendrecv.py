"""Plans by any group of ``torch.distributed``: its sends and receives move the bytes, PyTorch adds them up here.

So plans run on GPUs through NCCL as it is. Transfers go in rounds (:mod:`stretto.lower.rounds`), each of which is one
``batch_isend_irecv``. A chunk's versions and the order of its sums are those of the programs that the backend
``stretto`` runs, so results are equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from ..choose.library import Cut
from ..lower import NOTHING, lower_for, rounds_of
from ..lower.steps import ChunkSteps, Receive, Send
from ..model.arrays import Int64, Ragged
from ..model.collective import Collective
from ..model.errors import ArgumentError, Unsupported
from ..model.plan import Plan
from .tensors import OPS, REDUCE, divide, plain, plain_copy

MOST_PROGRAMS = 256
"""Plans whose programs are kept: those of a training step. Of more, the oldest is forgotten and made again."""


def over(group: Any = None) -> Runner:
    """What runs plans over a group of any backend: NCCL, gloo, MPI, UCC.

    Args:
        group: a group of ``torch.distributed``, all ranks by default.
    """
    return Runner(group)


class Runner:
    """Runs plans over a group; see :func:`over`. All ranks of the group must run the same plans in the same order."""

    def __init__(self, group: Any) -> None:
        self._group = dist.group.WORLD if group is None else group
        self._rank, self._count = dist.get_rank(self._group), dist.get_world_size(self._group)
        self._programs: dict[int, RoundProgram] = {}
        self._met = False

    def run(self, plan: Plan, source: Tensor | None, output: Tensor | None, op: Any = OPS.SUM) -> None:
        """Run a plan of one collective on tensors of any size.

        Returns when the group's own operations would: on GPUs what the current stream does next has the results.

        Args:
            source: this rank's input, its pieces one after another (those of all ranks in their order where the rank
                holds one for each); None if it holds nothing at first.
            output: where its results go; None if it wants none. It may be ``source``, or have it as the rank's part.
            op: how pieces are reduced, where they are.
        Raises:
            Unsupported: ranks cannot run the plan by sends and receives; says why.
            ArgumentError: the tensors do not fit the plan.
        """
        program = self._programs.get(id(plan))
        if program is None:
            program = self._programs[id(plan)] = RoundProgram.of(plan, self._rank, self._count)
            if len(self._programs) > MOST_PROGRAMS:
                del self._programs[next(iter(self._programs))]
        if not self._met and (source if output is None else output).device.type != "cpu":  # type: ignore[union-attr]
            dist.barrier(self._group)  # NCCL's first operation must be one of all ranks
        self._met = True
        Execution(program, self._group, source, output, getattr(op, "op", op)).run()


@dataclass(frozen=True)
class RoundProgram:
    """A rank's part of a plan.

    Attributes:
        rounds: for each round in which the rank has a part its sends and its receives, by their numbers in the plan.
        peers: the rank in the group of each node.
    """

    plan: Plan
    rank: int
    collective: Collective
    chunks: Mapping[int, ChunkSteps]
    rounds: list[tuple[list[Send], list[Receive]]]
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
                "the plan turns optical planes, which sends and receives cannot; use the backend 'stretto'"
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
        return cls(plan, rank, collective, steps.chunks, [rounds[i] for i in sorted(rounds)], peers)

    def elements(self, source: Tensor | None, output: Tensor | None) -> Int64:
        """int64[pieces], the elements of every piece, as these tensors have them."""
        c = self.collective
        ends = ((source, self.pieces(c.holders), "input"), (output, self.pieces(c.wanted), "output"))
        given = next((t for t, pieces, _ in ends if t is not None and pieces), None)
        if given is None:
            raise ArgumentError(f"{c.kind}: rank {self.rank} must give its input or its output")
        if c.traits.general:
            number, pieces = next((t.numel(), len(p)) for t, p, _ in ends if t is given)
            elements = np.full(len(c.piece_bytes), number // pieces, dtype=np.int64)
        else:
            elements = c.piece_bytes // given.element_size()
            if (c.piece_bytes % given.element_size()).any():
                raise ArgumentError(f"{c.kind}: the plan cuts elements of {given.element_size()} bytes")
        for tensor, pieces_here, end in ends:
            due = int(elements[pieces_here].sum())
            if (0 if tensor is None else tensor.numel()) != due and (tensor is not None or pieces_here):
                found = "none" if tensor is None else f"{tensor.numel()} elements"
                raise ArgumentError(f"{c.kind}: the {end} of rank {self.rank} must have {due} elements, found {found}")
        return elements

    def pieces(self, of: Ragged) -> list[int]:
        """The pieces that this rank holds or wants, in the order of its buffer."""
        pieces: list[int] = of.owners[of.values == self.rank].tolist()
        return pieces


class Execution:
    """One run of a rank's part of a plan on its tensors."""

    def __init__(
        self, program: RoundProgram, group: Any, source: Tensor | None, output: Tensor | None, op: Any
    ) -> None:
        self.program, self.group, self.op = program, group, op
        c = program.collective
        if c.reduces and op not in REDUCE:
            raise Unsupported(f"sums by {op}; there are {', '.join(o.name for o in REDUCE)}")
        elements = program.elements(source, output)
        self.low, self.high = Cut.of(c).edges(elements)
        self.output = output
        self.result = output if output is None or plain(output) else torch.empty_like(output).contiguous()
        held = {} if source is None else self._cut(plain_copy(source), c.holders, elements)
        self.outputs = {} if self.result is None else self._cut(self.result, c.wanted, elements)
        self.like: Tensor = source if source is not None else output  # type: ignore[assignment]
        self.versions: dict[tuple[int, int], Tensor] = {}
        self.payloads: dict[int, Tensor] = {}
        self.uses: dict[tuple[int, int], int] = {}
        self.puts: dict[int, int] = {}
        for chunk, steps in program.chunks.items():
            if steps.held and steps.versions:
                self.versions[chunk, 0] = held[chunk]
            for version in steps.versions:
                if version.base != NOTHING:
                    self._count_use(chunk, version.base)
                for row in version.adds:
                    self.puts[row] = self.puts.get(row, 0) + 1
            if steps.final is not None:
                self._count_use(chunk, steps.final)
        for send in (send for sends, _ in program.rounds for send in sends):
            self._count_use(send.chunk, send.version)

    def run(self) -> None:
        """Do all rounds, and put the results into the output."""
        for sends, receives in self.program.rounds:
            self._exchange(sends, receives)
        for chunk, steps in self.program.chunks.items():
            if steps.final is not None:
                value, place = self._value(chunk, steps.final), self.outputs[chunk]
                if value.data_ptr() != place.data_ptr():
                    place.copy_(value)
        if self.output is not None and self.result is not None:
            if self.result is not self.output:
                self.output.copy_(self.result)
            if self.op == OPS.AVG and self.program.collective.reduces:
                divide(self.output, len(self.program.collective.ranks))

    def _cut(self, tensor: Tensor, of: Ragged, elements: Int64) -> dict[int, Tensor]:
        """The part of each chunk in the buffer of one end."""
        c, flat = self.program.collective, tensor.view(-1)
        begin, at = {}, 0
        for piece in self.program.pieces(of):
            begin[piece] = at
            at += int(elements[piece])
        places = ((chunk, begin.get(int(c.chunk_piece[chunk]))) for chunk in range(len(c.chunk_piece)))
        return {k: flat[at + self.low[k] : at + self.high[k]] for k, at in places if at is not None}

    def _exchange(self, sends: list[Send], receives: list[Receive]) -> None:
        """Do one round."""
        operations = []
        for receive in receives:
            size = int(self.high[receive.chunk] - self.low[receive.chunk])
            memory = self._place(receive, size)
            self.payloads[receive.row] = memory
            if size:
                operations.append(self._operation(dist.irecv, memory, receive.source))
        for send in sends:
            value = self._value(send.chunk, send.version)
            operations += [self._operation(dist.isend, value, to) for to in send.to if value.numel()]
        for work in dist.batch_isend_irecv(operations) if operations else []:
            work.wait()
        for send in sends:
            self._release(send.chunk, send.version)

    def _operation(self, function: Any, tensor: Tensor, node: int) -> Any:
        """A send to a node, or a receive from it, of bytes: NCCL has not every type."""
        peer = dist.get_global_rank(self.group, self.program.peers[node])
        return dist.P2POp(function, tensor.view(torch.uint8), peer, self.group)

    def _place(self, receive: Receive, size: int) -> Tensor:
        """Where to receive: in the output if the bytes stay there, and nothing else lies there before."""
        steps = self.program.chunks[receive.chunk]
        if steps.final is not None and not steps.held:
            version = steps.versions[steps.final]
            if version.base == NOTHING and version.adds == (receive.row,):
                return self.outputs[receive.chunk]
        return torch.empty(size, dtype=self.like.dtype, device=self.like.device)

    def _value(self, chunk: int, i: int) -> Tensor:
        """A version of a chunk, all of whose arrivals are here: its base with them added in their order."""
        value = self.versions.get((chunk, i))
        if value is not None:
            return value
        version, own = self.program.chunks[chunk].versions[i], False
        if version.base != NOTHING:
            value = self._value(chunk, version.base)
        for row in version.adds:
            payload = self.payloads[row]
            self.puts[row] -= 1
            if not self.puts[row]:
                del self.payloads[row]
            if value is None:
                value = payload
            else:
                value = self._add(value, payload, value if own else torch.empty_like(value))
                own = True
        assert value is not None, "a version has a base or an arrival"
        self.versions[chunk, i] = value
        if version.base != NOTHING:
            self._release(chunk, version.base)
        return value

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
