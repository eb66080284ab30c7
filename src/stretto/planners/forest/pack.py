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
from ...model.arrays import Float64, Int64, Ragged
from ...model.progress import Progress, silent
from . import kernel_branchings, kernel_packing
from .kernel_branchings import Branchings
from .kernel_packing import FlowNetwork, GrowingTree, RankEdges

MOST_STEPS = 30_000_000
"""Nodes that are looked at, at most, to make trees shallow: a few tenths of a second."""


def rank_edges(ranks: int, tail: Int64, head: Int64, capacity: Int64) -> RankEdges:
    """The edges of a network of ranks, as kernels take them."""
    out, into = (Ragged.grouped(ends, np.arange(len(ends)), ranks) for ends in (tail, head))
    lists = (out.offsets, out.values.astype(np.int64), into.offsets, into.values.astype(np.int64))
    return RankEdges(tail, head, capacity, *lists)


def pack(edges: RankEdges, roots: Int64, length: Float64, progress: Progress = silent) -> tuple[Branchings, Int64]:
    """Pack out-trees to all ranks; they must exist.

    Args:
        roots: int64[ranks], how many trees each rank is root of.
        length: float64[edges]; paths from the root are kept short.
        progress: told how many trees are packed.
    Returns:
        The trees, and int64[trees, ranks], the order in which each reached the ranks.
    """
    network = _Network(edges, roots, length)
    batches: list[_Batch] = []
    packed, trees_in_all = 0, int(roots.sum())
    for root in np.flatnonzero(roots).tolist():
        network.pending[root] = 0
        stack = [_Batch.of(int(roots[root]), root, len(roots))]
        while stack:
            progress(packed, trees_in_all, "packing trees")
            batch = stack.pop()
            while (taken := network.grow(batch, stack)) is not None:
                edge, count = taken
                stack.append(replace(deepcopy(batch), count=batch.count - count))
                batch.count = count
                network.take(batch, edge)
            batches.append(batch)
            packed += batch.count
    trees = Branchings(np.array([b.tree.via for b in batches]), np.array([b.count for b in batches]))
    return trees, np.array([b.tree.order for b in batches])


def shorten(trees: Branchings, edges: RankEdges, length: Float64) -> Branchings:
    """The trees with shorter paths from the root: nodes are given other parents."""
    via, copies = trees.via.copy(), trees.copies
    used = np.zeros(len(edges.tail), dtype=np.int64)
    tree, node = np.nonzero(via >= 0)
    np.add.at(used, via[tree, node], copies[tree])
    at_speed(kernel_branchings.shorten, 2000.0 * via.size)(
        Branchings(via, copies), edges, length, edges.capacity - used, MOST_STEPS
    )
    return Branchings(via, copies)


@dataclass
class _Batch:
    """Equal trees that grow together: how many, the ``size`` ranks that they reach, and how."""

    count: int
    size: int
    tree: GrowingTree

    @classmethod
    def of(cls, count: int, root: int, ranks: int) -> _Batch:
        """Trees that are nothing but their root."""
        order, via = np.full(ranks, root, dtype=np.int64), np.full(ranks, -1, dtype=np.int64)
        return cls(count, 1, GrowingTree(order, np.zeros(ranks), via))


class _Network:
    """What is left of edges, and the trees that each rank has still to grow (``pending``).

    The max-flow network leads from where an edge goes to where it comes from, from every rank to a target by as many
    trees as it has still to grow, and from the ranks that an unfinished batch has reached through a slot of the batch
    to the target.
    """

    def __init__(self, edges: RankEdges, roots: Int64, length: Float64) -> None:
        self.edges, self.length, self.left, self.pending = edges, length, edges.capacity.copy(), roots.copy()
        self._build(2)

    def _build(self, slots: int) -> None:
        """Build the max-flow network with room for ``slots`` unfinished batches."""
        n = len(self.pending)
        every, slot = np.arange(n), n + np.arange(slots)
        self.slots, self.target = slots, n + slots
        tails = np.concatenate((self.edges.head, every, np.tile(every, slots), slot))
        heads = np.concatenate((self.edges.tail, np.full(n, n + slots), np.repeat(slot, n), np.full(slots, n + slots)))
        self.arcs = Arcs.of(tails, heads, n + slots + 1)
        self.work = 20.0 * len(tails) * n * max(1, int((self.pending > 0).sum()))

    def grow(self, batch: _Batch, unfinished: list[_Batch]) -> tuple[int, int] | None:
        """Grow a batch until it reaches all ranks (None), or no edge can be taken by all of its trees.

        Args:
            unfinished: batches for which room is reserved.
        Returns:
            The edge that most of the trees can take, and how many can.
        """
        if len(unfinished) > self.slots:
            self._build(2 * len(unfinished))
        member = np.zeros((self.slots, len(self.pending)), dtype=np.int64)
        slot = np.zeros(self.slots, dtype=np.int64)
        for i, other in enumerate(unfinished):
            member[i, other.tree.order[: other.size]] = 1 << 50
            slot[i] = other.count
        arcs = self.arcs
        capacity = arcs.capacities(np.concatenate((self.left, self.pending, member.ravel(), slot)))
        batch.size, edge, taken = at_speed(kernel_packing.grow, self.work)(
            FlowNetwork(arcs.offsets, arcs.to, arcs.pair, capacity, arcs.forward, self.target),
            self.edges, self.length, self.left, batch.tree,
            batch.size, batch.count, int(self.pending.sum() + slot.sum()),
        )  # fmt: skip
        if taken == batch.count:
            return None
        assert edge >= 0, "Edmonds: some edge can always be taken"
        return int(edge), int(taken)

    def take(self, batch: _Batch, edge: int) -> None:
        """Let all trees of a batch take an edge."""
        head, tree = self.edges.head[edge], batch.tree
        self.left[edge] -= batch.count
        tree.order[batch.size], tree.via[head] = head, edge
        tree.arrival[head] = tree.arrival[self.edges.tail[edge]] + self.length[edge]
        batch.size += 1
