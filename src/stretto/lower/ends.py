"""What nodes send, receive, hold and want, and what waits for what: of all nodes of a plan, or of one.

Turns and barriers are rows, too, numbered on after the transfers: the controller sends them to itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..model.arrays import Bool, Float64, Int64, Ragged
from ..model.plan import OPTIONAL_COLUMNS, Plan
from ..model.rows import Rows, chunks_at, nodes_in, received_by, rows_of, sent_by
from ..model.symmetric import SymmetricPlan
from ..simulate import simulate
from ..simulate.planes import Events, events


class ChunksAt(NamedTuple):
    """The chunks that nodes hold at first, or must end with: int64[pairs] each, the index of the node in
    ``Ends.nodes``, the number of the chunk, and its bytes."""

    at: Int64
    chunk: Int64
    size_bytes: Int64


@dataclass(frozen=True, eq=False)
class Ends:
    """What the nodes to lower have to do, node by node.

    Attributes:
        plan: the plan. source: the same with a row for each turn and barrier.
        controls: the turns and barriers.
        every: int64[nodes], all nodes that take part, ascending. nodes: int64[nodes], those to lower, ascending.
        sent, received: the rows that they send and receive, ascending for each node.
        sent_at, received_at: int64[rows], the index of the node in ``nodes``.
    """

    plan: Plan
    source: Plan
    controls: Events | None
    every: Int64
    nodes: Int64
    sent: Rows
    sent_at: Int64
    received: Rows
    received_at: Int64
    held: ChunksAt
    wanted: ChunksAt

    @property
    def transfers(self) -> int:
        """The number of transfers, and so of the first turn."""
        return self.plan.transfer_count

    @property
    def row_count(self) -> int:
        return self.transfers + (0 if self.controls is None else len(self.controls.earliest_s))

    @cached_property
    def waits(self) -> tuple[Ragged, Ragged]:
        """For each row of ``source`` (of a plan by symmetry, of its representatives) the rows that it waits for: those
        that happen at its source, then those that happen at other nodes."""
        base = self.sent.base
        waiting, cause = base.depends.owners, base.depends.values
        if len(base.dst.values) == base.dst.rows:
            here = base.dst.values[cause] == base.src[waiting]
        else:
            places = base.dst.take(cause)
            here = places.reduced(np.logical_or, places.values == base.src[waiting][places.owners])
        return _those(base.depends, here), _those(base.depends, ~here)

    @cached_property
    def waited_for_elsewhere(self) -> Ragged:
        """For each row the rows that wait for it at other nodes."""
        return self.waits[1].turned()

    def pace(self) -> tuple[Float64, Float64, Float64]:
        """For each row that is sent its earliest start, its rate and its priority."""
        rows, plan = self.sent, self.source
        base, count = rows.base, len(rows.number)
        row = rows.row
        start_s = base.workload.chunk_start_s[base.chunk[row]]
        rate, priority = np.full(count, np.inf), np.zeros(count)
        if base.start_s is not None and base.finish_s is not None and plan.sharing == "timed":
            seconds = base.finish_s[row] - base.start_s[row]
            rate = np.divide(rows.size_bytes, seconds, out=rate, where=rows.number < self.transfers)
            return np.maximum(start_s, base.start_s[row]), rate, priority
        if plan.sharing == "rates" and plan.rate is not None:
            rate = plan.rate[row]
        elif plan.sharing == "weights":
            timeline = simulate(self.plan)  # a group's share is fixed, so its rate is constant
            seconds = np.ones(self.row_count)
            seconds[: self.transfers] = timeline.finish_s - timeline.start_s
            rate = rows.size_bytes / seconds[row]
        elif plan.sharing == "priorities" and plan.weight is not None:
            priority = plan.weight[row]
        return start_s, rate, priority


def ends_of_all(plan: Plan) -> Ends:
    """The ends of all transfers of a plan without images."""
    source, controls, every = _with_events(plan)
    index = np.zeros(plan.topology.node_count + 1, dtype=np.int64)
    index[every] = np.arange(len(every))
    sent = np.argsort(source.src, kind="stable")
    received = np.argsort(source.dst.values, kind="stable")
    work = plan.workload
    held, wanted = (
        ChunksAt(index[lists.values], lists.owners, work.chunk_bytes[lists.owners])
        for lists in (work.chunk_holders, work.chunk_wanted)
    )
    return Ends(
        plan, source, controls, every, every,
        Rows(source, sent), index[source.src[sent]],
        Rows(source, source.dst.owners[received]), index[source.dst.values[received]], held, wanted,
    )  # fmt: skip


def ends_at(plan: Plan, node: int) -> Ends:
    """The ends of transfers at one node; KeyError if it takes no part in the plan."""
    source, controls, every = _with_events(plan)
    if node not in every:
        raise KeyError(node)
    sent, received = sent_by(source, node), received_by(source, node)
    zeros = [np.zeros(len(rows.number), dtype=np.int64) for rows in (sent, received)]
    held, wanted = (ChunksAt(np.zeros_like(chunk), chunk, size) for chunk, size in chunks_at(plan, node))
    return Ends(plan, source, controls, every, np.array([node]), sent, zeros[0], received, zeros[1], held, wanted)


def _with_events(plan: Plan) -> tuple[Plan, Events | None, Int64]:
    """A plan with a row for each turn and barrier, from the controller to itself; these; and who takes part."""
    every = nodes_in(plan)
    if isinstance(plan, SymmetricPlan):
        return plan, None, every
    controls = events(plan, plan.barriers, plan.sharing == "timed")
    count, controller = len(controls.earliest_s), plan.topology.node_count
    if not count:
        return plan, None, every
    columns: dict[str, Any] = {
        name: np.append(column, np.zeros(count, dtype=column.dtype))
        for name in ("chunk", "op", *OPTIONAL_COLUMNS)
        if (column := getattr(plan, name)) is not None
    }
    at_controller = np.full(count, controller, dtype=np.int32)
    source = replace(
        plan, src=np.append(plan.src, at_controller), depends=controls.depends, **columns,
        dst=Ragged.concatenate([plan.dst, Ragged.single(at_controller)]),
        route=Ragged.concatenate([plan.route, Ragged.empty(count)]),
    )  # fmt: skip
    return source, controls, np.append(every, controller)


def _those(lists: Ragged, which: Bool) -> Ragged:
    """Some values of lists."""
    if which.all():
        return lists
    return Ragged.grouped(lists.owners[which], lists.values[which], lists.rows)


def dst_of(ends: Ends, number: Int64) -> Ragged:
    """For rows by their numbers the nodes where they happen."""
    return rows_of(ends.source, number).dst
