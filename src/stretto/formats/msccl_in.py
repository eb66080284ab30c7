"""MSCCL XML, read: the program is executed on symbolic chunks, and each chunk of a message becomes a transfer.

The reader tracks which transfers filled each slot, so the plan says what the program really does. Links are not named:
a message takes the shortest route that stores nowhere. As in the runtimes, ``rrc`` adds to the rank's own slot.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..model.arrays import Ragged
from ..model.collective import Collective, Workload, make_collective
from ..model.errors import Fault, InputError, Unsupported
from ..model.kinds import BY_NAME
from ..model.messages import as_sent
from ..model.plan import COPY, REDUCE, Plan, make_plan
from ..model.targets import TARGETS
from ..model.topology import Topology
from ..topologies.values import count, named, parse_xml, read_text, shown, tag
from . import Size
from .routes import Routes
from .threads import Step as ThreadStep
from .threads import Threads

KINDS = {"reduce_scatter": "reducescatter", "reducescatter": "reducescatter"} | {
    kind: kind for kind in ("allgather", "allreduce", "alltoall", "broadcast", "reduce")
}
SENDS = ("s", "rcs", "rrs", "rrcs")
RECEIVES = ("r", "rcs", "rrc", "rrs", "rrcs")
MOST_CHUNKS, MOST_MOVES = 2_000_000, 2_000_000


Slot = tuple[str, int]  # a buffer, and the place in it


class _Content(NamedTuple):
    """What a slot holds: a chunk, the transfers that wrote it, and whether it includes the rank's own data."""

    chunk: int
    writers: tuple[int, ...]
    own: bool


class _Step(NamedTuple):
    """A step: what it does to ``cnt`` slots, the (threadblock, step) that it waits for, and its place in the file."""

    kind: str
    cnt: int
    src: Slot
    dst: Slot
    after: tuple[int, int]
    at: str


@dataclass
class _Block:
    """A threadblock of a rank: its peers, and how many of its steps have run."""

    rank: int
    send: int
    receive: int
    channel: int
    steps: list[_Step]
    done: int = 0


def read(path: str, topology: Topology, size: Size) -> Plan:
    """The plan of a program for a collective of a size.

    Raises:
        InputError: the file is no program, or has another number of ranks.
        Fault: the program deadlocks, or moves data that is not there.
    """
    return _run(path, topology, size)[0]


def read_threads(path: str, topology: Topology) -> Threads:
    """A program with the order in which its threadblocks run it; see :func:`read`.

    Raises:
        Unsupported: the program is not for the protocol Simple.
    """
    plan, steps = _run(path, topology, None)
    return Threads(plan, steps, TARGETS["msccl"], path, plan.workload.collectives[0].size_bytes)


def _run(path: str, topology: Topology, size: Size | None) -> tuple[Plan, list[ThreadStep]]:
    """A program as a plan, and its steps in the order in which they were executed.

    Args:
        size: by default a byte for each chunk, of a program for the protocol Simple.
    """
    root = parse_xml(read_text(path), path)
    if tag(root) != "algo":
        raise InputError("has no <algo>; is it MSCCL XML?", path)
    kind = KINDS.get(root.get("coll", ""))
    if kind is None:
        raise InputError(f"the coll {shown(root.get('coll'))} is none of {', '.join(sorted(KINDS))}", path)
    gpus = named(root, "gpu")
    n = len(topology.accelerators)
    if len(gpus) != n or [g.get("id") for g in gpus] != [str(r) for r in range(n)]:
        raise InputError(f"has {len(gpus)} gpus, and {topology.name} has {n} accelerators, gpu 0 to {n - 1}", path)
    loop = count(root.get("nchunksperloop"), "nchunksperloop", path, 1, MOST_CHUNKS)
    parts, rest = divmod(loop, n) if not BY_NAME[kind].whole else (loop, 0)
    if rest or parts < 1 or parts * n * n > MOST_CHUNKS:
        raise InputError(f"{loop} chunks do not go evenly into {n} ranks, or are too many", path)
    if size is None:
        if root.get("proto", "Simple") != "Simple":
            raise Unsupported(f"{path}: is for the protocol {shown(root.get('proto'))}; how Simple runs is known alone")
        size = Size(loop * n, None)
    collective = make_collective(
        kind, topology, size.full_bytes, shard_bytes=size.shard_bytes, root=_root(kind, gpus), chunks=parts
    )
    run = _Run(collective, parts, root.get("inplace") == "1", _threadblocks(gpus, path))
    run.run(path)
    routes = Routes(topology, path)
    chunk, sender, receiver, op, depends, own = zip(*run.rows, strict=True) if run.rows else ((),) * 6
    src, dst = (collective.ranks[list(ranks)].tolist() for ranks in (sender, receiver))
    message = as_sent(topology, run.message, list(chunk), src, dst)
    forwards = [int(bool(d) and not o and all(op[w] == REDUCE for w in d)) for d, o in zip(depends, own, strict=True)]
    plan = make_plan(
        topology, Workload((collective,)), "ready-order", chunk=chunk, src=src, op=op, dst=Ragged.single(dst),
        route=Ragged.of(list(map(routes.between, src, dst))), depends=Ragged.of(depends),
        forwards=forwards if any(forwards) else None, message=message, meta={"planner": "msccl", "imported": path},
        where=path,
    )  # fmt: skip
    return plan, run.log


def _root(kind: str, gpus: list[Any]) -> int:
    """The root of a rooted collective: the only gpu with chunks in the buffer that holds or gets all; else gpu 0."""
    traits = BY_NAME[kind]
    buffer = "i_chunks" if traits.held == "root" else "o_chunks"
    roots = [r for r, gpu in enumerate(gpus) if gpu.get(buffer, "0") not in ("0", "-1")] if traits.rooted else []
    return roots[0] if len(roots) == 1 else 0


def _threadblocks(gpus: list[Any], where: str) -> dict[tuple[int, int], _Block]:
    """The threadblocks by rank and id."""
    blocks: dict[tuple[int, int], _Block] = {}
    moves = 0
    for rank, gpu in enumerate(gpus):
        for block in named(gpu, "tb"):
            at = f"{where}, gpu {rank}, tb {shown(block.get('id'))}"
            key = (rank, count(block.get("id"), "id", at))
            if key in blocks:
                raise InputError("the id is given twice", at)
            send, receive = (count(block.get(e, "-1"), e, at, -1, len(gpus) - 1) for e in ("send", "recv"))
            steps = []
            for i, element in enumerate(named(block, "step")):
                steps.append(_step(element, f"{at}, step {i}"))
                moves += steps[-1].cnt
                if moves > MOST_MOVES:
                    raise InputError(f"moves more than {MOST_MOVES} chunks", steps[-1].at)
            blocks[key] = _Block(rank, send, receive, count(block.get("chan", "0"), "chan", at), steps)
    return blocks


def _step(element: Any, at: str) -> _Step:
    kind = element.get("type")
    if kind not in (*SENDS, *RECEIVES, "cpy", "re", "nop"):
        raise InputError(f"the type {shown(kind)} is no step", at)
    cnt = count(element.get("cnt", "1"), "cnt", at, 0)
    slot: dict[str, Slot] = {}
    for end in ("src", "dst"):
        buffer = element.get(f"{end}buf", "i")
        slot[end] = (buffer, count(element.get(f"{end}off", "-1"), f"{end}off", at, -1))
        if buffer not in ("i", "o", "s"):
            raise InputError(f"{end}buf {shown(buffer)} is none of i, o, s", at)
    block, step = (count(element.get(key, "-1"), key, at, -1) for key in ("depid", "deps"))
    return _Step(kind, cnt, slot["src"], slot["dst"], (block, step), at)


class _Run:
    """The state of a program that is being executed; ``rows`` are the columns of its transfers, ``message`` says which
    step sends each."""

    def __init__(
        self, collective: Collective, parts: int, inplace: bool, blocks: dict[tuple[int, int], _Block]
    ) -> None:
        self.collective, self.parts, self.inplace, self.blocks = collective, parts, inplace, blocks
        self.state: dict[tuple[int, str, int], _Content] = {}
        self.mail: dict[tuple[int, int, int], deque[list[int]]] = defaultdict(deque)
        self.rows: list[list[Any]] = []
        self.message: list[int] = []
        self.log: list[ThreadStep] = []
        self.number: dict[tuple[int, int, int], int] = {}  # the place in the log of a step of a threadblock of a rank
        self.thread = {key: i for i, key in enumerate(sorted(blocks, key=lambda key: (key[1], key[0])))}

    def run(self, where: str) -> None:
        """Execute all steps; Fault if no threadblock can go on, or messages are left over."""
        asleep: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
        peers = {key: (block.rank, block.send, block.receive, block.channel) for key, block in self.blocks.items()}
        awake = deque(sorted(peers, key=peers.__getitem__))  # as the numbers of threadblocks mean nothing
        while awake:
            key = awake.popleft()
            block = self.blocks[key]
            while block.done < len(block.steps):
                step = block.steps[block.done]
                blocked = self._blocked(block, step)
                if blocked:
                    asleep[blocked].append(key)
                    break
                after = (block.rank, *step.after)
                self.number[(*key, block.done)] = len(self.log)
                waits = (self.number[after],) if after in self.number else ()
                self.log.append(ThreadStep(self.thread[key], waits, *self._do(block, step)))
                block.done += 1
                awake.extend(asleep.pop(key, ()))
                if step.kind in SENDS:
                    awake.extend(asleep.pop((block.rank, block.send, block.channel), ()))
        for (rank, number), block in self.blocks.items():
            if block.done < len(block.steps):
                words = f"gets stuck: gpu {rank}, tb {number} waits for ever"
                raise Fault(words, None, "deadlock", block.steps[block.done].at)
        if any(self.mail.values()):
            raise Fault("sends what nobody receives", None, "left-over", where)

    def _blocked(self, block: _Block, step: _Step) -> tuple[int, ...]:
        """What a step waits for: a threadblock (rank, id), a message (sender, receiver, channel), or nothing."""
        number, place = step.after
        if number >= 0 and ((block.rank, number) not in self.blocks or self.blocks[block.rank, number].done <= place):
            return block.rank, number
        message = (block.receive, block.rank, block.channel)
        return message if step.kind in RECEIVES and not self.mail[message] else ()

    def _do(self, block: _Block, step: _Step) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Execute a step; the transfers that it sends and those that it receives."""
        rank, kind = block.rank, step.kind
        arrived: list[int] = []
        leaving: list[int] = []
        if kind == "nop":
            return (), ()
        if kind in RECEIVES:
            arrived = self.mail[block.receive, rank, block.channel].popleft()
            if len(arrived) != step.cnt:
                words = f"receives {step.cnt} chunks where {len(arrived)} were sent"
                raise Fault(words, None, "contents", step.at)
        for i in range(step.cnt):
            src, dst = ((buffer, offset + i) for buffer, offset in (step.src, step.dst))
            if kind in RECEIVES:
                content = _Content(self.rows[arrived[i]][0], (arrived[i],), False)
                if "rr" in kind:
                    base = self._find(rank, src)
                    if base is None or base.chunk != content.chunk:
                        base = self._content(rank, dst, step)
                    content = self._sum(base, content, step)
            else:
                content = self._content(rank, src, step)
                if kind == "re":
                    content = self._sum(self._content(rank, dst, step), content, step)
            if kind not in ("s", "rrs"):
                self.state[self._place(rank, dst)] = content
            if kind in SENDS:
                if block.send in (-1, rank):
                    raise InputError("sends, but its threadblock has no send peer", step.at)
                leaving.append(len(self.rows))
                self.message.append(len(self.log))
                self.rows.append([content.chunk, rank, block.send, COPY, content.writers, content.own])
        if kind in SENDS:
            self.mail[rank, block.send, block.channel].append(leaving)
        return tuple(leaving), tuple(arrived)

    def _place(self, rank: int, slot: Slot) -> tuple[int, str, int]:
        """The one name of a slot that has two, where input and output are one buffer ("in place")."""
        buffer, offset = slot
        traits = self.collective.traits
        if self.inplace and buffer == "i" and traits.held == "own":
            return rank, "o", offset + rank * self.parts
        if self.inplace and buffer == "o" and traits.held != "own":
            return rank, "i", offset + (rank * self.parts if traits.wanted == "own" else 0)
        return rank, buffer, offset

    def _content(self, rank: int, slot: Slot, step: _Step) -> _Content:
        found = self._find(rank, slot)
        if found is None:
            raise Fault(f"uses {slot[0]}[{slot[1]}], where nothing is", None, "contents", step.at)
        return found

    def _find(self, rank: int, slot: Slot) -> _Content | None:
        """What a slot holds: what was written last, or what the rank holds at first."""
        place = self._place(rank, slot)
        if place in self.state:
            return self.state[place]
        traits = self.collective.traits
        _, buffer, begin = self._place(rank, ("i", 0))
        piece, part = divmod(place[2] - begin, self.parts)
        pieces = traits.pieces_of(traits.held, rank, len(self.collective.ranks), self.collective.root)
        if place[1] != buffer or not 0 <= piece < len(pieces):
            return None
        return _Content(pieces[piece] * self.parts + part, (), True)

    def _sum(self, a: _Content, b: _Content, step: _Step) -> _Content:
        """The sum of two contents. The one that a single transfer brought turns this transfer into a reduction."""
        if len(b.writers) != 1 or b.own:
            a, b = b, a
        if a.chunk != b.chunk or len(b.writers) != 1 or b.own or not self.collective.reduces:
            raise Fault("adds what are not parts of one sum", None, "contents", step.at)
        self.rows[b.writers[0]][3] = REDUCE
        return _Content(a.chunk, (*a.writers, *b.writers), a.own)
