"""Runs MSCCL XML by the clock, one event after the other. Knows the runtime's source, and nothing of stretto.

As in rccl's src/device/msccl_kernel_impl.h: each threadblock repeats its steps for every 2 MiB of a chunk, waits for the
same repetition of a step of another threadblock, and finds room for two messages in the buffer of its peer.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable
from xml.etree import ElementTree

PASS_BYTES, MESSAGES = 2 << 20, 2


def seconds(text: str, size_bytes: int, link: Callable[[int, int], tuple[float, float, float]]) -> float:
    """When the last threadblock ends.

    Args:
        link: bandwidth, latency and what a message costs from a rank to another, each over a link of its own.
    """
    algo = ElementTree.fromstring(text)
    chunk_bytes = -(-size_bytes // int(algo.get("nchunksperloop")))
    together = max(1, PASS_BYTES // chunk_bytes)
    passes = -(-chunk_bytes // PASS_BYTES)
    blocks, place = {}, {}
    for rank, gpu in enumerate(algo.findall("gpu")):
        for block in gpu.findall("tb"):
            steps = [step for n in range(passes) for step in _messages(block, n, together)]
            blocks[rank, int(block.get("id"))] = (block, steps)
            place |= {(rank, int(block.get("id")), key): i for i, (key, *_) in enumerate(steps)}
    at = dict.fromkeys(blocks, 0)
    done: dict[tuple, float] = {}
    sent, received = defaultdict(list), defaultdict(list)
    free = defaultdict(float)
    asleep = defaultdict(list)
    heap = [(0.0, key) for key in sorted(blocks)]
    end = 0.0
    while heap:
        now, key = heapq.heappop(heap)
        rank, (block, steps) = key[0], blocks[key]
        if at[key] == len(steps):
            end = max(end, now)
            continue
        name, kind, cnt, wait = steps[at[key]]
        out = (rank, int(block.get("send")), block.get("chan"))
        into = (int(block.get("recv")), rank, block.get("chan"))
        needs = []
        if wait is not None:
            needs.append(("done", (rank, *wait)))
        if kind == "s" and len(sent[out]) >= MESSAGES:
            needs.append(("received", (out, len(sent[out]) - MESSAGES)))
        if kind in ("r", "rrc"):
            needs.append(("arrived", (into, len(received[into]))))
        missing = next((need for need in needs if need not in done), None)
        if missing is not None:
            asleep[missing].append(key)
            continue
        ready = max([now, *(done[need] for need in needs)])
        if ready > now:
            heapq.heappush(heap, (ready, key))
            continue
        happened = [("done", (*key, name))]
        after = now
        if kind == "s":
            bandwidth, latency, message = link(out[0], out[1])
            begin = max(now, free[out[:2]])
            part = min(PASS_BYTES, chunk_bytes - name[0] * PASS_BYTES)
            free[out[:2]] = after = begin + cnt * part / bandwidth + message
            done["arrived", (out, len(sent[out]))] = after + latency
            happened.append(("arrived", (out, len(sent[out]))))
            sent[out].append(after)
        elif kind in ("r", "rrc"):
            happened.append(("received", (into, len(received[into]))))
            received[into].append(now)
        at[key] += 1
        heapq.heappush(heap, (after, key))
        for what in happened:
            done.setdefault(what, after)
            for other in asleep.pop(what, ()):
                heapq.heappush(heap, (max(now, done[what]), other))
    assert all(at[key] == len(blocks[key][1]) for key in blocks), "no threadblock can go on"
    return end


def _messages(block: ElementTree.Element, number: int, together: int) -> list[tuple]:
    """The steps of a repetition, with one for each message: its name, kind, chunks, and the step that it waits for."""
    found = []
    for step in block.findall("step"):
        s, cnt = int(step.get("s")), max(1, int(step.get("cnt")))
        other = int(step.get("depid")), int(step.get("deps"))
        for begin in range(0, cnt, together):
            last = begin + together >= cnt
            wait = (other[0], (number, other[1], True)) if other[0] >= 0 and begin == 0 else None
            found.append(((number, s, last), step.get("type"), min(together, cnt - begin), wait))
    return found
