"""Who can reach whom: before anything is planned, and when a network breaks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .collective import Collective
from .topology import Topology


def find_unreachable(topology: Topology, collective: Collective) -> tuple[int, int] | None:
    """The first (holder, wanting) pair of nodes with no path between them, None if all are joined.

    The nodes of a plane count as joined.
    """
    first = int(collective.ranks[0])
    forward, backward = reachable_from(topology, [first]), reachable_from(topology, [first], backward=True)
    if forward[collective.ranks].all() and backward[collective.ranks].all():
        return None
    reached: dict[int, NDArray[np.bool_]] = {}
    for p in range(len(collective.piece_bytes)):
        holders = [int(v) for v in collective.ranks[collective.holders[p]]]
        for h in holders:
            if h not in reached:
                reached[h] = reachable_from(topology, [h])
        # a sum needs all its holders, a copy any of them
        gather = np.all if collective.reduces else np.any
        served = gather([reached[h] for h in holders], axis=0)
        for w in map(int, collective.ranks[collective.wanted[p]]):
            if not served[w]:
                return next(h for h in holders if not reached[h][w]), w
    return None


def reachable_from(topology: Topology, nodes: Sequence[int], backward: bool = False) -> NDArray[np.bool_]:
    """bool[nodes], where one can get to from any of ``nodes`` (or from where to them)."""
    offsets, links = topology.in_links if backward else topology.out_links
    ends = topology.src if backward else topology.dst
    reached = np.zeros(topology.node_count, dtype=np.bool_)
    reached[list(nodes)] = True
    stack, planes = list(nodes), list(topology.planes)
    while stack:
        v = stack.pop()
        near = [int(w) for w in ends[links[offsets[v] : offsets[v + 1]]]]
        for plane in [p for p in planes if v in p.nodes]:
            near += map(int, plane.nodes)
            planes.remove(plane)
        fresh = {w for w in near if not reached[w]}
        reached[list(fresh)] = True
        stack += fresh
    return reached
