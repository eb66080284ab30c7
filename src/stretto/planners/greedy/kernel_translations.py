"""A network that looks the same from every node: what one node gets, and when, is what all get.

Nodes are numbered in mixed radix. Where adding to any digit, modulo its side, maps links to links of the same bandwidth
and latency, these translations are a commutative group of automorphisms, of which exactly one takes a node to another:
the network is a Cayley graph of the group, and the links of node 0 lead to its generators. Rings, tori, hypercubes and
full meshes are. A schedule for the chunks that one node gets, each named by its *displacement* from its source, is then
one for all nodes: a link carries at each moment what its images carry, displaced. So matching costs one n-th for n
nodes, and many more orders can be tried.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.draws import noise

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

SLACK = 1 + 1e-12
LACKS, HELD = -1, -9


class Cayley(NamedTuple):
    """A network as a Cayley graph.

    Attributes:
        sides: int64[digits], the sides of the digits of nodes, the lowest digit first.
        generators: int64[links of a node], the displacement over each link that leaves a node.
        latency_s, per_byte: float64[links of a node], seconds, and seconds a byte.
    """

    sides: Int64
    generators: Int64
    latency_s: Float64
    per_byte: Float64


class Rules(NamedTuple):
    """How orders are tried.

    Attributes:
        seed: from which the order of ties is drawn.
        tries: orders that are tried at most.
        scarce: for how many copies a link counts that could bring the same chunk to a node.
        enough_s: a schedule that ends by then is not searched further.
        window: chunks among which a link chooses.
        tick_s: moments closer than this count as the same.
    """

    seed: int
    tries: int
    scarce: float
    enough_s: float
    window: int
    tick_s: float


def _shifted(v: int, stride: int, side: int) -> int:
    """Node v after one is added to a digit."""
    return v + stride if v // stride % side < side - 1 else v - stride * (side - 1)


def _plus(v: int, x: int, strides: Int64, sides: Int64, sign: int) -> int:
    """The sum of two nodes, digit by digit; with ``sign`` -1 the difference."""
    total = 0
    for k in range(len(sides)):
        digit = v // strides[k] % sides[k] + sign * (x // strides[k] % sides[k])
        total += strides[k] * (digit % sides[k])
    return total


def _maps_links(
    stride: int, side: int, offsets: Int64, links: Int32, dst: Int32, bandwidth: Float64, latency_s: Float64, at: Int64
) -> bool:
    """Whether adding one to a digit maps all links to links alike; ``at`` is int64[nodes], all -1 before and after."""
    same = True
    for u in range(len(at)):
        w = _shifted(u, stride, side)
        first, end = offsets[w], offsets[w + 1]
        if end - first != offsets[u + 1] - offsets[u]:
            return False
        for i in range(first, end):
            at[dst[links[i]]] = links[i]
        for i in range(offsets[u], offsets[u + 1]):
            e = links[i]
            f = at[_shifted(dst[e], stride, side)]
            if f < 0 or bandwidth[f] != bandwidth[e] or latency_s[f] != latency_s[e]:
                same = False
                break
        for i in range(first, end):
            at[dst[links[i]]] = -1
        if not same:
            return False
    return True


def find_sides(offsets: Int64, links: Int32, dst: Int32, bandwidth: Float64, latency_s: Float64) -> Int64:
    """int64[digits], the sides of digits to which one may be added without a change; none if there are no such digits.

    Args:
        offsets, links: CSR, the links that leave each node.
        dst, bandwidth, latency_s: of each link.
    """
    nodes = len(offsets) - 1
    at = np.full(nodes, -1, dtype=np.int64)
    side_from = np.zeros(nodes + 1, dtype=np.int64)  # the largest side of the digit of each stride, 0 if none
    for stride in range(nodes // 2, 0, -1):
        if nodes % stride != 0:
            continue
        for side in range(nodes // stride, 1, -1):
            above = stride * side
            if nodes % above != 0 or (above < nodes and side_from[above] == 0):
                continue
            if _maps_links(stride, side, offsets, links, dst, bandwidth, latency_s, at):
                side_from[stride] = side
                break
    sides = np.zeros(nodes, dtype=np.int64)
    count, stride = 0, 1
    while stride < nodes and side_from[stride] > 0:
        sides[count] = side_from[stride]
        stride *= sides[count]
        count += 1
    return sides[:count]


def chunks_of_nodes(
    nodes: int,
    hold_offsets: Int64,
    hold_nodes: Int32,
    want_offsets: Int64,
    want_nodes: Int32,
    chunk_bytes: Int64,
    chunk_start_s: Float64,
) -> Int64:
    """int64[nodes * parts], the chunks of each node, where all hold alike and want what all others hold; else none."""
    chunks = len(chunk_bytes)
    none = np.zeros(0, dtype=np.int64)
    if chunks == 0 or chunks % nodes != 0 or hold_offsets[chunks] != chunks:
        return none
    parts = chunks // nodes
    node_chunks, count = np.zeros(chunks, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    for c in range(chunks):
        if hold_offsets[c + 1] - hold_offsets[c] != 1:
            return none
        v = hold_nodes[hold_offsets[c]]
        if count[v] == parts:
            return none
        node_chunks[v * parts + count[v]] = c
        count[v] += 1
        others = 0
        for i in range(want_offsets[c], want_offsets[c + 1]):
            others += want_nodes[i] != v
        if others != nodes - 1:
            return none
    for i in range(chunks):
        c, first = node_chunks[i], node_chunks[i % parts]
        if chunk_bytes[c] != chunk_bytes[first] or chunk_start_s[c] != chunk_start_s[0]:
            return none
    return node_chunks


def match(group: Cayley, part_bytes: Float64, begin_s: float, rules: Rules) -> tuple[Int64, Float64]:
    """Bring a node every part of what all other nodes hold, each part over one of the links that enter the node.

    Args:
        part_bytes: float64[parts], what each node holds.
        begin_s: before which nothing starts.
    Returns:
        int64[4, deliveries]: generator, displacement, part and parent of each, in the order of arrival; the parent
            brought the part to the node before, -1 if that node holds it. None if not all parts can be brought.
        float64[2, deliveries]: when the first byte leaves and the last one arrives.
    """
    _, tries, _, enough_s, _, _ = rules
    onward = _onward(group)
    best_rows, best_times = np.empty((4, 0), dtype=np.int64), np.empty((2, 0))
    best_end = np.inf
    for k in range(tries):
        rows, times = _match_in_order(group, onward, part_bytes, begin_s, rules, k)
        if rows.shape[1] == 0:
            return rows, times
        end = times[1].max()
        if end < best_end:
            best_end, best_rows, best_times = end, rows, times
        if best_end <= enough_s:
            break
    return best_rows, best_times


def _onward(group: Cayley) -> Int64:
    """int64[generators, nodes], where each generator leads from each node."""
    sides, generators, _, _ = group
    nodes = 1
    strides = np.empty(len(sides), dtype=np.int64)
    for k in range(len(sides)):
        strides[k] = nodes
        nodes *= sides[k]
    onward = np.empty((len(generators), nodes), dtype=np.int64)
    for p in range(len(generators)):
        for x in range(nodes):
            onward[p, x] = _plus(x, generators[p], strides, sides, 1)
    return onward


def _match_in_order(
    group: Cayley, onward: Int64, part_bytes: Float64, begin_s: float, rules: Rules, number: int
) -> tuple[Int64, Float64]:
    """What :func:`match` returns, for one order of ties."""
    _, generators, latency_s, per_byte = group
    seed, _, scarce, _, window_size, tick_s = rules
    (count, nodes), parts = onward.shape, len(part_bytes)
    total = (nodes - 1) * parts
    # an item is a displacement and a part, as displacement * parts + part
    came = np.full(nodes * parts, LACKS, dtype=np.int64)  # by item, the delivery that brought it
    near = np.zeros(nodes * parts, dtype=np.int64)  # by item, over how many links it could come
    copies = np.zeros(parts, dtype=np.int64)
    held = np.empty(nodes * parts, dtype=np.int64)  # items in the order in which they came
    window = np.empty((count, window_size), dtype=np.int64)
    filled, cursor = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    due, free, turn = np.zeros(count), np.full(count, begin_s), np.empty(count)
    rows, times = np.empty((4, total), dtype=np.int64), np.empty((2, total))
    least = part_bytes.min()
    for j in range(parts):
        came[j] = HELD
        held[j] = j
        for p in range(count):
            near[generators[p] * parts + j] += 1
    for p in range(count):
        turn[p] = noise(seed + number, p + 1)
    # some orders prefer other deliveries than the next to arrive, or count no copies that other links could bring
    ahead = 1.0 if number % 4 < 2 else noise(seed + number, 0) * 2.0 - 0.5
    weight = scarce if number % 2 == 0 else 0.0
    done, size = 0, parts
    while done < total:
        p = 0
        for q in range(1, count):
            if due[q] < due[p] or (due[q] == due[p] and turn[q] < turn[p]):
                p = q
        if due[p] == np.inf:
            return np.empty((4, 0), dtype=np.int64), np.empty((2, 0))
        kept = 0
        for i in range(filled[p]):
            if came[onward[p, window[p, i] // parts] * parts + window[p, i] % parts] == LACKS:
                window[p, kept] = window[p, i]
                kept += 1
        while kept < window_size and cursor[p] < size:
            h = held[cursor[p]]
            cursor[p] += 1
            if came[onward[p, h // parts] * parts + h % parts] == LACKS:
                window[p, kept] = h
                kept += 1
        filled[p] = kept
        if kept == 0:
            due[p] = np.inf
            continue
        first = came[window[p, 0]]
        start = max(free[p], begin_s if first < 0 else times[1, first])
        took_s = latency_s[p] + part_bytes[window[p, 0] % parts] * per_byte[p]
        now = np.floor((start + ahead * took_s) / tick_s + 0.5)
        if now > due[p]:
            due[p] = now
            continue
        value, chosen = np.inf, window[p, 0]
        for i in range(kept):
            h = window[p, i]
            if came[h] >= 0 and times[1, came[h]] > start * SLACK:
                break
            x = onward[p, h // parts] * parts + h % parts
            rare = copies[h % parts] + weight * near[x] + noise(seed + number, x)
            if rare < value:
                value, chosen = rare, h
        j = chosen % parts
        x = onward[p, chosen // parts]
        free[p] = start + part_bytes[j] * per_byte[p]
        last = free[p] + latency_s[p]
        rows[0, done], rows[1, done], rows[2, done] = p, x, j
        rows[3, done] = max(came[chosen], -1)
        times[0, done], times[1, done] = start, last
        came[x * parts + j] = done
        copies[j] += 1
        held[size] = x * parts + j
        size += 1
        done += 1
        due[p] = max(now, np.floor((free[p] + ahead * (latency_s[p] + least * per_byte[p])) / tick_s + 0.5))
        for q in range(count):
            y = onward[q, x] * parts + j
            near[y] += 1
            if due[q] == np.inf and came[y] == LACKS:
                then = last + ahead * (latency_s[q] + part_bytes[j] * per_byte[q])
                due[q] = max(now, np.floor(then / tick_s + 0.5))
    return rows, times


def expand(group: Cayley, rows: Int64, offsets: Int64, links: Int32, dst: Int32, node_chunks: Int64) -> Int32:
    """The deliveries of one node, for every node.

    Args:
        rows: int64[4, deliveries], generator, displacement, part and parent, as :func:`match` gives them.
        offsets, links, dst: CSR, the links that leave each node, and where they lead.
        node_chunks: int64[nodes * parts], see :func:`chunks_of_nodes`.
    Returns:
        int32[5, deliveries * nodes], delivery by delivery: link, chunk, src, dst and parent.
    """
    sides, generators, _, _ = group
    nodes, deliveries = len(offsets) - 1, rows.shape[1]
    parts = len(node_chunks) // nodes
    strides = np.empty(len(sides), dtype=np.int64)
    stride = 1
    for k in range(len(sides)):
        strides[k] = stride
        stride *= sides[k]
    over = np.empty((len(generators), nodes), dtype=np.int64)  # the link of each generator that enters each node
    generator_of = np.full(nodes, -1, dtype=np.int64)
    for p in range(len(generators)):
        generator_of[generators[p]] = p
    for u in range(nodes):
        for i in range(offsets[u], offsets[u + 1]):
            v = dst[links[i]]
            over[generator_of[_plus(v, u, strides, sides, -1)], v] = links[i]
    plus = np.empty(nodes, dtype=np.int64)
    before = np.empty((len(generators), nodes), dtype=np.int64)
    for p in range(len(generators)):
        for v in range(nodes):
            before[p, v] = _plus(v, generators[p], strides, sides, -1)
    out = np.empty((5, deliveries * nodes), dtype=np.int32)
    for i in range(deliveries):
        p, x, j, parent = rows[0, i], rows[1, i], rows[2, i], rows[3, i]
        for v in range(nodes):
            plus[v] = _plus(v, x, strides, sides, 1)
        for v in range(nodes):
            w, r = plus[v], i * nodes + v
            out[0, r] = over[p, w]
            out[1, r] = node_chunks[v * parts + j]
            out[2, r] = before[p, w]
            out[3, r] = w
            out[4, r] = parent * nodes + v if parent >= 0 else -1
    return out
