"""An exchange: in-trees whose messages are shared where they carry the same sum, and copies of the result.

A *hub* is a node that ends with the whole sum by messages alone. All contributions come to it over a tree of shortest
paths; messages of several hubs' trees that carry the same sum over the same pipe are one message. A sum never counts a
contribution twice, so what comes to a hub must be its own tree alone; a hub whose tree does not agree with those of the
hubs before it is left out. All other ranks get the result as a copy from the hub from which it comes first.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

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


@dataclass(frozen=True)
class Message:
    """A partial sum of some contributions (a bit a node), sent over a pipe after the messages that brought them."""

    pipe: int
    content: int
    after: tuple[int, ...]


Bundle = tuple[int, tuple[int, ...]]
"""The contributions that a node has (a bit a node), and the messages that brought them."""


@dataclass
class Exchange:
    """Messages, in an order in which each comes after those it waits for, and copies.

    Attributes:
        messages: all partial sums.
        index: the message of a pipe and a content.
        into: for each node the messages that come to it.
        complete: for each hub the messages that it adds up.
        copies: (pipe, node) of each copy of the result, in order.
    """

    messages: list[Message] = field(default_factory=list)
    index: dict[tuple[int, int], int] = field(default_factory=dict)
    into: dict[int, list[int]] = field(default_factory=dict)
    complete: dict[int, list[int]] = field(default_factory=dict)
    copies: Tree = field(default_factory=list)

    def pipes(self) -> Int64:
        """int64[messages and copies], the pipe of each."""
        return np.array([*(m.pipe for m in self.messages), *(p for p, _ in self.copies)], dtype=np.int64)

    def starts_s(self, network: Network) -> Float64:
        """float64[messages and copies], when each starts by latency alone."""
        src, latency_s = network.src.tolist(), network.latency_s.tolist()
        arrival: list[float] = []
        for message in self.messages:
            arrival.append(max((arrival[k] for k in message.after), default=0.0) + latency_s[message.pipe])
        done = {v: max((arrival[k] for k in messages), default=0.0) for v, messages in self.complete.items()}
        for p, v in self.copies:
            done[v] = max([done[src[p]], *(arrival[k] for k in self.into.get(v, ()))]) + latency_s[p]
            arrival.append(done[v])
        return np.array(arrival) - network.latency_s[self.pipes()]

    def image(self, node: list[int], pipe: list[int]) -> Exchange:
        """The exchange under an automorphism; its messages do not say what they carry.

        Args:
            node, pipe: the image of each node and pipe.
        """
        return Exchange(
            messages=[replace(m, pipe=pipe[m.pipe], content=0) for m in self.messages],
            into={node[v]: messages for v, messages in self.into.items()},
            complete={node[v]: messages for v, messages in self.complete.items()},
            copies=[(pipe[p], node[v]) for p, v in self.copies],
        )


@dataclass(frozen=True)
class Paths:
    """The pipes among the ranks, what each costs, and the shortest paths over them.

    Attributes:
        network: the pipes of the topology.
        usable: int64[any], the pipes that join ranks; of equally short ones the first is taken.
        cost: float64[pipes], seconds.
        distance: float64[nodes, nodes], the length of the shortest path.
    """

    network: Network
    usable: Int64
    cost: Float64
    distance: Float64

    @classmethod
    def of(cls, network: Network, ranks: Int32, cost: Float64, order: Int64) -> Paths:
        """All pipes that join ``ranks``; those with the lowest ``order`` (int64[pipes]) first."""
        nodes = len(network.out[0]) - 1
        inside = np.zeros(nodes, dtype=np.bool_)
        inside[ranks] = True
        usable = np.flatnonzero(inside[network.src] & inside[network.dst])
        leaving = Ragged.grouped(network.src[usable], usable, nodes)
        distance = at_speed(paths_kernel.all_pairs, 20.0 * nodes * len(usable))(*leaving, network.dst, cost)
        return cls(network, usable[np.argsort(order[usable], kind="stable")], cost, distance)

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
    exchange = Exchange()
    between = _between(paths, hubs)
    bundles: dict[int, Bundle] = {v: (1 << v, ()) for v in between}
    onward_s = {v: float(paths.distance[v, hubs].max()) for v in between}
    _gather(exchange, paths.network, _grow_tree(paths, size, onward_s, ranks, backward=True), bundles)
    _add_hubs(exchange, paths, bundles, hubs)
    inside = np.array(sorted(between))
    ready_s = {v: float(paths.distance[inside, v].max()) for v in exchange.complete}
    exchange.copies.extend(_grow_tree(paths, size, ready_s, ranks, backward=False))
    return exchange


def exchange_with_trees(paths: Paths, gather: Tree, hubs: list[int], copies: Tree) -> Exchange | None:
    """The exchange of these hubs, among which alone the paths lead, with given trees; None unless all hubs agree.

    Args:
        gather: the trees that bring sums to the hubs, the farthest node of each last.
        copies: the trees that bring the result from the hubs.
    """
    exchange = Exchange()
    bundles: dict[int, Bundle] = {v: (1 << v, ()) for v in hubs}
    _gather(exchange, paths.network, gather, bundles)
    _add_hubs(exchange, paths, bundles, hubs)
    exchange.copies.extend(copies)
    return exchange if exchange.complete.keys() == set(hubs) else None


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
    """How each rank is reached by the earliest arrival from nodes that are ready at some time.

    Args:
        size: bytes; the tree's own transfers hold each other up on the links.
        backward: time and pipes are reversed: how each rank reaches one of the nodes.
    """
    network = paths.network
    src, dst = (network.dst, network.src) if backward else (network.src, network.dst)
    ready, wanted = np.full(len(paths.distance), np.inf), np.zeros(len(paths.distance), dtype=np.bool_)
    wanted[ranks] = True
    ready[list(ready_s)] = list(ready_s.values())
    wanted[list(ready_s)] = False
    pipes = kernel_growth.Pipes(
        *(paths.entering if backward else paths.leaving), src, dst, paths.cost, network.per_byte * size,
        *network.hops, network.topology.link_count,
    )  # fmt: skip
    taken = at_speed(kernel_growth.grow, GROWTH_STEPS * len(paths.usable))(pipes, ready, wanted)
    return list(zip(taken.tolist(), dst[taken].tolist(), strict=True))


def _gather(exchange: Exchange, network: Network, tree: Tree, bundles: dict[int, Bundle]) -> None:
    """Add the messages up a tree, the node reached last first; the bundles at its roots grow by what comes there."""
    inner: dict[int, Bundle] = {v: (1 << v, ()) for _, v in tree}
    for pipe, u in reversed(tree):
        content, after = inner[u]
        k = len(exchange.messages)
        exchange.messages.append(Message(pipe, content, after))
        w = int(network.dst[pipe])
        exchange.into.setdefault(w, []).append(k)
        into = inner if w in inner else bundles
        into[w] = into[w][0] | content, (*into[w][1], k)


def _add_hubs(exchange: Exchange, paths: Paths, bundles: dict[int, Bundle], hubs: list[int]) -> None:
    """Add the tree of each hub over bundles, unless it would bring a hub what is not of that hub's own tree.

    Args:
        bundles: what each node holds, its own contribution and what was gathered there.
    """
    out, heads, cost = paths.out(set(bundles)), paths.network.dst.tolist(), paths.cost.tolist()
    for hub in hubs:
        _add_hub(exchange, paths.distance[:, hub].tolist(), out, heads, cost, bundles, hub)


def _add_hub(
    exchange: Exchange,
    distance: list[float],
    out: dict[int, list[int]],
    heads: list[int],
    cost: list[float],
    bundles: dict[int, Bundle],
    hub: int,
) -> None:
    children: dict[int, list[int]] = {}
    fresh: list[Message] = []
    number: dict[int, int] = {}
    content: dict[int, int] = {}
    for u in sorted((v for v in bundles if v != hub), key=lambda v: (-distance[v], v)):
        below = children.get(u, [])
        content[u] = sum(content[v] for v in below) | bundles[u][0]
        tight = distance[u] * (1 + 1e-9)
        short = [p for p in out[u] if cost[p] + distance[heads[p]] <= tight]
        shared = next((p for p in short if (p, content[u]) in exchange.index), None)
        pipe = short[0] if shared is None else shared
        w = heads[pipe]
        children.setdefault(w, []).append(u)
        if shared is not None:
            number[u] = exchange.index[pipe, content[u]]
            continue
        if w in exchange.complete:
            return
        number[u] = len(exchange.messages) + len(fresh)
        fresh.append(Message(pipe, content[u], (*bundles[u][1], *(number[v] for v in below))))
    brought = [*bundles[hub][1], *(number[v] for v in children.get(hub, []))]
    if not set(exchange.into.get(hub, ())) <= set(brought):
        return
    for message in fresh:
        k = len(exchange.messages)
        exchange.messages.append(message)
        exchange.index[message.pipe, message.content] = k
        exchange.into.setdefault(heads[message.pipe], []).append(k)
    exchange.complete[hub] = brought
