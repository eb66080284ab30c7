"""How a multicast tree goes on: the candidates by which its nodes reach others (MTEGCCA, section 2.2).

A candidate is a link, or a pipe through switches, from a node of the tree to a node outside. Its key is what it costs
with the links that are free when it is offered; when its turn comes, other branches may have taken them. A *pass* is
one transmission of the chunk from a storing node: over one link, or over a pipe that branches where a switch
replicates. A *hit* is a node that a pass delivers to.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from .kernel_calendars import (
    EPS,
    INF,
    Bool,
    Calendars,
    Float64,
    Int8,
    Int64,
    Reservations,
    Routes,
    gap,
    gap_in_tree,
    pipe_start,
    seconds_on,
    slots_early,
)

ROUTER = 1
SWITCH = 2


class Network(NamedTuple):
    """A topology in seconds, or in slots.

    Attributes:
        out_offsets, out_links: CSR, the links that leave each node.
        link_src, link_dst: int64[links].
        per_byte: float64[links], seconds (or slots) a byte.
        latency: float64[links], seconds (or whole slots).
        kind, replicates: of each node.
    """

    out_offsets: Int64
    out_links: Int64
    link_src: Int64
    link_dst: Int64
    per_byte: Float64
    latency: Float64
    kind: Int8
    replicates: Bool


class Rule(NamedTuple):
    """How trees grow.

    Attributes:
        whole: count time in whole slots.
        nearness: 0 to attach the node that is reached first, 1 the one nearest to the tree.
        thrift: float64[links], how much a second of each link's time counts against one of waiting.
    """

    whole: bool
    nearness: float
    thrift: Float64


class Tree(NamedTuple):
    """The tree that is growing, by node.

    Attributes:
        reached, wanted: whether the node is attached, and whether it wants the chunk.
        paid: whether a path to a node that wants the chunk leads through it: waiting there costs nothing more.
        first_byte, last_byte: when the chunk's bytes arrive.
        cost: what it costs to reach the node.
        kept_until: until when the chunk waits there in any case, for a pass that is already part of a path.
        best: the least cost of the candidates that lead there over one link, or over a pipe.
        pass_of: the pass that delivers to it, -1 at a holder.
    """

    reached: Bool
    wanted: Bool
    paid: Bool
    first_byte: Float64
    last_byte: Float64
    cost: Float64
    kept_until: Float64
    best: Float64
    pass_of: Int64


class TreePasses(NamedTuple):
    """The passes of the tree that is growing, and whom they reach.

    Attributes:
        used: int64[2], how many passes and how many hits there are.
        src, start, seconds: of each pass its node, when it starts, and how long it takes.
        parent: of each pass the one that brought the chunk to its node, -1 at a holder.
        number: of each pass its number among those of all trees, -1 if it is left out.
        hit_pass, hit_node: of each hit.
        hit_first, hit_length: where the links from the pass's node to the hit are among the routes.
        of_link: int64[links], the pass that uses a link, -1 for none.
    """

    used: Int64
    src: Int64
    start: Float64
    seconds: Float64
    parent: Int64
    number: Int64
    hit_pass: Int64
    hit_node: Int64
    hit_first: Int64
    hit_length: Int64
    of_link: Int64


class Candidates(NamedTuple):
    """The candidates of the tree that is growing.

    Attributes:
        src, dst: nodes; src is -1 where a holder is a candidate of its own.
        first, length: where the links are among the routes.
        start: when it could start as it was offered.
        heap: (key, dst, index of the candidate), the least first.
    """

    src: list[int]
    dst: list[int]
    first: list[int]
    length: list[int]
    start: list[float]
    heap: list[tuple[float, int, int]]


class Kept(NamedTuple):
    """The passes, hits and links of all whole trees, as :func:`.kernel_multicast.grow_trees` returns them."""

    chunk: list[int]
    src: list[int]
    parent: list[int]
    start: list[float]
    seconds: list[float]
    hit_pass: list[int]
    hit_node: list[int]
    hop_pass: list[int]
    hop_link: list[int]


class Beyond(NamedTuple):
    """The search through switches from one node.

    Attributes:
        time: float64[nodes], when the first byte arrives at each switch at the earliest.
        link: int64[nodes], the link by which it does.
        done: bool[nodes], whether its links were tried.
        front: (time, node), the earliest first.
    """

    time: Float64
    link: Int64
    done: Bool
    front: list[tuple[float, int]]


def cost_at(
    cost: float,
    arrived: float,
    kept_until: float,
    nearness: float,
    price: float,
    start: float,
    d: float,
    arrival: float,
) -> float:
    """What it costs to reach a node at ``arrival``: time since the tree, and link time.

    Args:
        cost, arrived, kept_until: of the tree's node; what waits there already, until ``kept_until``, waits for free.
        start, d: when the link or pipe starts, and for how long it is busy.
    """
    free = nearness * (min(start, kept_until) - arrived) if start > arrived else 0.0
    return cost + arrival - arrived - free + price * d


def offer(candidates: Candidates, u: int, w: int, first: int, length: int, start: float, key: float) -> None:
    """Enter a candidate from u to w."""
    candidates.src.append(u)
    candidates.dst.append(w)
    candidates.first.append(first)
    candidates.length.append(length)
    candidates.start.append(start)
    heappush(candidates.heap, (key, w, len(candidates.dst) - 1))


def promises_gain(u: int, size: float, network: Network, rule: Rule, tree: Tree) -> bool:
    """Whether u could reach, through switches, any node that is left before the best candidate so far does."""
    soonest = INF
    for e in range(network.out_offsets[u], network.out_offsets[u + 1]):
        link = network.out_links[e]
        if network.kind[network.link_dst[link]] == SWITCH:
            d = seconds_on(size, network.per_byte[link], rule.whole)
            soonest = min(soonest, network.latency[link] + d + rule.thrift[link] * d)
    wanted, reached, best = tree.wanted, tree.reached, tree.best
    latest = 0.0
    for v in range(len(wanted)):
        if wanted[v] and not reached[v]:
            latest = max(latest, best[v])
    return bool(latest > tree.cost[u] + soonest)


def offer_pipes(
    u: int,
    size: float,
    network: Network,
    rule: Rule,
    tree: Tree,
    passes: TreePasses,
    routes: Routes,
    candidates: Candidates,
    beyond: Beyond,
    calendars: Calendars,
    reservations: Reservations,
) -> None:
    """Offer the earliest pipe from u through switches to each node that is not in the tree."""
    out_offsets, out_links, link_src, link_dst, per_byte, latency, kind, _ = network
    whole, nearness, thrift = rule
    reached, best, link_pass = tree.reached, tree.best, passes.of_link
    first_byte, last_byte, cost_u, kept_until = tree.first_byte[u], tree.last_byte[u], tree.cost[u], tree.kept_until[u]
    router = kind[u] == ROUTER  # which cuts through: others send what has arrived whole
    path, offset = routes
    time, via, done, front = beyond
    front.clear()
    time[:] = INF
    done[:] = False
    time[u] = last_byte
    heappush(front, (last_byte, u))
    while len(front) > 0:
        _, s = heappop(front)
        if done[s]:
            continue
        done[s] = True
        for e in range(out_offsets[s], out_offsets[s + 1]):
            link = out_links[e]
            w = link_dst[link]
            onward = kind[w] == SWITCH
            if done[w] or (not onward and (reached[w] or s == u)):
                continue
            # the links from u to w, in order, at the end of the routes
            first = len(path)
            path.append(link)
            v = s
            while v != u:
                path.append(via[v])
                v = link_src[via[v]]
            length = len(path) - first
            for i in range(length // 2):
                path[first + i], path[first + length - 1 - i] = path[first + length - 1 - i], path[first + i]
            late, d, price = 0.0, 0.0, 0.0
            for i in range(first, first + length):
                price = max(price, thrift[path[i]])
                offset.append(late)
                late += latency[path[i]]
                d = max(d, seconds_on(size, per_byte[path[i]], whole))
            ready = max(first_byte, last_byte - d) if router else last_byte
            start = pipe_start(ready, d, whole, routes, first, length, calendars, reservations)
            if length > 1 and link_pass[path[first]] >= 0:
                shared, joined = shared_start(
                    ready, d, whole, u, routes, first, length, passes, network, calendars, reservations
                )
                if shared < start:
                    start, d = shared, passes.seconds[joined]
            if onward:
                for _ in range(length):
                    path.pop()
                    offset.pop()
                if start + late < time[w]:
                    time[w] = start + late
                    via[w] = link
                    heappush(front, (start + late, w))
            else:
                arrival = start + late + d
                cost = cost_at(cost_u, last_byte, kept_until, nearness, price, start, d, arrival)
                best[w] = min(best[w], cost)
                offer(candidates, u, w, first, length, start, cost)


def shared_start(
    ready: float,
    d: float,
    whole: bool,
    u: int,
    routes: Routes,
    first: int,
    length: int,
    passes: TreePasses,
    network: Network,
    calendars: Calendars,
    reservations: Reservations,
) -> tuple[float, int]:
    """``(start, pass)`` of a pass of u under way that this pipe can branch off from, or (INF, -1)."""
    path, offset = routes
    of_link = passes.of_link
    p = of_link[path[first]]
    if p < 0 or passes.src[p] != u or passes.start[p] < ready or passes.seconds[p] < d:
        return INF, -1
    k = 1
    while k < length and of_link[path[first + k]] == p:
        k += 1
    if k >= length or not network.replicates[network.link_src[path[first + k]]]:
        return INF, -1
    start, seconds = passes.start[p], passes.seconds[p]
    for i in range(first + k, first + length):
        link = path[i]
        early = slots_early(i - first, whole)
        at = start + offset[i] - early
        s = gap(at, seconds + early, link, calendars)
        s = gap_in_tree(s, seconds + early, link, reservations)
        if s - at > EPS * abs(s):
            return INF, -1
    return start, p
