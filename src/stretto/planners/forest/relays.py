"""Trees through nodes that store and are no ranks: accelerators beside the ranks, and routers without transit.

To find trees such a node is split off like a switch (:mod:`.forest_split`). But bytes cannot pass through it at once:
it keeps what came, and sends it on. So a way through it becomes two edges, and the node a part of the tree; where
several ways of a tree pass through it, it gets the data once and sends it on along all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...model.topology import ACCELERATOR, Topology

Way = tuple[int, ...]


def find_relays(topology: Topology, ranks: NDArray[np.int32]) -> NDArray[np.bool_]:
    """bool[nodes], which store and are no ranks."""
    relays: NDArray[np.bool_] = topology.forwarding == ACCELERATOR
    relays[ranks] = False
    return relays


def through_relays(
    root: int, ways: Mapping[tuple[int, int], Way], topology: Topology, relays: NDArray[np.bool_]
) -> dict[int, tuple[int, Way]]:
    """For each node of a tree but the root, from which one it gets the data and over which links.

    Args:
        ways: links from one rank to another, for every edge of the tree; root first.
        topology: in which the links lead away from the root.
    """
    pieces: dict[int, dict[int, Way]] = {}
    for (x, _), way in ways.items():
        begin, node = 0, x
        for k, link in enumerate(way):
            end = int(topology.dst[link])
            if k == len(way) - 1 or relays[end]:
                pieces.setdefault(node, {}).setdefault(end, way[begin : k + 1])
                begin, node = k + 1, end
    found: dict[int, tuple[int, Way]] = {}
    reached = [root]
    for v in reached:
        for w, way in pieces.get(v, {}).items():
            if w != root and w not in found:
                found[w] = (v, way)
                reached.append(w)
    return found
