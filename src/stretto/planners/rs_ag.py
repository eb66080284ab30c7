"""AllReduce as a ReduceScatter and then an AllGather, each by the planner whose plan of it ends first.

Trees that sum and copy at once may take unlike shares to unlike ranks, but they are many, and plans of them are late
where routes share links between switches. Where both halves, one after the other, take about as long as the lower bound
of the AllReduce, no plan can be much better than the best one of each half, and those are easier to find: each rank
sums an equal part, and where switches copy, an AllGather needs few messages.

Each half is cut in its own way. A message of one half that covers several chunks of the other carries all of them.
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
from ..model.memory import too_much
from ..model.message_form import SHARING
from ..model.messages import apart, message_count
from ..model.plan import Plan, make_plan
from ..model.symmetric import SymmetricPlan
from ..model.topology import Topology
from ..schedule.cutting import messages_cost, share_of_bytes
from ..schedule.insertion import in_gaps
from ..schedule.servers import are_far_apart
from ..simulate import simulate
from .registry import Candidate, Option, Request, over_links, per_delivery, register
from .run import plan_by

COPIES, SUMS = ("allgather", 0.45), ("reducescatter", 0.95)
"""The halves in the order in which they are planned, and the share of the effort that is left for each. Copies end soon
near their bound where switches copy, and leave their effort to the sums."""

LITTLE = 1.2
"""Times the lower bound that both halves take at least, up to which ``auto`` asks: above it other plans are better."""

BYTES_DECIDE = 0.5
"""Share of a message's time that is that of its bytes, from which ``auto`` asks: two halves take twice as many messages
one after the other as an exchange of sums."""

STEPS = per_delivery(10, first=100_000)
"""Steps with which it is worth asking: many, so ``auto`` asks it after all others, which lose nothing by it."""

WAITS_BYTES = 12.0
"""Bytes of a transfer waited for, in the columns of a plan and while they are made."""

OPTIONS = (Option("planner", str, "auto", "what plans each half: PLANNER[+REFINER...]"),)


def _serves(topology: Topology, workload: Workload) -> str | None:
    c, *others = workload.collectives
    if others:
        return "it plans one collective at a time"
    if c.size_bytes < len(c.ranks):
        return "it needs a byte for each rank"
    return over_links(topology, workload)


def _costs_little(request: Request) -> bool:
    """Whether messages cost but bytes decide, switches are joined, and both halves take little more than the bound."""
    topology, workload = request.topology, request.workload
    c, passes = workload.collectives[0], ~topology.is_accelerator
    if _serves(topology, workload) is not None or not c.traits.reduces_to_all:
        return False
    # what targets ask of chunks spoils plans whose halves are cut differently
    if request.target is not None or STEPS(request) > request.budget.steps:
        return False
    if not messages_cost(topology):  # trees in many parts are near the bound
        return False
    if not (passes[topology.src] & passes[topology.dst]).any() or are_far_apart(topology, workload):
        return False
    return share_of_bytes(topology, workload) >= BYTES_DECIDE and _least_s(topology, c) <= (
        LITTLE * bounds(topology, workload)[0].seconds
    )


def _least_s(topology: Topology, c: Collective) -> float:
    """Seconds that both halves take at least: the narrowest cut of each, and the longest latency twice."""
    limits = bounds(topology, Workload((c,)))
    latency_s = next((bound.seconds for bound in limits if bound.kind == "latency path"), 0.0)
    cuts = [bottleneck(topology, _half(topology, c, kind)) for kind, _ in (COPIES, SUMS)]
    return sum(float(cut.seconds) + latency_s if cut is not None else np.inf for cut in cuts)


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
    auto=Candidate(STEPS, counts=True, asked=_costs_little),
)
def rs_ag(request: Request, *, planner: str = "auto") -> Plan:
    """ReduceScatter and then AllGather, each by the planner whose plan of it ends first.

    Args:
        planner: what plans each half.
    Returns:
        A timed plan, or one in ready-order. Its ``meta`` has ``halves``: the planners of ReduceScatter and AllGather.
    Raises:
        Unsupported: no planner serves a half, or :func:`joined` does not serve its plan.
    """
    topology, (c,) = request.topology, request.workload.collectives

    def planned(kind: str, share: float) -> Plan:
        workload, budget = Workload((_half(topology, c, kind),)), request.budget.share(share)
        own = request.for_other_work(workload=workload, budget=budget, target=None, kept=None, progress=None)
        plan = plan_by(planner, own)
        return plan.expand() if isinstance(plan, SymmetricPlan) else plan

    copies, sums = planned(*COPIES), planned(*SUMS)
    plan = joined(topology, c, sums, copies)
    plan = in_gaps(plan if request.several_chunks else apart(plan), request.budget)
    return plan.noted({"halves": [half.meta.get("chosen", half.meta["planner"]) for half in (sums, copies)]})


def joined(topology: Topology, c: Collective, sums: Plan, copies: Plan) -> Plan:
    """The plan of an AllReduce: first all transfers of a ReduceScatter, then those of an AllGather.

    Args:
        c: the AllReduce.
        sums, copies: plans of the ReduceScatter and the AllGather of as many bytes among the same ranks.
    Returns:
        A timed plan. Where a message of several chunks would end or begin at a router that sends on what still comes,
        each chunk is a message, and the plan is in ready-order.
    Raises:
        Unsupported: a plan shares links by rates or weights, forwards what others brought apart from a rank's own data,
            has barriers, or lets switches sum; or too many transfers wait for each other.
    """
    plans = sums, copies
    fine, rows = _in_chunks_of_both(c, *plans)
    columns: dict[str, Any] = {"chunk": np.concatenate([each.chunk for each in rows])}
    for name in ("src", "op"):
        values = [getattr(plan, name)[each.transfer] for plan, each in zip(plans, rows, strict=True)]
        columns[name] = np.concatenate(values)
    for name in ("dst", "route"):
        lists = [getattr(plan, name).take(each.transfer) for plan, each in zip(plans, rows, strict=True)]
        columns[name] = Ragged.concatenate(lists)
    columns["depends"] = _depends(fine, plans, rows)
    workload = Workload((fine,))
    message = np.concatenate((rows[0].message, rows[1].message + message_count(sums))).astype(np.int32)
    several, sends_on = np.bincount(message)[message] > 1, ~topology.store_and_forward
    ends = columns["dst"].take(np.flatnonzero(several)).values
    if (several & sends_on[columns["src"]]).any() or sends_on[ends].any():
        return make_plan(topology, workload, "ready-order", **columns)
    first, last = (simulate(plan) for plan in plans)
    for name in ("start_s", "finish_s"):
        begin, end = (getattr(line, name)[each.transfer] for line, each in zip((first, last), rows, strict=True))
        columns[name] = np.concatenate((begin, end + first.completion_s))
    return make_plan(topology, workload, "timed", **columns, message=message)


@dataclass(frozen=True)
class _Rows:
    """The transfers of a half, each once for every chunk of the whole that it carries.

    Attributes:
        transfer, chunk, message: int64[rows].
        waiting, awaited: int64[pairs], a row, and a row that it waits for.
    """

    transfer: Int64
    chunk: Int64
    message: Int64
    waiting: Int64
    awaited: Int64

    @classmethod
    def of(cls, plan: Plan, begin: Int64, end: Int64) -> _Rows:
        """``begin`` and ``end``: int64[chunks of the half], which chunks of the whole each of them covers.

        Raises:
            Unsupported: see :func:`joined`.
        """
        if plan.sharing not in SHARING:
            raise Unsupported("rs-ag joins plans that are timed or in ready-order")
        if plan.other_src is not None or plan.forwards is not None or plan.barriers:
            raise Unsupported("rs-ag joins no plans with sums in switches, sums that are forwarded apart, or barriers")
        count = (end - begin)[plan.chunk]
        first = np.cumsum(count) - count
        transfer = np.repeat(np.arange(plan.transfer_count), count)
        chunk = begin[plan.chunk][transfer] + np.arange(len(transfer)) - first[transfer]
        message = transfer if plan.message is None else plan.message.astype(np.int64)[transfer]
        waiting, awaited = zip(*_pairs(plan, count, first), strict=True)
        return cls(transfer, chunk, message, np.concatenate(waiting), np.concatenate(awaited))


def _in_chunks_of_both(c: Collective, sums: Plan, copies: Plan) -> tuple[Collective, tuple[_Rows, _Rows]]:
    """The AllReduce, cut wherever either half or itself is cut, and the rows of both halves."""
    halves = [plan.workload.collectives[0] for plan in (sums, copies)]
    begins = [(np.cumsum(h.piece_bytes) - h.piece_bytes)[h.chunk_piece] + h.chunk_offset for h in halves]
    edges = np.unique(np.concatenate([*begins, c.chunk_offset, [c.size_bytes]]))
    piece = np.zeros(len(edges) - 1, dtype=np.int32)
    fine = replace(c, chunk_piece=piece, chunk_offset=edges[:-1], chunk_bytes=np.diff(edges))
    first, last = (
        _Rows.of(plan, np.searchsorted(edges, begin), np.searchsorted(edges, begin + h.chunk_bytes))
        for plan, begin, h in zip((sums, copies), begins, halves, strict=True)
    )
    return fine, (first, last)


def _pairs(plan: Plan, count: Int64, first: Int64) -> Iterator[tuple[Int64, Int64]]:
    """Rows, and the rows that they wait for. A row waits for the same chunk of a transfer; where a transfer waits for
    one of another chunk, each of its rows waits for each row of that.

    Args:
        count, first: int64[transfers], how many rows each has, and its first one.
    """
    waiting, awaited = plan.depends.owners, plan.depends.values.astype(np.int64)
    same = plan.chunk[waiting] == plan.chunk[awaited]
    for chosen, alike in ((same, True), (~same, False)):
        w, a = waiting[chosen], awaited[chosen]
        times = count[w] if alike else count[w] * count[a]
        _refuse_too_many(float(times.sum()))
        place = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        w, a = np.repeat(w, times), np.repeat(a, times)
        yield first[w] + place % count[w], first[a] + (place if alike else place // count[w])


def _depends(fine: Collective, plans: tuple[Plan, Plan], rows: tuple[_Rows, _Rows]) -> Ragged:
    """For each row those that it waits for: in its own half, and in the first half all that comes to the owner of its
    chunk, if it leaves the owner in the second."""
    (sums, copies), (first, last), before = plans, rows, len(rows[0].chunk)
    parts = sums.workload.collectives[0].piece_bytes
    owner = fine.ranks[np.searchsorted(np.cumsum(parts), fine.chunk_offset, side="right")]
    ends = sums.dst.take(first.transfer)
    arrivals = ends.owners[ends.values == owner[first.chunk][ends.owners]]
    of_chunk = Ragged.grouped(first.chunk[arrivals], arrivals, fine.chunk_count)
    sent = np.flatnonzero(copies.src[last.transfer] == owner[last.chunk])
    _refuse_too_many(float(of_chunk.lengths[last.chunk[sent]].sum()))
    summed = of_chunk.take(last.chunk[sent])
    waiting = np.concatenate((first.waiting, last.waiting + before, sent[summed.owners] + before))
    awaited = np.concatenate((first.awaited, last.awaited + before, summed.values))
    return Ragged.grouped(waiting, awaited, before + len(last.chunk))


def _refuse_too_many(waits: float) -> None:
    if reason := too_much(waits, "transfers that are waited for", WAITS_BYTES):
        raise Unsupported(f"rs-ag cannot join the halves: {reason}")
