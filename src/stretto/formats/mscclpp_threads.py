"""MSCCL++ execution plans as their executor runs them: threadblocks, signals, and what is put.

A threadblock takes its operations in turn and copies what it puts by itself, so it sends one message after the other.
What it puts to a rank before it does anything but put is one message: one signal tells of it, and costs what a message
costs besides its bytes.
A put through a port is done by a thread of the CPU, one after the other for each pair of ranks, while the threadblock
goes on until it flushes. A chunk is sent whole, however large it is. Signals, semaphores and barriers take no time
besides that of the messages that come before them. Where the same threadblock stands several times side by side, each
with its part of every chunk, these count as one that moves whole chunks: all of them begin at the same time, so that
the parts of a message cost as much as one message.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ..model.arrays import Ragged
from ..model.collective import Collective, Workload
from ..model.errors import Unsupported
from ..model.plan import make_plan
from ..model.targets import TARGETS
from ..model.topology import Topology
from . import Size
from .mscclpp_bytes import resolve
from .mscclpp_in import referee
from .mscclpp_json import read_program
from .mscclpp_program import Chunks, ExecutionPlan, Gpu
from .mscclpp_program import Operation as Written
from .mscclpp_ranges import Line, Loaded, Move, Operation
from .mscclpp_run import unrolled
from .routes import Routes
from .threads import Step, Threads

WAYS = ("local", "put", "port", "get")
"""Ways in which operations move data whose time is known."""


def read_threads(path: str, topology: Topology) -> Threads:
    """A program as the executor runs it, refereed first; see :func:`.mscclpp_in.read`.

    Raises:
        Fault: the program is not correct. Unsupported: it sends packets, loops over its chunks, or lets a switch work.
    """
    program = read_program(path)
    first = program.gpus[0]
    chunks = max(first.inputs, first.outputs)
    full = program.alignment * chunks
    full *= max(1, -(-program.least_bytes // full))
    referee(program, path, Size(full, None))
    loaded = resolve(program, path, full, None)
    run = _Run(loaded, copies_of(program))
    run.run()
    routes = Routes(topology, path)
    src, dst, size = (np.array(column, dtype=np.int64) for column in zip(*run.messages, strict=True))
    nodes = topology.accelerators
    pieces = Collective.uncut(
        "remainder", nodes, int(size.sum()), size, Ragged.single(src), Ragged.single(dst)
    )  # each message is a piece that its sender has and its receiver wants
    plan = make_plan(
        topology, Workload((pieces,)), "ready-order", chunk=np.arange(len(src)), src=nodes[src],
        dst=Ragged.single(nodes[dst]), route=Ragged.of([routes.between(*ends) for ends in zip(nodes[src], nodes[dst])]),
        depends=Ragged.empty(len(src)), where=path,
    )  # fmt: skip
    return Threads(
        plan, run.steps, TARGETS["mscclpp"], path, full_bytes=full, most_bytes=program.most_bytes, refereed=True
    )  # fmt: skip


def copies_of(program: ExecutionPlan) -> int:
    """How many times each threadblock stands side by side, each copy with its part of every chunk; 1 for once."""
    most = max(len(gpu.blocks) for gpu in program.gpus)
    return next(n for n in range(most, 0, -1) if all(_in_copies(gpu, n) for gpu in program.gpus))


def _in_copies(gpu: Gpu, copies: int) -> bool:
    if len(gpu.blocks) % copies or not gpu.blocks:
        return not gpu.blocks
    groups = [gpu.blocks[i : i + copies] for i in range(0, len(gpu.blocks), copies)]
    return all(_alike(a, b) for group in groups for a, b in pairwise(group))


def _alike(a: list[Written], b: list[Written]) -> bool:
    """Whether a threadblock does what another does, on the parts of chunks that follow."""

    def follow(x: tuple[Chunks, ...], y: tuple[Chunks, ...]) -> bool:
        return len(x) == len(y) and all(q == p._replace(first=p.first + p.size) for p, q in zip(x, y, strict=True))

    return len(a) == len(b) and all(
        p.name == q.name and follow(p.src, q.src) and follow(p.dst, q.dst) for p, q in zip(a, b, strict=True)
    )


Known = dict[tuple[int, int], int]
"""The last message of each thread to each rank that a threadblock knows to have left."""


@dataclass
class _Block:
    """A threadblock: its number, the operations that are left and the one before them, and what it knows."""

    number: int
    rank: int
    steps: Iterator[Operation]
    now: Operation | None
    known: Known = field(default_factory=dict)
    last: int = -1  # its last step
    putting: dict[int, int] = field(default_factory=dict)  # bytes put to each rank that no step has sent yet
    arrived: bool = False


class _Run:
    """The steps of all threadblocks in an order in which they can run.

    Attributes:
        messages: sender, receiver and bytes of each.
        steps: as of :class:`.Threads`.
        copies: how many times each threadblock stands side by side; the first of them is followed.
    """

    def __init__(self, program: Loaded, copies: int) -> None:
        self.copies = copies
        self.messages: list[tuple[int, int, int]] = []
        self.steps: list[Step] = []
        self.blocks: list[_Block] = []
        self.semaphores: dict[tuple[int, int], deque[tuple[int, Known]]] = defaultdict(deque)
        self.signals: dict[Line, deque[tuple[int, Known]]] = defaultdict(deque)
        self.meeting: dict[tuple[int, int], list[_Block]] = defaultdict(list)
        self.ports: dict[tuple[int, int], int] = {}  # the thread of the CPU for two ranks
        self.over_ports: dict[tuple[int, int], int] = {}  # the last step of each of these threads, for a block
        for rank, values in enumerate(program.semaphores):
            for s, value in enumerate(values):
                self.semaphores[rank, s].extend([(-1, {})] * value)
        for rank, blocks in enumerate(program.threadblocks):
            for block in blocks[::copies]:
                steps = unrolled(block)
                self.blocks.append(_Block(len(self.blocks), rank, steps, next(steps, None)))
        begun: Counter[int] = Counter()
        turn: list[int] = []
        for one in self.blocks:
            turn.append(begun[one.rank])
            begun[one.rank] += 1
        # GPUs begin their threadblocks side by side, each in their order
        self.blocks.sort(key=lambda one: turn[one.number])
        for number, one in enumerate(self.blocks):
            one.number = number

    def run(self) -> None:
        """Run all operations; the referee has found that they end."""
        going = True
        while going:
            going = False
            for block in self.blocks:
                while block.now is not None and self._can(block, block.now):
                    if block.now.name != "nop" and not any(move.how == "put" for move in block.now.moves):
                        self._put(block)
                    self._do(block, block.now)
                    block.now, block.arrived, going = next(block.steps, None), False, True
        for block in self.blocks:
            self._put(block)

    def _can(self, block: _Block, op: Operation) -> bool:
        if op.barrier is not None:
            here = self.meeting[block.rank, op.barrier[0]]
            if not block.arrived:
                block.arrived = True
                here.append(block)
                if len(here) == op.barrier[1] // self.copies:
                    self._meet(here)
                    here.clear()
            return block not in here
        return all(self.signals[line] for line in op.waits) and all(self.semaphores[block.rank, s] for s in op.acquires)

    def _meet(self, blocks: list[_Block]) -> None:
        waits = tuple(block.last for block in blocks if block.last >= 0)
        known: Known = {}
        for block in blocks:
            _learn(known, block.known)
        for block in blocks:
            self._add(block, Step(block.number, waits))
            _learn(block.known, known)

    def _do(self, block: _Block, op: Operation) -> None:
        if any(move.flagged or move.how not in WAYS for move in op.moves):
            raise Unsupported("what packets and switches take in a program of MSCCL++ is not known")
        own = [self.semaphores[block.rank, s] for s in op.acquires]
        for came in (*(self.signals[line] for line in op.waits), *own):
            self._hear(block, *came.popleft())
        for move in op.moves:
            self._move(block, move)
        if op.name == "flush":
            over = [step for (number, _), step in self.over_ports.items() if number == block.number]
            self._add(block, Step(block.number, tuple(over)))
        for line in op.signals:
            port = self.over_ports.get((block.number, line[2]), -1) if line[0] == "port" else -1
            self.signals[line].append((port if port >= 0 else block.last, dict(block.known)))
        for s in op.releases:
            self.semaphores[block.rank, s].append((block.last, dict(block.known)))

    def _hear(self, block: _Block, step: int, news: Known) -> None:
        """Go on after a step of another threadblock; what that knew to be sent here has then arrived."""
        waits = (step,) if step >= 0 else ()
        self._add(block, Step(block.number, waits))
        for (thread, rank), message in news.items():
            if rank == block.rank and block.known.get((thread, rank), -1) < message:
                self._add(block, Step(block.number, (), (), (message,)))
        _learn(block.known, news)

    def _move(self, block: _Block, move: Move) -> None:
        for r in move.src:
            if r.rank != block.rank and r.size:  # it reads elsewhere, and goes on when that has come
                message = self._send(r.rank, block.rank, r.size)
                thread = -1 - block.number
                waits = (block.last,) if block.last >= 0 else ()
                self.steps.append(Step(thread, waits, (message,)))
                self._add(block, Step(block.number, (len(self.steps) - 1,), (), (message,)))
        for r in move.dst:
            if r.rank == block.rank or not r.size:
                continue
            if move.how == "put":
                block.putting[r.rank] = block.putting.get(r.rank, 0) + r.size
            else:
                message = self._send(block.rank, r.rank, r.size)
                thread = self.ports.setdefault((block.rank, r.rank), len(self.blocks) + len(self.ports))
                waits = (block.last,) if block.last >= 0 else ()
                self.steps.append(Step(thread, waits, (message,)))
                self.over_ports[block.number, r.rank] = len(self.steps) - 1
                block.known[thread, r.rank] = message

    def _put(self, block: _Block) -> None:
        """Send what a threadblock has put, a message to each rank."""
        for rank, size in block.putting.items():
            message = self._send(block.rank, rank, size)
            self._add(block, Step(block.number, (), (message,)))
            block.known[block.number, rank] = message
        block.putting.clear()

    def _send(self, rank: int, to: int, size: int) -> int:
        self.messages.append((rank, to, size * self.copies))
        return len(self.messages) - 1

    def _add(self, block: _Block, step: Step) -> None:
        self.steps.append(step)
        block.last = len(self.steps) - 1


def _learn(known: Known, news: Known) -> None:
    for key, message in news.items():
        if known.get(key, -1) < message:
            known[key] = message
