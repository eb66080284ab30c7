"""Shortest paths, and trees of them."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

Bool = NDArray[np.bool_]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


def all_pairs(out_offsets: Int64, out_links: Int32, link_dst: Int64, weight: Float64) -> Float64:
    """float64[nodes, nodes], the length of the shortest path from row to column, inf for none."""
    nodes = len(out_offsets) - 1
    distance = np.full((nodes, nodes), np.inf)
    heap = [(0.0, 0)]
    for source in range(nodes):
        row = distance[source]
        row[source] = 0.0
        heap.clear()
        heappush(heap, (0.0, source))
        while len(heap) > 0:
            d, v = heappop(heap)
            if d > row[v]:
                continue
            for e in range(out_offsets[v], out_offsets[v + 1]):
                w = link_dst[out_links[e]]
                far = d + weight[out_links[e]]
                if far < row[w]:
                    row[w] = far
                    heappush(heap, (far, w))
    return distance


def to_goals(
    in_offsets: Int64, in_links: Int64, link_src: Int64, weight: Float64, goal_offsets: Int64, goal_nodes: Int64
) -> Float64:
    """float64[goals, nodes], the length of the shortest path from each node to the nearest of a goal."""
    nodes = len(in_offsets) - 1
    goals = len(goal_offsets) - 1
    distance = np.full((goals, nodes), np.inf)
    heap = [(0.0, 0)]
    for goal in range(goals):
        row = distance[goal]
        heap.clear()
        for i in range(goal_offsets[goal], goal_offsets[goal + 1]):
            row[goal_nodes[i]] = 0.0
            heappush(heap, (0.0, goal_nodes[i]))
        while len(heap) > 0:
            d, v = heappop(heap)
            if d > row[v]:
                continue
            for e in range(in_offsets[v], in_offsets[v + 1]):
                w = link_src[in_links[e]]
                far = d + weight[in_links[e]]
                if far < row[w]:
                    row[w] = far
                    heappush(heap, (far, w))
    return distance


def shortest_trees(
    offsets: Int64, links: Int64, ends: Int64, latency: Float64, slowness: Float64, passes: Bool, stores: Bool,
    roots: Int64, size: Float64,
) -> Int64:  # fmt: skip
    """int64[roots, nodes], the link by which the shortest way from each root comes to each node; -1 for none.

    The way is that of one chunk: a node that stores sends it on when it has arrived whole; nodes
    that it passes through join their links to one pipe, as fast as its slowest link. At a node
    that is passed, the way that arrives first is kept.

    Args:
        offsets, links, ends: the links to follow from each node, and where each leads; the links
            that enter and where they come from give the ways *to* each root.
        latency: float64[links], seconds.
        slowness: float64[links], seconds a byte.
        passes, stores: bool[nodes], whether a route may pass through, or end and begin again.
        roots: int64[trees], where each tree begins.
        size: float64[trees], bytes of its chunk.
    """
    nodes = len(offsets) - 1
    reached_by = np.full((len(roots), nodes), -1, dtype=np.int64)
    arrives = np.empty(nodes)
    head = np.empty(nodes)
    slowest = np.empty(nodes)
    done = np.empty(nodes, dtype=np.bool_)
    heap = [(0.0, 0)]
    for tree in range(len(roots)):
        root = roots[tree]
        row = reached_by[tree]
        arrives[:] = np.inf
        done[:] = False
        arrives[root] = 0.0
        heap.clear()
        heappush(heap, (0.0, root))
        while len(heap) > 0:
            t, v = heappop(heap)
            if done[v]:
                continue
            done[v] = True
            if v == root or (stores[v] and not passes[v]):
                sent, slow = t, 0.0
            elif passes[v]:
                sent, slow = head[v], slowest[v]
            else:
                continue
            for e in range(offsets[v], offsets[v + 1]):
                link = links[e]
                w = ends[link]
                if done[w]:
                    continue
                pipe = max(slow, slowness[link])
                first = sent + latency[link]
                when = first + size[tree] * pipe
                if when < arrives[w]:
                    arrives[w] = when
                    head[w] = first
                    slowest[w] = pipe
                    row[w] = link
                    heappush(heap, (when, w))
    return reached_by
