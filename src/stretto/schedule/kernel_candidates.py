"""How a multicast tree goes on: the candidates by which its nodes reach others (MTEGCCA, section 2.2).

A candidate is a link, or a pipe through switches, from a node of the tree to a node outside. Its key is what it costs
with the links that are free when it is offered; when its turn comes, other branches may have taken them. A *pass* is
one transmission of the chunk from a storing node: over one link, or over a pipe that branches where a switch
replicates. A *hit* is a node that a pass delivers to.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from ..kernels.steps import Steps, sending_s
from .kernel_calendars import (
    EPS,
    INF,
    Bool,
    Calendars,
    Float64,
    Hop,
    Int8,
    Int64,
    Reservations,
    gap_in_tree,
    pipe_start,
    pipe_to,
    router_ready,
    seconds_on,
    slots_early,
)

ROUTER = 1
SWITCH = 2


class Network(NamedTuple):
    """A topology in seconds, or in slots."""

    out_offsets: Int64  # CSR, the links that leave each node
    out_links: Int64
    link_src: Int64
    link_dst: Int64
    per_byte: Float64  # float64[links], seconds (or slots) a byte
    latency: Float64  # float64[links], seconds (or whole slots)
    kind: Int8
    replicates: Bool
    steps: Steps  # how links change with time, seconds or slots; ``per_byte`` is before that


class Rule(NamedTuple):
    """How trees grow."""

    whole: bool  # count time in whole slots
    nearness: float  # 0 to attach the node that is reached first, 1 the one nearest to the tree
    thrift: Float64  # float64[links], how much a second of each link's time counts against one of waiting


class Tree(NamedTuple):
    """The tree that is growing: its nodes, its passes, and how it may go on."""

    reached: Bool  # bool[nodes], whether a node is attached
    wanted: Bool  # bool[nodes], whether it wants the chunk
    paid: Bool  # bool[nodes], whether a path to one that wants the chunk leads through it: to wait there costs no more
    first_byte: Float64  # float64[nodes], when the chunk begins to arrive
    last_byte: Float64  # float64[nodes], when all of it has arrived
    come_by: Float64  # float64[nodes], the same without the rest of a slot that a link is kept free but does not send
    cost: Float64  # float64[nodes], what it costs to reach a node
    kept_until: Float64  # float64[nodes], until when the chunk waits there in any case, for a pass that is on a path
    best: Float64  # float64[nodes], the least cost of the candidates that lead there
    pass_of: Int64  # int64[nodes], the pass that delivers to a node, -1 at a holder
    pass_over: Int64  # int64[links], the pass that uses a link, -1 for none
    passes: list[tuple[int, float, float, int]]  # node, start, seconds; the pass that brought the chunk there, or -1
    hits: list[tuple[int, int, int]]  # pass, node, and the last hop of the pipe to it
    hops: list[Hop]
    candidates: list[tuple[int, int, float]]  # node, or -1 for a holder itself; the last hop; when it could start
    heap: list[tuple[float, int, int]]  # key, receiver and index of each candidate, the least first
    reservations: Reservations


def cost_at(
    cost: float, arrived: float, kept_until: float, nearness: float, price: float,
    start: float, d: float, arrival: float,
) -> float:  # fmt: skip
    """What it costs to reach a node at ``arrival``: time since the tree, and link time.

    Args:
        cost, arrived, kept_until: of the tree's node; what waits there already, until ``kept_until``, waits for free.
        start, d: when the link or pipe starts, and for how long it is busy.
    """
    free = nearness * (min(start, kept_until) - arrived) if start > arrived else 0.0
    return cost + arrival - arrived - free + price * d


def try_pipe(
    u: int, last: int, network: Network, rule: Rule, tree: Tree, calendars: Calendars
) -> tuple[float, float, float, float, int]:
    """What it costs now to reach the end of a pipe from u.

    Args:
        last: the number of the pipe's last hop.
    Returns:
        The cost; when the pipe starts, how long each link is busy, when the first byte arrives; the pass of u that it
        branches off from, -1 for none.
    """
    hop, last_byte = tree.hops[last], tree.last_byte[u]
    d = hop.seconds
    # a router cuts through; others send what has arrived whole
    ready = last_byte
    if network.kind[u] == ROUTER:
        ready = router_ready(tree.first_byte[u], tree.come_by[u], hop.sending, rule.whole)
    start = pipe_start(ready, rule.whole, last, tree.hops, calendars, tree.reservations)
    joined = tree.pass_over[hop.first] if hop.place > 0 else -1
    if joined >= 0:
        src, shared, seconds, _ = tree.passes[joined]
        under_way = src == u and ready <= shared <= start and seconds >= d
        if under_way and branches_off(joined, last, network, rule, tree, calendars):
            start, d = shared, seconds
        else:
            joined = -1
    arrival = start + (hop.offset + network.latency[hop.link])
    cost = cost_at(tree.cost[u], last_byte, tree.kept_until[u], rule.nearness, hop.price, start, d, arrival + d)
    return cost, start, d, arrival, joined


def branches_off(p: int, last: int, network: Network, rule: Rule, tree: Tree, calendars: Calendars) -> bool:
    """Whether a pipe that begins as the pass p under way can branch off from it, without a link that is taken then.

    It must not come back to a switch of the pass: a transfer passes through each switch once.
    """
    hops, (_, start, seconds, _) = tree.hops, tree.passes[p]
    branch, pipe = 1, pipe_to(last, hops)
    while branch < len(pipe) and tree.pass_over[hops[pipe[branch]].link] == p:
        branch += 1
    if branch == len(pipe) or not network.replicates[network.link_src[hops[pipe[branch]].link]]:
        return False
    for h in pipe[branch:]:
        hop = hops[h]
        early = slots_early(hop.place, rule.whole)
        at = start + hop.offset - early
        s = gap_in_tree(at, seconds + early, hop.link, calendars, tree.reservations)
        if s - at > EPS * abs(s):
            return False
        w = network.link_dst[hop.link]
        if network.kind[w] == SWITCH:
            for e in range(network.out_offsets[w], network.out_offsets[w + 1]):
                if tree.pass_over[network.out_links[e]] == p:  # the pass goes on from there
                    return False
    return True


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


def offer_pipes(u: int, size: float, network: Network, rule: Rule, tree: Tree, calendars: Calendars) -> None:
    """Offer the earliest pipe from u through switches to each node that is not in the tree."""
    out_offsets, out_links, _, link_dst, per_byte, latency, kind, _, steps = network
    first_byte, last_byte, come_by = tree.first_byte[u], tree.last_byte[u], tree.come_by[u]
    cost_u, kept_until = tree.cost[u], tree.kept_until[u]
    reached, best, hops, passes, pass_over = tree.reached, tree.best, tree.hops, tree.passes, tree.pass_over
    nodes = len(reached)
    soonest = np.full(nodes, INF)  # when the first byte arrives at each switch
    via = np.full(nodes, -1)  # the last hop of the pipe by which it does
    soonest[u] = last_byte
    front = [(last_byte, u)]
    while len(front) > 0:
        time, s = heappop(front)
        if time > soonest[s]:
            continue
        before = hops[via[s]] if s != u else Hop(-1, -1, -1, -1, 0.0, 0.0, 0.0, 0.0)
        offset = before.offset + latency[before.link] if s != u else 0.0
        for e in range(out_offsets[s], out_offsets[s + 1]):
            link = out_links[e]
            w = link_dst[link]
            onward = kind[w] == SWITCH
            if soonest[w] < time or (not onward and (reached[w] or s == u)):
                continue
            first = before.first if s != u else link
            # a link that changes is taken as it is when the node could send
            sent = sending_s(link, last_byte, size, per_byte[link], steps)
            if sent == INF:
                continue
            d = max(before.seconds, seconds_on(sent, 1.0, rule.whole))
            price = max(before.price, rule.thrift[link])
            sending = max(before.sending, sent)
            hops.append(Hop(link, first, via[s], before.place + 1, offset, d, sending, price))
            last = len(hops) - 1
            # what try_pipe does, without the cost of a call
            ready = router_ready(first_byte, come_by, sending, rule.whole) if kind[u] == ROUTER else last_byte
            start = pipe_start(ready, rule.whole, last, hops, calendars, tree.reservations)
            joined = pass_over[first] if s != u else -1
            if joined >= 0:
                src, shared, seconds, _ = passes[joined]
                under_way = src == u and ready <= shared < start and seconds >= d
                if under_way and branches_off(joined, last, network, rule, tree, calendars):
                    start, d = shared, seconds
            arrival = start + (offset + latency[link])
            cost = cost_at(cost_u, last_byte, kept_until, rule.nearness, price, start, d, arrival + d)
            if not onward:
                best[w] = min(best[w], cost)
                tree.candidates.append((u, last, start))
                heappush(tree.heap, (cost, w, len(tree.candidates) - 1))
            elif arrival < soonest[w]:
                soonest[w], via[w] = arrival, last
                heappush(front, (arrival, w))
            else:
                hops.pop()
