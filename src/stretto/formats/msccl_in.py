"""MSCCL XML, read: the program is executed on symbolic chunks, and each message becomes a transfer.

The reader tracks which transfers filled each slot, so the plan says what the program really does, and the
verifier judges it like any other plan. The file does not name links: a message takes the shortest route
that stores nowhere. As in the runtimes, ``rrc`` adds to the rank's own slot.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any

from ..model.arrays import Ragged
from ..model.collective import Collective, Workload, make_collective
from ..model.errors import InputError
from ..model.kinds import BY_NAME
from ..model.plan import COPY, REDUCE, Plan, make_plan
from ..model.topology import Topology
from ..topologies.values import count, named, parse_xml, read_text, shown, tag
from . import Size
from .routes import Routes

KINDS = {"reduce_scatter": "reducescatter", "reducescatter": "reducescatter"} | {
    kind: kind for kind in ("allgather", "allreduce", "alltoall", "broadcast", "reduce")
}
SENDS = ("s", "rcs", "rrs", "rrcs")
RECEIVES = ("r", "rcs", "rrc", "rrs", "rrcs")
MOST_CHUNKS, MOST_MOVES = 2_000_000, 2_000_000


@dataclass(frozen=True)
class _Content:
    """What a slot holds: a chunk, the transfers that wrote it, and whether it includes the rank's own data."""

    chunk: int
    writers: tuple[int, ...]
    own: bool


def read(path: str, topology: Topology, size: Size) -> Plan:
    """The plan of a program.

    Args:
        size: the size of the collective, which the file does not give.
    Raises:
        InputError: the file is no program, has another number of ranks, deadlocks, or moves data that is not there.
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
    collective = make_collective(kind, topology, size.full_bytes, shard_bytes=size.shard_bytes, chunks=parts)
    run = _Run(topology, collective, parts, root.get("inplace") == "1", path)
    run.load(gpus)
    run.run()
    return run.plan({"planner": "msccl", "imported": path})


class _Run:
    """The state of a program that is being executed."""

    def __init__(self, topology: Topology, collective: Collective, parts: int, inplace: bool, where: str) -> None:
        self.topology, self.collective, self.parts, self.where = topology, collective, parts, where
        self.inplace, self.n = inplace, len(collective.ranks)
        self.blocks: dict[tuple[int, int], tuple[int, int, int, list[dict[str, Any]]]] = {}
        self.state: dict[tuple[int, str, int], _Content] = {}
        self.mail: dict[tuple[int, int, int], deque[list[int]]] = defaultdict(deque)
        self.done: dict[tuple[int, int], int] = {}
        self.rows: list[list[Any]] = []
        self.moves = 0

    def load(self, gpus: list[Any]) -> None:
        """Read the threadblocks."""
        for rank, gpu in enumerate(gpus):
            for block in named(gpu, "tb"):
                at = f"{self.where}, gpu {rank}, tb {shown(block.get('id'))}"
                key = (rank, count(block.get("id"), "id", at))
                if key in self.blocks:
                    raise InputError("the id is given twice", at)
                ends = [count(block.get(e, "-1"), e, at, -1, self.n - 1) for e in ("send", "recv")]
                steps = [self._step(step, f"{at}, step {i}") for i, step in enumerate(named(block, "step"))]
                self.blocks[key] = (ends[0], ends[1], count(block.get("chan", "0"), "chan", at), steps)
                self.done[key] = 0

    def _step(self, element: Any, at: str) -> dict[str, Any]:
        kind = element.get("type")
        if kind not in (*SENDS, *RECEIVES, "cpy", "re", "nop"):
            raise InputError(f"the type {shown(kind)} is no step", at)
        step: dict[str, Any] = {"kind": kind, "at": at, "cnt": count(element.get("cnt", "1"), "cnt", at, 0)}
        for end in ("src", "dst"):
            step[end] = (element.get(f"{end}buf", "i"), count(element.get(f"{end}off", "-1"), f"{end}off", at, -1))
            if step[end][0] not in ("i", "o", "s"):
                raise InputError(f"{end}buf {shown(step[end][0])} is none of i, o, s", at)
        step["after"] = tuple(count(element.get(k, "-1"), k, at, -1) for k in ("depid", "deps"))
        self.moves += step["cnt"]
        if self.moves > MOST_MOVES:
            raise InputError(f"moves more than {MOST_MOVES} chunks", at)
        return step

    def run(self) -> None:
        """Execute all steps.

        Raises:
            InputError: no threadblock can go on, or messages are left over.
        """
        asleep: dict[Any, list[tuple[int, int]]] = defaultdict(list)
        awake = deque(self.blocks)
        while awake:
            key = awake.popleft()
            send, _, channel, steps = self.blocks[key]
            while self.done[key] < len(steps):
                step = steps[self.done[key]]
                blocked = self._blocked(key, step)
                if blocked is not None:
                    asleep[blocked].append(key)
                    break
                self._do(key, step)
                self.done[key] += 1
                awake.extend(asleep.pop(("done", *key), ()))
                if step["kind"] in SENDS:
                    awake.extend(asleep.pop(("mail", key[0], send, channel), ()))
        stuck = [key for key, b in self.blocks.items() if self.done[key] < len(b[3])]
        if stuck:
            rank, block = stuck[0]
            at = self.blocks[stuck[0]][3][self.done[stuck[0]]]["at"]
            raise InputError(f"gets stuck: gpu {rank}, tb {block} waits for ever", at)
        if any(self.mail.values()):
            raise InputError("sends what nobody receives", self.where)

    def _blocked(self, key: tuple[int, int], step: dict[str, Any]) -> tuple[Any, ...] | None:
        """What a step waits for, None if it can run."""
        block, place = step["after"]
        if block >= 0 and self.done.get((key[0], block), -1) <= place:
            return ("done", key[0], block)
        _, receive, channel, _ = self.blocks[key]
        if step["kind"] in RECEIVES and not self.mail[receive, key[0], channel]:
            return ("mail", receive, key[0], channel)
        return None

    def _do(self, key: tuple[int, int], step: dict[str, Any]) -> None:
        rank, kind = key[0], step["kind"]
        send, receive, channel, _ = self.blocks[key]
        if kind == "nop":
            return
        if kind in RECEIVES:
            message = self.mail[receive, rank, channel].popleft()
            if len(message) != step["cnt"]:
                raise InputError(f"receives {step['cnt']} chunks where {len(message)} were sent", step["at"])
        leaving: list[int] = []
        for i in range(step["cnt"]):
            src, dst = ((buffer, offset + i) for buffer, offset in (step["src"], step["dst"]))
            if kind in RECEIVES:
                row = message[i]
                content = self._added(rank, row, src, dst, step) if "rr" in kind else self._received(rank, row)
                if kind != "rrs":
                    self.state[self._slot(rank, dst)] = content
            else:
                content = self._content(rank, src, step)
                if kind == "cpy":
                    self.state[self._slot(rank, dst)] = content
                elif kind == "re":
                    self.state[self._slot(rank, dst)] = self._sum(self._content(rank, dst, step), content, step)
            if kind in SENDS:
                leaving.append(self._send(rank, send, content, step))
        if kind in SENDS:
            self.mail[rank, send, channel].append(leaving)

    def _slot(self, rank: int, slot: tuple[str, int]) -> tuple[int, str, int]:
        """The one name of a slot that has two, where input and output are one buffer ("in place")."""
        buffer, offset = slot
        traits = self.collective.traits
        if self.inplace and buffer == "i" and traits.held == "own":
            return rank, "o", offset + rank * self.parts
        if self.inplace and buffer == "o" and traits.held != "own":
            return rank, "i", offset + (rank * self.parts if traits.wanted == "own" else 0)
        return rank, buffer, offset

    def _content(self, rank: int, slot: tuple[str, int], step: dict[str, Any]) -> _Content:
        place = self._slot(rank, slot)
        found = self.state.get(place) or self._initial(*place)
        if found is None:
            raise InputError(f"uses {slot[0]}[{slot[1]}], where nothing is", step["at"])
        return found

    def _initial(self, rank: int, buffer: str, offset: int) -> _Content | None:
        """What a rank holds at first."""
        traits, parts = self.collective.traits, self.parts
        if self.inplace and buffer == "o" and traits.held == "own":
            buffer, offset = "i", offset - rank * parts
        pieces = traits.input_pieces(rank, self.n, self.collective.root)
        if buffer != "i" or not 0 <= offset < parts * len(pieces):
            return None
        return _Content(pieces[offset // parts] * parts + offset % parts, (), True)

    def _send(self, rank: int, peer: int, content: _Content, step: dict[str, Any]) -> int:
        if peer < 0 or peer == rank:
            raise InputError("sends, but its threadblock has no send peer", step["at"])
        a, b = int(self.collective.ranks[rank]), int(self.collective.ranks[peer])
        self.rows.append([content.chunk, a, b, COPY, content.writers])
        return len(self.rows) - 1

    def _received(self, rank: int, row: int) -> _Content:
        return _Content(self.rows[row][0], (row,), False)

    def _added(self, rank: int, row: int, src: tuple[str, int], dst: tuple[str, int], step: dict[str, Any]) -> _Content:
        """The sum of a message and the rank's own slot."""
        base = self.state.get(self._slot(rank, src)) or self._initial(*self._slot(rank, src))
        if base is None or base.chunk != self.rows[row][0]:
            base = self._content(rank, dst, step)
        return self._sum(base, self._received(rank, row), step)

    def _sum(self, a: _Content, b: _Content, step: dict[str, Any]) -> _Content:
        """The sum of two contents. The one that a single transfer brought turns this transfer into a reduction."""
        if len(b.writers) != 1 or b.own:
            a, b = b, a
        if a.chunk != b.chunk or len(b.writers) != 1 or b.own or not self.collective.reduces:
            raise InputError("adds what are not parts of one sum", step["at"])
        self.rows[b.writers[0]][3] = REDUCE
        return _Content(a.chunk, (*a.writers, *b.writers), a.own)

    def plan(self, meta: dict[str, Any]) -> Plan:
        routes = Routes(self.topology, self.where)
        chunk, src, dst, op, depends = zip(*self.rows, strict=True) if self.rows else ((),) * 5
        return make_plan(
            self.topology, Workload((self.collective,)), "ready-order",
            chunk=chunk, src=src, op=op, dst=Ragged.single(dst),
            route=Ragged.of([routes.between(a, b) for a, b in zip(src, dst, strict=True)]),
            depends=Ragged.of(depends), meta=meta, where=self.where,
        )  # fmt: skip
