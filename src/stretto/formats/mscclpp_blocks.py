"""Lanes as threadblocks of MSCCL++: operations, the meetings of threads between them, channels and semaphores.

Every message goes through a channel of its two ranks and its direction. Before the first put on it the sender waits for
one signal back: the receiver's kernel has begun, so its buffers are free. Then each put is followed by a signal.

``nop`` (all threads of a block meet) stands where threads need it and nowhere else: between a wait and what all threads
do next with the data, between what all threads do and the signal or release that tells of it, and between two
operations of all threads of which one needs the other. Between a wait, a release and a put of the CPU's, which one
thread makes, it is not needed. Operations of one kind next to each other become one, as in MSCCL++'s own language.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from functools import partial

from ..model.errors import Unsupported
from ..model.targets import TARGETS
from .mscclpp_lanes import Lane, Lanes, Message, Task
from .mscclpp_program import MEMORY, MOST_REFERENCES, NOP, PORT, Chunks, Gpu, Operation

TARGET = TARGETS["mscclpp"]
"""What a threadblock takes: operations, which are its steps, and channels of a type."""
SPARE = 3
"""Operations kept free at the end of a threadblock, to hand over to the next one."""


@dataclass
class _State:
    """A threadblock that is being filled.

    Attributes:
        waited, waited_apart: whether a thread, or one besides thread 0, has waited since the threads last met.
        phase: how often they have met. counted: by operation, channel type and number, 0 if thread 0 has raised or
            lowered that counter since, and how often. channels: by type, in the order of their first use.
    """

    ops: list[Operation] = field(default_factory=list)
    channels: dict[str, list[int]] = field(default_factory=lambda: {MEMORY: [], PORT: []})
    waited: bool = False
    waited_apart: bool = False
    phase: int = 0
    counted: dict[tuple[str, str, int], tuple[int, int]] = field(default_factory=dict)

    def copy(self) -> _State:
        channels = {via: list(own) for via, own in self.channels.items()}
        return _State(list(self.ops), channels, self.waited, self.waited_apart, self.phase, dict(self.counted))

    def fits(self) -> bool:
        return len(self.ops) <= TARGET.steps - SPARE and all(len(c) <= TARGET.channels for c in self.channels.values())

    def meet(self) -> None:
        """All threads of the block meet."""
        if self.ops and self.ops[-1] != NOP:
            self.ops.append(NOP)
        self.waited = self.waited_apart = False
        self.phase += 1
        self.counted.clear()

    def count(self, name: str, numbers: Sequence[int], via: str) -> None:
        """Signals, waits, releases or acquires by one thread each, joined with those just before if that is allowed."""
        waits = name in ("wait", "sem_acquire")
        for number in numbers:
            own = self._joins(name, number, via)
            if (
                len(own) == MOST_REFERENCES
                or (own and self.waited and not waits)
                or self._elsewhere(name, own, number, via)
            ):
                self.meet()
                own = ()
            if own:
                self.ops.pop()
            self.use(via, number)
            numbered = (*own, number)
            self.ops.append(
                Operation(name, channels=numbered if via else (), via=via, semaphores=() if via else numbered)
            )
            for each in numbered:  # MSCCL++'s language keeps channels of an operation as a set: any thread may get any
                uses = self.counted.get((name, via, each), (0, 0))[1] + (each == number)
                self.counted[name, via, each] = (min(len(own), 1), uses)
            if waits:
                self.waited, self.waited_apart = True, self.waited_apart or len(numbered) > 1

    def use(self, via: str, channel: int) -> None:
        """A channel has a place in the list of its type."""
        if via and channel not in self.channels[via]:
            self.channels[via].append(channel)

    def _elsewhere(self, name: str, own: tuple[int, ...], number: int, via: str) -> bool:
        """Whether some thread besides 0 uses one of these counters again since the threads last met."""
        thread, uses = self.counted.get((name, via, number), (0, 0))
        return (uses > 0 and (thread > 0 or bool(own))) or any(self.counted[name, via, each][1] > 1 for each in own)

    def _joins(self, name: str, number: int, via: str) -> tuple[int, ...]:
        """The channels or semaphores of the last operation, where MSCCL++'s language makes one of it and the next."""
        last = self.ops[-1] if self.ops else NOP
        own = last.channels if via else last.semaphores
        alike = last.name == name and last.via == via
        return own if alike and (not via or number not in own) else ()


@dataclass
class _Lane:
    """A lane while its threadblocks are made.

    Attributes:
        came: how many messages of each sender it has waited for. ready: peers that have said that they are.
        phases: of each task done in the running block, by identity, the phase in which it was.
        worked: the last phase of the running block in which all threads worked; -1 for none.
    """

    blocks: list[_State]
    came: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    ready: set[int] = field(default_factory=set)
    phases: dict[int, int] = field(default_factory=dict)
    worked: int = -1


class Blocks:
    """The threadblocks of one rank."""

    def __init__(
        self, rank: int, lanes: Lanes, via: Callable[[int, int], str], flushed: Container[tuple[int, int, int]]
    ) -> None:
        self.rank, self.lanes, self.via, self.flushed = rank, lanes, via, flushed
        self.channel: dict[tuple[str, int], int] = {}
        self.peers: dict[str, list[int]] = {MEMORY: [], PORT: []}
        self.semaphores = 0
        self.releases: dict[int, list[int]] = defaultdict(list)
        self.acquires: dict[int, list[int]] = defaultdict(list)
        self._number_channels()
        self._pair_lanes()

    def _number_channels(self) -> None:
        """Channels by peer; of the two of a pair of ranks that from the lower rank comes first at either end."""
        ends = [("out", peer) for sender, peer in self.lanes.messages if sender == self.rank]
        ends += [("in", peer) for peer, receiver in self.lanes.messages if receiver == self.rank]
        for direction, peer in sorted(ends, key=lambda end: (end[1], (end[0] == "out") != (self.rank < end[1]))):
            via = self.via(self.rank, peer)
            self.channel[direction, peer] = len(self.peers[via])
            self.peers[via].append(peer)

    def _pair_lanes(self) -> None:
        """A semaphore for each pair of lanes of which one waits for the other; what is known already is not told
        again."""
        number: dict[tuple[Lane, Lane], int] = {}
        known: dict[tuple[Lane, Lane], int] = {}
        for lane in sorted(lane for lane in self.lanes.tasks if lane[1] == self.rank):
            for task in self.lanes.tasks[lane]:
                last: dict[Lane, Task] = {}
                for needed in task.tasks:
                    if needed.lane != lane and (needed.lane not in last or last[needed.lane].place < needed.place):
                        last[needed.lane] = needed
                for other in sorted(last):
                    pair = (other, lane)
                    if known.get(pair, -1) < last[other].place:
                        known[pair] = last[other].place
                        semaphore = number.setdefault(pair, len(number))
                        self.releases[id(last[other])].append(semaphore)
                        self.acquires[id(task)].append(semaphore)
        self.semaphores = len(number)

    def gpu(self, inputs: int, outputs: int, scratch: int) -> Gpu:
        """All threadblocks; those of one lane follow each other, each in the place that its first task has in time."""
        blocks: list[tuple[int, list[Operation]]] = []
        for lane in sorted(lane for lane in self.lanes.tasks if lane[1] == self.rank):
            blocks += self._lane(lane)
        blocks.sort(key=lambda block: block[0])
        ops = [own for _, own in blocks]
        return Gpu(inputs, outputs, scratch, self.peers[MEMORY], self.peers[PORT], [0] * self.semaphores, ops)

    def _lane(self, lane: Lane) -> list[tuple[int, list[Operation]]]:
        """The threadblocks of a lane, each with the position of its first task; -1 for those that only say: ready."""
        making = _Lane([_State()])
        senders = sorted(end[2] for end, home in self.lanes.home.items() if home == lane and end[0] == "in")
        made = self._say_ready(making, senders)
        positions = [-1 if senders else self.lanes.tasks[lane][0].position]
        for task in self.lanes.tasks[lane]:
            for message in task.arrivals:
                positions += [task.position] * self._await(making, message.sender, message.number)
            positions += [task.position] * self._add(making, partial(self._task, making, task))
        for sender in senders:
            positions += [2**62] * self._await(making, sender, len(self.lanes.messages[sender, self.rank]))
        made += [state.ops for state in making.blocks]
        return list(zip([-1] * (len(made) - len(positions)) + positions, made, strict=True))

    def _say_ready(self, making: _Lane, senders: list[int]) -> list[list[Operation]]:
        """Signal to all senders first of all; threadblocks of their own for it where one takes too few channels."""
        apart = []
        for at in range(0, len(senders), TARGET.channels):
            for via in (MEMORY, PORT):
                own = [
                    self.channel["in", p] for p in senders[at : at + TARGET.channels] if self.via(self.rank, p) == via
                ]
                making.blocks[-1].count("signal", own, via)
            if len(senders) > TARGET.channels:
                apart.append(making.blocks[-1].ops)
                making.blocks[-1] = _State()
        return apart

    def _add(self, making: _Lane, build: Callable[[_State], None]) -> int:
        """Add operations to the last threadblock of a lane, or to a new one after it; how many new ones there are."""
        before = making.blocks[-1].copy()
        came, ready, phases = dict(making.came), set(making.ready), dict(making.phases)
        build(making.blocks[-1])
        if making.blocks[-1].fits():
            return 0
        making.blocks[-1] = before
        making.came.clear()
        making.came.update(came)
        making.ready, making.phases, making.worked = ready, dict.fromkeys(phases, -1), -1
        before.meet()
        before.count("sem_release", [self.semaphores], "")
        fresh = _State()
        fresh.count("sem_acquire", [self.semaphores], "")
        fresh.meet()
        self.semaphores += 1
        making.blocks.append(fresh)
        build(fresh)
        if not fresh.fits():
            raise Unsupported(f"a message of rank {self.rank} needs more operations than a threadblock has")
        return 1

    def _await(self, making: _Lane, sender: int, count: int) -> int:
        """Wait until that many messages of a sender have come, apart from any task; how many threadblocks that adds."""
        more = 0
        while making.came[sender] < count:
            more += self._add(making, partial(self._wait, making, sender, making.came[sender] + 1))
        return more

    def _wait(self, making: _Lane, sender: int, count: int, state: _State) -> None:
        """Wait until that many messages of a sender have come."""
        while making.came[sender] < count:
            state.count("wait", [self.channel["in", sender]], self.via(self.rank, sender))
            making.came[sender] += 1

    def _task(self, making: _Lane, task: Task, state: _State) -> None:
        """The operations of a task: what it waits for, what it does, and who is told."""
        state.count("sem_acquire", sorted(self.acquires[id(task)]), "")
        for message in sorted(task.arrivals, key=lambda m: m.sender):
            self._wait(making, message.sender, message.number + 1, state)
        if task.message is not None and task.message.receiver not in making.ready:
            making.ready.add(task.message.receiver)
            peer = task.message.receiver
            state.count("wait", [self.channel["out", peer]], self.via(self.rank, peer))
        if task.kind != "relay":
            self._work(making, state, task)
        releases = sorted(self.releases[id(task)])
        if releases and (state.waited_apart or (state.waited and len(releases) > 1)):
            state.meet()
        # who is told that a task is over takes all tasks of the lane before it to be over, too
        if releases and making.worked == state.phase:
            state.meet()
        state.count("sem_release", releases, "")

    def _work(self, making: _Lane, state: _State, task: Task) -> None:
        """The copy, sum or put of a task."""
        by_all = task.message is None or self.via(self.rank, task.message.receiver) == MEMORY
        needs = any(making.phases.get(id(t), -1) == state.phase for t in task.tasks)
        parts = () if task.message is None else task.message.parts
        src = tuple(Chunks(self.rank, *part.src, part.count) for part in parts)
        last = state.ops[-1] if state.ops else NOP
        added = last.name == "re" and last.dst == src and by_all
        if not added and (needs or state.waited_apart or (by_all and state.waited)):
            state.meet()
        if by_all:
            making.phases[id(task)] = making.worked = state.phase
        if task.message is None:
            assert task.dst is not None
            name = "copy" if task.kind == "copy" else "re"
            src = tuple(Chunks(self.rank, *slot, task.count) for slot in task.srcs)
            state.ops.append(Operation(name, src, (Chunks(self.rank, *task.dst, task.count),)))
            return
        self._put(state, task.message, src)

    def _put(self, state: _State, message: Message, src: tuple[Chunks, ...]) -> None:
        """Send a message, and signal."""
        peer = message.receiver
        number, dst = self.channel["out", peer], tuple(Chunks(peer, *part.dst, part.count) for part in message.parts)
        if self.via(self.rank, peer) == PORT:
            last = message.number == len(self.lanes.messages[self.rank, peer]) - 1
            name = "pwsf" if last or (self.rank, peer, message.number) in self.flushed else "pws"
            if state.ops and state.ops[-1].name == name:  # MSCCL++ would give the second one to another thread
                state.meet()
            state.ops.append(Operation(name, (_whole(src),), (_whole(dst),), (number,), PORT))
            state.use(PORT, number)
            return
        last_op = state.ops[-1] if state.ops else NOP
        if last_op.name == "re" and last_op.dst == src:  # the sum is written here and there at once
            state.ops[-1] = Operation("res", last_op.src, last_op.dst + dst, (number,), MEMORY)
        else:
            for pairs in _alike(src, dst):
                if state.ops and state.ops[-1].name == "put":  # MSCCL++'s language would make one of both
                    state.meet()
                taken, put = zip(*pairs, strict=True)
                state.ops.append(Operation("put", taken, put, (number,), MEMORY))
        state.use(MEMORY, number)
        state.meet()
        state.count("signal", [number], MEMORY)


def _whole(parts: Sequence[Chunks]) -> Chunks:
    """The range that parts of a message are, one after the other."""
    first = parts[0]
    return first._replace(size=sum(part.size for part in parts))


def _alike(src: Sequence[Chunks], dst: Sequence[Chunks]) -> list[list[tuple[Chunks, Chunks]]]:
    """The parts of a message as operations take them: few, of one size, and from one buffer, as the kernel asks only
    the first one for its buffer."""
    pairs: dict[tuple[str, int], list[tuple[Chunks, Chunks]]] = defaultdict(list)
    for a, b in zip(src, dst, strict=True):
        pairs[a.buffer, a.size].append((a, b))
    return [own[at : at + MOST_REFERENCES] for own in pairs.values() for at in range(0, len(own), MOST_REFERENCES)]
