"""A plan as the steps of its ranks, for formats that runtimes execute: copies, sends and receives between buffers.

Buffers are counted in equal parts of a piece, of which a chunk covers one or several. Every chunk has a slot at every
rank that it reaches: in the input buffer where the rank holds it, in the output where the rank wants it, else in
scratch. The steps can run in their order. Each names the steps of its own rank that it waits for: a step that reads a
slot waits for the last write to it, a step that writes a slot for that write and the reads since. So a step sends what
the plan says (docs: decisions 3) in every timing. A slot holds one sum; where a rank sends several of which none holds
the other, each summand has a slot of scratch, and so has each sum; what comes after a copy is added to the copy. A
message of several chunks is a step for each, one right after the other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..model.chunks import EqualParts, equal_parts
from ..model.collective import Collective
from ..model.errors import InputError, Unsupported
from ..model.memory import too_much
from ..model.plan import REDUCE, Plan
from ..model.rows import ends_at_nodes
from ..model.symmetric import SymmetricPlan
from ..model.targets import BUFFERED, UNPACED, Target
from ..model.timeline import Timeline
from .step_events import Events, order_of
from .step_messages import Carried, Form, Slot, after, in_one_range

MESSAGE_BYTES = 3200
"""Memory for each message while its steps are made and written, about: what a step by step export adds to a process for
each message of an AllGather by shortest-path on torus:8x16."""


@dataclass
class Step:
    """What a rank does with ``count`` parts: "cpy" copies ``src`` to ``dst``, "re" adds it to ``dst``, "s" sends it to
    the peer's ``dst``, "r" receives the peer's ``src`` into ``dst``, "rrc" receives it and adds it to ``dst``.

    Attributes:
        waits: earlier steps of the rank that must be done before.
        partner: the step at the other end of a message; of a step that packs or unpacks a message, the first step of
            the message at this rank.
        more: whether it goes on with the step before it: both are of one message, or of one copy.
    """

    rank: int
    kind: str
    peer: int
    src: Slot
    dst: Slot
    count: int = 1
    waits: list[int] = field(default_factory=list)
    partner: int = -1
    more: bool = False


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
    messages = int(ends_at_nodes(plan).sum()) // 2  # each chunk of a message by itself
    if (reason := too_much(messages, "messages", message_bytes)) is not None:
        raise InputError(f"a file of all ranks: {reason}; plan in fewer chunks, or among fewer ranks", "plan")
    rank = {int(v): r for r, v in enumerate(collective.ranks)}
    for v in (*plan.src.tolist(), *plan.dst.values.tolist()):
        if v not in rank:
            raise Unsupported(f"{plan.topology.names[v]} sends or receives but is no rank: only ranks run steps")
    parts = parts_of(collective, target)
    lowering = _Lowering(plan, collective, rank, parts, target)
    lowering.run(Events(timeline, parts, target))
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


class _Lowering:
    """Slots and their last uses, while events are turned into steps.

    Attributes:
        sent: for each message under way, for each chunk the step that sends it, what it is, and its place in the end.
    """

    def __init__(
        self, plan: Plan, collective: Collective, rank: dict[int, int], parts: EqualParts, target: Target
    ) -> None:
        self.collective, self.rank, self.parts, self.one_range = collective, rank, parts.number, target.one_range
        self.piece, self.first = collective.chunk_piece.tolist(), parts.first.tolist()
        self.covered = parts.covered.tolist()
        traits = collective.traits
        self.inputs, self.outputs = (
            [traits.pieces_of(who, r, len(rank), collective.root) for r in range(len(rank))]
            for who in (traits.held, traits.wanted)
        )
        transfer = plan.dst.owners
        self.chunk: list[int] = plan.chunk[transfer].tolist()
        self.reduces: list[bool] = (plan.op[transfer] == REDUCE).tolist()
        self.sender = [rank[v] for v in plan.src[transfer].tolist()]
        self.receiver = [rank[v] for v in plan.dst.values.tolist()]
        self.steps: list[Step] = []
        self.scratch = [0] * len(rank)
        self.homes: dict[tuple[int, int], Slot] = {}
        self.filled: set[tuple[int, int]] = set()
        self.written: dict[tuple[int, Slot], int] = {}
        self.read: dict[tuple[int, Slot], list[int]] = defaultdict(list)
        self.sent: dict[int, list[tuple[int, Carried, Slot]]] = {}
        self.summands: dict[tuple[int, int], dict[int, Slot]] = defaultdict(dict)
        self.sums: dict[tuple[int, int, frozenset[int], bool], Slot] = {}
        self.coming: Counter[tuple[int, int]] = Counter()

    def run(self, events: Events) -> None:
        """Make the steps of all messages."""
        order = order_of(events)
        self.messages, self.own, self.copied = events.messages, events.own, events.copied
        self.forwards = events.forwards
        self.follows_copy = events.follows_copy
        self.apart = {(self.rank[node], chunk) for node, chunk in events.apart}
        self._copy_own()
        self.adds = self._adding(order)
        for event in order:
            (self.send if event % 2 == 0 else self.receive)(event // 2)

    def _copy_own(self) -> None:
        """Copy a rank's own data to the slot where it is wanted or added to, before anything overwrites that slot."""
        first: dict[tuple[int, int], bool] = {}
        for key, reduces in zip(zip(self.receiver, self.chunk, strict=True), self.reduces, strict=True):
            first.setdefault(key, reduces)
            self.coming[key] += 1
        for chunk in range(self.collective.chunk_count):
            piece = self.piece[chunk]
            for rank in self.collective.holders[piece].tolist():
                wanted = piece in self.outputs[rank] and (rank, chunk) not in first
                adds = first.get((rank, chunk), False) and (rank, chunk) not in self.apart
                if wanted or adds:
                    self._copy(rank, chunk, self._input(rank, chunk), self.home(rank, chunk))
                    self.filled.add((rank, chunk))

    def _adding(self, order: list[int]) -> list[bool]:
        """For each receiver whether it adds what it gets to what is in its slot."""
        filled, adds = set(self.filled), [False] * len(self.receiver)
        for event in order:
            for r in self.messages[event // 2] if event % 2 else ():
                if not self._is_summand(r):
                    key = self.receiver[r], self.chunk[r]
                    adds[r] = self.reduces[r] and key in filled
                    filled.add(key)
        return adds

    def _is_summand(self, r: int) -> bool:
        """Whether what a receiver gets has a slot of its own, from where it is added later.

        What follows a copy is added to the copy."""
        return self.reduces[r] and (self.receiver[r], self.chunk[r]) in self.apart and not self.follows_copy[r]

    def _input(self, rank: int, chunk: int) -> Slot:
        return "i", self.inputs[rank].index(self.piece[chunk]) * self.parts + self.first[chunk]

    def home(self, rank: int, chunk: int) -> Slot:
        """The slot of a chunk at a rank, allocated when it is first asked for."""
        if (rank, chunk) not in self.homes:
            piece = self.piece[chunk]
            if piece in self.outputs[rank]:
                slot = ("o", self.outputs[rank].index(piece) * self.parts + self.first[chunk])
            else:
                slot = self._scratch(rank, self.covered[chunk])
            self.homes[rank, chunk] = slot
        return self.homes[rank, chunk]

    def _scratch(self, rank: int, count: int) -> Slot:
        """A new slot with that number of parts, in a rank's scratch."""
        self.scratch[rank] += count
        return "s", self.scratch[rank] - count

    def _source(self, rank: int, chunk: int) -> Slot:
        """Where a rank has what it sends of a chunk."""
        return self.home(rank, chunk) if (rank, chunk) in self.filled else self._input(rank, chunk)

    def _copy(self, rank: int, chunk: int, src: Slot, dst: Slot) -> None:
        self._add(Step(rank, "cpy", -1, src, dst, self.covered[chunk]))

    def _sum(self, rank: int, chunk: int, summands: frozenset[int], forwards: bool) -> Slot:
        """The slot of the sum of what some receipts brought, which a rank keeps apart, and unless it forwards that
        alone, of its own data."""
        key = rank, chunk, summands, forwards
        slots = [self.summands[rank, chunk][receiver] for receiver in sorted(summands)]
        slots = slots if forwards else [self._input(rank, chunk), *slots]
        if len(slots) == 1:
            return slots[0]
        if key not in self.sums:
            whole = self.piece[chunk] in self.outputs[rank] and len(summands) == self.coming[rank, chunk]
            self.sums[key] = (
                self.home(rank, chunk) if whole and not forwards else self._scratch(rank, self.covered[chunk])
            )
            self._copy(rank, chunk, slots[0], self.sums[key])
            for slot in slots[1:]:
                self._add(Step(rank, "re", -1, slot, self.sums[key], self.covered[chunk]))
        return self.sums[key]

    def send(self, message: int) -> None:
        carried = [
            Carried(r, self._ready(r), self._place(r), self.covered[self.chunk[r]], self.adds[r])
            for r in self.messages[message]
        ]
        rank, peer = self.sender[carried[0].receiver], self.receiver[carried[0].receiver]
        form = in_one_range(carried) if self.one_range and len(carried) > 1 else Form(carried)
        src = [c.src for c in form.carried]
        if form.packs:
            src = self._range(rank, form.carried)
            first = len(self.steps) + len(src)
            for c, slot in zip(form.carried, src, strict=True):
                self._move(Step(rank, "cpy", -1, c.src, slot, c.parts, partner=first))
        taken = self._range(peer, form.carried) if form.unpacks else [c.dst for c in form.carried]
        sent = self.sent[message] = []
        for c, slot, there in zip(form.carried, src, taken, strict=True):
            settled = c.dst if c.dst is not None else self._settle(c.receiver, there)
            step = Step(rank, "s", peer, slot, there or settled, c.parts, more=bool(sent))
            sent.append((self._add(step), c, settled))

    def _ready(self, r: int) -> Slot:
        """Where its sender has what a receiver gets."""
        rank, chunk, summands = self.sender[r], self.chunk[r], self.own[r]
        if self.copied[r] or (rank, chunk) not in self.apart:
            return self._source(rank, chunk)
        return self._sum(rank, chunk, summands, self.forwards[r])

    def _place(self, r: int) -> Slot | None:
        """Where a receiver puts what it gets; None if that may be anywhere in scratch."""
        rank, chunk = self.receiver[r], self.chunk[r]
        fixed = (rank, chunk) in self.homes or self.piece[chunk] in self.outputs[rank]
        return self.home(rank, chunk) if fixed and not self._is_summand(r) else None

    def _settle(self, r: int, slot: Slot | None) -> Slot:
        """Put what a receiver gets into this slot of scratch, or into a new one."""
        slot = slot or self._scratch(self.receiver[r], self.covered[self.chunk[r]])
        if not self._is_summand(r):
            self.homes[self.receiver[r], self.chunk[r]] = slot
        return slot

    def _range(self, rank: int, carried: Sequence[Carried]) -> list[Slot]:
        """New slots side by side in a rank's scratch."""
        return [self._scratch(rank, c.parts) for c in carried]

    def receive(self, message: int) -> None:
        sent, first = self.sent.pop(message), len(self.steps)
        for number, c, settled in sent:
            step = self.steps[number]
            kind = "rrc" if c.adds and step.dst == settled else "r"
            more = len(self.steps) > first
            receipt = Step(
                step.peer, kind, step.rank, step.src, step.dst, c.parts, self._summed_before(c.receiver), number, more
            )
            step.partner = self._add(receipt)
        for number, c, settled in sent:
            step = self.steps[number]
            if step.dst != settled:
                kind = "re" if c.adds else "cpy"
                self._move(Step(step.peer, kind, -1, step.dst, settled, c.parts, partner=first))
        for _, c, settled in sent:
            key = self.receiver[c.receiver], self.chunk[c.receiver]
            if not self._is_summand(c.receiver):
                self.filled.add(key)
                continue
            self.summands[key][c.receiver] = settled
            if len(self.summands[key]) == self.coming[key] and self.piece[key[1]] in self.outputs[key[0]]:
                self._sum(*key, frozenset(self.summands[key]), False)

    def _summed_before(self, r: int) -> list[int]:
        """The steps that write the summands that a copy follows: no slot is theirs and the copy's, but who reads the
        program back finds the order of the plan."""
        rank, chunk = self.receiver[r], self.chunk[r]
        summands = {} if self.reduces[r] else self.summands.get((rank, chunk), {})
        return [self.written[rank, slot] for slot in summands.values()]

    def _move(self, step: Step) -> None:
        """Append a copy or a sum of what a message carries; it goes on with the one before it if they are one range."""
        last = self.steps[-1] if self.steps else step
        step.more = (last.kind, last.partner, after(last.src, last.count), after(last.dst, last.count)) == (
            step.kind, step.partner, step.src, step.dst,
        )  # fmt: skip
        self._add(step)

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
