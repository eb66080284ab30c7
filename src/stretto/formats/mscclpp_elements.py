"""Races in programs of MSCCL++ whose threadblocks wait for packets and barriers alone, element by element.

A thread that reads a packet knows that the thread which wrote it has read what it needed for this element; it knows
nothing of the other elements of that operation. So an operation is as many steps as memory has cells below it. They
wait for nothing but the packets of their own cell, what came before the last meeting of the threads (``nop``,
``barrier``), and what the same threads did before: an operation gives its elements to threads by their place in it. A
step happens before another if these say so, or the end of a run between them. Two accesses to one cell, one of them a
write, must be in such an order, also those of three runs one after the other. Packets have a flag for each run, and
where scratch is doubled runs use its halves in turn.

:mod:`.interleavings` asks the same of all programs, with a whole operation as one step: what it proves holds here too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..model.errors import Fault, Unsupported
from .mscclpp_ranges import Loaded, Move, Operation, Place, Range
from .mscclpp_run import unrolled

RUNS = 3
"""Two runs stand for any number, three where runs use two halves of scratch in turn."""
MOST_STEPS = 40_000
"""Steps of all runs: each has a bit for every one before it."""

PACKET_BYTES, VECTOR_BYTES = 8, 16
"""What a thread takes at once: the payload of a packet, or a vector. The next thread takes what follows."""

Memory = tuple[int, str]
Cell = tuple[int, str, int, int]
"""Rank, memory, half of scratch, and first byte."""


def only_packets(program: Loaded) -> bool:
    """Whether threadblocks wait for packets and barriers alone."""
    return not any(
        op.waits or op.acquires for blocks in program.threadblocks for block in blocks for op in unrolled(block)
    )


def race_of_elements(program: Loaded, doubled: bool) -> Fault | None:
    """The first race of a program that waits for packets alone, None if there is none."""
    return _Check(program, doubled).run()


@dataclass
class _Block:
    """A threadblock.

    Attributes:
        ops, now: the operations that are left, and the one before them.
        base, since: what happened before its last meeting, and what it did since.
        arrived: whether it waits at a barrier.
        threads: for bytes that a thread takes at once, and a place in an operation, what the threads there did.
    """

    ops: Iterator[Operation]
    now: Operation | None
    base: int
    since: int = 0
    arrived: bool = False
    threads: dict[tuple[int, int], int] = field(default_factory=dict)


@dataclass
class _Uses:
    """The last write of a cell, and the reads since, as numbers of steps."""

    write: int = -1
    reads: list[int] = field(default_factory=list)


class _Check:
    def __init__(self, program: Loaded, doubled: bool) -> None:
        self.program, self.doubled = program, doubled
        self.cuts = _cuts(program)
        self.before: list[int] = []
        self.places: list[Place | None] = []
        self.uses: dict[Cell, _Uses] = defaultdict(_Uses)
        self.filled: dict[Cell, tuple[int, int]] = {}  # for each packet the run and the step that wrote it
        self.fault: Fault | None = None

    def run(self) -> Fault | None:
        ended = [0] * self.program.ranks
        for number in range(RUNS):
            for rank in range(self.program.ranks):
                ended[rank] = self._application(rank, ended[rank])
            ended = self._one_run(number, ended)
            if self.fault is not None:
                return self.fault
        return None

    def _one_run(self, number: int, begun: list[int]) -> list[int]:
        """Let all threadblocks run; what happened by the end of each rank."""
        blocks: list[_Block] = []
        for rank, listed in enumerate(self.program.threadblocks):
            for operations in listed:
                steps = unrolled(operations)
                blocks.append(_Block(steps, next(steps, None), begun[rank]))
        owners = [rank for rank, listed in enumerate(self.program.threadblocks) for _ in listed]
        going = True
        while going and self.fault is None:
            going = False
            for block in blocks:
                if block.now is not None and block.now.barrier is not None:
                    block.arrived = True
                elif block.now is not None and all(self._ready(m, number) for m in block.now.moves):
                    self._do(block, block.now, number)
                    block.now = next(block.ops, None)
                    going = True
            going |= self._meet(blocks, owners)
        ended = list(begun)
        for rank, block in zip(owners, blocks):
            ended[rank] |= block.base | block.since
        return ended

    def _meet(self, blocks: list[_Block], owners: list[int]) -> bool:
        """Let threadblocks go on that have all come to a barrier; whether some have."""
        waiting: dict[tuple[int, tuple[int, int]], list[_Block]] = defaultdict(list)
        for rank, block in zip(owners, blocks):
            if block.arrived and block.now is not None and block.now.barrier is not None:
                waiting[rank, block.now.barrier].append(block)
        met = [group for (_, (_, wanted)), group in waiting.items() if len(group) == wanted]
        for group in met:
            known = 0
            for block in group:
                known |= block.base | block.since
            for block in group:
                block.base, block.since, block.arrived, block.now = known, 0, False, next(block.ops, None)
        return bool(met)

    def _do(self, block: _Block, op: Operation, number: int) -> None:
        if op.name == "nop":
            block.base |= block.since
            block.since = 0
        for move in op.moves:
            taken = PACKET_BYTES if any(r.memory == "p" for r in (*move.dst, *move.src)) else VECTOR_BYTES
            for cells in self._steps(move, number):
                self._step(block, op.at, move, cells, number, (taken, cells[0][3] - move.dst[0].begin))

    def _step(
        self, block: _Block, at: Place, move: Move, cells: list[Cell], number: int, threads: tuple[int, int]
    ) -> None:
        writes, reads = cells[: len(move.dst)], cells[len(move.dst) :]
        before = block.base | block.threads.get(threads, 0)
        for cell in reads:
            if cell[1] == "p" and move.flagged:
                writer = self.filled[cell][1]
                before |= self.before[writer] | 1 << writer
        step = self._new(at, before)
        # a port sends when it comes to it: nobody but the reader of its packets knows that it has
        done = self.before[step] | (0 if move.how == "port" else 1 << step)
        block.since |= done
        block.threads[threads] = done
        writes = [cell for cell in writes if cell not in reads]  # what is copied onto itself stays what it is
        for cell in reads:
            self._use(cell, step, False)
        for cell in writes:
            self._use(cell, step, True)
            if cell[1] == "p":
                self.filled[cell] = number, step

    def _application(self, rank: int, before: int) -> int:
        """Between runs the application writes a rank's input and output."""
        step = self._new(None, before)
        for memory in ("i", "o"):
            for begin in self.cuts.get((rank, memory), [])[:-1]:
                self._use((rank, memory, 0, begin), step, True)
        return before | 1 << step

    def _new(self, at: Place | None, before: int) -> int:
        if len(self.before) > MOST_STEPS:
            raise Unsupported(f"it has more than {MOST_STEPS} steps in {RUNS} runs, too many to compare")
        self.before.append(before)
        self.places.append(at)
        return len(self.before) - 1

    def _use(self, cell: Cell, step: int, writes: bool) -> None:
        uses = self.uses[cell]
        for other in (uses.write, *(uses.reads if writes else ())):
            if other >= 0 and other != step and not self.before[step] >> other & 1 and self.fault is None:
                self.fault = self._race(cell, other, step)
        if writes:
            uses.write, uses.reads = step, []
        else:
            uses.reads.append(step)

    def _race(self, cell: Cell, one: int, other: int) -> Fault:
        name = {"i": "the input", "o": "the output", "s": "scratch", "p": "packets in scratch"}[cell[1]]
        app = "the application between two runs"
        first, second = (str(p) if p is not None else app for p in (self.places[one], self.places[other]))
        place = self.places[other] or self.places[one]
        who = first if place is self.places[other] else second
        where = f"byte {cell[3]} of {name} of rank {cell[0]}"
        what = f"{place} and {who} use {where}, one writes, and nothing says which is first"
        return Fault(what, place, "race", self.program.path)

    # -- cells

    def _ready(self, move: Move, number: int) -> bool:
        if not move.flagged:
            return True
        packets = [r for r in move.src if r.memory == "p"]
        return all(self.filled.get(c, (-1, -1))[0] == number for r in packets for c in self._cells(r, number))

    def _cells(self, r: Range, number: int) -> list[Cell]:
        cuts = self.cuts[r.rank, r.memory]
        half = number % 2 if self.doubled and r.memory in ("s", "p") else 0
        return [
            (r.rank, r.memory, half, b) for b in cuts[bisect_left(cuts, r.begin) : bisect_left(cuts, r.begin + r.size)]
        ]

    def _steps(self, move: Move, number: int) -> list[list[Cell]]:
        """For each cell of the destination the cells at the same place of all destinations and sources."""
        return [list(cells) for cells in zip(*(self._cells(r, number) for r in (*move.dst, *move.src)), strict=True)]


def _cuts(program: Loaded) -> dict[Memory, list[int]]:
    """For each memory where its cells begin, and its end: all ranges of a move are cut alike."""
    cuts: dict[Memory, list[int]] = defaultdict(list)
    moves = [m for blocks in program.threadblocks for block in blocks for op in unrolled(block) for m in op.moves]
    for r in (r for m in moves for r in (*m.dst, *m.src)):
        for at in (r.begin, r.begin + r.size):
            _cut(cuts[r.rank, r.memory], at)
    found = True
    while found:
        found = False
        for move in moves:
            ranges = (*move.dst, *move.src)
            inner: set[int] = set()
            for r in ranges:
                own = cuts[r.rank, r.memory]
                inner.update(c - r.begin for c in own[bisect_left(own, r.begin) : bisect_right(own, r.begin + r.size)])
            for r in ranges:
                for c in inner:
                    found |= _cut(cuts[r.rank, r.memory], r.begin + c)
            if sum(map(len, cuts.values())) > MOST_STEPS:
                raise Unsupported("it has too many cells of memory to compare")
    return cuts


def _cut(cuts: list[int], at: int) -> bool:
    """Cut a memory; whether it was not cut there."""
    i = bisect_left(cuts, at)
    if i < len(cuts) and cuts[i] == at:
        return False
    insort(cuts, at)
    return True
