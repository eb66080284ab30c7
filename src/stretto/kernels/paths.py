"""Shortest paths."""

from heapq import heappop, heappush

import numpy as np


def all_pairs(out_offsets, out_links, link_dst, weight):
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


def to_goals(in_offsets, in_links, link_src, weight, goal_offsets, goal_nodes):
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
