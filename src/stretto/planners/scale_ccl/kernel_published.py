"""SCALE-CCL as published: the synthesizer, a loop over events (section 4.1).

At each event chunks are put into queues (Load-Aware Neighbour Forwarding, :mod:`.kernel_forwarding`), and every idle
link takes one from its queue (Algorithm 1, :mod:`.kernel_scheduling`).
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from ...kernels.chunks import Chunks
from ...kernels.pipes import Bool, Float64, Goals, Int64, Lists, Pipes
from .kernel_forwarding import (
    Holdings,
    Queues,
    Reading,
    Sites,
    change_backlog,
    forward_to_neighbours,
    is_useful,
    note_arrival,
)
from .kernel_scheduling import schedule_subchunk
from .kernel_states import AGAIN, ARRIVED, BEGUN, LACKS_WANTED, SENT, Places
from .kernel_transmission import SLACK, Event, Sent, enlarged, enqueue, idle_from, idle_links, room_for, send


def synthesize(
    pipes: Pipes, share: Float64, into: Lists, users: Lists, places: Places, sites: Sites, chunks: Chunks,
    chunk_piece: Int64, goals: Goals, reading: Reading,
) -> tuple[Sent, int, int, float]:  # fmt: skip
    """Send every chunk to everyone who wants it, as the paper has it.

    Args:
        share: float64[hops], how much of each link a pipe uses that is as fast as its slowest link.
        into: for each node the pipes that enter it. users: for each link the pipes that use it.
        chunks: the paper's subchunks. chunk_piece: int64[chunks], the paper's chunk of which each is a part.
    Returns:
        The transfers; how many there are; how many wanted deliveries are missing; and when the last other one is made.
    """
    src, dst, hop_offsets, hop_links, hop_late_s, _, per_byte_s, _, _, _ = pipes
    size_bytes, begun_s, hold_offsets, hold_nodes = chunks
    nodes, chunk_count, pipe_count = len(places.kind), len(size_bytes), len(src)
    came = goals.came.copy()
    missing = int((came == LACKS_WANTED).sum())
    sent = room_for(missing + 16)
    count, finish = 0, 0.0
    parts = np.bincount(chunk_piece)
    holdings = Holdings(
        came, np.zeros((chunk_count, pipe_count), dtype=np.bool_), np.full(len(goals.goal), np.inf),
        np.zeros((len(parts), nodes), dtype=np.int64),
    )  # fmt: skip
    links = idle_links(len(users.offsets) - 1, share)
    queues = Queues(
        np.full(pipe_count, -1, dtype=np.int64), np.full(pipe_count, -1, dtype=np.int64), np.zeros(pipe_count),
        np.zeros(nodes),
    )  # fmt: skip
    queued_chunk, following = [0], [0]
    queued_chunk.clear()
    following.clear()
    # for each chunk the nodes that have it; the first ``asked`` of them may still have to send it on
    holds = np.empty((chunk_count, nodes), dtype=np.int32)
    asked = np.zeros(chunk_count, dtype=np.int64)
    retry_at = np.full(pipe_count, -1.0)
    awake = np.zeros(pipe_count, dtype=np.bool_)
    woken, targets = [0], [0]
    woken.clear()
    events: list[Event] = [(0.0, 0, 0)]
    events.clear()
    holder_chunk = np.repeat(np.arange(chunk_count), np.diff(hold_offsets))
    for i in range(len(hold_nodes)):
        b = holder_chunk[i]
        heappush(events, (begun_s[b], BEGUN, i))
        note_arrival(b, hold_nodes[i], chunk_piece[b], goals, sites.reach, holdings.near_s, holdings.delivered)

    # with no event left, what is missing cannot be reached
    while missing > 0 and len(events) > 0:
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
                b, new = sent.chunk[which], -1
                _wake_users(sent.pipe[which], hop_offsets, hop_links, users, awake, woken)
            else:
                b = sent.chunk[which] if what == ARRIVED else holder_chunk[which]
                new = dst[sent.pipe[which]] if what == ARRIVED else hold_nodes[which]
                holds[b, asked[b]] = new
                asked[b] += 1
            still = 0
            for i in range(asked[b]):
                u = holds[b, i]
                if forward_to_neighbours(
                    u, b, chunk_piece[b], parts[chunk_piece[b]], t, u == new, pipes, places, sites, chunks, goals,
                    reading, holdings, links, queues, targets,
                ):  # fmt: skip
                    holds[b, still] = u
                    still += 1
                for pipe in targets:
                    change_backlog(pipe, size_bytes[b] * per_byte_s[pipe], pipes, places, queues)
                    enqueue(pipe, b, queues.head, queues.tail, queued_chunk, following)
                    _wake(pipe, awake, woken)
            asked[b] = still

        for pipe in sorted(woken):
            if not _awaits(pipe, pipes, places, sites, size_bytes, goals, holdings, queues, queued_chunk, following):
                continue
            until = idle_from(pipe, hop_offsets, hop_links, hop_late_s, share, links.until_s, links.used)
            if until > t * SLACK:
                if hop_offsets[pipe + 1] - hop_offsets[pipe] > 1 and retry_at[pipe] != until:
                    retry_at[pipe] = until
                    heappush(events, (until, AGAIN, pipe))
                continue
            b = schedule_subchunk(
                pipe, t, pipes, into, places, sites, chunks, goals, reading, holdings, links, queues, queued_chunk,
                following,
            )  # fmt: skip
            if b < 0:
                continue
            v = dst[pipe]
            wanted = came[b * nodes + v] == LACKS_WANTED
            if count == len(sent.pipe):
                sent = enlarged(sent)
            last = send(
                count, pipe, b, max(t, until), count, pipes, places, chunks, came, links, sent, events
            )  # fmt: skip
            note_arrival(b, v, chunk_piece[b], goals, sites.reach, holdings.near_s, holdings.delivered)
            if wanted:
                missing -= 1
                finish = max(finish, last)
            count += 1

    return sent, count, missing, finish


def _wake(pipe: int, awake: Bool, woken: list[int]) -> None:
    """Let a pipe try to send at this moment."""
    if not awake[pipe]:
        awake[pipe] = True
        woken.append(pipe)


def _wake_users(
    pipe: int, hop_offsets: Int64, hop_links: Int64, users: Lists, awake: Bool, woken: list[int]
) -> None:  # fmt: skip
    """Let all pipes try that share a link with one that has ended a transmission."""
    for i in range(hop_offsets[pipe], hop_offsets[pipe + 1]):
        for e in range(users.offsets[hop_links[i]], users.offsets[hop_links[i] + 1]):
            _wake(users.values[e], awake, woken)


def _awaits(
    pipe: int, pipes: Pipes, places: Places, sites: Sites, size_bytes: Float64, goals: Goals, holdings: Holdings,
    queues: Queues, queued_chunk: list[int], following: list[int],
) -> bool:  # fmt: skip
    """Whether something is queued for a pipe that is still to be sent, which is then first; what is not, leaves."""
    head, u, v = queues.head, pipes.src[pipe], pipes.dst[pipe]
    while head[pipe] >= 0:
        b = queued_chunk[head[pipe]]
        if b >= 0 and is_useful(u, v, b, places, goals, sites.reach, holdings.came, holdings.near_s):
            return True
        if b >= 0:
            holdings.queued[b, pipe] = False
            change_backlog(pipe, -size_bytes[b] * pipes.per_byte_s[pipe], pipes, places, queues)
        head[pipe] = following[head[pipe]]
    return False
