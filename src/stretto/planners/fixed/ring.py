"""Rings: each rank sends to the next one, over fixed shortest routes.

With n ranks a buffer is n chunks (or a multiple). Chunk c goes round from position c: summed over
n - 1 steps, handed on for n - 1 more (AllReduce), only summed (ReduceScatter) or only handed on
(AllGather). Every transfer of a chunk waits for the one before, so a chunk is a *flow group* of
the WAN paper (Wang, Craps, Li, "Optimizing Wide-Area Collective Communication via
Flow-Dependency-Aware Rate Allocation", sections II and III-A).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...model.arrays import Ragged
from ...model.collective import Collective, Workload, cut
from ...model.plan import COPY, REDUCE, Plan, make_plan
from ...model.topology import Topology
from .. import Candidate, Option, Request, per_delivery, register
from .planner import ring_on_planes

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Routes = dict[int, tuple[list[float], list[int]]]
"""For each source node the distance to each node and the last link on the way there."""

MOST_TRIES = 20_000
"""How many partial rings are looked at before giving up on one."""

OPTIONS = (
    Option("order", str, "auto", "whom a rank sends to: as ranks are numbered, or by nearness", ("auto", "near")),
    Option("metric", str, "hops", "what a route is shortest in", ("hops", "latency")),
)


def _no_ring(topology: Topology, workload: Workload) -> str | None:
    """Why it cannot serve this, None if it can."""
    if topology.planes:
        missing = np.setdiff1d(np.concatenate([c.ranks for c in workload.collectives]), topology.planes[0].nodes)
        return f"{topology.names[missing[0]]} has no port on the first plane" if len(missing) else None
    for number, c in enumerate(workload.collectives):
        if _positions(topology, c, _routes(topology, c, "hops"), "auto") is None:
            return (
                f"no ring joins the ranks of collective {number} by routes that pass through no accelerator; "
                "where nodes may be passed through, say so (zoo:NAME?transit=true)"
            )
    return None


@register(
    "ring",
    collectives=("allreduce", "reducescatter", "allgather"),
    topologies="those in which a ring of routes joins the ranks, or planes",
    paper="Wang, Craps, Li, section II; Patarasuk and Yuan, JPDC 2009",
    options=OPTIONS,
    serves=_no_ring,
    auto=Candidate(90, per_delivery(12, first=1_000)),
    tune=50,
    library=20,
)
def ring(request: Request, *, order: str = "auto", metric: str = "hops") -> Plan:
    """Each rank sends to the next one around a ring, over fixed shortest routes.

    Args:
        order: "auto" the order of the ranks, or, where a rank cannot reach the next, the first
            ring that exists; "near" always the nearest rank that leaves one possible.
        metric: shortest in "hops" (then latency) or in "latency" (then hops).
    Returns:
        A plan in ready-order whose groups are the chunks. A collective whose chunks are no
        multiple of its ranks has each of them cut into as many as there are ranks.
    """
    topology, workload = request.topology, request.workload
    if topology.planes:
        return ring_on_planes(request)
    collectives = tuple(c if _splits(c) else _cut_more(c) for c in workload.collectives)
    refined = Workload(collectives)
    columns: list[tuple[Int64, Int64, Int64, Int64]] = []
    routes: list[Ragged] = []
    for base, c in zip(refined.chunk_base, collectives):
        ways = _routes(topology, c, metric)
        around = _positions(topology, c, ways, order)
        assert around is not None, "refused by _no_ring"
        chunk, step, reduces = _steps(c, around)
        n = len(around)
        place = _first_position(c, around)[chunk] + step
        nodes = c.ranks[around].astype(np.int64)
        columns.append((chunk + base, nodes[place % n], nodes[(place + 1) % n], reduces))
        hops = Ragged.of([_walk(topology, ways, int(nodes[i]), int(nodes[(i + 1) % n])) for i in range(n)])
        routes.append(hops.take(place % n))
    chunk, src, dst, op = (np.concatenate(x) for x in zip(*columns))
    # step by step through all chunks, so that links take them in turn
    first = np.concatenate(([True], chunk[1:] != chunk[:-1]))
    index = np.arange(len(chunk))
    step = index - np.maximum.accumulate(np.where(first, index, 0))
    turn = np.lexsort((chunk, step))
    place = np.empty(len(turn), dtype=np.int64)
    place[turn] = index
    depends = Ragged(
        np.concatenate(([0], np.cumsum(~first[turn]))).astype(np.int64),
        place[turn[~first[turn]] - 1].astype(np.int32),
    )
    route = Ragged(
        np.concatenate(([0], np.cumsum(np.concatenate([r.lengths for r in routes])))),
        np.concatenate([r.values for r in routes]),
    )
    return make_plan(
        topology,
        refined,
        "ready-order",
        chunk=chunk[turn],
        src=src[turn],
        op=op[turn],
        dst=Ragged.single(dst[turn]),
        route=route.take(turn),
        depends=depends,
        group=chunk[turn],
    )


def _splits(c: Collective) -> bool:
    """Whether its chunks can go round as they are."""
    return c.kind != "allreduce" or c.chunk_count % len(c.ranks) == 0


def _cut_more(c: Collective) -> Collective:
    """AllReduce with each chunk cut into as many as there are ranks."""
    return cut(c, c.chunk_count * len(c.ranks))


def _first_position(c: Collective, around: Int64) -> Int64:
    """int64[chunks], the ring position that each chunk sets out from."""
    n = len(around)
    if c.kind == "allreduce":
        return np.arange(c.chunk_count) % n
    position = np.empty(n, dtype=np.int64)
    position[around] = np.arange(n)
    if c.kind == "allgather":
        return position[c.holders.values[c.chunk_piece]]
    return position[c.wanted.values[c.chunk_piece]] + 1


def _steps(c: Collective, around: Int64) -> tuple[Int64, Int64, Int64]:
    """For each transfer its chunk, its step around the ring and its op, chunk by chunk."""
    n = len(around)
    steps = 2 * (n - 1) if c.kind == "allreduce" else n - 1
    step = np.tile(np.arange(steps), c.chunk_count)
    sums = np.zeros_like(step) if c.kind == "allgather" else (step < n - 1).astype(np.int64)
    return np.repeat(np.arange(c.chunk_count), steps), step, np.where(sums, REDUCE, COPY)


def _positions(topology: Topology, c: Collective, ways: Routes, order: str) -> Int64 | None:
    """int64[ranks], the rank at each position of the ring; None if there is no ring."""
    n = len(c.ranks)
    distance = np.array([[ways[int(a)][0][int(b)] for b in c.ranks] for a in c.ranks])
    if order == "auto" and np.isfinite(distance[np.arange(n), (np.arange(n) + 1) % n]).all():
        return np.arange(n)
    found = _cycle(distance, fewest_first=False)
    return _cycle(distance, fewest_first=True) if found is None else found


def _cycle(distance: Float64, fewest_first: bool) -> Int64 | None:
    """A ring of finite distances from rank 0, by trying the nearest first; None if none was found.

    Args:
        fewest_first: among equally near ones try first whom few others could still follow
            (Warnsdorff), which leaves no rank behind where there are few ways.
    """
    n = len(distance)
    near = [[int(j) for j in np.argsort(row, kind="stable") if np.isfinite(row[j])] for row in distance]
    path, on = [0], {0}

    def onward(i: int) -> Iterator[int]:
        free = [j for j in near[i] if j not in on]
        if fewest_first:
            free.sort(key=lambda j: (distance[i, j], sum(k not in on for k in near[j])))
        return iter(free)

    tried = [onward(0)]
    for _ in range(MOST_TRIES):
        if len(path) == n and np.isfinite(distance[path[-1], 0]):
            return np.array(path)
        following = next(tried[-1], None)
        if following is not None:
            path.append(following)
            on.add(following)
            tried.append(onward(following))
            continue
        tried.pop()
        on.discard(path.pop())
        if not path:
            return None
    return None


def _routes(topology: Topology, c: Collective, metric: str) -> Routes:
    """Shortest ways from each rank; they pass only through nodes that let them. Ties: lowest link first."""
    ways: Routes = {}
    for source in map(int, c.ranks):
        best: list[tuple[float, float]] = [(np.inf, np.inf)] * topology.node_count
        last = [-1] * topology.node_count
        best[source] = (0.0, 0.0)
        heap = [(0.0, 0.0, source)]
        while heap:
            a, b, v = heapq.heappop(heap)
            if (a, b) > best[v] or (v != source and not topology.transit[v]):
                continue
            for link in map(int, topology.out_links[v]):
                w, latency = int(topology.dst[link]), float(topology.latency_s[link])
                cost = (a + 1, b + latency) if metric == "hops" else (a + latency, b + 1)
                if cost < best[w]:
                    best[w], last[w] = cost, link
                    heapq.heappush(heap, (*cost, w))
        ways[source] = [d for d, _ in best], last
    return ways


def _walk(topology: Topology, ways: Routes, a: int, b: int) -> list[int]:
    """The links of the way from a to b."""
    links: list[int] = []
    while b != a:
        links.append(ways[a][1][b])
        b = int(topology.src[links[-1]])
    return links[::-1]
