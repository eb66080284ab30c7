"""An exchange: in-trees whose messages are shared where they carry the same sum, and copies of the result.

A *hub* is a node that ends with the whole sum by messages alone. All contributions come to it over a tree of shortest
paths; messages of several hubs' trees that carry the same sum over the same pipe are one message. A sum never counts a
contribution twice, so what comes to a hub must be its own tree alone; a hub whose tree does not agree with those of the
hubs before it is left out. All other ranks get the result as a copy from the hub from which it comes first. Nodes that
store and are no ranks contribute nothing, and pass sums and copies on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ....kernels import at_speed
from ....kernels import paths as paths_kernel
from ....model.arrays import Float64, Int32, Int64, Ragged, offsets_of
from ....schedule.pipes import Network
from . import kernel_growth

GROWTH_STEPS = 2_000.0
"""Steps of the kernel for each pipe in all trees of an AllReduce: about ten in each of two hundred trees."""

Tree = list[tuple[int, int]]
"""(pipe, node): by which pipe each node is reached, in order."""


class Message(NamedTuple):
    """A partial sum, sent over a pipe after the messages that brought it."""

    pipe: int
    after: tuple[int, ...]


Bundle = tuple[int, tuple[int, ...]]
"""The contributions that a node has (a bit a node), and the messages that brought them."""


@dataclass
class Exchange:
    """Messages, in an order in which each comes after those it waits for, and copies."""

    messages: list[Message] = field(default_factory=list)  # all partial sums
    index: dict[tuple[int, int], int] = field(default_factory=dict)  # the message of a pipe and a content
    into: dict[int, list[int]] = field(default_factory=dict)  # for each node the messages that come to it
    complete: dict[int, list[int]] = field(default_factory=dict)  # for each hub the messages that it adds up
    copies: Tree = field(default_factory=list)  # (pipe, node) of each copy of the result, in order

    def send(self, pipe: int, node: int, bundle: Bundle) -> int:
        """The message of a bundle over a pipe to a node, added where there is none yet."""
        content, after = bundle
        k = self.index.setdefault((pipe, content), len(self.messages))
        if k == len(self.messages):
            self.messages.append(Message(pipe, after))
            self.into.setdefault(node, []).append(k)
        return k

    def gather(
        self, network: Network, tree: Tree, roots: Collection[int], relays: Collection[int] = ()
    ) -> dict[int, Bundle]:
        """What comes to the roots up a tree, with their own; the node that the tree reaches last sends first.

        Args:
            relays: the nodes that contribute nothing.
        """
        nodes = (*roots, *(v for _, v in tree))
        bundles: dict[int, Bundle] = {v: (0 if v in relays else 1 << v, ()) for v in nodes}
        heads = network.dst.tolist()
        for pipe, v in reversed(tree):
            if not bundles[v][0]:
                continue
            w = heads[pipe]
            k = self.send(pipe, w, bundles[v])
            bundles[w] = bundles[w][0] | bundles[v][0], (*bundles[w][1], k)
        return {v: bundles[v] for v in roots}

    def swap(self, sent: Sequence[Mapping[int, Bundle]], across: Mapping[tuple[int, int], int]) -> None:
        """Send the sums of each cluster to the hubs of all others.

        Args:
            sent: for each cluster what its ranks have to send.
            across: the pipe from each rank to each hub of other clusters.
        """
        for bundles in sent:
            for v, bundle in bundles.items():
                for hub, brought in self.complete.items():
                    if (v, hub) in across:
                        brought.append(self.send(across[v, hub], hub, bundle))

    def pipes(self) -> Int64:
        """int64[messages and copies], the pipe of each."""
        return np.array([*(m.pipe for m in self.messages), *(p for p, _ in self.copies)], dtype=np.int64)


@dataclass(frozen=True)
class Paths:
    """The pipes among some nodes, what each costs, and the shortest paths over them."""

    network: Network  # the pipes of the topology
    joined: Int32  # int32[any], the nodes
    usable: Int64  # int64[any], the pipes that may be used; of equally short ones the first is taken
    cost: Float64  # float64[pipes], seconds
    distance: Float64  # float64[nodes, nodes], the length of the shortest path

    @classmethod
    def of(cls, network: Network, joined: Int32, cost: Float64, order: Int64) -> Paths:
        """All pipes that join some nodes; those with the lowest ``order`` (int64[pipes]) first."""
        nodes = len(network.out[0]) - 1
        inside = np.zeros(nodes, dtype=np.bool_)
        inside[joined] = True
        usable = np.flatnonzero(inside[network.src] & inside[network.dst])
        leaving = Ragged.grouped(network.src[usable], usable, nodes)
        distance = at_speed(paths_kernel.all_pairs, 20.0 * nodes * len(usable))(*leaving, network.dst, cost)
        return cls(network, joined, usable[np.argsort(order[usable], kind="stable")], cost, distance)

    def out(self, nodes: set[int]) -> dict[int, list[int]]:
        """The pipes from each of some nodes to others of them, in order."""
        inside = np.zeros(len(self.distance), dtype=np.bool_)
        inside[list(nodes)] = True
        offsets, pipes = self.leaving
        kept = inside[self.network.src[pipes]] & inside[self.network.dst[pipes]]
        ends = offsets_of(kept)[offsets].tolist()
        inner = pipes[kept].tolist()
        return {v: inner[a:b] for v, (a, b) in enumerate(pairwise(ends)) if a < b}

    @cached_property
    def leaving(self) -> tuple[Int64, Int64]:
        """CSR of the pipes that leave each node, in order."""
        return self._by_end(self.network.src)

    @cached_property
    def entering(self) -> tuple[Int64, Int64]:
        """CSR of the pipes that enter each node, in order."""
        return self._by_end(self.network.dst)

    def _by_end(self, ends: Int64) -> tuple[Int64, Int64]:
        pipes = self.usable[np.argsort(ends[self.usable], kind="stable")]
        return np.searchsorted(ends[pipes], np.arange(len(self.distance) + 1)).astype(np.int64), pipes


def order_hubs(paths: Paths, ranks: Int32, count: int, rng: np.random.Generator) -> tuple[list[int], list[float]]:
    """Hubs and, for each number of them, when the last rank has the result.

    Each hub is the rank that, added to those before it, brings the result to all ranks soonest.
    """
    distance = paths.distance[np.ix_(ranks, ranks)]
    summed_s = distance.max(axis=0)
    arrival = np.full(len(ranks), np.inf)
    noise = rng.random(len(ranks)) * 1e-6
    hubs: list[int] = []
    ends: list[float] = []
    free = np.ones(len(ranks), dtype=np.bool_)
    while len(hubs) < count:
        after = np.minimum(arrival, summed_s[:, None] + distance)
        score = after.max(axis=1) * (1.0 + noise) + 1e-3 * after.mean(axis=1)
        next_hub = int(np.where(free, score, np.inf).argmin())
        free[next_hub] = False
        arrival = after[next_hub]
        hubs.append(int(ranks[next_hub]))
        ends.append(float(arrival.max()))
    return hubs, ends


def build_exchange(paths: Paths, ranks: Int32, hubs: list[int], size: float) -> Exchange:
    """The exchange of as many of these hubs as agree, in their order; the first one always does.

    Ranks that are on no path between hubs give what they have to a node that is, so that it comes to all hubs soonest,
    and get the result as a copy.

    Args:
        size: bytes of the part of the buffer that it carries.
    """
    between = _between(paths, hubs)
    onward_s = {v: float(paths.distance[v, hubs].max()) for v in between}
    exchange, relays = Exchange(), set(paths.joined.tolist()) - set(ranks.tolist())
    bundles = exchange.gather(paths.network, _grow_tree(paths, size, onward_s, ranks, backward=True), between, relays)
    out, heads, cost = paths.out(set(bundles)), paths.network.dst.tolist(), paths.cost.tolist()
    for hub in hubs:
        distance = paths.distance[:, hub].tolist()
        short = {
            u: [p for p in out[u] if cost[p] + distance[heads[p]] <= distance[u] * (1 + 1e-9)]
            for u in sorted(bundles.keys() - {hub}, key=lambda v: (-distance[v], v))
        }
        _add_hub(exchange, bundles, hub, short, heads)
    inside = np.array(sorted(between - relays))
    ready_s = {v: float(paths.distance[inside, v].max()) for v in exchange.complete}
    exchange.copies.extend(_grow_tree(paths, size, ready_s, ranks, backward=False))
    return exchange


def _between(paths: Paths, hubs: list[int]) -> set[int]:
    """The hubs, and all nodes on one shortest path from each of these nodes to each hub."""
    reached, left = set(hubs), list(hubs)
    network = paths.network
    out = paths.out(set(np.concatenate((network.src[paths.usable], hubs)).tolist()))
    if reached >= out.keys():
        return reached
    heads, cost = network.dst.tolist(), paths.cost.tolist()
    distance = {hub: paths.distance[:, hub].tolist() for hub in hubs}
    while left:
        v = left.pop()
        for hub in hubs:
            if v != hub:
                tight = distance[hub][v] * (1 + 1e-9)
                w = next(heads[p] for p in out[v] if cost[p] + distance[hub][heads[p]] <= tight)
                if w not in reached:
                    reached.add(w)
                    left.append(w)
    return reached


def _grow_tree(paths: Paths, size: float, ready_s: dict[int, float], ranks: Int32, backward: bool) -> Tree:
    """How each rank is reached by the earliest arrival from nodes that are ready at some time, through others, too.

    Args:
        size: bytes; the tree's own transfers hold each other up on the links.
        backward: time and pipes are reversed: how each rank reaches one of the nodes.
    """
    network, columns = paths.network, paths.network.columns
    src, dst = (columns.dst, columns.src) if backward else (columns.src, columns.dst)
    out_offsets, out_pipes = paths.entering if backward else paths.leaving
    pipes = columns._replace(src=src, dst=dst, out_offsets=out_offsets, out_pipes=out_pipes)
    ready, wanted = np.full(len(paths.distance), np.inf), np.zeros(len(paths.distance), dtype=np.bool_)
    wanted[paths.joined] = True
    ready[list(ready_s)] = list(ready_s.values())
    wanted[list(ready_s)] = False
    taken = at_speed(kernel_growth.grow, GROWTH_STEPS * len(paths.usable))(
        pipes, network.topology.link_count, paths.cost, network.per_byte * size, ready, wanted
    )
    tree = list(zip(taken.tolist(), dst[taken].tolist(), strict=True))
    needed = set(ranks.tolist())
    for pipe, v in reversed(tree):
        if v in needed:
            needed.add(int(src[pipe]))
    return [(pipe, v) for pipe, v in tree if v in needed]


def _add_hub(
    exchange: Exchange, bundles: dict[int, Bundle], hub: int, short: dict[int, list[int]], heads: list[int]
) -> None:
    """Add the tree of a hub, if it agrees with the trees before.

    Args:
        bundles: what each node holds, its own contribution and what was gathered there.
        short: for each node but the hub, the farthest first, the pipes with which shortest paths to the hub begin.
        heads: where each pipe leads.
    """
    held = dict(bundles)
    fresh: list[tuple[int, Bundle]] = []
    for u, pipes in short.items():
        content = held[u][0]
        if not content:
            continue
        shared = next((p for p in pipes if (p, content) in exchange.index), None)
        pipe = pipes[0] if shared is None else shared
        w = heads[pipe]
        if shared is not None:
            k = exchange.index[pipe, content]
        elif w in exchange.complete:
            return
        else:
            k = len(exchange.messages) + len(fresh)
            fresh.append((pipe, held[u]))
        held[w] = held[w][0] | content, (*held[w][1], k)
    brought = list(held[hub][1])
    if not set(exchange.into.get(hub, ())) <= set(brought):
        return
    for pipe, bundle in fresh:
        exchange.send(pipe, heads[pipe], bundle)
    exchange.complete[hub] = brought
