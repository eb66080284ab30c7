"""The nodes of one rank's Chakra trace, from what the rank sends and receives alone.

A *message* is a transfer to one of its receivers. Messages are numbered as the receivers of all transfers of the plan
are. The send of message m is the trace node 2 m, its receipt 2 m + 1. Turns are numbered on after all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..model.arrays import Float64, Int64, Ragged, offsets_of
from ..model.plan import Plan
from ..model.rows import Rows, moments_of, received_by, rows_of, sent_by
from ..model.symmetric import SymmetricPlan
from ..model.timeline import Timeline
from .kernel_chakra import Nodes

RECEIPT, SENT, TURN = 0, 1, 2


def message_count(plan: Plan) -> int:
    """How many messages a plan has."""
    if isinstance(plan, SymmetricPlan):
        return len(plan.part.dst.values) * plan.symmetry.size
    return len(plan.dst.values)


def trace_of(timeline: Timeline, node: int, rank_of: Int64) -> tuple[Nodes, int]:
    """The trace of the rank at a node, and how many dependencies on what happens at other ranks it leaves out.

    Args:
        rank_of: int64[nodes], the rank of each node.
    """
    sent, received = sent_by(timeline.plan, node), received_by(timeline.plan, node)
    waits, lost = _waits(sent, node)
    receipts = _receipts(timeline, received, node, rank_of)
    sends = _sends(timeline, sent, rank_of)
    return _nodes(receipts, sends, _before(sends, waits, sent), waits, 2 * message_count(timeline.plan)), lost


class _Ends(NamedTuple):
    """The receipts or the sends of a rank, one for each message; a transfer's messages follow each other.

    Attributes:
        start_s: float64[messages], when the plan begins the transfer.
        transfer: int64[messages], the number of the transfer.
        row: int64[messages], its place among the transfers that the rank sends.
        message: int64[messages]. peer: int64[messages], the other rank.
        values: int64[messages, 6], size, message, sending rank, receiving rank, chunk, and whether it is added.
    """

    start_s: Float64
    transfer: Int64
    row: Int64
    message: Int64
    peer: Int64
    values: Int64


def _messages_of(rows: Rows) -> Int64:
    """int64[receivers], for each receiver of each transfer the number of its message."""
    owners = rows.dst.owners
    message: Int64 = rows.first_receiver[owners] + np.arange(len(owners)) - rows.dst.offsets[owners]
    return message


def _receipts(timeline: Timeline, rows: Rows, node: int, rank_of: Int64) -> _Ends:
    message = _messages_of(rows)[rows.dst.values == node]
    source = rank_of[rows.src]
    here, op = np.full(len(source), rank_of[node]), _op(rows)
    values = np.stack((rows.size_bytes, message, source, here, rows.chunk, op), axis=1)
    every = np.arange(len(message))
    return _Ends(moments_of(timeline, rows).start_s, rows.number, every, message, source, values)


def _sends(timeline: Timeline, rows: Rows, rank_of: Int64) -> _Ends:
    row, message = rows.dst.owners, _messages_of(rows)
    peer = rank_of[rows.dst.values]
    op = _op(rows)[row]
    values = np.stack((rows.size_bytes[row], message, rank_of[rows.src[row]], peer, rows.chunk[row], op), axis=1)
    return _Ends(moments_of(timeline, rows).start_s[row], rows.number[row], row, message, peer, values)


def _op(rows: Rows) -> Int64:
    """int64[rows], whether each is added, and 2 more if it leaves out what its sender had at first."""
    forwards = rows.base.forwards
    apart = 0 if forwards is None else 2 * forwards[rows.row].astype(np.int64)
    op: Int64 = rows.op.astype(np.int64) + apart
    return op


def _waits(sent: Rows, node: int) -> tuple[Ragged, int]:
    """For each transfer that a node sends the trace nodes for which it waits, and how many dependencies have none."""
    causes = sent.depends
    rows = rows_of(sent.plan, causes.values.astype(np.int64))
    cause = rows.dst.owners
    arrives = rows.dst.values == node
    arrives_here = np.bincount(cause[arrives], minlength=rows.dst.rows) > 0
    leaves_here = (rows.src == node) & ~arrives_here
    needed = arrives | leaves_here[cause]
    lengths = np.bincount(causes.owners[cause[needed]], minlength=causes.rows)
    waits = Ragged.wide(offsets_of(lengths), (2 * _messages_of(rows) + arrives)[needed])
    return waits, int(np.count_nonzero(~arrives_here & ~leaves_here))


def _before(sends: _Ends, waits: Ragged, sent: Rows) -> Int64:
    """For each send the one before that waits for the same nodes and leaves over the same link; -1 if there is none."""
    hashed = waits.values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    hashed = (hashed ^ hashed >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9)
    hashed ^= hashed >> np.uint64(32)
    filled = np.flatnonzero(waits.lengths)
    nodes = np.zeros(waits.rows, dtype=np.uint64)  # sums of hashes: the order of the nodes does not matter
    nodes[filled] = np.add.reduceat(hashed, waits.offsets[filled]) if len(filled) else 0
    keys = sent.first_link[sends.row], nodes[sends.row]
    order = np.lexsort((sends.transfer, sends.start_s, *keys))
    alike = np.logical_and.reduce([key[order[1:]] == key[order[:-1]] for key in keys])
    before = np.full(len(order), -1)
    before[order[1:][alike]] = order[:-1][alike]
    return before


def _nodes(receipts: _Ends, sends: _Ends, before: Int64, waits: Ragged, turns_begin: int) -> Nodes:
    """The nodes of a trace in the order in which the plan begins their transfers; a turn comes before its send.

    A send that has one before it waits for a turn. The turn waits for that one's turn, or if it has none, for the same
    nodes as that one.
    """
    behind = np.flatnonzero(before >= 0)
    turn = turns_begin + sends.message
    # lists to wait for: those of transfers, then one for each turn, then an empty one
    end, count = waits.offsets[-1], len(behind)
    offsets = np.concatenate((waits.offsets, end + np.arange(1, count + 1), [end + count]))
    lists = Ragged.wide(offsets, np.concatenate((waits.values, turn[behind])))
    own_list = sends.row.copy()
    own_list[behind] = waits.rows + np.arange(count)
    kinds = (len(receipts.row), len(sends.row), count)
    kind = np.repeat((RECEIPT, SENT, TURN), kinds)
    wait = np.concatenate((np.full(kinds[0], lists.rows - 1), own_list, own_list[before[behind]]))
    every = np.arange(kinds[1])
    place = np.concatenate((np.zeros(kinds[0], dtype=np.int64), 2 * every + 1, 2 * behind))
    start_s = np.concatenate((receipts.start_s, sends.start_s, sends.start_s[behind]))
    transfer = np.concatenate((receipts.transfer, sends.transfer, sends.transfer[behind]))
    order = np.lexsort((place, transfer, start_s))
    deps = lists.take(wait[order])
    values = np.concatenate((receipts.values, sends.values, sends.values[behind]))[order]
    return Nodes(
        kind[order],
        np.concatenate((2 * receipts.message + 1, 2 * sends.message, turn[behind]))[order],
        np.concatenate((receipts.peer, sends.peer, sends.peer[behind]))[order],
        values, deps.offsets, deps.values.astype(np.int64),
    )  # fmt: skip
