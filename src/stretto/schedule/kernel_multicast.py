"""Multicast trees on an implicit time-expanded graph (MTEGCCA, section 2.2).

Nothing is expanded: a link's slots are the gaps of its calendar of reservations (:mod:`.kernel_calendars`), a storage
edge is a wait. Time is continuous, or counted in slots when ``Rule.whole`` is set (then sizes, latencies and starts are
rounded up to whole slots, as the paper does). How a tree goes on is in :mod:`.kernel_candidates`.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kernel_calendars import (
    INF,
    SLACK,
    Calendars,
    Float64,
    Int64,
    Reservations,
    Routes,
    gap,
    grown,
    pipe_start,
    reserve,
    seconds_on,
    slots_early,
)
from .kernel_candidates import (
    ROUTER,
    SWITCH,
    Beyond,
    Candidates,
    Kept,
    Network,
    Rule,
    Tree,
    TreePasses,
    cost_at,
    offer,
    offer_pipes,
    promises_gain,
    shared_start,
)

Int32 = NDArray[np.int32]


class Tasks(NamedTuple):
    """What trees are grown for.

    Attributes:
        order: int64[tasks], chunks in the order of their turn.
        chunk_bytes, chunk_start: float64[chunks].
        hold_offsets, hold_nodes, want_offsets, want_nodes: CSR, the nodes that hold and want each chunk.
    """

    order: Int64
    chunk_bytes: Float64
    chunk_start: Float64
    hold_offsets: Int64
    hold_nodes: Int64
    want_offsets: Int64
    want_nodes: Int64


def grow_trees(
    network: Network, tasks: Tasks, rule: Rule
) -> tuple[
    tuple[Int32, Int32, Int32],
    tuple[Float64, Float64],
    tuple[Int32, Int32],
    tuple[Int32, Int32],
    tuple[int, int],
    float,
]:
    """Grow one multicast tree a chunk, in order, each on what the earlier ones left free.

    Returns:
        (chunk, src, parent) of each pass; the parent is the pass that brought the chunk to its node, -1 if it held it.
        (start, seconds) of each pass.
        (pass, node) of each hit, (pass, link) of each link that a pass uses, in the order of passes.
        (chunk, node) that has no path, or (-1, -1).
        When the last wanted chunk has arrived.
    """
    nodes, links = len(network.kind), len(network.link_src)
    room = 4 * links + 64
    calendars = Calendars(
        np.full(links, -1, dtype=np.int64), np.full(links, -1, dtype=np.int64),
        np.empty(room), np.empty(room), np.empty(room, dtype=np.int64),
    )  # fmt: skip
    tree = Tree(
        np.zeros(nodes, dtype=np.bool_), np.zeros(nodes, dtype=np.bool_), np.zeros(nodes, dtype=np.bool_),
        np.zeros(nodes), np.zeros(nodes), np.zeros(nodes), np.zeros(nodes), np.full(nodes, INF),
        np.full(nodes, -1, dtype=np.int64),
    )  # fmt: skip
    passes = TreePasses(
        np.zeros(2, dtype=np.int64),
        np.zeros(nodes + 1, dtype=np.int64), np.zeros(nodes + 1), np.zeros(nodes + 1),
        np.zeros(nodes + 1, dtype=np.int64), np.zeros(nodes + 1, dtype=np.int64),
        np.zeros(nodes + 1, dtype=np.int64), np.zeros(nodes + 1, dtype=np.int64),
        np.zeros(nodes + 1, dtype=np.int64), np.zeros(nodes + 1, dtype=np.int64),
        np.full(links, -1, dtype=np.int64),
    )  # fmt: skip
    # an entry in each list tells the compiler its type
    reservations = Reservations(np.full(links, -1, dtype=np.int64), [0], [0.0], [0.0], [0])
    routes = Routes([0], [0.0])
    candidates = Candidates([0], [0], [0], [0], [0.0], [(0.0, 0, 0)])
    beyond = Beyond(
        np.full(nodes, INF), np.full(nodes, -1, dtype=np.int64), np.zeros(nodes, dtype=np.bool_), [(0.0, 0)]
    )
    kept = Kept([0], [0], [0], [0.0], [0.0], [0], [0], [0], [0])
    clear(kept)
    smallest = tasks.chunk_bytes.min()
    segments = 0
    unreached = (-1, -1)
    finish = 0.0
    for task in range(len(tasks.order)):
        chunk = tasks.order[task]
        size = tasks.chunk_bytes[chunk]
        left = begin_tree(chunk, tasks, rule, tree, passes, routes, candidates, reservations)
        finish = max(
            finish,
            grow_tree(left, size, network, rule, tree, passes, routes, candidates, beyond, calendars, reservations),
        )
        for v in range(nodes - 1, -1, -1):
            if tree.wanted[v] and not tree.reached[v]:
                unreached = (chunk, v)
        if unreached[0] >= 0:
            break
        needed = segments + len(reservations.link)
        if needed > len(calendars.start):
            calendars = Calendars(
                calendars.head, calendars.tail, grown(calendars.start, needed), grown(calendars.end, needed),
                grown(calendars.following, needed),
            )  # fmt: skip
        segments = keep_tree(
            chunk, smallest, network, rule, tree, passes, routes, calendars, reservations, kept, segments
        )
    return (
        (
            np.array(kept.chunk, dtype=np.int32),
            np.array(kept.src, dtype=np.int32),
            np.array(kept.parent, dtype=np.int32),
        ),
        (np.array(kept.start, dtype=np.float64), np.array(kept.seconds, dtype=np.float64)),
        (np.array(kept.hit_pass, dtype=np.int32), np.array(kept.hit_node, dtype=np.int32)),
        (np.array(kept.hop_pass, dtype=np.int32), np.array(kept.hop_link, dtype=np.int32)),
        unreached,
        finish,
    )


def clear(kept: Kept) -> None:
    """Empty the lists."""
    kept.chunk.clear()
    kept.src.clear()
    kept.parent.clear()
    kept.start.clear()
    kept.seconds.clear()
    kept.hit_pass.clear()
    kept.hit_node.clear()
    kept.hop_pass.clear()
    kept.hop_link.clear()


def begin_tree(
    chunk: int,
    tasks: Tasks,
    rule: Rule,
    tree: Tree,
    passes: TreePasses,
    routes: Routes,
    candidates: Candidates,
    reservations: Reservations,
) -> int:
    """Forget the tree before; each holder of the chunk becomes a candidate of its own.

    Returns:
        How many nodes want the chunk.
    """
    tree.reached[:] = False
    tree.paid[:] = False
    tree.wanted[:] = False
    tree.best[:] = INF
    for i in range(len(reservations.link)):
        passes.of_link[reservations.link[i]] = -1
        reservations.head[reservations.link[i]] = -1
    passes.used[:] = 0
    routes.link.clear()
    routes.offset.clear()
    reservations.link.clear()
    reservations.start.clear()
    reservations.end.clear()
    reservations.following.clear()
    candidates.src.clear()
    candidates.dst.clear()
    candidates.first.clear()
    candidates.length.clear()
    candidates.start.clear()
    candidates.heap.clear()
    for i in range(tasks.hold_offsets[chunk], tasks.hold_offsets[chunk + 1]):
        start = tasks.chunk_start[chunk]
        offer(candidates, -1, tasks.hold_nodes[i], 0, 0, start, (1.0 - rule.nearness) * start)
    for i in range(tasks.want_offsets[chunk], tasks.want_offsets[chunk + 1]):
        tree.wanted[tasks.want_nodes[i]] = True
    return int(tasks.want_offsets[chunk + 1] - tasks.want_offsets[chunk])


def grow_tree(
    left: int,
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
) -> float:
    """Attach node after node until all that want the chunk have it, or no candidate is left.

    Args:
        left: how many nodes want the chunk.
        size: bytes of the chunk.
    Returns:
        When the last of them has it.
    """
    # taken apart once a tree, since every access to a field costs compiled code a count of references
    out_offsets, out_links, _, link_dst, per_byte, latency, kind, _ = network
    whole, nearness, thrift = rule
    reached, wanted, paid, first_byte, last_byte, cost, kept_until, best, pass_of = tree
    used, pass_src, pass_start, pass_seconds, pass_parent, _, hit_pass, hit_node, hit_first, hit_length, link_pass = (
        passes
    )
    path, offset = routes
    cand_src, cand_dst, cand_first, cand_length, cand_start, heap = candidates
    taken_head, taken_link, taken_start, taken_end, taken_next = reservations
    leaves = [0]
    finish = 0.0
    while left > 0 and len(heap) > 0:
        key, w, index = heappop(heap)
        if reached[w]:
            continue
        u, first, length = cand_src[index], cand_first[index], cand_length[index]
        if u < 0:
            first_byte[w] = last_byte[w] = cand_start[index]
            pass_of[w] = -1
            cost[w] = (1.0 - nearness) * cand_start[index]
        else:
            # the links may have been taken since the candidate was offered
            d, price = 0.0, 0.0
            for i in range(first, first + length):
                d = max(d, seconds_on(size, per_byte[path[i]], whole))
                price = max(price, thrift[path[i]])
            ready = max(first_byte[u], last_byte[u] - d) if kind[u] == ROUTER else last_byte[u]
            start, joined = INF, -1
            if length > 1 and link_pass[path[first]] >= 0:
                start, joined = shared_start(
                    ready, d, whole, u, routes, first, length, passes, network, calendars, reservations
                )
            alone = pipe_start(ready, d, whole, routes, first, length, calendars, reservations)
            if alone < start:
                start, joined = alone, -1
            if joined >= 0:
                d = pass_seconds[joined]
            late = offset[first + length - 1] + latency[path[first + length - 1]]
            arrival = start + late + d
            now = cost_at(cost[u], last_byte[u], kept_until[u], nearness, price, start, d, arrival)
            if now > key * SLACK:
                heappush(heap, (now, w, index))
                continue
            if joined < 0:
                joined = used[0]
                used[0] += 1
                pass_src[joined], pass_start[joined], pass_seconds[joined] = u, start, d
                pass_parent[joined] = pass_of[u]
            for i in range(first, first + length):
                link = path[i]
                if link_pass[link] != joined:
                    link_pass[link] = joined
                    taken_link.append(link)
                    taken_start.append(start + offset[i] - slots_early(i - first, whole))
                    taken_end.append(start + offset[i] + d)
                    taken_next.append(taken_head[link])
                    taken_head[link] = len(taken_link) - 1
            hit = used[1]
            used[1] += 1
            hit_pass[hit], hit_node[hit], hit_first[hit], hit_length[hit] = joined, w, first, length
            pass_of[w] = joined
            first_byte[w], last_byte[w] = start + late, arrival
            cost[w] = now
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
                p = pass_of[v]
                if p < 0:
                    break
                v = pass_src[p]
                if nearness > 0.0 and pass_start[p] > kept_until[v]:
                    kept_until[v] = pass_start[p]
                    if paid[v]:
                        leaves.append(v)
        for leaf in range(len(leaves)):
            u = leaves[leaf]
            switches = False
            for e in range(out_offsets[u], out_offsets[u + 1]):
                link = out_links[e]
                w = link_dst[link]
                if kind[w] == SWITCH:
                    switches = True
                    continue
                if reached[w]:
                    continue
                d = seconds_on(size, per_byte[link], whole)
                ready = max(first_byte[u], last_byte[u] - d) if kind[u] == ROUTER else last_byte[u]
                start = gap(ready, d, link, calendars)
                arrival = start + latency[link] + d
                now = cost_at(cost[u], last_byte[u], kept_until[u], nearness, thrift[link], start, d, arrival)
                if now < best[w]:
                    best[w] = now
                    cand_src.append(u)
                    cand_dst.append(w)
                    cand_first.append(len(path))
                    cand_length.append(1)
                    cand_start.append(start)
                    path.append(link)
                    offset.append(0.0)
                    heappush(heap, (now, w, len(cand_dst) - 1))
            if switches and promises_gain(u, size, network, rule, tree):
                offer_pipes(u, size, network, rule, tree, passes, routes, candidates, beyond, calendars, reservations)
    return finish


def keep_tree(
    chunk: int,
    smallest: float,
    network: Network,
    rule: Rule,
    tree: Tree,
    passes: TreePasses,
    routes: Routes,
    calendars: Calendars,
    reservations: Reservations,
    kept: Kept,
    segments: int,
) -> int:
    """Enter what leads to a node that wants the chunk into the calendars and the answer.

    Args:
        smallest: bytes of the smallest chunk; gaps that are too short for it are closed.
        segments: of the calendars so far.
    Returns:
        The new number of segments.
    """
    path, offset = routes
    used, src, start, seconds, parent, number, hit_pass, hit_node, hit_first, hit_length, link_pass = passes
    hits = used[1]
    useful = tree.paid  # which this tree needs no more
    useful[:] = tree.wanted
    for h in range(hits - 1, -1, -1):
        if useful[hit_node[h]]:
            useful[src[hit_pass[h]]] = True
    number[: used[0]] = -1
    for i in range(len(reservations.link)):
        link_pass[reservations.link[i]] = -1
    for h in range(hits):
        if not useful[hit_node[h]]:
            continue
        p = hit_pass[h]
        if number[p] < 0:
            number[p] = len(kept.chunk)
            kept.chunk.append(chunk)
            kept.src.append(src[p])
            kept.parent.append(number[parent[p]] if parent[p] >= 0 else -1)
            kept.start.append(start[p])
            kept.seconds.append(seconds[p])
        kept.hit_pass.append(number[p])
        kept.hit_node.append(hit_node[h])
        first = hit_first[h]
        for i in range(first, first + hit_length[h]):
            link = path[i]
            if link_pass[link] == p:
                continue
            link_pass[link] = p
            kept.hop_pass.append(number[p])
            kept.hop_link.append(link)
            begin = start[p] + offset[i]
            least = seconds_on(smallest, network.per_byte[link], rule.whole) * (1 - 1e-9)
            segments = reserve(
                begin - slots_early(i - first, rule.whole), begin + seconds[p], link, least, calendars, segments
            )
    return segments
