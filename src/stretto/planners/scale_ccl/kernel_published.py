"""SCALE-CCL as published: the synthesizer (section 4.1), Load-Aware Neighbour Forwarding (4.2), Algorithm 1 (4.3).

The functions, in the paper's order: :func:`synthesize` is the loop over events, :func:`forward_to_neighbours` is
Load-Aware Neighbour Forwarding, :func:`schedule_subchunk` is Algorithm 1 (Subchunk Scheduling), and
:func:`resolve_duplicates` its lines 8 to 21. What the paper leaves open is marked *open* where it is decided.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from ...kernels.chunks import Chunks
from ...kernels.pipes import Bool, Float64, Int32, Int64, Lists, Pipes, free_from
from .kernel_states import AGAIN, ARRIVED, BEGUN, HELD, LACKS, LACKS_WANTED, ROUTER, SENT, Places
from .kernel_transmission import SLACK, Event, Sent, enqueue, room_for, send


class Weights(NamedTuple):
    """What f(link, buffer, progress) counts."""

    queue: float  # of a second that is queued for the link
    occupancy: float  # of a second that is queued at the neighbour
    delivered: float  # of the share of the chunk that the neighbour has, in transmission times of a subchunk


def synthesize(
    pipes: Pipes, into: Lists, link_count: int, places: Places, chunks: Chunks, chunk_piece: Int64, came: Int32,
    weights: Weights,
) -> tuple[Sent, int, int, float]:  # fmt: skip
    """Send every chunk to every accelerator, as the paper has it.

    Args:
        into: for each node the pipes that enter it.
        chunks: the paper's subchunks. chunk_piece: int64[chunks], the paper's chunk of which each is a part.
        came: what each node knows of each chunk at first; filled.
    Returns:
        The transfers; how many there are; how many wanted deliveries are missing; and when the last other one is made.
    """
    src, dst, hop_offsets, hop_links, hop_late_s, _, per_byte_s, _, _, _ = pipes
    size_bytes, begun_s, hold_offsets, hold_nodes = chunks
    kind, region = places
    nodes, chunk_count, pipe_count = len(kind), len(size_bytes), len(src)
    # of several pipes between two nodes only the first is used
    pipe_of = np.full((nodes, nodes), -1, dtype=np.int64)
    for pipe in range(pipe_count - 1, -1, -1):
        pipe_of[src[pipe], dst[pipe]] = pipe
    # a router belongs to the site of its accelerators, a router between sites to none
    site = region.copy()
    for pipe in range(pipe_count):
        if kind[src[pipe]] == ROUTER and region[dst[pipe]] >= 0:
            site[src[pipe]] = region[dst[pipe]]
    at_routers = np.zeros((chunk_count, max(1, region.max() + 1)), dtype=np.bool_)
    # how many subchunks of each chunk are at each node, and how many there are
    delivered = np.zeros((chunk_piece.max() + 1, nodes), dtype=np.int64)
    parts = np.bincount(chunk_piece)

    sent = room_for(int((came != HELD).sum()) + 1)
    count = 0
    missing = int((came == LACKS_WANTED).sum())
    finish = 0.0
    free_at = np.zeros(link_count)
    backlog_s = np.zeros(pipe_count)
    queue_head = np.full(pipe_count, -1, dtype=np.int64)
    queue_tail = np.full(pipe_count, -1, dtype=np.int64)
    queued_chunk, following = [0], [0]
    queued_chunk.clear()
    following.clear()
    was_queued = np.zeros((chunk_count, pipe_count), dtype=np.bool_)
    holder_chunk = np.repeat(np.arange(chunk_count), np.diff(hold_offsets))
    events: list[Event] = [(0.0, 0, 0)]
    events.clear()
    for i in range(len(hold_nodes)):
        heappush(events, (begun_s[holder_chunk[i]], BEGUN, i))
        delivered[chunk_piece[holder_chunk[i]], hold_nodes[i]] += 1
    forced = False
    here_node, here_chunk, here_new, targets = [0], [0], [True], [0]

    while missing > 0:
        if len(events) == 0:
            # open: where nothing moves and something is missing, what was excluded may be sent after all, once
            if forced:
                break
            forced = True
            heappush(events, (finish, AGAIN, -1))
        t = events[0][0]
        here_node.clear()
        here_chunk.clear()
        here_new.clear()
        while len(events) > 0 and events[0][0] <= t * SLACK:
            at, what, which = heappop(events)
            t = max(t, at)
            if what == ARRIVED or what == SENT:
                here_chunk.append(sent.chunk[which])
                here_node.append((dst if what == ARRIVED else src)[sent.pipe[which]])
                here_new.append(what == ARRIVED)
            elif what == BEGUN:
                here_chunk.append(holder_chunk[which])
                here_node.append(hold_nodes[which])
                here_new.append(True)
        if forced:
            for b in range(chunk_count):
                for v in range(nodes):
                    if came[b * nodes + v] >= 0 or came[b * nodes + v] == HELD:
                        here_chunk.append(b)
                        here_node.append(v)
                        here_new.append(True)

        for i in range(len(here_node)):
            u, b = here_node[i], here_chunk[i]
            forward_to_neighbours(
                u, b, t, here_new[i], forced, pipes, places, chunks, weights, pipe_of, site,
                delivered[chunk_piece[b]], parts[chunk_piece[b]], at_routers[b], came, free_at, backlog_s, targets,
            )  # fmt: skip
            for pipe in targets:
                if was_queued[b, pipe] and not forced:
                    continue
                was_queued[b, pipe] = True
                backlog_s[pipe] += size_bytes[b] * per_byte_s[pipe]
                enqueue(pipe, b, queue_head, queue_tail, queued_chunk, following)

        for pipe in range(pipe_count):
            while queue_head[pipe] >= 0:
                b = queued_chunk[queue_head[pipe]]
                if b >= 0 and came[b * nodes + dst[pipe]] in (LACKS, LACKS_WANTED):
                    break
                if b >= 0:
                    backlog_s[pipe] -= size_bytes[b] * per_byte_s[pipe]
                queue_head[pipe] = following[queue_head[pipe]]
            if queue_head[pipe] < 0:
                continue
            until = free_from(pipe, hop_offsets, hop_links, hop_late_s, free_at)
            if until > t * SLACK:
                if hop_offsets[pipe + 1] - hop_offsets[pipe] > 1:
                    heappush(events, (until, AGAIN, -1))
                continue
            entry = schedule_subchunk(
                pipe, t, forced, pipes, into, places, chunks, pipe_of, came, free_at, backlog_s, queue_head,
                queued_chunk, following,
            )  # fmt: skip
            if entry < 0:
                continue
            b, v = queued_chunk[entry], dst[pipe]
            queued_chunk[entry] = -1
            backlog_s[pipe] -= size_bytes[b] * per_byte_s[pipe]
            wanted = came[b * nodes + v] == LACKS_WANTED
            last = send(
                count, pipe, b, max(t, until), count, pipes, places, chunks, came, free_at, sent, events
            )  # fmt: skip
            if wanted:
                missing -= 1
                finish = max(finish, last)
            delivered[chunk_piece[b], v] += 1
            count += 1
            forced = False

    return sent, count, missing, finish


def forward_to_neighbours(
    u: int, b: int, t: float, arrived: bool, forced: bool, pipes: Pipes, places: Places, chunks: Chunks,
    weights: Weights, pipe_of: Int64, site: Int64, delivered: Int64, parts: int, at_routers: Bool, came: Int32,
    free_at: Float64, backlog_s: Float64, targets: list[int],
) -> None:  # fmt: skip
    """Load-Aware Neighbour Forwarding (section 4.2): fill ``targets`` with the pipes that are to carry chunk ``b`` on.

    Accelerators that lack the chunk get it from everyone, when it arrives here. Of the routers that lack it one gets
    it, the one that f(link, buffer, progress) puts first.

    Args:
        arrived: whether the chunk is new at ``u``; else a transmission of it from there is complete.
        forced: whether all routers get it.
        delivered: int64[nodes], how many of the ``parts`` of the paper's chunk are at each node.
        at_routers: bool[sites], where a router has the chunk or is to get it; changed. Open: one router of a site does.
    """
    _, dst, hop_offsets, hop_links, hop_late_s, latency_s, per_byte_s, out_offsets, out_pipes, _ = pipes
    kind = places.kind
    size_bytes, nodes = chunks.size_bytes[b], len(kind)
    best, chosen = np.inf, -1
    targets.clear()
    for e in range(out_offsets[u], out_offsets[u + 1]):
        pipe = out_pipes[e]
        v = dst[pipe]
        state = came[b * nodes + v]
        if pipe_of[u, v] != pipe or (state != LACKS and state != LACKS_WANTED):
            continue
        if kind[v] != ROUTER:
            if arrived:
                targets.append(pipe)
        elif forced:
            targets.append(pipe)
        elif site[v] < 0 or not at_routers[site[v]]:
            # open: f(link, buffer, progress) in seconds
            wait = max(0.0, free_from(pipe, hop_offsets, hop_links, hop_late_s, free_at) - t)
            occupied = 0.0
            for g in range(out_offsets[v], out_offsets[v + 1]):
                if kind[dst[out_pipes[g]]] == ROUTER:
                    occupied += backlog_s[out_pipes[g]]
            seconds = size_bytes * per_byte_s[pipe]
            cost = wait + weights.queue * backlog_s[pipe] + seconds + latency_s[pipe]
            cost += weights.occupancy * occupied + weights.delivered * seconds * delivered[v] / parts
            if cost < best:
                best, chosen = cost, pipe
    if chosen >= 0:
        targets.append(chosen)
        if site[dst[chosen]] >= 0:
            at_routers[site[dst[chosen]]] = True


def schedule_subchunk(
    pipe: int, t: float, forced: bool, pipes: Pipes, into: Lists, places: Places, chunks: Chunks, pipe_of: Int64,
    came: Int32, free_at: Float64, backlog_s: Float64, queue_head: Int64, queued_chunk: list[int],
    following: list[int],
) -> int:  # fmt: skip
    """Algorithm 1 (Subchunk Scheduling, section 4.3): the entry of the queue of ``pipe`` to send next, -1 for none.

    Other queues lose what Algorithm 1 takes out of them: their entries become -1 in ``queued_chunk``.
    """
    src, dst, hop_offsets, hop_links, hop_late_s, _, per_byte_s, out_offsets, out_pipes, _ = pipes
    in_offsets, in_pipes = into
    kind, region = places
    nodes, size_bytes = len(kind), chunks.size_bytes
    u, d = src[pipe], dst[pipe]
    # line 3, the destinations D; open: "concurrent receivers" of a router are those that u sends to
    among = [d]
    if kind[d] == ROUTER:
        for e in range(out_offsets[u], out_offsets[u + 1]):
            w = dst[out_pipes[e]]
            if kind[w] == ROUTER and w != d:
                among.append(w)
    elif kind[u] == ROUTER:
        for w in range(nodes):
            if region[w] == region[d] and w != d:
                among.append(w)
    # lines 2 and 4 to 7: the sources P are the neighbours that lead to d
    pair_pipe, wait, cost, of_pipe = [pipe], [0.0], [0.0], -1
    offsets, entries, chunk, useful = [0], [0], [0], [True]
    for numbers in (pair_pipe, entries, chunk):
        numbers.clear()
    wait.clear()
    cost.clear()
    useful.clear()
    for e in range(in_offsets[d], in_offsets[d + 1]):
        s = src[in_pipes[e]]
        if pipe_of[s, d] != in_pipes[e]:
            continue
        for w in among:
            other = pipe_of[s, w]
            if other < 0 or queue_head[other] < 0:
                continue
            if other == pipe:
                of_pipe = len(pair_pipe)
            pair_pipe.append(other)
            wait.append(max(0.0, free_from(other, hop_offsets, hop_links, hop_late_s, free_at) - t))
            cost.append(size_bytes[0] * per_byte_s[other])
            entry = queue_head[other]
            while entry >= 0:
                b = queued_chunk[entry]
                if b >= 0:
                    state = came[b * nodes + w]
                    entries.append(entry)
                    chunk.append(b)
                    useful.append(state == LACKS or state == LACKS_WANTED)
                entry = following[entry]
            offsets.append(len(entries))
    if of_pipe < 0:
        return -1
    lacks = np.array(useful)
    kept, turn = resolve_duplicates(np.array(offsets), np.array(chunk), lacks, np.array(wait), np.array(cost))
    if forced:
        kept = lacks
    # lines 22 to 25
    chosen = -1
    for i in range(offsets[of_pipe], offsets[of_pipe + 1]):
        if kept[i] and (chosen < 0 or turn[i] < turn[chosen]):
            chosen = i
    # lines 11, 21, 26 and 27: out of the other queues for good
    for p in range(len(pair_pipe)):
        for i in range(offsets[p], offsets[p + 1]):
            sent_elsewhere = chosen >= 0 and chunk[i] == chunk[chosen] and src[pair_pipe[p]] != u
            if not kept[i] or sent_elsewhere:
                queued_chunk[entries[i]] = -1
                backlog_s[pair_pipe[p]] -= size_bytes[chunk[i]] * per_byte_s[pair_pipe[p]]
    return entries[chosen] if chosen >= 0 else -1


def resolve_duplicates(
    offsets: Int64, chunks: Int64, useful: Bool, wait: Float64, cost: Float64
) -> tuple[Bool, Int64]:  # fmt: skip
    """Lines 8 to 21 of Algorithm 1: each chunk stays in one of the queues that hold it.

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
    count, time = len(chunks), wait.copy()
    pair_of = np.empty(count, dtype=np.int64)
    for p in range(len(wait)):
        pair_of[offsets[p] : offsets[p + 1]] = p
    # the entries of one chunk follow each other in ``order``
    order = np.argsort(chunks, kind="mergesort")
    begin = np.searchsorted(chunks[order], chunks)
    end = np.searchsorted(chunks[order], chunks, side="right")
    kept = np.zeros(count, dtype=np.bool_)
    turn = np.arange(count)
    # lines 8 to 13: what is in one queue stays there and takes its time
    for e in range(count):
        if useful[e] and useful[order[begin[e] : end[e]]].sum() == 1:
            kept[e] = True
            time[pair_of[e]] += cost[pair_of[e]]
    # lines 14 to 21: a duplicate goes where it would be through first
    assigned = count
    for e in range(count):
        if not useful[e] or kept[order[begin[e] : end[e]]].any():
            continue
        best, chosen = np.inf, -1
        for i in range(begin[e], end[e]):
            other = order[i]
            p = pair_of[other]
            if useful[other] and time[p] + cost[p] < best:
                best, chosen = time[p] + cost[p], other
        kept[chosen] = True
        turn[chosen] = assigned
        assigned += 1
        time[pair_of[chosen]] += cost[pair_of[chosen]]
    return kept, turn
