"""SCALE-CCL as published: Load-Aware Neighbour Forwarding and Subchunk Scheduling (sections 4.2, 4.3).

What the paper leaves open is marked *open* where it is decided. Pipes are those of
:mod:`stretto.planners.scale_ccl.kernel_forwarding`, and so is what ``came`` holds.
"""

from heapq import heappop, heappush

import numpy as np

from ...kernels.pipes import free_from
from .kernel_onward import ready_at

ROUTER = 1
SLACK = 1 + 1e-12
LACKS_WANTED, LACKS, HELD = -1, -2, -9
ARRIVED, SENT, BEGUN, AGAIN = 0, 1, 2, 3


def _resolve_duplicates(offsets, chunks, useful, wait, cost):
    """Lines 7 to 21 of algorithm 1: each chunk stays in one of the queues that hold it.

    Args:
        offsets, chunks: CSR, the queue of each pair (s, d') of P x D.
        useful: bool[entries], whether d' still lacks the chunk.
        wait: float64[pairs], seconds until the link of the pair is free, T in the paper.
        cost: float64[pairs], seconds of a transmission, Delta in the paper.
    Returns:
        kept: bool[entries].
        turn: int64[entries], its place in J: what only one queue holds comes first, then
            duplicates in the order in which they were assigned.
    """
    pairs = len(wait)
    time = wait.copy()
    kept = np.zeros(len(chunks), dtype=np.bool_)
    turn = np.arange(len(chunks))
    order = np.argsort(chunks, kind="mergesort")
    alone = np.zeros(len(chunks), dtype=np.bool_)
    pair_of = np.empty(len(chunks), dtype=np.int64)
    for p in range(pairs):
        pair_of[offsets[p] : offsets[p + 1]] = p
    # lines 8 to 13: what is in one queue stays there and takes its time
    i = 0
    while i < len(order):
        j = i
        times_seen, last = 0, -1
        while j < len(order) and chunks[order[j]] == chunks[order[i]]:
            if useful[order[j]]:
                times_seen += 1
                last = order[j]
            j += 1
        if times_seen == 1:
            alone[last] = kept[last] = True
            time[pair_of[last]] += cost[pair_of[last]]
        i = j
    # lines 14 to 21: a duplicate goes where it would be through first
    done = np.zeros(len(chunks), dtype=np.bool_)
    place = np.empty(len(chunks), dtype=np.int64)
    place[order] = np.arange(len(chunks))
    assigned = len(chunks)
    for e in range(len(chunks)):
        if done[e] or alone[e] or not useful[e]:
            continue
        i = place[e]
        best, chosen = np.inf, -1
        while i < len(order) and chunks[order[i]] == chunks[e]:
            other = order[i]
            i += 1
            if not useful[other]:
                continue
            done[other] = True
            p = pair_of[other]
            if time[p] + cost[p] < best:
                best, chosen = time[p] + cost[p], other
        kept[chosen] = True
        turn[chosen] = assigned
        assigned += 1
        time[pair_of[chosen]] += cost[pair_of[chosen]]
    return kept, turn


def _subchunk(
    pipe, t, nodes, pipe_of, pipe_src, pipe_dst, per_byte, in_offsets, in_pipes, out_offsets, out_pipes,
    hop_offsets, hop_links, hop_late, free_at, kind, region, chunk_bytes, came,
    queue_head, queue_next, queue_chunk, backlog, forced,
):  # fmt: skip
    """Algorithm 1: the entry of the queue of ``pipe`` to send next, -1 for none."""
    u, d = pipe_src[pipe], pipe_dst[pipe]
    # line 3; open: "concurrent receivers" of a router are those that u sends to
    among = [d]
    if kind[d] == ROUTER:
        for e in range(out_offsets[u], out_offsets[u + 1]):
            w = pipe_dst[out_pipes[e]]
            if kind[w] == ROUTER and w != d:
                among.append(w)
    elif kind[u] == ROUTER:
        for w in range(nodes):
            if region[w] == region[d] and w != d:
                among.append(w)
    # lines 2 and 4 to 7: P are the neighbours that lead to d
    pair_pipe, offsets, entries = [pipe], [0], [0]
    pair_pipe.clear()
    entries.clear()
    for e in range(in_offsets[d], in_offsets[d + 1]):
        s = pipe_src[in_pipes[e]]
        if pipe_of[s, d] != in_pipes[e]:
            continue
        for w in among:
            other = pipe_of[s, w]
            if other < 0 or queue_head[other] < 0:
                continue
            pair_pipe.append(other)
            entry = queue_head[other]
            while entry >= 0:
                if queue_chunk[entry] >= 0:
                    entries.append(entry)
                entry = queue_next[entry]
            offsets.append(len(entries))
    pairs = len(pair_pipe)
    wait, cost = np.empty(pairs), np.empty(pairs)
    chunks = np.empty(len(entries), dtype=np.int64)
    useful = np.empty(len(entries), dtype=np.bool_)
    own = -1
    for p in range(pairs):
        other = pair_pipe[p]
        if other == pipe:
            own = p
        wait[p] = max(0.0, free_from(other, hop_offsets, hop_links, hop_late, free_at) - t)
        cost[p] = chunk_bytes[0] * per_byte[other]
        for i in range(offsets[p], offsets[p + 1]):
            chunks[i] = queue_chunk[entries[i]]
            state = came[chunks[i] * nodes + pipe_dst[other]]
            useful[i] = state == LACKS or state == LACKS_WANTED
    if own < 0:
        return -1
    kept, turn = _resolve_duplicates(np.array(offsets), chunks, useful, wait, cost)
    if forced:
        kept = useful
    # lines 22 to 25
    chosen = -1
    for i in range(offsets[own], offsets[own + 1]):
        if kept[i] and (chosen < 0 or turn[i] < turn[chosen]):
            chosen = i
    # lines 11, 21, 26 and 27: out of the other queues for good
    for p in range(pairs):
        for i in range(offsets[p], offsets[p + 1]):
            sent_elsewhere = chosen >= 0 and chunks[i] == chunks[chosen] and pipe_src[pair_pipe[p]] != u
            if not kept[i] or sent_elsewhere:
                queue_chunk[entries[i]] = -1
                backlog[pair_pipe[p]] -= chunk_bytes[chunks[i]] * per_byte[pair_pipe[p]]
    return entries[chosen] if chosen >= 0 else -1


def synthesize(
    pipe_src, pipe_dst, hop_offsets, hop_links, hop_late, latency, per_byte,
    out_offsets, out_pipes, in_offsets, in_pipes, user_offsets, user_pipes,
    kind, region, chunk_bytes, chunk_start, chunk_piece, hold_offsets, hold_nodes, came,
    weigh_queue, weigh_occupied, weigh_progress,
):  # fmt: skip
    """Send every chunk to every accelerator, as the paper has it.

    Args:
        chunk_piece: int64[chunks], the paper's chunk of which each is a subchunk.
        weigh_queue, weigh_occupied, weigh_progress: what f counts of seconds queued for the link, of those
            queued at the neighbour, and of its progress.
        The others are those of :func:`stretto.planners.scale_ccl.kernel_forwarding.forward`.
    Returns:
        As it does.
    """
    nodes, chunks, pipes = len(kind), len(chunk_bytes), len(pipe_src)
    # of several pipes between two nodes only the first is used
    pipe_of = np.full((nodes, nodes), -1, dtype=np.int64)
    for pipe in range(pipes - 1, -1, -1):
        pipe_of[pipe_src[pipe], pipe_dst[pipe]] = pipe
    # a router belongs to the site of its accelerators, a router between sites to none
    site = region.copy()
    for pipe in range(pipes):
        if kind[pipe_src[pipe]] == ROUTER and region[pipe_dst[pipe]] >= 0:
            site[pipe_src[pipe]] = region[pipe_dst[pipe]]
    at_routers = np.zeros((chunks, max(1, region.max() + 1)), dtype=np.bool_)
    got = np.zeros((chunk_piece.max() + 1, nodes), dtype=np.int64)
    whole = np.bincount(chunk_piece)

    room = int((came != HELD).sum()) + 1
    out_pipe, out_chunk = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    out_parent = np.empty(room, dtype=np.int64)
    out_start, out_seconds = np.empty(room), np.empty(room)
    count = 0
    missing = int((came == LACKS_WANTED).sum())
    finish = 0.0
    free_at = np.zeros(len(user_offsets) - 1)
    backlog = np.zeros(pipes)
    queue_head = np.full(pipes, -1, dtype=np.int64)
    queue_chunk, queue_next = [0], [0]
    queue_chunk.clear()
    queue_next.clear()
    queued = np.zeros((chunks, pipes), dtype=np.bool_)
    holder_chunk = np.repeat(np.arange(chunks), np.diff(hold_offsets))
    heap = [(0.0, 0, 0)]
    heap.clear()
    for i in range(len(hold_nodes)):
        heappush(heap, (chunk_start[holder_chunk[i]], BEGUN, i))
        got[chunk_piece[holder_chunk[i]], hold_nodes[i]] += 1
    forced = False
    here_node, here_chunk, here_new, targets = [0], [0], [True], [0]

    while missing > 0:
        if len(heap) == 0:
            if forced:
                break
            forced = True
            heappush(heap, (finish, AGAIN, -1))
        t = heap[0][0]
        here_node.clear()
        here_chunk.clear()
        here_new.clear()
        while len(heap) > 0 and heap[0][0] <= t * SLACK:
            at, what, which = heappop(heap)
            t = max(t, at)
            if what == ARRIVED or what == SENT:
                here_chunk.append(out_chunk[which])
                here_node.append((pipe_dst if what == ARRIVED else pipe_src)[out_pipe[which]])
                here_new.append(what == ARRIVED)
            elif what == BEGUN:
                here_chunk.append(holder_chunk[which])
                here_node.append(hold_nodes[which])
                here_new.append(True)
        if forced:
            for b in range(chunks):
                for v in range(nodes):
                    if came[b * nodes + v] >= 0 or came[b * nodes + v] == HELD:
                        here_chunk.append(b)
                        here_node.append(v)
                        here_new.append(True)

        # Load-Aware Neighbour Forwarding
        for i in range(len(here_node)):
            u, b = here_node[i], here_chunk[i]
            size = chunk_bytes[b]
            best, nearest = np.inf, -1
            targets.clear()
            for e in range(out_offsets[u], out_offsets[u + 1]):
                pipe = out_pipes[e]
                v = pipe_dst[pipe]
                state = came[b * nodes + v]
                if pipe_of[u, v] != pipe or (state != LACKS and state != LACKS_WANTED):
                    continue
                if kind[v] != ROUTER:
                    if here_new[i]:
                        targets.append(pipe)
                elif forced:
                    targets.append(pipe)
                elif site[v] < 0 or not at_routers[b, site[v]]:
                    # open: f(link, buffer, progress) in seconds
                    wait = max(0.0, free_from(pipe, hop_offsets, hop_links, hop_late, free_at) - t)
                    occupied = 0.0
                    for g in range(out_offsets[v], out_offsets[v + 1]):
                        if kind[pipe_dst[out_pipes[g]]] == ROUTER:
                            occupied += backlog[out_pipes[g]]
                    step = size * per_byte[pipe]
                    p = chunk_piece[b]
                    cost = wait + weigh_queue * backlog[pipe] + step + latency[pipe]
                    cost += weigh_occupied * occupied + weigh_progress * step * got[p, v] / whole[p]
                    if cost < best:
                        best, nearest = cost, pipe
            if nearest >= 0:
                targets.append(nearest)
                if site[pipe_dst[nearest]] >= 0:
                    at_routers[b, site[pipe_dst[nearest]]] = True
            for pipe in targets:
                if queued[b, pipe] and not forced:
                    continue
                queued[b, pipe] = True
                backlog[pipe] += size * per_byte[pipe]
                queue_chunk.append(b)
                queue_next.append(-1)
                if queue_head[pipe] < 0:
                    queue_head[pipe] = len(queue_chunk) - 1
                else:
                    entry = queue_head[pipe]
                    while queue_next[entry] >= 0:
                        entry = queue_next[entry]
                    queue_next[entry] = len(queue_chunk) - 1

        # Subchunk Scheduling on every idle link
        for pipe in range(pipes):
            while queue_head[pipe] >= 0:
                b = queue_chunk[queue_head[pipe]]
                if b >= 0 and came[b * nodes + pipe_dst[pipe]] in (LACKS, LACKS_WANTED):
                    break
                if b >= 0:
                    backlog[pipe] -= chunk_bytes[b] * per_byte[pipe]
                queue_head[pipe] = queue_next[queue_head[pipe]]
            if queue_head[pipe] < 0:
                continue
            until = free_from(pipe, hop_offsets, hop_links, hop_late, free_at)
            if until > t * SLACK:
                if hop_offsets[pipe + 1] - hop_offsets[pipe] > 1:
                    heappush(heap, (until, AGAIN, -1))
                continue
            entry = _subchunk(
                pipe, t, nodes, pipe_of, pipe_src, pipe_dst, per_byte, in_offsets, in_pipes, out_offsets, out_pipes,
                hop_offsets, hop_links, hop_late, free_at, kind, region, chunk_bytes, came,
                queue_head, queue_next, queue_chunk, backlog, forced,
            )  # fmt: skip
            if entry < 0:
                continue
            b, u, v = queue_chunk[entry], pipe_src[pipe], pipe_dst[pipe]
            d = chunk_bytes[b] * per_byte[pipe]
            ready = ready_at(b * nodes + u, u, d, chunk_start[b], came, kind, out_pipe, out_start, out_seconds, latency)
            start = max(t, until, ready)
            queue_chunk[entry] = -1
            backlog[pipe] -= d
            out_pipe[count], out_chunk[count], out_parent[count] = pipe, b, max(came[b * nodes + u], -1)
            out_start[count], out_seconds[count] = start, d
            first, last = start + latency[pipe], start + latency[pipe] + d
            if came[b * nodes + v] == LACKS_WANTED:
                missing -= 1
                finish = max(finish, last)
            came[b * nodes + v] = count
            got[chunk_piece[b], v] += 1
            for i in range(hop_offsets[pipe], hop_offsets[pipe + 1]):
                free_at[hop_links[i]] = start + hop_late[i] + d
            heappush(heap, (start + d, SENT, count))
            heappush(heap, (first if kind[v] == ROUTER else last, ARRIVED, count))
            count += 1
            forced = False

    return (
        (out_pipe[:count], out_chunk[:count], out_parent[:count], out_start[:count], out_seconds[:count]),
        missing,
        finish,
    )
