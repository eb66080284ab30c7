"""The network of a group when links between some of its ranks are dead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from ..model.arrays import Bool
from ..model.topology import Topology, make_topology

DeadPairs = frozenset[frozenset[int]]
"""Pairs of ranks of a group that do not reach each other."""


def connects(count: int, dead: DeadPairs) -> bool:
    """Whether the links that are left join all ranks."""
    reached, ahead = {0}, [0]
    while ahead:
        a = ahead.pop()
        further = [b for b in range(count) if b not in reached and frozenset((a, b)) not in dead]
        reached.update(further)
        ahead += further
    return len(reached) == count


def dead_words(dead: DeadPairs) -> str:
    """Which links are dead, for an error message."""
    return ", ".join(f"the link of ranks {a} and {b} is dead" for a, b in sorted(map(sorted, dead)))


def without_pairs(topology: Topology, nodes: Sequence[int], dead: DeadPairs) -> Topology:
    """The network without the ways between some pairs of ranks.

    Links of a pair itself are left out. Where a pair's way leads over switches or routers, nobody knows what is dead
    there, nor what else would use it: then each two ranks that reach each other get a link with an equal share of what
    its ends can send and receive.

    Args:
        nodes: the nodes of the ranks.
    """
    gone = {(nodes[a], nodes[b]) for pair in dead for a, b in permutations(pair)}
    ends = list(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))
    kept = np.array([pair not in gone for pair in ends], dtype=bool)
    if any(_over_switches(topology, kept, a, b) for a, b in gone):
        return _joined(topology, nodes, dead)
    return topology.with_links(kept)


def _over_switches(topology: Topology, kept: Bool, source: int, sink: int) -> bool:
    """Whether links lead from one rank to another without a third rank."""
    src, dst, passed = topology.src[kept], topology.dst[kept], ~topology.is_accelerator
    reached = np.zeros(topology.node_count, dtype=bool)
    reached[source] = passed[source] = True
    for _ in range(topology.node_count):
        further = dst[reached[src] & passed[src]]
        if reached[further].all():
            break
        reached[further] = True
    return bool(reached[sink])


def _joined(topology: Topology, nodes: Sequence[int], dead: DeadPairs) -> Topology:
    """The nodes of the topology, with a link for each two ranks that reach each other."""
    count, ranks = topology.node_count, len(nodes)
    out, into = (np.bincount(ends, topology.bandwidth, count) for ends in (topology.src, topology.dst))
    far_s = 2 * float(topology.latency_s.max(initial=0.0))
    links = [
        (nodes[a], nodes[b], min(out[nodes[a]], into[nodes[b]]) / (ranks - 1), far_s)
        for a, b in permutations(range(ranks), 2)
        if frozenset((a, b)) not in dead
    ]
    cost_s = [float(topology.message_s.max(initial=0.0))] * len(links)
    name = f"{topology.name}, the pairs that are left"
    made = make_topology(name, topology.kind.tolist(), links, message_s=cost_s)
    return replace(made, names=topology.names, sites=topology.sites)
