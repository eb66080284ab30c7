"""contributions: AllReduce as an AllGather of what ranks contribute, for when latency decides. Our own.

Sums that meet at some rank and are copied from there make two trips through the network. If everything that a rank
contributes comes to every other rank by itself, one trip is enough; but each rank then receives the data of all others,
not of one. So another planner plans an AllGather in which every rank has a whole buffer. Contributions that have come
to a rank become one sum again as long as nobody needs them apart: two of them in one message are summed if every later
message with one of them has the other, too, summed likewise. So what arrives to stay is always one sum.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from itertools import groupby, zip_longest
from typing import NamedTuple

import numpy as np

from ..bounds import distances
from ..model.arrays import Ragged
from ..model.collective import Collective, Workload, make_collective
from ..model.errors import Unsupported
from ..model.messages import messages_of
from ..model.plan import REDUCE, Plan, make_plan
from ..model.symmetric import SymmetricPlan
from ..model.topology import Topology
from ..schedule.best import Answer, ask
from ..schedule.dispatch import by_urgency
from ..schedule.insertion import timed_plan
from .registry import Candidate, Option, Request, asked_by, register
from .run import plan_by, refusal_of

BYTES_SHARE = 0.5
"""``auto`` asks the planner if the links into each rank can bring all contributions in this share of the time that the
longest way takes."""

MOST_RANKS = 128
"""Ranks up to which ``auto`` asks the planner: a plan has a transfer for each pair of ranks at least."""

EFFORT_SHARE = 0.3
"""Share of what is left of the effort for the AllGather."""

STEPS_A_PAIR = 100.0
"""Steps (:mod:`stretto.schedule.effort`) for each pair of ranks, with planning some AllGathers: 30 to 105 among 24 to
57 ranks."""

COSTS = {"transfer": 20.0}
"""Steps of each transfer of the AllGather, to sum what it carries."""

MOST_PARTS = 64
"""Parts into which the buffer is cut where the chunks of contributions begin and end."""

OPTIONS = (Option("planner", str, "", "what plans the AllGather: PLANNER[+REFINER...]; by default some are tried"),)


def _serves(topology: Topology, workload: Workload) -> str | None:
    if len(workload.collectives) > 1:
        return "it plans one collective"
    return "it plans over links, not optical planes" if topology.planes else None


def _least_steps(request: Request) -> float:
    return 1_000 + STEPS_A_PAIR * max(len(c.ranks) for c in request.workload.collectives) ** 2


def _is_asked(request: Request) -> bool:
    """Whether all contributions can come to a rank in little more than what the longest way takes."""
    topology, (c, *others) = request.topology, request.workload.collectives
    if others or not c.traits.reduces_to_all or len(c.ranks) > MOST_RANKS or topology.planes:
        return False
    width = np.bincount(topology.dst, topology.bandwidth, topology.node_count)[c.ranks].min()
    longest_s = distances(topology.delayed, 0.0)[np.ix_(c.ranks, c.ranks)].max()
    return bool((len(c.ranks) - 1) * c.size_bytes <= BYTES_SHARE * longest_s * width)


@register(
    "contributions", collectives=("allreduce",), topologies="any without planes", paper="our own", options=OPTIONS,
    serves=_serves, messages=True, changes=True, cuts=True, compares=True,
    transfers=lambda request: len(request.workload.collectives[0].ranks) ** 2,
    auto=Candidate(_least_steps, asked=_is_asked),
)  # fmt: skip
def contributions(request: Request, *, planner: str = "") -> Plan:
    """What ranks contribute goes to all ranks as in an AllGather, summed where nobody needs it apart.

    Args:
        planner: what plans the AllGather; empty to try all that take little.
    Returns:
        A plan in ready-order, or timed where it then ends sooner or bandwidths change. Where all ranks must add up in
        one order, nothing is summed on the way.
    Raises:
        Unsupported: no planner serves the AllGather, or it brings something to a node twice, or cuts it too finely.
    """
    topology, (c,) = request.topology, request.workload.collectives
    whole = make_collective("allgather", topology, c.size_bytes * len(c.ranks), ranks=c.ranks.tolist())
    own = request.for_other_work(workload=Workload((whole,)), target=None, one_order=False, kept=None)
    one_order = request.one_order or (request.target is not None and request.target.same_bits)
    effort = request.budget.share(EFFORT_SHARE)

    def summed(name: str, steps: float = 0.0) -> Plan:
        part = effort.within(effort.left)
        gathered = plan_by(name, replace(own, budget=part))
        effort.charge(max(0.0, steps - part.spent))
        effort.with_costs(COSTS).spend(transfer=gathered.transfer_count)
        gathered = gathered.expand() if isinstance(gathered, SymmetricPlan) else gathered
        plan = _summed(gathered, c, one_order, request.several_chunks)
        return timed_plan(plan) if topology.changes else by_urgency(plan, effort)

    if planner:
        return summed(planner)
    in_steps = request.target is not None and request.target.equal_parts
    answers: list[Answer] = []
    for steps, name in _quick(own):
        if not answers or steps <= effort.left:
            answers.append(ask(name, partial(summed, name, steps), in_steps=in_steps))
    chosen = min(answers, key=lambda answer: answer.preference_s)
    if chosen.plan is None:
        raise chosen.refusal or Unsupported("contributions has no plan")
    return chosen.plan.noted({**chosen.plan.meta, "gathered_by": chosen.name})


def _quick(request: Request) -> list[tuple[float, str]]:
    """Planners of an AllGather that take little, and how many steps each takes, the quickest first."""
    candidates = [(e.name, e.auto) for e in asked_by("auto") if e.auto is not None and not e.auto.leads]
    asked = [
        (candidate.steps(request), name)
        for name, candidate in candidates
        if candidate.collectives_from == 1 and candidate.asked(request) and refusal_of(name, request) is None
    ]
    return sorted(asked)


class _Item(NamedTuple):
    """A contribution to a part of the buffer, in one transfer."""

    message: int
    part: int
    piece: int  # whose contribution
    src: int
    row: int  # the transfer of the AllGather


class _Sum(NamedTuple):
    """A transfer of the AllReduce."""

    message: int
    item: _Item  # one of those that it carries
    own: bool  # whether the sender's own contribution is among them
    awaits: list[int]  # the transfers that bring the others


def _summed(gathered: Plan, c: Collective, apart: bool, several_chunks: bool) -> Plan:
    """The AllReduce of which an AllGather brings the contributions.

    Args:
        apart: whether no contributions are summed on the way.
        several_chunks: whether a message may carry several parts.
    """
    items, parts = _items(gathered, c)
    arrived: dict[tuple[int, int, int], int] = {}
    for k, item in enumerate(items):
        for node in gathered.dst[item.row].tolist():
            if node == c.ranks[item.piece] or arrived.setdefault((item.piece, item.part, node), k) != k:
                raise Unsupported("contributions does not serve an AllGather that brings something to a node twice")
    came = [arrived.get((item.piece, item.part, item.src), -1) for item in items]
    needed: list[list[int]] = [[] for _ in items]
    together: dict[tuple[int, int], list[int]] = defaultdict(list)
    for k, item in enumerate(items):
        together[item.message, item.part].append(k)
        if came[k] >= 0:
            needed[came[k]].append(k)

    sums: dict[tuple[object, ...], int] = {}
    sum_of = [-1] * len(items)
    for key, members in reversed(together.items()):
        for k in members:
            told = items[k].piece if apart else -1
            # who needs it apart from others later has it in another sum then
            sum_of[k] = sums.setdefault((key, told, *sorted({sum_of[later] for later in needed[k]})), len(sums))

    rows: list[_Sum] = []
    row_of: dict[int, int] = {}
    count = 0
    for _, group in groupby(together.items(), key=lambda pair: pair[0][0]):
        in_parts: list[list[list[int]]] = []
        for _, members in group:
            whole: dict[int, list[int]] = defaultdict(list)
            for k in members:
                whole[sum_of[k]].append(k)
            in_parts.append([*whole.values()])
        for chunks in zip_longest(*in_parts):  # a message carries one sum of each part
            for members in filter(None, chunks):
                row_of[sum_of[members[0]]] = len(rows)
                awaited = sorted({row_of[sum_of[came[k]]] for k in members if came[k] >= 0})
                rows.append(_Sum(count, items[members[0]], any(came[k] < 0 for k in members), awaited))
            count += 1
    return _plan_of(gathered, parts, rows, several_chunks and count < len(rows))


def _items(gathered: Plan, c: Collective) -> tuple[list[_Item], Collective]:
    """What the transfers of an AllGather carry, in their order, and the AllReduce cut where their chunks end."""
    (whole,), messages = gathered.workload.collectives, messages_of(gathered)
    edges = np.unique(np.concatenate((whole.chunk_offset, whole.chunk_offset + whole.chunk_bytes)))
    if len(edges) > MOST_PARTS + 1:
        raise Unsupported(f"contributions does not serve an AllGather of chunks with {len(edges):,} different ends")
    first, after = np.searchsorted(edges, (whole.chunk_offset, whole.chunk_offset + whole.chunk_bytes)).tolist()
    order = np.arange(gathered.transfer_count)
    if gathered.start_s is not None:
        order = np.argsort(gathered.start_s, kind="stable")
    message = (order if messages is None else messages.of[order]).tolist()
    chunk, src, piece = gathered.chunk[order].tolist(), gathered.src[order].tolist(), whole.chunk_piece.tolist()
    items = [
        _Item(message[k], part, piece[chunk[k]], src[k], row)
        for k, row in enumerate(order.tolist())
        for part in range(first[chunk[k]], after[chunk[k]])
    ]
    sizes = np.diff(edges)
    piece_of = np.zeros(len(sizes), dtype=np.int32)
    return items, replace(c, chunk_piece=piece_of, chunk_offset=edges[:-1], chunk_bytes=sizes)


def _plan_of(gathered: Plan, parts: Collective, sums: list[_Sum], in_messages: bool) -> Plan:
    """The plan of these transfers, by the routes of the AllGather."""
    from_row = np.array([each.item.row for each in sums], dtype=np.int64)
    return make_plan(
        gathered.topology,
        Workload((parts,)),
        "ready-order",
        chunk=np.array([each.item.part for each in sums]),
        src=gathered.src[from_row],
        op=np.full(len(sums), REDUCE),
        forwards=np.array([not each.own for each in sums], dtype=np.int8),
        message=np.array([each.message for each in sums]) if in_messages else None,
        dst=gathered.dst.take(from_row),
        route=gathered.route.take(from_row),
        depends=Ragged.of([each.awaits for each in sums]),
    )
