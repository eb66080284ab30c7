"""What MSCCL++'s executor does with an execution plan, on NumPy buffers. Knows the format, and nothing of stretto.

Source: microsoft/mscclpp, src/core/executor/execution_plan.cc and src/core/include/execution_kernel.hpp.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field

import numpy as np

KEYS = {
    "plan": {"name", "collective", "protocol", "inplace", "gpus"},
    "gpu": {"id", "input_chunks", "output_chunks", "scratch_chunks", "channels", "remote_buffers", "threadblocks"},
    "threadblock": {"id", "ops", "channels"},
    "remote buffer": {"rank", "type", "access_channel_types"},
}
"""What execution_plan.cc reads without a default (microsoft/mscclpp, src/core/executor)."""
COUNTS = {"signal", "wait", "sem_acquire", "sem_release"}
MOVES = {"copy", "put", "pws", "pwsf", "re", "res"}
TYPES = {"memory", "port"}
MOST_OPERATIONS, MOST_CHANNELS, MOST_SEMAPHORES_OF_A_STEP, MOST_ID = 64, 16, 16, 255
"""MAX_OPERATION, MAX_CHANNEL and MAX_DEVICE_SEMAPHORES of execution_common.hpp; ids are bytes there."""
MOST_CHANNELS_OF_A_STEP, MOST_BUFFERS_OF_A_STEP = 8, 10
"""MAX_CHANNEL_PER_OPERATION there, and two more."""


def check_loads(plan: dict) -> None:
    """What MSCCL++'s loader and executor require of a plan: those keys, known words, and its arrays' lengths."""
    assert KEYS["plan"] <= set(plan) and plan["protocol"] in ("Simple", "LL") and plan["inplace"] in (True, False)
    ends = Counter()
    for rank, gpu in enumerate(plan["gpus"]):
        assert KEYS["gpu"] <= set(gpu) and gpu["id"] == rank
        assert gpu["input_chunks"] > 0 and gpu["output_chunks"] > 0, "checkMessageSize divides by both"
        assert all(c["channel_type"] in TYPES and rank not in c["connected_to"] for c in gpu["channels"])
        ends.update((rank, p, c["channel_type"]) for c in gpu["channels"] for p in c["connected_to"])
        channels = {c["channel_type"]: len(c["connected_to"]) for c in gpu["channels"]}
        for buffer in gpu["remote_buffers"]:
            assert KEYS["remote buffer"] <= set(buffer) and buffer["type"] in ("i", "o", "s")
        assert [b["id"] for b in gpu["threadblocks"]] == list(range(len(gpu["threadblocks"])))
        for block in gpu["threadblocks"]:
            assert KEYS["threadblock"] <= set(block) and len(block["ops"]) <= MOST_OPERATIONS
            ids = {c["channel_type"]: c["channel_ids"] for c in block["channels"]}
            buffers = {b["access_channel_type"]: b["remote_buffer_ids"] for b in block["remote_buffer_refs"]}
            assert all(len(own) <= MOST_CHANNELS for own in (*ids.values(), *buffers.values()))
            assert all(set(own) <= set(range(channels[t])) for t, own in ids.items())
            for t, own in buffers.items():
                assert all(t in gpu["remote_buffers"][i]["access_channel_types"] for i in own)
            for op in block["ops"]:
                check_operation(op, gpu, ids, buffers)
    assert all(ends[a, b, t] == ends[b, a, t] for a, b, t in ends), "channels have two ends"


def check_operation(op: dict, gpu: dict, channels: dict, buffers: dict) -> None:
    """One operation: a known name, and references within what its threadblock and GPU have."""
    assert op["name"] in COUNTS | MOVES | {"nop"}
    own = len(channels.get(op.get("channel_type"), ()))
    assert all(0 <= i < min(own, MOST_ID) for i in op.get("channel_ids", ()))
    assert len(op.get("channel_ids", ())) <= MOST_CHANNELS_OF_A_STEP
    assert len(op.get("semaphore_ids", ())) <= MOST_SEMAPHORES_OF_A_STEP
    assert all(0 <= i < len(gpu["semaphores"]) for i in op.get("semaphore_ids", ()))
    assert ("channel_ids" in op) == (op["name"] in ("signal", "wait", "pws", "pwsf"))
    assert (op.get("channel_type") in TYPES) == (op["name"] in ("signal", "wait", "put", "pws", "pwsf", "res"))
    assert op["name"] not in ("pws", "pwsf") or op["channel_type"] == "port", "on a memory channel they do not signal"
    assert op["name"] not in ("put", "res") or op["channel_type"] == "memory"
    sizes = {"i": gpu["input_chunks"], "o": gpu["output_chunks"], "s": gpu["scratch_chunks"]}
    for refs in (op.get("src_buff", ()), op.get("dst_buff", ())):
        assert len(refs) <= MOST_BUFFERS_OF_A_STEP
        for ref in refs:
            assert ("type" in ref) != ("buffer_id" in ref) and ref["size"] >= 1 and ref["index"] >= 0
            assert ref["size"] == op["src_buff"][0]["size"], "what an operation reads and writes is equally large"
            if "buffer_id" in ref:
                assert 0 <= ref["buffer_id"] < len(buffers[op["channel_type"]])
            else:
                assert ref["index"] + ref["size"] <= sizes[ref["type"]]


@dataclass
class Machine:
    """Memory, counters and what proxies have yet to send."""

    plan: dict
    memory: list[dict[str, np.ndarray]]
    counters: Counter = field(default_factory=Counter)
    sending: dict[tuple[int, int], deque] = field(default_factory=lambda: defaultdict(deque))
    ends: dict = field(default_factory=dict)
    waiting: dict = field(default_factory=lambda: defaultdict(list))
    ready: list = field(default_factory=list)

    def __post_init__(self) -> None:
        """The k-th channel of a type from one rank to another is joined with the k-th of that type back."""
        places = defaultdict(list)
        for rank, gpu in enumerate(self.plan["gpus"]):
            self.counters.update({(rank, "s", i): s["init_value"] for i, s in enumerate(gpu["semaphores"])})
            for c in gpu["channels"]:
                for place, peer in enumerate(c["connected_to"]):
                    places[rank, peer, c["channel_type"]].append(place)
        for (rank, peer, t), own in places.items():
            for place, other in zip(own, places[peer, rank, t], strict=True):
                self.ends[rank, t, place] = (peer, t, other)

    def lower(self, keys: list, block: list) -> bool:
        """Lower counters, if all are above 0; else the block waits for one that is not."""
        for key in keys:
            if self.counters[key] <= 0:
                self.waiting[key].append(block)
                return False
        for key in keys:
            self.counters[key] -= 1
        return True

    def lift(self, key: tuple) -> None:
        """Raise a counter; who waits for it may try again."""
        self.counters[key] += 1
        self.ready += self.waiting.pop(key, ())

    def send(self, queue: tuple[int, int]) -> None:
        """A proxy carries out the oldest trigger of a port channel."""
        self.sending[queue].popleft()()


def check(plan: dict, kind: str, ranks: int, parts: int, seed: int) -> None:
    """Run a plan of ``parts`` chunks to a piece on random numbers, and compare with what the collective means."""
    rows = parts if kind in ("allgather", "allreduce", "broadcast", "reduce") else ranks * parts
    copies, rest = divmod(plan["gpus"][0]["input_chunks"], rows)  # a chunk is cut where the program runs several times
    assert rest == 0
    k, rows = parts * copies, rows * copies
    inputs = [np.random.default_rng(seed + r).integers(0, 10**6, (rows, 3)) for r in range(ranks)]
    total = sum(inputs)
    for r, output in enumerate(execute(plan, inputs, seed)):
        wanted = {
            "allgather": lambda: np.concatenate(inputs),
            "allreduce": lambda: total,
            "reduce": lambda r=r, output=output: total if r == 0 else output,
            "broadcast": lambda: inputs[0],
            "reducescatter": lambda r=r: total[r * k : (r + 1) * k],
            "alltoall": lambda r=r: np.concatenate([i[r * k : (r + 1) * k] for i in inputs]),
        }[kind]()
        np.testing.assert_array_equal(output, wanted)


def execute(plan: dict, inputs: list[np.ndarray], seed: int, in_place: bool = False) -> list[np.ndarray]:
    """Outputs of all ranks; threadblocks and proxies take turns at random.

    The plan runs twice, with other data before; a rank begins its second run when its own threadblocks have ended.
    """
    check_loads(plan)
    rng, ranks = random.Random(seed), len(inputs)
    machine = Machine(plan, [_buffers(gpu, in_place) for gpu in plan["gpus"]])
    outputs: list[list[np.ndarray]] = [[] for _ in range(ranks)]
    left = [0] * ranks
    for rank in range(ranks):
        _begin(machine, rank, -7 - inputs[rank], left)
    while machine.ready or any(machine.sending.values()):
        if not machine.ready or rng.random() < 0.2:
            queues = [queue for queue, triggers in machine.sending.items() if triggers]
            if queues:
                machine.send(rng.choice(queues))
            continue
        place = int(rng.random() * len(machine.ready))
        state = machine.ready[place]
        machine.ready[place] = machine.ready[-1]
        machine.ready.pop()
        rank, block = state[:2]
        for _ in range(1 + int(rng.random() * 3)):
            if state[2] == len(block["ops"]) or not run(machine, state):
                break
            state[2] += 1
        else:
            machine.ready.append(state)
            continue
        if state[2] < len(block["ops"]):
            continue  # it waits
        left[rank] -= 1
        if left[rank]:
            continue
        outputs[rank].append(machine.memory[rank]["o"].copy())
        if len(outputs[rank]) == 1:
            machine.memory[rank]["o"][:] = -5
            _begin(machine, rank, inputs[rank], left)
    assert all(len(own) == 2 for own in outputs), "threadblocks wait for what never comes"
    for queue in list(machine.sending):
        while machine.sending[queue]:
            machine.send(queue)
    initial = {(r, "s", i): s["init_value"] for r, g in enumerate(plan["gpus"]) for i, s in enumerate(g["semaphores"])}
    assert machine.counters == Counter(initial), "all is back as it was, for the next run"
    for rank in range(ranks):
        assert np.array_equal(machine.memory[rank]["o"], outputs[rank][1]), "nothing comes after a rank's end"
    return [own[1] for own in outputs]


def _buffers(gpu: dict, in_place: bool) -> dict[str, np.ndarray]:
    sizes = {"i": gpu["input_chunks"], "o": gpu["output_chunks"], "s": gpu["scratch_chunks"]}
    buffers = {b: np.full((n, 3), -1, dtype=np.int64) for b, n in sizes.items()}
    if in_place:
        assert sizes["i"] == sizes["o"]
        buffers["o"] = buffers["i"]
    return buffers


def _begin(machine: Machine, rank: int, data: np.ndarray, left: list[int]) -> None:
    machine.memory[rank]["i"][: len(data)] = data
    blocks = [block for block in machine.plan["gpus"][rank]["threadblocks"] if block["ops"]]
    left[rank] = len(blocks)
    machine.ready += [[rank, block, 0] for block in blocks]


def run(machine: Machine, state: list) -> bool:
    """The next operation of a threadblock, where it can go on."""
    rank, block, at = state
    op, gpu = block["ops"][at], machine.plan["gpus"][rank]
    if op["name"] == "nop":
        return True
    lists = {c["channel_type"]: c["channel_ids"] for c in block["channels"]}
    kind = op.get("channel_type")
    channels = [lists[kind][i] for i in op.get("channel_ids", ())]

    def place(ref: dict) -> np.ndarray:
        owner, buffer = rank, ref.get("type")
        if "buffer_id" in ref:
            refs = {b["access_channel_type"]: b["remote_buffer_ids"] for b in block["remote_buffer_refs"]}
            far = gpu["remote_buffers"][refs[kind][ref["buffer_id"]]]
            owner, buffer = far["rank"], far["type"]
            assert all(machine.ends[rank, kind, c][0] == owner for c in channels), (
                "what is put goes where its channel goes"
            )
        found = machine.memory[owner][buffer][ref["index"] : ref["index"] + ref["size"]]
        assert len(found) == ref["size"], "it lies within the buffer"
        return found

    if op["name"] == "wait":
        return machine.lower([(rank, kind, c) for c in channels], state)
    if op["name"] == "sem_acquire":
        return machine.lower([(rank, "s", i) for i in op["semaphore_ids"]], state)
    if op["name"] == "sem_release":
        for i in op["semaphore_ids"]:
            machine.lift((rank, "s", i))
    elif op["name"] == "signal":
        for c in channels:
            _signal(machine, rank, kind, c)
    elif op["name"] in ("pws", "pwsf"):
        return _send_by_proxy(machine, rank, op, channels[0], place)
    elif op["name"] == "put":
        assert len({ref["type"] for ref in op["src_buff"]}) == 1, "the kernel takes the buffer of the first source"
        for source, target in zip(op["src_buff"], op["dst_buff"], strict=True):
            place(target)[:] = place(source)
    else:
        parts = [place(ref) for ref in op["src_buff"]]
        total = sum(parts[1:], parts[0].copy())
        for target in map(place, op["dst_buff"]):
            target[:] = total
    return True


def _signal(machine: Machine, rank: int, kind: str, channel: int) -> None:
    """Raise the counter at the other end, behind what a proxy has yet to send."""
    end = machine.ends[rank, kind, channel]
    if kind == "port":
        machine.sending[rank, channel].append(lambda: machine.lift(end))
    else:
        machine.lift(end)


def _send_by_proxy(machine: Machine, rank: int, op: dict, channel: int, place) -> bool:
    """A put that a proxy carries out later, and the signal after it; with a flush, all of the queue now."""
    queue = machine.sending[rank, channel]
    src, dst = place(op["src_buff"][0]), place(op["dst_buff"][0])

    def put() -> None:
        dst[:] = src

    queue.append(put)
    _signal(machine, rank, "port", channel)
    if op["name"] == "pwsf":
        while queue:
            machine.send((rank, channel))
    return True
