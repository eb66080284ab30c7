"""SCALE-CCL's Load-Aware Neighbour Forwarding (section 4.2): which queues a chunk is put into where it is.

Accelerators get a chunk from every neighbour ("broadcast"). Across the WAN it goes to one neighbour on the way to each
datacenter that lacks it, the one that f(link, buffer, progress) puts first. What the paper leaves open is marked
*open* where it is decided, and is an option where two readings are as good (:class:`Reading`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...kernels.chunks import Chunks
from ...kernels.pipes import Bool, Float64, Goals, Int32, Int64, Pipes
from ...kernels.steps import sending_s
from .kernel_states import LACKS, LACKS_WANTED, ROUTER, Places
from .kernel_transmission import Links, idle_from

NEARER = 1 - 1e-12
"""Distances whose ratio is not below this are alike."""

CLEARLY_NEARER = 1 - 1e-9
"""The same for who gets a chunk, so that rounding never takes it out of the queue again."""


class Reading(NamedTuple):
    """How what the paper leaves open is read."""

    queue: float  # in f: of a second that is queued for the link
    occupancy: float  # in f: of a second that is queued for the neighbour, or there for a router, q
    delivered: (
        float  # in f: of the share of the paper's chunk that the neighbour has, p, in transmissions of a subchunk
    )
    every_site: bool  # forwarding gives a chunk to a router for every datacenter that lacks it, not for one at a time
    siblings: bool  # a router's receivers D are the routers of its own datacenter, not all that the sender sends to
    by_figure: bool  # a queue between accelerators is not among the duplicates (figure 7); else all of P x D are


class Sites(NamedTuple):
    """Where nodes are, beside :class:`Places`."""

    site: Int64  # [nodes], the region of accelerators and of routers that they are joined to; else one of its own
    family: Int64  # [nodes], equal for routers of a site that lead to the same sites
    reach: Float64  # [goals, nodes], the seconds to each goal; for a region from the nearest accelerator of a region
    pipe_of: Int64  # [nodes, nodes], the pipe from one node to another that is used, -1 without one


class Queues(NamedTuple):
    """The queue of each pipe: a linked list of entries, whose chunks and followers are two lists of their own."""

    head: Int64  # [pipes], the first entry, -1 for none
    tail: Int64  # [pipes], the last one
    backlog_s: Float64  # [pipes], how long the link takes for what is queued
    occupied_s: Float64  # [nodes], how long links take for what is queued for each node, or there for a router


class Holdings(NamedTuple):
    """Who has what, and what is queued."""

    came: Int32  # [chunks * nodes], see :mod:`.kernel_states`
    queued: Bool  # [chunks, pipes]
    near_s: Float64  # [goals of chunks], how far the nearest node is that has the chunk or is getting it
    delivered: Int64  # [the paper's chunks, nodes], how many subchunks of each are at each node


def sends_to_all(u: int, v: int, places: Places) -> bool:
    """Whether everyone at the end ``v`` of a pipe gets what is at ``u``: inside a site, and from a router to it."""
    return bool(places.kind[v] != ROUTER and (places.kind[u] == ROUTER or places.region[u] == places.region[v]))


def is_useful(
    u: int, v: int, b: int, places: Places, goals: Goals, reach: Float64, came: Int32, near_s: Float64
) -> bool:  # fmt: skip
    """Whether chunk ``b`` in the queue from ``u`` to ``v`` is still to be sent.

    Who has it is excluded; across the WAN also who is no nearer to any datacenter that lacks it than those who have it,
    since the aim there is "to quickly forward subchunks to the next DC rather than replicate them at every BR".
    """
    state = came[b * len(places.kind) + v]
    if state != LACKS and state != LACKS_WANTED:
        return False
    if sends_to_all(u, v, places):
        return True
    for k in range(goals.offsets[b], goals.offsets[b + 1]):
        if reach[goals.goal[k], v] < near_s[k] * NEARER:
            return True
    return False


def forward_to_neighbours(
    u: int, b: int, piece: int, parts: int, t: float, arrived: bool, pipes: Pipes, places: Places, sites: Sites,
    chunks: Chunks, goals: Goals, reading: Reading, holdings: Holdings, links: Links, queues: Queues,
    targets: list[int],
) -> bool:  # fmt: skip
    """Fill ``targets`` with the pipes that are to carry chunk ``b`` on from node ``u``, which has it.

    Args:
        piece, parts: the paper's chunk of which ``b`` is a subchunk, and how many it has.
        arrived: whether the chunk is new at ``u``.
    Returns:
        Whether ``u`` may have to be asked again.
    """
    dst, out_offsets, out_pipes = pipes.dst, pipes.out_offsets, pipes.out_pipes
    came, queued, near_s, _ = holdings
    reach, nodes = sites.reach, len(places.kind)
    targets.clear()
    ask_again, pending = False, False
    for e in range(out_offsets[u], out_offsets[u + 1]):
        pipe = out_pipes[e]
        v = dst[pipe]
        if sites.pipe_of[u, v] != pipe:
            continue
        if not sends_to_all(u, v, places):
            pending = pending or queued[b, pipe]
        elif came[b * nodes + v] == LACKS_WANTED:
            # what figure 7 takes out of such a queue comes by another; what lines 8 to 21 do may have to be sent again
            ask_again = ask_again or not reading.by_figure
            if (arrived or not reading.by_figure) and _works(pipe, t, pipes) and not queued[b, pipe]:
                targets.append(pipe)
    best, first = np.inf, -1
    for k in range(goals.offsets[b], goals.offsets[b + 1]):
        goal = goals.goal[k]
        if near_s[k] == 0.0 or near_s[k] < reach[goal, u] * NEARER:
            continue
        ask_again = True
        cost, pipe = next_hop(
            u, b, goal, piece, parts, t, pipes, places, sites, chunks, goals, reading, holdings, links, queues,
            targets,
        )  # fmt: skip
        if pipe >= 0 and reading.every_site:
            targets.append(pipe)
        elif cost < best:
            best, first = cost, pipe
    # open: to one datacenter at a time, the next one when the transmission is complete
    if first >= 0 and not pending:
        targets.append(first)
    for pipe in targets:
        queued[b, pipe] = True
    return ask_again


def next_hop(
    u: int, b: int, goal: int, piece: int, parts: int, t: float, pipes: Pipes, places: Places, sites: Sites,
    chunks: Chunks, goals: Goals, reading: Reading, holdings: Holdings, links: Links, queues: Queues,
    targets: list[int],
) -> tuple[float, int]:  # fmt: skip
    """next(s) = argmin f(link, buffer, progress) over the neighbours that lead to a goal.

    These are the neighbours in the goal; without any, those that are nearer to it; without any, accelerators of the
    site of ``u`` that want nothing but are nearer. Accelerators in the goal all get the chunk into their queues, as
    from a router: the pipe to them passes through one (sums, :mod:`stretto.schedule.inversion`).

    Returns:
        f and the pipe; infinite and -1 where the chunk is on its way to the goal from here.
    """
    dst, out_offsets, out_pipes = pipes.dst, pipes.out_offsets, pipes.out_pipes
    came, queued, _, delivered = holdings
    kind, region = places
    nodes, whole = len(kind), goals.whole_region[b]
    best, chosen, best_rank = np.inf, -1, 3
    for e in range(out_offsets[u], out_offsets[u + 1]):
        pipe = out_pipes[e]
        v = dst[pipe]
        if sites.reach[goal, v] < sites.reach[goal, u] * CLEARLY_NEARER:
            rank = 0 if whole and sites.site[v] == goal else 1
        elif whole and region[u] >= 0 and region[v] == region[u] and goals.distance[goal, v] < goals.distance[goal, u]:
            rank = 2
        else:
            continue
        state = came[b * nodes + v]
        if rank > best_rank or sites.pipe_of[u, v] != pipe or not _works(pipe, t, pipes):
            continue
        if queued[b, pipe] or (state != LACKS and state != LACKS_WANTED):
            best, chosen, best_rank = -np.inf, -1, rank
        elif whole and state == LACKS_WANTED and sends_to_all(u, v, places):
            continue
        elif rank == 0 and kind[v] != ROUTER and reading.every_site:
            targets.append(pipe)
        else:
            share = delivered[piece, v] / parts
            cost = _f(pipe, t, chunks.size_bytes[b], share, pipes, reading, links, queues)
            if rank < best_rank or cost < best:
                best, chosen, best_rank = cost, pipe, rank
    return (best, chosen) if chosen >= 0 else (np.inf, -1)


def _f(
    pipe: int, t: float, size_bytes: float, share: float, pipes: Pipes, reading: Reading, links: Links,
    queues: Queues,
) -> float:  # fmt: skip
    """f(link, buffer, progress). Open: in seconds, of the link its wait and transmission, and weights of the others."""
    seconds = size_bytes * pipes.per_byte_s[pipe]
    free = idle_from(pipe, pipes.hop_offsets, pipes.hop_links, pipes.hop_late_s, links.share, links.until_s, links.used)
    wait = max(0.0, free - t)
    cost = wait + reading.queue * queues.backlog_s[pipe] + seconds + pipes.latency_s[pipe]
    occupied_s = queues.occupied_s[pipes.dst[pipe]]
    return float(cost + reading.occupancy * occupied_s + reading.delivered * seconds * share)


def _works(pipe: int, t: float, pipes: Pipes) -> bool:
    """Whether a pipe still carries anything, which one that fails for good does not."""
    steps = pipes.steps
    return len(steps.at_s) == 0 or sending_s(pipe, t, 1.0, pipes.per_byte_s[pipe], steps) < np.inf


def note_arrival(
    b: int, v: int, piece: int, goals: Goals, reach: Float64, near_s: Float64, delivered: Int64
) -> None:  # fmt: skip
    """Node ``v`` has chunk ``b``, or is getting it."""
    delivered[piece, v] += 1
    for k in range(goals.offsets[b], goals.offsets[b + 1]):
        near_s[k] = min(near_s[k], reach[goals.goal[k], v])


def change_backlog(pipe: int, seconds: float, pipes: Pipes, places: Places, queues: Queues) -> None:
    """So many seconds more are queued for a pipe."""
    u, v = pipes.src[pipe], pipes.dst[pipe]
    queues.backlog_s[pipe] += seconds
    queues.occupied_s[v] += seconds
    if places.kind[v] == ROUTER:
        queues.occupied_s[u] += seconds
