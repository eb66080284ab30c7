"""What SCALE-CCL's two event loops share (section 4.1): queues of pipes, and transmissions with their events."""

from __future__ import annotations

from heapq import heappush
from typing import NamedTuple

import numpy as np

from ...kernels.chunks import Chunks
from ...kernels.pipes import Float64, Int32, Int64, Pipes
from ...kernels.steps import sending_s
from .kernel_states import ARRIVED, HELD, ROUTER, SENT, Places

Event = tuple[float, int, int]
"""A moment in seconds, the kind of event, and a transfer, a pipe or a holder."""

SLACK = 1 + 1e-12
"""Moments whose ratio is below this are one moment."""


LEAST_RATE = 0.3
"""Share of its own rate that a pipe must find free on all of its links to start. Chosen by
``python benchmarks/scale_ccl_uneven.py --rates``."""

MOST_AT_ONCE = 8
"""Transmissions that share a link at once, at most."""


class Links(NamedTuple):
    """What is under way: up to :data:`MOST_AT_ONCE` transmissions on each link, one where pipes use links whole."""

    share: Float64  # [hops], how much of each link a pipe uses that is as fast as its slowest link
    until_s: Float64  # [links, transmissions], when each ends
    used: Float64  # [links, transmissions], the share of the link that each uses


def idle_links(link_count: int, share: Float64) -> Links:
    """Links that carry nothing."""
    # next to a pipe of this share another one has room for its least rate
    at_once = MOST_AT_ONCE if len(share) > 0 and share.min() <= 1 - LEAST_RATE * share.min() else 1
    return Links(share, np.zeros((link_count, at_once)), np.zeros((link_count, at_once)))


def least_used(hop_offsets: Int64, share: Float64) -> Float64:
    """float64[pipes], the least share that a pipe uses of any of its links, which it fills if it is 1 everywhere."""
    least = np.ones(len(hop_offsets) - 1)
    for pipe in range(len(least)):
        for i in range(hop_offsets[pipe], hop_offsets[pipe + 1]):
            least[pipe] = min(least[pipe], np.round(share[i], 9))
    return least


def idle_from(
    pipe: int, hop_offsets: Int64, hop_links: Int64, hop_late_s: Float64, share: Float64, until_s: Float64,
    used: Float64,
) -> float:  # fmt: skip
    """From when all links of a pipe have room for it, each at the time at which its bytes would come there, seconds.

    It takes arrays one by one, since handing on tuples would take longer than the loop.
    """
    t, at_once = 0.0, until_s.shape[1]
    for i in range(hop_offsets[pipe], hop_offsets[pipe + 1]):
        link = hop_links[i]
        if at_once == 1:
            t = max(t, until_s[link, 0] - hop_late_s[i])
            continue
        while True:
            left, count, soonest = 1.0, 0, np.inf
            for j in range(at_once):
                if until_s[link, j] - hop_late_s[i] > t * SLACK:
                    left -= used[link, j]
                    count += 1
                    soonest = min(soonest, until_s[link, j] - hop_late_s[i])
            if count < at_once and left * SLACK >= LEAST_RATE * share[i]:
                break
            t = soonest
    return t


def rate_at(pipe: int, t: float, pipes: Pipes, links: Links) -> float:
    """The share of its own rate that a pipe finds on its links."""
    rate, at_once = 1.0, links.until_s.shape[1]
    for i in range(pipes.hop_offsets[pipe], pipes.hop_offsets[pipe + 1]):
        link, left = pipes.hop_links[i], 1.0
        for j in range(at_once):
            if links.until_s[link, j] - pipes.hop_late_s[i] > t * SLACK:
                left -= links.used[link, j]
        rate = min(rate, left / links.share[i])
    return rate


class Sent(NamedTuple):
    """The transfers so far, in the order of their start; rows beyond them are unused."""

    pipe: Int64  # [rows]
    chunk: Int64  # [rows]
    parent: Int64  # [rows], the transfer that brought the chunk to the source, -1 if the source held it
    start_s: Float64  # [rows], when a transmission starts
    seconds: Float64  # [rows], how long it keeps a link busy
    first_s: Float64  # [rows], when the first byte arrives
    last_s: Float64  # [rows], when the last byte arrives


def room_for(rows: int) -> Sent:
    """No transfers yet, and room for ``rows`` of them."""
    return Sent(
        np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64),
        np.empty(rows), np.empty(rows), np.empty(rows), np.empty(rows),
    )  # fmt: skip


def enlarged(sent: Sent) -> Sent:
    """The same transfers with room for as many more."""
    return Sent(
        np.append(sent.pipe, sent.pipe), np.append(sent.chunk, sent.chunk), np.append(sent.parent, sent.parent),
        np.append(sent.start_s, sent.start_s), np.append(sent.seconds, sent.seconds),
        np.append(sent.first_s, sent.first_s), np.append(sent.last_s, sent.last_s),
    )  # fmt: skip


def ready_at(p: int, relays: bool, begun_s: float, seconds: float, first_s: Float64, last_s: Float64) -> float:
    """When a node can send, in that many seconds, a chunk that transfer ``p`` brings it; at ``begun_s`` if it held it.

    An accelerator sends what has arrived whole. A router sends as bytes come, and ends no sooner than they end.
    """
    if p == HELD:
        return begun_s
    if relays:
        return max(float(first_s[p]), float(last_s[p] - seconds))
    return float(last_s[p])


def send(
    number: int, pipe: int, b: int, from_s: float, freed: int, pipes: Pipes, places: Places, chunks: Chunks,
    came: Int32, links: Links, sent: Sent, events: list[Event],
) -> float:  # fmt: skip
    """Send chunk ``b`` over a pipe as transfer ``number``: occupy its links, and announce its two events.

    Args:
        from_s: when it can start at the earliest, if the chunk is there by then.
        freed: what the event of a complete transmission names.
    Returns:
        When the last byte arrives.
    """
    _, _, hop_offsets, hop_links, hop_late_s, latency_s, per_byte_s, _, _, steps = pipes
    u, v, nodes = pipes.src[pipe], pipes.dst[pipe], len(places.kind)
    parent, size_bytes = came[b * nodes + u], chunks.size_bytes[b]
    whole = links.until_s.shape[1] == 1
    rate = 1.0 if whole else rate_at(pipe, from_s, pipes, links)  # handing on tuples takes longer than it does
    seconds = sending_s(pipe, from_s, size_bytes, per_byte_s[pipe], steps) / rate
    ready = ready_at(parent, places.kind[u] == ROUTER, chunks.start_s[b], seconds, sent.first_s, sent.last_s)
    start = max(from_s, ready)
    if start > from_s and steps.offsets[pipe + 1] > steps.offsets[pipe]:
        seconds = sending_s(pipe, start, size_bytes, per_byte_s[pipe], steps)
        # no byte leaves before it came; the simulator gives the exact time
        seconds = max(seconds, sent.last_s[parent] - start) if parent >= 0 else seconds
    first = start + latency_s[pipe]
    last: float = first + seconds
    sent.pipe[number], sent.chunk[number], sent.parent[number] = pipe, b, max(parent, -1)
    sent.start_s[number], sent.seconds[number] = start, seconds
    sent.first_s[number], sent.last_s[number] = first, last
    came[b * nodes + v] = number
    for i in range(hop_offsets[pipe], hop_offsets[pipe + 1]):
        link = hop_links[i]
        j = 0 if whole else links.until_s[link].argmin()
        links.until_s[link, j], links.used[link, j] = start + hop_late_s[i] + seconds, rate * links.share[i]
    heappush(events, (start + seconds, SENT, freed))
    # a router can send on once the first byte is there
    heappush(events, (first if places.kind[v] == ROUTER else last, ARRIVED, number))
    return last


def enqueue(pipe: int, b: int, head: Int64, tail: Int64, queued_chunk: list[int], following: list[int]) -> None:
    """Put chunk ``b`` last into the queue of a pipe: a linked list of entries from ``head`` to ``tail``."""
    queued_chunk.append(b)
    following.append(-1)
    entry = len(queued_chunk) - 1
    if head[pipe] < 0:
        head[pipe] = entry
    else:
        following[tail[pipe]] = entry
    tail[pipe] = entry
