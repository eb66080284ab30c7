"""Out-trees that grow edge by edge so that all other trees can still grow (Edmonds 1973; Tarjan 1974)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.maxflow import push

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


class RankEdges(NamedTuple):
    """The edges of a network of ranks.

    Attributes:
        tail, head: int64[edges], ranks as places from 0 on.
        capacity: int64[edges], how many trees each edge can carry.
        out_offsets, out, in_offsets, into: the edges that leave each rank, and those that enter it, as CSR.
    """

    tail: Int64
    head: Int64
    capacity: Int64
    out_offsets: Int64
    out: Int64
    in_offsets: Int64
    into: Int64


class FlowNetwork(NamedTuple):
    """A network for max-flows that leads back from every rank to ``target``, see :mod:`stretto.planners.forest.pack`.

    Attributes:
        offsets, to, pair, capacity: arcs, see :mod:`stretto.kernels.maxflow`.
        forward: int64[...], the arcs of the edges, then the arc from each rank to the target.
    """

    offsets: Int64
    to: Int64
    pair: Int64
    capacity: Int64
    forward: Int64
    target: int


class GrowingTree(NamedTuple):
    """A tree that does not reach all ranks yet."""

    order: Int64  # int64[ranks], the ranks that it reaches, in that order; only the first ones are valid
    arrival: Float64  # float64[ranks], the distance of each rank from the root
    via: Int64  # int64[ranks], the edge that leads to each rank, -1 at the root


def grow(
    network: FlowNetwork,
    edges: RankEdges,
    length: Float64,
    left: Int64,
    tree: GrowingTree,
    size: int,
    count: int,
    reserved: int,
) -> tuple[int, int, int]:
    """Grow equal out-trees until they reach all ranks, or no edge can be taken by all of them.

    An edge can be taken as often as leaves enough for all other trees still to grow. Of the edges that all trees can
    take, the one is taken that ends nearest to the root.

    Args:
        network: ``capacity`` is changed in place, as are ``left`` and the tree.
        length: float64[edges].
        left: int64[edges], how many trees may still take each edge.
        size: ranks that the tree reaches.
        count: how many equal trees there are.
        reserved: how many other trees must still be able to grow.
    Returns:
        How many ranks are reached; the edge that most of the trees can take, where not all can, or -1; and how many.
    """
    offsets, to, pair, capacity, forward, target = network
    tail, head, _, out_offsets, out, _, _ = edges
    order, arrival, via = tree
    ranks = len(order)
    inside = np.zeros(ranks, dtype=np.bool_)
    front = np.empty(len(tail), dtype=np.int64)
    tried_at = np.full(len(tail), -1, dtype=np.int64)
    ahead = 0
    for i in range(size):
        inside[order[i]] = True
        for k in range(out_offsets[order[i]], out_offsets[order[i] + 1]):
            front[ahead] = out[k]
            ahead += 1
    while size < ranks:
        kept = 0
        for i in range(ahead):
            if not inside[head[front[i]]] and left[front[i]] > 0:
                front[kept] = front[i]
                kept += 1
        ahead = kept
        best, most = -1, 0
        while most < count:
            chosen, chosen_distance, wide = -1, 0.0, False
            for i in range(ahead):
                e = front[i]
                if tried_at[e] == size or min(count, left[e]) <= most or (wide and left[e] < count):
                    continue
                distance = arrival[tail[e]] + length[e]
                if chosen < 0 or (not wide and left[e] >= count) or distance < chosen_distance:
                    chosen, chosen_distance, wide = e, distance, left[e] >= count
            if chosen < 0:
                break
            tried_at[chosen] = size
            limit = min(count, left[chosen])
            residual = capacity.copy()
            residual[forward[len(tail) + tail[chosen]]] = reserved + limit
            flow, _ = push(offsets, to, pair, residual, head[chosen], target, reserved + limit)
            if flow - reserved > most:
                best, most = chosen, flow - reserved
        if most < count:
            return size, best, most
        left[best] -= count
        capacity[forward[best]] = left[best]
        order[size], inside[head[best]], via[head[best]] = head[best], True, best
        arrival[head[best]] = arrival[tail[best]] + length[best]
        for k in range(out_offsets[head[best]], out_offsets[head[best] + 1]):
            front[ahead] = out[k]
            ahead += 1
        size += 1
    return size, -1, count
