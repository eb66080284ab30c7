"""Shortest paths between nodes that store, as trees of routes.

The cost of a link is its latency and, for a chunk of given size, the time that it takes: alpha
and beta of the alpha-beta model. Accelerators store and forward; switches, and whatever else a
route may pass through, join links to one pipe.
"""

from __future__ import annotations

import numpy as np

from ..kernels import at_speed
from ..kernels import paths as paths_kernel
from ..model.arrays import Float64, Int32, Int64, Ragged
from ..model.topology import Topology
from .trees import Trees


def shortest_trees(topology: Topology, roots: Int64, size_bytes: Float64, inward: bool = False) -> Trees:
    """Grow the tree of shortest paths from each root for a chunk of each size (Dijkstra), or to it.

    Args:
        roots: int64[trees], nodes.
        size_bytes: float64[trees]; 0 for the least latency.
        inward: paths lead *to* the root, for sums.
    """
    offsets, links = topology.in_links if inward else topology.out_links
    ends, starts = (topology.src, topology.dst) if inward else (topology.dst, topology.src)
    work = float(len(roots)) * topology.link_count
    reached_by = at_speed(paths_kernel.shortest_trees, work)(
        offsets.astype(np.int64), links.astype(np.int64), ends.astype(np.int64),
        topology.latency_s, 1.0 / topology.bandwidth, topology.transit, ~topology.is_switch,
        roots.astype(np.int64), size_bytes.astype(np.float64),
    )  # fmt: skip
    return _join_links(topology, roots, reached_by, starts, inward)


def _join_links(topology: Topology, roots: Int64, reached_by: Int64, starts: Int32, inward: bool) -> Trees:
    """Join links to routes: from each node that stores back to the next one that ends a route."""
    tree, node = np.nonzero(reached_by >= 0)
    stores = ~topology.is_switch[node]
    tree, node = tree[stores], node[stores]
    at, open_routes = node.copy(), np.arange(len(node))
    steps: list[tuple[Int64, Int64]] = []
    while len(open_routes):
        link = reached_by[tree[open_routes], at[open_routes]]
        steps.append((open_routes, link))
        at[open_routes] = starts[link]
        ahead = at[open_routes]
        open_routes = open_routes[topology.transit[ahead] & (ahead != roots[tree[open_routes]])]
    row = np.concatenate([row for row, _ in steps]) if steps else np.zeros(0, dtype=np.int64)
    link = np.concatenate([link for _, link in steps]) if steps else row
    # links were met from the receiver on: against the bytes in outward trees, with them in inward ones
    step = np.arange(len(steps)).repeat([len(row) for row, _ in steps])
    order = np.lexsort((step if inward else -step, row))
    toward, hop = np.full(reached_by.shape, -1), np.full(reached_by.shape, -1)
    toward[tree, node] = at
    hop[tree, node] = np.arange(len(node))
    return Trees(roots, toward, hop, Ragged.from_lengths(np.bincount(row, minlength=len(node)), link[order]))
