"""Shortest ways between nodes that store, as trees of routes.

The cost of a link is its latency and, for a chunk of given size, the time that it takes: alpha
and beta of the alpha-beta model. Accelerators store and forward; switches, and whatever else a
route may pass through, join links to one pipe.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..kernels import at_speed
from ..kernels import paths as paths_kernel
from ..model.arrays import Ragged
from ..model.topology import Topology
from .trees import Int64, Trees


def shortest_trees(topology: Topology, roots: Int64, size_bytes: NDArray[np.float64], inward: bool = False) -> Trees:
    """The tree of shortest ways from each root for a chunk of each size (Dijkstra), or to it.

    Args:
        roots: int64[trees], nodes.
        size_bytes: float64[trees]; 0 for the least latency.
        inward: the ways *to* the root, for sums.
    """
    offsets, links = topology.in_links if inward else topology.out_links
    ends, starts = (topology.src, topology.dst) if inward else (topology.dst, topology.src)
    kernel_steps = float(len(roots)) * topology.link_count
    reached_by = at_speed(paths_kernel.shortest_trees, kernel_steps)(
        offsets.astype(np.int64), links.astype(np.int64), ends.astype(np.int64),
        topology.latency_s, 1.0 / topology.bandwidth, topology.transit, ~topology.is_switch,
        roots.astype(np.int64), size_bytes.astype(np.float64),
    )  # fmt: skip
    return _as_routes(topology, roots, reached_by, starts, inward)


def _as_routes(topology: Topology, roots: Int64, reached_by: Int64, starts: NDArray[np.int32], inward: bool) -> Trees:
    """Join the links between nodes that store to routes: back from each node until one that stores."""
    tree, node = np.nonzero(reached_by >= 0)
    stored = ~topology.is_switch[node]
    tree, node = tree[stored], node[stored]
    at, open_rows = node.copy(), np.arange(len(node))
    rows, taken = [], []
    while len(open_rows):
        link = reached_by[tree[open_rows], at[open_rows]]
        rows.append(open_rows)
        taken.append(link)
        at[open_rows] = starts[link]
        open_rows = open_rows[topology.transit[at[open_rows]] & (at[open_rows] != roots[tree[open_rows]])]
    row = np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)
    # walked away from the receiver: against the bytes in outward trees, with them in inward ones
    step = np.repeat(np.arange(len(rows)), [len(r) for r in rows])
    order = np.lexsort((step if inward else -step, row))
    values = (np.concatenate(taken) if taken else row)[order].astype(np.int32)
    offsets = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=len(node))))).astype(np.int64)
    toward, hop = np.full(reached_by.shape, -1), np.full(reached_by.shape, -1)
    toward[tree, node] = at
    hop[tree, node] = np.arange(len(node))
    return Trees(roots, toward, hop, Ragged(offsets, values))
