"""AllReduce over other trees outward than inward: what was summed over a deep tree spreads over a shallow one.

Where sums and copies overlap, a part of the data takes the path up its tree and the path down, however free the links
are. If copies take the same tree with time reversed, what was summed late is spread late, and the deepest tree counts
twice. Here the parts that are summed at one root swap their trees for copies, so that the depths of both trees add up
to about the same for all parts. Then trees may be deeper, and burden links less: those of a matching of more bytes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...model.arrays import Float64, Int64
from ...model.collective import Workload
from ...model.plan import COPY, REDUCE, Plan
from ...model.topology import Topology
from ...schedule.dispatch import dispatch
from ...schedule.effort import Budget
from ...schedule.inversion import Spread, Transfers, plan_in_phases

HEAVIER = 1.15
"""Times the bytes for which trees are matched. Chosen by ``benchmarks/heavier_trees.py``: of six values from 1 to 1.3
the best, but their geometric means of completion / bound differ little, 1.372 to 1.377."""


def plan_with_swapped_trees(
    topology: Topology, workload: Workload, spread: Spread, heavier: float = HEAVIER, budget: Budget | None = None
) -> Plan:
    """A timed plan of an AllReduce.

    Args:
        spread: finds the tree of each chunk, from its root to all.
        heavier: times the bytes for which it finds them.
        budget: see :func:`~stretto.schedule.dispatch.dispatch`.
    """

    def spread_heavier(net: Topology, load: Workload, through_routers: bool) -> Transfers:
        sizes = (np.ceil(heavier * c.chunk_bytes).astype(np.int64) for c in load.collectives)
        more = (replace(c, chunk_bytes=size) for c, size in zip(load.collectives, sizes, strict=True))
        return spread(net, Workload(tuple(more)), through_routers)

    plan = _swap_trees(plan_in_phases(topology, workload, spread_heavier))
    return dispatch(plan, np.zeros(workload.chunk_count), budget, apart=False)


def _swap_trees(plan: Plan) -> Plan:
    """The same sums, with the copies of each chunk over the tree of another chunk that has the same root.

    Of the trees of a root the deepest for sums goes with the shallowest for copies, and so on.
    """
    copies, chunk = np.flatnonzero(plan.op == COPY), plan.chunk.astype(np.int64)
    # a copy that leaves a root waits for sums, all others for the copy before
    from_root = copies[plan.op[plan.depends.values[plan.depends.offsets[:-1][copies]]] == REDUCE]
    root_copy = np.zeros(plan.workload.chunk_count, dtype=np.int64)
    root_copy[chunk[from_root]] = from_root
    root = plan.src[root_copy].astype(np.int64)
    inward = np.lexsort((_depth(plan, REDUCE), root))
    outward = np.lexsort((-_depth(plan, COPY), root))
    partner = np.empty_like(inward)
    partner[outward] = inward
    chunk[copies] = partner[chunk[copies]]
    rows = np.arange(plan.transfer_count)
    rows[from_root] = root_copy[chunk[from_root]]
    return replace(plan, chunk=chunk.astype(plan.chunk.dtype), depends=plan.depends.take(rows))


def _depth(plan: Plan, op: int) -> Float64:
    """float64[chunks], the most hops from the root in the tree of sums, or of copies; of equal ones the lesser mean."""
    later, earlier = plan.depends.owners, plan.depends.values.astype(np.int64)
    same = (plan.op[later] == op) & (plan.op[earlier] == op)
    nearer: Int64 = np.full(plan.transfer_count, -1, dtype=np.int64)
    if op == COPY:
        nearer[later[same]] = earlier[same]
    else:
        nearer[earlier[same]] = later[same]
    hops, at = np.zeros(plan.transfer_count), np.where(plan.op == op, np.arange(plan.transfer_count), -1)
    while (at >= 0).any():
        hops += at >= 0
        at = np.where(at >= 0, nearer[at], -1)
    depth: Float64 = np.zeros(plan.workload.chunk_count)
    np.maximum.at(depth, plan.chunk, hops)
    depth += np.bincount(plan.chunk, hops, len(depth)) / (hops.sum() + 1.0)
    return depth
