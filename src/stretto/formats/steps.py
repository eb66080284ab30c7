"""A plan as the steps of its ranks, for formats that runtimes execute: copies, sends and receives between buffers.

Every chunk has a slot at every rank that it reaches: in the input buffer where the rank holds it, in the output where
the rank wants it, else in scratch. The steps can run in their order. Each names the steps of its own rank that it waits
for: a step that reads a slot waits for the last write to it, a step that writes a slot for that write and the reads
since. So a step sends what the plan says (docs: decisions 3) in every timing.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

import numpy as np

from ..model.collective import Collective
from ..model.errors import InputError, Unsupported
from ..model.memory import too_much
from ..model.plan import REDUCE, Plan
from ..model.rows import ends_at_nodes
from ..model.symmetric import SymmetricPlan
from ..model.timeline import Timeline

Slot = tuple[str, int]
"""A buffer, "i", "o" or "s", and the chunk in it."""
MESSAGE_BYTES = 3200
"""Memory for each message while its steps are made and written, about: what ``stretto export --to mscclpp`` adds to a
process for each message of an AllGather by shortest-path on torus:8x16."""
SERVED = ("allgather", "reducescatter", "allreduce", "alltoall", "broadcast", "reduce")
"""Kinds of collectives that the runtimes of these formats know."""


@dataclass
class Step:
    """What a rank does: "cpy" copies ``src`` to ``dst``, "s" sends ``src`` to the peer's ``dst``, "r" receives
    the peer's ``src`` into ``dst``, "rrc" receives it and adds it to ``dst``."""

    rank: int
    kind: str
    peer: int
    src: Slot
    dst: Slot
    waits: list[int] = field(default_factory=list)
    partner: int = -1


@dataclass
class Program:
    """The steps of all ranks in an order that can run, and how many chunks each buffer has."""

    kind: str
    ranks: int
    inputs: list[int]
    outputs: list[int]
    scratch: list[int]
    steps: list[Step]
    notes: list[str]


def program_of(timeline: Timeline) -> Program:
    """Lower a simulated plan to steps; Unsupported says why steps cannot express it.

    Raises:
        InputError: the steps do not fit into memory.
    """
    plan = timeline.plan
    collective = only_collective(plan)
    messages = int(ends_at_nodes(plan).sum()) // 2
    if (reason := too_much(messages, "messages", MESSAGE_BYTES)) is not None:
        raise InputError(f"a file of all ranks: {reason}; plan in fewer chunks, or among fewer ranks", "plan")
    rank = {int(v): r for r, v in enumerate(collective.ranks)}
    for v in (*plan.src.tolist(), *plan.dst.values.tolist()):
        if v not in rank:
            raise Unsupported(f"{plan.topology.names[v]} sends or receives but is no rank: only ranks run steps")
    lowering = _Lowering(plan, collective, rank)
    for event in _order(timeline):
        (lowering.send if event % 2 == 0 else lowering.receive)(event // 2)
    notes = []
    if (plan.dst.lengths > 1).any():
        notes.append("multicast in switches became one send a receiver")
    if plan.sharing == "timed":
        notes.append("times left out: steps run as soon as they can")
    return lowering.program(notes)


def only_collective(plan: Plan) -> Collective:
    """The collective of a plan, if steps of ranks can express it; Unsupported says why not."""
    if len(plan.workload.collectives) != 1:
        raise Unsupported("the plan has several collectives; a program of steps holds one")
    if plan.sharing in ("rates", "weights", "priorities"):
        raise Unsupported(f"the plan shares links by {plan.sharing}, which steps cannot say")
    if (plan.part if isinstance(plan, SymmetricPlan) else plan).other_src is not None:
        raise Unsupported("the plan has switches that sum, which steps cannot say")
    if plan.topology.planes or plan.barriers:
        raise Unsupported("the plan has optical planes or barriers, which steps cannot say")
    collective = plan.workload.collectives[0]
    if collective.kind not in SERVED:
        raise Unsupported(f"{collective.kind} has no layout of buffers; there are {', '.join(SERVED)}")
    if not collective.evenly_cut:
        raise Unsupported("the chunks are of different sizes, and a buffer of steps has equal ones")
    return collective


def _order(timeline: Timeline) -> list[int]:
    """Events, 2r for the send and 2r + 1 for the receipt of receiver r of ``plan.dst``, in a legal order.

    A transfer that does not depend on some write to the slot that it sends must read before that write: it
    carries what was there before. Messages between two ranks are received in the order in which they were sent.
    Of several events that are free the one with the earlier simulated time goes first.
    """
    plan = timeline.plan
    count = len(plan.dst.values)
    first, last = plan.dst.offsets[:-1].tolist(), plan.dst.offsets[1:].tolist()
    sorter: TopologicalSorter[int] = TopologicalSorter()
    writes: dict[tuple[int, int], list[int]] = defaultdict(list)
    owner = plan.dst.owners.tolist()
    for r, v in enumerate(plan.dst.values.tolist()):
        writes[v, int(plan.chunk[owner[r]])].append(r)
        sorter.add(2 * r + 1, 2 * r)
    for k in range(plan.transfer_count):
        needed = set(plan.depends[k].tolist())
        for r in range(first[k], last[k]):
            sorter.add(2 * r, *(2 * other + 1 for d in needed for other in range(first[d], last[d])))
            own = writes.get((int(plan.src[k]), int(plan.chunk[k])), ())
            copied = max((owner[w] for w in own if owner[w] in needed and plan.op[owner[w]] != REDUCE), default=-1)
            for other in own:  # a copy replaces earlier writes; later writes that this transfer does not need follow it
                if owner[other] not in needed and owner[other] > copied:
                    sorter.add(2 * other + 1, 2 * r)
    times = np.empty(2 * count)
    times[0::2], times[1::2] = timeline.start_s[owner], timeline.arrival_s
    pair = list(zip(plan.src[owner].tolist(), plan.dst.values.tolist(), strict=True))
    under_way: dict[tuple[int, int], deque[int]] = defaultdict(deque)
    early: set[int] = set()
    with suppress(CycleError):  # what waits in a circle stays
        sorter.prepare()
    heap = [(times[e], e) for e in sorter.get_ready()]
    heapq.heapify(heap)
    found = []
    while heap:
        event = heapq.heappop(heap)[1]
        queue = under_way[pair[event // 2]]
        if event % 2 == 0:
            queue.append(event + 1)
        elif queue[0] != event:
            early.add(event)
            continue
        else:
            queue.popleft()
            if queue and queue[0] in early:
                heapq.heappush(heap, (times[queue[0]], queue[0]))
        found.append(event)
        sorter.done(event)
        for e in sorter.get_ready():
            heapq.heappush(heap, (times[e], e))
    if len(found) < 2 * count:
        raise Unsupported("a rank would have to keep an older sum aside while it sends it; steps have one slot a chunk")
    return found


class _Lowering:
    """Slots and their last uses, while events are turned into steps."""

    def __init__(self, plan: Plan, collective: Collective, rank: dict[int, int]) -> None:
        self.plan, self.collective, self.rank = plan, collective, rank
        self.parts = collective.chunk_count // len(collective.piece_bytes)
        traits = collective.traits
        self.inputs, self.outputs = (
            [traits.pieces_of(who, r, len(rank), collective.root) for r in range(len(rank))]
            for who in (traits.held, traits.wanted)
        )
        self.transfer = plan.dst.owners.tolist()
        self.steps: list[Step] = []
        self.scratch = [0] * len(rank)
        self.homes: dict[tuple[int, int], Slot] = {}
        self.filled: set[tuple[int, int]] = set()
        self.written: dict[tuple[int, Slot], int] = {}
        self.read: dict[tuple[int, Slot], list[int]] = defaultdict(list)
        self.sent: dict[int, int] = {}
        self._copy_own()

    def _copy_own(self) -> None:
        """Copy a rank's own data to the slot where it is wanted or added to, before anything overwrites that slot."""
        first: dict[tuple[int, int], int] = {}
        for r, k in enumerate(self.transfer):
            key = (self.rank[int(self.plan.dst.values[r])], int(self.plan.chunk[k]))
            first.setdefault(key, int(self.plan.op[k]))
        for chunk in range(self.collective.chunk_count):
            piece = chunk // self.parts
            for rank in self.collective.holders[piece].tolist():
                wanted = piece in self.outputs[rank] and (rank, chunk) not in first
                if wanted or first.get((rank, chunk)) == REDUCE:
                    self._add(Step(rank, "cpy", -1, self._input(rank, chunk), self.home(rank, chunk)))
                    self.filled.add((rank, chunk))

    def _input(self, rank: int, chunk: int) -> Slot:
        piece, part = divmod(chunk, self.parts)
        return "i", self.inputs[rank].index(piece) * self.parts + part

    def home(self, rank: int, chunk: int) -> Slot:
        """The slot of a chunk at a rank, allocated when it is first asked for."""
        if (rank, chunk) not in self.homes:
            piece, part = divmod(chunk, self.parts)
            if piece in self.outputs[rank]:
                slot = ("o", self.outputs[rank].index(piece) * self.parts + part)
            else:
                slot = ("s", self.scratch[rank])
                self.scratch[rank] += 1
            self.homes[rank, chunk] = slot
        return self.homes[rank, chunk]

    def send(self, receiver: int) -> None:
        transfer = self.transfer[receiver]
        chunk = int(self.plan.chunk[transfer])
        rank, peer = self.rank[int(self.plan.src[transfer])], self.rank[int(self.plan.dst.values[receiver])]
        own = self.home(rank, chunk) if (rank, chunk) in self.filled else self._input(rank, chunk)
        self.sent[receiver] = self._add(Step(rank, "s", peer, own, self.home(peer, chunk)))

    def receive(self, receiver: int) -> None:
        transfer = self.transfer[receiver]
        sent = self.steps[self.sent[receiver]]
        key = (sent.peer, int(self.plan.chunk[transfer]))
        adds = self.plan.op[transfer] == REDUCE and key in self.filled
        self.filled.add(key)
        step = Step(sent.peer, "rrc" if adds else "r", sent.rank, sent.src, sent.dst, partner=self.sent[receiver])
        sent.partner = self._add(step)

    def _add(self, step: Step) -> int:
        """Append a step, with the steps that it must wait for."""
        number = len(self.steps)
        if step.kind in ("cpy", "s"):
            key = (step.rank, step.src)
            step.waits += [self.written[key]] if key in self.written else []
            self.read[key].append(number)
        if step.kind != "s":
            key = (step.rank, step.dst)
            step.waits += [self.written[key]] if key in self.written else []
            step.waits += [k for k in self.read.pop(key, []) if k != number]
            self.written[key] = number
        self.steps.append(step)
        return number

    def program(self, notes: list[str]) -> Program:
        inputs, outputs = ([len(pieces) * self.parts for pieces in ranks] for ranks in (self.inputs, self.outputs))
        return Program(self.collective.kind, len(self.rank), inputs, outputs, self.scratch, self.steps, notes)
