"""Symmetries of a network: permutations of its nodes after which it is the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..topology import Topology

Int64 = NDArray[np.int64]

MOST = 2_000
"""A network with more symmetries is taken to have none but the identity."""


def symmetries(topology: Topology) -> Int64:
    """int64[symmetries, nodes]: where each takes every node, the identity first; a group."""
    n = topology.node_count
    identity = np.arange(n)[None]
    kinds = np.stack((topology.bandwidth, topology.latency_s))
    kind = np.zeros((n, n), dtype=np.int64)
    kind[topology.src, topology.dst] = 1 + np.unique(kinds, axis=1, return_inverse=True)[1].reshape(-1)
    if np.count_nonzero(kind) < topology.link_count:
        return identity  # links side by side
    np.fill_diagonal(kind, -1 - topology.kind.astype(np.int64))
    alike = _refined(kind)
    order = _connected_order(kind)
    found: list[Int64] = []
    image = np.full(n, -1, dtype=np.int64)

    def extend(depth: int) -> bool:
        """Whether there were not too many."""
        if depth == n:
            found.append(image.copy())
            return len(found) <= MOST
        v = order[depth]
        before = order[:depth]
        for w in np.flatnonzero((alike == alike[v]) & ~np.isin(np.arange(n), image[before])).tolist():
            to = image[before]
            if (kind[v, before] == kind[w, to]).all() and (kind[before, v] == kind[to, w]).all():
                image[v] = w
                if not extend(depth + 1):
                    return False
                image[v] = -1
        return True

    if not extend(0):
        return identity
    group = np.array(found)
    return group[np.argsort((group != identity).any(axis=1), kind="stable")]


def _refined(kind: Int64) -> Int64:
    """int64[nodes], a colour each; nodes of different ones are not alike, by what is around them."""
    n = len(kind)
    colour = np.unique(np.diag(kind), return_inverse=True)[1].reshape(-1)
    while True:
        around = [
            np.concatenate(([colour[v]], np.sort(kind[v] * n + colour), np.sort(kind[:, v] * n + colour)))
            for v in range(n)
        ]
        finer = np.unique(np.array(around), axis=0, return_inverse=True)[1].reshape(-1)
        if finer.max() == colour.max():
            return finer.astype(np.int64)
        colour = finer


def _connected_order(kind: Int64) -> Int64:
    """Nodes so that each is joined to earlier ones where it can be."""
    n = len(kind)
    order: list[int] = []
    joined = np.zeros(n)
    left = np.ones(n, dtype=np.bool_)
    for _ in range(n):
        v = int(np.argmax(np.where(left, joined, -1.0)))
        order.append(v)
        left[v] = False
        joined += (kind[v] != 0) | (kind[:, v] != 0)
    return np.array(order, dtype=np.int64)
