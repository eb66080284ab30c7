"""Trees grown chunk by chunk, where chunks must pass through nodes that do not want them; their order is searched.

The kernel is MTEGCCA's (:mod:`stretto.schedule.kernel_multicast`). In the next try chunks that came last go first.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...model.arrays import Float64, Int64
from ...model.collective import Workload
from ...model.topology import SWITCH, Topology
from ...schedule.effort import Budget
from ...schedule.inversion import Transfers
from ...schedule.multicast import MulticastTrees, grow_implicitly, task_order, tree_work

LATE = 8
"""Exponent: of solutions that end together, the one with the lesser mean of arrivals to this power is kept."""

STEP_WORK, TRY_WORK = 0.02, 1_000.0
"""Work of a step of growing trees, in deliveries of the search, and of a try beside its steps."""

THRIFTS = (0.0, 2.0)
"""How much a second of a link's time counts against one of waiting, in turn."""

Score = tuple[float, float]
"""The completion, and the mean of arrivals, relative to the completion, to the power LATE."""


def grow_trees(
    topology: Topology,
    workload: Workload,
    through_routers: bool,
    work: float,
    most_tries: int,
    rng: np.random.Generator,
    budget: Budget,
) -> Transfers:
    """The transfers of the trees that grow in the best order tried.

    Args:
        through_routers: whether trees only pass through routers, as if these were switches.
        work: deliveries that may be tried.
        budget: with :data:`.costs.COSTS`; tries after the first end with it.
    """
    kind = np.where(topology.is_router & through_routers, SWITCH, topology.kind).astype(np.int8)
    net = replace(topology, kind=kind, replicates=np.zeros_like(topology.replicates))
    steps = float(tree_work(topology, workload))
    budget.require(f"growing {workload.chunk_count:,} trees on {topology.name}", grow=steps)
    tries = int(np.clip(work / (TRY_WORK + STEP_WORK * steps), 1, most_tries))
    best: tuple[Score, Int64, MulticastTrees] | None = None
    for k in range(tries):
        if best is not None and not budget.allows(grow=steps):
            break
        order = task_order(workload, "interleaved") if best is None else _late_chunks_first(best, workload, rng)
        trees = grow_implicitly(net, workload, order, None, 0.0, THRIFTS[k % len(THRIFTS)], steps * tries)
        budget.spend(grow=steps)
        score = trees.finish_s, float((_relative_arrivals(net, trees) ** LATE).mean())
        if best is None or score <= best[0]:
            best = score, order, trees
    assert best is not None, "there is at least one try"
    return _transfers(net, workload, best[2])


def _late_chunks_first(
    best: tuple[Score, Int64, MulticastTrees], workload: Workload, rng: np.random.Generator
) -> Int64:
    """The best order with some chunks moved to the front, mostly chunks that came last."""
    (finish, _), order, trees = best
    last = np.zeros(workload.chunk_count)
    np.maximum.at(last, trees.chunk, trees.start_s + trees.seconds)
    weight = (last / max(finish, 1e-300)) ** LATE + 0.01
    moved = rng.choice(len(order), size=int(rng.integers(1, max(2, len(order) // 4))), p=weight / weight.sum())
    front = np.isin(order, moved)
    return np.concatenate((order[front], order[~front]))


def _relative_arrivals(topology: Topology, trees: MulticastTrees) -> Float64:
    """float64[passes], relative to the last arrival."""
    arrives = trees.start_s + trees.seconds + topology.route_latency_s(trees.route)
    relative: Float64 = arrives / max(float(arrives.max(initial=0.0)), 1e-300)
    return relative


def _transfers(topology: Topology, workload: Workload, trees: MulticastTrees) -> Transfers:
    """What the kernel grew, in the order of its starts."""
    seconds = workload.chunk_bytes[trees.chunk] * (1.0 / topology.route_bandwidth(trees.route))
    arrival_s = trees.start_s + seconds + topology.route_latency_s(trees.route)
    dst = trees.dst.values.astype(np.int64)
    sent = Transfers(trees.chunk, trees.src, dst, trees.route, trees.parent, trees.start_s, seconds, arrival_s)
    return sent.in_order(np.argsort(trees.start_s, kind="stable"))
