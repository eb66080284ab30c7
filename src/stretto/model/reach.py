"""Which nodes can reach which: asked before planning, and when a network breaks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from .arrays import Bool
from .collective import Collective
from .errors import InputError
from .topology import Topology


def find_unreachable(topology: Topology, collective: Collective) -> tuple[int, int] | None:
    """The first (holder, wanting) pair of nodes with no path between them; the nodes of a plane count as joined."""
    first = [int(collective.ranks[0])]
    joined = reachable_from(topology, first) & reachable_from(topology, first, backward=True)
    if joined[collective.ranks].all():
        return None
    reached = cache(lambda holder: reachable_from(topology, [holder]))
    for p in range(len(collective.piece_bytes)):
        holders = collective.ranks[collective.holders[p]].tolist()
        # a sum needs all its holders, a copy any of them
        gather = np.all if collective.reduces else np.any
        served = gather([reached(h) for h in holders], axis=0)
        for w in collective.ranks[collective.wanted[p]].tolist():
            if not served[w]:
                return next(h for h in holders if not reached(h)[w]), w
    return None


def refuse_unreachable(topology: Topology, collectives: Sequence[Collective]) -> None:
    """Refuse collectives that need a path where there is none; InputError names both nodes."""
    for collective in collectives:
        pair = find_unreachable(topology, collective)
        if pair is not None:
            a, b = (topology.names[v] for v in pair)
            raise InputError(f"{a} cannot reach {b}: the ranks are not connected", topology.name)


def reachable_from(topology: Topology, nodes: Sequence[int], backward: bool = False) -> Bool:
    """bool[nodes], which nodes can be reached from any of ``nodes``, or can reach one of them where ``backward``."""
    lists, ends = (topology.in_links, topology.src) if backward else (topology.out_links, topology.dst)
    # lists of plain numbers: indexing an array costs ten times as much
    offsets, near = lists.offsets.tolist(), ends[lists.values].tolist()
    stack, planes = list(map(int, nodes)), [set(p.nodes.tolist()) for p in topology.planes]
    seen = bytearray(topology.node_count)
    for v in stack:
        seen[v] = True
    while stack:
        v = stack.pop()
        others = near[offsets[v] : offsets[v + 1]]
        for plane in [p for p in planes if v in p]:
            others += plane
            planes.remove(plane)
        for w in others:
            if not seen[w]:
                seen[w] = True
                stack.append(w)
    return np.frombuffer(seen, dtype=np.bool_).copy()
