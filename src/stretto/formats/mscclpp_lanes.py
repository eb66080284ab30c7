"""Steps of ranks as lanes of a GPU: what runs side by side, and what waits for what, for MSCCL++.

A lane is a sequence that one threadblock runs (or several, each when the one before has ended). A rank has a lane for
each peer to which it sends, a lane for each peer from which it receives, and one for copies. Peers whose data are
summed into the same chunk share a lane, so that one operation adds them all. A lane of receipts whose data all leave
by one lane of sends, which sends nothing else that had to come first, is one lane with it: rings and chains need no
semaphore.

Data go straight to the place where they are wanted, if what was there before is certainly done with; else, and if they
are added to something, into a slot of scratch of their own, from where the receiver copies or adds them. A put of the
CPU's takes one range of memory: the chunks of such a message that stand apart are copied together first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container
from dataclasses import dataclass, field

from .mscclpp_program import MOST_REFERENCES
from .step_messages import Carried, Form, Slot, in_one_range
from .steps import Program, Step

Lane = tuple[str, int, int]
"""A lane: "in", "out" or "own", its rank, and the peer (-1 for "own")."""


@dataclass(frozen=True)
class Part:
    """What a message carries from a slot to a slot: ``count`` chunks of the program.

    Attributes:
        staged: whether ``dst`` is a slot for this message alone, from which the receiver takes it.
    """

    src: Slot
    dst: Slot
    count: int
    staged: bool


@dataclass
class Message:
    """What one rank sends to another, and tells it by one signal.

    Attributes:
        number: its place among the messages from this sender to this receiver.
        position: of the receipt, in the order of all steps.
    """

    sender: int
    receiver: int
    number: int
    parts: list[Part]
    position: int

    @property
    def staged(self) -> bool:
        """Whether all that it carries has slots for this message alone."""
        return all(part.staged for part in self.parts)


@dataclass(eq=False)
class Task:
    """What a lane does at a position in the order of all steps.

    Attributes:
        kind: "send", "copy" or "sum"; "relay" only tells other lanes that messages have come.
        srcs, dst: slots of the rank, of ``count`` chunks. Of a sum the first of ``srcs`` is what the others are added
            to.
        message: what is sent.
        arrivals: messages that must have come. tasks: tasks of the rank that must be over.
        place: its place in its lane.
    """

    lane: Lane
    kind: str
    position: int
    srcs: tuple[Slot, ...] = ()
    dst: Slot | None = None
    count: int = 1
    message: Message | None = None
    arrivals: list[Message] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    place: int = -1

    @property
    def rank(self) -> int:
        return self.lane[1]


@dataclass
class Lanes:
    """The lanes of all ranks.

    Attributes:
        tasks: of each lane, in their order. home: the lane that each ("in" or "out", rank, peer) belongs to.
        messages: by sender and receiver, in the order in which they are sent.
        scratch: chunks of scratch of each rank.
    """

    tasks: dict[Lane, list[Task]]
    home: dict[Lane, Lane]
    messages: dict[tuple[int, int], list[Message]]
    scratch: list[int]


def lanes_of(program: Program, staged: Container[tuple[int, int, int]], one_range: Callable[[int, int], bool]) -> Lanes:
    """The lanes of a program of steps.

    Args:
        staged: (sender, receiver, number) of messages that must go through a slot of their own.
        one_range: whether a message from a rank to another is one range of memory at both ends.
    """
    making = _Making(program, staged, one_range)
    for position, step in enumerate(program.steps):
        if step.kind == "cpy":
            making.copy(position)
        elif step.kind == "s":
            making.send(position)
        elif step.kind == "re":
            making.add(position)
        else:
            making.receive(position)
    for key in list(making.sums):
        making.end_sum(key)
    return _joined(making)


Use = Task | Message
"""What fills a slot: a task of the rank, or a message that goes straight there."""


@dataclass
class _Sum:
    """Summands of a slot that are not yet added: their slots, what fills these, and the position of the last one."""

    count: int
    srcs: list[Slot] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    position: int = -1


class _Making:
    """Tasks, while steps are read in their order."""

    def __init__(
        self, program: Program, staged: Container[tuple[int, int, int]], one_range: Callable[[int, int], bool]
    ) -> None:
        self.program, self.staged, self.one_range = program, staged, one_range
        self.scratch = list(program.scratch)
        self.in_place = program.kind == "allreduce"  # where input and output are often one buffer
        self.overwritten = {(s.rank, s.dst) for s in program.steps if s.kind in ("r", "rrc", "re")}
        self.tasks: list[Task] = []
        self.messages: dict[tuple[int, int], list[Message]] = defaultdict(list)
        self.of_step: dict[int, tuple[Message, Part]] = {}
        self.origin: dict[tuple[int, Slot], Slot] = {}
        self.filled: dict[tuple[int, Slot], Use] = {}
        self.readers: dict[tuple[int, Slot], list[Task]] = defaultdict(list)
        self.sums: dict[tuple[int, Slot], _Sum] = {}
        self.together: dict[Lane, Lane] = {}

    def copy(self, position: int) -> None:
        """A copy: until something is added to it, the original is as good."""
        step = self.program.steps[position]
        key = (step.rank, step.dst)
        self.origin[key] = step.src
        if key not in self.overwritten:
            self.tasks.append(Task(("own", step.rank, -1), "copy", position, (step.src,), step.dst, step.count))

    def send(self, position: int) -> None:
        """A message: this step, and those that go on with it."""
        steps = self.program.steps
        if steps[position].more:
            return
        last = position + 1
        while last < len(steps) and steps[last].more and steps[last].kind == "s":
            last += 1
        sent = steps[position:last]
        for step in sent:
            self.end_sum((step.rank, step.src))
        pair = (sent[0].rank, sent[0].peer)
        number = len(self.messages[pair])
        task = Task(("out", *pair), "send", position)
        parts: dict[int, Part] = {}  # by the step that receives
        for step, src, dst in self._slots(task, sent, (*pair, number) in self.staged):
            parts[step.partner] = Part(src, dst or ("s", self._slot(step.peer, step.count)), step.count, dst is None)
        task.message = Message(*pair, number, [*parts.values()], sent[0].partner)
        self.messages[pair].append(task.message)
        self.of_step |= {receipt: (task.message, part) for receipt, part in parts.items()}
        self.tasks.append(task)

    def _slots(self, task: Task, sent: list[Step], staged: bool) -> list[tuple[Step, Slot, Slot | None]]:
        """What a message carries, in its order, with the slots at both ends; no second one where that is staged."""
        rank, peer = sent[0].rank, sent[0].peer
        carried = []
        for i, step in enumerate(sent):
            dst = None if staged or self.program.steps[step.partner].kind == "rrc" else step.dst
            carried.append(Carried(i, self.origin.get((rank, step.src), step.src), dst, step.count, False))
        form = Form(carried)
        if len(sent) > 1 and self.one_range(rank, peer):
            form = in_one_range(carried)
        found: list[tuple[Step, Slot, Slot | None]] = []
        for c in form.carried:
            step, src = sent[c.receiver], c.src
            reader = task
            if form.packs:
                src = ("s", self._slot(rank, c.parts))
                reader = Task(task.lane, "copy", task.position, (c.src,), src, c.parts)
                self.tasks.append(reader)
                task.tasks.append(reader)
            self._need(reader, self.filled.get((rank, step.src)))
            if c.src == step.src or self.in_place:
                self.readers[rank, step.src].append(reader)
            found.append((step, src, None if form.unpacks else c.dst))
        return found

    def _slot(self, rank: int, count: int) -> int:
        self.scratch[rank] += count
        return self.scratch[rank] - count

    def receive(self, position: int) -> None:
        step, (message, part) = self.program.steps[position], self.of_step[position]
        key = (step.rank, step.dst)
        if step.kind == "rrc":
            self._add(key, part.dst, message, step.count, position)
            return
        self.end_sum(key)
        self.origin.pop(key, None)
        if not part.staged:
            self.filled[key], self.readers[key] = message, []
            return
        task = Task(("in", message.receiver, message.sender), "copy", position, (part.dst,), step.dst, step.count)
        task.arrivals.append(message)
        self._fill(task, key)

    def add(self, position: int) -> None:
        """Add one slot of a rank to another."""
        step = self.program.steps[position]
        source = (step.rank, step.src)
        self.end_sum(source)
        self._add((step.rank, step.dst), step.src, self.filled[source], step.count, position)

    def _add(self, key: tuple[int, Slot], src: Slot, use: Use, count: int, position: int) -> None:
        """One more summand of a slot, which ``use`` fills."""
        if key in self.sums and len(self.sums[key].srcs) == MOST_REFERENCES:
            self.end_sum(key)
        total = self.sums.setdefault(key, _Sum(count))
        total.srcs.append(src)
        total.uses.append(use)
        total.position = position

    def end_sum(self, key: tuple[int, Slot]) -> None:
        """Make the task that adds what has come for a chunk since it was last read or written."""
        if key not in self.sums:
            return
        total, (rank, slot) = self.sums.pop(key), key
        first = self.origin.pop(key, slot)
        used = list(zip(total.srcs, total.uses, strict=True))
        if first != slot and (rank, first) in self.filled:  # a copy of what came, not of the rank's own data
            used.append((first, self.filled[rank, first]))
        lanes: list[Lane] = [("in", rank, m.sender) for _, m in used if isinstance(m, Message)] or [("own", rank, -1)]
        for lane in lanes[1:]:
            self.join(lanes[0], lane)
        task = Task(lanes[0], "sum", total.position, (first, *total.srcs), slot, total.count)
        for src, use in used:
            self._need(task, use)
            self.readers[rank, src].append(task)
        self._fill(task, key)

    def _fill(self, task: Task, key: tuple[int, Slot]) -> None:
        """A task writes a slot: after its last write and the reads since."""
        self._need(task, self.filled.get(key))
        task.tasks += [reader for reader in self.readers.pop(key, []) if reader is not task]
        self.filled[key] = task
        self.tasks.append(task)

    def _need(self, task: Task, use: Use | None) -> None:
        if isinstance(use, Message):
            task.arrivals.append(use)
        elif use is not None:
            task.tasks.append(use)

    def find(self, lane: Lane) -> Lane:
        """The lane that stands for those joined with this one."""
        while lane in self.together:
            lane = self.together[lane]
        return lane

    def join(self, one: Lane, other: Lane) -> None:
        one, other = self.find(one), self.find(other)
        if one != other:
            self.together[max(one, other)] = min(one, other)


def _joined(making: _Making) -> Lanes:
    """Join lanes of receipts with the only lane that sends on what they receive; sort the tasks into lanes."""
    find = making.find
    suppliers: dict[Lane, set[Lane]] = defaultdict(set)
    customers: dict[Lane, set[Lane]] = defaultdict(set)
    for task in making.tasks:
        own = find(task.lane)
        needed = {find(("in", m.receiver, m.sender)) for m in task.arrivals} | {find(t.lane) for t in task.tasks}
        for lane in needed - {own}:
            suppliers[own].add(lane)
            customers[lane].add(own)
    for lane in sorted(customers):
        (customer, *others) = sorted(customers[lane])
        if lane[0] == "in" and customer[0] == "out" and not others and suppliers[customer] == {lane}:
            making.join(lane, customer)
    home: dict[Lane, Lane] = {}
    tasks: dict[Lane, list[Task]] = defaultdict(list)
    for sender, receiver in making.messages:
        for end in (("out", sender, receiver), ("in", receiver, sender)):
            home[end] = find(end)
            tasks[home[end]] = []
    for task in making.tasks:
        task.lane = find(task.lane)
        tasks[task.lane].append(task)
    for lane, relays in _relays(making.tasks, home).items():
        tasks[lane] += relays
    for queue in tasks.values():
        queue.sort(key=lambda task: task.position)
        for place, task in enumerate(queue):
            task.place = place
    return Lanes(dict(tasks), home, dict(making.messages), making.scratch)


def _relays(tasks: list[Task], home: dict[Lane, Lane]) -> dict[Lane, list[Task]]:
    """Tasks that only wait for a message that other lanes need, and that take its place among what these need."""
    relays: dict[Lane, list[Task]] = defaultdict(list)
    of_message: dict[int, Task] = {}
    for task in tasks:
        for message in list(task.arrivals):
            lane = home["in", message.receiver, message.sender]
            if lane == task.lane:
                continue
            task.arrivals.remove(message)
            if message.position not in of_message:
                of_message[message.position] = Task(lane, "relay", message.position, arrivals=[message])
                relays[lane].append(of_message[message.position])
            task.tasks.append(of_message[message.position])
    return relays
