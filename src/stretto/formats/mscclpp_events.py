"""What a program of MSCCL++ does to counters and memory, event by event, as arrays for the proof in ``interleavings``.

Each channel has an inbound counter at either end, each semaphore is a counter. Threads: a signal, wait, acquire,
release or put of a port channel is made by one thread for each of its channels; all others by all threads of the
block.

Source: microsoft/mscclpp, src/core/include/execution_kernel.hpp. ``flush`` takes the number of channels from the number
of outputs, of which it has none, so it waits for nothing; ``pws`` on a memory channel copies and does not signal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import lcm
from typing import NamedTuple

import numpy as np

from .kernel_interleavings import (
    BARRIER,
    FLUSH,
    PACKET_READ,
    PACKET_WRITE,
    PUT,
    READ,
    SIGNAL,
    SYNC,
    WAIT,
    WHOLE,
    WRITE,
    Events,
    Resources,
)
from .mscclpp_bytes import scratch_apart
from .mscclpp_program import MEMORY, PORT, Chunks, ExecutionPlan, Operation

_WHOLE = {
    # name: what becomes of src[0], of src[1:], of dst[0], dst[1] and dst[2:]
    "copy": (READ, READ, WRITE, WRITE, WRITE),
    "put": (READ, READ, WRITE, WRITE, WRITE),
    "get": (READ, READ, WRITE, WRITE, WRITE),
    "re": (READ, READ, WRITE, -1, -1),
    "res": (READ, READ, WRITE, WRITE, WRITE),
    "rre": (READ, READ, WRITE, -1, -1),
    "rres": (READ, READ, WRITE, WRITE, WRITE),
    "ppkt": (READ, READ, PACKET_WRITE, PACKET_WRITE, PACKET_WRITE),
    "rppkt": (PACKET_READ, PACKET_READ, PACKET_WRITE, PACKET_WRITE, PACKET_WRITE),
    "repkt": (READ, PACKET_READ, WRITE, -1, -1),
    "respkt": (READ, PACKET_READ, WRITE, PACKET_WRITE, PACKET_WRITE),
    "recpkt": (READ, PACKET_READ, WRITE, PACKET_WRITE, -1),
    "recspkt": (READ, PACKET_READ, WRITE, PACKET_WRITE, PACKET_WRITE),
    "cpkt": (READ, READ, PACKET_WRITE, PACKET_WRITE, PACKET_WRITE),
    "upkt": (PACKET_READ, PACKET_READ, WRITE, WRITE, WRITE),
    "glres": (READ, READ, WRITE, WRITE, WRITE),
    "gstore": (READ, READ, WRITE, WRITE, WRITE),
    "gstorepkt": (PACKET_READ, PACKET_READ, PACKET_WRITE, PACKET_WRITE, PACKET_WRITE),
}
"""Operations of all threads of a block."""
_SIGNALS = {"signal": SIGNAL, "rlxsignal": SIGNAL, "wait": WAIT, "rlxwait": WAIT}
_SEMAPHORES = {"sem_release": SIGNAL, "sem_acquire": WAIT}
_PORT_PUTS = {"put": (), "pws": (SIGNAL,), "pwsf": (SIGNAL, FLUSH), "ppkt": (), "rppkt": ()}


class Access(NamedTuple):
    """Bytes of a rank's buffer, in elements, and what is done to them (``mode`` of the kernel)."""

    space: tuple[int, str]
    begin: int
    end: int
    mode: int
    doubled: bool


@dataclass
class EventLists:
    """The arrays of ``Events`` while they grow, and for each event its operation: (rank, block, operation)."""

    kind: list[int] = field(default_factory=list)
    thread: list[int] = field(default_factory=list)
    what: list[int] = field(default_factory=list)
    queue: list[int] = field(default_factory=list)
    phase: list[int] = field(default_factory=list)
    source: list[tuple[int, int, int]] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    offsets: list[int] = field(default_factory=lambda: [0])
    counters: dict[tuple[int, str, int], int] = field(default_factory=dict)
    initial: list[int] = field(default_factory=list)
    queues: dict[tuple[int, int], int] = field(default_factory=dict)
    barriers: dict[tuple[int, int], int] = field(default_factory=dict)
    barrier_sizes: list[int] = field(default_factory=list)
    barrier_blocks: list[set[int]] = field(default_factory=list)

    def add(self, source: tuple[int, int, int], kind: int, thread: int, what: int, phase: int, queue: int = -1) -> None:
        """An event, without accesses so far."""
        self.source.append(source)
        self.kind.append(kind)
        self.thread.append(thread)
        self.what.append(what)
        self.phase.append(phase)
        self.queue.append(queue)
        self.offsets.append(len(self.accesses))

    def use(self, accesses: list[Access]) -> None:
        """Accesses of the last event."""
        self.accesses += accesses
        self.offsets[-1] = len(self.accesses)

    def counter(self, key: tuple[int, str, int], initial: int = 0) -> int:
        """The number of the counter of a channel's end or of a semaphore."""
        number = self.counters.setdefault(key, len(self.initial))
        if number == len(self.initial):
            self.initial.append(initial)
        return number

    def queue_of(self, rank: int, channel: int) -> int:
        """The number of the queue behind a port channel."""
        return self.queues.setdefault((rank, channel), len(self.queues))


class Layout(NamedTuple):
    """Where chunks are, in elements of memory.

    Attributes:
        elements: of a chunk. plan: whose chunks.
    """

    elements: int
    plan: ExecutionPlan

    def ring(self, chunks: Chunks) -> int:
        """After how many elements of a chunk of shared scratch iterations begin again, 0 for never."""
        shared = chunks.buffer == "s"
        return scratch_apart(self.plan, self.plan.gpus[chunks.rank]) // self.plan.alignment if shared else 0

    def place(self, chunks: Chunks, share: tuple[int, int]) -> tuple[tuple[int, str], int, int]:
        """Space, begin and end of what a threadblock of a group touches, as execution_plan.cc's calcOffset cuts it."""
        size = chunks.size * self.elements
        ring = self.ring(chunks)
        base = chunks.first * (min(ring, self.elements) if ring else self.elements)
        least, rest = divmod(size, share[1])
        begin, end = (base + part * least + min(part, rest) for part in (share[0], share[0] + 1))
        buffer, shift = chunks.buffer, 0
        if self.plan.inplace and buffer in "io":
            gpu = self.plan.gpus[chunks.rank]
            if self.plan.collective == "allgather" and buffer == "i":
                shift = chunks.rank * gpu.inputs * self.elements
            elif self.plan.collective == "reducescatter" and buffer == "o":
                shift = chunks.rank * gpu.outputs * self.elements
            buffer = "o"
        return (chunks.rank, buffer), begin + shift, end + shift


def common_elements(plan: ExecutionPlan) -> int:
    """The fewest elements of a chunk that all groups of threadblocks split without a rest."""
    return lcm(1, *(op.share[1] for gpu in plan.gpus for block in gpu.blocks for op in flat(block)))


def flat(block: list[Operation]) -> Iterator[Operation]:
    """The operations of a block, those in pipelines too."""
    for op in block:
        yield op
        yield from op.inner


def ends_of(plan: ExecutionPlan) -> dict[tuple[int, str, int], tuple[int, str, int]]:
    """The other end of each channel (rank, type, place): the k-th of a type to a rank joins the k-th back."""
    places: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    for rank, gpu in enumerate(plan.gpus):
        for via, peers in ((MEMORY, gpu.memory), (PORT, gpu.port)):
            for place, peer in enumerate(peers):
                places[rank, peer, via].append(place)
    ends = {}
    for (rank, peer, via), own in places.items():
        for place, other in zip(own, places.get((peer, rank, via), ()), strict=False):
            ends[rank, via, place] = (peer, via, other)
    return ends


def list_events(plan: ExecutionPlan, layout: Layout) -> tuple[EventLists, list[int], list[int]]:
    """The events of all blocks; for each block its rank, and where its events begin (one entry more than blocks)."""
    lists = EventLists()
    ranks: list[int] = []
    begins = [0]
    ends = ends_of(plan)
    for rank, gpu in enumerate(plan.gpus):
        for number, value in enumerate(gpu.semaphores):
            lists.counter((rank, "semaphore", number), value)
        for number, block in enumerate(gpu.blocks):
            _Block(lists, layout, ends, rank, number, len(ranks)).run(block)
            ranks.append(rank)
            begins.append(len(lists.kind))
    return lists, ranks, begins


@dataclass
class _Block:
    """A threadblock whose operations are turned into events."""

    lists: EventLists
    layout: Layout
    ends: dict[tuple[int, str, int], tuple[int, str, int]]
    rank: int
    number: int
    index: int
    phase: int = 0

    def run(self, ops: list[Operation]) -> None:
        for place, op in enumerate(ops):
            source = (self.rank, self.number, place)
            if op.name != "pipeline":
                self.operation(op, source, 0, None)
                continue
            unit = max(1, op.unit // self.layout.plan.alignment)
            for turn in range(-(-op.chunks * self.layout.elements // unit)):
                for inner in op.inner:
                    self.operation(inner, source, turn * unit, unit)

    def operation(self, op: Operation, source: tuple[int, int, int], offset: int, unit: int | None) -> None:
        """The events of one operation, in one turn of a pipeline where ``unit`` is given."""
        lists = self.lists
        if op.name == "nop":
            lists.add(source, SYNC, -1, -1, self.phase)
            self.phase += 1
        elif op.name == "barrier":
            kind, barrier = (BARRIER, self._barrier(op)) if op.blocks > 1 else (SYNC, -1)
            lists.add(source, kind, -1, barrier, self.phase)
            self.phase += 1
        elif op.name in _SIGNALS:
            for thread, channel in enumerate(op.channels):
                self._count(source, _SIGNALS[op.name], thread, op.via, channel)
        elif op.name in _SEMAPHORES:
            for thread, number in enumerate(op.semaphores):
                counter = lists.counter((self.rank, "semaphore", number))
                lists.add(source, _SEMAPHORES[op.name], thread, counter, self.phase)
        elif op.via == PORT and op.name in _PORT_PUTS:
            self._port_put(op, source, offset, unit)
        elif op.name == "flush":
            for thread, channel in enumerate(op.channels[: len(op.dst)]):
                lists.add(source, FLUSH, thread, lists.queue_of(self.rank, channel), self.phase)
        else:
            name = "put" if op.name in ("pws", "pwsf") else op.name
            lists.add(source, WHOLE, -1, -1, self.phase)
            lists.use(self._accesses(op, _WHOLE[name], offset, unit))

    def _count(self, source: tuple[int, int, int], kind: int, thread: int, via: str, channel: int) -> None:
        """A signal to the other end of a channel, or a wait at this end."""
        here = (self.rank, via, channel)
        key = here if kind == WAIT else self.ends.get(here, (-1 - self.rank, via, channel))
        queue = self.lists.queue_of(self.rank, channel) if kind == SIGNAL and via == PORT else -1
        self.lists.add(source, kind, thread, self.lists.counter(key), self.phase, queue)

    def _port_put(self, op: Operation, source: tuple[int, int, int], offset: int, unit: int | None) -> None:
        modes = _WHOLE.get(op.name, _WHOLE["put"])
        sources = op.src if len(op.src) == len(op.dst) else op.src[:1] * len(op.dst)
        if op.name == "rppkt":  # all threads read the packets and meet, then one thread for each channel sends
            self.lists.add(source, WHOLE, -1, -1, self.phase)
            self.lists.use([self._access(op.src[0], op, PACKET_READ, offset, unit)])
            self.lists.add(source, SYNC, -1, -1, self.phase)
            self.phase += 1
        for thread, (src, dst, channel) in enumerate(zip(sources, op.dst, op.channels, strict=False)):
            queue = self.lists.queue_of(self.rank, channel)
            self.lists.add(source, PUT, thread, queue, self.phase)
            read = self._access(src, op, READ, offset, unit, packets=op.name != "put" and op.name[-3:] == "pkt")
            self.lists.use([read, self._access(dst, op, modes[2], offset, unit)])
            for kind in _PORT_PUTS[op.name]:
                if kind == SIGNAL:
                    self._count(source, SIGNAL, thread, PORT, channel)
                else:
                    self.lists.add(source, FLUSH, thread, queue, self.phase)

    def _accesses(self, op: Operation, modes: tuple[int, ...], offset: int, unit: int | None) -> list[Access]:
        wanted = [(c, modes[min(i, 1)]) for i, c in enumerate(op.src)]
        if op.name not in ("glres", "gstore", "gstorepkt", "put", "pws", "pwsf", "get", "ppkt", "rppkt"):
            wanted += [(c, modes[2 + min(i, 2)]) for i, c in enumerate(op.dst)]
        else:
            wanted += [(c, modes[2]) for c in op.dst]
        found = [self._access(c, op, mode, offset, unit) for c, mode in wanted if mode >= 0]
        if op.name == "copy" and found[0][:3] == found[1][:3]:
            return found[:1]  # a copy onto itself, as of a rank's own data where input and output are one buffer
        return found

    def _access(
        self, chunks: Chunks, op: Operation, mode: int, offset: int, unit: int | None, packets: bool = False
    ) -> Access:
        """Packets take twice the room, from twice as far; plain puts to a peer's scratch never use its second half."""
        space, begin, end = self.layout.place(chunks, op.share)
        if unit is not None:
            ring = self.layout.ring(chunks)
            size = min(max(end - begin - offset, 0), unit)
            begin += offset % ring if ring else min(offset, end - begin)
            end = begin + size
        in_packets = packets or mode in (PACKET_READ, PACKET_WRITE)
        if in_packets:
            begin, end = 2 * begin, 2 * end
        scratch = space[1] == "s" and self.layout.plan.double_scratch
        return Access(space, begin, end, mode, scratch and (in_packets or chunks.rank == self.rank))

    def _barrier(self, op: Operation) -> int:
        key = (self.rank, op.barrier)
        if key not in self.lists.barriers:
            self.lists.barriers[key] = len(self.lists.barrier_sizes)
            self.lists.barrier_sizes.append(op.blocks)
            self.lists.barrier_blocks.append(set())
        number = self.lists.barriers[key]
        self.lists.barrier_blocks[number].add(self.index)
        return number


class Cells(NamedTuple):
    """Memory cut where some access begins or ends: the space and first element of each cell, and how many there are."""

    spaces: list[tuple[int, str]]
    elements: list[int]
    total: int
    owned_offsets: list[int]
    owned: list[int]


def cut_cells(accesses: list[Access], ranks: int, double: bool) -> tuple[Cells, np.ndarray, np.ndarray, np.ndarray]:
    """Cells, and the first, the end and the shift in odd runs of each access, in cells."""
    edges: dict[tuple[int, str], set[int]] = defaultdict(set)
    for a in accesses:
        edges[a.space].update((a.begin, a.end))
    spaces: list[tuple[int, str]] = []
    elements: list[int] = []
    place: dict[tuple[int, str], dict[int, int]] = {}
    length: dict[tuple[int, str], int] = {}
    owned: list[list[int]] = [[] for _ in range(ranks)]
    for space in sorted(edges):
        cuts = sorted(edges[space])
        at = len(spaces)
        place[space] = {e: at + i for i, e in enumerate(cuts)}
        length[space] = len(cuts) - 1
        copies = 2 if double and space[1] == "s" else 1
        spaces += [space] * (copies * length[space])
        elements += cuts[:-1] * copies
        if space[1] in "io":
            owned[space[0]] += range(at, at + length[space])
    first = np.array([place[a.space][a.begin] for a in accesses], dtype=np.int64)
    last = np.array([place[a.space][a.end] for a in accesses], dtype=np.int64)
    shift = np.array([length[a.space] if a.doubled else 0 for a in accesses], dtype=np.int64)
    offsets = np.cumsum([0, *map(len, owned)]).tolist()
    return Cells(spaces, elements, len(spaces), offsets, [c for cells in owned for c in cells]), first, last, shift


def first_waits(lists: EventLists, begins: list[int]) -> np.ndarray:
    """For each signal the number of the wait, from 1, that is certain to come after it in every execution.

    Of N signals on a counter, d come no earlier than this one in the order of its own threadblock: itself, those in
    later phases and, if thread 0 sends it, those that thread 0 sends later. A wait that takes the j-th token of a
    counter that began with v has seen j - v signals, so it has seen this one if N - d < j - v.
    """
    total = np.bincount(
        [w for k, w in zip(lists.kind, lists.what, strict=True) if k == SIGNAL], minlength=len(lists.initial)
    )
    found = np.zeros(len(lists.kind), dtype=np.int64)
    for block in range(len(begins) - 1):
        later: dict[int, list[int]] = {}  # counter: [phase, in that phase, of these by thread 0, in later phases]
        for e in range(begins[block + 1] - 1, begins[block] - 1, -1):
            if lists.kind[e] != SIGNAL:
                continue
            state = later.setdefault(lists.what[e], [lists.phase[e], 0, 0, 0])
            if state[0] != lists.phase[e]:
                state[:] = [lists.phase[e], 0, 0, state[3] + state[1]]
            after = 1 + state[3] + (state[2] if lists.thread[e] == 0 else 0)
            state[1] += 1
            state[2] += lists.thread[e] == 0
            found[e] = total[lists.what[e]] - after + 1 + lists.initial[lists.what[e]]
    return found


def arrays_of(
    lists: EventLists, ranks: list[int], begins: list[int], plan: ExecutionPlan
) -> tuple[Events, Resources, Cells]:
    """The arrays of a program for the kernel."""
    cells, first, last, shift = cut_cells(lists.accesses, len(plan.gpus), plan.double_scratch)
    events = Events(
        _column(ranks),
        _column(begins),
        _column(lists.kind),
        _column(lists.thread),
        _column(lists.what),
        _column(lists.queue),
        first_waits(lists, begins),
        _column(lists.offsets),
        first,
        last,
        _column([a.mode for a in lists.accesses]),
        shift,
    )
    owned = _column(cells.owned_offsets), _column(cells.owned)
    initial, sizes = _column(lists.initial), _column(lists.barrier_sizes)
    return events, Resources(initial, sizes, len(lists.queues), cells.total, owned[0], owned[1]), cells


def _column(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)
