"""Messages that carry several chunks: what is right of the column ``message``, and a plan's messages as transfers.

A message occupies its links for its cost and for all of its bytes, begins when all of its chunks are there, and brings
all of them at its end. So for whoever asks when things happen it is one transfer (:func:`merged`). What ranks hold is
said chunk by chunk, by the plan's own transfers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .arrays import Float64, Int8, Int32, Int64, Ragged, distinct
from .plan import Plan

if TYPE_CHECKING:
    from .timeline import Timeline
    from .topology import Topology


@dataclass(frozen=True, eq=False)
class MergedPlan(Plan):
    """A plan's messages, each as one transfer. ``chunk`` is its first one, and ``size_bytes`` counts all of them."""

    message_bytes: Int64 | None = None

    @cached_property
    def size_bytes(self) -> Int64:
        assert self.message_bytes is not None, "merged"
        return self.message_bytes

    def describe(self, k: int) -> str:
        """A message as findings name it: ``message 7 (chunk 3 and others: gpu0→gpu4)``."""
        words = super().describe(k).removeprefix("transfer")
        return "message" + words.replace(":", " and others:", 1)


@dataclass(frozen=True, eq=False)
class Messages:
    """The messages of a plan.

    Attributes:
        plan: the plan of which they are.
        of: int64[transfers], the message of each transfer.
        first, last: int64[messages], the first and the last transfer of each.
    """

    plan: Plan
    of: Int64
    first: Int64
    last: Int64

    @cached_property
    def merged(self) -> Plan:
        """Each message as one transfer."""
        plan, rows = self.plan, self.first
        size = np.bincount(self.of, plan.size_bytes, len(rows)).astype(np.int64)

        def taken(column: Float64 | None) -> Float64 | None:
            return None if column is None else column[rows]

        return MergedPlan(
            plan.topology, plan.workload, plan.sharing, plan.chunk[rows], plan.src[rows], plan.op[rows],
            plan.dst.take(rows), plan.route.take(rows), self.lists(plan.depends), taken(plan.start_s),
            taken(plan.finish_s), group=None if plan.group is None else plan.group[rows], barriers=plan.barriers,
            meta=plan.meta, message_bytes=size,
        )  # fmt: skip

    def lists(self, of_transfers: Ragged) -> Ragged:
        """For each message the other messages in the lists of its transfers, each once."""
        count = len(self.first)
        owner, value = self.of[of_transfers.owners], self.of[of_transfers.values]
        pairs = distinct((owner * count + value)[owner != value])
        return Ragged.from_lengths(np.bincount(pairs // count, minlength=count), pairs % count)

    def timeline(self, course: Timeline, completions_s: Float64) -> Timeline:
        """The course of the plan's transfers by that of its messages.

        Args:
            completions_s: float64[collectives], when each has all that it wants, by the arrivals of transfers.
        """
        return replace(
            course, plan=self.plan, start_s=course.start_s[self.of], finish_s=course.finish_s[self.of],
            arrival_s=self.arrivals(course.arrival_s), completions_s=completions_s,
            hop_offset_s=_of_rows(self.merged.route, course.hop_offset_s, self.of),
        )  # fmt: skip

    def course(self, timeline: Timeline) -> Timeline:
        """The course of the messages by that of the plan's transfers."""
        plan, first, last = self.plan, self.first, self.last
        return replace(
            timeline, plan=self.merged, start_s=timeline.start_s[first], finish_s=timeline.finish_s[last],
            arrival_s=_of_rows(plan.dst, timeline.arrival_s, last),
            hop_offset_s=_of_rows(plan.route, timeline.hop_offset_s, first),
        )  # fmt: skip

    def shares(self, start_s: Float64, finish_s: Float64) -> tuple[Float64, Float64]:
        """For each transfer its share, by bytes, of the time of its message: chunk after chunk."""
        size = self.plan.size_bytes
        sent = np.cumsum(size)
        before = (sent - size)[self.first][self.of]
        s_per_byte = (finish_s - start_s) / np.maximum(self.merged.size_bytes, 1)[self.of]
        return start_s + (sent - size - before) * s_per_byte, start_s + (sent - before) * s_per_byte

    def arrivals(self, arrival_s: Float64) -> Float64:
        """float64[receivers] of the plan's transfers by those of its messages."""
        return _of_rows(self.merged.dst, arrival_s, self.of)


def chunk_by_chunk(timeline: Timeline) -> Timeline:
    """The timeline for pictures: the chunks of a message one after another, each for its share of the time."""
    if (messages := messages_of(timeline.plan)) is None:
        return timeline
    start_s, finish_s = messages.shares(timeline.start_s, timeline.finish_s)
    return replace(timeline, start_s=start_s, finish_s=finish_s)


def _of_rows(lists: Ragged, values: Float64, rows: Int64) -> Float64:
    """The values that belong to the lists of some rows, row after row."""
    return values[Ragged.wide(lists.offsets, np.arange(len(lists.values))).take(rows).values]


def messages_of(plan: Plan) -> Messages | None:
    """The messages of a plan; None if each transfer is one."""
    if plan.message is None:
        return None
    of = plan.message.astype(np.int64)
    begins = np.flatnonzero(np.diff(of, prepend=-1))
    return Messages(plan, of, begins, np.append(begins[1:], len(of)) - 1)


def message_count(plan: Plan) -> int:
    """How many messages a plan sends, each to all of its receivers."""
    return plan.transfer_count if plan.message is None else int(plan.message[-1]) + 1


def apart(plan: Plan) -> Plan:
    """The plan with every chunk as a message of its own, in ready-order: its times were those of fewer messages."""
    if plan.message is None:
        return plan
    return replace(plan, message=None, sharing="ready-order", start_s=None, finish_s=None)


def back_to_back(plan: Plan) -> Plan:
    """The plan with a transfer for each chunk, for those who send the chunks of a message one right after the other.

    Each of them waits for what its message waits for: of another message for the last transfer. In a timed plan each
    has its share, by bytes, of its message's time. So it may not verify: its transfers cost less than messages.
    """
    messages = messages_of(plan)
    if messages is None:
        return plan
    count = plan.transfer_count
    waits = messages.lists(plan.depends).take(messages.of)
    owner = np.concatenate((plan.depends.owners, waits.owners))
    value = np.concatenate((plan.depends.values.astype(np.int64), messages.last[waits.values]))
    pairs = distinct(owner * count + value)
    depends = Ragged.from_lengths(np.bincount(pairs // count, minlength=count), pairs % count)
    start_s, finish_s = plan.start_s, plan.finish_s
    if start_s is not None and finish_s is not None:
        start_s, finish_s = messages.shares(start_s, finish_s)
    return replace(plan, message=None, depends=depends, start_s=start_s, finish_s=finish_s)


def as_sent(topology: Topology, number: list[int], chunk: list[int], src: list[int], dst: list[int]) -> Int32 | None:
    """int32[transfers], the messages of transfers that a program sends together; None if each transfer is one.

    Transfers with a message of their own are those at whose ends something sends on what still comes, and those whose
    chunk is in their message already.

    Args:
        number: for each transfer which others it is sent with; these stand together.
    """
    if topology.planes or not number:
        return None
    stores = topology.store_and_forward
    begins = np.zeros(len(number), dtype=np.bool_)
    carried: set[int] = set()
    for k, of in enumerate(number):
        alone = not (stores[src[k]] and stores[dst[k]])
        begins[k] = k == 0 or of != number[k - 1] or alone or chunk[k] in carried
        carried = {chunk[k]} if begins[k] else carried | {chunk[k]}
    return None if begins.all() else (np.cumsum(begins) - 1).astype(np.int32)


def numbered(*keys: Int8 | Int32 | Int64) -> Int32:
    """int32[transfers], a number for each run of transfers that agree in all of these columns."""
    changed = np.zeros(len(keys[0]), dtype=np.bool_)
    for key in keys:
        changed[1:] |= key[1:] != key[:-1]
    return np.cumsum(changed).astype(np.int32)
