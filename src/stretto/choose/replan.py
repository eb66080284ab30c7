"""Plans the rest of a workload again, when the network has changed since its plan was made.

What has been delivered stays delivered: ranks hold it at first in the new plan, which plans only what they still lack,
on the network as it is now. SCALE-CCL (section 1) makes its schedules again "when significant WAN changes occur"; any
planner that serves multicasts can do it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..model.arrays import Bool, Int32, Int64, Ragged
from ..model.changes import make_changes
from ..model.collective import Collective, Workload
from ..model.errors import InputError, StrettoError, Unsupported
from ..model.plan import Plan
from ..model.progress import Progress
from ..model.reach import reachable_from
from ..model.telemetry import Telemetry, updated
from ..model.topology import Topology
from ..planners import find, registered, run_planner
from ..simulate import simulate
from .holdings import Held, held_after

DEFAULT_PLANNER = "auto"
"""The planner, where the planner of the old plan does not serve what is left."""


@dataclass(frozen=True)
class Replanned:
    """The rest of a workload.

    Attributes:
        plan: the plan from now (its time 0) on; None if nothing can be done or is left to do. Of a collective that
            was under way it has the chunks that some rank still lacks; ``meta["pieces"]`` has for each piece of its
            workload the numbers of its chunks in the old plan.
        delivered: the number of wanted (chunk, rank) pairs that had been delivered.
        lost: int64[pairs, 2], the wanted (chunk of the old plan, node) pairs that can no longer be served.
        as_planned_s: how long the old plan would still take on the network as it is now, seconds; None if it never
            ends. Measured latencies count from its start on.
        anew_s: how long a new plan of the whole workload would take from now on, which keeps nothing of what was
            delivered; None if there is none, or nothing had been sent.
    """

    plan: Plan | None
    delivered: int
    lost: Int64
    as_planned_s: float | None = None
    anew_s: float | None = None


def replan(
    plan: Plan,
    news: Telemetry,
    *,
    planner: str | None = None,
    anew: bool = False,
    seed: int = 0,
    effort: str | None = None,
    time_limit_s: float | None = None,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Replanned:
    """Plan what is left of a plan's workload on the network as it is now.

    Args:
        news: the moment, and what has changed.
        anew: keep nothing of what was delivered; ranks still have what they held at first.
        planner: the planner to use. Default: the planner that made the original plan, or ``auto`` if that one does not
            serve what is left.
        effort: how much may be tried; normal by default, as a rest is planned while ranks wait.
        seed: as in :func:`~stretto.planners.run_planner`.
        time_limit_s: as in :func:`~stretto.planners.run_planner`.
        options: as in :func:`~stretto.planners.run_planner`.
        progress: as in :func:`~stretto.planners.run_planner`.
    Raises:
        InputError: ``held`` is given where all begins anew.
        Unsupported: a rank whose contribution a sum needs cannot be reached, or ``held`` is given where there are sums.
    """
    if anew and news.held is not None:
        raise InputError("'held' says what to keep; leave it out where all begins anew", "news")
    topology = updated(plan.topology, news)
    work = plan.workload
    if news.held is not None and work.chunk_reduces.any():
        raise Unsupported("'held' says nothing of partial sums; leave it out, and what the simulation says counts")
    alive = np.ones(topology.node_count, dtype=np.bool_)
    alive[sorted(news.nodes_down)] = False
    arrived = _arrived(plan, news) & (not anew)
    held = held_after(plan, arrived, alive)
    if news.held is not None:
        for node, reported in news.held.items():
            held.holders[list(reported), node] = alive[node]
            held.whole[list(reported), node] = True
    wants = work.chunk_wanted.mask(topology.node_count)
    delivered = int((wants & held.whole).sum())
    lacking = wants & ~(held.whole & alive)
    served = lacking & alive & _within_reach(topology, held)
    cut_off = np.argwhere(lacking & alive & ~served & held.to_sum[:, None])
    if len(cut_off):
        raise Unsupported(_who_is_cut_off(plan, topology, held, *cut_off[0].tolist()))
    lost = np.argwhere(lacking & ~served)
    spec = planner or _planner_of(plan)

    def planned(workload: Workload) -> Plan:
        return run_planner(
            spec, topology, workload, seed=seed, effort=effort or "normal", time_limit_s=time_limit_s, options=options,
            progress=progress,
        )  # fmt: skip

    cuts = find(spec.partition("+")[0]).cuts
    ranks = topology.accelerators[alive[topology.accelerators]]
    parts, pieces = _rest(plan, news, held, served, ranks, merges=cuts)
    if not parts:
        return Replanned(None, delivered, lost)
    rest = planned(Workload(parts))
    meta = {**rest.meta, "replanned_at_s": news.at_s, "pieces": pieces}
    anew_s = None
    if arrived.any() and not len(lost):
        with suppress(StrettoError):
            whole = Workload(tuple(_from_now(c, news, merges=cuts) for c in work.collectives))
            anew_s = simulate(planned(whole)).completion_s
    return Replanned(rest.noted(meta), delivered, lost, _as_planned_s(plan, news), anew_s)


def _rest(
    plan: Plan, news: Telemetry, held: Held, served: Bool, ranks: Int32, merges: bool
) -> tuple[tuple[Collective, ...], list[list[int]]]:
    """What is left of each collective: as it was where nothing has happened to it, else what is to copy and to sum.

    Args:
        merges: whether chunks that the same nodes hold and lack become one piece.
    Returns:
        The collectives, and for each of their pieces its chunks in the old plan.
    """
    work = plan.workload
    parts: list[Collective] = []
    pieces: list[list[int]] = []
    for number, c in enumerate(work.collectives):
        base = int(work.chunk_base[number])
        rows = np.arange(base, base + c.chunk_count)
        whole = _from_now(c, news, merges)
        if _is_untouched(work, rows, held.holders, served):
            parts.append(whole)
            pieces += _lists(Ragged.grouped(c.chunk_piece, rows, len(c.piece_bytes)))
            continue
        left = rows[served[rows].any(axis=1)]
        by_kind = {"remainder": left[~held.to_sum[left]], "partial-sums": left[held.to_sum[left]]}
        by_kind = {kind: some for kind, some in by_kind.items() if len(some)}
        for kind, some in by_kind.items():
            same = np.arange(len(some))
            if merges:
                ends = np.concatenate((held.holders[some], served[some]), axis=1)
                same = np.unique(ends, axis=0, return_inverse=True)[1].ravel()
            groups = Ragged.grouped(same, some, int(same.max()) + 1)
            sizes = groups.reduced(np.add, work.chunk_bytes[groups.values])
            at = np.ix_(groups.values[groups.offsets[:-1]], ranks)
            lists = (Ragged.from_lengths(m.sum(axis=1), np.nonzero(m)[1]) for m in (held.holders[at], served[at]))
            rest = Collective.uncut(
                kind, ranks, int(sizes.sum()), sizes, *lists, start_s=whole.start_s,
                weight=c.weight,
            )  # fmt: skip
            parts.append(rest)
            pieces += _lists(groups)
    return tuple(parts), pieces


def _lists(groups: Ragged) -> list[list[int]]:
    return [groups[i].tolist() for i in range(groups.rows)]


def _from_now(c: Collective, news: Telemetry, merges: bool) -> Collective:
    """The collective with its start from the moment of the news on; where ``merges``, as it was before it was cut."""
    start_s = max(c.start_s - news.at_s, 0.0)
    if not merges:
        return replace(c, start_s=start_s)
    return Collective.uncut(
        c.kind, c.ranks, c.size_bytes, c.piece_bytes, c.holders, c.wanted, root=c.root, start_s=start_s, weight=c.weight
    )


def _as_planned_s(plan: Plan, news: Telemetry) -> float | None:
    """How long the old plan would still take from the moment of the news on; None if it never ends."""
    net = plan.topology
    late = net.latency_s.copy()
    late[list(news.latency_s)] = list(news.latency_s.values())
    failed = np.isin(net.src, list(news.nodes_down)) | np.isin(net.dst, list(news.nodes_down))
    failed[sorted(news.links_down)] = True
    measured = {**news.bandwidth, **dict.fromkeys(np.flatnonzero(failed).tolist(), 0.0)}
    steps = [(step["at_s"], step["link"], step["bandwidth_Bps"]) for step in net.changes.to_json()]
    steps = [(at_s, link, width) for at_s, link, width in steps if at_s != news.at_s or link not in measured]
    steps = [step for step in steps if step[0] < news.at_s or not failed[step[1]]]
    steps += [(news.at_s, link, width) for link, width in measured.items()]
    with suppress(StrettoError):
        now = replace(plan, topology=replace(net, latency_s=late))
        return max(simulate(now, make_changes(steps, net.link_count)).completion_s - news.at_s, 0.0)
    return None


def _planner_of(plan: Plan) -> str:
    """The planner that made the plan, if it serves rests of the plan's collectives.

    A plan is data: a planner in a file that its meta names is not imported.
    """
    name = str(plan.meta.get("planner", DEFAULT_PLANNER)).partition("+")[0]
    entry = registered().get(name)
    rests = {"partial-sums", "multicast"} if plan.workload.chunk_reduces.any() else {"multicast"}
    needed = {*rests, *(c.kind for c in plan.workload.collectives)}
    return name if entry is not None and needed <= {*entry.collectives} else DEFAULT_PLANNER


def _arrived(plan: Plan, news: Telemetry) -> Bool:
    """bool[transfers' receivers], what has arrived by the simulation; nothing where nodes say what they hold."""
    if news.held is not None or news.at_s <= 0:
        return np.zeros(len(plan.dst.values), dtype=np.bool_)
    return np.asarray(simulate(plan).arrival_s <= news.at_s * (1 + 1e-12))


def _within_reach(topology: Topology, held: Held) -> Bool:
    """bool[chunks, nodes], the nodes that some holder of a chunk can reach; of a sum, that all its holders can."""
    reach = np.repeat(held.to_sum[:, None], topology.node_count, axis=1)
    circles: list[tuple[Bool, Bool]] = []  # nodes that reach each other, and the nodes that all of them reach
    for node in map(int, np.flatnonzero(held.holders.any(axis=0))):
        forward = next((far for circle, far in circles if circle[node]), None)
        if forward is None:
            forward = reachable_from(topology, [node])
            circles.append((forward & reachable_from(topology, [node], backward=True), forward))
        reach |= (held.holders[:, node] & ~held.to_sum)[:, None] & forward
        reach &= ~(held.holders[:, node] & held.to_sum)[:, None] | forward
    return reach


def _who_is_cut_off(plan: Plan, topology: Topology, held: Held, chunk: int, receiver: int) -> str:
    """A line that names a holder of a sum who cannot reach one who wants it."""
    holders = np.flatnonzero(held.holders[chunk]).tolist()
    node = next(v for v in holders if not reachable_from(topology, [v])[receiver])
    kind = plan.workload.collectives[int(plan.workload.chunk_collective[chunk])].kind
    return f"{kind} needs {topology.names[node]}, which is cut off from {topology.names[receiver]}"


def _is_untouched(workload: Workload, rows: Int64, holders: Bool, served: Bool) -> bool:
    """Whether nothing of a collective has been delivered, and nothing lost."""
    first, wanted = (
        lists.take(rows).mask(holders.shape[1]) for lists in (workload.chunk_holders, workload.chunk_wanted)
    )
    lacking = wanted & ~(first & ~workload.chunk_reduces[rows][:, None])
    return np.array_equal(holders[rows], first) and np.array_equal(served[rows], lacking)
