"""AllToAll on optical planes by a sum of matchings, as uneven demands need it; no step waits for another.

SWOT's discussion leaves non-uniform traffic open. The demand is decomposed into few matchings
(:mod:`.matchings`), which planes hold one after the other, all at the same time
(:mod:`.placement`). A matching is the ``group`` of its transfers, so that SWOT's refiners can
schedule the same matchings as steps (``birkhoff+swot``), but since the parts of an AllToAll do not
depend on each other, barriers only cost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...model.arrays import Int64, Ragged
from ...model.collective import Collective, Workload
from ...model.demand import demand_of
from ...model.plan import Plan, Turns, make_plan
from ...model.topology import Topology
from ...schedule.trees import cut_at
from .. import Candidate, Option, Request, per_delivery, register
from .circuits import refusal, speeds_of, to_nodes, to_ports
from .matchings import Matching, decompositions, shifts
from .placement import Part, Planes, direct_bound, place


@register(
    "birkhoff",
    collectives=("alltoall", "alltoallv"),
    topologies="optical planes",
    paper="after Birkhoff 1946 and von Neumann 1953; SWOT, section 6, asks for it",
    options=(Option("matchings", str, "few", "few by weight, or those of pairwise exchange", ("few", "shifts")),),
    serves=refusal,
    cuts=True,
    auto=Candidate(per_delivery(12, first=1_000)),
    tune=90,
)
def birkhoff(request: Request, *, matchings: str = "few") -> Plan:
    """Few weighted matchings, turned from one to the next without barriers."""
    topology, workload = request.topology, request.workload
    c = workload.collectives[0]
    demand = demand_of(c)
    np.fill_diagonal(demand, 0)
    planes = _planes_of(topology, c)
    # a turn and a latency in the bytes that a plane could send meanwhile
    cost = float((planes.bandwidth * (planes.turn_s + planes.latency_s)).mean())
    ways = [shifts(demand)] if matchings == "shifts" else decompositions(demand, cost)
    placements = [(way, *place(way, planes)) for way in ways if way]
    way, parts, end_s = min(placements, key=lambda placement: placement[2])
    facts = {"completion_s": end_s, "bound_s": min(direct_bound(demand, planes), end_s), "matchings": len(way)}
    return _as_plan(topology, workload, way, parts, {"schedule": facts})


def _planes_of(topology: Topology, c: Collective) -> Planes:
    rank = np.full(topology.node_count + 1, -1, dtype=np.int64)
    rank[c.ranks] = np.arange(len(c.ranks))
    free = np.array([(p.matching < 0).all() for p in topology.planes])
    partner = np.array([rank[to_nodes(topology, p)[c.ranks]] for p in topology.planes])
    bandwidth, latency, turn = np.array([speeds_of(p) for p in topology.planes]).T.copy()
    return Planes(bandwidth, latency, turn, free, partner)


def _as_plan(
    topology: Topology, workload: Workload, matchings: list[Matching], parts: list[Part], meta: dict[str, Any]
) -> Plan:
    """The timed plan in which each part's circuits carry their bytes from its start on."""
    c = workload.collectives[0]
    part, begin = _intervals(c, matchings, parts)
    finer, interval = cut_at(workload, np.append(begin[1:], c.piece_bytes.sum()))
    c = finer.collectives[0]
    low = np.cumsum(c.chunk_bytes) - c.chunk_bytes
    chunk = np.flatnonzero(c.holders.values[c.chunk_piece] != c.wanted.values[c.chunk_piece])
    chunk = chunk[np.lexsort((chunk, part[interval[chunk]]))]

    row_part, sent = part[interval[chunk]], low[chunk] - begin[interval[chunk]]
    plane = np.array([p.plane for p in parts])[row_part]
    width = np.array([p.bandwidth for p in topology.planes])[plane]
    ready = np.array([p.start_s for p in parts])[row_part]
    piece = c.chunk_piece[chunk]
    return make_plan(
        topology, finer, "timed", chunk=chunk, src=c.ranks[c.holders.values[piece]],
        dst=Ragged.single(c.ranks[c.wanted.values[piece]]), route=Ragged.empty(len(chunk)),
        depends=Ragged.empty(len(chunk)),
        start_s=ready + sent / width, finish_s=ready + (sent + c.chunk_bytes[chunk]) / width,
        group=np.array([p.matching for p in parts])[row_part], plane=plane,
        turns=_turns(topology, c, matchings, parts, row_part), meta=meta,
    )  # fmt: skip


def _intervals(c: Collective, matchings: list[Matching], parts: list[Part]) -> tuple[Int64, Int64]:
    """Which part sends which bytes, all pieces laid end to end.

    Returns:
        int64[intervals], the part of each, and int64[intervals], where it begins, in ascending order.
    """
    n = len(c.ranks)
    base = np.zeros((n, n), dtype=np.int64)
    base[c.holders.values, c.wanted.values] = np.cumsum(c.piece_bytes) - c.piece_bytes
    # the diagonal is an interval without a part, so that nothing before it reaches into it
    kept = np.flatnonzero(c.holders.values == c.wanted.values)
    rows = [(np.full(len(kept), -1), base[c.holders.values[kept], c.wanted.values[kept]])]
    for number, p in enumerate(parts):
        matching = matchings[p.matching]
        carried = np.clip(matching.sent, p.low, p.high) - p.low
        used = carried > 0
        src, dst = matching.src[used], matching.dst[used]
        rows.append((np.full(len(src), number), base[src, dst].copy()))
        base[src, dst] += carried[used]
    part, begin = (np.concatenate(column) for column in zip(*rows, strict=True))
    order = np.argsort(begin, kind="stable")
    return part[order], begin[order]


def _turns(topology: Topology, c: Collective, matchings: list[Matching], parts: list[Part], row_part: Int64) -> Turns:
    """A turn before each part whose circuits its plane does not hold, as soon as the part before has arrived."""
    holds = [to_nodes(topology, p) for p in topology.planes]
    free = [0.0] * len(topology.planes)
    first_row = np.searchsorted(row_part, np.arange(len(parts)))
    turns = []
    for number, p in enumerate(parts):
        plane, matching = topology.planes[p.plane], matchings[p.matching]
        src, dst = c.ranks[matching.src], c.ranks[matching.dst]
        if (holds[p.plane][src] != dst).any():
            partners = np.full(topology.node_count, -1, dtype=np.int32)
            partners[src] = dst
            turns.append((p.plane, int(first_row[number]), free[p.plane], to_ports(plane, partners)))
            holds[p.plane] = partners
        free[p.plane] = p.start_s + (p.high - p.low) / plane.bandwidth + plane.latency_s
    return Turns.of(turns)
