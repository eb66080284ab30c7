"""Tree packing: out-trees from given roots that together fill a network of ranks, many alike at a time.

Edmonds' theorem (1973): they exist if every set without some roots can be entered by as much as these send. Trees
grow one edge at a time, a batch of equal ones together (Tarjan 1974; Bérczi and Frank 2010; ForestColl, section
on tree packing): an edge is taken as often as leaves enough for all trees still to grow, which one max-flow says;
where that is not for the whole batch, the batch is divided.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...bounds.exact import Arcs
from ...kernels import at_speed
from ...kernels import maxflow as maxflow_kernel
from . import kernel_branchings

Int64 = NDArray[np.int64]
Edge = tuple[int, int]


WORK = 300_000
"""How many changes are looked at to make trees shallow."""


@dataclass(frozen=True)
class Batch:
    """Equal trees.

    Attributes:
        count: how many.
        root: where they begin.
        edges: (from, to) of each rank but the root, in the order in which they were reached.
    """

    count: int
    root: int
    edges: list[Edge]


def pack(capacity: dict[Edge, int], roots: dict[int, int], ranks: list[int], far: dict[Edge, float]) -> list[Batch]:
    """Out-trees to all ranks, ``roots[v]`` from each root; they must exist.

    Args:
        far: the length of each edge; ways from the root are kept short.
    """
    network = _Network(capacity, roots, ranks, far)
    done: list[Batch] = []
    for root in sorted(roots):
        if not roots[root]:
            continue
        network.start(root, roots[root])
        stack = [_Growing.of(roots[root], network.place[root], len(ranks))]
        while stack:
            some = stack.pop()
            network.set_partial(stack)
            while (found := network.grow(some)) is not None:
                edge, count = found
                stack.append(some.split(some.count - count))
                some.count = count
                network.set_partial(stack)
                network.take(some, edge)
            done.append(Batch(some.count, root, [network.edges[e] for e in some.via[some.order[1:]].tolist()]))
    return done


@dataclass
class _Growing:
    """Equal trees that do not reach all ranks yet.

    Attributes:
        count: how many.
        order: int64[ranks], those that they reach, ``size`` of them.
        arrival: float64[ranks], how far each of these is from the root.
        via: int64[ranks], the edge that leads there.
    """

    count: int
    order: Int64
    size: int
    arrival: NDArray[np.float64]
    via: Int64

    @classmethod
    def of(cls, count: int, root: int, ranks: int) -> _Growing:
        """Nothing but their root."""
        order = np.full(ranks, root, dtype=np.int64)
        return cls(count, order, 1, np.zeros(ranks), np.full(ranks, -1, dtype=np.int64))

    def split(self, count: int) -> _Growing:
        """Some of them, to grow otherwise from now on."""
        return _Growing(count, self.order.copy(), self.size, self.arrival.copy(), self.via.copy())


def shortened(batches: list[Batch], capacity: dict[Edge, int], ranks: list[int], far: dict[Edge, float]) -> list[Batch]:
    """As many trees of the same roots in which ways from the root are shorter: nodes are given other parents."""
    edges = sorted(capacity)
    number = {edge: k for k, edge in enumerate(edges)}
    place = {v: i for i, v in enumerate(ranks)}
    via = np.full((len(batches), len(ranks)), -1, dtype=np.int64)
    for i, batch in enumerate(batches):
        for edge in batch.edges:
            via[i, place[edge[1]]] = number[edge]
    count = np.array([batch.count for batch in batches])
    used = np.bincount(via[via >= 0], np.broadcast_to(count[:, None], via.shape)[via >= 0], len(edges))
    tail, head = (np.array([place[edge[k]] for edge in edges], dtype=np.int64) for k in (0, 1))
    offsets = np.zeros(len(ranks) + 1, dtype=np.int64)
    np.cumsum(np.bincount(head, minlength=len(ranks)), out=offsets[1:])
    at_speed(kernel_branchings.shorten, 2000.0 * via.size)(
        via, count, tail, np.array([far[edge] for edge in edges]),
        np.array([capacity[edge] for edge in edges]) - used.astype(np.int64),
        offsets, np.argsort(head, kind="stable"), WORK,
    )  # fmt: skip
    return [
        replace(batch, edges=[edges[e] for e in row[row >= 0].tolist()])
        for batch, row in zip(batches, via, strict=True)
    ]


class _Network:
    """What is left of edges, and what is still to be sent from where."""

    def __init__(
        self,
        capacity: dict[Edge, int],
        roots: dict[int, int],
        ranks: list[int],
        far: dict[Edge, float],
    ) -> None:
        self.edges = sorted(edge for edge, c in capacity.items() if c)
        self.left = np.array([capacity[edge] for edge in self.edges], dtype=np.int64)
        self.far = np.array([far[edge] for edge in self.edges])
        self.place = {v: i for i, v in enumerate(ranks)}
        self.tail, self.head = (np.array([self.place[e[k]] for e in self.edges], dtype=np.int64) for k in (0, 1))
        self.out_offsets = np.zeros(len(ranks) + 1, dtype=np.int64)
        np.cumsum(np.bincount(self.tail, minlength=len(ranks)), out=self.out_offsets[1:])
        self.out = np.argsort(self.tail, kind="stable")
        self.pending = np.array([roots.get(v, 0) for v in ranks], dtype=np.int64)
        self._build(2)

    def _build(self, slots: int) -> None:
        """Arcs from where trees lead to where they come from, and to ``slots`` unfinished batches."""
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
        self.kernel_steps = 20.0 * len(forward) * n * max(1, int((self.pending > 0).sum()))

    def start(self, root: int, count: int) -> None:
        """The trees of a root begin to grow: they are no longer among those that must be left room for."""
        self.pending[self.place[root]] -= count
        self.capacity[self.home] = self.pending

    def set_partial(self, stack: list[_Growing]) -> None:
        """The unfinished batches that must be left room for."""
        if len(stack) > self.slots:
            self._build(2 * len(stack))
        self.capacity[self.member] = 0
        self.capacity[self.slot] = 0
        for i, some in enumerate(stack):
            self.capacity[self.member[i, some.order[: some.size]]] = 1 << 50
            self.capacity[self.slot[i]] = some.count
        self.reserved = int(self.pending.sum()) + sum(some.count for some in stack)

    def grow(self, some: _Growing) -> tuple[int, int] | None:
        """Let trees reach all ranks, or as many as they can together: then the edge that most of them can take."""
        arcs = self.arcs
        some.size, edge, count = at_speed(maxflow_kernel.grow, self.kernel_steps)(
            arcs.offsets, arcs.to, arcs.pair, self.capacity, self.target, self.home, self.edge_arc, self.left,
            self.tail, self.head, self.far, self.out_offsets, self.out, some.count, self.reserved,
            some.order, some.size, some.arrival, some.via,
        )  # fmt: skip
        if count == some.count:
            return None
        assert edge >= 0, "Edmonds: some edge can always be taken"
        return int(edge), int(count)

    def take(self, some: _Growing, edge: int) -> None:
        """Let all of some trees take an edge."""
        self.left[edge] -= some.count
        self.capacity[self.edge_arc[edge]] = self.left[edge]
        head = self.head[edge]
        some.order[some.size], some.via[head] = head, edge
        some.arrival[head] = some.arrival[self.tail[edge]] + self.far[edge]
        some.size += 1
