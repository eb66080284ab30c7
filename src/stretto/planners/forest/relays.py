"""Trees through relays: nodes that store and are not ranks (other accelerators, and routers without transit).

Switches that sum are relays, too, while trees are sought: in trees such a switch has children and a parent like any
node. Then :mod:`stretto.schedule.joins` makes one transfer of all that meets there, since it does not store.

To find trees a relay is split off like a switch (:mod:`.split`). But bytes cannot pass through it at once: it keeps
what has come and sends it on. So a path through a relay becomes two edges, and the relay a node of the tree; where
several paths of a tree pass through it, it gets the data once and sends it on along all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ...model.arrays import Bool, Int32
from ...model.topology import ACCELERATOR, Topology
from .split import Route


def summing_as_relays(topology: Topology) -> Topology:
    """The network where each switch that sums is a relay."""
    sums = topology.reduces
    if not sums.any():
        return topology
    kind = np.where(sums, ACCELERATOR, topology.kind).astype(np.int8)
    return replace(
        topology, kind=kind, transit=topology.transit & ~sums, replicates=topology.replicates & ~sums,
        reduces=np.zeros_like(sums),
    )  # fmt: skip


def find_relays(topology: Topology, ranks: Int32) -> Bool:
    """bool[nodes], which nodes store and are not ranks."""
    relays = np.asarray(topology.forwarding == ACCELERATOR)
    relays[ranks] = False
    return relays


def through_relays(root: int, paths: Iterable[Route], topology: Topology, relays: Bool) -> dict[int, tuple[int, Route]]:
    """The tree whose edges are these paths, cut at relays: for each node but the root its parent and the links between.

    Args:
        paths: links from one rank to another, for every edge of the tree, parents first.
        topology: in which the links lead away from the root.
    """
    hops: dict[int, dict[int, Route]] = {}
    for path in paths:
        begin, node = 0, int(topology.src[path[0]])
        for k, link in enumerate(path):
            end = int(topology.dst[link])
            if k == len(path) - 1 or relays[end]:
                hops.setdefault(node, {}).setdefault(end, path[begin : k + 1])
                begin, node = k + 1, end
    tree: dict[int, tuple[int, Route]] = {}
    reached = [root]
    for v in reached:
        for w, route in hops.get(v, {}).items():
            if w != root and w not in tree:
                tree[w] = v, route
                reached.append(w)
    return tree
