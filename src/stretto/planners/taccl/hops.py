"""Hops of TACCL: links, and ways through switches, between nodes that store, as far as a sketch allows them."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from ...model.arrays import Bool, Float64, Int64
from ...model.topology import Topology
from .sketch import Sketch, site_of


@dataclass(frozen=True, eq=False)
class Hops:
    """Direct ways between nodes that store: links, or paths through switches alone.

    Attributes:
        src, dst: int64[hops].
        route: the links of each hop.
        latency_s: float64[hops], alpha.
        bandwidth: float64[hops], of the slowest link of each hop; bytes divided by it are beta.
        remote: bool[hops], whether it leaves its site.
    """

    src: Int64
    dst: Int64
    route: list[list[int]]
    latency_s: Float64
    bandwidth: Float64
    remote: Bool


def hops_of(topology: Topology, sketch: Sketch, pipes: bool = False) -> Hops:
    """All hops that the sketch allows: between sites only those from senders to their receivers.

    Args:
        pipes: pass through routers as through switches, for sums, which cannot be stored there.
    """
    rank = np.full(topology.node_count, -1)
    rank[topology.accelerators] = np.arange(len(topology.accelerators))
    site, local = site_of(sketch, topology)
    rows: list[tuple[int, int, list[int], bool]] = []
    passed = topology.transit & ~topology.is_accelerator if pipes else topology.is_switch
    for a in np.flatnonzero(~passed).tolist():
        shortest = _widest(topology, a, passed)
        for b, route in shortest.items():
            remote = rank[a] >= 0 and rank[b] >= 0 and site[rank[a]] != site[rank[b]]
            if remote and sketch.connections is not None:
                allowed = sketch.connections.get(int(local[rank[a]]), ())
                if int(local[rank[b]]) not in allowed:
                    continue
            rows.append((a, b, route, remote))
    return Hops(
        src=np.array([r[0] for r in rows], dtype=np.int64),
        dst=np.array([r[1] for r in rows], dtype=np.int64),
        route=[r[2] for r in rows],
        latency_s=np.array([topology.latency_s[r[2]].sum() for r in rows]),
        bandwidth=np.array([topology.bandwidth[r[2]].min() for r in rows]),
        remote=np.array([r[3] for r in rows], dtype=np.bool_),
    )


def _widest(topology: Topology, source: int, passed: Bool) -> dict[int, list[int]]:
    """For each node at which a hop from ``source`` can end, the way of most bandwidth, then of fewest links."""
    ways: dict[int, list[int]] = {}
    done: set[int] = set()
    queue: list[tuple[float, int, int, list[int]]] = [(-np.inf, 0, source, [])]
    while queue:
        width, count, v, route = heapq.heappop(queue)
        if v in done:
            continue
        done.add(v)
        if v != source and not passed[v]:
            ways[v] = route
            continue
        for i in topology.out_links[v].tolist():
            heapq.heappush(
                queue, (max(width, -float(topology.bandwidth[i])), count + 1, int(topology.dst[i]), [*route, i])
            )
    return ways
