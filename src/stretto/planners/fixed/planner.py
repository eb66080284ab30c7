"""The fixed algorithms as planners: each step's pairs over shortest routes, or over planes.

An algorithm does not look at the topology. Where two partners are joined neither by a link nor through switches and
routers, it is refused, since another accelerator would have to relay. Where messages cost, the chunks that a step sends
from one rank to another go in as few messages as pay (:mod:`stretto.schedule.several_chunks`). On a network of optical
planes the plan uses the first plane alone and turns it between steps, which is right but slow: it is meant for a
refiner (``ring+swot``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ...model.arrays import Int32, Ragged, distinct
from ...model.collective import Collective, Workload
from ...model.plan import Plan, Turns, make_plan
from ...model.topology import Topology
from ...schedule.algorithms import ALGORITHMS, Algorithm, lower
from ...schedule.branching import joined
from ...schedule.several_chunks import in_messages
from ...schedule.ways import Ways, ways_of
from .. import Request, register


def _refusal(algorithm: Algorithm, topology: Topology, workload: Workload) -> str | None:
    """Why it cannot serve this, None if it can."""
    for c in workload.collectives:
        if c.kind not in algorithm.kinds:
            continue
        reason = pairless(algorithm, topology, c)
        if reason is not None:
            return reason
    return None


def pairless(algorithm: Algorithm, topology: Topology, c: Collective, ways: Ways | None = None) -> str | None:
    """Why an algorithm cannot serve a collective: its number of ranks, or two of them that nothing joins."""
    n = len(c.ranks)
    reason = algorithm.serves(c.kind, n)
    if reason is not None:
        return reason
    ways, nodes = ways or ways_of(topology), algorithm.nodes(c.ranks)
    for step in algorithm.steps(c.kind, n, root=max(c.root, 0)):
        pairs = np.unique(step.src * len(nodes) + step.dst)
        ends = nodes[np.stack(np.divmod(pairs, len(nodes)), axis=1)]
        if topology.planes:
            reason = portless(topology, ends)
            if reason is not None:
                return reason
            continue
        for a, b in ends.tolist():
            if not ways.join(a, b):
                return f"{topology.names[a]} sends to {topology.names[b]}, and no link or switch joins them"
    return None


def portless(topology: Topology, nodes: Int32) -> str | None:
    """Why the first plane does not serve these nodes, None if it does."""
    missing = np.setdiff1d(nodes, topology.planes[0].nodes)
    return f"{topology.names[missing[0]]} has no port on the first plane" if len(missing) else None


def plan_algorithm(algorithm: Algorithm, request: Request, ways: Ways | None = None, timed: bool = False) -> Plan:
    """The transfers of an algorithm over shortest routes, or over the first plane.

    Args:
        timed: whether messages may have times, with which those of a step share links.
    """
    topology, lowered = request.topology, lower(algorithm, request.workload)
    rows, ways = len(lowered.chunk), ways or ways_of(topology)
    more: dict[str, Any] = {}
    dst, depends, of = Ragged.single(lowered.dst), lowered.depends, np.arange(rows)
    if topology.planes:
        route = Ragged.empty(rows)
        turns = _turns(topology, lowered.src, lowered.dst, lowered.group)
        more = {"plane": np.zeros(rows, dtype=np.int32), "turns": turns}
    elif algorithm.at_once:
        of, dst, route = joined(lowered, ways.to_all)
        pairs = distinct(of[depends.owners] * dst.rows + of[depends.values])
        depends = Ragged.from_lengths(np.bincount(pairs // dst.rows, minlength=dst.rows), pairs % dst.rows)
    else:
        pairs, which = np.unique(np.stack((lowered.src, lowered.dst), axis=1), axis=0, return_inverse=True)
        route = Ragged.of(ways.between(pairs)).take(which.ravel())
    first = np.empty(dst.rows, dtype=np.int64)
    first[of] = np.arange(rows)
    plan = make_plan(
        topology, lowered.workload, "ready-order", chunk=lowered.chunk[first], src=lowered.src[first],
        op=lowered.op[first], dst=dst, route=route, depends=depends, group=lowered.group[first], **more,
    )  # fmt: skip
    return in_messages(plan, timed) if request.several_chunks else plan


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
    "all-pairs": {"library": 70},
    "recursive-doubling": {"library": 20},
    "rabenseifner": {"library": 40},
    "binomial": {"library": 30},
    "pairwise": {"tune": 70},
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
        messages=True,
        serves=partial(_refusal, _algorithm),
        transfers=partial(_transfers, _algorithm),
        **_ASKED.get(_algorithm.name, {}),
    )(_planner(_algorithm))
