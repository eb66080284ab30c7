"""Where the chunks of a program lie in the memory of a call: looked up once, added up in each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...lower import NOTHING, Program
from ...model.arrays import Int64
from ..mesh import Mesh
from . import kernel_layout as at
from .engine import Engine
from .records import address
from .runs import Run
from .templates import column


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
        run = Run(self.engine, self._ends, self._program, self._template, self._block)
        for (where, of, low), places in zip(self._sides, (inputs, outputs), strict=True):
            if len(where):
                begins = np.array(places, dtype=np.int64)
                run.block[where] = np.where(begins == 0, address(self.engine.nothing), begins)[of] + low
        run.keep.append(keep)
        return run
