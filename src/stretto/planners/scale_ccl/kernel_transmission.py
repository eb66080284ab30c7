"""What SCALE-CCL's two event loops share (section 4.1): queues of pipes, and transmissions with their events."""

from __future__ import annotations

from heapq import heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int8 = NDArray[np.int8]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

Event = tuple[float, int, int]
"""A moment in seconds, the kind of event, and a transfer, a pipe or a holder."""

ARRIVED, SENT, AGAIN, BEGUN = 0, 1, 2, 3
"""Kinds of events: the receiver of a chunk can send it on; a transmission is complete; a pipe may try once more; a
chunk is at its first holder."""

LACKS_WANTED, LACKS, QUEUED_WANTED, QUEUED, HELD = -1, -2, -3, -4, -9
"""``came[chunk * nodes + node]``: the transfer that brings the chunk to the node, or one of these."""

ROUTER = 1
"""The kind of node that sends on as bytes come."""

SLACK = 1 + 1e-12
"""Moments whose ratio is below this are one moment."""


class Places(NamedTuple):
    """The nodes.

    Attributes:
        kind: int8[nodes].
        region: int64[nodes], the datacenter of each accelerator, -1 for routers.
    """

    kind: Int8
    region: Int64


class Sent(NamedTuple):
    """The transfers so far, in the order of their start; rows beyond them are unused.

    Attributes:
        pipe, chunk: int64[rows].
        parent: int64[rows], the transfer that brought the chunk to the source, -1 if the source held it.
        start_s, seconds: float64[rows], when a transmission starts, and how long it keeps a link busy.
    """

    pipe: Int64
    chunk: Int64
    parent: Int64
    start_s: Float64
    seconds: Float64


def ready_at(
    p: int, relays: bool, begun_s: float, seconds: float, sent_pipe: Int64, sent_start_s: Float64,
    sent_seconds: Float64, latency_s: Float64,
) -> float:  # fmt: skip
    """When a node can send, in that many seconds, a chunk that transfer ``p`` brings it; at ``begun_s`` if it held it.

    An accelerator sends what has arrived whole. A router sends as bytes come, and ends no sooner than they end.
    """
    if p == HELD:
        return begun_s
    first: float = sent_start_s[p] + latency_s[sent_pipe[p]]
    if relays:
        return max(first, float(first + sent_seconds[p] - seconds))
    return float(first + sent_seconds[p])


def transmit(
    number: int, pipe: int, start_s: float, seconds: float, latency_s: float, freed: int, relays: bool,
    hop_offsets: Int64, hop_links: Int64, hop_late_s: Float64, free_at: Float64, events: list[Event],
) -> float:  # fmt: skip
    """Start transfer ``number`` over a pipe: occupy its links, and announce its two events.

    Args:
        freed: what the event of a complete transmission names.
        relays: whether the receiver is a router, which can send on once the first byte is there.
    Returns:
        When the last byte arrives.
    """
    for i in range(hop_offsets[pipe], hop_offsets[pipe + 1]):
        free_at[hop_links[i]] = start_s + hop_late_s[i] + seconds
    last = start_s + latency_s + seconds
    heappush(events, (start_s + seconds, SENT, freed))
    heappush(events, (start_s + latency_s if relays else last, ARRIVED, number))
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
