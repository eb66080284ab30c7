"""Tree packing: out-trees from given roots that together fill a network of ranks, equal trees in one batch.

Edmonds' theorem (1973): the trees exist if every set of ranks can be entered by the trees of all roots outside it.
Trees grow one edge at a time, a batch of equal trees together (Tarjan 1974; Bérczi and Frank 2010; ForestColl, section
on tree packing). One max-flow says how many trees can take an edge so that all other trees can still grow; where
that is not the whole batch, the batch is divided.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np

from ...bounds.exact import Arcs
from ...kernels import at_speed
from ...model.arrays import Ragged
from . import kernel_branchings, kernel_packing
from .kernel_branchings import Branchings
from .kernel_packing import Edges, FlowNetwork, GrowingTree

Edge = tuple[int, int]

MOST_CHANGES = 300_000
"""Changes of a parent that are looked at, at most, to make trees shallow."""


@dataclass(frozen=True)
class Batch:
    """Equal trees.

    Attributes:
        count: how many trees.
        root: where they begin.
        edges: (parent, rank) of each rank but the root, parents first.
    """

    count: int
    root: int
    edges: list[Edge]


def pack(capacity: dict[Edge, int], roots: dict[int, int], ranks: list[int], length: dict[Edge, float]) -> list[Batch]:
    """Pack out-trees to all ranks, ``roots[v]`` of each root; they must exist.

    Args:
        length: of each edge; paths from the root are kept short.
    """
    network = _Network(capacity, roots, ranks, length)
    batches: list[Batch] = []
    for root in sorted(roots):
        if not roots[root]:
            continue
        network.start(root, roots[root])
        stack = [_GrowingBatch.of(roots[root], network.place[root], len(ranks))]
        while stack:
            batch = stack.pop()
            network.reserve(stack)
            while (taken := network.grow(batch)) is not None:
                edge, count = taken
                stack.append(batch.split(batch.count - count))
                batch.count = count
                network.reserve(stack)
                network.take(batch, edge)
            edges = [network.edges[e] for e in batch.tree.via[batch.tree.order[1:]].tolist()]
            batches.append(Batch(batch.count, root, edges))
    return batches


@dataclass
class _GrowingBatch:
    """Equal trees that do not reach all ranks yet: how many, the ``size`` ranks that they reach, and how."""

    count: int
    size: int
    tree: GrowingTree

    @classmethod
    def of(cls, count: int, root: int, ranks: int) -> _GrowingBatch:
        """Trees that are nothing but their root."""
        order, via = np.full(ranks, root, dtype=np.int64), np.full(ranks, -1, dtype=np.int64)
        return cls(count, 1, GrowingTree(order, np.zeros(ranks), via))

    def split(self, count: int) -> _GrowingBatch:
        """``count`` of the trees, which grow differently from now on."""
        return replace(deepcopy(self), count=count)


def shorten(
    batches: list[Batch], capacity: dict[Edge, int], ranks: list[int], length: dict[Edge, float]
) -> list[Batch]:
    """The batches with shorter paths from the root: nodes are given other parents."""
    edges = sorted(capacity)
    number = {edge: k for k, edge in enumerate(edges)}
    place = {v: i for i, v in enumerate(ranks)}
    via = np.full((len(batches), len(ranks)), -1, dtype=np.int64)
    for i, batch in enumerate(batches):
        for edge in batch.edges:
            via[i, place[edge[1]]] = number[edge]
    count = np.array([batch.count for batch in batches])
    used = np.bincount(via[via >= 0], np.broadcast_to(count[:, None], via.shape)[via >= 0], len(edges))
    spare = np.array([capacity[edge] for edge in edges]) - used.astype(np.int64)
    tail, head = (np.array([place[edge[k]] for edge in edges], dtype=np.int64) for k in (0, 1))
    into = Ragged.grouped(head, np.arange(len(edges)), len(ranks))
    lengths = np.array([length[edge] for edge in edges])
    at_speed(kernel_branchings.shorten, 2000.0 * via.size)(
        Branchings(via, count),
        kernel_branchings.Edges(tail, lengths, spare, into.offsets, into.values.astype(np.int64)),
        MOST_CHANGES,
    )
    return [
        replace(batch, edges=[edges[e] for e in row[row >= 0].tolist()])
        for batch, row in zip(batches, via, strict=True)
    ]


class _Network:
    """What is left of edges, and the trees that each root has still to grow.

    The max-flow network leads from where an edge goes to where it comes from, from every rank to a target by as many
    trees as the rank is root of (``home``), and from the ranks that an unfinished batch has reached through a slot of
    the batch to the target.
    """

    def __init__(
        self, capacity: dict[Edge, int], roots: dict[int, int], ranks: list[int], length: dict[Edge, float]
    ) -> None:
        self.edges = sorted(edge for edge, c in capacity.items() if c)
        self.left = np.array([capacity[edge] for edge in self.edges], dtype=np.int64)
        self.length = np.array([length[edge] for edge in self.edges])
        self.place = {v: i for i, v in enumerate(ranks)}
        self.tail, self.head = (np.array([self.place[e[k]] for e in self.edges], dtype=np.int64) for k in (0, 1))
        self.out = Ragged.grouped(self.tail, np.arange(len(self.edges)), len(ranks))
        self.out_edges = self.out.values.astype(np.int64)
        self.pending = np.array([roots.get(v, 0) for v in ranks], dtype=np.int64)
        self._build(2)

    def _build(self, slots: int) -> None:
        """Build the max-flow network with room for ``slots`` unfinished batches."""
        n, self.slots = len(self.place), slots
        self.target = n + slots
        every = np.arange(n)
        tails = [self.head, every, np.tile(every, slots), n + np.arange(slots)]
        heads = [self.tail, np.full(n, self.target), n + np.repeat(np.arange(slots), n), np.full(slots, self.target)]
        self.arcs = Arcs.of(np.concatenate(tails), np.concatenate(heads), n + slots + 1)
        ends = np.cumsum([len(t) for t in tails])
        forward = self.arcs.forward
        self.edge_arc, self.home = forward[: ends[0]], forward[ends[0] : ends[1]]
        self.member = forward[ends[1] : ends[2]].reshape(slots, n)
        self.slot = forward[ends[2] : ends[3]]
        self.capacity = self.arcs.capacities(np.zeros(len(forward), dtype=np.int64))
        self.capacity[self.edge_arc] = self.left
        self.capacity[self.home] = self.pending
        self.work = 20.0 * len(forward) * n * max(1, int((self.pending > 0).sum()))

    def start(self, root: int, count: int) -> None:
        """Begin to grow the trees of a root: room is no longer reserved for them at the root."""
        self.pending[self.place[root]] -= count
        self.capacity[self.home] = self.pending

    def reserve(self, unfinished: list[_GrowingBatch]) -> None:
        """Reserve room for the unfinished batches beside the one that grows."""
        if len(unfinished) > self.slots:
            self._build(2 * len(unfinished))
        self.capacity[self.member] = 0
        self.capacity[self.slot] = 0
        for i, batch in enumerate(unfinished):
            self.capacity[self.member[i, batch.tree.order[: batch.size]]] = 1 << 50
            self.capacity[self.slot[i]] = batch.count
        self.reserved = int(self.pending.sum()) + sum(batch.count for batch in unfinished)

    def grow(self, batch: _GrowingBatch) -> tuple[int, int] | None:
        """Grow a batch until it reaches all ranks (None), or no edge can be taken by all of its trees.

        Returns:
            The edge that most of the trees can take, and how many can.
        """
        arcs = self.arcs
        batch.size, edge, count = at_speed(kernel_packing.grow, self.work)(
            FlowNetwork(arcs.offsets, arcs.to, arcs.pair, self.capacity, self.edge_arc, self.home, self.target),
            Edges(self.tail, self.head, self.length, self.left, self.out.offsets, self.out_edges),
            batch.tree,
            batch.size, batch.count, self.reserved,
        )  # fmt: skip
        if count == batch.count:
            return None
        assert edge >= 0, "Edmonds: some edge can always be taken"
        return int(edge), int(count)

    def take(self, batch: _GrowingBatch, edge: int) -> None:
        """Let all trees of a batch take an edge."""
        self.left[edge] -= batch.count
        self.capacity[self.edge_arc[edge]] = self.left[edge]
        head, tree = self.head[edge], batch.tree
        tree.order[batch.size], tree.via[head] = head, edge
        tree.arrival[head] = tree.arrival[self.tail[edge]] + self.length[edge]
        batch.size += 1
