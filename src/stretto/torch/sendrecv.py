"""Plans by any group of ``torch.distributed``: its sends and receives move the bytes, PyTorch adds them up here.

So plans run on GPUs through NCCL as it is. Each round (:mod:`.rounds`) is one ``batch_isend_irecv``, in which a message
is one send and one receive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from ..model.arrays import Int64, Ragged
from ..model.collective import Collective
from ..model.errors import ArgumentError, Unsupported
from ..model.plan import Plan
from .packed import by_message, packed, side_by_side, unpack
from .rounds import Execution, Part, RoundProgram
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
        self._execute(program, source, output, getattr(op, "op", op))

    def _execute(self, program: RoundProgram, source: Tensor | None, output: Tensor | None, op: Any) -> None:
        c = program.collective
        if c.reduces and op not in REDUCE:
            raise Unsupported(f"sums by {op}; there are {', '.join(o.name for o in REDUCE)}")
        elements = elements_of(c, self._rank, source, output)
        result = output if output is None or plain(output) else torch.empty_like(output).contiguous()
        held = {} if source is None else cut(plain_copy(source), pieces(c.holders, self._rank), elements)
        wanted = {} if result is None else cut(result, pieces(c.wanted, self._rank), elements)
        Execution(program, Batches(self._group), held, wanted, elements, op).run()
        if output is not None and result is not None:
            if result is not output:
                output.copy_(result)
            if op == OPS.AVG and c.reduces:
                divide(output, len(c.ranks))


class Batches:
    """A transport by the sends and receives of a group: a round has ended when it returns."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def exchange(self, sends: Sequence[Part], receives: Sequence[Part]) -> None:
        coming = by_message(receives)
        room = [side_by_side([part.tensor for part in parts]) for parts in coming]
        into = [
            parts[0].tensor.new_empty(sum(part.tensor.numel() for part in parts)) if whole is None else whole
            for parts, whole in zip(coming, room, strict=True)
        ]
        operations = [self._operation(dist.irecv, whole, own[0].peer) for whole, own in zip(into, coming, strict=True)]
        operations += [self._operation(dist.isend, packed(own), own[0].peer) for own in by_message(sends)]
        for work in dist.batch_isend_irecv(operations) if operations else []:
            work.wait()
        for parts, view, whole in zip(coming, room, into, strict=True):
            if view is None:
                unpack(whole, parts)

    def await_arrival(self, row: int) -> None:
        pass

    def settle(self) -> None:
        pass

    def _operation(self, function: Any, tensor: Tensor, peer: int) -> Any:
        """A send or receive of bytes: NCCL has not every type."""
        return dist.P2POp(function, tensor.view(torch.uint8), dist.get_global_rank(self._group, peer), self._group)


def elements_of(c: Collective, rank: int, source: Tensor | None, output: Tensor | None) -> Int64:
    """int64[pieces], the elements of every piece, as these tensors have them."""
    ends = ((source, pieces(c.holders, rank), "input"), (output, pieces(c.wanted, rank), "output"))
    given = next((t for t, of_rank, _ in ends if t is not None and of_rank), None)
    if given is None:
        raise ArgumentError(f"{c.kind}: rank {rank} must give its input or its output")
    if c.traits.general:
        number, count = next((t.numel(), len(p)) for t, p, _ in ends if t is given)
        elements = np.full(len(c.piece_bytes), number // count, dtype=np.int64)
    else:
        elements = c.piece_bytes // given.element_size()
        if (c.piece_bytes % given.element_size()).any():
            raise ArgumentError(f"{c.kind}: the plan cuts elements of {given.element_size()} bytes")
    for tensor, of_rank, end in ends:
        due = int(elements[of_rank].sum())
        if (0 if tensor is None else tensor.numel()) != due and (tensor is not None or of_rank):
            found = "none" if tensor is None else f"{tensor.numel()} elements"
            raise ArgumentError(f"{c.kind}: the {end} of rank {rank} must have {due} elements, found {found}")
    return elements


def pieces(of: Ragged, rank: int) -> list[int]:
    """The pieces that a rank holds or wants, in the order of its buffer."""
    numbers: list[int] = of.owners[of.values == rank].tolist()
    return numbers


def cut(tensor: Tensor, numbers: Sequence[int], elements: Int64) -> dict[int, Tensor]:
    """The pieces in a buffer, which lie in it one after another."""
    return dict(zip(numbers, torch.split(tensor.view(-1), elements[numbers].tolist()), strict=True))
