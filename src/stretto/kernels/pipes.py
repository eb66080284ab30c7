"""Pipes: ways from one storing node to the next, through nodes that only pass bytes on."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .steps import Steps

Bool = NDArray[np.bool_]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

SPREAD = 0.01
"""Share by which a link looks dearer when it is part of the most pipes, so that equal ways take turns."""


class Lists(NamedTuple):
    """Lists of different lengths (CSR): list i is ``values[offsets[i]:offsets[i + 1]]``."""

    offsets: Int64
    values: Int64


class Pipes(NamedTuple):
    """The pipes of a network, see :mod:`stretto.schedule.pipes`.

    Attributes:
        src, dst: int64[pipes].
        hop_offsets, hop_links: CSR, the links of each pipe.
        hop_late_s: float64[hops], how much later than the beginning of its pipe each link carries the bytes.
        latency_s, per_byte_s: float64[pipes], seconds, and seconds a byte.
        out_offsets, out_pipes: CSR, the pipes that leave each node.
        steps: how pipes change with time, from ``per_byte_s`` on.
    """

    src: Int64
    dst: Int64
    hop_offsets: Int64
    hop_links: Int64
    hop_late_s: Float64
    latency_s: Float64
    per_byte_s: Float64
    out_offsets: Int64
    out_pipes: Int64
    steps: Steps


class Goals(NamedTuple):
    """Where each chunk must come, see :mod:`stretto.schedule.pipes`.

    Attributes:
        came: int32[chunks * nodes], what each node knows of each chunk at first.
        whole_region: bool[chunks], its goals are regions.
        goal, near: for each chunk (``offsets``) its goals, and the holder nearest to each.
        distance: float64[goals, nodes], seconds of a typical chunk to each goal.
        beside: bool[goals, nodes], whether a pipe leads into the goal.
        single: the goal of single node v is v + this; the goal of a region is the number of the region.
    """

    came: Int32
    whole_region: Bool
    offsets: Int64
    goal: Int64
    near: Int64
    distance: Float64
    beside: Bool
    single: int


def find_pipes(
    out_offsets: Int64, out_links: Int64, link_src: Int64, link_dst: Int64, weight: Float64, passed: Bool, ways: int
) -> tuple[Int64, Int64, Int64, Int64]:
    """A pipe for each link between storing nodes, and one for each pair joined through passed nodes.

    Args:
        out_offsets, out_links: CSR, the links that leave each node.
        weight: float64[links], seconds that a typical chunk takes. A pipe takes the way of the least sum.
        passed: bool[nodes], nodes that pipes pass through.
        ways: pipes for each such pair, at most. A further one has no link between passed nodes that leads from the
            same node to anywhere in one before it.
    Returns:
        pipe_src, pipe_dst: int64[pipes]; hop_offsets, hop_links: CSR, the links of each.
    """
    nodes = len(passed)
    src, dst, offsets, hops = [0], [0], [0], [0]
    src.clear()
    dst.clear()
    hops.clear()
    use = np.zeros(len(link_src))
    most = 1.0
    blocked = np.full(len(link_src), -1, dtype=np.int64)
    distance = np.full(nodes, np.inf)
    via = np.full(nodes, -1, dtype=np.int64)
    heap = [(0.0, 0)]
    for u in range(nodes):
        if passed[u]:
            continue
        beyond = False
        for e in range(out_offsets[u], out_offsets[u + 1]):
            link = out_links[e]
            if passed[link_dst[link]]:
                beyond = True
                continue
            src.append(u)
            dst.append(link_dst[link])
            hops.append(link)
            offsets.append(len(hops))
        if not beyond:
            continue
        first = len(hops)
        for way in range(ways):
            distance[:] = np.inf
            distance[u] = 0.0
            heap.clear()
            heappush(heap, (0.0, u))
            while len(heap) > 0:
                far, v = heappop(heap)
                if far > distance[v] or (v != u and not passed[v]):
                    continue
                for e in range(out_offsets[v], out_offsets[v + 1]):
                    link = out_links[e]
                    w = link_dst[link]
                    if (v == u and not passed[w]) or blocked[link] == u:
                        continue
                    reach = far + weight[link] * (1.0 + SPREAD * use[link] / most)
                    if reach < distance[w]:
                        distance[w] = reach
                        via[w] = link
                        heappush(heap, (reach, w))
            for w in range(nodes):
                if passed[w] or w == u or distance[w] == np.inf:
                    continue
                begin = len(hops)
                v, between = w, False
                while v != u:
                    between = between or (passed[link_src[via[v]]] and passed[v])
                    v = link_src[via[v]]
                if way > 0 and not between:
                    continue
                v = w
                while v != u:
                    hops.append(via[v])
                    use[via[v]] += 1.0
                    most = max(most, use[via[v]])
                    v = link_src[via[v]]
                length = len(hops) - begin
                for i in range(length // 2):
                    hops[begin + i], hops[begin + length - 1 - i] = hops[begin + length - 1 - i], hops[begin + i]
                src.append(u)
                dst.append(w)
                offsets.append(len(hops))
            if way + 1 < ways:
                for link in hops[first:]:
                    if passed[link_src[link]] and passed[link_dst[link]]:
                        blocked[link] = u
    return np.array(src), np.array(dst), np.array(offsets), np.array(hops)


def free_from(pipe: int, hop_offsets: Int64, hop_links: Int64, hop_late_s: Float64, free_at: Float64) -> float:
    """From when all links of a pipe are free, each at the time at which the pipe's bytes would come there, seconds.

    It takes the arrays of :class:`Pipes` one by one, since handing on the tuple would take longer than the loop.
    """
    t = 0.0
    for i in range(hop_offsets[pipe], hop_offsets[pipe + 1]):
        t = max(t, free_at[hop_links[i]] - hop_late_s[i])
    return t
