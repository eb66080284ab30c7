"""Hops of TACCL: the ways between nodes that store which a sketch leaves (:mod:`.taccl`)."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...model.topology import Topology
from .sketch import Sketch, site_of

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Hops:
    """Direct ways between nodes that store: a link, or a path through switches alone.

    Attributes:
        src, dst: int64[hops].
        route: the links of each.
        latency_s: float64[hops], alpha.
        bandwidth: float64[hops], of its slowest link; bytes over it is beta.
        remote: bool[hops], whether it leaves its site.
    """

    src: Int64
    dst: Int64
    route: list[list[int]]
    latency_s: Float64
    bandwidth: Float64
    remote: NDArray[np.bool_]


def hops_of(topology: Topology, sketch: Sketch, pipes: bool = False) -> Hops:
    """All hops that the sketch leaves: those between sites only from senders to their receivers.

    Args:
        pipes: pass through routers as through switches, for what cannot be stored there (sums).
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


def _widest(topology: Topology, source: int, passed: NDArray[np.bool_]) -> dict[int, list[int]]:
    """For each node that a hop from ``source`` can end at, the way of most bandwidth, then of fewest links."""
    offsets, links = topology.out_links
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
        for i in links[offsets[v] : offsets[v + 1]].tolist():
            heapq.heappush(
                queue, (max(width, -float(topology.bandwidth[i])), count + 1, int(topology.dst[i]), [*route, i])
            )
    return ways
