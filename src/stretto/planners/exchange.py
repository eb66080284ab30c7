"""AllReduce by exchange: partial sums meet, instead of all going to a root and back, when latency counts.

Every chosen rank is the root of a tree of shortest ways along which all contributions come to it. Messages of
different trees that carry the same sum over the same way are one: on a hypercube with its dimensions in order the
trees of all ranks together are recursive doubling. A sum never counts a contribution twice, so what comes to
a root must be its own tree alone; a rank whose tree does not agree with those chosen before gets the result as a
copy from the nearest that has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from ..collective import Ragged, Workload
from ..plan import COPY, REDUCE, Plan, make_plan
from ..topology import Topology
from .dispatch import completion, dispatched
from .lowering import divide
from .scale_network import Network, build_network

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

MOST_RANKS = 128
"""Of an AllReduce that is tried: trees of all ranks take memory and time with the square of them."""

MOST_PARTS, MOST_STRUCTURES = 16, 4
"""How finely the buffer is cut, and how many different exchanges its parts go through, at most."""

MOST_TRANSFERS = 2_000
"""Plans of more are not cut finer."""

LEAST_GAIN = 0.005
"""Cutting finer goes on as long as it brings the completion so much nearer."""


@dataclass(frozen=True)
class Message:
    """A sum on its way: over a pipe, of some contributions (a bit a node), after the messages that brought them."""

    pipe: int
    content: int
    after: tuple[int, ...]


@dataclass
class Exchange:
    """Messages, in an order in which each comes after those it waits for.

    Attributes:
        messages: all sums.
        into: for each node the messages that come to it.
        complete: for each node that ends with the sum by messages alone those that it adds.
        copies: (pipe, node) of each copy of the result, in order.
    """

    messages: list[Message] = field(default_factory=list)
    index: dict[tuple[int, int], int] = field(default_factory=dict)
    into: dict[int, list[int]] = field(default_factory=dict)
    complete: dict[int, list[int]] = field(default_factory=dict)
    copies: list[tuple[int, int]] = field(default_factory=list)


def exchanged(topology: Topology, workload: Workload, tries: int, seed: int, before_s: float) -> Plan | None:
    """The best plan by exchange that could end before a given time.

    None but for a single AllReduce among few ranks that are joined directly.
    """
    if len(workload.collectives) > 1 or workload.collectives[0].kind != "allreduce":
        return None
    c = workload.collectives[0]
    if len(c.ranks) > MOST_RANKS:
        return None
    best: Plan | None = None
    done, parts = np.inf, 1
    chosen = list(range(tries))
    while parts <= min(MOST_PARTS, int(c.chunk_bytes.min())) and (
        best is None or best.transfer_count <= MOST_TRANSFERS
    ):
        finer = Workload((divide(c, parts)[0],))
        size = float(finer.chunk_bytes.mean())
        network = build_network(topology, size, True, 0.0)
        plans: list[tuple[float, int, Plan]] = []
        for k in chosen:
            rng = np.random.default_rng((seed, k))
            structures = list(_structures(network, c.ranks, size, min(parts, MOST_STRUCTURES), k, rng))
            if not structures:
                return None
            if _least(topology, network, structures, float(c.size_bytes)) >= before_s:
                continue
            plan = _planned(topology, finer, network, structures)
            plans.append((completion(plan), k, plan))
        plans.sort(key=lambda p: p[:2])
        if not plans or (best is not None and plans[0][0] > done * (1 - LEAST_GAIN)):
            break
        done, _, best = plans[0]
        chosen, parts = [k for _, k, _ in plans[:2]], 2 * parts
    return best


def _structures(
    network: Network, ranks: NDArray[np.int32], size: float, count: int, k: int, rng: np.random.Generator
) -> Iterator[Exchange]:
    """Some exchanges, from different roots; none if the ranks are not joined."""
    nodes = len(network.out[0]) - 1
    cost = network.latency_s + size * network.per_byte
    inside = np.zeros(nodes, dtype=np.bool_)
    inside[ranks] = True
    usable = np.flatnonzero(inside[network.src] & inside[network.dst])
    far = _distances(network, usable, cost, ranks, nodes)
    if not np.isfinite(far[np.ix_(ranks, ranks)]).all():
        return
    classes = _classes(network, usable, cost, shuffle=rng if k else None)
    central = far[np.ix_(ranks, ranks)].max(axis=0)
    for _ in range(count):
        order = np.lexsort((rng.random(len(ranks)), np.round(central / max(central.max(), 1e-300), 9)))
        first = int(ranks[order[0]]) if k % 2 == 0 else int(rng.choice(ranks))
        yield _exchange(network, usable, cost, far, classes, ranks, first)


def _distances(network: Network, usable: Int64, cost: Float64, ranks: NDArray[np.int32], nodes: int) -> Float64:
    """float64[nodes, roots (by node)]: the length of the shortest way from each node to each root."""
    far = np.full((nodes, nodes), np.inf)
    far[np.arange(nodes), np.arange(nodes)] = 0.0
    src, dst = network.src[usable], network.dst[usable]
    while True:
        before = far.copy()
        np.minimum.at(far, src, cost[usable][:, None] + before[dst])
        if np.array_equal(far, before):
            return far


def _classes(network: Network, usable: Int64, cost: Float64, shuffle: np.random.Generator | None) -> Int64:
    """int64[pipes]: a proper colouring of the pairs, cheap ones first, that orders what is summed before what."""
    order = usable[np.argsort(np.round(cost[usable] / cost[usable].max(), 6), kind="stable")]
    if shuffle is not None:
        noise = shuffle.random(len(order))
        order = order[np.lexsort((noise, np.round(cost[order] / cost[order].max(), 6)))]
    classes = np.zeros(len(network.src), dtype=np.int64)
    taken: dict[int, set[int]] = {}
    pairs: dict[tuple[int, int], int] = {}
    for p in order.tolist():
        a, b = int(network.src[p]), int(network.dst[p])
        key = (min(a, b), max(a, b))
        if key not in pairs:
            colour = 0
            while colour in taken.setdefault(a, set()) or colour in taken.setdefault(b, set()):
                colour += 1
            pairs[key] = colour
            taken[a].add(colour)
            taken[b].add(colour)
        classes[p] = pairs[key]
    return classes


def _exchange(
    network: Network, usable: Int64, cost: Float64, far: Float64, classes: Int64, ranks: NDArray[np.int32], first: int
) -> Exchange:
    """Roots are added from the first one on, nearest first, as long as they agree with those before."""
    found = Exchange()
    out: dict[int, list[int]] = {}
    for p in usable[np.argsort(classes[usable], kind="stable")].tolist():
        out.setdefault(int(network.src[p]), []).append(p)
    for root in sorted(map(int, ranks), key=lambda v: (far[first, v] + far[v, first], v)):
        _add_root(found, network, out, cost, far, ranks, root)
    _add_copies(found, network, out, cost, far, ranks)
    return found


def _add_root(
    found: Exchange,
    network: Network,
    out: dict[int, list[int]],
    cost: Float64,
    far: Float64,
    ranks: NDArray[np.int32],
    root: int,
) -> None:
    """The tree of one root, unless it would bring some complete node what is not its own."""
    children: dict[int, list[int]] = {}
    hop: dict[int, int] = {}
    nodes = sorted((int(v) for v in ranks if v != root), key=lambda v: (-far[v, root], v))
    for u in nodes:
        tight = far[u, root] * (1 + 1e-9)
        hop[u] = next(p for p in out[u] if cost[p] + far[network.dst[p], root] <= tight)
    fresh: list[Message] = []
    number: dict[int, int] = {}
    content: dict[int, int] = {}
    for u in nodes:
        own = children.get(u, [])
        content[u] = sum(content[v] for v in own) | 1 << u
        key = (hop[u], content[u])
        w = int(network.dst[hop[u]])
        children.setdefault(w, []).append(u)
        if key in found.index:
            number[u] = found.index[key]
            continue
        if w in found.complete:
            return
        number[u] = len(found.messages) + len(fresh)
        fresh.append(Message(hop[u], content[u], tuple(number[v] for v in own)))
    brought = [number[v] for v in children.get(root, [])]
    if not set(found.into.get(root, ())) <= set(brought):
        return
    for message in fresh:
        k = len(found.messages)
        found.messages.append(message)
        found.index[message.pipe, message.content] = k
        found.into.setdefault(int(network.dst[message.pipe]), []).append(k)
    found.complete[root] = brought


def _add_copies(
    found: Exchange,
    network: Network,
    out: dict[int, list[int]],
    cost: Float64,
    far: Float64,
    ranks: NDArray[np.int32],
) -> None:
    """From the nodes that are complete to all others, by the earliest arrival."""
    done: set[int] = set()
    heap: list[tuple[float, int, int]] = [(float(far[ranks, v].max()), v, -1) for v in found.complete]
    heap.sort()
    while heap:
        at, v, pipe = heappop(heap)
        if v in done:
            continue
        done.add(v)
        if pipe >= 0:
            found.copies.append((pipe, v))
        for p in out.get(v, ()):
            w = int(network.dst[p])
            if w not in done and w not in found.complete:
                heappush(heap, (at + float(cost[p]), w, p))


def _least(topology: Topology, network: Network, structures: list[Exchange], size: float) -> float:
    """Seconds in which the busiest link carries its share of a buffer whose parts take turns in the exchanges."""
    pipes = [p for e in structures for p in (*(m.pipe for m in e.messages), *(p for p, _ in e.copies))]
    links = network.hops.take(np.array(pipes, dtype=np.int64)).values
    times = np.bincount(links, minlength=topology.link_count) / topology.bandwidth
    return float(times.max()) * size / len(structures)


def _planned(topology: Topology, workload: Workload, network: Network, structures: list[Exchange]) -> Plan:
    """Every chunk by one of the exchanges, in turn, as a timed plan."""
    chunk: list[int] = []
    pipe: list[int] = []
    op: list[int] = []
    after: list[list[int]] = []
    for c in range(workload.chunk_count):
        exchange, base = structures[c % len(structures)], len(chunk)
        last = {v: [base + k for k in own] for v, own in exchange.complete.items()}
        for message in exchange.messages:
            chunk.append(c)
            pipe.append(message.pipe)
            op.append(REDUCE)
            after.append([base + k for k in message.after])
        for p, v in exchange.copies:
            summed = [base + k for k in exchange.into.get(v, ())]
            after.append([*last[int(network.src[p])], *summed])
            last[v] = [*summed, len(chunk)]
            chunk.append(c)
            pipe.append(p)
            op.append(COPY)
    pipes = np.array(pipe, dtype=np.int64)
    plan = make_plan(
        topology,
        workload,
        "ready-order",
        chunk=chunk,
        src=network.src[pipes],
        op=op,
        dst=Ragged.single(network.dst[pipes].astype(np.int32)),
        route=network.hops.take(pipes),
        depends=Ragged.of([sorted(set(a)) for a in after]),
    )
    return dispatched(plan, np.zeros(workload.chunk_count))
