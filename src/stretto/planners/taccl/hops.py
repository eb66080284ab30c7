"""Hops of TACCL: links, and ways through switches, between nodes that store, as far as a sketch allows them."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from ...model.arrays import Bool, Float64, Int64, Ragged
from ...model.topology import Topology
from .sketch import Sketch, site_of


@dataclass(frozen=True, eq=False)
class Hops:
    """Direct ways between nodes that store: links, or paths through switches alone."""

    src: Int64  # [hops]
    dst: Int64  # [hops]
    route: Ragged  # the links of each hop
    latency_s: Float64  # [hops], alpha
    bandwidth: Float64  # [hops], of the slowest link of each hop; bytes divided by it are beta
    remote: Bool  # [hops], whether it leaves its site


def hops_of(topology: Topology, sketch: Sketch, pipes: bool = False) -> Hops:
    """All hops that the sketch allows: between sites only those from senders to their receivers.

    Args:
        pipes: pass through routers as through switches, for sums, which cannot be stored there.
    """
    site, local = site_of(sketch, topology)
    rows: list[tuple[int, int, bool]] = []
    routes: list[list[int]] = []
    passed = topology.transit & ~topology.is_accelerator if pipes else topology.is_switch
    for a in np.flatnonzero(~passed).tolist():
        for b, route in _widest(topology, a, passed).items():
            remote = bool(min(site[a], site[b]) >= 0 and site[a] != site[b])
            if remote and sketch.connections is not None:
                if int(local[b]) not in sketch.connections.get(int(local[a]), ()):
                    continue
            rows.append((a, b, remote))
            routes.append(route)
    src, dst, remotes = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    ways = Ragged.of(routes)
    return Hops(src, dst, ways, topology.route_latency_s(ways), topology.route_bandwidth(ways), remotes > 0)


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
