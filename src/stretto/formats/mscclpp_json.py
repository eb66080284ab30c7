"""The JSON of MSCCL++ execution plans, read as a program (:mod:`.mscclpp_program`): every reference is resolved.

What the keys mean is said by microsoft/mscclpp at 1f5f065d, src/core/executor/execution_plan.cc; what arrays hold, by
src/core/include/execution_common.hpp.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..model.errors import Fault, InputError
from ..model.targets import TARGETS
from ..topologies.values import count, entry, indexes, objects, parse_json, read_text, shown
from .mscclpp_program import MEMORY, PORT, SWITCH, Chunks, ExecutionPlan, Gpu, Operation
from .mscclpp_ranges import Place

MOST_OPERATIONS, MOST_CHANNELS = TARGETS["mscclpp"].steps, TARGETS["mscclpp"].channels
"""What a threadblock takes."""
MOST_AT_ONCE, MOST_ENTRIES, MOST_BARRIERS, MOST_SEMAPHORES = 8, 10, 16, 16
"""What the arrays of one operation hold: channels, entries of src_buff or dst_buff, semaphores; barriers of a rank."""
MOST_RANKS, MOST_CHUNKS = 4096, 1 << 20
SIMPLE = ("nop", "barrier", "signal", "wait", "rlxsignal", "rlxwait", "flush", "sem_acquire", "sem_release", "pipeline")
MOVING = (
    "copy", "cpkt", "upkt", "put", "pws", "pwsf", "ppkt", "rppkt", "get", "re", "res", "rre", "rres", "repkt", "respkt",
    "recpkt", "recspkt", "glres", "gstore", "gstorepkt",
)  # fmt: skip
UNKNOWN = {"glre": "a reduction by the switch that the switch does not store"}
"""What the DSL writes and the loader refuses."""


def read_program(path: str) -> ExecutionPlan:
    """The program of a plan's file.

    Raises:
        InputError: the file is no execution plan, or refers to what is not there.
        Fault: MSCCL++ itself could not load it, or has no room for it.
    """
    data = parse_json(read_text(path), path)
    if not isinstance(data, dict) or "gpus" not in data:
        raise InputError("has no 'gpus'; is it an execution plan of MSCCL++?", path)
    elements = objects(data, "gpus", path)
    if not 1 <= len(elements) <= MOST_RANKS:
        raise InputError(f"has {len(elements)} gpus, not 1 to {MOST_RANKS}", path)
    least, most = data.get("min_message_size", 0), data.get("max_message_size", 2**64 - 1)
    if not all(isinstance(x, int) and 0 <= x < 2**64 for x in (least, most)):
        raise InputError("min_message_size and max_message_size must be whole numbers of bytes", path)
    return ExecutionPlan(
        entry(data, "name", str, path), entry(data, "collective", str, path),
        [_Reader(path, rank, len(elements), element).gpu() for rank, element in enumerate(elements)],
        entry(data, "protocol", str, path), entry(data, "inplace", bool, path),
        entry(data, "reuse_resources", bool, path, False), entry(data, "use_double_scratch_buffer", bool, path, False),
        count(data.get("num_threads_per_block", 1024), "num_threads_per_block", path, 1),
        count(data.get("buffer_alignment", 16), "buffer_alignment", path, 1, 1 << 20), least, most,
    )  # fmt: skip


class _Block(NamedTuple):
    """What the operations of a threadblock refer to by number.

    Attributes:
        channels: by type, the places in the GPU's list.
        buffers: by type of channel, the remote buffers: rank and kind of memory.
        groups: the switch channels: kind of memory and ranks.
    """

    channels: dict[str, list[int]]
    buffers: dict[str, list[tuple[int, str]]]
    groups: list[tuple[str, list[int]]]


class _Reader:
    """Reads one GPU."""

    def __init__(self, path: str, rank: int, ranks: int, element: dict[str, Any]) -> None:
        self.path, self.rank, self.ranks, self.element, self.where = path, rank, ranks, element, f"{path}, gpu {rank}"
        if element.get("id") != rank:
            raise InputError(f"the id is {shown(element.get('id'))}, and its place in the list {rank}", self.where)
        self.groups: list[tuple[str, list[int]]] = []
        self.buffers = [
            (count(b.get("rank"), "rank", self.where, 0, ranks - 1), self._kind(b.get("type"), self.where))
            for b in objects(element, "remote_buffers", self.where)
        ]

    def gpu(self) -> Gpu:
        sizes = (count(self.element.get(f"{n}_chunks"), f"{n}_chunks", self.where, 0, MOST_CHUNKS)
                 for n in ("input", "output", "scratch"))  # fmt: skip
        inputs, outputs, scratch = sizes
        made = Gpu(inputs, outputs, scratch)
        for channel in objects(self.element, "channels", self.where):
            kind = channel.get("channel_type")
            if kind == SWITCH:
                buffer = self._kind(channel.get("buffer_type"), self.where)
                for group in objects(channel, "rank_groups", self.where):
                    ranks = indexes(group.get("ranks"), "ranks", 0, self.ranks, self.where)
                    self.groups.append((buffer, ranks))
            elif kind in (MEMORY, PORT):
                peers = indexes(channel.get("connected_to"), "connected_to", 0, self.ranks, self.where)
                (made.memory if kind == MEMORY else made.port).extend(peers)
            else:
                raise InputError(f"the channel_type {shown(kind)} is none of memory, port, switch", self.where)
        listed = objects(self.element, "semaphores", self.where) if "semaphores" in self.element else []
        made.semaphores = [count(s.get("init_value"), "init_value", self.where, -(10**9)) for s in listed]
        for i, block in enumerate(objects(self.element, "threadblocks", self.where)):
            made.blocks.append(self._threadblock(made, i, block))
        return made

    def _threadblock(self, gpu: Gpu, number: int, element: dict[str, Any]) -> list[Operation]:
        at = Place(self.rank, number)
        where = f"{self.path}, {at}"
        if element.get("id") != number:
            raise InputError(f"the id is {shown(element.get('id'))}, and its place in the list {number}", where)
        block = self._block(gpu, element, at, where)
        listed = objects(element, "ops", where)
        held = len(listed) + sum(len(e["ops"]) for e in listed if isinstance(e.get("ops"), list))
        self._limit(held, MOST_OPERATIONS, "operations (with those in loops)", at)
        return [self._operation(gpu, block, op, at._replace(operation=k)) for k, op in enumerate(listed)]

    def _block(self, gpu: Gpu, element: dict[str, Any], at: Place, where: str) -> _Block:
        block = _Block({MEMORY: [], PORT: []}, {MEMORY: [], PORT: []}, [])
        known: dict[str, list[Any]] = {MEMORY: gpu.memory, PORT: gpu.port, SWITCH: self.groups}
        for channel in objects(element, "channels", where):
            kind = channel.get("channel_type")
            if not isinstance(kind, str) or kind not in known:
                raise InputError(f"the channel_type {shown(kind)} is none of memory, port, switch", where)
            ids = indexes(channel.get("channel_ids"), "channel_ids", 0, len(known[kind]), where)
            if kind == SWITCH:
                block.groups.extend(self.groups[i] for i in ids)
            else:
                block.channels[kind].extend(ids)
        for refs in objects(element, "remote_buffer_refs", where) if "remote_buffer_refs" in element else []:
            kind = refs.get("access_channel_type")
            ids = indexes(refs.get("remote_buffer_ids"), "remote_buffer_ids", 0, len(self.buffers), where)
            if not isinstance(kind, str) or kind not in block.buffers:
                raise InputError(f"the access_channel_type {shown(kind)} is none of memory, port", where)
            block.buffers[kind].extend(self.buffers[i] for i in ids)
        for kind in (MEMORY, PORT):
            self._limit(len(block.channels[kind]), MOST_CHANNELS, f"{kind} channels", at)
            self._limit(len(block.buffers[kind]), MOST_CHANNELS, f"remote buffers of {kind} channels", at)
        self._limit(len(block.groups), MOST_CHANNELS, "switch channels", at)
        return block

    def _operation(self, gpu: Gpu, block: _Block, op: dict[str, Any], at: Place) -> Operation:
        name, where = op.get("name"), f"{self.path}, {at}"
        if not isinstance(name, str):
            raise InputError(f"there is no operation {shown(name)}", where)
        if name in UNKNOWN:
            raise Fault(f"the loader knows no operation {name!r}: {UNKNOWN[name]}", at, "load", self.path)
        if name not in SIMPLE and name not in MOVING:
            raise InputError(f"there is no operation {shown(name)}", where)
        if op.get("reduce_op", "sum") not in ("sum", "min", "max"):
            raise InputError(f"the reduce_op {shown(op['reduce_op'])} is none of sum, min, max", where)
        if op.get("reduce_op", "sum") != "sum":
            asked = f"asks for {op['reduce_op']}, and the executor does not read reduce_op: it sums"
            raise Fault(asked, at, "sum", self.path)
        made = Operation(name, via=str(op.get("channel_type", "")))
        if name == "pipeline":
            return self._loop(gpu, block, op, at)
        if name == "barrier":
            number = count(op.get("barrier_id"), "barrier_id", where, 0)
            self._limit(number + 1, MOST_BARRIERS, "barriers", at)
            return made._replace(barrier=number, blocks=count(op.get("num_threadblocks"), "num_threadblocks", where, 1))
        if name in ("sem_acquire", "sem_release"):
            ids = indexes(op.get("semaphore_ids"), "semaphore_ids", 0, len(gpu.semaphores), where)
            self._limit(len(ids), MOST_SEMAPHORES, "semaphores", at)
            return made._replace(semaphores=tuple(ids))
        if made.via in block.channels and "channel_ids" in op:
            known = block.channels[made.via]
            ids = indexes(op["channel_ids"], "channel_ids", 0, len(known), where)
            self._limit(len(ids), MOST_AT_ONCE, "channels", at)
            made = made._replace(channels=tuple(known[i] for i in ids))
        if name in SIMPLE:
            if name != "nop" and (made.via not in block.channels or "channel_ids" not in op):
                raise InputError("needs 'channel_ids', and a 'channel_type' of memory or port", where)
            return made
        ends = {side: self._ends(block, op, side, made.via, at, where) for side in ("src_buff", "dst_buff")}
        return made._replace(src=ends["src_buff"], dst=ends["dst_buff"], share=self._share(op, where))

    def _loop(self, gpu: Gpu, block: _Block, op: dict[str, Any], at: Place) -> Operation:
        where = f"{self.path}, {at}"
        context = entry(op, "iter_context", dict, where)
        inner = objects(op, "ops", where)
        if any(e.get("name") == "pipeline" for e in inner):
            raise InputError("has a loop in a loop", where)
        return Operation(
            "pipeline", unit=count(context.get("unit_size"), "unit_size", where, 1, 1 << 31),
            chunks=count(context.get("num_chunks"), "num_chunks", where, 0, MOST_CHUNKS),
            inner=tuple(self._operation(gpu, block, e, at._replace(inner=k)) for k, e in enumerate(inner)),
        )  # fmt: skip

    def _ends(
        self, block: _Block, op: dict[str, Any], side: str, via: str, at: Place, where: str
    ) -> tuple[Chunks, ...]:
        """The memory that one side names; a switch channel stands for that of all its ranks."""
        listed = objects(op, side, where)
        self._limit(len(listed), MOST_ENTRIES, f"entries of {side}", at)
        ends: list[Chunks] = []
        for e in listed:
            index, size = (count(e.get(key), key, where, 0, MOST_CHUNKS) for key in ("index", "size"))
            if "switch_channel_id" in e:
                number = indexes([e["switch_channel_id"]], "switch_channel_id", 0, len(block.groups), where)[0]
                kind, ranks = block.groups[number]
                ends += [Chunks(rank, kind, index, size) for rank in ranks]
            elif "buffer_id" in e:
                known = block.buffers.get(via, [])
                number = indexes([e["buffer_id"]], "buffer_id", 0, len(known), where)[0]
                ends.append(Chunks(*known[number], index, size))
            else:
                ends.append(Chunks(self.rank, self._kind(e.get("type"), where), index, size))
        return tuple(ends)

    def _share(self, op: dict[str, Any], where: str) -> tuple[int, int]:
        if "tbg_info" not in op:
            return 0, 1
        info = entry(op, "tbg_info", dict, where)
        parts = count(info.get("tbg_size"), "tbg_size", where, 1, 1 << 16)
        return count(info.get("tb_id"), "tb_id", where, 0, parts - 1), parts

    def _kind(self, text: Any, where: str) -> str:
        if text not in ("i", "o", "s"):
            raise InputError(f"the buffer {shown(text)} is none of i, o, s", where)
        return str(text)

    def _limit(self, held: int, most: int, what: str, at: Place) -> None:
        if held > most:
            raise Fault(f"has {held} {what}, and the executor's arrays hold {most}", at, "limit", self.path)
