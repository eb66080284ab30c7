"""hierarchical where data is large: inside servers and across them at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from ...model.arrays import Int64, Ragged
from ...model.collective import Collective
from ...model.plan import Plan
from ...model.topology import Topology
from ...schedule.algorithms import WHERE_MESSAGES_COST
from ...schedule.grid_steps import HALVES, on_grid
from ...schedule.job_loads import Candidate
from ...schedule.overlapping import overlapped
from ...schedule.pipes import build_network
from .. import Request
from .planner import Ways
from .servers import grids, server_labels

FEW_STEPS = ("rabenseifner", "dissemination")
"""Algorithms in a line of few messages, of which the first one that serves is tried."""

DIRECT = ("all-pairs", "pairwise")
"""Algorithms in a line that send each block straight to its goal."""


def overlaps(request: Request, ways: Ways, within_s: float) -> Iterator[Plan]:
    """The plan in which both dimensions of a grid of servers work at the same time, if one ends by ``within_s``."""
    topology, (c,) = request.topology, request.workload.collectives
    if not topology.store_and_forward[c.ranks].all() or not c.is_whole:
        return

    def between(pairs: Int64) -> Ragged:
        return Ragged.of(ways.between(pairs))

    found = overlapped(topology, c, _candidates(topology, c), between, within_s)
    if found is not None:
        plan = found.plan(request.workload)
        yield plan.noted(plan.meta | {"algorithm": found.summary})


def _candidates(topology: Topology, c: Collective) -> Iterator[Candidate]:
    network = build_network(topology.delayed, float(c.size_bytes), True, 0.0)
    for rank, across in grids(c.ranks, server_labels(topology, network, c.ranks)):
        if min(rank.shape) < 2 or rank.ndim < 2:
            continue
        for lines in product(*(_lines(c.kind, count, d == across) for d, count in enumerate(rank.shape))):
            phased = on_grid(c.kind, rank.shape, rank.ravel(), 1, lines)
            direct = np.isin(lines, DIRECT)[phased.dimension]
            yield Candidate(phased.algorithm, phased.dimension, direct)


def _lines(kind: str, count: int, across: bool) -> list[str]:
    """The algorithms in a line of so many ranks. A line across servers may also be a ring, which passes narrow links
    between switches less often."""
    fits = [
        name
        for name in (*FEW_STEPS, *DIRECT, "ring")
        if all(p in (a := WHERE_MESSAGES_COST[name]).kinds and a.serves(p, count) is None for p in HALVES[kind])
    ]
    few = [name for name in FEW_STEPS if name in fits][:1]
    return few + [name for name in fits if name in DIRECT or (across and name == "ring")]
