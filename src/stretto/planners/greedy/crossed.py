"""AllReduce over other trees outward than inward: what was summed over a deep tree spreads over a shallow one.

Where sums and copies overlap, a part of the data takes the way up its tree and the way down, however free the links
are. If the copies take the summing with time reversed, what was summed late is spread late, and the deepest tree counts
twice. Among the parts that are summed at one root the trees of copies are exchanged here, so that all parts have about
as long a way. Then trees may be deeper, and burden the links less: those of a matching of somewhat more bytes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...model.collective import Workload
from ...model.plan import COPY, REDUCE, Plan
from ...model.topology import Topology
from ...schedule.dispatch import dispatch
from ...schedule.inversion import Spread, Transfers, plan_in_phases

Int64 = NDArray[np.int64]

HEAVIER = 1.15
"""For so many times the bytes the trees are found. On a dozen networks it matters little, if not on amd:1 at 64 KB: see
docs/planners/greedy.md."""


def crossed(
    topology: Topology, workload: Workload, spread: Spread, heavier: float = HEAVIER, until_s: float = np.inf
) -> Plan:
    """A timed plan of an AllReduce.

    Args:
        spread: finds the trees, each root's to all.
        heavier: for so many times the bytes.
        until_s: of the CPU time of this thread, when the order is not improved further.
    """

    def of_more(net: Topology, asked: Workload, through_routers: bool) -> Transfers:
        sizes = (np.ceil(heavier * c.chunk_bytes).astype(np.int64) for c in asked.collectives)
        more = (replace(c, chunk_bytes=size) for c, size in zip(asked.collectives, sizes, strict=True))
        return spread(net, Workload(tuple(more)), through_routers)

    plan = plan_in_phases(topology, workload, of_more)
    return dispatch(_exchanged(plan), np.zeros(workload.chunk_count), apart=False)


def _exchanged(plan: Plan) -> Plan:
    """The same sums, with the copies of each chunk over the tree of another one that has the same root.

    Of the trees of a root the deepest for sums goes with the shallowest for copies, and so on.
    """
    copies, chunk = np.flatnonzero(plan.op == COPY), plan.chunk.astype(np.int64)
    # a copy that leaves a root waits for sums, all others for the copy before
    leaves = copies[plan.op[plan.depends.values[plan.depends.offsets[:-1][copies]]] == REDUCE]
    leaving = np.zeros(plan.workload.chunk_count, dtype=np.int64)
    leaving[chunk[leaves]] = leaves
    root = plan.src[leaving].astype(np.int64)
    inward = np.lexsort((_depth(plan, REDUCE), root))
    outward = np.lexsort((-_depth(plan, COPY), root))
    now = np.empty_like(inward)
    now[outward] = inward
    chunk[copies] = now[chunk[copies]]
    rows = np.arange(plan.transfer_count)
    rows[leaves] = leaving[chunk[leaves]]
    return replace(plan, chunk=chunk.astype(plan.chunk.dtype), depends=plan.depends.take(rows))


def _depth(plan: Plan, op: int) -> NDArray[np.float64]:
    """float64[chunks], the most hops from the root in the tree of sums, or of copies; where equal, by their sum."""
    later, earlier = plan.depends.owners, plan.depends.values.astype(np.int64)
    same = (plan.op[later] == op) & (plan.op[earlier] == op)
    nearer = np.full(plan.transfer_count, -1, dtype=np.int64)
    if op == COPY:
        nearer[later[same]] = earlier[same]
    else:
        nearer[earlier[same]] = later[same]
    hops, at = np.zeros(plan.transfer_count), np.where(plan.op == op, np.arange(plan.transfer_count), -1)
    while (at >= 0).any():
        hops += at >= 0
        at = np.where(at >= 0, nearer[at], -1)
    most: NDArray[np.float64] = np.zeros(plan.workload.chunk_count)
    np.maximum.at(most, plan.chunk, hops)
    most += np.bincount(plan.chunk, hops, len(most)) / (hops.sum() + 1.0)
    return most
