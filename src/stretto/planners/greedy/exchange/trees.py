"""What an exchange is made of: in-trees whose messages are shared where they carry the same sum, and copies.

A *hub* is a node that ends with the whole sum by messages alone. All contributions come to it over a tree of shortest
ways; messages of different hubs' trees that carry the same sum over the same pipe are one. A sum never counts a
contribution twice, so what comes to a hub must be its own tree alone; a hub whose tree does not agree with those chosen
before is left out. All others get the result as a copy from the hub from which it comes first.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ....kernels import at_speed
from ....kernels import paths as paths_kernel
from ....schedule.pipes import Network
from . import kernel_growth

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


STEPS = 2_000.0
"""For each pipe, of the growth of all trees of an AllReduce: some ten for each of two hundred."""


@dataclass(frozen=True)
class Message:
    """A sum on its way: over a pipe, of some contributions (a bit a node), after the messages that brought them."""

    pipe: int
    content: int
    after: tuple[int, ...]


Bundle = tuple[int, tuple[int, ...]]
"""What a node has, as bits, and the messages that brought it."""


@dataclass
class Exchange:
    """Messages, in an order in which each comes after those it waits for.

    Attributes:
        messages: all sums.
        index: the message of a pipe and a content.
        into: for each node the messages that come to it.
        complete: for each hub the messages that it adds.
        copies: (pipe, node) of each copy of the result, in order.
    """

    messages: list[Message] = field(default_factory=list)
    index: dict[tuple[int, int], int] = field(default_factory=dict)
    into: dict[int, list[int]] = field(default_factory=dict)
    complete: dict[int, list[int]] = field(default_factory=dict)
    copies: list[tuple[int, int]] = field(default_factory=list)

    def pipes(self) -> Int64:
        """int64[sums and copies], the pipe of each."""
        return np.array([*(m.pipe for m in self.messages), *(p for p, _ in self.copies)], dtype=np.int64)

    def starts_s(self, network: Network) -> Float64:
        """float64[sums and copies], when each starts by latency alone."""
        src, late = network.src.tolist(), network.latency_s.tolist()
        came: list[float] = []
        for message in self.messages:
            came.append(max((came[k] for k in message.after), default=0.0) + late[message.pipe])
        done = {v: max((came[k] for k in own), default=0.0) for v, own in self.complete.items()}
        for p, v in self.copies:
            done[v] = max([done[src[p]], *(came[k] for k in self.into.get(v, ()))]) + late[p]
            came.append(done[v])
        return np.array(came) - network.latency_s[self.pipes()]

    def renamed(self, node: list[int], pipe: list[int]) -> Exchange:
        """The same where each node, and each pipe, is another one; what messages carry is not told."""
        return Exchange(
            messages=[replace(m, pipe=pipe[m.pipe], content=0) for m in self.messages],
            into={node[v]: own for v, own in self.into.items()},
            complete={node[v]: own for v, own in self.complete.items()},
            copies=[(pipe[p], node[v]) for p, v in self.copies],
        )


@dataclass(frozen=True)
class Ways:
    """The pipes among the ranks, what each costs, and the shortest ways over them.

    Attributes:
        network: the pipes of the topology.
        usable: int64[k], those that join ranks, the ones to be taken first where several are as short before.
        cost: float64[pipes], seconds.
        far: float64[nodes, nodes], the length of the shortest way.
    """

    network: Network
    usable: Int64
    cost: Float64
    far: Float64

    @classmethod
    def of(cls, network: Network, ranks: NDArray[np.int32], cost: Float64, order: Int64) -> Ways:
        """All that joins ``ranks``, in the order of ``order`` (int64[pipes])."""
        nodes = len(network.out[0]) - 1
        inside = np.zeros(nodes, dtype=np.bool_)
        inside[ranks] = True
        usable = np.flatnonzero(inside[network.src] & inside[network.dst])
        by_source = usable[np.argsort(network.src[usable], kind="stable")]
        offsets = np.searchsorted(network.src[by_source], np.arange(nodes + 1)).astype(np.int64)
        kernel_steps = 20.0 * nodes * len(usable)
        far = at_speed(paths_kernel.all_pairs, kernel_steps)(offsets, by_source.astype(np.int32), network.dst, cost)
        return cls(network, usable[np.argsort(order[usable], kind="stable")], cost, far)

    def out(self, nodes: set[int]) -> dict[int, list[int]]:
        """The pipes from each to others of some nodes, in order."""
        inside = np.zeros(len(self.far), dtype=np.bool_)
        inside[list(nodes)] = True
        offsets, pipes = self.leaving
        kept = inside[self.network.src[pipes]] & inside[self.network.dst[pipes]]
        ends = np.concatenate(([0], np.cumsum(kept)))[offsets].tolist()
        found = pipes[kept].tolist()
        return {v: found[a:b] for v, (a, b) in enumerate(pairwise(ends)) if a < b}

    @cached_property
    def leaving(self) -> tuple[Int64, Int64]:
        """CSR of the pipes that leave each node, in order."""
        return self._by(self.network.src)

    @cached_property
    def entering(self) -> tuple[Int64, Int64]:
        """CSR of the pipes that enter each node, in order."""
        return self._by(self.network.dst)

    def _by(self, ends: Int64) -> tuple[Int64, Int64]:
        pipes = self.usable[np.argsort(ends[self.usable], kind="stable")]
        return np.searchsorted(ends[pipes], np.arange(len(self.far) + 1)).astype(np.int64), pipes


def hub_order(
    ways: Ways, ranks: NDArray[np.int32], count: int, rng: np.random.Generator
) -> tuple[list[int], list[float]]:
    """Ranks as hubs, each the one that then brings the result to all soonest, and when the last has it with so many."""
    far = ways.far[np.ix_(ranks, ranks)]
    come = far.max(axis=0)
    arrival = np.full(len(ranks), np.inf)
    noise = rng.random(len(ranks)) * 1e-6
    hubs: list[int] = []
    ends: list[float] = []
    free = np.ones(len(ranks), dtype=np.bool_)
    while len(hubs) < count:
        after = np.minimum(arrival, come[:, None] + far)
        score = after.max(axis=1) * (1.0 + noise) + 1e-3 * after.mean(axis=1)
        best = int(np.where(free, score, np.inf).argmin())
        free[best] = False
        arrival = after[best]
        hubs.append(int(ranks[best]))
        ends.append(float(arrival.max()))
    return hubs, ends


def exchange_of(ways: Ways, ranks: NDArray[np.int32], hubs: list[int], size: float) -> Exchange:
    """The exchange of as many of these hubs as agree, in their order; the first one always does.

    Ranks that are on no way between hubs give what they have to one that is, so that it comes to all hubs soonest, and
    get the result as a copy.
    """
    found = Exchange()
    between = _between(ways, hubs)
    grown = _Growth(ways, size)
    bundles: dict[int, Bundle] = {v: (1 << v, ()) for v in between}
    onward = {v: float(ways.far[v, hubs].max()) for v in between}
    _gather(found, ways.network, grown.tree(onward, ranks.tolist(), backward=True), bundles)
    out, heads, cost = ways.out(set(bundles)), ways.network.dst.tolist(), ways.cost.tolist()
    for hub in hubs:
        _add_hub(found, ways.far[:, hub].tolist(), out, heads, cost, bundles, hub)
    inside = np.array(sorted(between))
    ready = {v: float(ways.far[inside, v].max()) for v in found.complete}
    found.copies.extend(grown.tree(ready, ranks.tolist(), backward=False))
    return found


def composed(
    ways: Ways, gather: list[tuple[int, int]], hubs: list[int], copies: list[tuple[int, int]]
) -> Exchange | None:
    """The exchange of these hubs, among which alone the ways lead, with given trees; None unless all hubs agree.

    Args:
        gather: (pipe, node) of the trees that bring sums to the hubs, the farthest node of each last.
        copies: (pipe, node) of the trees that bring the result from the hubs.
    """
    found = Exchange()
    bundles: dict[int, Bundle] = {v: (1 << v, ()) for v in hubs}
    _gather(found, ways.network, gather, bundles)
    out, heads, cost = ways.out(set(hubs)), ways.network.dst.tolist(), ways.cost.tolist()
    for hub in hubs:
        _add_hub(found, ways.far[:, hub].tolist(), out, heads, cost, bundles, hub)
    found.copies.extend(copies)
    return found if found.complete.keys() == set(hubs) else None


def _between(ways: Ways, hubs: list[int]) -> set[int]:
    """The hubs and, of each of these nodes and for each hub, all nodes on a shortest way there."""
    found, left = set(hubs), list(hubs)
    out = ways.out(set(np.concatenate((ways.network.src[ways.usable], hubs)).tolist()))
    heads, cost = ways.network.dst.tolist(), ways.cost.tolist()
    if found >= out.keys():
        return found
    far = {hub: ways.far[:, hub].tolist() for hub in hubs}
    while left:
        v = left.pop()
        for hub in hubs:
            if v != hub:
                tight = far[hub][v] * (1 + 1e-9)
                w = next(heads[p] for p in out[v] if cost[p] + far[hub][heads[p]] <= tight)
                if w not in found:
                    found.add(w)
                    left.append(w)
    return found


@dataclass
class _Growth:
    """Trees that grow by the earliest arrival where their own transfers hold each other up on the links."""

    ways: Ways
    size: float

    def tree(self, ready: dict[int, float], ranks: list[int], backward: bool) -> list[tuple[int, int]]:
        """(pipe, node) in the order of arrival: how each rank is reached from those that are ready at some time.

        Args:
            backward: time and pipes are reversed: how each rank reaches one of them.
        """
        ways, network = self.ways, self.ways.network
        src, dst = (network.dst, network.src) if backward else (network.src, network.dst)
        came, wanted = np.full(len(ways.far), np.inf), np.zeros(len(ways.far), dtype=np.bool_)
        wanted[ranks] = True
        came[list(ready)] = list(ready.values())
        wanted[list(ready)] = False
        pipes = at_speed(kernel_growth.grow, STEPS * len(ways.usable))(
            *(ways.entering if backward else ways.leaving), src, dst, ways.cost, network.per_byte * self.size,
            network.hops.offsets, network.hops.values, network.topology.link_count, came, wanted,
        )  # fmt: skip
        return list(zip(pipes.tolist(), dst[pipes].tolist(), strict=True))


def _gather(found: Exchange, network: Network, tree: list[tuple[int, int]], bundles: dict[int, Bundle]) -> None:
    """Messages up a tree, the last to be reached first; the bundles at its roots grow by what comes there."""
    own: dict[int, Bundle] = {v: (1 << v, ()) for _, v in tree}
    for pipe, u in reversed(tree):
        content, after = own[u]
        k = len(found.messages)
        found.messages.append(Message(pipe, content, after))
        w = int(network.dst[pipe])
        found.into.setdefault(w, []).append(k)
        into = own if w in own else bundles
        into[w] = into[w][0] | content, (*into[w][1], k)


def _add_hub(
    found: Exchange,
    far: list[float],
    out: dict[int, list[int]],
    heads: list[int],
    cost: list[float],
    bundles: dict[int, Bundle],
    hub: int,
) -> None:
    """The tree of one hub over bundles, unless it would bring some hub what is not its own.

    Args:
        bundles: what each node holds, its own and what was gathered there, and the messages that brought that.
    """
    children: dict[int, list[int]] = {}
    fresh: list[Message] = []
    number: dict[int, int] = {}
    content: dict[int, int] = {}
    for u in sorted((v for v in bundles if v != hub), key=lambda v: (-far[v], v)):
        own = children.get(u, [])
        content[u] = sum(content[v] for v in own) | bundles[u][0]
        tight = far[u] * (1 + 1e-9)
        short = [p for p in out[u] if cost[p] + far[heads[p]] <= tight]
        sent = next((p for p in short if (p, content[u]) in found.index), None)
        pipe = short[0] if sent is None else sent
        w = heads[pipe]
        children.setdefault(w, []).append(u)
        if sent is not None:
            number[u] = found.index[pipe, content[u]]
            continue
        if w in found.complete:
            return
        number[u] = len(found.messages) + len(fresh)
        fresh.append(Message(pipe, content[u], (*bundles[u][1], *(number[v] for v in own))))
    brought = [*bundles[hub][1], *(number[v] for v in children.get(hub, []))]
    if not set(found.into.get(hub, ())) <= set(brought):
        return
    for message in fresh:
        k = len(found.messages)
        found.messages.append(message)
        found.index[message.pipe, message.content] = k
        found.into.setdefault(heads[message.pipe], []).append(k)
    found.complete[hub] = brought
