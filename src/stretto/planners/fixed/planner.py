"""The fixed algorithms as planners: each step's pairs over shortest routes, or over planes.

An algorithm does not look at the topology. Where two partners are joined neither by a link nor through switches and
routers, it is refused, since another accelerator would have to relay. On a network of optical planes the plan uses the
first plane alone and turns it between steps, which is right but slow: it is meant for a refiner (``ring+swot``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np

from ...model.arrays import Int32, Int64, Ragged
from ...model.collective import Workload
from ...model.plan import Plan, Turns, make_plan
from ...model.topology import Topology
from ...schedule.algorithms import ALGORITHMS, Algorithm, lower
from .. import Candidate, Request, per_delivery, register


def _refusal(algorithm: Algorithm, topology: Topology, workload: Workload) -> str | None:
    """Why it cannot serve this, None if it can."""
    for c in workload.collectives:
        if c.kind not in algorithm.kinds:
            continue
        n = len(c.ranks)
        reason = algorithm.serves(c.kind, n)
        if reason is not None:
            return reason
        pairs = np.unique(np.concatenate([np.stack((s.src, s.dst), 1) for s in algorithm.steps(c.kind, n)]), axis=0)
        ends = c.ranks[pairs]
        if topology.planes:
            reason = portless(topology, ends)
            if reason is not None:
                return reason
            continue
        for (a, b), route in zip(ends, _routes(topology, ends), strict=True):
            if not route:
                return f"{topology.names[a]} sends to {topology.names[b]}, and no link or switch joins them"
    return None


def portless(topology: Topology, nodes: Int32) -> str | None:
    """Why the first plane does not serve these nodes, None if it does."""
    missing = np.setdiff1d(nodes, topology.planes[0].nodes)
    return f"{topology.names[missing[0]]} has no port on the first plane" if len(missing) else None


def _routes(topology: Topology, pairs: Int32 | Int64) -> list[list[int]]:
    """For each pair (src, dst) the links of its quickest route through switches and routers, [] if none."""
    direct = {(int(a), int(b)): i for i, (a, b) in enumerate(zip(topology.src, topology.dst, strict=True))}
    routes_of = cache(partial(routes_from, topology, metric="latency"))
    return [[direct[a, b]] if (a, b) in direct else routes_of(a).get(b, (0.0, []))[1] for a, b in pairs.tolist()]


def routes_from(topology: Topology, source: int, metric: str) -> dict[int, tuple[float, list[int]]]:
    """The length and the links of the shortest route to each node that transit nodes lead to.

    Args:
        metric: shortest in "hops" (then latency) or in "latency" (then hops).
    """
    routes: dict[int, tuple[float, list[int]]] = {}
    heap: list[tuple[float, float, int, list[int]]] = [(0.0, 0.0, source, [])]
    while heap:
        length, second, v, route = heappop(heap)
        if v in routes:
            continue
        routes[v] = length, route
        for link in map(int, topology.out_links[v]) if v == source or topology.transit[v] else ():
            latency_s = float(topology.latency_s[link])
            more, other = (1.0, latency_s) if metric == "hops" else (latency_s, 1.0)
            heappush(heap, (length + more, second + other, int(topology.dst[link]), [*route, link]))
    return routes


def plan_algorithm(algorithm: Algorithm, request: Request) -> Plan:
    """The transfers of an algorithm over shortest routes, or over the first plane."""
    topology, lowered = request.topology, lower(algorithm, request.workload)
    rows = len(lowered.chunk)
    more: dict[str, Any] = {}
    if topology.planes:
        route = Ragged.empty(rows)
        turns = _turns(topology, lowered.src, lowered.dst, lowered.group)
        more = {"plane": np.zeros(rows, dtype=np.int32), "turns": turns}
    else:
        pairs, which = np.unique(np.stack((lowered.src, lowered.dst), axis=1), axis=0, return_inverse=True)
        route = Ragged.of(_routes(topology, pairs)).take(which.ravel())
    return make_plan(
        topology, lowered.workload, "ready-order", chunk=lowered.chunk, src=lowered.src, op=lowered.op,
        dst=Ragged.single(lowered.dst), route=route, depends=lowered.depends, group=lowered.group, **more,
    )  # fmt: skip


def _turns(topology: Topology, src: Int32, dst: Int32, group: Int32) -> Turns:
    """A turn of the first plane before every step whose pairs its matching does not join."""
    plane = topology.planes[0]
    port = np.full(topology.node_count, -1, dtype=np.int32)
    port[plane.nodes] = np.arange(len(plane.nodes))
    matching, turns = plane.matching, []
    for first, end in _spans(group):
        a, b = port[src[first:end]], port[dst[first:end]]
        if (matching[a] != b).any():
            matching = np.full(len(plane.nodes), -1, dtype=np.int32)
            matching[a] = b
            turns.append((0, first, 0.0, matching))
    return Turns.of(turns)


def _spans(group: Int32) -> list[tuple[int, int]]:
    """Where each run of equal numbers begins and ends."""
    edges = np.flatnonzero(np.diff(group, prepend=-1, append=-1)).tolist()
    return list(pairwise(edges)) if len(group) else []


def _planner(algorithm: Algorithm) -> Callable[[Request], Plan]:
    def plan(request: Request) -> Plan:
        return plan_algorithm(algorithm, request)

    plan.__doc__ = algorithm.summary
    return plan


def _transfers(algorithm: Algorithm, request: Request) -> float:
    """About how many transfers an algorithm's plan has: as often as its blocks are held and wanted."""
    count = 0
    for c in request.workload.collectives:
        blocks = algorithm.blocks(c.kind, len(c.ranks), int(c.piece_bytes.max())) * c.chunk_count // len(c.piece_bytes)
        count += blocks * int(c.holders.lengths.sum() + c.wanted.lengths.sum())
    return count


_ASKED: dict[str, dict[str, Any]] = {
    "all-pairs": {"library": 10},
    "recursive-doubling": {"library": 30},
    "rabenseifner": {"library": 40},
    "pairwise": {"auto": Candidate(100, per_delivery(12, first=1_000)), "tune": 70},
}
"""Who asks each algorithm, see :class:`~stretto.planners.registry.Entry`."""

for _algorithm in ALGORITHMS.values():
    if _algorithm.name == "ring":
        continue  # over links the ring has a planner of its own
    register(
        _algorithm.name,
        collectives=_algorithm.kinds,
        topologies="where each pair of partners is joined, or planes",
        paper=_algorithm.paper,
        serves=partial(_refusal, _algorithm),
        transfers=partial(_transfers, _algorithm),
        **_ASKED.get(_algorithm.name, {}),
    )(_planner(_algorithm))
