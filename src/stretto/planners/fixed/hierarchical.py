"""hierarchical: halving and doubling inside servers and across them, with all chunks of a step in few messages.

Where messages cost as much as bytes, what counts is in how many steps all ranks hear from all. Halving and doubling
takes 2 log n steps of one message each, which carry half of the data, then a quarter, and so on. In a cluster the
largest of them should stay inside a server, and those across servers should follow the rails. So the ranks are cells of
a grid, servers along one dimension and the places in a server along the other, and each dimension has an algorithm of
its own (:mod:`stretto.schedule.grid_steps`). Where servers are uneven, or there is one, the grid has one dimension.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...model.arrays import Int64
from ...model.collective import Collective, Workload
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.algorithms import DISSEMINATION, WHERE_MESSAGES_COST, Algorithm
from ...schedule.best import best
from ...schedule.cutting import messages_cost
from ...schedule.grid_steps import HALVES, on_grid
from .. import Candidate, Request, over_links, per_delivery, register
from .planner import pairless, plan_algorithm

EXCHANGES = ("recursive-doubling", "rabenseifner")
"""Algorithms in a line of a power of two of ranks; the first also by itself, where steps count and bytes do not."""


def _refusal(topology: Topology, workload: Workload) -> str | None:
    """Why it cannot serve this, None if it can."""
    reason = over_links(topology, workload)
    if reason is None and len(workload.collectives) > 1:
        reason = "it plans one collective at a time"
    if reason is None and not any(True for _ in _algorithms(topology, workload.collectives[0])):
        reason = "no link or switch joins the ranks that would exchange data"
    return reason


@register(
    "hierarchical",
    collectives=HALVES,
    topologies="where ranks of a server are joined, and the same places of all servers, without planes",
    paper="Rabenseifner, ICCS 2004; Bruck et al., IEEE TPDS 1997",
    messages=True,
    serves=_refusal,
    auto=Candidate(per_delivery(60, first=5_000), asked=lambda r: r.several_chunks and messages_cost(r.topology)),
)
def hierarchical(request: Request) -> Plan:
    """Halving and doubling inside servers and across them, several chunks in a message.

    Returns:
        A plan in ready-order; ``meta["algorithm"]`` says which algorithm it follows.
    """
    (c,) = request.workload.collectives
    plans = []
    for algorithm in _algorithms(request.topology, c):
        plan = plan_algorithm(algorithm, request)
        plans.append(plan.noted(plan.meta | {"algorithm": algorithm.summary}))
    return best(plans)


def _algorithms(topology: Topology, c: Collective) -> Iterator[Algorithm]:
    """The algorithms that serve a collective on a network."""
    n, kind = len(c.ranks), c.kind
    alone = WHERE_MESSAGES_COST[EXCHANGES[0]]
    if c.traits.reduces_to_all and pairless(alone, topology, c) is None:
        yield alone
    for rank in _grids(topology, c):
        dims = rank.shape
        lines = [_line(kind, count) for count in dims]
        most = min(len(dims), max(int(c.piece_bytes.min()) // (n if c.traits.reduces_to_all else 1), 1))
        for parts in sorted({1, most}):
            algorithm = on_grid(kind, dims, rank.ravel(), parts, lines).algorithm
            if pairless(algorithm, topology, c) is None:
                yield algorithm


def _grids(topology: Topology, c: Collective) -> Iterator[Int64]:
    """Grids of the ranks: all in a line, servers by places, and places by servers."""
    n = len(c.ranks)
    yield np.arange(n)
    server = np.unique(np.array(topology.sites)[c.ranks], return_inverse=True)[1].ravel()
    count = np.bincount(server)
    if 1 < len(count) < n and (count == count[0]).all():
        by_server = np.argsort(server, kind="stable").reshape(len(count), -1)
        yield by_server
        yield by_server.T


def _line(kind: str, count: int) -> str:
    """The algorithm in a line of so many ranks."""
    halving = WHERE_MESSAGES_COST[EXCHANGES[1]]
    serves = all(name in halving.kinds and halving.serves(name, count) is None for name in HALVES[kind])
    return EXCHANGES[1] if serves else DISSEMINATION.name
