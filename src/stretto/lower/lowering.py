"""From plans to programs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels import at_speed
from ..model.arrays import Bool, Int32, Int64, Ragged, offsets_of
from ..model.messages import back_to_back
from ..model.plan import COPY, Plan
from ..model.rows import Rows, nodes_in
from ..model.symmetric import SymmetricPlan
from . import kernel_programs
from .ends import Ends, dst_of, ends_at, ends_of_all
from .kernel_programs import Slots
from .orders import Slot, Versions, in_one_order, sum_trees
from .played import played
from .programs import Awaited, Chunks, Events, Program, Receives, Sends

MOST_SUBFLOWS = 8
"""The most subflows from one node to another; the packets of an emulated network say theirs in three bits. If a plan
has more routes, several share a subflow."""

FIRST_CIRCUIT = MOST_SUBFLOWS
"""Subflows from this number on go over optical planes: two for each plane, since the circuits of a pair in its two
directions are there at different times."""

STEPS_A_ROW = 20.0
"""Steps of the kernels' inner loops for each row, about (for :func:`at_speed`)."""


def lower(plan: Plan) -> dict[int, Program]:
    """The program of each node that takes part in a plan; the plan must verify.

    Programs number transfers as the plan that :func:`.played` gives.

    Raises:
        InputError: switches sum in a plan by symmetry, so that it must be expanded, and it does not fit into memory.
    """
    plan, rows = _playable(plan)
    if isinstance(rows, SymmetricPlan):
        return {node: lower_for(plan, node) for node in nodes_in(plan).tolist()}
    return {program.node: program for program in _programs(plan, ends_of_all(rows))}


def lower_for(plan: Plan, node: int) -> Program:
    """The program of one node, as :func:`lower` gives it; of a plan by symmetry without the transfers of others.

    Raises:
        KeyError: the node takes no part in the plan.
        InputError: as :func:`lower`.
    """
    plan, rows = _playable(plan)
    return _programs(plan, ends_at(rows, node))[0]


def _playable(plan: Plan) -> tuple[Plan, Plan]:
    """The plan without transfers from several sources; and the same with the chunks of each message back to back."""
    if isinstance(plan, SymmetricPlan):
        plan = plan if plan.part.other_src is None else played(plan.expand()).plan
    elif plan.message is None:
        plan = played(plan).plan
    return plan, back_to_back(plan)


def subflows(plan: Plan) -> Int32:
    """int32[transfers], the number of each transfer's route among all routes from its source to its receiver, as they
    come in the plan; below ``MOST_SUBFLOWS``.

    A transfer to several receivers has number 0: it is sent to each of them, and not by the tree of its route. What
    goes over an optical plane has the number of its circuit, see :func:`circuit_subflow`.
    """
    order = np.argsort(plan.src, kind="stable")
    rows = Rows(plan, order)
    number = np.zeros(plan.transfer_count, dtype=np.int32)
    number[order] = _subflows(rows, rows.src, _first(rows.dst), rows.dst.lengths == 1)
    return number


def _subflows(rows: Rows, at: Int64 | Int32, peer: Int64 | Int32, alone: Bool) -> Int32:
    """See :func:`subflows`, of rows that a node sends to a peer, or receives from it; rows of one node follow each
    other."""
    number = at_speed(kernel_programs.number_ways, STEPS_A_ROW * len(at))(
        at.astype(np.int64), peer.astype(np.int64), rows.way, alone, rows.plan.topology.node_count + 1, MOST_SUBFLOWS
    )
    if rows.base.plane is None:
        return number
    plane = rows.base.plane[rows.row]
    circuit = circuit_subflow(plane, rows.src, _first(rows.dst))
    return np.where(plane < 0, number, circuit).astype(np.int32)


def circuit_subflow(plane: Any, src: Any, dst: Any) -> Any:
    """The number of the subflow that goes from one node to another over an optical plane; of arrays for each."""
    return FIRST_CIRCUIT + 2 * plane + (src > dst)


def circuit_to(subflow: int, node: int, peer: int) -> int | None:
    """The plane over which a node sends to a peer on a subflow of theirs; None if it does not, or over links."""
    plane, falls = divmod(subflow - FIRST_CIRCUIT, 2)
    return plane if plane >= 0 and falls == (node > peer) else None


def _first(lists: Ragged) -> Int32:
    """The first value of each list; no list is empty."""
    return lists.values[lists.offsets[:-1]]


class _Waiting(NamedTuple):
    """What waits for what.

    Attributes:
        causes: for each sent row the received rows for which it waits, as indexes.
        waits: int64[sent], the number of dependencies of each.
        wakes: for each received row the sent rows that wait for it.
        signals: for each received row the nodes to tell.
        awaited_at: int64[awaited], the index of the node that is told. awaited_row, awaited_place: int64[awaited].
        awaited_wakes: for each the sent rows that wait for it.
    """

    causes: Ragged
    waits: Int64
    wakes: Ragged
    signals: Ragged
    awaited_at: Int64
    awaited_row: Int64
    awaited_place: Int64
    awaited_wakes: Ragged


def _waiting(ends: Ends) -> _Waiting:
    here, _ = ends.waits
    causes = ends.sent.others(here)
    step = ends.row_count  # tells the rows of different nodes apart
    cause = ends.sent_at[causes.owners] * step + causes.values
    index = np.searchsorted(ends.received_at * step + ends.received.number, cause)
    causes = Ragged.wide(causes.offsets, index)
    count = len(ends.received.number)
    run = at_speed(kernel_programs.wakes, STEPS_A_ROW * (count + len(cause)))
    offsets, waiting, waits = run(causes.offsets, index, count)
    at, row, place, wakes = _awaited(ends)
    waits += np.bincount(wakes.values, minlength=len(waits))
    return _Waiting(causes, waits, _small(offsets, waiting), _signals(ends), at, row, place, wakes)


def _awaited(ends: Ends) -> tuple[Int64, Int64, Int64, Ragged]:
    """What sent rows wait for at other nodes: see :class:`_Waiting`."""
    causes = ends.sent.others(ends.waits[1])
    places = dst_of(ends, causes.values.astype(np.int64))
    sent = causes.owners[places.owners]
    columns = (ends.sent_at[sent], causes.values[places.owners].astype(np.int64), places.values.astype(np.int64), sent)
    order, new = _sorted(columns)
    at, row, place, sent = (column[order][new] for column in columns)
    first = _changes(at, row, place)
    lengths = np.diff(np.append(np.flatnonzero(first), len(sent)))
    return at[first], row[first], place[first], Ragged.from_lengths(lengths, sent)


def _signals(ends: Ends) -> Ragged:
    """For each received row the nodes where others wait for it."""
    rows = ends.received
    waiting = ends.waited_for_elsewhere.take(rows.row)
    columns = waiting.owners, rows.nodes(rows.base.src[waiting.values], waiting).astype(np.int64)
    order, new = _sorted(columns)
    owner, node = (column[order][new] for column in columns)
    return Ragged.grouped(owner, node, len(rows.number))


def _sorted(columns: tuple[Int64, ...]) -> tuple[Int64, Bool]:
    """The order of rows by their columns, the first one first, and in this order whether a row differs from the one
    before."""
    order = np.lexsort(columns[::-1])
    return order, _changes(*(column[order] for column in columns))


def _changes(*columns: Int64) -> Bool:
    """bool[rows], whether a row differs from the one before; the first does."""
    changed = np.zeros(len(columns[0]), dtype=np.bool_)
    changed[:1] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return changed


class _Held(NamedTuple):
    """The chunks of each node, node by node, and their versions, with receives by their indexes.

    Attributes:
        at: int64[slots], the index of the node; the other columns of slots are as in :class:`.programs.Chunks`.
        of_send, of_receive: int64[rows], the slot of each row; below 0 for turns and barriers.
        version: int32[sent], the version that each carries.
    """

    at: Int64
    chunks: Chunks
    of_send: Int64
    of_receive: Int64
    version: Int32


def _versions(ends: Ends, causes: Ragged) -> _Held:
    sent, received = ends.sent, ends.received
    transfers = [np.count_nonzero(rows.number < ends.transfers) for rows in (sent, received)]
    step = ends.source.workload.chunk_count
    parts = [
        (ends.sent_at[: transfers[0]], sent.chunk[: transfers[0]]),
        (ends.received_at[: transfers[1]], received.chunk[: transfers[1]]),
        (ends.held.at, ends.held.chunk),
        (ends.wanted.at, ends.wanted.chunk),
    ]
    keys, slot = np.unique(np.concatenate([at * step + chunk for at, chunk in parts]), return_inverse=True)
    of_send, of_receive, held, wanted = np.split(slot, np.cumsum([len(at) for at, _ in parts])[:-1])
    slots = _slots(ends, len(keys), of_send, of_receive, held, wanted)
    work = STEPS_A_ROW * (len(slot) + len(causes.values))
    states = at_speed(kernel_programs.states, work)(slots, causes.offsets, causes.values.astype(np.int64))
    version, final, offsets, base, *adds = at_speed(kernel_programs.versions, work)(slots, *states)
    at = keys // step
    found = _ordered(ends, Versions(version, final, offsets, base, _small(*adds)), slots, at, keys - at * step)
    size = np.full(len(keys), -1)
    for of, sizes in ((held, ends.held.size_bytes), (wanted, ends.wanted.size_bytes)):
        size[of] = sizes
    for of, rows in ((of_send, sent), (of_receive, received)):
        if (size[of] < 0).any():
            size[of] = rows.size_bytes[: len(of)]
    chunks = Chunks(keys - at * step, size, slots.held, found.final, found.offsets, found.base, found.adds)
    return _Held(at, chunks, slots.of_send, slots.of_receive, found.of_send)


def _ordered(ends: Ends, found: Versions, slots: Slots, at: Int64, chunk: Int64) -> Versions:
    """The versions of slots with sums in one order, see :mod:`.orders`; ``at`` and ``chunk`` of each slot."""
    trees = sum_trees(ends.plan)
    if trees is None:
        return found
    rows, held = ends.received.number.tolist(), slots.held.tolist()
    those: list[Slot | None] = []
    for s, (node, c) in enumerate(zip(ends.nodes[at].tolist(), chunk.tolist(), strict=True)):
        mine = slots.receives[slots.receive_offsets[s] : slots.receive_offsets[s + 1]].tolist()
        brings = {r: trees.carried[rows[r]] for r in mine}
        those.append(Slot(trees.of[c], held[s] << node, brings) if c in trees.of else None)
    return in_one_order(found, those, slots.of_send)


def _slots(ends: Ends, count: int, of_send: Int64, of_receive: Int64, held: Int64, wanted: Int64) -> Slots:
    """The slots, as kernels take them."""
    flags = np.zeros((2, count), dtype=np.bool_)
    flags[0, held] = flags[1, wanted] = True
    sends, receives = ((offsets_of(np.bincount(of, minlength=count)), np.argsort(of, kind="stable"))
                       for of in (of_send, of_receive))  # fmt: skip
    # turns and barriers come last, and are of no slot
    all_sends, all_receives = (
        np.append(of, np.full(len(rows.number) - len(of), nowhere))
        for of, rows, nowhere in ((of_send, ends.sent, -1), (of_receive, ends.received, -2))
    )
    forwards = ends.sent.forwards
    return Slots(all_sends, all_receives, *sends, *receives, flags[0], flags[1], ends.received.op == COPY, forwards)


def _small(offsets: Int64, values: NDArray[Any]) -> Ragged:
    return Ragged(offsets, values.astype(np.int32, copy=False))


def _programs(plan: Plan, ends: Ends) -> list[Program]:
    """The programs of the nodes to lower.

    Args:
        plan: of which ``ends`` has the transfers, the chunks of each message back to back.
    """
    waiting = _waiting(ends)
    held = _versions(ends, waiting.causes)
    sends, receives = _sends(plan, ends, held, waiting), _receives(ends, held, waiting)
    awaited = Awaited(waiting.awaited_row, waiting.awaited_place.astype(np.int32), waiting.awaited_wakes)
    every = np.arange(len(ends.nodes) + 1)
    columns = (ends.sent_at, ends.received_at, held.at, waiting.awaited_at)
    cuts = np.stack([np.searchsorted(at, every) for at in columns], axis=1)
    controller = plan.topology.node_count
    programs = []
    for i, node in enumerate(ends.nodes.tolist()):
        (s, r, c, w), (s_end, r_end, c_end, w_end) = cuts[i].tolist(), cuts[i + 1].tolist()
        program = Program(
            plan, node, ends.every,
            _chunks_between(held.chunks, c, c_end, r),
            _sends_between(sends, s, s if node == controller else s_end, c),
            _receives_between(receives, r, r if node == controller else r_end, c, s),
            _events(ends, waiting, *((s, s_end, r) if node == controller else (s, s, r))),
            Awaited(awaited.row[w:w_end], awaited.node[w:w_end], _between(awaited.wakes, w, w_end, s)),
        )  # fmt: skip
        programs.append(program)
    return programs


def _sends(plan: Plan, ends: Ends, held: _Held, waiting: _Waiting) -> Sends:
    rows = ends.sent
    subflow = _subflows(rows, ends.sent_at, _first(rows.dst), rows.dst.lengths == 1)
    return Sends(
        rows.number, held.of_send, held.version, rows.dst, *ends.pace(), rows.narrowest(), subflow, waiting.waits,
        None if plan.message is None else _message_of(plan.message, rows.number),
    )  # fmt: skip


def _message_of(message: Int32, number: Int64) -> Int64:
    """For rows by their numbers the message of each; -1 of turns and barriers."""
    of = np.full(len(number), -1, dtype=np.int64)
    of[number < len(message)] = message[number[number < len(message)]]
    return of


def _receives(ends: Ends, held: _Held, waiting: _Waiting) -> Receives:
    rows = ends.received
    subflow = _subflows(rows, ends.received_at, rows.src, rows.base.dst.lengths[rows.row] == 1)
    copies = rows.op == COPY
    return Receives(rows.number, held.of_receive, rows.src, copies, subflow, waiting.signals, waiting.wakes)


def _between(lists: Ragged, begin: int, end: int, shift: int = 0) -> Ragged:
    """Some of consecutive lists, with values less by ``shift``."""
    offsets = lists.offsets[begin : end + 1]
    return _small(offsets - offsets[0], lists.values[offsets[0] : offsets[-1]] - shift)


def _shifted(adds: Ragged, receives: int) -> Ragged:
    """Receives by numbers that are lower by ``receives``; other versions have numbers below 0."""
    return adds.with_values(np.where(adds.values < 0, adds.values, adds.values - receives).astype(np.int32))


def _chunks_between(c: Chunks, begin: int, end: int, receives: int) -> Chunks:
    versions = c.versions[begin : end + 1]
    first, last = versions[[0, -1]].tolist()
    which = slice(begin, end)
    return Chunks(
        c.chunk[which], c.size_bytes[which], c.held[which], c.final[which], versions - first, c.base[first:last],
        _shifted(_between(c.adds, first, last), receives),
    )  # fmt: skip


def _sends_between(s: Sends, begin: int, end: int, chunks: int) -> Sends:
    w = slice(begin, end)
    return Sends(
        s.row[w], s.chunk[w] - chunks, s.version[w], _between(s.to, begin, end), s.start_s[w], s.rate[w],
        s.priority[w], s.bandwidth[w], s.subflow[w], s.waits[w], None if s.message is None else s.message[w],
    )  # fmt: skip


def _receives_between(r: Receives, begin: int, end: int, chunks: int, sends: int) -> Receives:
    w = slice(begin, end)
    return Receives(
        r.row[w], r.chunk[w] - chunks, r.source[w], r.copies[w], r.subflow[w],
        _between(r.signals, begin, end), _between(r.wakes, begin, end, sends),
    )  # fmt: skip


def _events(ends: Ends, waiting: _Waiting, begin: int, end: int, received: int) -> Events:
    """The rows of the controller, which it sends from ``begin`` to ``end``, and receives from ``received`` on."""
    row = ends.sent.number[begin:end]
    which = row - ends.transfers
    start_s, seconds = (
        (np.zeros(0), np.zeros(0)) if ends.controls is None else (ends.controls.earliest_s, ends.controls.seconds)
    )
    last = received + end - begin
    return Events(
        row, start_s[which], seconds[which], waiting.waits[begin:end],
        _between(waiting.signals, received, last), _between(waiting.wakes, received, last, begin),
    )  # fmt: skip
