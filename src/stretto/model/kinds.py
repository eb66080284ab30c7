"""Kinds of collectives as data: who holds what at first, and who wants what at the end.

A kind is a row of :data:`BY_NAME`. It names how the buffer falls into pieces, which ranks hold a piece, which ranks
want it, and whether what they want is a sum. Bounds, the verifier, the simulator and the command line ask a row what it
promises, and never compare names. Planners that register ``EVERY_KIND`` serve a new row at once; others list the kinds
that they serve, fixed algorithms in ``schedule/algorithms.py``, foreign names in ``formats/``, PyTorch's calls in
``torch/group.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .arrays import Int64, Ragged

Pieces = Literal["buffer", "rank", "pair"]
"""One piece (the whole buffer), one piece for each rank, or one piece for each ordered pair of ranks."""

Ranks = Literal["all", "root", "own", "sender", "receiver", "receivers"]
"""Every rank; the root; for piece i rank i; for the piece of a pair its first or second rank; or some given ranks."""


@dataclass(frozen=True)
class Kind:
    """A kind of collective.

    Attributes:
        pieces: how the buffer falls into pieces.
        held, wanted: which ranks hold a piece at first, and which want it at the end.
        reduces: whether what is wanted is the sum over the holders.
        mirror: the kind that it becomes when time is reversed, None where there is none.
        general: whether :func:`~stretto.model.collective.make_collective` makes it from a size (and a root) alone.
    """

    name: str
    pieces: Pieces
    held: Ranks
    wanted: Ranks
    reduces: bool = False
    mirror: str | None = None
    general: bool = True

    @property
    def rooted(self) -> bool:
        """Whether one rank, the root, is special."""
        return "root" in (self.held, self.wanted)

    @property
    def reduces_to_all(self) -> bool:
        """Whether every rank wants the sum of what all hold: reduced first, then copied."""
        return self.reduces and self.wanted == "all"

    @property
    def copies(self) -> bool:
        """Whether several ranks want the same bytes, so that one transfer may serve many."""
        return self.wanted in ("all", "receivers")

    @property
    def whole(self) -> bool:
        """Whether its one piece is the whole buffer."""
        return self.pieces == "buffer"

    @property
    def takes_matrix(self) -> bool:
        """Whether the sizes of its pieces are a matrix of bytes from each rank to each."""
        return not self.general and self.wanted == "receiver"

    @property
    def served_as(self) -> tuple[str, ...]:
        """The names by which a planner may serve it: its own; copies of uneven pieces also as multicasts of them."""
        uneven = not self.general and not self.rooted and not self.reduces
        return (self.name, "multicast") if uneven else (self.name,)

    def pieces_among(self, ranks: int) -> int:
        """How many pieces its buffer has."""
        return {"buffer": 1, "rank": ranks, "pair": ranks * ranks}[self.pieces]

    def pieces_in_buffer(self, ranks: int) -> int:
        """How many pieces the larger of a rank's two buffers has (for kinds with even pieces)."""
        return 1 if self.whole else ranks

    def pieces_of(self, who: Ranks, rank: int, ranks: int, root: int) -> range:
        """The pieces of a rank's input or output buffer, where ``who`` is ``held`` or ``wanted``, in their order there
        (for kinds with even pieces)."""
        count = self.pieces_among(ranks)
        if who == "own":
            return range(rank, rank + 1)
        if who == "sender":
            return range(rank * ranks, (rank + 1) * ranks)
        if who == "receiver":
            return range(rank, count, ranks)
        return range(count if who == "all" or rank == root else 0)

    def promise(
        self, ranks: int, size_bytes: int, root: int, receivers: Sequence[int] = ()
    ) -> tuple[Int64, Ragged, Ragged]:
        """Its pieces for a buffer of ``size_bytes``, as even as whole bytes allow: int64[pieces], their bytes, and for
        each piece the ranks that hold it at first and those that want it (``receivers``, if the kind says so)."""
        count = self.pieces_among(ranks)
        piece_bytes = np.tile(
            split_evenly(size_bytes, 1 if self.whole else ranks), ranks if self.pieces == "pair" else 1
        )

        def lists(who: Ranks) -> Ragged:
            if who == "all":
                return Ragged.from_lengths(np.full(count, ranks), np.tile(np.arange(ranks), count))
            if who == "receivers":
                return Ragged.of([sorted(receivers)] * count)
            piece = np.arange(count)
            return Ragged.single(
                {"root": np.full(count, root), "own": piece, "sender": piece // ranks, "receiver": piece % ranks}[who]
            )

        return piece_bytes, lists(self.held), lists(self.wanted)


BY_NAME: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("allgather", "rank", "own", "all", mirror="reducescatter"),
        Kind("reducescatter", "rank", "all", "own", reduces=True, mirror="allgather"),
        Kind("allreduce", "buffer", "all", "all", reduces=True, mirror="allreduce"),
        Kind("alltoall", "pair", "sender", "receiver", mirror="alltoall"),
        Kind("broadcast", "buffer", "root", "all", mirror="reduce"),
        Kind("reduce", "buffer", "all", "root", reduces=True, mirror="broadcast"),
        Kind("scatter", "rank", "root", "own", mirror="gather"),
        Kind("gather", "rank", "own", "root", mirror="scatter"),
        Kind("multicast", "buffer", "root", "receivers", general=False),
        Kind("alltoallv", "pair", "sender", "receiver", general=False),
        Kind("remainder", "pair", "sender", "receivers", general=False),
        Kind("partial-sums", "pair", "sender", "receivers", reduces=True, general=False),
    )
}
"""Every kind by name. ``multicast`` is a broadcast to some ranks, ``alltoallv`` an AllToAll of uneven parts (see
:mod:`.demand`), ``remainder`` what is left to copy of a collective that was under way, ``partial-sums`` what is left to
sum and copy of one (see :mod:`stretto.choose.replan`)."""

KINDS = tuple(name for name, kind in BY_NAME.items() if kind.general)
"""The kinds that people ask for by name and size."""

EVERY_KIND = (*KINDS, "multicast", "partial-sums")
"""What a planner registers that serves all kinds: the others are served as multicasts of their chunks."""


def split_evenly(total: int, parts: int) -> Int64:
    """int64[parts] that add up to ``total`` and differ by at most one."""
    each, over = divmod(total, parts)
    if not over:
        return np.full(parts, each, dtype=np.int64)
    ends = np.arange(parts + 1) * over // parts
    return each + ends[1:] - ends[:-1]


def even_part(total: NDArray[Any], parts: NDArray[Any], index: NDArray[Any]) -> Int64:
    """int64[...], part ``index`` of each total, as :func:`split_evenly` splits it."""
    each, over = np.divmod(total, parts)
    size: Int64 = each + (index + 1) * over // parts - index * over // parts
    return size
