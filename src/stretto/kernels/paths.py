"""Shortest paths, and trees of them."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

Bool = NDArray[np.bool_]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


def distances(
    offsets: Int64, links: Int64 | Int32, ends: Int64, weight: Float64, start_offsets: Int64, start_nodes: Int64
) -> Float64:
    """float64[rows, nodes], the length of the shortest path to each node from the nearest start of a row.

    Args:
        offsets, links, ends: CSR of the links to follow from each node, and where each leads; the links that enter and
            where they come from give the lengths of paths *to* the starts.
        start_offsets, start_nodes: CSR, the starts of each row.
    """
    nodes, rows = len(offsets) - 1, len(start_offsets) - 1
    distance = np.full((rows, nodes), np.inf)
    heap = [(0.0, 0)]
    for k in range(rows):
        row = distance[k]
        heap.clear()
        for i in range(start_offsets[k], start_offsets[k + 1]):
            row[start_nodes[i]] = 0.0
            heappush(heap, (0.0, start_nodes[i]))
        while len(heap) > 0:
            d, v = heappop(heap)
            if d > row[v]:
                continue
            for e in range(offsets[v], offsets[v + 1]):
                w = ends[links[e]]
                far = d + weight[links[e]]
                if far < row[w]:
                    row[w] = far
                    heappush(heap, (far, w))
    return distance


def all_pairs(offsets: Int64, links: Int64 | Int32, ends: Int64, weight: Float64) -> Float64:
    """float64[nodes, nodes], the length of the shortest path from row to column, inf for none."""
    each = np.arange(len(offsets))
    return distances(offsets, links, ends, weight, each, each[:-1])


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
    least_s, least_slow = (np.min(latency), np.min(slowness)) if len(latency) > 0 else (0.0, 0.0)
    all_store = not np.any(passes)
    heap = [(0.0, 0)]
    for tree in range(len(roots)):
        root = roots[tree]
        row = reached_by[tree]
        arrives[:] = np.inf
        done[:] = False
        second = False
        arrives[root] = 0.0
        heap.clear()
        heappush(heap, (0.0, root))
        while len(heap) > 0:
            t, v = heappop(heap)
            if done[v]:
                continue
            # once for each tree: whether nobody can be reached sooner by way of the nodes that are still to come
            if second and all_store and t + least_s + size[tree] * least_slow >= np.max(arrives):
                break
            second = v == root
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
