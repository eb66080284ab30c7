"""A network that looks the same from every node: what one node gets, and when, is what all get.

Nodes are written with digits of mixed radix. Where adding to any digit, modulo its side, maps links to links alike,
these sums are a commutative group of automorphisms, of which just one takes a node to another (the network is a Cayley
graph of it): rings, tori, hypercubes, full meshes. A schedule for the chunks that one node gets, each by its
*displacement* from its source, is then one for all: a link carries at each moment what its like elsewhere carries,
displaced. So matching costs one n-th for n nodes, and many more orders can be tried.
"""

import numpy as np

from ...kernels.draws import noise

SLACK = 1 + 1e-12
LACKS, HELD = -1, -9


def _moved(v, stride, side):
    """A node after one is added to a digit."""
    return v + stride if v // stride % side < side - 1 else v - stride * (side - 1)


def _plus(v, x, strides, sides, sign):
    """The sum (or difference) of two nodes, digit by digit."""
    found = 0
    for k in range(len(sides)):
        digit = v // strides[k] % sides[k] + sign * (x // strides[k] % sides[k])
        found += strides[k] * (digit % sides[k])
    return found


def _maps_links(stride, side, offsets, links, dst, bandwidth, latency, at):
    """Whether adding one to a digit maps all links to links alike; ``at`` is int64[nodes], all -1 before and after."""
    same = True
    for u in range(len(at)):
        w = _moved(u, stride, side)
        first, end = offsets[w], offsets[w + 1]
        if end - first != offsets[u + 1] - offsets[u]:
            return False
        for i in range(first, end):
            at[dst[links[i]]] = links[i]
        for i in range(offsets[u], offsets[u + 1]):
            e = links[i]
            f = at[_moved(dst[e], stride, side)]
            if f < 0 or bandwidth[f] != bandwidth[e] or latency[f] != latency[e]:
                same = False
                break
        for i in range(first, end):
            at[dst[links[i]]] = -1
        if not same:
            return False
    return True


def find_sides(offsets, links, dst, bandwidth, latency):
    """int64[digits], the sides of the digits, the lowest first, of which the network does not depend; none if none are.

    Args:
        offsets, links: CSR, the links that leave each node.
        dst, bandwidth, latency: of each link.
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
            if _maps_links(stride, side, offsets, links, dst, bandwidth, latency, at):
                side_from[stride] = side
                break
    found = np.zeros(nodes, dtype=np.int64)
    count, stride = 0, 1
    while stride < nodes and side_from[stride] > 0:
        found[count] = side_from[stride]
        stride *= found[count]
        count += 1
    return found[:count]


def own_chunks(nodes, hold_offsets, hold_nodes, want_offsets, want_nodes, chunk_bytes, chunk_start):
    """int64[nodes * parts], which chunks each node has, where all have alike and want what others have; else none."""
    chunks = len(chunk_bytes)
    none = np.zeros(0, dtype=np.int64)
    if chunks == 0 or chunks % nodes != 0 or hold_offsets[chunks] != chunks:
        return none
    parts = chunks // nodes
    own, count = np.zeros(chunks, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    for c in range(chunks):
        if hold_offsets[c + 1] - hold_offsets[c] != 1:
            return none
        v = hold_nodes[hold_offsets[c]]
        if count[v] == parts:
            return none
        own[v * parts + count[v]] = c
        count[v] += 1
        others = 0
        for i in range(want_offsets[c], want_offsets[c + 1]):
            others += want_nodes[i] != v
        if others != nodes - 1:
            return none
    for i in range(chunks):
        c, first = own[i], own[i % parts]
        if chunk_bytes[c] != chunk_bytes[first] or chunk_start[c] != chunk_start[0]:
            return none
    return own


def match(
    sides, ways, latency, per_byte, part_bytes, begun, seed, tries, scarce, enough, looked, tick,
):  # fmt: skip
    """Bring a node every part of what all others have, each over one of the links that enter it.

    Args:
        sides: int64[digits], see :func:`find_sides`.
        ways: int64[ways], the displacement over each link that leaves a node.
        latency, per_byte: float64[ways].
        part_bytes: float64[parts], what each node has.
        begun: when all may start, seconds.
        seed, tries: orders of what ties are drawn from it, so many at most.
        scarce: for how many copies a way counts that could bring the same.
        enough: seconds; what ends by then is not searched further.
        looked: among how many a way chooses.
        tick: moments less than this apart, seconds, are the same.
    Returns:
        int64[4, deliveries]: way, displacement, part and parent of each, in the order of arrival; the parent brought
            the part to the node before, -1 if that held it. None if not all can be brought.
        float64[2, deliveries]: when the first byte leaves and the last one arrives.
    """
    count, parts, nodes = len(ways), len(part_bytes), 1
    strides = np.empty(len(sides), dtype=np.int64)
    for k in range(len(sides)):
        strides[k] = nodes
        nodes *= sides[k]
    onward = np.empty((count, nodes), dtype=np.int64)
    for p in range(count):
        for x in range(nodes):
            onward[p, x] = _plus(x, ways[p], strides, sides, 1)
    total = (nodes - 1) * parts
    came = np.empty(nodes * parts, dtype=np.int64)  # by displacement and part, the delivery that brought it
    near = np.empty(nodes * parts, dtype=np.int64)  # over how many ways it could come
    copies = np.empty(parts, dtype=np.int64)
    held = np.empty(nodes * parts, dtype=np.int64)  # in the order in which it came
    window = np.empty((count, looked), dtype=np.int64)
    filled, cursor = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    due, free, turn = np.empty(count), np.empty(count), np.empty(count)
    rows, times = np.empty((4, total), dtype=np.int64), np.empty((2, total))
    best_rows, best_times = np.empty((4, 0), dtype=np.int64), np.empty((2, 0))
    best_end = np.inf
    least = part_bytes.min()
    for k in range(tries):
        came[:], near[:], copies[:] = LACKS, 0, 0
        for j in range(parts):
            came[j] = HELD
            held[j] = j
            for p in range(count):
                near[ways[p] * parts + j] += 1
        filled[:], cursor[:], due[:], free[:] = 0, 0, 0.0, begun
        for p in range(count):
            turn[p] = noise(seed + k, p + 1)
        # in some tries not what arrives first goes first, and what may come other ways, too, is no less rare
        ahead = 1.0 if k % 4 < 2 else noise(seed + k, 0) * 2.0 - 0.5
        counts = scarce if k % 2 == 0 else 0.0
        done, size, end = 0, parts, 0.0
        while done < total:
            p = 0
            for q in range(1, count):
                if due[q] < due[p] or (due[q] == due[p] and turn[q] < turn[p]):
                    p = q
            if due[p] == np.inf:
                return rows[:, :0], times[:, :0]
            kept = 0
            for i in range(filled[p]):
                if came[onward[p, window[p, i] // parts] * parts + window[p, i] % parts] == LACKS:
                    window[p, kept] = window[p, i]
                    kept += 1
            while kept < looked and cursor[p] < size:
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
            start = max(free[p], begun if first < 0 else times[1, first])
            now = np.floor((start + ahead * (latency[p] + part_bytes[window[p, 0] % parts] * per_byte[p])) / tick + 0.5)
            if now > due[p]:
                due[p] = now
                continue
            value, chosen = np.inf, window[p, 0]
            for i in range(kept):
                h = window[p, i]
                if came[h] >= 0 and times[1, came[h]] > start * SLACK:
                    break
                x = onward[p, h // parts] * parts + h % parts
                rare = copies[h % parts] + counts * near[x] + noise(seed + k, x)
                if rare < value:
                    value, chosen = rare, h
            j = chosen % parts
            x = onward[p, chosen // parts]
            free[p] = start + part_bytes[j] * per_byte[p]
            last = free[p] + latency[p]
            rows[0, done], rows[1, done], rows[2, done] = p, x, j
            rows[3, done] = max(came[chosen], -1)
            times[0, done], times[1, done] = start, last
            came[x * parts + j] = done
            copies[j] += 1
            held[size] = x * parts + j
            size += 1
            done += 1
            end = max(end, last)
            due[p] = max(now, np.floor((free[p] + ahead * (latency[p] + least * per_byte[p])) / tick + 0.5))
            for q in range(count):
                y = onward[q, x] * parts + j
                near[y] += 1
                if due[q] == np.inf and came[y] == LACKS:
                    then = last + ahead * (latency[q] + part_bytes[j] * per_byte[q])
                    due[q] = max(now, np.floor(then / tick + 0.5))
        if end < best_end:
            best_end, best_rows, best_times = end, rows.copy(), times.copy()
        if best_end <= enough:
            break
    return best_rows, best_times


def expand(sides, rows, offsets, links, dst, ways, own):
    """The same for every node.

    Args:
        rows: int64[4, deliveries], way, displacement, part and parent, as :func:`match` gives them.
        offsets, links, dst: CSR, the links that leave each node, and where they lead.
        own: int64[nodes * parts], see :func:`own_chunks`.
    Returns:
        link, chunk, src, dst, parent: int32[deliveries * nodes], delivery by delivery.
    """
    nodes, deliveries = len(offsets) - 1, rows.shape[1]
    parts = len(own) // nodes
    strides = np.empty(len(sides), dtype=np.int64)
    stride = 1
    for k in range(len(sides)):
        strides[k] = stride
        stride *= sides[k]
    over = np.empty((len(ways), nodes), dtype=np.int64)  # the link of each way that enters each node
    way_to = np.full(nodes, -1, dtype=np.int64)
    for p in range(len(ways)):
        way_to[ways[p]] = p
    for u in range(nodes):
        for i in range(offsets[u], offsets[u + 1]):
            v = dst[links[i]]
            over[way_to[_plus(v, u, strides, sides, -1)], v] = links[i]
    plus = np.empty(nodes, dtype=np.int64)
    before = np.empty((len(ways), nodes), dtype=np.int64)
    for p in range(len(ways)):
        for v in range(nodes):
            before[p, v] = _plus(v, ways[p], strides, sides, -1)
    out = np.empty((5, deliveries * nodes), dtype=np.int32)
    for i in range(deliveries):
        p, x, j, parent = rows[0, i], rows[1, i], rows[2, i], rows[3, i]
        for v in range(nodes):
            plus[v] = _plus(v, x, strides, sides, 1)
        for v in range(nodes):
            w, r = plus[v], i * nodes + v
            out[0, r] = over[p, w]
            out[1, r] = own[v * parts + j]
            out[2, r] = before[p, w]
            out[3, r] = w
            out[4, r] = parent * nodes + v if parent >= 0 else -1
    return out
