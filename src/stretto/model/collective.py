"""What must happen: collectives as data.

A collective is a set of *pieces*: bytes with the ranks that hold them at first and the ranks that
want them at the end, summed over the holders or not. Ten collectives are ten short lists of
pieces. Planners cut pieces into *chunks*, the unit that a transfer moves; the parts of a piece
must cover it exactly (the verifier checks). Sizes are whole bytes: what does not divide evenly
differs by one byte.

``size_bytes`` is the full buffer as nccl-tests count it: AllGather and Gather what a rank ends
with; AllReduce, ReduceScatter, AllToAll, Broadcast, Reduce and Scatter what it starts with.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .topology import ACCELERATOR, Topology

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

ROOTED = ("broadcast", "reduce", "scatter", "gather", "multicast")
REMAINDER = "remainder"
"""The kind of what is left of a collective that was under way: any pieces, from any holders to any ranks."""
ALLTOALLV = "alltoallv"
"""The kind of an AllToAll of uneven parts, see :mod:`stretto.model.demand`."""
REDUCING = ("reducescatter", "allreduce", "reduce")


class Ragged(NamedTuple):
    """Lists of different length as CSR: list i is ``values[offsets[i]:offsets[i + 1]]``."""

    offsets: Int64
    values: Int32

    @classmethod
    def of(cls, lists: Sequence[Sequence[int] | Int32]) -> Ragged:
        """From a sequence of sequences."""
        lengths = np.fromiter((len(x) for x in lists), dtype=np.int64, count=len(lists))
        offsets = np.zeros(len(lists) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if not offsets[-1]:
            return cls(offsets, np.zeros(0, dtype=np.int32))
        if all(isinstance(x, (list, tuple)) for x in lists):
            return cls(offsets, np.fromiter(chain.from_iterable(lists), dtype=np.int32, count=int(offsets[-1])))
        return cls(offsets, np.concatenate([np.asarray(x, dtype=np.int32) for x in lists]))

    @classmethod
    def single(cls, values: Sequence[int] | Int32) -> Ragged:
        """One value a list."""
        array = np.asarray(values, dtype=np.int32)
        return cls(np.arange(len(array) + 1, dtype=np.int64), array)

    def __getitem__(self, i: Any) -> Any:
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    @property
    def rows(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int64:
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def owners(self) -> Int64:
        """int64[values], the index of the list that each value belongs to."""
        return np.arange(self.rows).repeat(self.lengths)

    def take(self, indexes: NDArray[Any]) -> Ragged:
        """The lists at ``indexes``, in that order."""
        lengths = self.lengths[indexes]
        offsets = np.zeros(len(indexes) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        at = np.repeat(self.offsets[:-1][indexes] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Ragged(offsets, self.values[at])


@dataclass(frozen=True, eq=False)
class Collective:
    """One collective among ``ranks``. Build one with :func:`make_collective`.

    Attributes:
        kind: "allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "reduce",
            "scatter", "gather", "multicast" (a broadcast to some of the ranks), "alltoallv" (see
            :mod:`stretto.model.demand`), or "remainder" (what is left of another, see :mod:`stretto.choose.replan`).
        ranks: int32[ranks], the node of each rank.
        size_bytes: the full buffer, see the module.
        root: the rank that a rooted kind starts from or ends at, else -1.
        start_s: when it may start, seconds.
        piece_bytes: int64[pieces].
        holders, wanted: for each piece the ranks that hold it and that want it.
        reduces: whether what is wanted is the sum over the holders.
        chunk_piece, chunk_offset, chunk_bytes: for each chunk its piece, where in the piece it
            begins, and its size.
    """

    kind: str
    ranks: Int32
    size_bytes: int
    root: int
    start_s: float
    piece_bytes: Int64
    holders: Ragged
    wanted: Ragged
    reduces: bool
    chunk_piece: Int32
    chunk_offset: Int64
    chunk_bytes: Int64

    @property
    def chunk_count(self) -> int:
        return len(self.chunk_piece)

    @property
    def is_whole(self) -> bool:
        """Whether it was never cut: its chunks are its pieces."""
        return self.chunk_bytes is self.piece_bytes

    @property
    def shard_bytes(self) -> int:
        """One rank's share of the buffer: size / ranks, rounded up."""
        return -(-self.size_bytes // len(self.ranks))

    @cached_property
    def chunk_holders(self) -> Ragged:
        """For each chunk the *nodes* that hold it at first."""
        lists = self.holders if self.is_whole else self.holders.take(self.chunk_piece)
        return Ragged(lists.offsets, self.ranks[lists.values])

    @cached_property
    def chunk_wanted(self) -> Ragged:
        """For each chunk the *nodes* that must end with it."""
        lists = self.wanted if self.is_whole else self.wanted.take(self.chunk_piece)
        return Ragged(lists.offsets, self.ranks[lists.values])


@dataclass(frozen=True, eq=False)
class Workload:
    """The collectives that share a topology. Chunks are numbered through: collective by collective."""

    collectives: tuple[Collective, ...]

    @cached_property
    def chunk_base(self) -> Int64:
        """int64[collectives + 1], the first chunk of each collective, and the count of all."""
        return np.array([0, *accumulate(c.chunk_count for c in self.collectives)], dtype=np.int64)

    @property
    def chunk_count(self) -> int:
        return sum(len(c.chunk_piece) for c in self.collectives)

    @cached_property
    def chunk_bytes(self) -> Int64:
        parts = [c.chunk_bytes for c in self.collectives]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @cached_property
    def chunk_collective(self) -> Int32:
        return self._each(np.arange(len(self.collectives), dtype=np.int32))

    @cached_property
    def chunk_reduces(self) -> NDArray[np.bool_]:
        return self._each(np.array([c.reduces for c in self.collectives], dtype=np.bool_))

    @cached_property
    def chunk_holders(self) -> Ragged:
        return _concatenate([c.chunk_holders for c in self.collectives])

    @cached_property
    def chunk_wanted(self) -> Ragged:
        return _concatenate([c.chunk_wanted for c in self.collectives])

    @cached_property
    def chunk_start_s(self) -> NDArray[np.float64]:
        return self._each(np.array([c.start_s for c in self.collectives], dtype=np.float64))

    def _each(self, values: NDArray[Any]) -> NDArray[Any]:
        """For each chunk the value of its collective."""
        if len(values) == 1:
            return np.full(self.chunk_count, values[0])
        return values.repeat([c.chunk_count for c in self.collectives])


def _concatenate(parts: Sequence[Ragged]) -> Ragged:
    if len(parts) == 1:
        return parts[0]
    lengths = np.concatenate([p.lengths for p in parts])
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return Ragged(offsets, np.concatenate([p.values for p in parts]))


def split_evenly(total: int, parts: int) -> Int64:
    """int64[parts] that add up to ``total`` and differ by at most one."""
    each, over = divmod(total, parts)
    if not over:
        return np.full(parts, each, dtype=np.int64)
    ends = np.arange(parts + 1) * over // parts
    return each + ends[1:] - ends[:-1]


class Pieces(NamedTuple):
    """The promise of a collective, before it is cut into chunks; see :class:`Collective`."""

    piece_bytes: Int64
    holders: Ragged
    wanted: Ragged


def _everyone(n: int, pieces: int) -> Ragged:
    ranks = np.empty((pieces, n), dtype=np.int32)
    ranks[:] = np.arange(n)
    return Ragged(np.arange(0, pieces * n + 1, n), ranks.ravel())


def _only(rank: int, pieces: int) -> Ragged:
    return Ragged.single(np.full(pieces, rank, dtype=np.int32))


def _each(n: int) -> Ragged:
    return Ragged.single(np.arange(n, dtype=np.int32))


def _allgather(n: int, size: int, root: int) -> Pieces:
    return Pieces(split_evenly(size, n), _each(n), _everyone(n, n))


def _reducescatter(n: int, size: int, root: int) -> Pieces:
    return Pieces(split_evenly(size, n), _everyone(n, n), _each(n))


def _allreduce(n: int, size: int, root: int) -> Pieces:
    return Pieces(np.array([size], dtype=np.int64), _everyone(n, 1), _everyone(n, 1))


def _alltoall(n: int, size: int, root: int) -> Pieces:
    sender, receiver = np.divmod(np.arange(n * n, dtype=np.int32), n)
    return Pieces(np.tile(split_evenly(size, n), n), Ragged.single(sender), Ragged.single(receiver))


def _broadcast(n: int, size: int, root: int) -> Pieces:
    return Pieces(np.array([size], dtype=np.int64), _only(root, 1), _everyone(n, 1))


def _reduce(n: int, size: int, root: int) -> Pieces:
    return Pieces(np.array([size], dtype=np.int64), _everyone(n, 1), _only(root, 1))


def _scatter(n: int, size: int, root: int) -> Pieces:
    return Pieces(split_evenly(size, n), _only(root, n), _each(n))


def _gather(n: int, size: int, root: int) -> Pieces:
    return Pieces(split_evenly(size, n), _each(n), _only(root, n))


PROMISES: dict[str, Callable[[int, int, int], Pieces]] = {
    "allgather": _allgather,
    "reducescatter": _reducescatter,
    "allreduce": _allreduce,
    "alltoall": _alltoall,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "scatter": _scatter,
    "gather": _gather,
}
"""For each kind the pieces of ``(ranks, size_bytes, root rank)``."""

KINDS = tuple(PROMISES)


def make_collective(
    kind: str,
    topology: Topology,
    size_bytes: int | None = None,
    *,
    shard_bytes: int | None = None,
    ranks: Sequence[int] | None = None,
    root: int = 0,
    receivers: Sequence[int] | None = None,
    chunks: int = 1,
    start_s: float = 0.0,
) -> Collective:
    """A collective among the accelerators of a topology (or some of them), cut into chunks.

    Args:
        kind: one of :data:`KINDS`, or "multicast" with ``receivers``.
        size_bytes: the full buffer; or else
        shard_bytes: one rank's share of it (size = shard x ranks).
        ranks: the node of each rank; all accelerators, in order, by default.
        root: the root's rank, for rooted kinds.
        receivers: the ranks that want a multicast.
        chunks: into how many chunks each piece is cut (each of at least one byte).
        start_s: when it may start.
    Raises:
        InputError: an unknown kind, too few bytes or ranks, a rank that is no accelerator.
    """
    nodes = topology.accelerators if ranks is None else np.asarray(ranks, dtype=np.int32)
    n = len(nodes)
    if kind == ALLTOALLV:
        raise InputError(f"{kind} needs a matrix of bytes, from each rank to each (--demand FILE)", "collective")
    if kind not in PROMISES and kind != "multicast":
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join((*KINDS, ALLTOALLV))}"
        raise InputError(f"{kind!r} is no collective; {hint}", "collective")
    if n < 2:
        raise InputError(f"{kind} needs at least 2 ranks, {topology.name} has {n}", "ranks")
    if ranks is not None:
        if ((nodes < 0) | (nodes >= topology.node_count)).any() or (topology.kind[nodes] != ACCELERATOR).any():
            raise InputError("every rank must be an accelerator of the topology", "ranks")
        if len(np.unique(nodes)) != n:
            raise InputError("a node may be a rank only once", "ranks")
    if not 0 <= root < n:
        raise InputError(f"root {root} is no rank; there are ranks 0 to {n - 1}", "root")
    if (size_bytes is None) == (shard_bytes is None):
        raise InputError("give either the size of the full buffer or of one rank's shard", "size")
    size = size_bytes if size_bytes is not None else int(shard_bytes or 0) * n
    if kind == "multicast":
        wanted = sorted({int(r) for r in receivers} if receivers is not None else ())
        if not wanted or wanted[0] < 0 or wanted[-1] >= n:
            raise InputError(f"receivers must be some of the ranks 0 to {n - 1}", "receivers")
        pieces = Pieces(np.array([size], dtype=np.int64), _only(root, 1), Ragged.of([wanted]))
    else:
        pieces = PROMISES[kind](n, size, root)
    uncut = Collective(
        kind=kind,
        ranks=nodes,
        size_bytes=size,
        root=root if kind in ROOTED else -1,
        start_s=float(start_s),
        piece_bytes=pieces.piece_bytes,
        holders=pieces.holders,
        wanted=pieces.wanted,
        reduces=kind in REDUCING,
        chunk_piece=np.arange(len(pieces.piece_bytes), dtype=np.int32),
        chunk_offset=np.zeros(len(pieces.piece_bytes), dtype=np.int64),
        chunk_bytes=pieces.piece_bytes,
    )
    return cut(uncut, chunks)


def cut(collective: Collective, chunks: int) -> Collective:
    """Cut every piece into ``chunks`` chunks, as even as whole bytes allow.

    Raises:
        InputError: fewer than one chunk, or a chunk would be empty.
    """
    smallest = int(collective.piece_bytes.min())
    if chunks < 1:
        raise InputError(f"{chunks} chunks: at least one is needed", "chunks")
    if smallest < chunks:
        raise InputError(
            f"{collective.size_bytes} bytes among {len(collective.ranks)} ranks leave pieces of {smallest} bytes, "
            f"too few for {chunks} chunk{'s' if chunks > 1 else ''}; raise the size",
            "size",
        )
    if chunks == 1 and collective.is_whole:
        return collective
    if chunks == 1:
        pieces = np.arange(len(collective.piece_bytes), dtype=np.int32)
        whole, begin = collective.piece_bytes, np.zeros_like(collective.piece_bytes)
        return replace(collective, chunk_piece=pieces, chunk_offset=begin, chunk_bytes=whole)
    sizes = np.empty((len(collective.piece_bytes), chunks), dtype=np.int64)
    for total in np.unique(collective.piece_bytes):
        sizes[collective.piece_bytes == total] = split_evenly(int(total), chunks)
    offsets = np.cumsum(sizes, axis=1) - sizes
    piece = np.repeat(np.arange(len(sizes), dtype=np.int32), chunks)
    return replace(collective, chunk_piece=piece, chunk_offset=offsets.ravel(), chunk_bytes=sizes.ravel())
