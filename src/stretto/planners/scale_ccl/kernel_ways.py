"""Which way a chunk goes on, and when nodes may hope to have it, by our own rules."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from ...kernels.pipes import Bool, Float64, Int32, Int64, Pipes
from ...kernels.steps import sending_s
from .kernel_states import LACKS, LACKS_WANTED, ROUTER, Places
from .kernel_transmission import SLACK, Links, idle_from


class Traffic(NamedTuple):
    """What is under way and what is planned, at the present moment."""

    links: Links
    backlog_s: Float64  # [pipes], seconds of chunks that are queued for each pipe or expected on it
    came: Int32  # [chunks * nodes], see :mod:`.kernel_states`


def expect(
    b: int, v: int, at_s: float, size_bytes: float, pipes: Pipes, slow: Bool, region: Int64, hoped_s: Float64
) -> None:
    """Chunk ``b`` will be at node ``v``: note when the rest of the region could have it from there, by fast pipes."""
    nodes = len(region)
    _, dst, _, _, _, latency_s, per_byte_s, out_offsets, out_pipes, _ = pipes
    hoped_s[b * nodes + v] = at_s
    front = [v]
    while len(front) > 0:
        u = front.pop()
        for e in range(out_offsets[u], out_offsets[u + 1]):
            pipe = out_pipes[e]
            w = dst[pipe]
            if slow[pipe] or region[w] != region[v]:
                continue
            then = hoped_s[b * nodes + u] + size_bytes * per_byte_s[pipe] + latency_s[pipe]
            if then < hoped_s[b * nodes + w]:
                hoped_s[b * nodes + w] = then
                front.append(w)


def find_way(
    u: int, b: int, goal: int, size_bytes: float, t: float, queue_weight: float, aside: bool, planned: Int64,
    mark: int, pipes: Pipes, places: Places, distance: Float64, traffic: Traffic, label: Float64, via: Int64,
    way: list[int],
) -> None:  # fmt: skip
    """f(link, buffer, progress): fill ``way`` with the pipes by which a chunk is soonest at its goal.

    Only the first pipe is taken; what follows is expected, and weighed again at the next node. Every step leads nearer
    to the goal; with ``aside``, steps inside the region of ``u`` only not farther than ``u`` is, so that accelerators
    with routers of their own share what is to leave (and any steps there, or from router to router, where pipes change
    with time). A pipe takes the chunk once it is free and has sent what is queued
    for it. A neighbour that has the chunk, is getting it, or (where ``planned`` has ``mark``) will get it for another
    goal costs nothing.

    Args:
        label, via: float64[nodes] and int64[nodes], room to search in.
    """
    src, dst, hop_offsets, hop_links, hop_late_s, latency_s, per_byte_s, out_offsets, out_pipes, steps = pipes
    kind, region = places
    links, backlog_s, came = traffic
    share, until_s, used = links
    nodes = len(kind)
    changes = len(steps.at_s) > 0
    label[:] = np.inf
    way.clear()
    label[u] = t
    front = [(t + distance[goal, u], u)]
    while len(front) > 0:
        key, v = heappop(front)
        if key > label[v] + distance[goal, v]:
            continue
        if distance[goal, v] == 0.0:
            while v != u:
                way.append(via[v])
                v = src[via[v]]
            way.reverse()
            return
        for e in range(out_offsets[v], out_offsets[v + 1]):
            pipe = out_pipes[e]
            w = dst[pipe]
            state = came[b * nodes + w]
            lacks = state == LACKS or state == LACKS_WANTED
            if not distance[goal, w] < distance[goal, v] and not (
                aside and w != u and region[v] == region[u] and region[w] == region[u]
                and (changes or distance[goal, w] <= distance[goal, u] * SLACK)
            ):  # fmt: skip
                continue
            then = label[v]
            if lacks and planned[pipe] != mark:
                free = idle_from(pipe, hop_offsets, hop_links, hop_late_s, share, until_s, used)
                # what is queued begins now at the earliest
                begin = max(then, max(t, free) + queue_weight * backlog_s[pipe])
                then = begin + latency_s[pipe]
                # a router sends on as bytes come, which a pipe that is slower than at first delays
                seconds = size_bytes * per_byte_s[pipe]
                slower = sending_s(pipe, begin, size_bytes, per_byte_s[pipe], steps) - seconds if changes else 0.0
                then += max(0.0, slower) if kind[w] == ROUTER else seconds + slower
            if then < label[w]:
                label[w], via[w] = then, pipe
                heappush(front, (then + distance[goal, w], w))
