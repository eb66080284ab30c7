"""Which chunk a pipe takes by our own rules, once it is idle."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...kernels.chunks import Chunks
from ...kernels.pipes import Bool, Float64, Int32, Int64, Lists, Pipes
from ...kernels.steps import sending_s
from .kernel_states import HELD, LACKS_WANTED, QUEUED, QUEUED_WANTED, ROUTER, Places
from .kernel_transmission import SLACK, Sent, idle_from, ready_at
from .kernel_ways import Traffic


class Rules(NamedTuple):
    """How pipes choose."""

    patience: float  # of its own transmission times, by which others may bring what a slow pipe then leaves to them
    queue_weight: float  # how much a second that is queued for a pipe counts in f
    most_aside: int  # steps of a token that may lead no nearer, where accelerators are unlike or the goal is one node
    most_looked: int  # among how many chunks a pipe chooses
    slow: Bool  # [pipes], whether a faster pipe leads to the same node
    unlike: Bool  # [nodes], accelerators of a region whose ways out are not the same for all


def take_queued(
    pipe: int, t: float, pipes: Pipes, places: Places, chunks: Chunks, traffic: Traffic, sent: Sent, head: Int64,
    queued_chunk: list[int], following: list[int],
) -> tuple[int, float]:  # fmt: skip
    """Take the first chunk from the queue of a pipe that its receiver still awaits.

    Returns:
        The chunk, -1 for none; and where that has not come yet, when it could be sent.
    """
    per_byte_s, came, nodes = pipes.per_byte_s[pipe], traffic.came, len(places.kind)
    u, v = pipes.src[pipe], pipes.dst[pipe]
    relays = places.kind[u] == ROUTER
    while head[pipe] >= 0:
        b = queued_chunk[head[pipe]]
        seconds = chunks.size_bytes[b] * per_byte_s
        awaited = came[b * nodes + v] == QUEUED or came[b * nodes + v] == QUEUED_WANTED
        if awaited:
            ready = ready_at(came[b * nodes + u], relays, chunks.start_s[b], seconds, sent.first_s, sent.last_s)
            if ready > t * SLACK:
                return -1, ready
        head[pipe] = following[head[pipe]]
        traffic.backlog_s[pipe] -= seconds
        if awaited:
            return b, np.inf
    return -1, np.inf


def take_first(
    u: int, v: int, t: float, later: float, relays: bool, per_byte_s: float, pipe: int, size_bytes: Float64,
    begun_s: Float64, came: Int32, nodes: int, first_s: Float64, last_s: Float64, holds: Int32, hold_count: Int64,
    cursor: Int64, most_looked: int,
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
            ready = ready_at(came[b * nodes + u], relays, begun_s[b], seconds, first_s, last_s)
            if ready <= t * SLACK:
                return b, later
            later = min(later, ready)
            if looked == most_looked:
                break
        elif looked == 0:
            cursor[pipe] = i + 1
    return -1, later


def take_rarest(
    pipe: int, t: float, later: float, forced: bool, pipes: Pipes, into: Lists, places: Places, chunks: Chunks,
    rules: Rules, traffic: Traffic, sent: Sent, hoped_s: Float64, holds: Int32, hold_count: Int64, cursor: Int64,
    copies: Int32,
) -> tuple[int, float]:  # fmt: skip
    """Take the rarest chunk that nobody else brings in time, for a slow pipe; as :func:`take_first` otherwise.

    Args:
        forced: the pipe leaves nothing to others.
    """
    size_bytes, begun_s, latency_s = chunks.size_bytes, chunks.start_s, pipes.latency_s
    per_byte_s, came, nodes = pipes.per_byte_s[pipe], traffic.came, len(places.kind)
    u, v = pipes.src[pipe], pipes.dst[pipe]
    relays, region = places.kind[u] == ROUTER, places.region[v]
    patience, most_looked, changes = rules.patience, rules.most_looked, len(pipes.steps.at_s) > 0
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
        seconds = sending_s(pipe, t, size_bytes[b], per_byte_s, pipes.steps) if changes else size_bytes[b] * per_byte_s
        ready = ready_at(came[b * nodes + u], relays, begun_s[b], seconds, sent.first_s, sent.last_s)
        if ready > t * SLACK:
            later = min(later, ready)
            continue
        otherwise = np.inf
        soon = (t + seconds + latency_s[pipe] + patience * seconds) * SLACK
        if len(hoped_s) > 0 and t < hoped_s[b * nodes + v] <= soon and not forced:
            continue
        rare = copies[b, region]
        if rare > 0:
            otherwise = _otherwise_at(pipe, b, t, pipes, into, places, chunks, traffic, sent, hoped_s)
        if otherwise <= soon and not forced:
            continue
        if chosen < 0 or rare < fewest or (rare == fewest and otherwise > latest):
            chosen, fewest, latest = b, rare, otherwise
        if rare == 0:
            break
    return chosen, later


def _otherwise_at(
    pipe: int, b: int, t: float, pipes: Pipes, into: Lists, places: Places, chunks: Chunks, traffic: Traffic,
    sent: Sent, hoped_s: Float64,
) -> float:  # fmt: skip
    """When another neighbour, which has chunk ``b``, is getting it or may hope to, could have brought it."""
    src, dst, hop_offsets, hop_links, hop_late_s, latency_s, per_byte_s, _, _, steps = pipes
    in_offsets, in_pipes = into
    links, _, came = traffic
    share, until_s, used = links
    kind, begun_s, size_bytes = places.kind, chunks.start_s[b], chunks.size_bytes[b]
    v, nodes, changes = dst[pipe], len(kind), len(steps.at_s) > 0
    best = np.inf
    for e in range(in_offsets[v], in_offsets[v + 1]):
        other = in_pipes[e]
        s = src[other]
        key = b * nodes + s
        if other == pipe:
            continue
        seconds = size_bytes * per_byte_s[other]
        if came[key] >= 0 or came[key] == HELD:
            at = ready_at(came[key], kind[s] == ROUTER, begun_s, seconds, sent.first_s, sent.last_s)
        elif len(hoped_s) > 0 and hoped_s[key] < np.inf:
            at = hoped_s[key]
        else:
            continue
        at = max(max(t, at), idle_from(other, hop_offsets, hop_links, hop_late_s, share, until_s, used))
        if changes:
            seconds = sending_s(other, at, size_bytes, per_byte_s[other], steps)
        best = min(best, at + seconds + latency_s[other])
    return best
