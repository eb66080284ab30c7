"""Rings: each rank sends to the next one, over fixed shortest routes.

With n ranks a buffer is n chunks (or a multiple). Chunk c goes round from position c: summed over
n - 1 steps, handed on for n - 1 more (AllReduce), only summed (ReduceScatter) or only handed on
(AllGather). Every transfer of a chunk waits for the one before, so a chunk is a *flow group* of
the WAN paper (Wang, Craps, Li, "Optimizing Wide-Area Collective Communication via
Flow-Dependency-Aware Rate Allocation", sections II and III-A).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...model.arrays import Float64, Int64, Ragged
from ...model.chunks import cut
from ...model.collective import Collective, Workload
from ...model.errors import Unsupported
from ...model.plan import COPY, REDUCE, Plan, make_plan
from ...model.topology import Topology
from ...schedule.algorithms import ALGORITHMS
from ...schedule.routes import routes_from
from .. import Option, Request, register
from .planner import plan_algorithm, portless

MOST_TRIES = 20_000
"""Steps of a search for a ring."""

NO_RING = (
    "no ring joins the ranks of collective {} by routes that pass through no accelerator; "
    "where nodes may be passed through, say so (zoo:NAME?transit=true)"
)

OPTIONS = (
    Option("order", str, "auto", "which rank comes next: by number, or the nearest", ("auto", "near")),
    Option("metric", str, "hops", "what routes are shortest in", ("hops", "latency")),
)


def _no_ring(topology: Topology, workload: Workload) -> str | None:
    """Why it cannot serve this, None if it can."""
    if topology.planes:
        return portless(topology, np.concatenate([c.ranks for c in workload.collectives]))
    for number, c in enumerate(workload.collectives):
        if _positions(topology, c, "auto", "hops") is None:
            return NO_RING.format(number)
    return None


@register(
    "ring",
    collectives=("allreduce", "reducescatter", "allgather"),
    topologies="those in which a ring of routes joins the ranks, or planes",
    paper="Wang, Craps, Li, section II; Patarasuk and Yuan, JPDC 2009",
    options=OPTIONS,
    serves=_no_ring,
    tune=50,
    library=50,
    library_wide=15,
)
def ring(request: Request, *, order: str = "auto", metric: str = "hops") -> Plan:
    """Each rank sends to the next one around a ring, over fixed shortest routes.

    Args:
        order: "auto" takes the ranks in their order, or, where a rank cannot reach the next, the first ring that the
            search meets; "near" always goes on to the nearest rank from which a ring can still be closed.
        metric: shortest in "hops" (then latency) or in "latency" (then hops).
    Returns:
        A plan in ready-order whose groups are the chunks. A collective whose chunks are no
        multiple of its ranks has each of them cut into as many as there are ranks.
    Raises:
        Unsupported: the search for a ring by such an order and metric finds none.
    """
    topology = request.topology
    if topology.planes:
        return plan_algorithm(ALGORITHMS["ring"], request)
    collectives = tuple(
        cut(c, c.chunk_count * len(c.ranks)) if c.traits.reduces_to_all and c.chunk_count % len(c.ranks) else c
        for c in request.workload.collectives
    )
    refined = Workload(collectives)
    columns: list[tuple[Int64, Int64, Int64, Int64]] = []
    routes: list[Ragged] = []
    for number, (base, c) in enumerate(zip(refined.chunk_base, collectives)):
        around = _positions(topology, c, order, metric)
        if around is None:
            raise Unsupported(NO_RING.format(number))
        chunk, step, reduces = _steps(c, around)
        n = len(around)
        place = _first_position(c, around)[chunk] + step
        nodes = c.ranks[around].astype(np.int64)
        columns.append((chunk + base, nodes[place % n], nodes[(place + 1) % n], reduces))
        pairs = zip(nodes.tolist(), np.roll(nodes, -1).tolist(), strict=True)
        hops = Ragged.of([routes_from(topology, a, metric, b).links_to(b) for a, b in pairs])
        routes.append(hops.take(place % n))
    chunk, src, dst, op = (np.concatenate(x) for x in zip(*columns))
    # step by step through all chunks, so that links take them in turn
    first = np.concatenate(([True], chunk[1:] != chunk[:-1]))
    index = np.arange(len(chunk))
    step = index - np.maximum.accumulate(np.where(first, index, 0))
    turn = np.lexsort((chunk, step))
    place = np.empty(len(turn), dtype=np.int64)
    place[turn] = index
    depends = Ragged.from_lengths(~first[turn], place[turn[~first[turn]] - 1])
    return make_plan(
        topology,
        refined,
        "ready-order",
        chunk=chunk[turn],
        src=src[turn],
        op=op[turn],
        dst=Ragged.single(dst[turn]),
        route=Ragged.concatenate(routes).take(turn),
        depends=depends,
        group=chunk[turn],
    )


def _first_position(c: Collective, around: Int64) -> Int64:
    """int64[chunks], the ring position that each chunk sets out from."""
    n = len(around)
    if c.traits.reduces_to_all:
        return np.arange(c.chunk_count) % n
    position = np.empty(n, dtype=np.int64)
    position[around] = np.arange(n)
    if not c.reduces:
        return position[c.holders.values[c.chunk_piece]]
    return position[c.wanted.values[c.chunk_piece]] + 1


def _steps(c: Collective, around: Int64) -> tuple[Int64, Int64, Int64]:
    """For each transfer its chunk, its step around the ring and its operation, chunk by chunk."""
    n = len(around)
    steps = 2 * (n - 1) if c.traits.reduces_to_all else n - 1
    step = np.tile(np.arange(steps), c.chunk_count)
    sums = np.zeros_like(step) if not c.reduces else (step < n - 1).astype(np.int64)
    return np.repeat(np.arange(c.chunk_count), steps), step, np.where(sums, REDUCE, COPY)


def _positions(topology: Topology, c: Collective, order: str, metric: str) -> Int64 | None:
    """int64[ranks], the rank at each position of the ring; None if there is no ring."""
    ranks = c.ranks.tolist()
    pairs = zip(ranks, ranks[1:] + ranks[:1], strict=True)
    if order == "auto" and all(b in routes_from(topology, a, metric, b).length for a, b in pairs):
        return np.arange(len(ranks))
    lengths = (routes_from(topology, a, metric).length for a in ranks)
    distance = np.array([[length.get(b, np.inf) for b in ranks] for length in lengths])
    ring = _cycle(distance, fewest_first=False)
    return _cycle(distance, fewest_first=True) if ring is None else ring


def _cycle(distance: Float64, fewest_first: bool) -> Int64 | None:
    """A ring of finite distances from rank 0, the nearest rank tried first; None if the search meets none.

    Args:
        fewest_first: of ranks that are equally near, try first the one with the fewest ways onward (Warnsdorff),
            which leaves no rank behind where there are few ways.
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
