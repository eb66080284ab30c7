"""SCALE-CCL's event loop with rules of our own: links choose when they fall idle.

Reception and transmission events are those of section 4.1 of the paper. A chunk goes once to each region (a part of the
network whose accelerators reach each other without routers): a *token* for each region that lacks it moves from node to
node towards it, which is our Load-Aware Neighbour Forwarding (section 4.2). Inside a region, accelerators take what
they lack from any neighbour. A slow pipe leaves a chunk to a faster neighbour that will have it in time, and else takes
the chunk with the fewest copies, which is our Subchunk Scheduling (section 4.3).
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from ...kernels.chunks import Chunks
from ...kernels.pipes import Bool, Float64, Goals, Int32, Int64, Lists, Pipes
from ...kernels.steps import sending_s
from .kernel_choice import Rules, take_first, take_queued, take_rarest
from .kernel_states import AGAIN, ARRIVED, BEGUN, HELD, LACKS, LACKS_WANTED, QUEUED, QUEUED_WANTED, ROUTER, SENT, Places
from .kernel_transmission import (
    SLACK,
    Event,
    Sent,
    enlarged,
    enqueue,
    idle_from,
    idle_links,
    least_used,
    room_for,
    send,
)
from .kernel_ways import Traffic, expect, find_way

MOST_EXPECTED = 8
"""Pipes ahead of a token that count as load."""


def spread(
    pipes: Pipes, share: Float64, into: Lists, users: Lists, places: Places, chunks: Chunks, goals: Goals, rules: Rules
) -> tuple[Sent, int, int, float]:
    """Send every chunk to every node that wants it.

    Args:
        share: float64[hops], how much of each link a pipe uses that is as fast as its slowest link.
        into: for each node the pipes that enter it. users: for each link the pipes that use it.
    Returns:
        The transfers; how many there are; how many wanted deliveries are missing; and when the last other one is made.
    """
    src, dst, hop_offsets, hop_links, hop_late_s, _, per_byte_s, out_offsets, out_pipes, steps = pipes
    user_offsets, user_pipes = users
    kind, region = places
    size_bytes, begun_s, hold_offsets, hold_nodes = chunks
    whole_region, goal_offsets, goal_of = goals.whole_region, goals.offsets, goals.goal
    slow, changes = rules.slow, len(steps.at_s) > 0
    nodes, chunk_count, pipe_count = len(kind), len(size_bytes), len(src)
    # slow pipes choose in turn: who leaves room on its links for others is first, then who can pass most on, so that
    # what it gets is near to all others
    pipe_at_turn = np.argsort(out_offsets[dst] - out_offsets[dst + 1], kind="mergesort")
    pipe_at_turn = pipe_at_turn[np.argsort(least_used(hop_offsets, share)[pipe_at_turn], kind="mergesort")]
    turn_of = np.argsort(pipe_at_turn)
    came = goals.came.copy()
    missing = int((came == LACKS_WANTED).sum())
    sent = room_for(missing + 16)
    count, finish = 0, 0.0
    links, backlog_s = idle_links(len(user_offsets) - 1, share), np.zeros(pipe_count)
    traffic = Traffic(links, backlog_s, came)
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
    token_at = goals.near.copy()
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
    awake = np.zeros(pipe_count, dtype=np.bool_)
    woken, moved, way = [0], [0], [0]
    woken.clear()
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
    forced = False

    while missing > 0:
        if len(events) == 0:
            # whoever waited for a neighbour that then did otherwise no longer does
            if forced:
                break
            forced = True
            for pipe in range(pipe_count):
                heappush(events, (finish, AGAIN, pipe))
        t = events[0][0]
        for pipe in woken:
            awake[pipe] = False
        woken.clear()
        while len(events) > 0 and events[0][0] <= t * SLACK:
            at, what, which = heappop(events)
            t = max(t, at)
            if what == AGAIN:
                _wake(which, awake, woken)
                continue
            if what == SENT:
                for i in range(hop_offsets[which], hop_offsets[which + 1]):
                    link = hop_links[i]
                    for e in range(user_offsets[link], user_offsets[link + 1]):
                        _wake(user_pipes[e], awake, woken)
                continue
            if what == ARRIVED:
                b, u = sent.chunk[which], dst[sent.pipe[which]]
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
                        _wake(pipe, awake, woken)
                    elif state == HELD or (
                        state >= 0 and (sent.first_s if kind[v] == ROUTER else sent.last_s)[state] <= t * SLACK
                    ):
                        moved.append(v)
            for e in range(out_offsets[u], out_offsets[u + 1]):
                _wake(out_pipes[e], awake, woken)

        # slow pipes choose after the others
        choosing = [pipe for pipe in woken if not slow[pipe]]
        choosing += [pipe_at_turn[turn] for turn in sorted([turn_of[pipe] for pipe in woken if slow[pipe]])]
        for pipe in choosing:
            u, v = src[pipe], dst[pipe]
            until = idle_from(pipe, hop_offsets, hop_links, hop_late_s, share, links.until_s, links.used)
            if until > t * SLACK:
                if hop_offsets[pipe + 1] - hop_offsets[pipe] > 1 and retry_at[pipe] != until:
                    retry_at[pipe] = until
                    heappush(events, (until, AGAIN, pipe))
                continue
            # a pipe that fails for good carries nothing more
            if changes and sending_s(pipe, t, 1.0, per_byte_s[pipe], steps) == np.inf:
                continue
            # what is queued here to be carried on comes first
            chosen, later = -1, np.inf
            if queue_head[pipe] >= 0:
                chosen, later = take_queued(
                    pipe, t, pipes, places, chunks, traffic, sent, queue_head, queued_chunk, following
                )  # fmt: skip
            if chosen < 0 and region[v] >= 0 and not slow[pipe]:
                chosen, later = take_first(
                    u, v, t, later, kind[u] == ROUTER, per_byte_s[pipe], pipe, size_bytes, begun_s, came, nodes,
                    sent.first_s, sent.last_s, holds, hold_count, cursor, rules.most_looked,
                )  # fmt: skip
            elif chosen < 0 and region[v] >= 0:
                chosen, later = take_rarest(
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
            wanted = came[key] == LACKS_WANTED or came[key] == QUEUED_WANTED
            if count == len(sent.pipe):
                sent = enlarged(sent)
            last = send(
                count, pipe, b, max(t, until), pipe, pipes, places, chunks, came, links, sent, events
            )  # fmt: skip
            if wanted:
                missing -= 1
                finish = max(finish, last)
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

    return sent, count, missing, finish


def _wake(pipe: int, awake: Bool, woken: list[int]) -> None:
    """Let a pipe try to send at this moment."""
    if not awake[pipe]:
        awake[pipe] = True
        woken.append(pipe)


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
    may_turn_aside = rules.unlike[u] or not goals.whole_region[b] or len(pipes.steps.at_s) > 0
    may_turn_aside = may_turn_aside and aside[k] < rules.most_aside
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
