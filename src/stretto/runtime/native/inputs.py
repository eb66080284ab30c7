"""Where the chunks of a program lie in the memory of a call: looked up once, added up in each call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...lower import NOTHING, Program
from ...model.arrays import Int64
from ..mesh import Mesh
from . import kernel_layout as at
from .engine import Engine
from .records import Ends, address
from .runs import Run, Slot
from .templates import Template, column, fill_in


class Places:
    """A program whose chunks are parts of pieces, each in memory of its own.

    Args:
        piece, low, high: int64[chunks of the plan], the piece of each chunk, and its first byte in it and the one after
            its last.
        held, wanted: the numbers of the pieces that this rank holds and wants, in the order in which it gives them.
    """

    def __init__(
        self, engine: Engine, mesh: Mesh, program: Program, piece: Int64, low: Int64, high: Int64,
        held: Sequence[int], wanted: Sequence[int],
    ) -> None:  # fmt: skip
        self.engine, self._program, self._ends = engine, program, engine.ends_of(mesh)
        self._template = template = engine.template(self._ends, program)
        chunk, self._count = template.chunks, len(template.chunks)
        self._block = template.block.copy()
        column(self._block, at.L_BYTES, self._count)[:] = (high - low)[chunk]
        self._sides = []
        for which, here, pieces in (
            (at.L_INPUT, program.chunks.held, held), (at.L_OUTPUT, program.chunks.final != NOTHING, wanted)
        ):  # fmt: skip
            slots = np.flatnonzero(here)
            order = {p: i for i, p in enumerate(pieces)}
            of = np.array([order[p] for p in piece[chunk[slots]].tolist()], dtype=np.int64)
            begin = int(self._block[which // 8]) // 8
            self._sides.append((begin + slots, of, low[chunk[slots]]))

    def run(self, inputs: Sequence[int], outputs: Sequence[int], keep: Any) -> Run:
        """A run whose pieces are at these addresses; ``keep`` is what must live as long."""
        run = Run(self.engine, self._ends, self._program, self._template, Slot(self._block))
        self._put(run.block, inputs, outputs)
        run.keep.append(keep)
        return run

    def _put(self, block: Int64, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Put the places of chunks into the words of a run."""
        for (where, of, low), places in zip(self._sides, (inputs, outputs), strict=True):
            if len(where):
                begins = np.array(places, dtype=np.int64)
                block[where] = np.where(begins == 0, address(self.engine.nothing), begins)[of] + low

    def fixed(
        self, inputs: Sequence[int], outputs: Sequence[int], adds: tuple[int, int], item_bytes: int, timeout_s: float,
        call: bytes,
    ) -> Fixed:  # fmt: skip
        """Runs whose pieces always are at these addresses; the rest as of :meth:`.Engine.submit`."""
        block = self._block.copy()
        self._put(block, inputs, outputs)
        fill_in(block, *adds, item_bytes, timeout_s, call)
        return Fixed(self.engine, self._ends, self._program, self._template, block)


class Fixed:
    """A program over memory that stays where it is: nothing is looked up or added up in a call."""

    def __init__(self, engine: Engine, ends: Ends, program: Program, template: Template, block: Int64) -> None:
        self._engine, self._ends, self._program, self._template = engine, ends, program, template
        self._block = block
        self._spare: list[Slot] = []

    @property
    def serves(self) -> bool:
        """Whether the loop still runs programs over these connections."""
        engine = self._engine
        return engine.broken is None and self._ends.mesh.failure is None and engine.owner == os.getpid()

    def start(self, keep: Any) -> Run:
        """Give the loop a run; ``keep`` is what must live as long."""
        try:
            slot = self._spare.pop()
            slot.block[:] = self._block
        except IndexError:
            slot = Slot(self._block)
        run = Run(self._engine, self._ends, self._program, self._template, slot, self._spare)
        run.keep.append(keep)
        self._engine.start(run)
        return run
