"""SCALE-CCL's event loop with rules of our own: links choose when they fall idle.

Reception and transmission events are those of section 4.1 of the paper. A chunk goes once to each region (a part of the
network whose accelerators reach each other without routers): a *token* for each region that lacks it moves from node to
node towards it, which is our Load-Aware Neighbour Forwarding (section 4.2). Inside a region, accelerators take what
they lack from any neighbour. A slow pipe leaves a chunk to a faster neighbour that will have it in time, and else takes
the chunk with the fewest copies, which is our Subchunk Scheduling (section 4.3).
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.chunks import Chunks
from ...kernels.pipes import Lists, Pipes, free_from
from .kernel_transmission import (
    AGAIN,
    ARRIVED,
    BEGUN,
    HELD,
    LACKS,
    LACKS_WANTED,
    QUEUED,
    QUEUED_WANTED,
    ROUTER,
    SENT,
    SLACK,
    Event,
    Places,
    Sent,
    enqueue,
    ready_at,
    transmit,
)
from .kernel_ways import Traffic, expect, find_way, otherwise_at

Bool = NDArray[np.bool_]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

MOST_EXPECTED = 8
"""Pipes ahead of a token that count as load."""


class Goals(NamedTuple):
    """Where chunks must come.

    Attributes:
        whole_region: bool[chunks], whether the goals of a chunk are regions; else they are single nodes.
        offsets, goal, holder: CSR, for each chunk its goals, and the holder that is nearest to each.
        single: the goal of single node v is v + this; the goal of a region is the number of the region.
        distance: float64[goals, nodes], seconds to each goal.
        beside: bool[goals, nodes], whether a pipe leads from the node into the goal.
    """

    whole_region: Bool
    offsets: Int64
    goal: Int64
    holder: Int64
    single: int
    distance: Float64
    beside: Bool


class Rules(NamedTuple):
    """How pipes choose.

    Attributes:
        patience: a slow pipe is left idle where others bring the chunk at most this many of its own transmission times
            later.
        queue_weight: how much a second that is queued for a pipe counts in f.
        most_aside: how many steps of a token may lead no nearer to its goal, where accelerators are unlike or the goal
            is a single node.
        most_looked: among how many chunks a pipe chooses.
        slow: bool[pipes], whether a faster pipe leads to the same node.
        unlike: bool[nodes], accelerators of a region whose ways out are not the same for all.
        turn_of, pipe_at_turn: int64[pipes], the order in which slow pipes choose, both ways.
    """

    patience: float
    queue_weight: float
    most_aside: int
    most_looked: int
    slow: Bool
    unlike: Bool
    turn_of: Int64
    pipe_at_turn: Int64


def spread(
    pipes: Pipes, into: Lists, users: Lists, places: Places, chunks: Chunks, came: Int32, goals: Goals, rules: Rules
) -> tuple[tuple[Int64, Int64, Int64, Float64, Float64], int, float]:
    """Send every chunk to every node that wants it.

    Args:
        into: for each node the pipes that enter it. users: for each link the pipes that use it.
        came: what each node knows of each chunk at first; filled.
    Returns:
        The columns of :class:`.kernel_transmission.Sent`; how many wanted deliveries did not happen; and when the last
        of the others did, seconds.
    """
    src, dst, hop_offsets, hop_links, hop_late_s, latency_s, per_byte_s, out_offsets, out_pipes = pipes
    user_offsets, user_pipes = users
    kind, region = places
    size_bytes, begun_s, hold_offsets, hold_nodes = chunks
    whole_region, goal_offsets, goal_of = goals.whole_region, goals.offsets, goals.goal
    slow, turn_of, pipe_at_turn = rules.slow, rules.turn_of, rules.pipe_at_turn
    nodes, chunk_count, pipe_count = len(kind), len(size_bytes), len(src)
    missing = 0
    for key in range(len(came)):
        if came[key] == LACKS_WANTED:
            missing += 1
    room = missing + 16
    sent_pipe, sent_chunk = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    sent_parent, sent_start_s, sent_seconds = np.empty(room, dtype=np.int64), np.empty(room), np.empty(room)
    sent = Sent(sent_pipe, sent_chunk, sent_parent, sent_start_s, sent_seconds)
    count, finish = 0, 0.0
    free_at, backlog_s = np.zeros(len(user_offsets) - 1), np.zeros(pipe_count)
    traffic = Traffic(free_at, backlog_s, came)
    # what each node holds, in the order in which it came; up to where each pipe has looked through that
    holds = np.empty((nodes, chunk_count), dtype=np.int32)
    hold_count = np.zeros(nodes, dtype=np.int64)
    cursor = np.zeros(pipe_count, dtype=np.int64)
    copies = np.zeros((chunk_count, max(1, region.max() + 1)), dtype=np.int32)
    retry_at = np.full(pipe_count, -1.0)
    # when each node may hope to have each chunk, where some pipes are slow and everyone passes chunks on
    hoped_s = np.full(len(came) if slow.any() and whole_region.any() else 0, np.inf)
    # tokens: where each is, -1 when done, ``nodes`` when neighbours take the chunk from here; how many of its steps led
    # no nearer to its goal; the pipes that it expects to take after its next one
    token_at = goals.holder.copy()
    aside = np.zeros(len(goal_of), dtype=np.int64)
    token_way = np.full((len(goal_of), MOST_EXPECTED), -1, dtype=np.int32)
    # for each pipe the last decision in which it was on the way of a token of the same chunk; in the end their count
    planned = np.zeros(pipe_count + 1, dtype=np.int64)
    label, via = np.empty(nodes), np.empty(nodes, dtype=np.int64)
    queue_head = np.full(pipe_count, -1, dtype=np.int64)
    queue_tail = np.full(pipe_count, -1, dtype=np.int64)
    queued_chunk, following = [0], [0]
    queued_chunk.clear()
    following.clear()
    stamp = np.full(pipe_count, -1, dtype=np.int64)
    woken_fast, woken_slow, moved, way = [0], [0], [0], [0]
    events: list[Event] = [(0.0, 0, 0)]
    events.clear()
    for b in range(chunk_count):
        for i in range(hold_offsets[b], hold_offsets[b + 1]):
            heappush(events, (begun_s[b], BEGUN, i))
            v = hold_nodes[i]
            copies[b, region[v]] += 1
            if len(hoped_s) > 0 and whole_region[b]:
                expect(b, v, begun_s[b], size_bytes[b], pipes, slow, region, hoped_s)
    holder_chunk = np.repeat(np.arange(chunk_count), np.diff(hold_offsets))
    step = 0
    forced = False

    while missing > 0:
        if len(events) == 0:
            # whoever waited for a neighbour that then did otherwise no longer does
            if forced:
                break
            forced = True
            for pipe in range(pipe_count):
                heappush(events, (finish, AGAIN, pipe))
        step += 1
        t = events[0][0]
        woken_fast.clear()
        woken_slow.clear()
        while len(events) > 0 and events[0][0] <= t * SLACK:
            at, what, which = heappop(events)
            t = max(t, at)
            if what == AGAIN:
                _wake(which, step, stamp, slow, turn_of, woken_fast, woken_slow)
                continue
            if what == SENT:
                for i in range(hop_offsets[which], hop_offsets[which + 1]):
                    link = hop_links[i]
                    for e in range(user_offsets[link], user_offsets[link + 1]):
                        _wake(user_pipes[e], step, stamp, slow, turn_of, woken_fast, woken_slow)
                continue
            if what == ARRIVED:
                b, u = sent_chunk[which], dst[sent_pipe[which]]
            else:
                b, u = holder_chunk[which], hold_nodes[which]
            holds[u, hold_count[u]] = b
            hold_count[u] += 1
            # tokens here move on, and again where the next node has the chunk already
            moved.clear()
            moved.append(u)
            while len(moved) > 0:
                at_node = moved.pop()
                for k in range(goal_offsets[b], goal_offsets[b + 1]):
                    if token_at[k] != at_node:
                        continue
                    pipe = _move_token(
                        k, b, t, pipes, places, chunks, goals, rules, traffic, token_at, aside, token_way, planned,
                        label, via, way,
                    )  # fmt: skip
                    if pipe < 0:
                        continue
                    v = dst[pipe]
                    state = came[b * nodes + v]
                    if state == LACKS or state == LACKS_WANTED:
                        came[b * nodes + v] = QUEUED if state == LACKS else QUEUED_WANTED
                        backlog_s[pipe] += size_bytes[b] * per_byte_s[pipe]
                        enqueue(pipe, b, queue_head, queue_tail, queued_chunk, following)
                        _wake(pipe, step, stamp, slow, turn_of, woken_fast, woken_slow)
                    elif state == HELD or (
                        state >= 0
                        and ready_at(
                            state, kind[v] == ROUTER, begun_s[b], np.inf, sent_pipe, sent_start_s, sent_seconds,
                            latency_s,
                        ) <= t * SLACK
                    ):  # fmt: skip
                        moved.append(v)
            for e in range(out_offsets[u], out_offsets[u + 1]):
                _wake(out_pipes[e], step, stamp, slow, turn_of, woken_fast, woken_slow)

        fast_count = len(woken_fast)
        for turn in range(fast_count + len(woken_slow)):
            pipe = woken_fast[turn] if turn < fast_count else pipe_at_turn[heappop(woken_slow)]
            u, v = src[pipe], dst[pipe]
            until = free_from(pipe, hop_offsets, hop_links, hop_late_s, free_at)
            if until > t * SLACK:
                if hop_offsets[pipe + 1] - hop_offsets[pipe] > 1 and retry_at[pipe] != until:
                    retry_at[pipe] = until
                    heappush(events, (until, AGAIN, pipe))
                continue
            # what is queued here to be carried on comes first
            chosen, later = -1, np.inf
            if queue_head[pipe] >= 0:
                chosen, later = _take_queued(
                    pipe, t, pipes, places, chunks, traffic, sent, queue_head, queued_chunk, following
                )  # fmt: skip
            if chosen < 0 and region[v] >= 0 and not slow[pipe]:
                chosen, later = _take_first(
                    u, v, t, later, kind[u] == ROUTER, per_byte_s[pipe], pipe, size_bytes, begun_s, latency_s, came,
                    nodes, sent_pipe, sent_start_s, sent_seconds, holds, hold_count, cursor, rules.most_looked,
                )  # fmt: skip
            elif chosen < 0 and region[v] >= 0:
                chosen, later = _take_rarest(
                    pipe, t, later, forced, pipes, into, places, chunks, rules, traffic, sent, hoped_s, holds,
                    hold_count, cursor, copies,
                )  # fmt: skip
            if chosen < 0:
                if later < np.inf and retry_at[pipe] != later:
                    retry_at[pipe] = later
                    heappush(events, (later, AGAIN, pipe))
                continue

            b = chosen
            key = b * nodes + v
            seconds = size_bytes[b] * per_byte_s[pipe]
            ready = ready_at(
                came[b * nodes + u], kind[u] == ROUTER, begun_s[b], seconds, sent_pipe, sent_start_s, sent_seconds,
                latency_s,
            )  # fmt: skip
            start = max(t, until, ready)
            if count == len(sent_pipe):
                sent_pipe, sent_chunk = np.append(sent_pipe, sent_pipe), np.append(sent_chunk, sent_chunk)
                sent_parent = np.append(sent_parent, sent_parent)
                sent_start_s = np.append(sent_start_s, sent_start_s)
                sent_seconds = np.append(sent_seconds, sent_seconds)
                sent = Sent(sent_pipe, sent_chunk, sent_parent, sent_start_s, sent_seconds)
            sent_pipe[count], sent_chunk[count], sent_seconds[count] = pipe, b, seconds
            sent_parent[count] = max(came[b * nodes + u], -1)
            sent_start_s[count] = start
            last = transmit(
                count, pipe, start, seconds, latency_s[pipe], pipe, kind[v] == ROUTER, hop_offsets, hop_links,
                hop_late_s, free_at, events,
            )  # fmt: skip
            if came[key] == LACKS_WANTED or came[key] == QUEUED_WANTED:
                missing -= 1
                finish = max(finish, last)
            came[key] = count
            if region[v] >= 0:
                copies[b, region[v]] += 1
                if len(hoped_s) > 0 and whole_region[b] and last < hoped_s[key]:
                    expect(b, v, last, size_bytes[b], pipes, slow, region, hoped_s)
            reached = region[v] if whole_region[b] else v + goals.single
            for k in range(goal_offsets[b], goal_offsets[b + 1]):
                if token_at[k] >= 0 and goal_of[k] == reached:
                    token_at[k] = -1
                    _forget(token_way[k], -1, size_bytes[b], src, per_byte_s, backlog_s)
            count += 1
            forced = False

    return (
        (sent_pipe[:count], sent_chunk[:count], sent_parent[:count], sent_start_s[:count], sent_seconds[:count]),
        missing,
        finish,
    )


def _wake(
    pipe: int, step: int, stamp: Int64, slow: Bool, turn_of: Int64, woken_fast: list[int], woken_slow: list[int]
) -> None:
    """Let a pipe try to send in this step; slow ones choose in their turn, after the others."""
    if stamp[pipe] != step:
        stamp[pipe] = step
        if slow[pipe]:
            heappush(woken_slow, turn_of[pipe])
        else:
            woken_fast.append(pipe)


def _forget(way: Int32, kept_at: int, size_bytes: float, src: Int64, per_byte_s: Float64, backlog_s: Float64) -> None:
    """Let a token no longer expect its ``way``, but for pipes out of node ``kept_at`` (-1: all)."""
    for h in range(len(way)):
        if way[h] >= 0 and (kept_at < 0 or src[way[h]] != kept_at):
            backlog_s[way[h]] -= size_bytes * per_byte_s[way[h]]
            way[h] = -1


def _move_token(
    k: int, b: int, t: float, pipes: Pipes, places: Places, chunks: Chunks, goals: Goals, rules: Rules,
    traffic: Traffic, token_at: Int64, aside: Int64, token_way: Int32, planned: Int64, label: Float64, via: Int64,
    way: list[int],
) -> int:  # fmt: skip
    """Move token ``k`` of chunk ``b`` to the next node of the way that f finds best.

    Returns:
        The pipe that leads there; -1 where the token has done its work.
    """
    src, dst, per_byte_s = pipes.src, pipes.dst, pipes.per_byte_s
    offsets, distance = goals.offsets, goals.distance
    backlog_s, came = traffic.backlog_s, traffic.came
    u, goal, size_bytes, nodes = token_at[k], goals.goal[k], chunks.size_bytes[b], len(places.kind)
    if goals.beside[goal, u]:
        # the last pipe stays expected until the goal has the chunk
        _forget(token_way[k], u, size_bytes, src, per_byte_s, backlog_s)
        token_at[k] = nodes
        return -1
    _forget(token_way[k], -1, size_bytes, src, per_byte_s, backlog_s)
    planned[-1] += 1
    mark = planned[-1]
    for other in range(offsets[b], offsets[b + 1]):
        for h in range(MOST_EXPECTED):
            if token_way[other, h] >= 0:
                planned[token_way[other, h]] = mark
    may_turn_aside = (rules.unlike[u] or not goals.whole_region[b]) and aside[k] < rules.most_aside
    find_way(
        u, b, goal, size_bytes, t, rules.queue_weight, may_turn_aside, planned, mark, pipes, places, distance,
        traffic, label, via, way,
    )  # fmt: skip
    if len(way) == 0:
        token_at[k] = -1
        return -1
    pipe = way[0]
    v = dst[pipe]
    if not distance[goal, v] < distance[goal, u]:
        aside[k] += 1
    token_at[k] = v
    for h in range(min(MOST_EXPECTED, len(way) - 1)):
        onward = way[h + 1]
        state = came[b * nodes + dst[onward]]
        if planned[onward] != mark and (state == LACKS or state == LACKS_WANTED):
            token_way[k, h] = onward
            backlog_s[onward] += size_bytes * per_byte_s[onward]
    return pipe


def _take_queued(
    pipe: int, t: float, pipes: Pipes, places: Places, chunks: Chunks, traffic: Traffic, sent: Sent, head: Int64,
    queued_chunk: list[int], following: list[int],
) -> tuple[int, float]:  # fmt: skip
    """Take the first chunk from the queue of a pipe that its receiver still awaits.

    Returns:
        The chunk, -1 for none; and where that has not come yet, when it could be sent.
    """
    sent_pipe, _, _, sent_start_s, sent_seconds = sent
    per_byte_s, came, nodes = pipes.per_byte_s[pipe], traffic.came, len(places.kind)
    u, v = pipes.src[pipe], pipes.dst[pipe]
    relays = places.kind[u] == ROUTER
    while head[pipe] >= 0:
        b = queued_chunk[head[pipe]]
        seconds = chunks.size_bytes[b] * per_byte_s
        awaited = came[b * nodes + v] == QUEUED or came[b * nodes + v] == QUEUED_WANTED
        if awaited:
            ready = ready_at(
                came[b * nodes + u], relays, chunks.start_s[b], seconds, sent_pipe, sent_start_s, sent_seconds,
                pipes.latency_s,
            )  # fmt: skip
            if ready > t * SLACK:
                return -1, ready
        head[pipe] = following[head[pipe]]
        traffic.backlog_s[pipe] -= seconds
        if awaited:
            return b, np.inf
    return -1, np.inf


def _take_first(
    u: int, v: int, t: float, later: float, relays: bool, per_byte_s: float, pipe: int, size_bytes: Float64,
    begun_s: Float64, latency_s: Float64, came: Int32, nodes: int, sent_pipe: Int64, sent_start_s: Float64,
    sent_seconds: Float64, holds: Int32, hold_count: Int64, cursor: Int64, most_looked: int,
) -> tuple[int, float]:  # fmt: skip
    """Take the first chunk at ``u`` that ``v`` wants and that can be sent now, for a pipe that is not slow.

    Arrays come one by one, since handing on named tuples takes longer than the loop.

    Args:
        later: when the pipe could send something, as known so far.
    Returns:
        The chunk, -1 for none; and when the pipe could send something.
    """
    looked = 0
    for i in range(cursor[pipe], hold_count[u]):
        b = holds[u, i]
        state = came[b * nodes + v]
        if state == LACKS_WANTED or state == QUEUED_WANTED:
            looked += 1
            seconds = size_bytes[b] * per_byte_s
            ready = ready_at(
                came[b * nodes + u], relays, begun_s[b], seconds, sent_pipe, sent_start_s, sent_seconds, latency_s
            )  # fmt: skip
            if ready <= t * SLACK:
                return b, later
            later = min(later, ready)
            if looked == most_looked:
                break
        elif looked == 0:
            cursor[pipe] = i + 1
    return -1, later


def _take_rarest(
    pipe: int, t: float, later: float, forced: bool, pipes: Pipes, into: Lists, places: Places, chunks: Chunks,
    rules: Rules, traffic: Traffic, sent: Sent, hoped_s: Float64, holds: Int32, hold_count: Int64, cursor: Int64,
    copies: Int32,
) -> tuple[int, float]:  # fmt: skip
    """Take the rarest chunk that nobody else brings in time, for a slow pipe; as :func:`_take_first` otherwise.

    Args:
        forced: the pipe leaves nothing to others.
    """
    sent_pipe, _, _, sent_start_s, sent_seconds = sent
    size_bytes, begun_s, latency_s = chunks.size_bytes, chunks.start_s, pipes.latency_s
    per_byte_s, came, nodes = pipes.per_byte_s[pipe], traffic.came, len(places.kind)
    u, v = pipes.src[pipe], pipes.dst[pipe]
    relays, region = places.kind[u] == ROUTER, places.region[v]
    patience, most_looked = rules.patience, rules.most_looked
    i = cursor[pipe]
    while i < hold_count[u]:
        state = came[holds[u, i] * nodes + v]
        if state == LACKS_WANTED or state == QUEUED_WANTED:
            break
        i += 1
    cursor[pipe] = i
    chosen, looked, fewest, latest = -1, 0, 0, 0.0
    while i < hold_count[u] and looked < most_looked:
        b = holds[u, i]
        i += 1
        state = came[b * nodes + v]
        if state != LACKS_WANTED and state != QUEUED_WANTED:
            continue
        looked += 1
        seconds = size_bytes[b] * per_byte_s
        ready = ready_at(
            came[b * nodes + u], relays, begun_s[b], seconds, sent_pipe, sent_start_s, sent_seconds, latency_s
        )  # fmt: skip
        if ready > t * SLACK:
            later = min(later, ready)
            continue
        otherwise = np.inf
        soon = (t + seconds + latency_s[pipe] + patience * seconds) * SLACK
        if len(hoped_s) > 0 and t < hoped_s[b * nodes + v] <= soon and not forced:
            continue
        rare = copies[b, region]
        if rare > 0:
            otherwise = otherwise_at(pipe, b, t, pipes, into, places, chunks, traffic, sent, hoped_s)
        if otherwise <= soon and not forced:
            continue
        if chosen < 0 or rare < fewest or (rare == fewest and otherwise > latest):
            chosen, fewest, latest = b, rare, otherwise
        if rare == 0:
            break
    return chosen, later
