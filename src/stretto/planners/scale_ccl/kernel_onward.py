"""Which way a chunk goes on, and when it could be there: what :mod:`.forwarding` weighs."""

from heapq import heappop, heappush

import numpy as np

from ...kernels.pipes import free_from

ROUTER = 1
SLACK = 1 + 1e-12
# in ``came``: a transfer's number, or
LACKS_WANTED, LACKS, QUEUED_WANTED, QUEUED, HELD = -1, -2, -3, -4, -9


def ready_at(key, u, d, begun, came, kind, out_pipe, out_start, out_seconds, latency):
    """When u can send what ``came[key]`` brought: a router as bytes come, an accelerator afterwards."""
    p = came[key]
    if p == HELD:
        return begun
    first = out_start[p] + latency[out_pipe[p]]
    if kind[u] == ROUTER:
        return max(first, first + out_seconds[p] - d)
    return first + out_seconds[p]


def expect(b, v, at, size, nodes, pipe_dst, per_byte, latency, slow, out_offsets, out_pipes, region, hoped, front):
    """A chunk will be at v: note when the rest of the region could have it from there, by fast pipes."""
    hoped[b * nodes + v] = at
    front.clear()
    front.append(v)
    while len(front) > 0:
        u = front.pop()
        for e in range(out_offsets[u], out_offsets[u + 1]):
            pipe = out_pipes[e]
            w = pipe_dst[pipe]
            if slow[pipe] or region[w] != region[v]:
                continue
            then = hoped[b * nodes + u] + size * per_byte[pipe] + latency[pipe]
            if then < hoped[b * nodes + w]:
                hoped[b * nodes + w] = then
                front.append(w)


def otherwise_at(
    pipe, b, size, t, begun, nodes, pipe_src, pipe_dst, per_byte, latency, in_offsets, in_pipes,
    hop_offsets, hop_links, hop_late, free_at, came, kind, out_pipe, out_start, out_seconds, hoped,
):  # fmt: skip
    """When another neighbour that has the chunk, is getting it or may hope to, could have brought it here."""
    v = pipe_dst[pipe]
    best = np.inf
    for e in range(in_offsets[v], in_offsets[v + 1]):
        other = in_pipes[e]
        s = pipe_src[other]
        key = b * nodes + s
        if other == pipe:
            continue
        d = size * per_byte[other]
        if came[key] >= 0 or came[key] == HELD:
            at = ready_at(key, s, d, begun, came, kind, out_pipe, out_start, out_seconds, latency)
        elif len(hoped) > 0 and hoped[key] < np.inf:
            at = hoped[key]
        else:
            continue
        at = max(max(t, at), free_from(other, hop_offsets, hop_links, hop_late, free_at))
        best = min(best, at + d + latency[other])
    return best


def find_way(
    u, b, goal, size, t, weigh_queue, nodes, pipe_src, pipe_dst, per_byte, latency, out_offsets, out_pipes,
    hop_offsets, hop_links, hop_late, free_at, backlog, distance, came, kind, region,
    aside, planned, mark, label, via, touched, front, way,
):  # fmt: skip
    """f(link, buffer, progress): fill ``way`` with the pipes by which a chunk is soonest at its goal.

    Only the first is taken; what follows is expected, and weighed again at the next node. Every step
    leads nearer to the goal; with ``aside``, those inside u's region only not farther than u is: so
    accelerators with routers of their own share what is to leave. A pipe takes the chunk
    once it is free and has sent what is queued for it; a neighbour that has the chunk, gets it or
    (where ``planned`` has ``mark``) will get it for another goal costs nothing.
    """
    for v in touched:
        label[v] = np.inf
    touched.clear()
    front.clear()
    way.clear()
    label[u] = t
    touched.append(u)
    heappush(front, (t + distance[goal, u], u))
    while len(front) > 0:
        key, v = heappop(front)
        if key > label[v] + distance[goal, v]:
            continue
        if distance[goal, v] == 0.0:
            while v != u:
                way.append(via[v])
                v = pipe_src[via[v]]
            way.reverse()
            return
        for e in range(out_offsets[v], out_offsets[v + 1]):
            pipe = out_pipes[e]
            w = pipe_dst[pipe]
            state = came[b * nodes + w]
            lacks = state == LACKS or state == LACKS_WANTED
            if not distance[goal, w] < distance[goal, v] and not (
                aside and w != u and region[v] == region[u] and region[w] == region[u]
                and distance[goal, w] <= distance[goal, u] * SLACK
            ):  # fmt: skip
                continue
            then = label[v]
            if lacks and planned[pipe] != mark:
                free = free_from(pipe, hop_offsets, hop_links, hop_late, free_at)
                d = size * per_byte[pipe]
                # what is queued begins now at the earliest
                then = max(then, max(t, free) + weigh_queue * backlog[pipe]) + latency[pipe]
                # a router sends on as bytes come
                then += 0.0 if kind[w] == ROUTER else d
            if then < label[w]:
                label[w], via[w] = then, pipe
                touched.append(w)
                heappush(front, (then + distance[goal, w], w))
