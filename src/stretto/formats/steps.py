"""A plan as the steps of its ranks, for formats that runtimes execute: copies, sends and receives between buffers.

Buffers are counted in equal parts of a piece, of which a chunk covers one or several. Every chunk has a slot at every
rank that it reaches: in the input buffer where the rank holds it, in the output where the rank wants it, else in
scratch. The steps can run in their order. Each names the steps of its own rank that it waits for: a step that reads a
slot waits for the last write to it, a step that writes a slot for that write and the reads since. So a step sends what
the plan says (docs: decisions 3) in every timing. A slot holds one sum; where a rank sends several of which none holds
the other, each summand has a slot of scratch, and so has each sum.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from ..model.chunks import EqualParts, equal_parts
from ..model.collective import Collective
from ..model.errors import InputError, Unsupported
from ..model.memory import too_much
from ..model.plan import REDUCE, Plan
from ..model.rows import ends_at_nodes
from ..model.symmetric import SymmetricPlan
from ..model.targets import BUFFERED, UNPACED, Target
from ..model.timeline import Timeline

Slot = tuple[str, int]
"""A buffer, "i", "o" or "s", and the first part of a slot in it."""
MESSAGE_BYTES = 3200
"""Memory for each message while its steps are made and written, about: what a step by step export adds to a process for
each message of an AllGather by shortest-path on torus:8x16."""


@dataclass
class Step:
    """What a rank does with ``count`` parts: "cpy" copies ``src`` to ``dst``, "re" adds it to ``dst``, "s" sends it to
    the peer's ``dst``, "r" receives the peer's ``src`` into ``dst``, "rrc" receives it and adds it to ``dst``."""

    rank: int
    kind: str
    peer: int
    src: Slot
    dst: Slot
    count: int = 1
    waits: list[int] = field(default_factory=list)
    partner: int = -1


@dataclass
class Program:
    """The steps of all ranks in an order that can run, and how many parts each buffer has."""

    kind: str
    ranks: int
    inputs: list[int]
    outputs: list[int]
    scratch: list[int]
    steps: list[Step]
    notes: list[str]


def program_of(timeline: Timeline, target: Target, message_bytes: int = MESSAGE_BYTES) -> Program:
    """Lower a simulated plan to steps of a target; Unsupported says why steps cannot express it.

    Raises:
        InputError: the steps do not fit into memory.
    """
    plan = timeline.plan
    collective = only_collective(plan)
    messages = int(ends_at_nodes(plan).sum()) // 2
    if (reason := too_much(messages, "messages", message_bytes)) is not None:
        raise InputError(f"a file of all ranks: {reason}; plan in fewer chunks, or among fewer ranks", "plan")
    rank = {int(v): r for r, v in enumerate(collective.ranks)}
    for v in (*plan.src.tolist(), *plan.dst.values.tolist()):
        if v not in rank:
            raise Unsupported(f"{plan.topology.names[v]} sends or receives but is no rank: only ranks run steps")
    parts = parts_of(collective, target)
    events = _Events(timeline, parts, target)
    order = _order(events)
    lowering = _Lowering(plan, collective, rank, parts, events)
    for event in order:
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
    if plan.sharing not in UNPACED:
        raise Unsupported(f"the plan shares links by {plan.sharing}, which steps cannot say")
    if (plan.part if isinstance(plan, SymmetricPlan) else plan).other_src is not None:
        raise Unsupported("the plan has switches that sum, which steps cannot say")
    if not isinstance(plan, SymmetricPlan) and plan.forwards is not None:
        raise Unsupported("ranks forward sums apart from what else they have, which steps cannot say")
    if plan.topology.planes or plan.barriers:
        raise Unsupported("the plan has optical planes or barriers, which steps cannot say")
    collective = plan.workload.collectives[0]
    if collective.kind not in BUFFERED:
        raise Unsupported(f"{collective.kind} has no layout of buffers; there are {', '.join(BUFFERED)}")
    return collective


def parts_of(collective: Collective, target: Target) -> EqualParts:
    """The equal parts of a piece of which chunks cover one or several; Unsupported if chunks do not."""
    pieces = max(collective.traits.pieces_in_buffer(len(collective.ranks)), 1)
    parts = equal_parts(collective, target.alignment_bytes, target.buffer_parts // pieces)
    if parts is None:
        raise Unsupported("the chunks are of different sizes, and a buffer of steps has equal ones")
    return parts


def _order(events: _Events) -> list[int]:
    """Events in a legal order: 2r for the send and 2r + 1 for the receipt of receiver r of ``plan.dst``.

    Of several events that are free the one with the earlier simulated time goes first.
    """
    found: list[int] = []
    while len(found) < 2 * events.receivers:
        found = events.in_order()
        if len(found) < 2 * events.receivers and not (events.keep_apart(found) or events.send_later()):
            raise Unsupported(
                "transfers wait in a circle where messages are received in the order in which they are sent, and few "
                "may be under way"
            )
    return found


class _Events:
    """What each event waits for.

    A transfer that does not depend on some write to the slot that it sends must read before that write: it carries what
    was there before. Messages between two ranks are received in the order in which they were sent, and few may be under
    way: a chunk of more parts is sent when it can be received. Where a rank sends sums of which none holds the other,
    or events wait in a circle, the summands of a chunk are kept apart at a rank.

    Attributes:
        waits: for each send the receipts that it waits for.
        own: for each send those of them that wrote what it sends.
        later: for each send the receipts that overwrite what it sends.
        key: for each send its node and chunk.
        copied: for each send whether what it sends came as a copy.
        parts: for each send the parts that it sends, each a message where chunks are large.
        room: messages from one rank to another that may be under way.
        apart: the nodes and chunks whose summands are kept apart.
    """

    def __init__(self, timeline: Timeline, parts: EqualParts, target: Target) -> None:
        plan = timeline.plan
        self.room = target.in_flight
        self.parts: list[int] = parts.covered[plan.chunk[plan.dst.owners]].tolist()
        self.receivers = len(plan.dst.values)
        first, last = plan.dst.offsets[:-1].tolist(), plan.dst.offsets[1:].tolist()
        owner, sums = plan.dst.owners.tolist(), (plan.op == REDUCE).tolist()
        self.start_s: list[float] = timeline.start_s[owner].tolist()
        self.arrival_s: list[float] = timeline.arrival_s.tolist()
        self.pair = list(zip(plan.src[owner].tolist(), plan.dst.values.tolist(), strict=True))
        self.key = list(zip(plan.src[owner].tolist(), plan.chunk[owner].tolist(), strict=True))
        self.waits: list[tuple[int, ...]] = []
        self.own: list[frozenset[int]] = []
        self.later: list[list[int]] = []
        self.copied: list[bool] = []
        self.after: dict[int, set[int]] = defaultdict(set)  # for each send others that it follows
        self.overtaken: list[tuple[int, int]] = []  # a message that waits, and one behind it that could be received
        writes: dict[tuple[int, int], list[int]] = defaultdict(list)
        for r, v in enumerate(plan.dst.values.tolist()):
            writes[v, int(plan.chunk[owner[r]])].append(r)
        for k in range(plan.transfer_count):
            needed = set(plan.depends[k].tolist())
            waits = tuple(2 * other + 1 for d in needed for other in range(first[d], last[d]))
            slot = writes.get((int(plan.src[k]), int(plan.chunk[k])), ())
            copied = max((owner[w] for w in slot if owner[w] in needed and not sums[owner[w]]), default=-1)
            # a copy replaces earlier writes; later writes that this transfer does not need follow it
            own = frozenset(w for w in slot if owner[w] in needed)
            later = [w for w in slot if owner[w] not in needed and owner[w] > copied]
            for _ in range(first[k], last[k]):
                self.waits.append(waits)
                self.own.append(own)
                self.later.append(later)
                self.copied.append(copied >= 0)
        self.apart = self._unlike_sums()

    def _unlike_sums(self) -> set[tuple[int, int]]:
        """The nodes and chunks of which two sums are sent and none of these holds the other."""
        sums: dict[tuple[int, int], set[frozenset[int]]] = defaultdict(set)
        for r in range(self.receivers):
            if self.own[r] and not self.copied[r]:
                sums[self.key[r]].add(self.own[r])
        return {
            key
            for key, own in sums.items()
            if any(not a < b for a, b in pairwise(sorted(own, key=lambda each: (len(each), sorted(each)))))
        }

    def in_order(self) -> list[int]:
        """The events up to where all that are left wait for each other."""
        sorter: TopologicalSorter[int] = TopologicalSorter()
        for r in range(self.receivers):
            sorter.add(2 * r, *self.waits[r], *self.after[r])
            sorter.add(2 * r + 1, 2 * r)
            if self.copied[r] or self.key[r] not in self.apart:
                for other in self.later[r]:
                    sorter.add(2 * other + 1, 2 * r)
                    if self.parts[other] > self.room:
                        sorter.add(2 * other, 2 * r)
        full: dict[tuple[int, int], list[int]] = defaultdict(list)  # sends for which there is no room
        under_way: dict[tuple[int, int], deque[int]] = defaultdict(deque)
        early: set[int] = set()
        with suppress(CycleError):  # what waits in a circle stays
            sorter.prepare()
        heap = [(self._time_s(e), e) for e in sorter.get_ready()]
        heapq.heapify(heap)
        found = []
        while heap:
            event = heapq.heappop(heap)[1]
            queue = under_way[self.pair[event // 2]]
            if event % 2 == 0:
                if queue and sum(self.parts[e // 2] for e in (event, *queue)) > self.room:
                    full[self.pair[event // 2]].append(event)
                    continue
                queue.append(event + 1)
            elif queue[0] != event:
                early.add(event)
                continue
            else:
                queue.popleft()
                for e in full.pop(self.pair[event // 2], ()):
                    heapq.heappush(heap, (self._time_s(e), e))
                if queue and queue[0] in early:
                    heapq.heappush(heap, (self._time_s(queue[0]), queue[0]))
            found.append(event)
            sorter.done(event)
            for e in sorter.get_ready():
                heapq.heappush(heap, (self._time_s(e), e))
        behind = ((queue[0] // 2, event // 2) for queue in under_way.values() for event in queue if event in early)
        self.overtaken = [(late, r) for late, r in behind if late != r and 2 * r not in self.after[late]]
        return found

    def _time_s(self, event: int) -> float:
        return self.arrival_s[event // 2] if event % 2 else self.start_s[event // 2]

    def keep_apart(self, found: list[int]) -> bool:
        """Keep apart the summands of what holds up a receipt, given the events that found an order; False if there is
        nothing such."""
        done = set(found)
        more = {
            self.key[r]
            for r in range(self.receivers)
            if 2 * r not in done and not self.copied[r] and any(2 * w + 1 not in done for w in self.later[r])
        }
        more -= self.apart
        self.apart |= more
        return bool(more)

    def send_later(self) -> bool:
        """Put off the messages that cannot be received yet while one could be that was sent later between the same two
        ranks: they are sent after that one. False if there are none."""
        for late, r in self.overtaken:
            self.after[late].add(2 * r)
        return bool(self.overtaken)


class _Lowering:
    """Slots and their last uses, while events are turned into steps."""

    def __init__(
        self, plan: Plan, collective: Collective, rank: dict[int, int], parts: EqualParts, events: _Events
    ) -> None:
        self.plan, self.collective, self.rank, self.parts = plan, collective, rank, parts.number
        self.piece, self.first = collective.chunk_piece.tolist(), parts.first.tolist()
        self.covered = parts.covered.tolist()
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
        self.own = events.own
        self.apart = {(rank[node], chunk) for node, chunk in events.apart}
        self.summands: dict[tuple[int, int], dict[int, Slot]] = defaultdict(dict)
        self.sums: dict[tuple[int, int, frozenset[int]], Slot] = {}
        self.coming: Counter[tuple[int, int]] = Counter()
        self._copy_own()

    def _copy_own(self) -> None:
        """Copy a rank's own data to the slot where it is wanted or added to, before anything overwrites that slot."""
        first: dict[tuple[int, int], int] = {}
        for r, k in enumerate(self.transfer):
            key = (self.rank[int(self.plan.dst.values[r])], int(self.plan.chunk[k]))
            first.setdefault(key, int(self.plan.op[k]))
            self.coming[key] += 1
        for chunk in range(self.collective.chunk_count):
            piece = self.piece[chunk]
            for rank in self.collective.holders[piece].tolist():
                wanted = piece in self.outputs[rank] and (rank, chunk) not in first
                adds = first.get((rank, chunk)) == REDUCE and (rank, chunk) not in self.apart
                if wanted or adds:
                    self._copy(rank, chunk, self._input(rank, chunk), self.home(rank, chunk))
                    self.filled.add((rank, chunk))

    def _input(self, rank: int, chunk: int) -> Slot:
        return "i", self.inputs[rank].index(self.piece[chunk]) * self.parts + self.first[chunk]

    def home(self, rank: int, chunk: int) -> Slot:
        """The slot of a chunk at a rank, allocated when it is first asked for."""
        if (rank, chunk) not in self.homes:
            piece = self.piece[chunk]
            if piece in self.outputs[rank]:
                slot = ("o", self.outputs[rank].index(piece) * self.parts + self.first[chunk])
            else:
                slot = self._scratch(rank, chunk)
            self.homes[rank, chunk] = slot
        return self.homes[rank, chunk]

    def _scratch(self, rank: int, chunk: int) -> Slot:
        """A new slot for a chunk in a rank's scratch."""
        self.scratch[rank] += self.covered[chunk]
        return "s", self.scratch[rank] - self.covered[chunk]

    def _source(self, rank: int, chunk: int) -> Slot:
        """Where a rank has what it sends of a chunk."""
        return self.home(rank, chunk) if (rank, chunk) in self.filled else self._input(rank, chunk)

    def _copy(self, rank: int, chunk: int, src: Slot, dst: Slot) -> None:
        self._add(Step(rank, "cpy", -1, src, dst, self.covered[chunk]))

    def _sum(self, rank: int, chunk: int, summands: frozenset[int]) -> Slot:
        """The slot of the sum of a rank's own data and what some receipts brought, which it keeps apart."""
        key = rank, chunk, summands
        if key not in self.sums:
            whole = self.piece[chunk] in self.outputs[rank] and len(summands) == self.coming[rank, chunk]
            self.sums[key] = self.home(rank, chunk) if whole else self._scratch(rank, chunk)
            self._copy(rank, chunk, self._input(rank, chunk), self.sums[key])
            for receiver in sorted(summands):
                summand = self.summands[rank, chunk][receiver]
                self._add(Step(rank, "re", -1, summand, self.sums[key], self.covered[chunk]))
        return self.sums[key]

    def send(self, receiver: int) -> None:
        transfer = self.transfer[receiver]
        chunk = int(self.plan.chunk[transfer])
        rank, peer = self.rank[int(self.plan.src[transfer])], self.rank[int(self.plan.dst.values[receiver])]
        summands = self.own[receiver]
        apart = (rank, chunk) in self.apart and (rank, chunk) not in self.filled and summands
        own = self._sum(rank, chunk, summands) if apart else self._source(rank, chunk)
        summand = (peer, chunk) in self.apart and self.plan.op[transfer] == REDUCE
        there = self._scratch(peer, chunk) if summand else self.home(peer, chunk)
        self.sent[receiver] = self._add(Step(rank, "s", peer, own, there, self.covered[chunk]))

    def receive(self, receiver: int) -> None:
        transfer = self.transfer[receiver]
        sent = self.steps[self.sent[receiver]]
        key = (sent.peer, int(self.plan.chunk[transfer]))
        summand = key in self.apart and self.plan.op[transfer] == REDUCE
        adds = self.plan.op[transfer] == REDUCE and key in self.filled
        if not summand:
            self.filled.add(key)
        kind = "rrc" if adds else "r"
        step = Step(sent.peer, kind, sent.rank, sent.src, sent.dst, sent.count, partner=self.sent[receiver])
        sent.partner = self._add(step)
        if summand:
            self.summands[key][receiver] = sent.dst
            if len(self.summands[key]) == self.coming[key] and self.piece[key[1]] in self.outputs[key[0]]:
                self._sum(*key, frozenset(self.summands[key]))

    def _add(self, step: Step) -> int:
        """Append a step, with the steps that it must wait for."""
        number = len(self.steps)
        if step.kind in ("cpy", "re", "s"):
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
