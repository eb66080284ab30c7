"""AllReduce as a ReduceScatter and then an AllGather, each by the planner whose plan of it ends first.

Trees that sum and copy at once may take unlike shares to unlike ranks, but there are far more of them to choose from
than of those of each half. Where both halves, one after the other, take about as long as the lower bound of the
AllReduce, nothing is lost by them, and planners find better plans of each half: in a ReduceScatter and an AllGather
each rank sums an equal part, and where switches copy, an AllGather needs few messages. Each half is cut in its own way:
a message of one half that covers several chunks of the other carries all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..bounds import bounds
from ..bounds.exact import bottleneck
from ..model.arrays import Int64, Ragged
from ..model.collective import Collective, Workload, make_collective
from ..model.errors import Unsupported
from ..model.message_form import SHARING
from ..model.messages import apart, message_count
from ..model.plan import Plan, make_plan
from ..model.symmetric import SymmetricPlan
from ..model.topology import Topology
from ..schedule.best import best
from ..schedule.cutting import share_of_bytes
from ..schedule.effort import Budget
from ..schedule.insertion import Placing
from ..schedule.servers import are_far_apart
from ..simulate import simulate
from .registry import Candidate, Option, Request, over_links, per_delivery, register
from .run import plan_by

COPIES, SUMS = ("allgather", 0.35), ("reducescatter", 0.8)
"""The halves in the order in which they are planned, and the share of the effort that is left for each. Copies end soon
near their bound where switches copy, and leave their effort to the sums: with 0.4 and 0.6 AllReduces on racks and rails
end 1 % later in the mean (docs/contributors/planners/rs-ag.md has the networks)."""

LITTLE = 1.2
"""Times the lower bound that both halves take at least, up to which ``auto`` asks."""

BYTES_DECIDE = 0.5
"""Share of a message's time that is that of its bytes, from which ``auto`` asks: two halves take twice as many messages
one after the other as an exchange of sums."""

STEPS = per_delivery(10, first=5_000)
"""Steps from which it is worth asking."""

MOST_MOVED = 10_000
"""Transfers up to which those of the second half are moved into gaps of the first."""

OPTIONS = (Option("planner", str, "auto", "what plans each half: PLANNER[+REFINER...]"),)


def _serves(topology: Topology, workload: Workload) -> str | None:
    return over_links(topology, workload) or (
        "it plans one collective at a time" if len(workload.collectives) > 1 else None
    )


def _cost_little(request: Request) -> bool:
    """Whether both halves take little more than the lower bound: each by its narrowest cut and the longest latency."""
    topology, workload = request.topology, request.workload
    c = workload.collectives[0]
    if _serves(topology, workload) is not None or not c.traits.reduces_to_all:
        return False
    if share_of_bytes(topology, workload) < BYTES_DECIDE or STEPS(request) > request.budget.steps:
        return False
    passed = ~topology.is_accelerator
    if not (passed[topology.src] & passed[topology.dst]).any() or are_far_apart(topology, workload):
        return False
    limits = bounds(topology, workload)
    latency_s = next((bound.seconds for bound in limits if bound.kind == "latency path"), 0.0)
    narrowest = [bottleneck(topology, _half(topology, c, kind)) for kind, _ in (COPIES, SUMS)]
    return sum(latency_s + cut.seconds for cut in narrowest if cut is not None) <= LITTLE * limits[0].seconds


def _half(topology: Topology, c: Collective, kind: str) -> Collective:
    return make_collective(kind, topology, c.size_bytes, ranks=c.ranks.tolist())


@register(
    "rs-ag",
    collectives=("allreduce",),
    topologies="any without planes",
    paper="Rabenseifner, ICCS 2004; here with any planner",
    options=OPTIONS,
    messages=True,
    cuts=True,
    serves=_serves,
    auto=Candidate(STEPS, asked=_cost_little),
)
def rs_ag(request: Request, *, planner: str = "auto") -> Plan:
    """ReduceScatter and then AllGather, each by the planner whose plan of it ends first.

    Args:
        planner: what plans each half.
    Returns:
        A timed plan, or one in ready-order. Its ``meta`` has ``halves``: the planners of ReduceScatter and AllGather.
    Raises:
        Unsupported: no planner serves a half, or its plan shares links by rates or weights, or lets switches sum.
    """
    topology, (c,) = request.topology, request.workload.collectives

    def planned(kind: str, share: float) -> Plan:
        workload, budget = Workload((_half(topology, c, kind),)), request.budget.share(share)
        own = replace(request, workload=workload, budget=budget, target=None, kept=None, progress=None)
        plan = plan_by(planner, own)
        return plan.expand() if isinstance(plan, SymmetricPlan) else plan

    copies, sums = planned(*COPIES), planned(*SUMS)
    plan = joined(topology, c, sums, copies)
    if not request.several_chunks:
        plan = apart(plan)
    names = [half.meta.get("chosen", half.meta["planner"]) for half in (sums, copies)]
    return best([plan, *_moved_up(plan, request.budget)]).noted({"halves": names})


def joined(topology: Topology, c: Collective, sums: Plan, copies: Plan) -> Plan:
    """The plan of an AllReduce: first all transfers of a ReduceScatter, then those of an AllGather.

    Args:
        c: the AllReduce.
        sums, copies: plans of the ReduceScatter and the AllGather of as many bytes among the same ranks.
    Returns:
        A timed plan; where a message of several chunks would end or begin at a router, which sends on what still comes,
        one in ready-order in which each chunk is a message.
    Raises:
        Unsupported: a plan shares links by rates or weights, or lets switches sum.
    """
    halves = [plan.workload.collectives[0] for plan in (sums, copies)]
    begins = [(np.cumsum(h.piece_bytes) - h.piece_bytes)[h.chunk_piece] + h.chunk_offset for h in halves]
    edges = np.unique(np.concatenate([*begins, c.chunk_offset, [c.size_bytes]]))
    whole = np.zeros(len(edges) - 1, dtype=np.int32)
    fine = replace(c, chunk_piece=whole, chunk_offset=edges[:-1], chunk_bytes=np.diff(edges))
    first, last = (
        _Rows.of(plan, np.searchsorted(edges, begin), np.searchsorted(edges, begin + h.chunk_bytes))
        for plan, begin, h in zip((sums, copies), begins, halves, strict=True)
    )
    count = len(first.chunk)
    owner = c.ranks[np.searchsorted(np.cumsum(halves[0].piece_bytes), fine.chunk_offset, side="right")]
    # what the owner of a part sends waits for all that has come to it
    reached = sums.dst.take(first.transfer)
    comes = reached.owners[reached.values == owner[first.chunk][reached.owners]]
    leaves = np.flatnonzero(copies.src[last.transfer] == owner[last.chunk])
    awaited = Ragged.grouped(first.chunk[comes], comes, fine.chunk_count).take(last.chunk[leaves])
    waits = np.concatenate((first.waits, last.waits + count, leaves[awaited.owners] + count))
    waited = np.concatenate((first.waited, last.waited + count, awaited.values))
    lines, rows = [simulate(plan) for plan in (sums, copies)], (first.transfer, last.transfer)
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(plan, name)[row] for plan, row in zip((sums, copies), rows, strict=True)])
        for name in ("src", "op")
    }
    for name in ("dst", "route"):
        lists = [getattr(plan, name).take(row) for plan, row in zip((sums, copies), rows, strict=True)]
        columns[name] = Ragged.concatenate(lists)
    columns["chunk"] = np.concatenate((first.chunk, last.chunk))
    columns["depends"] = Ragged.grouped(waits, waited, len(columns["chunk"]))
    message = np.concatenate((first.message, last.message + message_count(sums))).astype(np.int32)
    several = np.bincount(message)[message] > 1
    sends_on = ~topology.store_and_forward
    if (several & sends_on[columns["src"]]).any() or sends_on[
        columns["dst"].take(np.flatnonzero(several)).values
    ].any():
        return make_plan(topology, Workload((fine,)), "ready-order", **columns)
    for name in ("start_s", "finish_s"):
        begin, end = (getattr(line, name)[row] for line, row in zip(lines, rows, strict=True))
        columns[name] = np.concatenate((begin, end + lines[0].completion_s))
    return make_plan(topology, Workload((fine,)), "timed", **columns, message=message)


@dataclass(frozen=True)
class _Rows:
    """The transfers of a half, each once for every chunk of the whole that it carries.

    Attributes:
        transfer, chunk, message: int64[rows].
        waits, waited: int64[any], rows and the rows that they wait for.
    """

    transfer: Int64
    chunk: Int64
    message: Int64
    waits: Int64
    waited: Int64

    @classmethod
    def of(cls, plan: Plan, begin: Int64, end: Int64) -> _Rows:
        """``begin`` and ``end``: int64[chunks of the half], which chunks of the whole each of them covers."""
        if plan.sharing not in SHARING or plan.other_src is not None:
            raise Unsupported("rs-ag joins plans that are timed or in ready-order, and in which no switch sums")
        each = (end - begin)[plan.chunk]
        base = np.cumsum(each) - each
        transfer = np.repeat(np.arange(plan.transfer_count), each)
        chunk = begin[plan.chunk][transfer] + np.arange(len(transfer)) - base[transfer]
        message = transfer if plan.message is None else plan.message.astype(np.int64)[transfer]
        waits, waited = zip(*_pairs(plan, each, base), strict=True)
        return cls(transfer, chunk, message, np.concatenate(waits), np.concatenate(waited))


def _pairs(plan: Plan, each: Int64, base: Int64) -> Iterator[tuple[Int64, Int64]]:
    """Rows and the rows that they wait for: of the same chunk one for one, of another chunk all.

    Args:
        each, base: int64[transfers], how many rows each has, and its first one.
    """
    waits, waited = plan.depends.owners, plan.depends.values.astype(np.int64)
    same = plan.chunk[waits] == plan.chunk[waited]
    for chosen, alike in ((same, True), (~same, False)):
        w, a = waits[chosen], waited[chosen]
        times = each[w] if alike else each[w] * each[a]
        place = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        w, a = np.repeat(w, times), np.repeat(a, times)
        yield base[w] + place % each[w], base[a] + (place if alike else place // each[w])


def _moved_up(plan: Plan, budget: Budget) -> Iterator[Plan]:
    """The plan with each transfer in the first gap of its links, where each is a message of its own."""
    if plan.message is not None or plan.transfer_count > MOST_MOVED:
        return
    placing = Placing.of_plans(plan.topology, plan.workload, [plan])
    if placing.steps <= budget.left:
        budget.charge(placing.steps)
        yield replace(placing.with_starts(placing.in_order([0])), meta=plan.meta)
