"""Run a program of MSCCL++ on symbolic contents: threadblocks go on until they wait for something."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..model.errors import Fault
from .mscclpp_contents import Contents
from .mscclpp_ranges import Line, Loaded, Move, Operation, Place, Range

MOST_OPERATIONS = 2_000_000


def follow(program: Loaded) -> Contents:
    """The contents after the program has run.

    Raises:
        Fault: a threadblock waits for ever, leaves something over for the next run, or the output is not what the
            collective promises; names the first step that is wrong.
    """
    run = _Run(program)
    run.run()
    run.contents.check_outputs()
    return run.contents


Known = dict[tuple[int, tuple[int, ...]], tuple[int, ...]]
"""The last transfers of each threadblock (by number) to each set of receivers."""


@dataclass
class _Block:
    """A threadblock.

    Attributes:
        steps, now: the operations that are left, and the one before them.
        arrived: whether it has come to the barrier that it is at.
        known: the transfers that it has waited for, itself or through those that it waited for.
        sent: its own.
        putting: by receivers, the message that it puts to them; until it does anything but put, this is one.
    """

    number: int
    steps: Iterator[Operation]
    now: Operation | None
    arrived: bool = False
    known: Known = field(default_factory=dict)
    sent: Known = field(default_factory=dict)
    putting: dict[tuple[int, ...], int] = field(default_factory=dict)

    def learn(self, news: Known) -> None:
        for key, transfers in news.items():
            if transfers > self.known.get(key, ()):
                self.known[key] = transfers


class _Run:
    def __init__(self, program: Loaded) -> None:
        self.program, self.contents = program, Contents(program)
        self.signals: Counter[Line] = Counter()
        self.news: dict[object, deque[Known]] = defaultdict(deque)  # what comes with signals and semaphores
        self.semaphores = [list(values) for values in program.semaphores]
        self.barriers: dict[tuple[int, int], list[_Block]] = {}
        self.blocks: list[_Block] = []
        self.done = self.messages = 0
        for blocks in program.threadblocks:
            for block in blocks:
                steps = unrolled(block)
                self.blocks.append(_Block(len(self.blocks), steps, next(steps, None)))
        counts = [range(len(blocks)) for blocks in program.threadblocks]
        turn = dict(zip((block.number for block in self.blocks), (k for own in counts for k in own), strict=True))
        # GPUs begin their threadblocks side by side, each in their order
        self.turns = sorted(self.blocks, key=lambda block: turn[block.number])

    def run(self) -> None:
        going = True
        while going:
            going = False
            for block in self.turns:
                # one operation of each in turn, as they would go on side by side
                if block.now is not None and self._step(block, block.now):
                    block.now = next(block.steps, None)
                    block.arrived = False
                    going = True
                    self.done += 1
                    if self.done > MOST_OPERATIONS:
                        what = f"more than {MOST_OPERATIONS} operations: larger units or a smaller size can be followed"
                        raise Fault(what, None, "limit", self.program.path)
        self._check_end()

    def _step(self, block: _Block, op: Operation) -> bool:
        """Do an operation if nothing holds it up."""
        own = self.semaphores[op.at.rank]
        if op.barrier is not None:
            return self._meet(block, op)
        if any(self.signals[line] < op.waits.count(line) for line in op.waits):
            return False
        if any(own[s] < op.acquires.count(s) for s in op.acquires):
            return False
        if not all(self.contents.ready(op.at, move) for move in op.moves):
            return False
        for line in op.waits:
            self.signals[line] -= 1
            block.learn(self.news[line].popleft())
        for s in op.acquires:
            own[s] -= 1
            if self.news[op.at.rank, s]:  # none where it began above 0
                block.learn(self.news[op.at.rank, s].popleft())
        self._move(block, op)
        for line in op.signals:
            self.signals[line] += 1
            self.news[line].append(block.known | block.sent)
        for s in op.releases:
            own[s] += 1
            self.news[op.at.rank, s].append(block.known | block.sent)
        return True

    def _move(self, block: _Block, op: Operation) -> None:
        contents = self.contents
        for move in op.moves:
            for t in contents.brought(move):
                block.learn({(-1, (t,)): (t,)})
        contents.after = tuple(t for transfers in block.known.values() for t in transfers)
        first = len(contents.transfers)
        puts = op.name in ("put", "res")
        if not puts and op.name != "nop":
            block.putting.clear()
        for move in op.moves:
            begin = len(contents.transfers)
            contents.do(op, move)
            self._number(block, begin, puts and move.how == "put")
        news: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for t in range(first, len(contents.transfers)):
            news[contents.transfers[t].receivers].append(t)
        block.sent |= {(block.number, receivers): tuple(ts) for receivers, ts in news.items()}

    def _number(self, block: _Block, begin: int, puts: bool) -> None:
        """Number the messages of new transfers: what is put goes on with what the threadblock puts to these ranks."""
        known = block.putting if puts else {}
        for t in self.contents.transfers[begin:]:
            if t.receivers not in known:
                known[t.receivers] = self.messages
                self.messages += 1
            t.message = known[t.receivers]

    def _meet(self, block: _Block, op: Operation) -> bool:
        """Come to a barrier; go on when all have come."""
        assert op.barrier is not None
        if block.arrived:
            key = op.at.rank, op.barrier[0]
            return block not in self.barriers.get(key, [])
        block.arrived = True
        key = op.at.rank, op.barrier[0]
        waiting = self.barriers.setdefault(key, [])
        waiting.append(block)
        if all(b.now is not None and b.now.barrier is not None and b.now.barrier[1] == len(waiting) for b in waiting):
            self.barriers[key] = []
            for one in waiting:
                for other in waiting:
                    one.learn(other.known | other.sent)
            return True
        return False

    # -- the end

    def _check_end(self) -> None:
        stuck = [block for block in self.blocks if block.now is not None]
        if stuck:
            raise self._stuck(stuck)
        for line, over in self.signals.items():
            if over:
                kind, src, dst, number = line
                line_words = f"{kind} channel {number} of rank {src} to rank {dst}"
                what = f"{over} signals over {line_words} are not waited for: the next run goes on too early"
                raise Fault(what, None, "left-over", self.program.path)
        for rank, (now, first) in enumerate(zip(self.semaphores, self.program.semaphores)):
            for s, (value, begun) in enumerate(zip(now, first)):
                if value != begun:
                    what = (
                        f"semaphore {s} begins with {begun} and ends with {value}: the next run is not like the first"
                    )
                    raise Fault(what, Place(rank), "left-over", self.program.path)

    def _stuck(self, stuck: list[_Block]) -> Fault:
        """The threadblock for which nothing comes that any other could still do, else the first of a circle."""
        left: dict[object, bool] = {}
        arrivals: Counter[tuple[int, int]] = Counter()
        writes: list[Range] = []
        for block in stuck:
            ops = [block.now, *block.steps]
            for i, op in enumerate(op for op in ops if op is not None):
                arrivals[op.at.rank, op.barrier[0] if op.barrier else -1] += 1
                if i:
                    left |= dict.fromkeys(op.signals, True) | {(op.at.rank, s): True for s in op.releases}
                writes += [r for move in op.moves for r in move.dst if r.memory == "p"]
        reasons = [(block.now, self._reason(block.now)) for block in stuck if block.now is not None]
        for op, (key, words) in reasons:
            hopeless = key is not None and key not in left
            if isinstance(key, Range):
                end = key.begin + key.size
                hopeless = not any(r.rank == key.rank and key.begin - r.size < r.begin < end for r in writes)
            if op.barrier is not None:
                hopeless = arrivals[op.at.rank, op.barrier[0]] < op.barrier[1]
            if hopeless:
                return Fault(f"waits for ever: {words}", op.at, "deadlock", self.program.path)
        op, (_, words) = reasons[0]
        circle = f"waits for ever, in a circle: {words}, and {len(reasons) - 1} other threadblocks wait likewise"
        return Fault(circle, op.at, "deadlock", self.program.path)

    def _reason(self, op: Operation) -> tuple[object, str]:
        """What an operation waits for: a key, and in words."""
        for line in op.waits:
            if self.signals[line] < op.waits.count(line):
                kind, src, _, number = line
                return line, f"no signal comes from rank {src} (its {kind} channel {number} to this rank)"
        for s in op.acquires:
            if self.semaphores[op.at.rank][s] < op.acquires.count(s):
                return (op.at.rank, s), f"nobody releases semaphore {s}"
        if op.barrier is not None:
            waiting = len(self.barriers.get((op.at.rank, op.barrier[0]), []))
            return None, f"{waiting} of {op.barrier[1]} threadblocks come to barrier {op.barrier[0]}"
        for move in op.moves:
            for r in move.src:
                if r.memory == "p" and not self.contents.ready(op.at, Move((), (r,), "local", True)):
                    return r, f"packets do not come to bytes {r.begin} to {r.begin + r.size - 1} of its scratch"
        return None, "it cannot go on"


def unrolled(block: list[Operation]) -> Iterator[Operation]:
    """The operations of a threadblock, those of loops once for each iteration."""
    for op in block:
        if op.name != "pipeline":
            yield op
            continue
        for i in range(op.iterations):
            for inner in op.inner:
                yield sliced(inner, i * op.unit, op.unit) if inner.sliced and inner.moves else inner


def sliced(op: Operation, offset: int, unit: int) -> Operation:
    """What an iteration of a loop does. The kernel counts what is left without sign, so past the end it is a unit."""

    def cut(r: Range) -> Range:
        return r._replace(
            begin=r.begin + (offset % r.ring if r.ring else offset), size=min((r.size - offset) % 2**32, unit)
        )

    moves = tuple(m._replace(dst=tuple(map(cut, m.dst)), src=tuple(map(cut, m.src))) for m in op.moves)
    return Operation(op.name, op.at, moves, op.signals, op.waits)
