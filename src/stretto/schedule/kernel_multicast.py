"""Multicast trees on an implicit time-expanded graph (MTEGCCA, section 2.2).

Nothing is expanded: a link's slots are the gaps of its calendar of reservations (:mod:`.kernel_calendars`), a storage
edge is a wait. Time is continuous, or counted in slots when ``Rule.whole`` is set (then sizes, latencies and starts are
rounded up to whole slots, as the paper does). How a tree goes on is in :mod:`.kernel_candidates`.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from ..kernels.steps import sending_s
from .kernel_calendars import (
    EPS,
    INF,
    SLACK,
    Calendars,
    Float64,
    Hop,
    Int64,
    Reservations,
    gap,
    pipe_to,
    reserve,
    router_ready,
    seconds_on,
    slots_early,
)
from .kernel_candidates import (
    ROUTER,
    SWITCH,
    Network,
    Rule,
    Tree,
    cost_at,
    offer_pipes,
    promises_gain,
    try_pipe,
)


class Tasks(NamedTuple):
    """What trees are grown for."""

    order: Int64  # int64[tasks], chunks in the order of their turn
    chunk_bytes: Float64
    chunk_start: Float64
    hold_offsets: Int64  # CSR, the nodes that hold each chunk
    hold_nodes: Int64
    want_offsets: Int64  # CSR, the nodes that want each chunk
    want_nodes: Int64


class Grown(NamedTuple):
    """The passes of all whole trees, without those that lead to nobody who wants the chunk."""

    passes: list[tuple[int, int, int]]  # chunk, node, and the pass that brought the chunk there, -1 if it held it
    times: list[tuple[float, float]]  # of each pass its start and its seconds
    hits: list[tuple[int, int]]  # pass, node
    hops: list[tuple[int, int]]  # pass, link; those of a pass in the order of its pipe


def grow_trees(
    network: Network, tasks: Tasks, rule: Rule, counted: Int64
) -> tuple[Int64, Float64, Int64, Int64, tuple[int, int], float]:
    """Grow one multicast tree a chunk, in order, each on what the earlier ones left free.

    Args:
        counted: int64[1], the trees that are grown; others may read it meanwhile.
    Returns:
        The fields of :class:`Grown`, a row each. (chunk, node) that has no path, or (-1, -1). When the last wanted
        chunk has arrived.
    """
    nodes, links = len(network.kind), len(network.link_src)
    room = 4 * links + 64
    calendars = Calendars(
        np.full(links, -1), np.full(links, -1), np.empty(room), np.empty(room), np.empty(room, dtype=np.int64)
    )
    # an entry in each list tells the compiler its type; grown keeps it
    tree = Tree(
        np.zeros(nodes, dtype=np.bool_), np.zeros(nodes, dtype=np.bool_), np.zeros(nodes, dtype=np.bool_),
        np.zeros(nodes), np.zeros(nodes), np.zeros(nodes), np.zeros(nodes), np.zeros(nodes), np.full(nodes, INF),
        np.full(nodes, -1), np.full(links, -1),
        [(0, 0.0, 0.0, 0)], [(0, 0, 0)], [Hop(0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0)], [(0, 0, 0.0)], [(0.0, 0, 0)],
        Reservations(np.full(links, -1), [(0, 0.0, 0.0, 0)]),
    )  # fmt: skip
    grown = Grown([(0, 0, 0)], [(0.0, 0.0)], [(0, 0)], [(0, 0)])
    smallest = tasks.chunk_bytes.min()
    segments = 0
    unreached = (-1, -1)
    finish = 0.0
    for chunk in tasks.order:
        left = begin_tree(chunk, tasks, rule, tree)
        finish = max(finish, grow_tree(left, tasks.chunk_bytes[chunk], network, rule, tree, calendars))
        for v in range(nodes - 1, -1, -1):
            if tree.wanted[v] and not tree.reached[v]:
                unreached = (chunk, v)
        if unreached[0] >= 0:
            break
        needed = segments + len(tree.reservations.rows)
        if needed > len(calendars.start):
            head, tail, start, end, following = calendars
            more, others = np.empty(needed), np.empty(needed, dtype=np.int64)  # room for twice as many at least
            calendars = Calendars(
                head, tail, np.append(start, more), np.append(end, more), np.append(following, others)
            )
        segments = keep_tree(chunk, smallest, network, rule, tree, calendars, grown, segments)
        counted[0] += 1
    return (
        np.array(grown.passes)[1:],
        np.array(grown.times)[1:],
        np.array(grown.hits)[1:],
        np.array(grown.hops)[1:],
        unreached,
        finish,
    )


def begin_tree(chunk: int, tasks: Tasks, rule: Rule, tree: Tree) -> int:
    """Forget the tree before; each holder of the chunk becomes a candidate of its own.

    Returns:
        How many nodes want the chunk.
    """
    tree.reached[:] = False
    tree.paid[:] = False
    tree.wanted[:] = False
    tree.best[:] = INF
    for link, _, _, _ in tree.reservations.rows:
        tree.pass_over[link] = -1
        tree.reservations.latest[link] = -1
    tree.reservations.rows.clear()
    tree.passes.clear()
    tree.hits.clear()
    tree.hops.clear()
    tree.candidates.clear()
    tree.heap.clear()
    start = tasks.chunk_start[chunk]
    for i in range(tasks.hold_offsets[chunk], tasks.hold_offsets[chunk + 1]):
        tree.candidates.append((-1, -1, start))
        heappush(tree.heap, ((1.0 - rule.nearness) * start, tasks.hold_nodes[i], len(tree.candidates) - 1))
    wanted = tasks.want_nodes[tasks.want_offsets[chunk] : tasks.want_offsets[chunk + 1]]
    tree.wanted[wanted] = True
    return len(wanted)


def grow_tree(left: int, size: float, network: Network, rule: Rule, tree: Tree, calendars: Calendars) -> float:
    """Attach node after node until all that want the chunk have it, or no candidate is left.

    Args:
        left: how many nodes want the chunk.
        size: bytes of the chunk.
    Returns:
        When the last of them has it.
    """
    # taken apart once a tree, since every access to a field costs compiled code a count of references
    out_offsets, out_links, _, link_dst, per_byte, latency, kind, _, steps = network
    whole, nearness, thrift = rule
    reached, wanted, paid, first_byte, last_byte, come_by, cost, kept_until, best, pass_of, pass_over = tree[:11]
    passes, hits, hops, candidates, heap, (latest, taken) = tree[11:]
    changes = len(steps.at_s) > 0
    leaves = [0]
    finish = 0.0
    while left > 0 and len(heap) > 0:
        key, w, index = heappop(heap)
        if reached[w]:
            continue
        u, last, start = candidates[index]
        if u < 0:
            first_byte[w] = last_byte[w] = come_by[w] = start
            pass_of[w] = -1
            cost[w] = (1.0 - nearness) * start
        else:
            hop = hops[last]
            if hop.place > 0:
                # other branches may have taken links of the pipe since it was offered
                now, start, d, arrival, joined = try_pipe(u, last, network, rule, tree, calendars)
                if now > key * SLACK:
                    heappush(heap, (now, w, index))
                    continue
            else:
                d, arrival, joined = hop.seconds, start + latency[hop.link], -1
                now = cost_at(cost[u], last_byte[u], kept_until[u], nearness, hop.price, start, d, arrival + d)
            # a pipe that branches later may send for all of its slots
            come_by[w] = arrival + (d if hop.place > 0 else hop.sending)
            if joined < 0:
                joined = len(passes)
                passes.append((u, start, d, pass_of[u]))
            for h in pipe_to(last, hops):
                hop = hops[h]
                if pass_over[hop.link] != joined:
                    pass_over[hop.link] = joined
                    begin = start + hop.offset
                    taken.append((hop.link, begin - slots_early(hop.place, whole), begin + d, latest[hop.link]))
                    latest[hop.link] = len(taken) - 1
            hits.append((joined, w, last))
            pass_of[w], first_byte[w], last_byte[w], cost[w] = joined, arrival, arrival + d, now
        reached[w] = True
        kept_until[w] = last_byte[w]
        leaves.clear()
        leaves.append(w)
        if wanted[w]:
            left -= 1
            finish = max(finish, last_byte[w])
            if left == 0:
                break
            # the path to w is part of the tree for good: waiting on it costs nothing more
            v = w
            while not paid[v]:
                paid[v] = True
                free = (1.0 - nearness) * last_byte[v]
                if cost[v] > free and v != w:
                    leaves.append(v)
                cost[v] = free
                if pass_of[v] < 0:
                    break
                v, start, _, _ = passes[pass_of[v]]
                if nearness > 0.0 and start > kept_until[v]:
                    kept_until[v] = start
                    if paid[v]:
                        leaves.append(v)
        for u in leaves:
            switches = False
            for e in range(out_offsets[u], out_offsets[u + 1]):
                link = out_links[e]
                w = link_dst[link]
                if kind[w] == SWITCH:
                    switches = True
                elif not reached[w]:
                    ready = last_byte[u]
                    sending = sending_s(link, ready, size, per_byte[link], steps) if changes else size * per_byte[link]
                    if kind[u] == ROUTER:
                        ready = router_ready(first_byte[u], come_by[u], sending, whole)
                    d = seconds_on(sending, 1.0, whole)
                    start = gap(ready, d, link, calendars)
                    while changes:
                        # eq. (7): how long it takes depends on what the link carries from then on
                        sending = sending_s(link, start, size, per_byte[link], steps)
                        d = seconds_on(sending, 1.0, whole)
                        later = gap(start, d, link, calendars)
                        if later <= start:
                            break
                        start = later
                    if start - ready <= EPS * start:  # a rounding is no wait
                        start = ready
                    arrival = start + latency[link] + d
                    now = cost_at(cost[u], last_byte[u], kept_until[u], nearness, thrift[link], start, d, arrival)
                    if now < best[w]:
                        best[w] = now
                        hops.append(Hop(link, link, -1, 0, 0.0, d, sending, thrift[link]))
                        candidates.append((u, len(hops) - 1, start))
                        heappush(heap, (now, w, len(candidates) - 1))
            if switches and promises_gain(u, size, network, rule, tree):
                offer_pipes(u, size, network, rule, tree, calendars)
    return finish


def keep_tree(
    chunk: int,
    smallest: float,
    network: Network,
    rule: Rule,
    tree: Tree,
    calendars: Calendars,
    grown: Grown,
    segments: int,
) -> int:
    """Enter what leads to a node that wants the chunk into the calendars and the answer.

    Args:
        smallest: bytes of the smallest chunk; gaps that are too short for it are closed.
        segments: of the calendars so far.
    Returns:
        The new number of segments.
    """
    useful = tree.paid  # which this tree needs no more
    useful[:] = tree.wanted
    for p, node, _ in tree.hits[::-1]:
        if useful[node]:
            useful[tree.passes[p][0]] = True
    for link, _, _, _ in tree.reservations.rows:
        tree.pass_over[link] = -1
    number = np.full(len(tree.passes), -1)
    for p, node, last in tree.hits:
        if not useful[node]:
            continue
        u, start, seconds, parent = tree.passes[p]
        if number[p] < 0:
            number[p] = len(grown.times) - 1
            grown.passes.append((chunk, u, number[parent] if parent >= 0 else -1))
            grown.times.append((start, seconds))
        grown.hits.append((number[p], node))
        for h in pipe_to(last, tree.hops):
            hop = tree.hops[h]
            if tree.pass_over[hop.link] == p:
                continue
            tree.pass_over[hop.link] = p
            grown.hops.append((number[p], hop.link))
            begin = start + hop.offset
            early = slots_early(hop.place, rule.whole)
            least = seconds_on(smallest, network.per_byte[hop.link], rule.whole) * (1 - 1e-9)
            segments = reserve(begin - early, begin + seconds, hop.link, least, calendars, segments)
    return segments
