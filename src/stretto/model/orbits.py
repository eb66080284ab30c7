"""The chunks of a workload as orbits of a group.

Each chunk has an *owner*, which the group maps along with it: the rank of its piece, or the pair of ranks, where
pieces are of ranks or pairs. Where the buffer is one piece, chunks are dealt out to owners: an orbit of chunks is a
range of the buffer, cut evenly among its owners in the order of their ranks.

An owner may also be *fixed*, a rank (or a pair) that every element leaves where it is, such as the one accelerator
whose NIC is slow. Its piece is cut into as many chunks as there are elements, and each element maps the first of them
to another one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Bool, Float64, Int32, Int64, Ragged, distinct
from .collective import Collective, Promised, Workload
from .kinds import Ranks, even_part
from .symmetry import Symmetry


@dataclass(frozen=True, eq=False)
class Orbits:
    """The chunks of a workload as orbits of a group, each by its representative.

    Attributes:
        workload: the whole workload. All its collectives are of one kind and size, each with ranks of its own.
        symmetry: the group, which maps ranks to ranks and collectives to collectives.
        owner: int32[orbits, 1 or 2], the node (or pair of nodes) that owns each representative, in ascending order of
            collectives.
        position: int64[orbits]. Where pieces are of ranks or pairs, the place of the chunk in its piece. Where the
            buffer is one piece, the first chunk of the orbit's range. If the owner is fixed, the first of its chunks.
    """

    workload: Workload
    symmetry: Symmetry
    owner: Int32
    position: Int64

    @property
    def count(self) -> int:
        return len(self.position)

    @cached_property
    def seats(self) -> tuple[Int64, Int64]:
        """int64[nodes], the collective of each node, and its rank there; -1 for nodes without a rank."""
        collective = np.full(self.symmetry.topology.node_count, -1, dtype=np.int64)
        rank = collective.copy()
        for number, c in enumerate(self.workload.collectives):
            collective[c.ranks], rank[c.ranks] = number, np.arange(len(c.ranks))
        return collective, rank

    @cached_property
    def turn(self) -> Int64:
        """int64[nodes], the place of each rank among those of its collective and its orbit, in the order of ranks."""
        collective, rank = self.seats
        nodes = np.flatnonzero(rank >= 0)
        group = collective[nodes] * len(rank) + self.symmetry.node_orbits[nodes]
        order = np.lexsort((rank[nodes], group))
        first = np.concatenate(([True], np.diff(group[order]) != 0))
        starts = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
        out = np.full(len(rank), -1, dtype=np.int64)
        out[nodes[order]] = np.arange(len(order)) - starts
        return out

    @cached_property
    def fixed(self) -> Bool:
        """bool[orbits], whether every element leaves the owners of an orbit where they are."""
        alone = np.bincount(self.symmetry.node_orbits)[self.symmetry.node_orbits[self.owner]] == 1
        fixed: Bool = alone.all(axis=1) & (self.symmetry.size > 1)
        return fixed

    @cached_property
    def shares(self) -> Int64:
        """int64[orbits], how many consecutive chunks of a piece are of an orbit."""
        if not self.workload.collectives[0].traits.whole:
            return np.where(self.fixed, self.symmetry.size, 1)
        collective, _ = self.seats
        group = collective * len(collective) + self.symmetry.node_orbits
        number = np.bincount(group[collective >= 0])[group[self.owner[:, 0]]]
        return np.where(self.fixed, self.symmetry.size, number)

    def chunks(self, orbit: NDArray[Any], element: NDArray[Any]) -> Int64:
        """int64[...], the chunk of the whole workload to which an element maps a representative; arrays of shapes that
        broadcast."""
        orbit, element = np.broadcast_arrays(orbit, element)
        owner = self.symmetry.image(element[..., None], self.owner[orbit])
        collective, rank = self.seats
        number = collective[owner[..., 0]]
        first = self.workload.collectives[0]
        local = self.position[orbit] + np.where(self.fixed[orbit], element, 0)
        if first.traits.whole:
            local += np.where(self.fixed[orbit], 0, self.turn[owner[..., 0]])
        else:
            local += first.cuts(self._pieces(rank[owner]))[1]
        chunks: Int64 = self.workload.chunk_base[number] + local
        return chunks

    def _pieces(self, ranks: Int64) -> Int64:
        """int64[...], the piece of each rank, or pair of ranks, of the last axis of ``ranks``."""
        pieces = ranks[..., 0]
        if self.owner.shape[1] == 2:
            pieces = pieces * len(self.workload.collectives[0].ranks) + ranks[..., 1]
        return pieces

    @cached_property
    def cuts(self) -> Int64:
        """int64[orbits], into how many chunks the piece of a representative is cut."""
        first = self.workload.collectives[0]
        pieces = np.zeros(self.count, np.int64) if first.traits.whole else self._pieces(self.seats[1][self.owner])
        return first.cuts(pieces)[0]

    def sizes(self, orbit: NDArray[Any], element: NDArray[Any], chunks: Int64) -> Int64:
        """int64[...], the bytes of ``chunks``, the chunks to which elements map representatives by :meth:`chunks`."""
        first = self.workload.collectives[0]
        local = chunks - self.workload.chunk_base[np.searchsorted(self.workload.chunk_base, chunks, side="right") - 1]
        if not isinstance(first, Promised):
            listed: Int64 = first.chunk_bytes[local]
            return listed
        orbit, element = np.broadcast_arrays(orbit, element)
        pieces = np.zeros(orbit.shape, np.int64)
        total = np.array(first.size_bytes)
        if not first.traits.whole:
            pieces = self._pieces(self.seats[1][self.symmetry.image(element[..., None], self.owner[orbit])])
            total = even_part(total, np.array(len(first.ranks)), pieces % len(first.ranks))
        counts, begins = first.cuts(pieces)
        return even_part(total, counts, local - begins)

    @cached_property
    def chunk_bytes(self) -> Int64:
        """int64[orbits], the largest chunk of each orbit."""
        c = self.workload.collectives[0]
        if c.traits.whole:
            ranges = zip(self.position.tolist(), self.shares.tolist(), strict=True)
            return np.array([c.chunk_bytes[a : a + n].max() for a, n in ranges], dtype=np.int64)
        return -(-c.size_bytes // (len(c.ranks) * self.cuts))

    def of_all(self, completions_s: Float64) -> Float64:
        """float64[collectives], the completion of each by those of the representatives' collectives: the latest among
        collectives that the group maps to each other."""
        like = np.array([self.symmetry.node_orbits[c.ranks].min() for c in self.workload.collectives])
        latest = np.zeros(len(self.symmetry.node_orbits))
        np.maximum.at(latest, like[distinct(self.seats[0][self.owner[:, 0]])], completions_s)
        of_each: Float64 = latest[like]
        return of_each

    @cached_property
    def representatives(self) -> Workload:
        """The workload of the representative chunks alone, each a piece of its own."""
        collective, rank = self.seats
        number = collective[self.owner[:, 0]]
        found = []
        for j in distinct(number):
            c, orbits = self.workload.collectives[j], np.flatnonzero(number == j)
            ends = c.traits.held, c.traits.wanted
            held, wanted = (_among(len(c.ranks), who, rank[self.owner[orbits]], c.root) for who in ends)
            sizes = self.chunk_bytes[orbits]
            pieces = Collective.uncut(c.kind, c.ranks, c.size_bytes, sizes, held, wanted, root=c.root)
            found.append(replace(pieces, start_s=c.start_s, weight=c.weight))
        return Workload(tuple(found))


def _among(ranks: int, who: Ranks, owner: Int64, root: int) -> Ragged:
    """For each owner, int64[orbits, 1 or 2], the ranks that hold or want its chunk."""
    if who == "all":
        return Ragged.from_lengths(np.full(len(owner), ranks), np.tile(np.arange(ranks), len(owner)))
    if who == "root":
        return Ragged.single(np.full(len(owner), root))
    return Ragged.single(owner[:, -1 if who == "receiver" else 0])


def dealt(collective: Collective, range_bytes: Int64, owners: Int64) -> Collective:
    """A collective whose one piece is cut into consecutive ranges, and each range evenly into a chunk for each owner.

    Args:
        range_bytes: int64[orbits], the bytes of each range; they add up to the buffer.
        owners: int64[orbits], the owners of each.
    """
    each = np.repeat(range_bytes // owners, owners)
    turn = np.arange(len(each)) - np.repeat(np.cumsum(owners) - owners, owners)
    sizes = (each + (turn < np.repeat(range_bytes % owners, owners))).astype(np.int64)
    zeros = np.zeros(len(sizes), dtype=np.int32)
    return replace(collective, chunk_piece=zeros, chunk_offset=np.cumsum(sizes) - sizes, chunk_bytes=sizes)
