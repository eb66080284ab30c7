"""The contents of a program of MSCCL++, followed symbolically: which contributions does each byte hold?

The operations run in one legal order, on names instead of bytes. An interval of a memory holds the sum of what some
ranks had at one position of the collective. What goes to another rank is noted as a transfer, after those that brought
what it carries. Whether another order could give something else is not asked here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ..model.errors import Fault
from .mscclpp_ranges import COLLECTIVES, ROOTED, Loaded, Move, Operation, Place, Range

MOST_STEPS = 3_000_000
"""Operations, those of loops in each iteration, and intervals that they touch, after which a program is refused."""


class Value(NamedTuple):
    """What an interval holds: byte x of the interval is at position ``x + shift`` of the collective.

    Attributes:
        ranks: whose contributions are summed, a bit each.
        writers: the transfers that brought it.
        own: whether what the rank had at first is part of it.
        flaw: the flaw that it has, -1 for none.
        step: the step that wrote it here, -1 at first.
    """

    shift: int
    ranks: int
    writers: tuple[int, ...] = ()
    own: bool = True
    flaw: int = -1
    step: int = -1


Piece = tuple[int, int, Value | None]
"""Begin, end and value of an interval; None where nothing was written."""


class Cells:
    """A memory, as intervals that cover it."""

    def __init__(self, size: int) -> None:
        self.begins, self.values, self.size = [0], [None], size  # type: tuple[list[int], list[Value | None], int]

    def read(self, begin: int, end: int) -> list[Piece]:
        i = bisect_right(self.begins, begin) - 1
        pieces: list[Piece] = []
        while begin < end:
            until = min(self.begins[i + 1] if i + 1 < len(self.begins) else self.size, end)
            pieces.append((begin, until, self.values[i]))
            begin, i = until, i + 1
        return pieces

    def write(self, pieces: list[Piece]) -> None:
        """Write intervals that follow one another."""
        begin, end = pieces[0][0], pieces[-1][1]
        i = bisect_right(self.begins, begin) - 1
        j = bisect_right(self.begins, end - 1) - 1
        begins, values = [p[0] for p in pieces], [p[2] for p in pieces]
        if self.begins[i] < begin:
            begins, values = [self.begins[i], *begins], [self.values[i], *values]
        after = self.begins[j + 1] if j + 1 < len(self.begins) else self.size
        if end < after:
            begins, values = [*begins, end], [*values, self.values[j]]
        self.begins[i : j + 1], self.values[i : j + 1] = begins, values


@dataclass
class Transfer:
    """What goes from some ranks to others: positions ``begin`` to ``end`` of the collective.

    Attributes:
        depends: those that brought what it carries.
        after: others that had arrived when its threadblock went on to it.
        ranks: whose contributions it carries, a bit each.
        own: whether what the sender had at first is among them.
        adds: whether a receiver adds it to something.
        joins: whether a receiver adds it to a sum with what it had at first.
        message: the message of the program that carries it, which one signal tells of.
    """

    begin: int
    end: int
    sources: tuple[int, ...]
    receivers: tuple[int, ...]
    depends: tuple[int, ...]
    after: tuple[int, ...]
    ranks: int
    own: bool = True
    adds: bool = False
    joins: bool = False
    message: int = -1


class Flaw(NamedTuple):
    step: int
    place: Place
    words: str


class Contents:
    """The memories of all ranks while operations run.

    Attributes:
        transfers: those so far, in order.
        flaws: what is wrong with values, none of which need reach an output.
        places: of each step that was done.
        after: the transfers that the operation which runs has waited for.
        root: the rank from which, or to which, a collective with a root was found to be right.
    """

    def __init__(self, program: Loaded) -> None:
        self.program = program
        self.transfers: list[Transfer] = []
        self.flaws: list[Flaw] = []
        self.places: list[Place] = []
        self.after: tuple[int, ...] = ()
        self.root: int | None = None
        self.steps = 0
        self.reduces = program.collective in ("allreduce", "reducescatter") or program.collective not in COLLECTIVES
        self.cells = [
            {m: Cells(size) for m, size in sizes.items() if size} | {"p": Cells(max(sizes["s"] // 2, 1))}
            for sizes in program.memory_bytes
        ]
        for rank in range(program.ranks):
            memory, begin = first_byte(program, "i", rank)
            size = program.input_bytes
            if size:
                shift = (0 if self.reduces else rank * size) - begin
                self.cells[rank][memory].write([(begin, begin + size, Value(shift, 1 << rank))])

    def ready(self, at: Place, move: Move) -> bool:
        """Whether all packets have come that a move waits for."""
        packets = [r for r in move.src if r.memory == "p" and r.size and move.flagged]
        for r in packets:
            self._check(at, r)
        return not move.flagged or all(
            value is not None for r in packets for *_, value in self._cells(r).read(r.begin, r.begin + r.size)
        )

    def brought(self, move: Move) -> tuple[int, ...]:
        """The transfers that brought the packets which a move reads."""
        packets = [r for r in move.src if r.memory == "p" and r.size and move.flagged]
        values = [v for r in packets for *_, v in self._cells(r).read(r.begin, r.begin + r.size) if v is not None]
        return tuple(dict.fromkeys(w for v in values for w in v.writers))

    def do(self, op: Operation, move: Move) -> None:
        """Let an operation do one of its moves."""
        ranges = (*move.dst, *move.src)
        if not ranges[-1].size:
            return
        for r in ranges:
            self._check(op.at, r)
        step = len(self.places)
        self.places.append(op.at)
        if move.how == "switch" and len(move.src) > 1:
            pieces = self._summed_by_switch(op.at, move)
        else:
            pieces = self._summed(op.at, [list(self._brought(op.at, r)) for r in move.src], move.src)
        self.steps += len(pieces) * len(ranges)
        if self.steps > MOST_STEPS:
            raise Fault("moves more pieces than can be followed", op.at, "limit", self.program.path)
        for r in move.dst:
            there = pieces
            if move.how == "switch" and len(move.src) == 1:
                there = [(b, e, v if r.rank == op.at.rank else None) for b, e, v in pieces]
            elif r.rank != op.at.rank and move.how != "switch":
                there = [(b, e, self._sent(v, b, e, (op.at.rank,), (r.rank,))) for b, e, v in pieces]
            self._cells(r).write([(r.begin + b, r.begin + e, _moved(v, r.begin, step)) for b, e, v in there])
        if move.how == "switch" and len(move.src) == 1:
            self._copied_by_switch(op.at, move, pieces, step)

    # -- where

    def _cells(self, r: Range) -> Cells:
        return self.cells[r.rank][r.memory]

    def _check(self, at: Place, r: Range) -> None:
        """Whether there are such bytes."""
        sizes = self.program.memory_bytes[r.rank]
        end, most = r.begin + r.size, sizes["s"] // 2 if r.memory == "p" else sizes[r.memory]
        if end > most:
            name = {"i": "input", "o": "output", "s": "scratch", "p": "scratch, as packets"}[r.memory]
            what = f"uses bytes {r.begin} to {end - 1} of the {name} of rank {r.rank}, which has {most}"
            raise Fault(what, at, "bounds", self.program.path)

    def words(self, r: Range, begin: int, end: int) -> str:
        name = {"i": "input", "o": "output", "s": "scratch", "p": "packets in scratch"}[r.memory]
        return f"{name} of rank {r.rank}, bytes {r.begin + begin} to {r.begin + end - 1}"

    # -- what

    def _brought(self, at: Place, r: Range) -> Iterator[Piece]:
        """What an operation reads, at offsets within the range; what it reads elsewhere is a transfer to its rank."""
        for b, e, value in self._cells(r).read(r.begin, r.begin + r.size):
            b, e = b - r.begin, e - r.begin
            if value is None:
                value = self._flawed(at, f"reads {self.words(r, b, e)}, where nothing was written")
            elif r.rank != at.rank:
                value = self._sent(value._replace(shift=value.shift + r.begin), b, e, (r.rank,), (at.rank,))
            else:
                value = value._replace(shift=value.shift + r.begin)
            yield b, e, value

    def _flawed(self, at: Place, words: str) -> Value:
        self.flaws.append(Flaw(len(self.places) - 1, at, words))
        return Value(0, 0, (), False, len(self.flaws) - 1)

    def _sent(
        self, value: Value | None, begin: int, end: int, sources: tuple[int, ...], receivers: tuple[int, ...]
    ) -> Value:
        """A value after it went from a rank to others; ``begin`` and ``end`` are offsets to which it is relative."""
        assert value is not None
        if value.flaw >= 0:
            return value
        self.transfers.append(
            Transfer(
                begin + value.shift,
                end + value.shift,
                sources,
                receivers,
                value.writers,
                self.after,
                value.ranks,
                value.own,
            )
        )
        return value._replace(writers=(len(self.transfers) - 1,), own=False)

    def _summed(self, at: Place, parts: list[list[Piece]], ranges: tuple[Range, ...]) -> list[Piece]:
        """The sum of what was read, by offset."""
        if len(parts) == 1:
            return parts[0]
        summed: list[Piece] = []
        cuts = sorted({b for part in parts for b, *_ in part} | {parts[0][-1][1]})
        at_part = [0] * len(parts)
        for begin, end in pairwise(cuts):
            values = []
            for i, part in enumerate(parts):
                while part[at_part[i]][1] <= begin:
                    at_part[i] += 1
                values.append(part[at_part[i]][2])
            summed.append((begin, end, self._sum(at, values, ranges, begin, end)))
        return summed

    def _sum(self, at: Place, values: list[Value | None], ranges: tuple[Range, ...], begin: int, end: int) -> Value:
        total = values[0]
        assert total is not None
        for value, r in zip(values[1:], ranges[1:]):
            assert value is not None
            if total.flaw >= 0 or value.flaw >= 0:
                total = total if total.flaw >= 0 else value
                continue
            if not self.reduces:
                total = self._flawed(at, f"adds {self.words(r, begin, end)}, in a collective that sums nothing")
            elif total.shift != value.shift:
                a, b = total.shift + begin, value.shift + begin
                what = (
                    f"adds {self.words(r, begin, end)}, which is from byte {b} on of its buffers, to bytes from {a} on"
                )
                total = self._flawed(at, what)
            elif total.ranks & value.ranks:
                twice = self.named(total.ranks & value.ranks)
                total = self._flawed(at, f"adds {self.words(r, begin, end)}, and counts {twice} twice")
            else:
                for t in (*total.writers, *value.writers):
                    self.transfers[t].adds = True
                    self.transfers[t].joins |= total.own or value.own
                total = Value(
                    total.shift, total.ranks | value.ranks, (*total.writers, *value.writers), total.own or value.own
                )
        return total

    def _summed_by_switch(self, at: Place, move: Move) -> list[Piece]:
        """What the switch sums of all ranks, and sends to all: one transfer for each piece."""
        parts: list[list[Piece]] = []
        for r in move.src:
            read = self._cells(r).read(r.begin, r.begin + r.size)
            parts.append([(b - r.begin, e - r.begin, self._here(at, r, b, e, v)) for b, e, v in read])
        written = [(b, e, v) for b, e, v in self._summed(at, parts, move.src)]
        sources, receivers = (tuple(r.rank for r in side) for side in (move.src, move.dst))
        return [(b, e, self._sent(v, b, e, sources, receivers)) for b, e, v in written]

    def _here(self, at: Place, r: Range, begin: int, end: int, value: Value | None) -> Value:
        if value is None:
            return self._flawed(at, f"reads {self.words(r, begin - r.begin, end - r.begin)}, where nothing was written")
        return value._replace(shift=value.shift + r.begin)

    def _copied_by_switch(self, at: Place, move: Move, pieces: list[Piece], step: int) -> None:
        """What the switch copies to all other ranks: one transfer for each piece."""
        others = [r for r in move.dst if r.rank != at.rank]
        for b, e, value in pieces if others else []:
            sent = self._sent(value, b, e, (at.rank,), tuple(r.rank for r in others))
            for r in others:
                self._cells(r).write([(r.begin + b, r.begin + e, _moved(sent, r.begin, step))])

    def named(self, ranks: int) -> str:
        """Ranks of a mask: ``rank 3``, ``ranks 0, 2``."""
        listed = [str(r) for r in range(self.program.ranks) if ranks >> r & 1]
        return (
            ("rank " if len(listed) == 1 else "ranks ") + ", ".join(listed[:8]) + (", ..." if len(listed) > 8 else "")
        )

    # -- the end

    def check_outputs(self) -> None:
        """Whether every rank ends with what the collective promises; else Fault names the first step that is wrong.

        A file names no root: a program is right if it is so from one root, or to one.
        """
        found = [(list(self._wrong(root)), root) for root in self._roots()]
        wrong, self.root = min(found, key=lambda f: len(f[0]), default=([], None))
        if wrong:
            _, place, words = min(wrong, key=lambda w: w[0])
            raise Fault(words, place, "contents", self.program.path)

    def _roots(self) -> list[int | None]:
        """The ranks that may be the root; None for collectives without."""
        program = self.program
        if program.collective not in ROOTED or program.inplace:
            return [None] if program.collective in COLLECTIVES else []
        if program.collective == "reduce":
            return list(range(program.ranks))
        # of two ranks one at least has got what the root sent
        sent = {value.ranks for rank in (0, 1) for _, _, value in self._output(rank, 0, 1) if value is not None}
        roots: list[int | None] = [r for r in range(program.ranks) if 1 << r in sent]
        return roots or [0]

    def _output(self, rank: int, begin: int, end: int) -> list[tuple[int, int, Value | None]]:
        """What a rank's output holds from a byte to another one."""
        memory, first = first_byte(self.program, "o", rank)
        cells = self.cells[rank].get(memory)
        return [] if cells is None else list(cells.read(first + begin, first + end))

    def _wrong(self, root: int | None) -> Iterator[Flaw]:
        for rank in range(self.program.ranks):
            yield from self._wrong_at(rank, root)

    def _wrong_at(self, rank: int, root: int | None) -> Iterator[Flaw]:
        program = self.program
        first = first_byte(program, "o", rank)[1]
        for begin, end, position, ranks in promised(program, rank, root):
            for b, e, value in self._output(rank, begin, end):
                at = f"output of rank {rank}, bytes {b - first} to {e - first - 1}"
                if value is None or (
                    value.step < 0 and (value.ranks != ranks or value.shift != position - first - begin)
                ):
                    yield Flaw(len(self.places), Place(rank), f"nothing is written to the {at}")
                elif value.flaw >= 0:
                    flaw = self.flaws[value.flaw]
                    yield flaw._replace(words=f"{flaw.words}; this ends in the {at}")
                elif value.shift != position - first - begin:
                    came, right = b + value.shift, b + position - first - begin
                    yield Flaw(value.step, self.places[value.step], f"brings to the {at}, bytes of the collective from "
                               f"{came} on, and those from {right} on belong there")  # fmt: skip
                elif value.ranks != ranks:
                    lost, more = ranks & ~value.ranks, value.ranks & ~ranks
                    how = f" without {self.named(lost)}" if lost else ""
                    how += f" with {self.named(more)}" if more else ""
                    yield Flaw(value.step, self.places[value.step], f"brings to the {at}, a sum{how}")


def _moved(value: Value | None, begin: int, step: int) -> Value | None:
    return None if value is None else value._replace(shift=value.shift - begin, step=step)


def first_byte(program: Loaded, buffer: str, rank: int) -> tuple[str, int]:
    """The memory that holds a rank's own input or output, and the first byte of it."""
    whole = {"allgather": "o", "allreduce": "i", "alltoall": "i", "reducescatter": "i"}.get(program.collective)
    if not program.inplace or whole is None:
        return buffer, 0
    inner = buffer != whole and program.input_bytes != program.output_bytes
    return whole, rank * min(program.input_bytes, program.output_bytes) if inner else 0


def promised(program: Loaded, rank: int, root: int | None = None) -> list[tuple[int, int, int, int]]:
    """Of a rank's output: begin, end, the position in the collective, and whose contributions, a bit each."""
    n, everyone = program.ranks, (1 << program.ranks) - 1
    i, o = program.input_bytes, program.output_bytes
    kind = program.collective
    if root is not None:
        return [(0, o, 0, everyone if kind == "reduce" else 1 << root)] if (rank == root) == (kind == "reduce") else []
    if kind in ("allreduce", "reducescatter"):
        return [(0, o, rank * o if kind == "reducescatter" else 0, everyone)]
    if kind == "sendrecv":
        source = (rank - 1) % n
        return [(0, o, source * i, 1 << source)]
    part = o // n
    return [(s * part, (s + 1) * part, s * i + (rank * part if kind == "alltoall" else 0), 1 << s) for s in range(n)]
