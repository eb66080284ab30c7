"""Plans the rest of a workload again, when the network has changed since its plan was made.

What has been delivered stays delivered: ranks hold it at first in the new plan, which plans only what they still lack,
on the network as it is now. SCALE-CCL (section 1) makes its schedules again "when significant WAN changes occur"; any
planner that serves multicasts can do it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..model.arrays import Bool, Int32, Int64, Ragged
from ..model.collective import Collective, Workload
from ..model.errors import Unsupported
from ..model.plan import Plan
from ..model.reach import reachable_from
from ..model.telemetry import Telemetry, updated
from ..model.topology import Topology
from ..planners import default_effort, registered, run_planner
from ..simulate import simulate

DEFAULT_PLANNER = "scale-ccl"
"""The planner, where the planner of the old plan does not serve multicasts."""


@dataclass(frozen=True)
class Replanned:
    """The rest of a workload.

    Attributes:
        plan: the plan from now (its time 0) on; None if nothing can be done or is left to do. Of a collective that
            was under way it has the chunks that some rank still lacks; ``meta["chunks"]`` has their numbers in the
            old plan.
        delivered: the number of wanted (chunk, rank) pairs that had been delivered.
        lost: int64[pairs, 2], the wanted (chunk of the old plan, node) pairs that can no longer be served.
    """

    plan: Plan | None
    delivered: int
    lost: Int64


def replan(
    plan: Plan,
    news: Telemetry,
    *,
    planner: str | None = None,
    seed: int = 0,
    effort: str | None = None,
    time_limit_s: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> Replanned:
    """Plan what is left of a plan's workload on the network as it is now.

    Args:
        news: the moment, and what has changed.
        planner: the planner to use. Default: the planner that made the original plan, or ``scale-ccl`` if that one
            does not serve multicasts.
        seed: as in :func:`~stretto.planners.run_planner`.
        effort: as in :func:`~stretto.planners.run_planner`.
        time_limit_s: as in :func:`~stretto.planners.run_planner`.
        options: as in :func:`~stretto.planners.run_planner`.
    Raises:
        Unsupported: a sum is under way (partial sums cannot be taken up), or a rank whose contribution a sum needs
            cannot be reached.
    """
    topology = updated(plan.topology, news)
    before = plan.workload
    holds = _holdings(plan, news)
    wants = before.chunk_wanted.mask(topology.node_count)
    _refuse_sums(plan, news, topology)
    holds[:, sorted(news.nodes_down)] = False
    lacking = wants & ~holds & ~before.chunk_reduces[:, None]
    served = lacking & _within_reach(topology, holds)
    lost = np.argwhere(lacking & ~served)
    parts, chunks = [], []
    for number, c in enumerate(before.collectives):
        base = int(before.chunk_base[number])
        rows = np.arange(base, base + c.chunk_count)
        start_s = max(c.start_s - news.at_s, 0.0)
        if c.reduces or _is_untouched(before, rows, holds, served):
            parts.append(replace(c, start_s=start_s))
            chunks.append(rows)
        elif served[rows].any():
            left = rows[served[rows].any(axis=1)]
            ranks = topology.accelerators[~np.isin(topology.accelerators, list(news.nodes_down))]
            at = np.ix_(left, ranks)
            parts.append(_remainder(ranks, before.chunk_bytes[left], holds[at], served[at], start_s))
            chunks.append(left)
    delivered = int((wants & holds).sum())
    if not parts:
        return Replanned(None, delivered, lost)
    spec = planner or _planner_of(plan)
    rest = run_planner(
        spec, topology, Workload(tuple(parts)), seed=seed, effort=effort or default_effort(spec),
        time_limit_s=time_limit_s, options=options,
    )  # fmt: skip
    meta = {**rest.meta, "replanned_at_s": news.at_s, "chunks": np.concatenate(chunks).tolist()}
    return Replanned(replace(rest, meta=meta), delivered, lost)


def _planner_of(plan: Plan) -> str:
    """The planner that made the plan, if it serves multicasts and the plan's collectives.

    A plan is data: a planner in a file that its meta names is not imported.
    """
    name = str(plan.meta.get("planner", DEFAULT_PLANNER)).partition("+")[0]
    entry = registered().get(name)
    needed = {"multicast", *(c.kind for c in plan.workload.collectives)}
    return name if entry is not None and needed <= {*entry.collectives} else DEFAULT_PLANNER


def _holdings(plan: Plan, news: Telemetry) -> Bool:
    """bool[chunks, nodes], the chunks that each accelerator holds; routers and switches keep nothing for long."""
    workload, topology = plan.workload, plan.topology
    holds = workload.chunk_holders.mask(topology.node_count)
    if news.held is not None:
        for node, chunks in news.held.items():
            holds[list(chunks), node] = True
    elif news.at_s > 0:
        here = simulate(plan).arrival_s <= news.at_s * (1 + 1e-12)
        holds[plan.chunk[plan.dst.owners[here]], plan.dst.values[here]] = True
    holds[:, topology.kind != 0] = False
    return holds


def _refuse_sums(plan: Plan, news: Telemetry, topology: Topology) -> None:
    for c in plan.workload.collectives:
        if not c.reduces:
            continue
        if news.held is not None or news.at_s > c.start_s:
            raise Unsupported(f"{c.kind} is under way and partial sums cannot be taken up; plan it from the start")
        ranks = [int(v) for v in c.ranks]
        # nodes that are down come first in the message: nobody can reach them either
        for node in sorted(ranks, key=lambda v: v not in news.nodes_down):
            if node in news.nodes_down or not reachable_from(topology, [node])[ranks].all():
                raise Unsupported(f"{c.kind} needs {topology.names[node]}, which is cut off")


def _within_reach(topology: Topology, holds: Bool) -> Bool:
    """bool[chunks, nodes], the nodes that some holder of a chunk can reach."""
    reach = np.zeros_like(holds)
    circles: list[tuple[Bool, Bool]] = []  # nodes that reach each other, and the nodes that all of them reach
    for node in map(int, np.flatnonzero(holds.any(axis=0))):
        forward = next((far for circle, far in circles if circle[node]), None)
        if forward is None:
            forward = reachable_from(topology, [node])
            circles.append((forward & reachable_from(topology, [node], backward=True), forward))
        reach |= holds[:, node][:, None] & forward[None, :]
    return reach


def _is_untouched(workload: Workload, rows: Int64, holds: Bool, served: Bool) -> bool:
    """Whether nothing of a collective has been delivered, and nothing lost."""
    first, wanted = (lists.take(rows).mask(holds.shape[1]) for lists in (workload.chunk_holders, workload.chunk_wanted))
    return np.array_equal(holds[rows], first) and np.array_equal(served[rows], wanted & ~first)


def _remainder(ranks: Int32, size_bytes: Int64, holds: Bool, served: Bool, start_s: float) -> Collective:
    """The rest of a collective: each chunk is a piece, from all nodes that hold it to all ranks that lack it.

    Args:
        holds, served: bool[chunks, ranks].
    """
    count = len(size_bytes)
    return Collective(
        kind="remainder",
        ranks=ranks,
        size_bytes=int(size_bytes.sum()),
        root=-1,
        start_s=start_s,
        piece_bytes=size_bytes,
        holders=Ragged.from_lengths(holds.sum(axis=1), np.nonzero(holds)[1]),
        wanted=Ragged.from_lengths(served.sum(axis=1), np.nonzero(served)[1]),
        reduces=False,
        chunk_piece=np.arange(count, dtype=np.int32),
        chunk_offset=np.zeros(count, dtype=np.int64),
        chunk_bytes=size_bytes,
    )
