"""Trees through relays: nodes that store and are not ranks (other accelerators, and routers without transit).

To find trees a relay is split off like a switch (:mod:`.split`). But bytes cannot pass through it at once: it keeps
what has come and sends it on. So a path through a relay becomes two edges, and the relay a node of the tree; where
several paths of a tree pass through it, it gets the data once and sends it on along all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.arrays import Bool, Int32
from ...model.topology import ACCELERATOR, Topology
from .segments import Route, RoutedTree


def find_relays(topology: Topology, ranks: Int32) -> Bool:
    """bool[nodes], which nodes store and are not ranks."""
    relays = np.asarray(topology.forwarding == ACCELERATOR)
    relays[ranks] = False
    return relays


def through_relays(root: int, paths: Mapping[tuple[int, int], Route], topology: Topology, relays: Bool) -> RoutedTree:
    """The tree whose edges are these paths, cut at relays.

    Args:
        paths: links from one rank to another, for every edge of the tree, parents first.
        topology: in which the links lead away from the root.
    """
    hops: dict[int, dict[int, Route]] = {}
    for (x, _), path in paths.items():
        begin, node = 0, x
        for k, link in enumerate(path):
            end = int(topology.dst[link])
            if k == len(path) - 1 or relays[end]:
                hops.setdefault(node, {}).setdefault(end, path[begin : k + 1])
                begin, node = k + 1, end
    tree = RoutedTree({}, {})
    reached = [root]
    for v in reached:
        for w, route in hops.get(v, {}).items():
            if w != root and w not in tree.parent:
                tree.parent[w], tree.links[w] = v, route
                reached.append(w)
    return tree
