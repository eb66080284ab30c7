"""Chunks matched to pipes, event by event: the delivery that can arrive first is made next.

TACOS (Won et al., MICRO 2024) matches, step by step of an expanded graph, what a node lacks to a link from one that has
it. Here time is continuous and nothing is expanded. Every pipe has in a heap the earliest moment at which what it
carries next could arrive; the first of them is made. A slow pipe thus takes a chunk only if no faster one brings it
before. Of the chunks that are there by then it takes the one that fewest have, and that fewest pipes could bring to the
same node: what only one neighbour has must come from it, what several have may come while that one is busy.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace

import numpy as np
from numpy.typing import NDArray

from .chunks import Chunks, Keys
from .draws import noise
from .pipes import Pipes, free_from
from .steps import Steps

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

SLACK = 1 + 4e-15
"""Moments whose ratio is below this are one moment."""

LACKS, UNWANTED, HELD = -1, -5, -9
"""What a node knows of a chunk that no transfer has brought it."""


def match(
    pipes: Pipes, link_count: int, chunks: Chunks, came: Int32, cluster: Int64, level: Int64,
    keys: Keys, window: int, tick_s: float,
) -> tuple[tuple[Int32, Int32, Int32, Float64, Float64], int]:  # fmt: skip
    """Bring every chunk to all nodes that lack it.

    Args:
        came: int32[nodes * chunks], LACKS where a node lacks a chunk, HELD where it has it, anything below if it does
            not want it; in the end the transfer that brought it.
        cluster, level: int64[levels, nodes] and int64[pipes], see :mod:`stretto.schedule.clusters`. A chunk is rare
            where few nodes have it of the smallest cluster that the pipe joins inside; what a smaller one at the
            pipe's end has is left for later.
        window: among how many chunks a pipe chooses the rarest.
        tick_s: moments less than this apart, seconds, are the same.
    Returns:
        (pipe, chunk, parent, start, last): a row a transfer, in the order of arrival; the parent brought the chunk
            to its source, -1 if that held it; when its first byte leaves and its last one arrives.
        missing: how many deliveries could not be made.
    """
    pipe_src, pipe_dst, hop_offsets, hop_links, hop_late_s, latency_s, per_byte_s, out_offsets, out_pipes, _ = pipes
    size_bytes, chunk_start_s, hold_offsets, hold_nodes = chunks
    salt, turn, hold_s, spread, scarcity, rarest_first, patient = keys
    pipe_count, chunk_count, nodes = len(pipe_src), len(size_bytes), len(out_offsets) - 1
    missing = 0
    lacks = np.zeros(nodes, dtype=np.int64)
    for v in range(nodes):
        for c in range(chunk_count):
            if came[v * chunk_count + c] == LACKS:
                missing += 1
                lacks[v] += 1
    first_held = np.zeros(nodes + 1, dtype=np.int64)
    for v in range(nodes):
        first_held[v + 1] = lacks[v]
    for k in range(len(hold_nodes)):
        first_held[hold_nodes[k] + 1] += 1
    for v in range(nodes):
        first_held[v + 1] += first_held[v]
    held = np.empty(first_held[nodes], dtype=np.int32)
    count = np.zeros(nodes, dtype=np.int64)
    out_pipe, out_chunk = np.empty(missing, dtype=np.int32), np.empty(missing, dtype=np.int32)
    out_parent = np.empty(missing, dtype=np.int32)
    out_start, out_last = np.empty(missing), np.empty(missing)
    done = 0

    levels = len(cluster)
    copies = np.zeros((cluster.max() + 1, chunk_count))  # in each cluster
    near = np.zeros(nodes * chunk_count, dtype=np.int16)  # how many pipes could bring a chunk to a node
    free_at = np.zeros(link_count)
    choice = np.empty(pipe_count * window, dtype=np.int32)
    filled, cursor = np.zeros(pipe_count, dtype=np.int64), np.zeros(pipe_count, dtype=np.int64)
    least = size_bytes.min() if chunk_count > 0 else 0.0
    # who holds what at first, in the order in which it may be sent
    order = np.argsort(chunk_start_s, kind="mergesort")  # stable at both speeds
    for c in order:
        for i in range(hold_offsets[c], hold_offsets[c + 1]):
            v = hold_nodes[i]
            held[first_held[v] + count[v]] = c
            count[v] += 1
            for k in range(levels):
                copies[cluster[k, v], c] += 1.0
            for e in range(out_offsets[v], out_offsets[v + 1]):
                near[pipe_dst[out_pipes[e]] * chunk_count + c] += 1
    # the pipes that may have something to carry: the tick before which nothing more can arrive over each, how rare the
    # chunk was that it would have carried when last looked at, and its turn
    everyone = [(0.0, -np.inf, turn[p], p) for p in np.argsort(turn)]
    queue, asleep = everyone.copy(), np.zeros(pipe_count, dtype=np.bool_)

    behind_all = nodes + scarcity * pipe_count + spread + 1.0  # for what a cluster at the pipe's end has
    while missing > 0:
        if len(queue) == 0:
            if not patient:
                break
            patient = False
            queue = everyone.copy()
            asleep[:] = False
        due, worth, _, p = queue[0]
        u, v = pipe_src[p], pipe_dst[p]
        # what it may choose from: the first that its end lacks, in the order in which they came to its source
        base, kept = p * window, 0
        for i in range(base, base + filled[p]):
            if came[v * chunk_count + choice[i]] == LACKS:
                choice[base + kept] = choice[i]
                kept += 1
        while kept < window and cursor[p] < count[u]:
            c = held[first_held[u] + cursor[p]]
            cursor[p] += 1
            if came[v * chunk_count + c] == LACKS:
                choice[base + kept] = c
                kept += 1
        filled[p] = kept
        if kept == 0:
            asleep[p] = True
            heappop(queue)
            continue
        c = choice[base]
        first = came[u * chunk_count + c]
        ready = out_last[first] if first >= 0 else chunk_start_s[c]
        start = max(ready, hold_s[p], free_from(p, hop_offsets, hop_links, hop_late_s, free_at))
        arrival = start + latency_s[p] + size_bytes[c] * per_byte_s[p]
        now = np.floor(arrival / tick_s + 0.5)
        if now > due:
            heapreplace(queue, (now, -np.inf, turn[p], p))
            continue
        # of what is there by then, the rarest
        best, chosen = np.inf, c
        for i in range(base, base + kept):
            c = choice[i]
            brought = came[u * chunk_count + c]
            if (out_last[brought] if brought >= 0 else chunk_start_s[c]) > start * SLACK:
                break
            value = copies[cluster[level[p], v], c] + scarcity * near[v * chunk_count + c]
            if value >= best:
                continue
            value += spread * noise(salt[c], p)
            for k in range(level[p]):
                if copies[cluster[k, v], c] > 0:
                    value += behind_all
            if value < best:
                best, chosen = value, c
        c = chosen
        if patient and best >= behind_all:
            asleep[p] = True
            heappop(queue)
            continue
        if rarest_first and best > worth:
            heapreplace(queue, (due, best, turn[p], p))
            continue
        seconds = size_bytes[c] * per_byte_s[p]
        out_pipe[done], out_chunk[done] = p, c
        out_parent[done] = max(came[u * chunk_count + c], -1)
        out_start[done], out_last[done] = start, start + latency_s[p] + seconds
        came[v * chunk_count + c] = done
        done += 1
        missing -= 1
        for k in range(levels):
            copies[cluster[k, v], c] += 1.0
        held[first_held[v] + count[v]] = c
        count[v] += 1
        for i in range(hop_offsets[p], hop_offsets[p + 1]):
            free_at[hop_links[i]] = start + hop_late_s[i] + seconds
        free_s = free_from(p, hop_offsets, hop_links, hop_late_s, free_at)
        then = np.floor((free_s + latency_s[p] + least * per_byte_s[p]) / tick_s + 0.5)
        heapreplace(queue, (max(now, then), -np.inf, turn[p], p))
        for e in range(out_offsets[v], out_offsets[v + 1]):
            q = out_pipes[e]
            w = pipe_dst[q] * chunk_count + c
            near[w] += 1
            if asleep[q] and came[w] == LACKS:
                asleep[q] = False
                then = np.floor((out_last[done - 1] + latency_s[q] + size_bytes[c] * per_byte_s[q]) / tick_s + 0.5)
                heappush(queue, (max(now, then), -np.inf, turn[q], q))

    return (out_pipe[:done], out_chunk[:done], out_parent[:done], out_start[:done], out_last[:done]), missing


def first_states(
    nodes: int, hold_offsets: Int64, hold_nodes: Int32, want_offsets: Int64, want_nodes: Int32
) -> tuple[Int32, Int64]:
    """What nodes know of chunks at first.

    Args:
        hold_offsets, hold_nodes, want_offsets, want_nodes: CSR, who holds and who wants each chunk.
    Returns:
        came: int32[nodes * chunks], see :func:`match`; lacks: int64[nodes], how many chunks each must get.
    """
    chunks = len(hold_offsets) - 1
    came, lacks = np.full(nodes * chunks, UNWANTED, dtype=np.int32), np.zeros(nodes, dtype=np.int64)
    for c in range(chunks):
        for i in range(want_offsets[c], want_offsets[c + 1]):
            came[want_nodes[i] * chunks + c] = LACKS
            lacks[want_nodes[i]] += 1
        for i in range(hold_offsets[c], hold_offsets[c + 1]):
            lacks[hold_nodes[i]] -= came[hold_nodes[i] * chunks + c] == LACKS
            came[hold_nodes[i] * chunks + c] = HELD
    return came, lacks


def components(src: Int64 | Int32, dst: Int64 | Int32, nodes: int) -> Int64:
    """int64[nodes]: the lowest node of the component of each, where pipes join nodes both ways."""
    lowest = np.arange(nodes)
    for k in range(len(src)):
        a, b = src[k], dst[k]
        while lowest[a] != a:
            lowest[a] = lowest[lowest[a]]
            a = lowest[a]
        while lowest[b] != b:
            lowest[b] = lowest[lowest[b]]
            b = lowest[b]
        lowest[max(a, b)] = min(a, b)
    for v in range(nodes):
        lowest[v] = lowest[lowest[v]]
    return lowest


def least_finish(in_offsets: Int64, in_links: Int32 | Int64, latency: Float64, step: Float64, lacks: Int64) -> float:
    """Seconds before which some node cannot have all the chunks that it lacks over the links that enter it.

    Args:
        in_offsets, in_links: CSR, the links into each node.
        latency, step: float64[links], of each link, and how long the smallest chunk occupies it.
        lacks: int64[nodes], how many chunks each must get.
    """
    bound = 0.0
    brought = np.zeros(len(step), dtype=np.int64)
    for v in range(len(lacks)):
        if lacks[v] == 0:
            continue
        first, end = in_offsets[v], in_offsets[v + 1]
        rate = 0.0
        for i in range(first, end):
            rate += 1.0 / step[in_links[i]]
        if rate == 0.0:
            return np.inf
        # not before this even in parts of chunks; what is still missing then comes one by one
        at = lacks[v] / rate * (1 - 1e-9)
        left = lacks[v]
        for i in range(first, end):
            e = in_links[i]
            brought[e] = max(0, int(np.floor((at - latency[e]) / step[e])))
            left -= brought[e]
        while left > 0:
            at, by = np.inf, 0
            for i in range(first, end):
                e = in_links[i]
                then = latency[e] + (brought[e] + 1) * step[e]
                if then < at:
                    at, by = then, e
            brought[by] += 1
            left -= 1
        bound = max(bound, at)
    return bound


def at_once(
    src: Int32, dst: Int32, latency: Float64, bandwidth: Float64, out_offsets: Int64, out_links: Int32,
    in_offsets: Int64, in_links: Int32, hold_offsets: Int64, hold_nodes: Int32, want_offsets: Int64, want_nodes: Int32,
    chunk_bytes: Int64, chunk_start: Float64, seed: int, scarcity: float, slower: float, window: int, tick: float,
    enough: float,
) -> tuple[Int32, Float64]:  # fmt: skip
    """One matching over links of much the same speed, if it ends when no other could end sooner.

    All that it needs is set up here: in a small network calls for that would take longer than the matching itself.

    Args:
        src, dst, latency, bandwidth: the links, each a pipe.
        out_*, in_*: CSR, the links that leave and enter each node.
        hold_*, want_*: CSR, who holds and who wants each chunk.
        seed: the turns of links are drawn from it; they have no preferences.
        slower: links are not of the same speed if some take this many times as long for a byte as the next faster ones.
        tick: moments less than this part of the shortest transfer apart are the same.
        enough: how many times as late as the earliest possible end the matching may end.
    Returns:
        int32[5, transfers]: chunk, source, receiver, link and parent, and
        float64[3, transfers]: start, seconds and arrival, in the order of starts; none if it ends later.
    """
    nodes, links, chunks = len(out_offsets) - 1, len(src), len(chunk_bytes)
    size, per_byte = chunk_bytes.astype(np.float64), 1.0 / bandwidth
    none = np.empty((5, 0), dtype=np.int32), np.empty((3, 0))
    speeds = np.sort(per_byte)
    for k in range(1, links):
        if speeds[k] >= slower * speeds[k - 1]:
            return none
    came, lacks = first_states(nodes, hold_offsets, hold_nodes, want_offsets, want_nodes)
    took = size.min() * per_byte
    least = chunk_start.min() + least_finish(in_offsets, in_links, latency, took, lacks)
    turn = np.empty(links)
    for p in range(links):
        turn[p] = noise(seed, p)
    hops, level = np.arange(links + 1), np.zeros(links, dtype=np.int64)
    pipes = Pipes(
        src.astype(np.int64), dst.astype(np.int64), hops, hops[:-1], np.zeros(links), latency, per_byte,
        out_offsets, out_links.astype(np.int64), Steps(np.zeros(links + 1, dtype=np.int64), np.zeros(0), np.zeros(0)),
    )  # fmt: skip
    keys = Keys(np.zeros(chunks, dtype=np.int64), turn, np.zeros(links), 0.0, scarcity, False, True)
    (pipe, chunk, parent, start, last), missing = match(
        pipes, links, Chunks(size, chunk_start, hold_offsets, hold_nodes.astype(np.int64)), came,
        components(src, dst, nodes).reshape((1, nodes)), level, keys, window, (latency + took).min() * tick,
    )  # fmt: skip
    count = len(last)
    if count == 0 or missing > 0 or last.max() > least * enough:
        return none
    order = np.argsort(start, kind="mergesort")
    rank = np.empty(count, dtype=np.int64)
    what, when = np.empty((5, count), dtype=np.int32), np.empty((3, count))
    for i in range(count):
        k = order[i]
        rank[k] = i
        p, c = pipe[k], chunk[k]
        what[0, i], what[1, i], what[2, i], what[3, i] = c, src[p], dst[p], p
        what[4, i] = rank[parent[k]] if parent[k] >= 0 else -1  # which started before
        when[0, i], when[1, i], when[2, i] = start[k], size[c] * per_byte[p], last[k]
    return what, when
