"""Programs as their runtimes run them: threads that take their steps in turn, and messages in passes.

A runtime does not know the times of a plan. What it does follows from the program alone: each thread (a threadblock of
a GPU) takes its steps one after the other, some steps wait for steps of other threads, a message is received when it
has arrived, and a runtime with buffers of fixed size holds back a sender whose buffer is full. The chunks of a program
have no size. They are as large as the buffer of a call asks for, and a runtime whose buffers are smaller than a chunk
runs the whole program several times, in passes, each on the next bytes of every chunk.

:func:`at_size` turns this into transfers that the simulator can run in ready order. Steps other than messages
(local copies and sums) take no time, as in plans.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..model.arrays import Int64, Ragged
from ..model.collective import Collective, Workload
from ..model.errors import InputError
from ..model.memory import too_much
from ..model.plan import COPY, Plan, make_plan
from ..model.targets import UNLIMITED, Target

MOST_UNLIKE_PASSES = 64
"""Passes after which the waits of a pass must be those of the pass before; a few are enough in practice."""


class Step(NamedTuple):
    """A step of a thread.

    Attributes:
        thread: the number of its thread; the steps of a thread run in the order of the list. Of what could happen at
            the same moment, what threads of lower numbers do comes first.
        waits: earlier steps of the list that must be done before.
        sends: the transfers that it sends, of the plan that the program is: a chunk each, all to one rank.
        receives: those that it receives, which one step sends.
    """

    thread: int
    waits: tuple[int, ...] = ()
    sends: tuple[int, ...] = ()
    receives: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Threads:
    """A program as its runtime runs it.

    Attributes:
        plan: what the program does: a transfer for each chunk that a step sends.
        steps: of all threads, in an order in which they can run.
        target: whose buffers limit what a pass and a message carry, and how many messages are under way.
        where: the file, for messages to people.
        full_bytes: the full buffer for which the plan has its sizes. most_bytes: the largest for which it may run.
        refereed: whether it is known that the program is correct. Else a verifier can tell (:func:`in_write_order`).
    """

    plan: Plan
    steps: Sequence[Step]
    target: Target
    where: str
    full_bytes: int
    most_bytes: int = UNLIMITED
    refereed: bool = False


class AsRun(NamedTuple):
    """What a runtime does with a program at a size: a plan, and which transfers follow others at their senders.

    The plan is for :func:`stretto.simulate.simulate` with ``follows``, and not to be verified: each message of each
    pass is a piece of its own, and waits for all that its step waits for.
    """

    plan: Plan
    follows: Ragged


def at_size(threads: Threads, size_bytes: int) -> AsRun:
    """What the runtime does with a full buffer of ``size_bytes``.

    Raises:
        InputError: the program gets stuck where buffers are full, sends what it has not waited for, or has too many
            messages at this size.
    """
    plan = threads.plan
    chunk_bytes = -(-plan.workload.chunk_bytes * size_bytes // threads.full_bytes)
    unit = int(chunk_bytes.max())
    if chunk_bytes.min() < threads.target.alignment_bytes or size_bytes > threads.most_bytes:
        raise InputError(f"is not for {size_bytes} bytes", threads.where)
    limit = threads.target.pass_bytes
    passes = -(-unit // limit)
    together = max(1, limit // unit)
    steps = _in_messages(threads.steps, together)
    if (reason := too_much(passes * sum(bool(step.sends) for step in steps), "messages")) is not None:
        raise InputError(f"at {size_bytes} bytes: {reason}", threads.where)
    program = _Program(threads, steps)
    sent, waits = _waits(program, passes)
    first = np.array([k for k, *_ in sent])
    moved = Ragged.of(sent)
    begin = np.arange(passes)[:, None] * limit
    carried = np.clip(chunk_bytes[plan.chunk[moved.values]] - begin, 0, limit)
    rows = passes * len(sent)
    pieces = _pieces(plan, moved, np.add.reduceat(carried, moved.offsets[:-1], axis=1))
    run = make_plan(
        plan.topology, Workload((pieces,)), "ready-order", chunk=np.arange(rows),
        src=np.tile(plan.src[first], passes), dst=_tiled(plan.dst.take(first), passes),
        route=_tiled(plan.route.take(first), passes), depends=Ragged.grouped(*waits.arrived, rows), where=threads.where,
    )  # fmt: skip
    return AsRun(run, Ragged.grouped(*waits.left, rows))


def in_write_order(threads: Threads) -> Plan:
    """The plan that a program is, where transfers also wait for what their receivers have written before.

    A program may keep the order of two writes to one chunk where it receives them. A plan says so where the second is
    sent, and the verifier asks for it where one of them is a copy.
    """
    plan = threads.plan
    program = _Program(threads, threads.steps)
    run = _Run(program, program.order())
    waits: list[list[int]] = [plan.depends[k].tolist() for k in range(plan.transfer_count)]
    for later, before in run.writes():
        if COPY in (plan.op[later], plan.op[before]):
            waits[later].append(before)
    # whatever a transfer waits for was received before it was
    order = [k for i in run.order for k in program.steps[i].receives]
    row = {k: i for i, k in enumerate(order)}
    at = np.array(order, dtype=np.int64)
    return make_plan(
        plan.topology, plan.workload, plan.sharing, chunk=plan.chunk[at], src=plan.src[at], op=plan.op[at],
        dst=plan.dst.take(at), route=plan.route.take(at),
        depends=Ragged.of([sorted({row[d] for d in waits[k]}) for k in order]),
        forwards=None if plan.forwards is None else plan.forwards[at], where=threads.where,
    )  # fmt: skip


def _pieces(plan: Plan, moved: Ragged, message_bytes: Int64) -> Collective:
    """A collective of which each message of each pass is a piece.

    Args:
        moved: for each message of a pass the transfers of the plan that it is.
        message_bytes: int64[passes, messages].
    """
    own, wanted = plan.workload.collectives[0], plan.workload.chunk_wanted
    passes = len(message_bytes)
    nodes = plan.topology.node_count
    to = plan.dst.values[plan.dst.offsets[:-1]]
    keys = plan.chunk[moved.values].astype(np.int64) * nodes + to[moved.values]
    counts = np.logical_or.reduceat(np.isin(keys, wanted.owners * nodes + wanted.values), moved.offsets[:-1])
    rank = np.zeros(nodes, dtype=np.int32)
    rank[own.ranks] = np.arange(len(own.ranks))
    first = moved.values[moved.offsets[:-1]]
    holders, receivers = Ragged.single(rank[plan.src[first]]), Ragged.from_lengths(counts, rank[to[first]][counts])
    return Collective.uncut(
        own.kind, own.ranks, own.size_bytes, message_bytes.ravel(), _tiled(holders, passes), _tiled(receivers, passes),
        root=own.root,
    )  # fmt: skip


def _tiled(lists: Ragged, passes: int) -> Ragged:
    return Ragged.from_lengths(np.tile(lists.lengths, passes), np.tile(lists.values, passes))


def _in_messages(steps: Sequence[Step], together: int) -> list[Step]:
    """The steps with one for each message: a message carries at most ``together`` chunks."""
    found: list[Step] = []
    last: list[int] = []
    for step in steps:
        waits = tuple(last[j] for j in step.waits)
        count = max(len(step.sends), len(step.receives), 1)
        for begin in range(0, count, together):
            part = slice(begin, begin + together)
            found.append(Step(step.thread, () if begin else waits, step.sends[part], step.receives[part]))
        last.append(len(found) - 1)
    return found


class _Pairs(NamedTuple):
    """Pairs of messages, of which the first waits for the second; int64[pairs] each."""

    waiting: Int64
    awaited: Int64


class _Waits(NamedTuple):
    """What messages wait for: until others have arrived, and until others have left."""

    arrived: _Pairs
    left: _Pairs


def _waits(program: _Program, passes: int) -> tuple[list[tuple[int, ...]], _Waits]:
    """The messages of a pass in an order in which they can be sent, and what those of all passes wait for.

    The messages of pass p are numbered from p times their number on. Since all passes are alike, what a message waits
    for is the same in each, counted from the pass, once the first ones are over.
    """
    run = _Run(program, program.order())
    n = len(run.sent)
    each = [run.next_pass()]
    while len(each) < passes and (len(each) < 3 or not _alike(each[-2], each[-1])):
        if len(each) > MOST_UNLIKE_PASSES:
            raise InputError("has passes that do not become alike", program.threads.where)
        each.append(run.next_pass())
    parts = [[(p.waiting + n * i, p.awaited + n * i) for p in waits] for i, waits in enumerate(each)]
    rest = np.arange(len(each), passes)[:, None] * n
    parts.append([((p.waiting + rest).ravel(), (p.awaited + rest).ravel()) for p in each[-1]])
    arrived, left = (_Pairs(*map(np.concatenate, zip(*kind, strict=True))) for kind in zip(*parts, strict=True))
    return run.sent, _Waits(arrived, left)


def _alike(a: _Waits, b: _Waits) -> bool:
    return all(np.array_equal(x, y) for p, q in zip(a, b, strict=True) for x, y in zip(p, q, strict=True))


class _Program:
    """The messages of a program: a message is named by its first transfer.

    Attributes:
        message: for each transfer the message that carries it. to: for each transfer the node that receives it.
        sender, receiver: for each message the step that sends it, and the one that receives it.
        connections: for each thread and node that it sends to the messages, in their order.
    """

    def __init__(self, threads: Threads, steps: Sequence[Step]) -> None:
        self.threads, self.steps = threads, steps
        self.to = threads.plan.dst.values[threads.plan.dst.offsets[:-1]].tolist()
        self.message: dict[int, int] = {}
        self.sender: dict[int, int] = {}
        self.receiver: dict[int, int] = {}
        self.connections: dict[tuple[int, int], list[int]] = defaultdict(list)
        for i, step in enumerate(steps):
            if step.sends:
                self.message |= dict.fromkeys(step.sends, step.sends[0])
                self.sender[step.sends[0]] = i
                self.connections[step.thread, self.to[step.sends[0]]].append(step.sends[0])
            if step.receives:
                self.receiver[step.receives[0]] = i

    def connection(self, message: int) -> tuple[int, int]:
        """The thread that sends a message, and the node that receives it."""
        return self.steps[self.sender[message]].thread, self.to[message]

    def order(self) -> list[int]:
        """The steps in an order in which they can run although buffers are small, round by round: what is sent in a
        round is received in the next one, and in a round lower threads go first."""
        awaited: list[list[int]] = [list(step.waits) for step in self.steps]
        last: dict[int, int] = {}
        for i, step in enumerate(self.steps):
            if step.thread in last:
                awaited[i].append(last[step.thread])
            last[step.thread] = i
        for message, i in self.receiver.items():
            awaited[i].append(self.sender[message])
        limit = self.threads.target.in_flight
        for messages in self.connections.values():
            for later, before in zip(messages[limit:], messages, strict=False):
                awaited[self.sender[later]].append(self.receiver[before])
        missing = list(map(len, awaited))
        waiting = Ragged.of(awaited).turned()
        sender = {i: self.sender[message] for message, i in self.receiver.items()}
        number = [0] * len(self.steps)  # the round of each step
        heap = [(0, step.thread, i) for i, step in enumerate(self.steps) if not missing[i]]
        heapq.heapify(heap)
        order = []
        while heap:
            i = heapq.heappop(heap)[-1]
            order.append(i)
            for j in waiting[i].tolist():
                number[j] = max(number[j], number[i] + (sender.get(j) == i))
                missing[j] -= 1
                if not missing[j]:
                    heapq.heappush(heap, (number[j], self.steps[j].thread, j))
        if len(order) < len(self.steps):
            raise InputError(
                f"gets stuck: buffers hold {limit} messages of a thread to a rank, and more are sent before the first "
                "can be received",
                self.threads.where,
            )
        return order


Clock = dict[tuple[bool, int, int], int]
"""What has happened before a moment: for each thread that sends and each node that it sends to the last message that
has arrived there (True), and for each thread the last that has left (False, to any node: -1). Those before it have,
too, as a thread sends one message after the other."""


class _Run:
    """Passes of a program, in which each thread keeps a clock.

    Attributes:
        sent: the messages of a pass in the order in which they are sent, each as its transfers.
        clocks: of each thread. told: of each thread, what its last message had waited for.
        heard: for each connection the clock after its last receipt. freed: for each connection and each of its
            receipts what that had waited for since the one before: when it is over, a message more may be under way.
        after: for each step of the last pass the clock of its thread after it.
    """

    def __init__(self, program: _Program, order: list[int]) -> None:
        self.program, self.order, self.passes = program, order, 0
        self.sent = [program.steps[i].sends for i in order if program.steps[i].sends]
        self.row = {message: row for row, (message, *_) in enumerate(self.sent)}
        self.clocks: dict[int, Clock] = defaultdict(dict)
        self.told: dict[int, Clock] = defaultdict(dict)
        self.heard: dict[tuple[int, int], Clock] = defaultdict(dict)
        self.freed: dict[tuple[int, int], list[Clock]] = defaultdict(list)
        self.count: dict[tuple[int, int], int] = defaultdict(int)
        self.after: dict[int, Clock] = {}

    def next_pass(self) -> _Waits:
        """What the messages of the next pass wait for; messages are counted from the first of this pass."""
        begin = self.passes * len(self.sent)
        after: dict[int, Clock] = {}
        pairs: tuple[set[tuple[int, int]], set[tuple[int, int]]] = (set(), set())
        for i in self.order:
            step = self.program.steps[i]
            clock = self.clocks[step.thread]
            for j in step.waits:
                _merge(clock, after[j])
            if step.receives:
                self._receive(step.receives[0], clock, begin)
            if step.sends:
                row = self.row[step.sends[0]]
                self._check(step, clock, begin)
                for (arrived, *_), other in self._needed(step, clock).items():
                    pairs[not arrived].add((row, other - begin))
                clock[False, step.thread, -1] = begin + row
            after[i] = dict(clock)
        self.after = after
        self.passes += 1
        return _Waits(*(_Pairs(*np.array(sorted(p), dtype=np.int64).reshape(-1, 2).T) for p in pairs))

    def writes(self) -> Iterator[tuple[int, int]]:
        """Transfers that write a chunk at a node, each with those whose write there is always done before."""
        plan, to = self.program.threads.plan, self.program.to
        written: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.next_pass()
        for i in self.order:
            for k in self.program.steps[i].receives:
                for other in (there := written[to[k], int(plan.chunk[k])]):
                    message = self.program.message[other]
                    if self.after[i].get((True, *self.program.connection(message)), -1) >= self.row[message]:
                        yield k, other
                there.append(k)

    def _receive(self, message: int, clock: Clock, begin: int) -> None:
        connection = self.program.connection(message)
        clock[True, *connection] = begin + self.row[message]
        self.freed[connection].append(_newer(clock, self.heard[connection]))
        self.heard[connection] = dict(clock)

    def _needed(self, step: Step, clock: Clock) -> Clock:
        """What a message waits for, but for what the last one of its thread waited for."""
        needed = _newer(clock, self.told[step.thread])
        self.told[step.thread] = dict(clock)
        connection, limit = self.program.connection(step.sends[0]), self.program.threads.target.in_flight
        if self.count[connection] >= limit:
            _merge(needed, self.freed[connection][self.count[connection] - limit])
        self.count[connection] += 1
        return needed

    def _check(self, step: Step, clock: Clock, begin: int) -> None:
        """Refuse a message that carries what its step has not waited for."""
        plan = self.program.threads.plan
        for k in step.sends:
            for d in plan.depends[k].tolist():
                brought = self.program.message[d]
                if clock.get((True, *self.program.connection(brought)), -1) < begin + self.row[brought]:
                    message = f"{plan.describe(k)} sends what {plan.describe(d)} brings, and does not wait for it"
                    raise InputError(message, self.program.threads.where)


def _newer(clock: Clock, than: Clock) -> Clock:
    return {key: k for key, k in clock.items() if than.get(key, -1) < k}


def _merge(clock: Clock, other: Clock) -> None:
    for key, k in other.items():
        if clock.get(key, -1) < k:
            clock[key] = k
