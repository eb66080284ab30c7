"""SCALE-CCL's event loop with rules of our own: links choose when they fall idle.

Reception and transmission events as in section 4.1 of the paper. A chunk goes to a region (a part
of the network whose accelerators reach each other without routers) once: a *token* for each region
that lacks it moves from node to node towards it, and whatever it leads the chunk to is Load-Aware
Neighbour Forwarding (section 4.2). Inside a region, accelerators take what they lack from any
neighbour; a slow link leaves a chunk to a faster neighbour that will have it in time, which is
what Subchunk Scheduling (section 4.3) is for, and else takes the chunk with the fewest copies.

A *pipe* is a link, or several through nodes that only pass bytes on. What a node knows of a chunk
is one number, see the constants of :mod:`.onward`.
"""

from heapq import heappop, heappush

import numpy as np

from ...kernels.pipes import free_from
from .kernel_onward import (
    HELD,
    LACKS,
    LACKS_WANTED,
    QUEUED,
    QUEUED_WANTED,
    ROUTER,
    SLACK,
    expect,
    find_way,
    otherwise_at,
    ready_at,
)

# of how many pipes ahead a token's way counts as load
MOST_EXPECTED = 8
# events: a chunk is at its receiver, a pipe is free, a pipe may try again, a chunk is there at first
ARRIVED, FREE, RETRY, BEGUN = 0, 1, 2, 3


def _wake(pipe, step, stamp, slow, turn_of, woken_fast, woken_slow):
    """The pipe may send something in this step; slow ones choose in their turn, after the others."""
    if stamp[pipe] != step:
        stamp[pipe] = step
        if slow[pipe]:
            heappush(woken_slow, turn_of[pipe])
        else:
            woken_fast.append(pipe)


def _forget(way, kept_at, seconds_per_byte, size, pipe_src, backlog):
    """A token no longer expects its ``way``, but for pipes out of node ``kept_at`` (-1: all)."""
    for h in range(len(way)):
        if way[h] >= 0 and (kept_at < 0 or pipe_src[way[h]] != kept_at):
            backlog[way[h]] -= size * seconds_per_byte[way[h]]
            way[h] = -1


def forward(
    pipe_src, pipe_dst, hop_offsets, hop_links, hop_late, latency, per_byte, slow,
    out_offsets, out_pipes, in_offsets, in_pipes, user_offsets, user_pipes,
    kind, region, unlike, chunk_bytes, chunk_start, whole_region, hold_offsets, hold_nodes, came,
    token_offsets, token_goal, token_node, goal_offset, distance, beside,
    patience, weigh_queue, most_aside, most_looked, turn_of, pipe_at_turn,
):  # fmt: skip
    """Send every chunk to every node that wants it.

    Args:
        pipe_src, pipe_dst: int64[pipes]; hop_*: CSR of the links of each, and how much later than
            its beginning each carries the bytes; latency, per_byte: float64[pipes], seconds.
        slow: bool[pipes], whether a faster pipe leads to the same node.
        user_*: CSR, the pipes that use each link.
        region: int64[nodes], of each accelerator, -1 for routers.
        unlike: bool[nodes], accelerators of a region whose ways out are not the same for all.
        whole_region: bool[chunks], its goals are regions and not single nodes.
        came: int32[chunks * nodes], what each node knows of each chunk at first; filled.
        token_*: CSR, for each chunk the goals to reach and the holder nearest to each.
        goal_offset: the goal of single node v is v + this; of a region the region's number.
        distance: float64[goals, nodes], seconds to each goal.
        beside: bool[goals, nodes], whether a pipe leads into the goal.
        patience: a slow pipe is left idle where others bring the chunk at most this many of its own
            transmission times later.
        weigh_queue: how much queued seconds count in f.
        most_aside: how many steps of a token may lead no nearer to its goal, where accelerators are unlike
            or the goal is a single node.
        most_looked: among how many chunks a slow pipe chooses.
        turn_of, pipe_at_turn: int64[pipes], in which order slow pipes choose, both ways.
    Returns:
        (pipe, chunk, parent, start, seconds): a row a transfer, in the order of their start.
        missing: how many wanted deliveries did not happen.
        finish: when the last wanted one did.
    """
    nodes, chunks, pipes = len(kind), len(chunk_bytes), len(pipe_src)
    regions = max(1, region.max() + 1)
    room = 16
    for key in range(len(came)):
        if came[key] == LACKS_WANTED:
            room += 1
    missing = room - 16
    out_pipe, out_chunk = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    out_parent = np.empty(room, dtype=np.int64)
    out_start, out_seconds = np.empty(room), np.empty(room)
    count = 0
    finish = 0.0

    free_at = np.zeros(len(user_offsets) - 1)
    backlog = np.zeros(pipes)
    holds = np.empty((nodes, chunks), dtype=np.int32)
    hold_count = np.zeros(nodes, dtype=np.int64)
    cursor = np.zeros(pipes, dtype=np.int64)
    copies = np.zeros((chunks, regions), dtype=np.int32)
    retry_at = np.full(pipes, -1.0)
    # when each node may hope to have each chunk, where some pipes are slow and everyone passes chunks on
    hoped = np.full(len(came) if slow.any() and whole_region.any() else 0, np.inf)
    front = [0]
    # tokens: where each is, -1 when done, ``nodes`` when neighbours take the chunk from here; its steps
    # that led no nearer; what it expects to take after its next pipe; the queue of each pipe
    token_at = token_node.copy()
    aside = np.zeros(len(token_goal), dtype=np.int64)
    token_way = np.full((len(token_goal), MOST_EXPECTED), -1, dtype=np.int32)
    planned, decisions = np.zeros(pipes, dtype=np.int64), 0
    label, via = np.full(nodes, np.inf), np.empty(nodes, dtype=np.int64)
    touched, way = [0], [0]
    touched.clear()
    queue = [(0.0, 0)]
    queue_head = np.full(pipes, -1, dtype=np.int64)
    queue_tail = np.full(pipes, -1, dtype=np.int64)
    queue_chunk, queue_next = [0], [0]
    queue_chunk.clear()
    queue_next.clear()

    stamp = np.full(pipes, -1, dtype=np.int64)
    woken_fast, woken_slow, moved = [0], [0], [0]
    heap = [(0.0, 0, 0)]
    heap.clear()
    for b in range(chunks):
        for i in range(hold_offsets[b], hold_offsets[b + 1]):
            heappush(heap, (chunk_start[b], BEGUN, i))
            v = hold_nodes[i]
            copies[b, region[v]] += 1
            if len(hoped) > 0 and whole_region[b]:
                expect(
                    b, v, chunk_start[b], chunk_bytes[b], nodes, pipe_dst, per_byte, latency, slow,
                    out_offsets, out_pipes, region, hoped, front,
                )  # fmt: skip
    holder_chunk = np.repeat(np.arange(chunks), np.diff(hold_offsets))
    step = 0
    forced = False

    while missing > 0:
        if len(heap) == 0:
            # whoever waited for a neighbour that then did otherwise no longer does
            if forced:
                break
            forced = True
            for pipe in range(pipes):
                heappush(heap, (finish, RETRY, pipe))
        step += 1
        t = heap[0][0]
        woken_fast.clear()
        woken_slow.clear()
        while len(heap) > 0 and heap[0][0] <= t * SLACK:
            at, what, which = heappop(heap)
            t = max(t, at)
            if what == RETRY:
                _wake(which, step, stamp, slow, turn_of, woken_fast, woken_slow)
                continue
            if what == FREE:
                for i in range(hop_offsets[which], hop_offsets[which + 1]):
                    for e in range(user_offsets[hop_links[i]], user_offsets[hop_links[i] + 1]):
                        pipe = user_pipes[e]
                        _wake(pipe, step, stamp, slow, turn_of, woken_fast, woken_slow)
                continue
            if what == ARRIVED:
                b, u = out_chunk[which], pipe_dst[out_pipe[which]]
            else:
                b, u = holder_chunk[which], hold_nodes[which]
            size = chunk_bytes[b]
            holds[u, hold_count[u]] = b
            hold_count[u] += 1
            # tokens here move on, and again where the next node has the chunk already
            moved.clear()
            moved.append(u)
            while len(moved) > 0:
                at_node = moved.pop()
                for k in range(token_offsets[b], token_offsets[b + 1]):
                    if token_at[k] != at_node:
                        continue
                    goal = token_goal[k]
                    # beside the goal the last pipe stays expected until the goal has the chunk
                    kept_at = at_node if beside[goal, at_node] else -1
                    _forget(token_way[k], kept_at, per_byte, size, pipe_src, backlog)
                    if beside[goal, at_node]:
                        token_at[k] = nodes
                        continue
                    decisions += 1
                    for other in range(token_offsets[b], token_offsets[b + 1]):
                        for h in range(MOST_EXPECTED):
                            if token_way[other, h] >= 0:
                                planned[token_way[other, h]] = decisions
                    find_way(
                        at_node, b, goal, size, t, weigh_queue, nodes, pipe_src, pipe_dst, per_byte, latency,
                        out_offsets, out_pipes, hop_offsets, hop_links, hop_late, free_at, backlog,
                        distance, came, kind, region,
                        (unlike[at_node] or not whole_region[b]) and aside[k] < most_aside, planned, decisions,
                        label, via, touched, queue, way,
                    )  # fmt: skip
                    if len(way) == 0:
                        token_at[k] = -1
                        continue
                    pipe = way[0]
                    v = pipe_dst[pipe]
                    if not distance[goal, v] < distance[goal, at_node]:
                        aside[k] += 1
                    token_at[k] = v
                    for h in range(min(MOST_EXPECTED, len(way) - 1)):
                        onward = way[h + 1]
                        state = came[b * nodes + pipe_dst[onward]]
                        if planned[onward] != decisions and (state == LACKS or state == LACKS_WANTED):
                            token_way[k, h] = onward
                            backlog[onward] += size * per_byte[onward]
                    state = came[b * nodes + v]
                    if state == LACKS or state == LACKS_WANTED:
                        came[b * nodes + v] = QUEUED if state == LACKS else QUEUED_WANTED
                        backlog[pipe] += size * per_byte[pipe]
                        queue_chunk.append(b)
                        queue_next.append(-1)
                        entry = len(queue_chunk) - 1
                        if queue_head[pipe] < 0:
                            queue_head[pipe] = entry
                        else:
                            queue_next[queue_tail[pipe]] = entry
                        queue_tail[pipe] = entry
                        _wake(pipe, step, stamp, slow, turn_of, woken_fast, woken_slow)
                    elif state == HELD or (
                        state >= 0 and ready_at(
                            b * nodes + v, v, np.inf, chunk_start[b], came, kind,
                            out_pipe, out_start, out_seconds, latency,
                        ) <= t * SLACK
                    ):  # fmt: skip
                        moved.append(v)
            for e in range(out_offsets[u], out_offsets[u + 1]):
                pipe = out_pipes[e]
                _wake(pipe, step, stamp, slow, turn_of, woken_fast, woken_slow)

        fast_count = len(woken_fast)
        for turn in range(fast_count + len(woken_slow)):
            pipe = woken_fast[turn] if turn < fast_count else pipe_at_turn[heappop(woken_slow)]
            u, v = pipe_src[pipe], pipe_dst[pipe]
            until = free_from(pipe, hop_offsets, hop_links, hop_late, free_at)
            if until > t * SLACK:
                if hop_offsets[pipe + 1] - hop_offsets[pipe] > 1 and retry_at[pipe] != until:
                    retry_at[pipe] = until
                    heappush(heap, (until, RETRY, pipe))
                continue
            chosen = -1
            later = np.inf
            # what is queued here to be carried on comes first
            while queue_head[pipe] >= 0:
                b = queue_chunk[queue_head[pipe]]
                d = chunk_bytes[b] * per_byte[pipe]
                if came[b * nodes + v] == QUEUED or came[b * nodes + v] == QUEUED_WANTED:
                    ready = ready_at(
                        b * nodes + u, u, d, chunk_start[b], came, kind, out_pipe, out_start, out_seconds, latency
                    )
                    if ready > t * SLACK:
                        later = min(later, ready)
                        break
                    chosen = b
                queue_head[pipe] = queue_next[queue_head[pipe]]
                backlog[pipe] -= d
                if chosen >= 0:
                    break
            if chosen < 0 and region[v] >= 0:
                i = cursor[pipe]
                while i < hold_count[u]:
                    state = came[holds[u, i] * nodes + v]
                    if state == LACKS_WANTED or state == QUEUED_WANTED:
                        break
                    i += 1
                cursor[pipe] = i
                looked = 0
                fewest, latest = 0, 0.0
                while i < hold_count[u] and looked < most_looked:
                    b = holds[u, i]
                    i += 1
                    state = came[b * nodes + v]
                    if state != LACKS_WANTED and state != QUEUED_WANTED:
                        continue
                    looked += 1
                    size = chunk_bytes[b]
                    d = size * per_byte[pipe]
                    ready = ready_at(
                        b * nodes + u, u, d, chunk_start[b], came, kind, out_pipe, out_start, out_seconds, latency
                    )
                    if ready > t * SLACK:
                        later = min(later, ready)
                        continue
                    if not slow[pipe]:
                        chosen = b
                        break
                    otherwise = np.inf
                    soon = (t + d + latency[pipe] + patience * d) * SLACK
                    if len(hoped) > 0 and t < hoped[b * nodes + v] <= soon and not forced:
                        continue
                    if copies[b, region[v]] > 0:
                        otherwise = otherwise_at(
                            pipe, b, size, t, chunk_start[b], nodes, pipe_src, pipe_dst, per_byte, latency,
                            in_offsets, in_pipes, hop_offsets, hop_links, hop_late, free_at,
                            came, kind, out_pipe, out_start, out_seconds, hoped,
                        )  # fmt: skip
                    if otherwise <= soon and not forced:
                        continue
                    rare = copies[b, region[v]]
                    if chosen < 0 or rare < fewest or (rare == fewest and otherwise > latest):
                        chosen, fewest, latest = b, rare, otherwise
                    if rare == 0:
                        break
            if chosen < 0:
                if later < np.inf and retry_at[pipe] != later:
                    retry_at[pipe] = later
                    heappush(heap, (later, RETRY, pipe))
                continue

            b = chosen
            d = chunk_bytes[b] * per_byte[pipe]
            key = b * nodes + v
            start = max(t, until, ready_at(
                b * nodes + u, u, d, chunk_start[b], came, kind, out_pipe, out_start, out_seconds, latency
            ))  # fmt: skip
            if count == len(out_pipe):
                out_pipe, out_chunk = np.append(out_pipe, out_pipe), np.append(out_chunk, out_chunk)
                out_parent = np.append(out_parent, out_parent)
                out_start, out_seconds = np.append(out_start, out_start), np.append(out_seconds, out_seconds)
            out_pipe[count], out_chunk[count], out_parent[count] = pipe, b, max(came[b * nodes + u], -1)
            out_start[count], out_seconds[count] = start, d
            first, last = start + latency[pipe], start + latency[pipe] + d
            if came[key] == LACKS_WANTED or came[key] == QUEUED_WANTED:
                missing -= 1
                finish = max(finish, last)
            came[key] = count
            if region[v] >= 0:
                copies[b, region[v]] += 1
                if len(hoped) > 0 and whole_region[b] and last < hoped[key]:
                    expect(
                        b, v, last, chunk_bytes[b], nodes, pipe_dst, per_byte, latency, slow,
                        out_offsets, out_pipes, region, hoped, front,
                    )  # fmt: skip
            for k in range(token_offsets[b], token_offsets[b + 1]):
                goal = token_goal[k]
                if token_at[k] >= 0 and goal == (region[v] if whole_region[b] else v + goal_offset):
                    token_at[k] = -1
                    _forget(token_way[k], -1, per_byte, chunk_bytes[b], pipe_src, backlog)
            for i in range(hop_offsets[pipe], hop_offsets[pipe + 1]):
                free_at[hop_links[i]] = start + hop_late[i] + d
            heappush(heap, (start + d, FREE, pipe))
            heappush(heap, (first if kind[v] == ROUTER else last, ARRIVED, count))
            count += 1
            forced = False

    return (
        (out_pipe[:count], out_chunk[:count], out_parent[:count], out_start[:count], out_seconds[:count]),
        missing,
        finish,
    )
