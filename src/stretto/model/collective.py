"""What must happen: collectives as data.

A collective is a set of *pieces*: bytes with the ranks that hold them at first and the ranks that want them at the end,
summed over the holders or not. A row of :mod:`.kinds` says which for each kind. Planners cut pieces into *chunks*, the
unit that a transfer moves, which cover a piece exactly. Parts of a size that does not divide evenly differ by one byte.

``size_bytes`` is the full buffer as nccl-tests count it: AllGather and Gather what a rank ends
with; AllReduce, ReduceScatter, AllToAll, Broadcast, Reduce and Scatter what it starts with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Bool, Float64, Int32, Int64, Ragged, distinct, offsets_of
from .chunks import check_cut, cut
from .errors import InputError, nearest
from .kinds import BY_NAME, KINDS, Kind
from .memory import too_much
from .topology import Topology
from .units import LONGEST_S, format_size

LISTED = ("piece_bytes", "holders", "wanted", "chunk_piece", "chunk_offset", "chunk_bytes")
"""The columns of a collective that grow with its pieces and chunks."""

LISTED_BYTES = 16
"""Memory for each rank that holds or wants a piece, while they are listed."""

MOST_TITLES = 4
"""Collectives that the title of a workload names."""

MOST_WEIGHT = 1e12
"""The largest weight of a collective: means by weight stay finite numbers."""


@dataclass(frozen=True, eq=False)
class Collective:
    """One collective among ``ranks``. Build one with :func:`make_collective`.

    Attributes:
        kind: a name in :data:`stretto.model.kinds.BY_NAME`.
        ranks: int32[ranks], the node of each rank.
        size_bytes: the full buffer, see the module.
        root: the rank that a rooted kind starts from or ends at, else -1.
        start_s: when it may start, seconds.
        weight: how much its completion counts among those of a workload.
        piece_bytes: int64[pieces].
        holders, wanted: for each piece the ranks that hold it and that want it.
        reduces: whether what is wanted is the sum over the holders.
        chunk_piece, chunk_offset, chunk_bytes: for each chunk its piece, where in the piece it begins, and its size.
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
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.weight <= MOST_WEIGHT:
            raise InputError(f"{self.weight!r} is not a weight above 0 and up to {MOST_WEIGHT:g}", "weight")
        if not 0 <= self.start_s <= LONGEST_S:
            raise InputError(f"{self.start_s!r} s is not a start from zero to a year", "start")

    @classmethod
    def uncut(
        cls, kind: str, ranks: Int32, size_bytes: int, piece_bytes: Int64, holders: Ragged, wanted: Ragged,
        *, root: int = -1, start_s: float = 0.0, weight: float = 1.0,
    ) -> Collective:  # fmt: skip
        """A collective whose chunks are its pieces."""
        chunks = np.arange(len(piece_bytes), dtype=np.int32), np.zeros(len(piece_bytes), dtype=np.int64), piece_bytes
        reduces = BY_NAME[kind].reduces
        return cls(kind, ranks, size_bytes, root, start_s, piece_bytes, holders, wanted, reduces, *chunks, weight)

    def __repr__(self) -> str:
        return f"<Collective: {self.title}, {self.chunk_count} chunks>"

    @property
    def title(self) -> str:
        """``allreduce of 1 GB among 8 ranks``."""
        return f"{self.kind} of {format_size(self.size_bytes)} among {len(self.ranks)} ranks"

    @property
    def traits(self) -> Kind:
        """What its kind promises, as data."""
        return BY_NAME[self.kind]

    @property
    def alike(self) -> tuple[object, ...]:
        """What must happen, as a key: equal for collectives that differ in start and weight alone."""
        chunks = (self.chunk_piece, self.chunk_offset, self.chunk_bytes)
        return (*self.promise, *(column.tobytes() for column in chunks))

    @property
    def promise(self) -> tuple[object, ...]:
        """The same however the pieces are cut into chunks."""
        columns = (self.ranks, self.piece_bytes, *self.holders, *self.wanted)
        return (self.kind, self.root, self.size_bytes, *(column.tobytes() for column in columns))

    def promises_as(self, other: Collective) -> bool:
        """Whether the promises are equal. Where kinds and sizes say so, nothing is listed."""
        if (self.kind, self.root, self.size_bytes) != (other.kind, other.root, other.size_bytes):
            return False
        if isinstance(self, Promised) and isinstance(other, Promised):
            return self.receivers == other.receivers and np.array_equal(self.ranks, other.ranks)
        return self.promise == other.promise

    @property
    def chunk_count(self) -> int:
        return len(self.chunk_piece)

    @property
    def piece_count(self) -> int:
        return len(self.piece_bytes)

    @property
    def pairs(self) -> int:
        """How many pairs there are of a piece and a rank that holds it, and of a piece and a rank that wants it."""
        return len(self.holders.values) + len(self.wanted.values)

    def cuts(self, pieces: NDArray[Any]) -> tuple[Int64, Int64]:
        """int64[...] each, into how many chunks pieces are cut, and the first chunk of each."""
        counts = np.bincount(self.chunk_piece, minlength=self.piece_count)
        return counts[pieces], offsets_of(counts)[pieces]

    @property
    def evenly_cut(self) -> bool:
        """Whether all pieces are cut into equally many chunks, whose sizes differ by at most a byte."""
        counts = np.bincount(self.chunk_piece, minlength=self.piece_count)
        return np.ptp(counts) == 0 and bool(np.ptp(self.chunk_bytes) <= 1)

    @property
    def is_whole(self) -> bool:
        """Whether it was never cut: its chunks are its promise."""
        return self.chunk_bytes is self.piece_bytes

    @property
    def shard_bytes(self) -> int:
        """One rank's share of the buffer: size / ranks, rounded up."""
        return -(-self.size_bytes // len(self.ranks))

    @cached_property
    def chunk_holders(self) -> Ragged:
        """For each chunk the *nodes* that hold it at first."""
        lists = self.holders if self.is_whole else self.holders.take(self.chunk_piece)
        return lists.with_values(self.ranks[lists.values])

    @cached_property
    def chunk_wanted(self) -> Ragged:
        """For each chunk the *nodes* that must end with it."""
        lists = self.wanted if self.is_whole else self.wanted.take(self.chunk_piece)
        return lists.with_values(self.ranks[lists.values])


class Promised(Collective):
    """A collective of a kind, size and root; its pieces and chunks are listed when somebody asks for them.

    Among many ranks the lists are long (16,384 ranks that gather from all hold 268 million pieces), and what plans for
    one rank in the place of all others needs none of them.

    Attributes:
        chunks: into how many chunks each piece is cut; or int64[pieces], into how many each of them is.
        receivers: the ranks that want a multicast.
    """

    chunks: int | Int64
    receivers: tuple[int, ...]

    def __new__(cls, *args: Any, **given: Any) -> Any:
        # dataclasses.replace gives all columns: what it makes is listed
        return Collective(*args, **given) if "piece_bytes" in given else object.__new__(cls)

    def __init__(
        self, kind: str, ranks: Int32, size_bytes: int, root: int, start_s: float, weight: float, chunks: int | Int64,
        receivers: Sequence[int] = (),
    ) -> None:  # fmt: skip
        facts = {
            "kind": kind, "ranks": ranks, "size_bytes": size_bytes, "root": root, "start_s": start_s, "weight": weight,
            "reduces": BY_NAME[kind].reduces, "chunks": chunks, "receivers": tuple(receivers),
        }  # fmt: skip
        for name, fact in facts.items():
            object.__setattr__(self, name, fact)
        self.__post_init__()

    @cached_property
    def listed(self) -> Collective:
        """The same with all its columns; InputError if they do not fit into memory."""
        n, traits = len(self.ranks), self.traits
        lists = n if "all" in (traits.held, traits.wanted) else 1
        reason = too_much(self.piece_count * lists, "pieces at ranks", LISTED_BYTES)
        if reason is not None:
            raise InputError(f"{self.kind} among {n:,} ranks: {reason}", "ranks")
        pieces = traits.promise(n, self.size_bytes, self.root, self.receivers)
        whole = Collective.uncut(
            self.kind, self.ranks, self.size_bytes, *pieces, root=self.root, start_s=self.start_s, weight=self.weight
        )
        return cut(whole, self.chunks)

    @property
    def chunk_count(self) -> int:
        return self.piece_count * self.chunks if isinstance(self.chunks, int) else int(self.chunks.sum())

    def cuts(self, pieces: NDArray[Any]) -> tuple[Int64, Int64]:
        """int64[...] each, into how many chunks pieces are cut, and the first chunk of each."""
        if isinstance(self.chunks, int):
            return np.full(pieces.shape, self.chunks), pieces * self.chunks
        return self.chunks[pieces], offsets_of(self.chunks)[pieces]

    @property
    def evenly_cut(self) -> bool:
        counts = distinct(self.chunks)
        if len(counts) > 1:
            return False
        # the least and the largest piece
        parts = 1 if self.traits.whole else len(self.ranks)
        least, most = self.size_bytes // parts, -(-self.size_bytes // parts)
        return bool(-(-most // counts[0]) - least // counts[0] <= 1)

    @property
    def piece_count(self) -> int:
        return self.traits.pieces_among(len(self.ranks))

    @property
    def pairs(self) -> int:
        many = {"all": len(self.ranks), "receivers": len(self.receivers)}
        return self.piece_count * (many.get(self.traits.held, 1) + many.get(self.traits.wanted, 1))

    def __getattr__(self, name: str) -> Any:
        # called for what is no attribute yet
        if name not in LISTED:
            raise AttributeError(f"a collective has no {name!r}")
        column = getattr(self.listed, name)
        object.__setattr__(self, name, column)
        return column


@dataclass(frozen=True, eq=False)
class Workload:
    """The collectives that share a topology. Chunks are numbered through: collective by collective."""

    collectives: tuple[Collective, ...]

    def __repr__(self) -> str:
        return f"<Workload: {self.title}, {self.chunk_count} chunks>"

    def promises_as(self, other: Workload) -> bool:
        """Whether the other workload has equal collectives with equal starts and weights, in whatever chunks."""
        if len(self.collectives) != len(other.collectives):
            return False
        return all(
            a is b or ((a.start_s, a.weight) == (b.start_s, b.weight) and a.promises_as(b))
            for a, b in zip(self.collectives, other.collectives)
        )

    @property
    def title(self) -> str:
        """``broadcast of 4 MB among 8 ranks, allgather of 8 MB among 8 ranks``: the first few collectives."""
        titles = [c.title for c in self.collectives[:MOST_TITLES]]
        more = len(self.collectives) - len(titles)
        return ", ".join([*titles, *([f"and {more} more"] if more else [])])

    @cached_property
    def weights(self) -> Float64:
        """float64[collectives], how much the completion of each counts."""
        return np.array([c.weight for c in self.collectives], dtype=np.float64)

    def mean_s(self, completions_s: Float64) -> float:
        """The mean of completions, float64[collectives], by their weights."""
        return float((self.weights * completions_s).sum() / self.weights.sum())

    @cached_property
    def chunk_base(self) -> Int64:
        """int64[collectives + 1], the first chunk of each collective, and the count of all."""
        return np.array([0, *accumulate(c.chunk_count for c in self.collectives)], dtype=np.int64)

    @property
    def chunk_count(self) -> int:
        return sum(c.chunk_count for c in self.collectives)

    @cached_property
    def chunk_bytes(self) -> Int64:
        parts = [c.chunk_bytes for c in self.collectives]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @cached_property
    def chunk_collective(self) -> Int32:
        return self._each(np.arange(len(self.collectives), dtype=np.int32))

    @cached_property
    def chunk_reduces(self) -> Bool:
        return self._each(np.array([c.reduces for c in self.collectives], dtype=np.bool_))

    @cached_property
    def chunk_holders(self) -> Ragged:
        return Ragged.concatenate([c.chunk_holders for c in self.collectives])

    @cached_property
    def chunk_wanted(self) -> Ragged:
        return Ragged.concatenate([c.chunk_wanted for c in self.collectives])

    @cached_property
    def chunk_start_s(self) -> Float64:
        return self._each(np.array([c.start_s for c in self.collectives], dtype=np.float64))

    def _each(self, values: NDArray[Any]) -> NDArray[Any]:
        """For each chunk the value of its collective."""
        if len(values) == 1:
            return np.full(self.chunk_count, values[0])
        return values.repeat([c.chunk_count for c in self.collectives])


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
    weight: float = 1.0,
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
        weight: how much its completion counts among those of a workload.
    Raises:
        InputError: an unknown kind, too few bytes or ranks, a rank that is not an accelerator.
    """
    nodes = topology.accelerators if ranks is None else np.asarray(ranks, dtype=np.int32)
    n = len(nodes)
    traits = BY_NAME.get(kind)
    if traits is None or (traits.wanted == "receivers" and not traits.rooted):
        raise InputError(f"there is no collective {kind!r}; {nearest(kind, (*KINDS, 'alltoallv'))}", "collective")
    if traits.takes_matrix:
        raise InputError(f"{kind} needs a matrix as its demand: the bytes that each rank has for each", "collective")
    if n < 2:
        raise InputError(f"{kind} needs at least 2 ranks, {topology.name} has {n}", "ranks")
    if ranks is not None:
        if ((nodes < 0) | (nodes >= topology.node_count)).any() or not topology.is_accelerator[nodes].all():
            raise InputError("every rank must be an accelerator of the topology", "ranks")
        if len(distinct(nodes)) != n:
            raise InputError("a node may be a rank only once", "ranks")
    if not 0 <= root < n:
        raise InputError(f"root {root} is not a rank; there are ranks 0 to {n - 1}", "root")
    if (size_bytes is None) == (shard_bytes is None):
        raise InputError("give either the size of the full buffer or of one rank's shard", "size")
    size = size_bytes if size_bytes is not None else int(shard_bytes or 0) * n
    wanted = sorted({int(r) for r in receivers or ()})
    if traits.wanted == "receivers" and (not wanted or wanted[0] < 0 or wanted[-1] >= n):
        raise InputError(f"receivers must be some of the ranks 0 to {n - 1}", "receivers")
    shares = 1 if traits.whole else n
    check_cut(size, n, size // shares, chunks)
    root = root if traits.rooted else -1
    return Promised(kind, nodes, size, root, float(start_s), weight, chunks, wanted)
