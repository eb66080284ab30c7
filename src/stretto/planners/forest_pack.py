"""Tree packing: out-trees from given roots that together fill a network of ranks, many alike at a time.

Edmonds' theorem (1973): they exist if every set without some roots can be entered by as much as these send. Trees
grow one edge at a time, a batch of equal ones together (Tarjan 1974; Bérczi and Frank 2010; ForestColl, section
on tree packing): an edge is taken as often as leaves enough for all trees still to grow, which one max-flow says;
where that is not for the whole batch, the batch is divided.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from ..bounds.exact import Arcs

Int64 = NDArray[np.int64]
Edge = tuple[int, int]


WORK = 300_000
"""How many changes are looked at to make trees shallow."""


@dataclass
class Batch:
    """Equal trees.

    Attributes:
        count: how many.
        reached: the ranks in them, in the order in which they were, the root first.
        edges: (from, to) of each rank but the root, in that order.
        arrival: for each rank in the trees how far it is from the root.
    """

    count: int
    reached: list[int]
    edges: list[Edge] = field(default_factory=list)
    arrival: dict[int, float] = field(default_factory=dict)


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
        stack = [Batch(roots[root], [root], [], {root: 0.0})]
        while stack:
            batch = stack.pop()
            network.set_partial(stack)
            while len(batch.reached) < len(ranks):
                (x, y), count = network.next_edge(batch)
                if count < batch.count:
                    stack.append(replace(batch, count=batch.count - count, reached=list(batch.reached),
                                         edges=list(batch.edges), arrival=dict(batch.arrival)))  # fmt: skip
                    batch.count = count
                    network.set_partial(stack)
                network.use((x, y), count)
                batch.reached.append(y)
                batch.edges.append((x, y))
                batch.arrival[y] = batch.arrival[x] + far[x, y]
            done.append(batch)
    return done


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
    kernels.load("branchings", 2000.0 * via.size).shorten(
        via, count, tail, np.array([far[edge] for edge in edges]),
        np.array([capacity[edge] for edge in edges]) - used.astype(np.int64),
        offsets, np.argsort(head, kind="stable"), WORK,
    )  # fmt: skip
    return [
        Batch(batch.count, batch.reached, [edges[e] for e in row[row >= 0].tolist()])
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
        self.left = {edge: c for edge, c in sorted(capacity.items()) if c}
        self.place = {v: i for i, v in enumerate(ranks)}
        self.pending = {v: roots.get(v, 0) for v in ranks}
        self.ranks, self.far = ranks, far
        self.out: dict[int, list[int]] = {v: [] for v in ranks}
        for u, t in self.left:
            self.out[u].append(t)
        self.partial: list[Batch] = []
        self._build(2)

    def _build(self, slots: int) -> None:
        """Arcs from where trees lead to where they come from, and to ``slots`` unfinished batches."""
        n, self.slots = len(self.ranks), slots
        self.edges = list(self.left)
        self.target = n + slots
        every = np.arange(n)
        tails = [np.array([self.place[t] for _, t in self.edges]), every, np.tile(every, slots), n + np.arange(slots)]
        heads = [np.array([self.place[u] for u, _ in self.edges]), np.full(n, self.target),
                 n + np.repeat(np.arange(slots), n), np.full(slots, self.target)]  # fmt: skip
        self.arcs = Arcs.of(np.concatenate(tails), np.concatenate(heads), n + slots + 1)
        ends = np.cumsum([len(t) for t in tails])
        forward = self.arcs.forward
        self.edge_arc = dict(zip(self.edges, forward[: ends[0]].tolist(), strict=True))
        self.home = forward[ends[0] : ends[1]]
        self.member = forward[ends[1] : ends[2]].reshape(slots, n)
        self.slot = forward[ends[2] : ends[3]]
        self.capacity = self.arcs.capacities(np.zeros(len(forward), dtype=np.int64))
        for edge, arc in self.edge_arc.items():
            self.capacity[arc] = self.left[edge]
        self.capacity[self.home] = [self.pending[v] for v in self.ranks]
        work = 20.0 * len(forward) * n * max(1, sum(1 for v in self.pending.values() if v))
        self.kernel = kernels.load("maxflow", work)

    def start(self, root: int, count: int) -> None:
        """The trees of a root begin to grow: they are no longer among those that must be left room for."""
        self.pending[root] -= count
        self.capacity[self.home[self.place[root]]] = self.pending[root]

    def set_partial(self, stack: list[Batch]) -> None:
        """The unfinished batches that must be left room for."""
        if len(stack) > self.slots:
            self._build(2 * len(stack))
        self.partial = stack
        self.capacity[self.member] = 0
        self.capacity[self.slot] = 0
        for i, batch in enumerate(stack):
            self.capacity[self.member[i, [self.place[v] for v in batch.reached]]] = 1 << 50
            self.capacity[self.slot[i]] = batch.count
        self.reserved = sum(self.pending.values()) + sum(b.count for b in stack)

    def next_edge(self, batch: Batch) -> tuple[Edge, int]:
        """An edge out of the batch that all its trees can take, from near the root if possible; else the widest."""
        inside = set(batch.reached)
        best, most = None, 0
        choices = [(x, y) for x in batch.reached for y in self.out[x] if y not in inside and self.left[x, y]]
        for edge in sorted(choices, key=lambda e: (self.left[e] < batch.count, batch.arrival[e[0]] + self.far[e])):
            limit = min(batch.count, self.left[edge])
            if limit <= most:
                continue
            count = self._room(edge, limit)
            if count > most:
                best, most = edge, count
            if most == batch.count:
                break
        assert best is not None, "Edmonds: some edge can always be taken"
        return best, most

    def _room(self, edge: Edge, limit: int) -> int:
        x, y = self.place[edge[0]], self.place[edge[1]]
        arcs = self.arcs
        flow = self.kernel.between(
            arcs.offsets, arcs.to, arcs.pair, self.capacity, y, self.target, self.home, x, self.reserved + limit
        )
        return max(min(limit, int(flow) - self.reserved), 0)

    def use(self, edge: Edge, count: int) -> None:
        """Take an edge."""
        self.left[edge] -= count
        self.capacity[self.edge_arc[edge]] = self.left[edge]
