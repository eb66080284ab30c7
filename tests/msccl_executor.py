"""Runs MSCCL XML on NumPy buffers in random legal orders. Knows the format, and nothing of stretto."""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from xml.etree import ElementTree

import numpy as np


class Stuck(Exception):
    """No threadblock can go on, or something in the file is not as runtimes want it."""


def need(fact: bool, words: str) -> None:
    if not fact:
        raise Stuck(words)


def check(text: str, kind: str, n: int, chunks: int, seed: int) -> None:
    """Run a program on random numbers, ``chunks`` to a piece, and compare with what the collective means."""
    rng = np.random.default_rng(seed)
    rows = {"allgather": 1, "reducescatter": n, "alltoall": n}.get(kind, 1) * chunks
    inputs = [rng.integers(0, 10**6, (rows if kind != "broadcast" or r == 0 else 0, 3)) for r in range(n)]
    outputs = execute(text, inputs, seed)
    total = sum(inputs) if kind in ("allreduce", "reduce", "reducescatter") else None
    for r in range(n):
        wanted = {
            "allgather": lambda: np.concatenate(inputs),
            "allreduce": lambda: total,
            "reduce": lambda r=r: total if r == 0 else np.zeros((0, 3)),
            "reducescatter": lambda r=r: total[r * chunks : (r + 1) * chunks],
            "broadcast": lambda: inputs[0],
            "alltoall": lambda r=r: np.concatenate([i[r * chunks : (r + 1) * chunks] for i in inputs]),
        }[kind]()
        np.testing.assert_array_equal(outputs[r], wanted)


def execute(text: str, inputs: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """The outputs of all ranks; ``inputs`` has a row a chunk."""
    algo = ElementTree.fromstring(text)
    ranks = int(algo.get("ngpus"))
    need(algo.get("minBytes") is not None and int(algo.get("maxBytes")) > 0, "minBytes and maxBytes are needed")
    need(int(algo.get("nchannels")) <= 32, "at most 32 channels")
    width = inputs[0].shape[1]
    memory, blocks = [], {}
    for rank, gpu in enumerate(algo.findall("gpu")):
        need(int(gpu.get("id")) == rank, "gpus in order")
        sizes = {b: int(gpu.get(f"{b}_chunks")) for b in "ios"}
        for end in ("send", "recv"):
            peers = Counter(block.get("chan") for block in gpu.findall("tb") if int(block.get(end)) >= 0)
            need(max(peers.values(), default=0) <= 32, "at most 32 peers of a channel")
        need(all(int(step.get("cnt")) < 72 for step in gpu.iter("step")), "fewer than 72 parts in a step")
        need(sizes["i"] == len(inputs[rank]), f"rank {rank} has {sizes['i']} input chunks")
        own = {b: np.full((n, width), -(10**9), dtype=np.int64) for b, n in sizes.items()}
        own["i"][:] = inputs[rank]
        memory.append(own)
        for number, block in enumerate(gpu.findall("tb")):
            need(int(block.get("id")) == number, "threadblocks in order")
            steps = block.findall("step")
            need(len(steps) <= 256, "at most 256 steps")
            need([int(s.get("s")) for s in steps] == list(range(len(steps))), "steps in order")
            blocks[rank, number] = (int(block.get("send")), int(block.get("recv")), int(block.get("chan")), steps)
    need(len(memory) == ranks, "a gpu for each rank")
    ends = [(r, b[0], b[2]) for (r, _), b in blocks.items() if b[0] >= 0]
    froms = [(b[1], r, b[2]) for (r, _), b in blocks.items() if b[1] >= 0]
    need(len(set(ends)) == len(ends) and sorted(ends) == sorted(froms), "each connection has one block at each end")
    mail, done = defaultdict(deque), dict.fromkeys(blocks, 0)
    rng, todo = random.Random(seed), sum(len(b[3]) for b in blocks.values())
    before = [m["i"].copy() for m in memory]
    active = [key for key, b in blocks.items() if b[3]]
    while todo:
        rng.shuffle(active)
        moved = 0
        for key in active:
            for _ in range(rng.randint(1, 4)):
                moved += done[key] < len(blocks[key][3]) and _step(key, blocks, memory, mail, done)
        todo -= moved
        need(moved > 0, "no threadblock can go on")
        active = [key for key in active if done[key] < len(blocks[key][3])]
    need(not any(mail.values()), "messages are left over")
    need(all((m["i"] == b).all() for m, b in zip(memory, before)), "an input was written")
    return [m["o"] for m in memory]


def _step(key, blocks, memory, mail, done) -> bool:
    rank, _ = key
    send, receive, channel, steps = blocks[key]
    step = steps[done[key]]
    kind, n = step.get("type"), int(step.get("cnt"))
    waits, place = int(step.get("depid")), int(step.get("deps"))
    if waits >= 0:
        need(blocks[rank, waits][3][place].get("hasdep") == "1", "a step waited for must say hasdep")
        if done[rank, waits] <= place:
            return False
    source = memory[rank][step.get("srcbuf")], int(step.get("srcoff"))
    target = memory[rank][step.get("dstbuf")], int(step.get("dstoff"))
    if kind in ("cpy", "s", "re"):
        need(source[1] >= 0 and source[1] + n <= len(source[0]), "source within its buffer")
        data = source[0][source[1] : source[1] + n].copy()
        need(kind != "s" or send >= 0, "a block that sends has a peer")
    if kind in ("r", "rrc"):
        if not mail[receive, rank, channel]:
            return False
        data = mail[receive, rank, channel].popleft()
        if kind == "rrc":
            need(source[1] >= 0 and source[1] + n <= len(source[0]), "source within its buffer")
            data = data + source[0][source[1] : source[1] + n]
    if kind == "s":
        mail[rank, send, channel].append(data)
    elif kind != "nop":
        need(kind in ("cpy", "r", "rrc", "re"), f"step {kind} is known")
        need(target[1] >= 0 and target[1] + n <= len(target[0]) and len(data) == n, "target within its buffer")
        target[0][target[1] : target[1] + n] = data + (target[0][target[1] : target[1] + n] if kind == "re" else 0)
    done[key] += 1
    return True
